"""What is learned from which rows: subsets, inducing points, restarts, odd data, kernels of classes and along axes."""

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from support.fits import assert_same_bits, fit, losses, quietly, warnings_of
from support.reference import moons, ringnorm

from xgpc import GPClassifier
from xgpc.kernels import AxisMatern

# Points that a default fit to few rows begins with, and the least gain of the bound for each further one.
FIRST_OF_FEW, MIN_GAIN = 64, 0.05


def told(model, words):
    return [text for text in model.decisions_ if words in text]


def test_after_subsets_the_posterior_is_that_of_all_rows():
    """The optimum for the learned kernel and inducing points: what a fit finds that learns nothing."""
    X, y = ringnorm(2500, np.random.default_rng(0))
    model = fit(X, y, n_inducing=25, n_neighbors=0, subset_sizes=[300, 900], max_iter=40)
    learned = {"kernel": model.kernel_, "inducing_points": model.inducing_points_, "optimizer": None}
    for tol in (model.tol, 1e-8):
        fresh = clone(model).set_params(tol=tol, **learned).fit(X, y)
        assert model.elbo_ == pytest.approx(fresh.elbo_, rel=1e-6)
        np.testing.assert_allclose(model.predict_proba(X), fresh.predict_proba(X), atol=1e-3)


def test_a_later_subset_takes_at_most_three_times_as_long_as_the_stages_before():
    """By iterations times rows, as the inducing points are the same."""
    X, y = ringnorm(3000, np.random.default_rng(0))
    model = GPClassifier(n_inducing=20, n_neighbors=0, subset_sizes=[200, 3000], max_iter=30, tol=1e-9, random_state=0)
    quietly(model.set_params(kernel=ConstantKernel(2.0) * RBF(np.full(20, 4.0))), X, y)
    (decision,) = told(model, "the stages before")
    most = int(decision.split("at most ")[1].split()[0])
    assert 4 <= most < 30
    assert most * 3000 <= 3.0 * 30 * 10 * 200
    assert not told(quietly(clone(model).set_params(subset_sizes=None), X, y), "the stages before")
    assert model.n_iter_ <= 30 * 10 + most
    # The user's limit is lower than the least that such a stage has.
    few = quietly(clone(model).set_params(subset_sizes=[50, 3000], max_iter=2), X, y)
    assert not told(few, "the stages before")
    assert few.n_iter_ <= 2 * 10 + 2


@pytest.mark.parametrize("optimizer", [None, "profile"])
def test_data_that_need_more_inducing_points_get_them(optimizer):
    X, y = ringnorm(1000, np.random.default_rng(0))
    model = fit(X, y, optimizer=optimizer, max_iter=20)
    fewer = quietly(clone(model).set_params(n_inducing=FIRST_OF_FEW), X, y)
    assert len(fewer.inducing_points_) == FIRST_OF_FEW < len(model.inducing_points_) <= len(X)
    assert model.elbo_ > fewer.elbo_ + MIN_GAIN * (len(model.inducing_points_) - FIRST_OF_FEW)


WAYS = [{}, {"optimizer": None}, {"bound": "polya-gamma"}, {"subset_sizes": [300]}]


@pytest.mark.parametrize("params", [*WAYS, {"bound": "polya-gamma", "optimizer": "alternate"}], ids=str)
def test_data_that_need_no_more_inducing_points_have_the_fit_with_this_number(params):
    X, y = moons(400)
    auto, given = (fit(X, y, n_inducing=m, **params) for m in ("auto", FIRST_OF_FEW))
    assert len(auto.inducing_points_) == FIRST_OF_FEW
    assert auto.decisions_[-1].startswith("Not taken: ")
    assert_same_bits(given, auto, X)


POOR_BASIN = ConstantKernel(2.0, (0.1, 1e3)) * RBF(1000.0, (0.1, 1e3))


def test_a_restart_leaves_a_poor_basin():
    """The classes of moons from a start where every row is like every other: a linear boundary, or their own shape."""
    X, y = moons()
    once, again = (fit(X, y, POOR_BASIN, n_inducing=20, n_restarts_optimizer=n) for n in (0, 5))
    assert again.elbo_ > once.elbo_ + 20.0
    assert again.score(X, y) > once.score(X, y)
    assert np.all((again.kernel_.theta >= POOR_BASIN.bounds[:, 0]) & (again.kernel_.theta <= POOR_BASIN.bounds[:, 1]))


@pytest.mark.parametrize("kernel", [None, RBF(1.0), ConstantKernel(1.0) * RBF([0.3, 3.0]) + WhiteKernel(0.1)], ids=str)
@pytest.mark.parametrize("n_inducing", [12, "auto"])
def test_restarts_never_lower_the_bound(kernel, n_inducing):
    X, y = moons(60)
    for seed in range(2):
        given = {"n_inducing": n_inducing, "random_state": seed}
        once, again = (fit(X, y, kernel, n_restarts_optimizer=n, **given) for n in (0, 2))
        assert again.elbo_ >= once.elbo_ - 1e-9 * abs(once.elbo_)
        assert again.n_iter_ > once.n_iter_


def rough(seed):
    """Rows and labels of a function that few inducing points cannot carry."""
    rng = np.random.default_rng(seed)
    X, frequencies = rng.normal(size=(3200, 8)), rng.normal(size=(8, 500)) / 8**0.5
    # 500 random waves are nearly a draw of a process with an RBF kernel of variance 100.
    f = (100.0 / 250.0) ** 0.5 * np.cos(X @ frequencies + rng.uniform(0.0, 2.0 * np.pi, 500)) @ rng.normal(size=500)
    return X, (rng.random(3200) < 1.0 / (1.0 + np.exp(-f))).astype(int)


FEW_POINTS, VARIANCE = {"n_inducing": 16, "n_neighbors": 0, "random_state": 0}, "times the variance of the kernel"


@pytest.mark.parametrize("seed", range(3))
def test_where_points_cannot_carry_the_function_a_larger_variance_predicts_new_rows_better(seed):
    X, y = rough(seed)
    raised = GPClassifier(**FEW_POINTS).fit(X[:2200], y[:2200])
    (decision,) = told(raised, VARIANCE)
    kernel = clone(raised.kernel_)
    kernel.k1.constant_value /= float(decision.split()[1])
    given = {"kernel": kernel, "optimizer": None, "inducing_points": raised.inducing_points_}
    lower = GPClassifier(**FEW_POINTS | given).fit(X[:2200], y[:2200])
    gains = losses(lower, X[2200:], y[2200:]) - losses(raised, X[2200:], y[2200:])
    assert np.mean(gains) > np.std(gains) / 1000**0.5
    assert raised.elbo_ < lower.elbo_


def test_in_the_schemes_of_papers_the_bound_chooses_the_variance():
    X, y = rough(0)
    model = GPClassifier(**FEW_POINTS, bound="polya-gamma", optimizer="alternate").fit(X[:2200], y[:2200])
    assert not told(model, VARIANCE)


@pytest.mark.parametrize(("n_neighbors", "times_told"), [("auto", 1), (5, 0)])
def test_a_larger_variance_is_told_once_and_only_of_the_model_that_has_it(n_neighbors, times_told):
    X, y = load_digits(return_X_y=True)
    model = fit(X[:320], y[:320], n_inducing=20, n_neighbors=n_neighbors, max_iter=8)
    assert len(told(model, VARIANCE)) == times_told


def test_separable_classes_are_learned_up_to_the_bound_of_the_variance():
    X = np.linspace(-3.0, 3.0, 60)[:, None]
    y = (X[:, 0] > 0.05).astype(int)
    kernel = ConstantKernel(2.0, (1e-2, 50.0)) * RBF(1.0)
    (message,) = warnings_of(model := GPClassifier(kernel, random_state=0), X, y)
    assert "k1__constant_value = 50 is at its upper bound" in message
    assert "the classes separate" in message
    assert model.score(X, y) == 1.0
    assert model.elbo_ > GPClassifier(kernel, optimizer=None, random_state=0).fit(X, y).elbo_ + 1.0


def test_constant_features_keep_their_length_scale_and_do_not_matter():
    X, y = moons(150)
    model = fit(np.column_stack([X, np.full(150, 7.0)]), y, ConstantKernel(2.0) * RBF([1.0, 0.8, 1.7]), n_inducing=15)
    without = fit(X, y, ConstantKernel(2.0) * RBF([1.0, 0.8]), n_inducing=15)
    assert model.kernel_.k2.length_scale[2] == pytest.approx(1.7, rel=1e-5)
    assert not np.allclose(model.kernel_.k2.length_scale[:2], [1.0, 0.8], rtol=1e-3)
    np.testing.assert_allclose(model.inducing_points_[:, 2], 7.0, rtol=1e-8)
    assert model.elbo_ == pytest.approx(without.elbo_, abs=1e-2)


# Each pair of a number of rows, an optimizer and the sizes of subsets.
@pytest.mark.parametrize(("i", "n"), [*enumerate((2, 3, 5))], ids=str)
@pytest.mark.parametrize(("j", "optimizer"), [*enumerate((None, "profile", "alternate", "adam"))], ids=str)
def test_very_few_rows(i, n, j, optimizer):
    X, y = moons(60)
    subsets = ("auto", None, [1, 2])[(i + j) % 3]
    rows = np.concatenate([np.flatnonzero(y == 0)[: n // 2], np.flatnonzero(y == 1)[: n - n // 2]])
    model = fit(X[rows], y[rows], optimizer=optimizer, subset_sizes=subsets)
    # The bound for a latent function that is constantly zero.
    assert model.elbo_ >= -n * np.log(2.0) - (0.5 if optimizer is None else 0.1)
    assert 1 <= len(model.inducing_points_) <= n
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)


SHARED = {"n_inducing": 30, "n_neighbors": 0, "max_iter": 40, "tol": 1e-3, "random_state": 0}
BRIEF, ALL = SHARED | {"max_iter": 10}, ("elbo_", "n_iter_", "kernel_", "inducing_points_")


def own_features(n=1200):
    """Class c depends on feature c alone, in waves: a kernel for all needs short length scales in all features."""
    random = np.random.default_rng(0)
    X = random.uniform(-2.0, 2.0, (n, 3))
    return X, np.argmax(3.0 * np.sin(2.0 * X) + 0.25 * random.gumbel(size=X.shape), axis=1)


def test_classes_that_depend_on_features_of_their_own_have_kernels_of_their_own():
    X, y = own_features()
    separate, shared = (fit(X, y, share=share, **SHARED) for share in ("none", "kernel"))
    assert separate.share_ == "none"
    assert len(separate.kernel_) == 3
    assert separate.inducing_points_.shape == (3, 30, 3)
    # Each class's own feature has the shortest length scale.
    assert np.argmin(np.array([kernel.k2.length_scale for kernel in separate.kernel_]), axis=1).tolist() == [0, 1, 2]
    assert shared.share_ == "kernel"
    assert separate.elbo_ > shared.elbo_ + 50.0
    new, labels = (part[1200:] for part in own_features(3000))
    gains = losses(shared, new, labels) - losses(separate, new, labels)
    assert np.mean(gains) > 2.0 * np.std(gains) / np.sqrt(len(gains))


def test_a_new_fit_shares_its_kernel_by_default_and_a_warm_start_keeps_what_was():
    X, y = own_features(400)
    model, shared = (fit(X, y, **BRIEF | params) for params in ({}, {"share": "kernel"}))
    assert_same_bits(shared, model, X, ALL)
    own = fit(X, y, share="none", warm_start=True, **BRIEF)
    assert quietly(own.set_params(share="auto"), X, y).share_ == "none"


@pytest.mark.parametrize("share", ["auto", "kernel", "none"])
def test_two_classes_have_one_kernel(share):
    X, y = own_features(400)
    assert fit(X, y > 0, share=share, **BRIEF).share_ == "kernel"


# Fits without a given kernel try an axis-aligned one, and take it where classes are rules on single features.
D, THRESHOLD = 10, -2.26


def rules(n, seed):
    """Whether a sum of corners in pairs of the first six of ten features is large, as it is for half of the rows."""
    X, given = np.random.default_rng(seed).normal(size=(n, D)), np.random.default_rng(9)
    total = np.zeros(n)
    for _ in range(12):
        pair, threshold = given.choice(6, 2, replace=False), 0.7 * given.normal(size=2)
        side = given.choice([-1.0, 1.0], 2)
        total += given.normal() * np.all(side * (X[:, pair] - threshold) > 0.0, axis=1)
    return X, (total > THRESHOLD).astype(int)


@pytest.fixture(scope="module")
def on_rules():
    return fit(*rules(3000, 0))


def test_rules_on_single_features_have_an_axis_aligned_kernel(on_rules):
    assert isinstance(on_rules.kernel_.k2, AxisMatern)
    assert any(text.startswith("Taken: AxisMatern in place of RBF.") for text in on_rules.decisions_)
    scale, test = np.full(D, np.sqrt(D / 2.0)), rules(4000, 1)
    for shape in (RBF(scale), Matern(scale, nu=0.5)):
        other = fit(*rules(3000, 0), ConstantKernel(2.0) * shape)
        assert losses(on_rules, *test).mean() < losses(other, *test).mean()


def test_oblique_borders_keep_the_default_kernel():
    """The classes are those of rows rotated at random: no feature is special."""
    X = np.random.default_rng(0).normal(size=(2000, D))
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(D, D)))
    y = (np.sin(1.5 * X @ rotation[0]) + X @ rotation[1] > 0.0).astype(int)
    model = fit(X, y, n_neighbors=0)
    assert isinstance(model.kernel_.k2, RBF)
    texts = told(model, "AxisMatern")
    assert texts
    assert all(text.startswith("Not taken: ") for text in texts)


def test_the_factor_of_a_feature_does_not_matter(on_rules):
    X, y = rules(3000, 0)
    units = np.logspace(-3.0, 3.0, D)
    model = fit(X * units, y)
    assert type(model.kernel_.k2) is type(on_rules.kernel_.k2)
    T, _ = rules(500, 1)
    np.testing.assert_allclose(model.predict_proba(T * units), on_rules.predict_proba(T), atol=1e-3)


@pytest.mark.parametrize("params", [{"kernel": RBF(np.ones(D)), "n_inducing": 20}, {"max_iter": 2}], ids=str)
def test_no_kernel_is_tried_beside_a_given_one_or_in_few_iterations(params):
    model = fit(*rules(290, 0), n_neighbors=0, **params)
    assert not told(model, "AxisMatern")
    assert isinstance(model.kernel_ if "kernel" in params else model.kernel_.k2, RBF)


def test_the_kernel_that_predicts_left_out_rows_better_is_taken():
    """The decision says by how much their mean log probability changes."""
    X, y = rules(120, 0)
    model = fit(X, y, n_inducing=120, tol=1e-6, feature_transform=None)
    (text,) = told(model, "in place of RBF")
    change = float(re.search(r"changes by ([-+.0-9e]+) ", text)[1])
    assert isinstance(model.kernel_.k2, AxisMatern) == (change > 0.0)


def test_a_warm_start_keeps_the_axis_aligned_kernel():
    X, y = rules(1500, 0)
    model = fit(X, y, n_inducing=64, n_neighbors=0, warm_start=True, max_iter=20)
    assert isinstance(model.kernel_.k2, AxisMatern)
    assert isinstance(quietly(model.set_params(max_iter=1), X, y).kernel_.k2, AxisMatern)


def test_a_fit_is_the_same_for_any_number_of_threads(on_rules):
    assert_same_bits(on_rules, fit(*rules(3000, 0), n_jobs=2), rules(200, 1)[0])


def test_evaluations_of_the_choice_have_their_rows_and_points(on_rules):
    history = on_rules.history_
    decided = next(i for i, text in enumerate(history["decision"]) if "AxisMatern in place" in text)
    n_rows = history["n_rows"][:decided][np.isfinite(history["elbo"][:decided])]
    # Each of both kernels has eight iterations.
    assert len(n_rows) >= 16
    assert set(n_rows) == {2700}


def test_restarts_have_the_family_that_was_chosen():
    one, more = (fit(*rules(1500, 0), n_restarts_optimizer=n, n_neighbors=0, n_inducing=64) for n in (0, 1))
    assert isinstance(more.kernel_.k2, AxisMatern)
    assert more.elbo_ >= one.elbo_ - 1e-6 * abs(one.elbo_)
