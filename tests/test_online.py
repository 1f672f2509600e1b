"""Streams of batches: sites of rows that are gone stay, those of new rows are as in a fit under that prior."""

import copy

import numpy as np
import pytest
from support.fits import assert_same_bits, clone_of, quietly, refuses, reloaded
from support.latents import cases
from support.online import CASES, FIRST, FLOWERS, KERNEL, KINDS, SECOND, THIRD, X, model, rows_for, y
from support.reference import DenseModel, divergence
from support.sites import build, evaluate_one
from support.training import training, updated


def natural(fitted):
    P, h = fitted.posterior_.eta
    return np.tril(P), h


def assert_close(one, other, tol):
    for a, b in zip(natural(one), natural(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * np.max(np.abs(b)))


@cases(CASES)
def test_the_first_batch_is_a_fit_and_what_forgets_all_is_a_fit_of_the_next(likelihood, bound, share):
    rows, labels = rows_for(likelihood)
    one = model(likelihood, bound, share=share)
    streamed = copy.deepcopy(one).partial_fit(rows[FIRST], labels[FIRST])
    fitted = copy.deepcopy(one).fit(rows[FIRST], labels[FIRST])
    np.testing.assert_equal(natural(streamed), natural(fitted))
    assert streamed.elbo_ == fitted.elbo_
    streamed.partial_fit(rows[SECOND], labels[SECOND], forgetting_factor=0)
    other = copy.deepcopy(one).fit(rows[SECOND], labels[SECOND])
    assert_close(streamed, other, 1e-9)
    assert streamed.elbo_ == pytest.approx(other.elbo_, abs=1e-7)
    corrections = streamed._evidence.correction, other._evidence.correction
    if corrections[1] is not None:
        np.testing.assert_allclose(corrections[0][0], corrections[1][0], rtol=1e-7, atol=1e-9)


@cases(CASES)
def test_a_later_batch_has_the_sites_of_its_own_posterior(likelihood, bound, share):
    """The fixed point: q's natural parameters are those before by the forgetting factor, and the sites that q itself
    makes of the new rows."""
    factor = {"logit": 0.25, "softmax": 0.5}.get(likelihood, 1.0)
    rows, labels = rows_for(likelihood)
    one = model(likelihood, bound, share=share, tol=1e-12).partial_fit(rows[FIRST], labels[FIRST])
    before = natural(one)
    one.partial_fit(rows[SECOND], labels[SECOND], forgetting_factor=factor)
    assert one.converged_
    q, C = one.posterior_, one.posterior_.n_latents
    site = one._record.site(len(one.classes_))
    targets = labels[SECOND].astype(float) if C > 1 else 2.0 * labels[SECOND] - 1.0
    _, *sums = updated(training(rows[SECOND], targets, n_latents=C), q, site)
    for made, old, now, prior in zip(sums, before, natural(one), (np.eye(12), 0.0), strict=True):
        np.testing.assert_allclose(factor * (old - prior) + made, now, rtol=2e-4, atol=2e-4 * np.max(np.abs(now)))


@pytest.mark.parametrize("bound", ["polya-gamma", "exact"])
def test_two_batches_are_those_of_a_dense_reference(bound):
    batches = [DenseModel(KERNEL, KERNEL.diag, 1e-6, X[part], X[:12], 2.0 * y[part] - 1.0) for part in (FIRST, SECOND)]
    first, second = batches
    before = first.eta_1, first.eta_2
    for dense in batches:
        for _ in range(300):
            ell, precision, linear = evaluate_one(build("logit", bound, 2), *dense.marginals(), dense.y)
            dense.eta_1 = before[0] + dense.kappa.T @ linear
            dense.eta_2 = before[1] - 0.5 * dense.kappa.T @ (precision[:, None] * dense.kappa)
        before = dense.eta_1, dense.eta_2

    one = model(bound=bound, tol=1e-13).partial_fit(X[FIRST], y[FIRST]).partial_fit(X[SECOND], y[SECOND])
    P, h = second.whitened()
    (found_P,), (found_h,) = natural(one)
    np.testing.assert_allclose(found_P, np.tril(P), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found_h, h, rtol=1e-6, atol=1e-6)
    assert one.elbo_ == pytest.approx(np.sum(ell) - divergence(*second.moments, *first.moments), abs=1e-6)


def test_a_row_of_weight_two_is_two_rows_in_any_order():
    rows, labels, weight = X[SECOND], y[SECOND], np.repeat([2, 1, 0], [20, 30, 10])
    weighted, other = (model(tol=1e-13).partial_fit(X[FIRST], y[FIRST]) for _ in range(2))
    weighted.partial_fit(rows, labels, sample_weight=weight)
    repeated = np.random.default_rng(1).permutation(np.repeat(np.arange(60), weight))
    assert_close(other.partial_fit(rows[repeated], labels[repeated]), weighted, 1e-8)


def test_partial_fit_goes_on_from_a_fit():
    learned = {"optimizer": "profile", "max_iter": 10, "tol": 1e-4, "n_inducing": 8, "inducing_points": "kmeans"}
    fitted = quietly(model(n_neighbors=0, **learned), X[FIRST], y[FIRST])
    kernel, Z = fitted.kernel_, fitted.inducing_points_.copy()
    before = natural(fitted)
    assert fitted.set_params(n_neighbors="auto").partial_fit(X[SECOND], y[SECOND]) is fitted
    assert fitted.kernel_ == kernel
    np.testing.assert_array_equal(fitted.inducing_points_, Z)
    assert not np.array_equal(natural(fitted)[1], before[1])
    assert fitted.n_neighbors == "auto"
    assert fitted.n_neighbors_ == 0
    assert fitted.optimizer == "profile"
    assert set(fitted.history_["n_rows"]) == {60.0}


def test_streamed_posteriors_are_nearly_those_of_all_rows():
    """What frozen sites cost is little next to what the rows tell."""
    one = model()
    for batch in (FIRST, SECOND, THIRD):
        one.partial_fit(X[batch], y[batch])
    whole = model().fit(X, y)
    cost, gain = whole.elbo_ - one.elbo(X, y), whole.elbo_ - model().fit(X[FIRST], y[FIRST]).elbo(X, y)
    assert 0.0 <= cost < 0.05 * gain


@cases([("logit", "polya-gamma", "kernel"), ("softmax", "exact", "none")])
def test_rows_of_a_new_place_become_inducing_points(likelihood, bound, share):
    rows, labels = rows_for(likelihood)
    away = rows + 20.0
    fixed = model(likelihood, bound, share=share).partial_fit(rows[FIRST], labels[FIRST])
    grown = copy.deepcopy(fixed)
    fixed.partial_fit(away[SECOND], labels[SECOND])
    grown.partial_fit(away[SECOND], labels[SECOND], n_new_inducing=10)
    assert grown.inducing_points_.shape[-2] == 22
    assert grown.elbo_ > fixed.elbo_ + 5.0
    np.testing.assert_array_equal(grown.inducing_points_[..., :12, :], fixed.inducing_points_)
    # The rows before, which the new points tell nothing of, are predicted as before.
    np.testing.assert_allclose(grown.predict_proba(rows[FIRST]), fixed.predict_proba(rows[FIRST]), atol=1e-6)
    score = np.mean(grown.predict(away[THIRD]) == labels[THIRD])
    assert score > np.mean(fixed.predict(away[THIRD]) == labels[THIRD]) + 0.1
    if bound == "polya-gamma":
        assert np.all(np.isfinite(grown.predict_proba(X, corrected=True)))


def test_classes_that_come_later():
    first = np.flatnonzero(KINDS < 2)[:40]
    one = model("softmax").partial_fit(FLOWERS[first], KINDS[first], classes=[2, 0, 1])
    np.testing.assert_array_equal(one.classes_, [0, 1, 2])
    virginica = np.flatnonzero(KINDS == 2)
    before = one.predict_proba(FLOWERS[virginica])[:, 2]
    one.partial_fit(FLOWERS[virginica[:30]], KINDS[virginica[:30]], classes=np.arange(3))
    assert np.all(one.predict_proba(FLOWERS[virginica])[:, 2] > before)
    assert one.score(FLOWERS, KINDS) > 0.9


@cases([("logit", "polya-gamma", "kernel"), ("probit", "additive-noise", "kernel"), ("softmax", "exact", "none")])
def test_a_saved_model_goes_on_with_the_same_bits(tmp_path, likelihood, bound, share):
    rows, labels = rows_for(likelihood)
    one = model(likelihood, bound, share=share, tol=1e-5).partial_fit(rows[FIRST], labels[FIRST])
    one.partial_fit(rows[SECOND], labels[SECOND])
    others = [reloaded(one, tmp_path), clone_of(one), copy.deepcopy(one)]
    for each in (one, *others):
        each.partial_fit(rows[THIRD], labels[THIRD], forgetting_factor=0.9, n_new_inducing=2)
    for other in others:
        np.testing.assert_equal(natural(one), natural(other))
        assert_same_bits(one, other, rows, ("elbo_", "n_iter_", "converged_"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"y": np.full(60, 7)}, r"labels \[7\] that are not in classes \[0, 1\]"),
        ({"y": y[SECOND].astype(str)}, r"labels \['0', '1'\] that are not in"),
        ({"y": np.array([0, "1"] * 30, dtype=object)}, r"an array of objects with labels such as 0 \(int\)"),
        ({"y": y[SECOND] + 0.5}, "the label 0.5, which looks like a measurement"),
        ({"y": y[SECOND][:-1]}, "inconsistent numbers of samples"),
        ({"X": X[SECOND][:, :1]}, "X has 1 features, but GPClassifier is expecting 2"),
        ({"X": np.full((60, 2), "a")}, "could not convert string"),
        ({"X": X[SECOND] * np.nan}, "NaN"),
        ({"X": X[:0], "y": y[:0]}, "0 sample"),
        ({"classes": [0, 1, 2]}, r"classes must be None or those of the first call, \[0, 1\]"),
        ({"classes": ["0", "1"]}, "those of the first call"),
        ({"classes": [0]}, "two or more"),
        ({"sample_weight": np.zeros(60)}, "each sample_weight.* is zero"),
        ({"sample_weight": -np.ones(60)}, "must not be negative"),
        ({"forgetting_factor": 1.5}, "forgetting_factor must be a number from 0 to 1; got 1.5"),
        ({"forgetting_factor": True}, "forgetting_factor"),
        ({"n_new_inducing": -1}, "n_new_inducing must be an integer that is not negative"),
    ],
)
def test_bad_batches_leave_the_model_as_it_was(given, said):
    refuses(said, model().partial_fit(X[FIRST], y[FIRST]).partial_fit, **{"X": X[SECOND], "y": y[SECOND]} | given)


NEED_ALL_ROWS = [({"inducing_points": "all"}, "full Gaussian process"), ({"max_iter": 0}, "max_iter must be")]
NEED_ALL_ROWS += [({"class_weight": "balanced"}, "'balanced' needs the number of rows of each class")]


@pytest.mark.parametrize(("params", "said"), NEED_ALL_ROWS)
def test_parameters_that_need_all_rows_are_refused_in_every_call(params, said):
    refuses(said, model(**params).partial_fit, X[FIRST], y[FIRST])
    refuses(said, model().partial_fit(X[FIRST], y[FIRST]).set_params(**params).partial_fit, X[SECOND], y[SECOND])
