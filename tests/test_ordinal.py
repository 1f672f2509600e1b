"""Ordered classes: cut points, the order of the labels, and what else a model of them does."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import TimeSeriesSplit, cross_val_score
from support.fits import (
    assert_same_bits,
    assert_weights_are_copies,
    clone_of,
    losses,
    quietly,
    refuses,
    reloaded,
    without_warnings,
)
from support.reference import in_levels

from xgpc import GPClassifier, GPOrdinalClassifier, _sites
from xgpc.acquisition import mutual_information, predictive_entropy, select
from xgpc.likelihoods import record_of

every_link = pytest.mark.parametrize("link", ["logit", "probit"])


def test_learned_cut_points_maximise_the_bound():
    X, y = in_levels()
    model = quietly(GPOrdinalClassifier(n_inducing=20, tol=1e-7, random_state=0), X, y)
    site = record_of("ordinal-logit", "exact").at(model.cut_points_).site(4)
    mean, variance = (moment[None] for moment in model.posterior_.marginals(X))
    assert np.max(np.abs(_sites.parameter_gradient(site, mean, variance, 2.0 * y - 1.0, np.empty(0)))) < 0.05


@every_link
def test_two_classes_are_those_of_the_binary_likelihood(link):
    X, y = in_levels(levels=2)
    same = {"likelihood": link, "optimizer": None, "n_inducing": 20, "random_state": 0, "tol": 1e-9, "n_neighbors": 0}
    ordered = quietly(GPOrdinalClassifier(RBF(), **same), X, y)
    binary = quietly(GPClassifier(RBF(), mean=-float(ordered.cut_points_[0]), **same), X, y)
    assert_allclose(ordered.elbo_, binary.elbo_, rtol=1e-5)
    assert_allclose(ordered.predict_proba(X), binary.predict_proba(X), atol=1e-5)


@every_link
def test_cut_points_that_are_not_learned_predict_the_frequencies_far_from_rows(link):
    X, y = in_levels()
    model = quietly(GPOrdinalClassifier(RBF(0.5), likelihood=link, optimizer=None), X, np.maximum(y, 1))
    assert_allclose(model.predict_proba(np.full((1, X.shape[1]), 1e5))[0], np.bincount(y - (y > 0)) / len(y), rtol=1e-6)


@every_link
def test_the_reverse_order_of_the_classes_gives_the_mirrored_model(link):
    X, y = in_levels()
    model, mirrored = (quietly(GPOrdinalClassifier(likelihood=link, random_state=0), X, one) for one in (y, 3 - y))
    assert_allclose(mirrored.cut_points_, -model.cut_points_[::-1], rtol=1e-6)
    assert_allclose(mirrored.predict_proba(3.0 * X)[:, ::-1], model.predict_proba(3.0 * X), atol=1e-6)


def test_predictions_do_not_depend_on_the_names_of_the_classes():
    X, y = in_levels()
    names = np.array(["poor", "fair", "good", "best"])
    numbered = quietly(GPOrdinalClassifier(n_inducing=15, random_state=0), X, y)
    named = quietly(GPOrdinalClassifier(n_inducing=15, random_state=0), X, names[y], classes=names)
    assert_array_equal(named.classes_, np.sort(names))
    assert_array_equal(named.ordered_classes_, names)
    columns = np.searchsorted(named.classes_, names)
    assert_array_equal(named.class_count_[columns], numbered.class_count_)
    assert_array_equal(named.predict_proba(X)[:, columns], numbered.predict_proba(X))
    gradients = (one.predict_proba(X, return_grad=True)[1] for one in (named, numbered))
    assert_array_equal(next(gradients)[:, columns], next(gradients))
    assert_array_equal(named.decision_function(X)[:, columns], numbered.decision_function(X))
    assert_allclose(mutual_information(named, X), mutual_information(numbered, X), atol=1e-14)
    assert_array_equal(select(named, X, 5), select(numbered, X, 5))
    assert_array_equal(named.predict(X), names[numbered.predict(X)])
    assert_allclose(named.elbo(X, names[y]), numbered.elbo(X, y), rtol=1e-12)
    assert named.score(X, names[y]) > 0.6
    assert "poor " in named.summary().split("fair ")[0]
    numbered.partial_fit(X[:5], y[:5])
    named.partial_fit(X[:5], names[y[:5]], classes=names)
    assert_array_equal(named.ordered_classes_, names)
    assert_array_equal(named.class_count_[columns], numbered.class_count_)
    assert named.drift_ == pytest.approx(numbered.drift_, rel=1e-12)
    assert_array_equal(named.predict_proba(X)[:, columns], numbered.predict_proba(X))
    with pytest.raises(ValueError, match=r"those of the first call, \['poor', 'fair', 'good', 'best'\]"):
        named.partial_fit(X[:5], names[y[:5]], classes=names[::-1])


def test_scores_and_calibration_of_scikit_learn_do_not_depend_on_the_names():
    X, y = in_levels(120, levels=3)
    names = np.array(["low", "medium", "high"])
    labels = pd.Series(pd.Categorical.from_codes(y, names, ordered=True))
    model = GPOrdinalClassifier(RBF(), optimizer=None, n_inducing=10, random_state=0)
    for scoring in ("neg_log_loss", "roc_auc_ovr", "accuracy"):
        named, numbered = (cross_val_score(model, X, given, scoring=scoring, cv=3) for given in (labels, y))
        assert_allclose(named, numbered, rtol=1e-12)
    # cross_val_predict numbers the labels as their names sort, and so loses some of their order.
    calibrated = CalibratedClassifierCV(model, ensemble=False, cv=3)
    named, numbered = (calibrated.fit(X, given).score(X, given) for given in (labels, y))
    assert named > numbered - 0.2


@pytest.mark.parametrize(("groups", "splitter"), [(np.arange(200) // 10, None), (None, TimeSeriesSplit(3))])
def test_rows_kept_apart_confirm_a_kernel(groups, splitter):
    """A kernel along the axes predicts held-out rows better; these have their levels as labels."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3))
    y = np.digitize(np.abs(X[:, 0]) + np.abs(X[:, 1]) + 0.3 * random.normal(size=200), [0.5, 1.2, 2.0])
    names = np.array(["d", "a", "c", "b"])
    model = GPOrdinalClassifier(n_inducing=30, max_iter=10, held_out_split=splitter, random_state=0)
    given = (y, range(4)), (names[y], names)
    fits = [quietly(clone(model), X, labels, classes=order, groups=groups) for labels, order in given]
    for model in fits:
        assert any("AxisMatern in place of RBF. The mean log probability of" in text for text in model.decisions_)
    assert fits[0].elbo_ == fits[1].elbo_


def arrow_levels(y, names):
    return pa.DictionaryArray.from_arrays(pa.array(y), pa.array(names), ordered=True)


def as_table(y):
    return pa.table({"grade": y})


@pytest.mark.parametrize("in_table", [False, True])
@pytest.mark.parametrize(
    ("levels", "table"),
    [
        (lambda y, names: pd.Series(pd.Categorical.from_codes(y, names, ordered=True)), lambda y: y.to_frame("grade")),
        (lambda y, names: pd.Categorical.from_codes(y, names, ordered=True), lambda y: pd.DataFrame({"grade": y})),
        (lambda y, names: pl.Series(names[y]).cast(pl.Enum(list(names))), lambda y: pl.DataFrame({"grade": y})),
        (arrow_levels, as_table),
        (arrow_levels, lambda y: pa.record_batch({"grade": y})),
        (lambda y, names: pa.chunked_array([arrow_levels(y[:9], names), arrow_levels(y[9:], names)]), as_table),
        (lambda y, names: pd.Series(pd.arrays.ArrowExtensionArray(arrow_levels(y, names))), pd.DataFrame),
    ],
    ids=["series", "categorical", "polars", "dictionary", "batch", "chunks", "arrow in pandas"],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_labels_that_have_an_order_keep_it(levels, table, in_table):
    X, y = in_levels(60, levels=3)
    names = np.array(["low", "medium", "high", "top"])
    options = {"optimizer": None, "n_inducing": 8, "random_state": 0}
    named = quietly(GPOrdinalClassifier(RBF(), **options), X, names[y], classes=names)
    given = table(levels(y, names)) if in_table else levels(y, names)
    own = quietly(GPOrdinalClassifier(RBF(), **options), X, given)
    assert_array_equal(own.ordered_classes_, names)
    assert not any("ordered as their names sort" in sentence for sentence in own.decisions_)
    assert_array_equal(own.predict_proba(X), named.predict_proba(X))
    assert_array_equal(own.fit(X, given, classes=names[::-1]).ordered_classes_, names[::-1])
    assert_array_equal(quietly(GPClassifier(RBF(), **options), X, given).classes_, np.sort(names[:3]))


def test_names_that_are_sorted_for_want_of_an_order_are_a_decision_and_a_warning():
    X, y = in_levels(60, levels=3)
    names = np.array(["low", "medium", "high"])
    model = GPOrdinalClassifier(RBF(), optimizer=None, n_inducing=8, random_state=0)
    for labels in (names[y], pd.Series(pd.Categorical.from_codes(y, names)), pl.Series(names[y]).cast(pl.Categorical)):
        with pytest.warns(UserWarning, match=r"\['high', 'low', 'medium'\].* give classes=\[\.\.\.\]") as caught:
            quietly(model, X, labels)
        assert_array_equal(model.ordered_classes_, np.sort(names))
        assert str(caught[0].message) in model.decisions_
    for labels, classes in ((y, None), (names[y], np.sort(names))):
        quietly(model, X, labels, classes=classes)
        assert not any("as their names sort" in sentence for sentence in model.decisions_)
    chunks = pa.chunked_array([arrow_levels(y[:30], names), arrow_levels(y[30:], names[::-1])])
    refuses(r"different levels, \['low', 'medium', 'high'\] and .* give classes", model.fit, X, chunks)


def test_the_order_of_the_classes_follows_the_feature():
    X, y = in_levels(300)
    model = quietly(GPOrdinalClassifier(n_inducing=20, random_state=0), X, y)
    line = np.column_stack([np.linspace(-2.0, 2.0, 50), np.zeros(50)])
    assert np.all(np.diff(np.cumsum(model.predict_proba(line), axis=1)[:, :-1], axis=0) < 1e-3)
    assert np.all(np.diff(model.predict(line)) >= 0)
    assert np.all(np.diff(model.cut_points_) > 0.0)


def test_order_beats_classes_without_order():
    X, y = in_levels(200, levels=6)
    models = [kind(n_inducing=20, n_neighbors=0, random_state=0) for kind in (GPOrdinalClassifier, GPClassifier)]
    ordered, free = (quietly(model, X[:100], y[:100], classes=range(6)) for model in models)
    assert losses(ordered, X[100:], y[100:]).mean() < losses(free, X[100:], y[100:]).mean()


def test_a_level_without_rows_has_a_small_probability():
    X, y = in_levels()
    model = quietly(GPOrdinalClassifier(n_inducing=15, random_state=0), X, np.where(y > 1, y + 1, y), classes=range(5))
    assert 0.0 < np.max(model.predict_proba(X)[:, 2]) < 0.05
    assert np.all(np.diff(model.cut_points_) > 0.0)


@every_link
def test_saved_copied_and_warm_models_predict_alike(link, tmp_path):
    X, y = in_levels(80)
    names = np.array(["d", "b", "c", "a"])
    model = GPOrdinalClassifier(likelihood=link, n_inducing=10, random_state=0, warm_start=True)
    quietly(model, X, names[y], classes=names)
    for other in (reloaded(model, tmp_path), clone_of(model)):
        assert_same_bits(model, other, X, ("ordered_classes_", "class_count_"))
    # Files of earlier versions have the classes by level, too.
    with np.load(tmp_path / "model.npz") as arrays:
        assert_array_equal(arrays["classes"], names)
        assert_array_equal(arrays["class_count_"], model.class_count_[np.searchsorted(model.classes_, names)])
    before = model.elbo_
    quietly(model, X, names[y], classes=names)
    assert model.elbo_ > before - 0.5
    assert not any("begins anew" in sentence for sentence in model.decisions_)
    quietly(model, X, names[y], classes=names[[1, 0, 2, 3]])
    assert any("begins anew" in sentence for sentence in model.decisions_)
    path, message = tmp_path / "model.npz", r"saved by {}\.save: its likelihood '{}' is that of"
    refuses(message.format("GPClassifier", f"ordinal-{link}"), GPClassifier.load, path)
    quietly(GPClassifier(n_inducing=10, optimizer=None), X, y).save(path)
    refuses(message.format("GPOrdinalClassifier", "softmax"), GPOrdinalClassifier.load, path)


def test_rows_are_chosen_where_a_label_tells_most():
    X, y = in_levels(80)
    model = quietly(GPOrdinalClassifier(RBF(), n_inducing=10, random_state=0), X, y)
    candidates = np.random.default_rng(5).normal(size=(30, 2))
    information = mutual_information(model, candidates)
    chosen = select(model, candidates, n=3)
    assert chosen[0] == np.argmax(information)
    assert len(set(chosen)) == 3
    assert np.all(information <= predictive_entropy(model, candidates))


def test_threads_and_batches_give_the_same_model():
    X, y = in_levels(1500)
    same = {"n_inducing": 10, "max_iter": 5, "random_state": 0}
    one = quietly(GPOrdinalClassifier(**same), X, y)
    assert_array_equal(one.predict_proba(X), quietly(GPOrdinalClassifier(**same, n_jobs=2), X, y).predict_proba(X))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"likelihood": "softmax"}, "likelihood must be"),
        ({"optimizer": "adam"}, "choose one of"),
        ({"n_neighbors": 5}, "n_neighbors"),
        ({"mean": 1.0}, "cut points instead"),
        ({"label_noise": 0.1}, "label_noise"),
    ],
)
def test_what_ordered_classes_do_not_have_is_an_error(given, message):
    refuses(message, GPOrdinalClassifier(**given).fit, *in_levels(40))


@pytest.mark.parametrize("n_rows", [1000, 100])
def test_batches_take_the_order_of_the_classes(n_rows, tuned):
    """With all rows in memory and with a sample of them; an order that is not named is that of the sorted names."""
    tuned(kept_rows=n_rows)
    X, y = in_levels(300)
    names = np.array(["d", "b", "c", "a"])
    numbered, named, unnamed = (GPOrdinalClassifier(n_inducing=10, max_iter=5, random_state=0) for _ in range(3))
    without_warnings(numbered.fit_batches, [(X[:170], y[:170]), (X[170:], y[170:])])
    without_warnings(named.fit_batches, [(X[:170], names[y[:170]]), (X[170:], names[y[170:]])], classes=names)
    assert_array_equal(named.ordered_classes_, names)
    assert_array_equal(named.predict_proba(X)[:, np.searchsorted(named.classes_, names)], numbered.predict_proba(X))
    with pytest.warns(UserWarning, match=r"as their names sort, \['a', 'b', 'c', 'd'\]"):
        without_warnings(unnamed.fit_batches, [(X, names[y])])
    # Labels that have an order keep it.
    graded = [pd.Categorical.from_codes(y, order, ordered=True) for order in (names, names[::-1], [*names, "e"])]
    without_warnings(
        unnamed.fit_batches, [(X[:170], graded[0][:170]), (X[170:], pl.Series(names[y[170:]], dtype=pl.Enum(names)))]
    )
    assert_same_bits(named, unnamed, X, ("elbo_", "ordered_classes_"))
    refuses("different levels.* give classes", unnamed.fit_batches, [(X, graded[0]), (X, graded[1])])
    without_warnings(unnamed.fit_batches, [(X, graded[2])])
    assert_same_bits(named, unnamed, X, ("elbo_", "ordered_classes_"))
    assert GPClassifier(n_inducing=5, optimizer=None).fit_batches([(X, labels) for labels in graded[:2]]).converged_


def test_a_weight_counts_as_equal_rows():
    X, y = in_levels(60)
    count = np.random.default_rng(1).integers(1, 4, len(y))
    model = GPOrdinalClassifier(RBF(), optimizer=None, inducing_points=X[:15], tol=1e-9, feature_transform=None)
    weighted, repeated = assert_weights_are_copies(model, X, y, count, 1e-9, 1e-8)
    assert_allclose(weighted.cut_points_, repeated.cut_points_, rtol=1e-12)
