"""What is learned from which rows: subsets, the number of inducing points, restarts, warnings, odd data."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.fits import quietly, warnings_of
from support.internals import (
    FIRST_OF_FEW,
    GROWTH,
    LAST_ROWS,
    MIN_GAIN,
    ROWS_PER_POINT,
    SparsePrior,
    Subsets,
    subset_sizes,
)
from support.reference import moons, ringnorm

from xgpc import GPClassifier

repeatable = settings(deadline=None, derandomize=True, max_examples=80)


# Subsets.


@repeatable
@given(st.lists(st.integers(1, 40), min_size=2, max_size=2), st.integers(0, 2**20))
def test_every_subset_has_the_classes_in_proportion(counts, seed):
    y = np.random.default_rng(seed).permutation(np.repeat([-1.0, 1.0], counts))
    subsets = Subsets(y, np.random.RandomState(seed))
    for size in range(1, len(y)):
        rows = subsets.rows(size)
        assert len(rows) == size
        for label, count in zip((-1.0, 1.0), counts, strict=True):
            assert abs(np.count_nonzero(y[rows] == label) - size * count / len(y)) < 1.0


@repeatable
@given(st.lists(st.booleans(), min_size=2, max_size=60), st.integers(0, 2**20))
def test_subsets_are_nested_ascending_rows_and_none_stands_for_all_at_the_end(labels, seed):
    y = np.where(labels, 1.0, -1.0)
    subsets = Subsets(y, np.random.RandomState(seed))
    before = np.empty(0, dtype=int)
    for size in range(1, len(y)):
        rows = subsets.rows(size)
        assert np.all(np.diff(rows) > 0)
        assert np.all(np.isin(before, rows))
        before = rows
    for size in (len(y), len(y) + 1, 10**9):
        assert subsets.rows(size) is None


@repeatable
@given(st.integers(2, 10 * LAST_ROWS), st.integers(1, 4096), st.integers(0, 10 * LAST_ROWS))
def test_automatic_sizes_grow_and_more_rows_add_stages_at_the_end(n_rows, n_inducing, more):
    *before, last = subset_sizes(n_rows, n_inducing, "auto")
    assert last == min(n_rows, LAST_ROWS)
    assert all(second == GROWTH * first for first, second in pairwise(before))
    assert all(size >= ROWS_PER_POINT * n_inducing for size in before)
    # Each stage is worth its while, and none is missing: the last is more than twice the one before, or alone.
    assert not before or 2 * before[-1] < last <= 2 * GROWTH * before[-1]
    assert subset_sizes(n_rows + more, n_inducing, "auto")[: len(before)] == before
    assert subset_sizes(n_rows, n_inducing + 1, "auto")[0] >= [*before, last][0]


@pytest.fixture(scope="module")
def staged():
    """Learned on 300, then 900 of 2500 rows."""
    X, y = ringnorm(2500, np.random.default_rng(0))
    model = GPClassifier(n_inducing=25, n_neighbors=0, subset_sizes=[300, 900], max_iter=40, random_state=0)
    return X, y, quietly(model, X, y)


def test_after_subsets_the_posterior_is_that_of_all_rows(staged):
    """The optimum for the learned kernel and inducing points: what a fit finds that learns nothing."""
    X, y, model = staged
    params = {"inducing_points": model.inducing_points_, "optimizer": None}
    for tol in (model.tol, 1e-8):
        fresh = clone(model).set_params(kernel=model.kernel_, tol=tol, **params).fit(X, y)
        assert model.elbo_ == pytest.approx(fresh.elbo_, rel=1e-6)
        np.testing.assert_allclose(model.predict_proba(X), fresh.predict_proba(X), atol=1e-3)


# The number of inducing points.


@pytest.fixture(scope="module", params=[None, "profile"], ids=str)
def grown(request):
    X, y = ringnorm(1000, np.random.default_rng(0))
    model = GPClassifier(optimizer=request.param, max_iter=20, random_state=0)
    return X, y, quietly(model, X, y)


def test_data_that_need_more_inducing_points_get_them(grown):
    X, y, model = grown
    fewer = quietly(clone(model).set_params(n_inducing=FIRST_OF_FEW), X, y)
    assert len(fewer.inducing_points_) == FIRST_OF_FEW < len(model.inducing_points_) <= len(X)
    assert model.elbo_ > fewer.elbo_ + MIN_GAIN * (len(model.inducing_points_) - FIRST_OF_FEW)


@pytest.mark.parametrize(("optimizer", "bound"), [(None, "exact"), ("profile", "exact"), ("alternate", "polya-gamma")])
def test_data_that_need_no_more_inducing_points_get_none(optimizer, bound):
    X, y = moons(200)
    model = quietly(GPClassifier(optimizer=optimizer, bound=bound, random_state=0), X, y)
    assert len(model.inducing_points_) == FIRST_OF_FEW
    assert "not taken" in model.decisions_[-1]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"bound": "polya-gamma"},
        {"subset_sizes": [300]},
    ],
    ids=str,
)
def test_points_that_were_left_have_changed_nothing(params):
    """The fit is that with the number given that "auto" stays at."""
    X, y = moons(400)
    auto, given = (quietly(GPClassifier(n_inducing=m, random_state=0, **params), X, y) for m in ("auto", FIRST_OF_FEW))
    assert len(auto.inducing_points_) == FIRST_OF_FEW
    assert auto.elbo_ == given.elbo_
    assert auto.kernel_ == given.kernel_
    assert np.array_equal(auto.inducing_points_, given.inducing_points_)


# Restarts.

POOR_BASIN = ConstantKernel(2.0, (0.1, 1e3)) * RBF(1000.0, (0.1, 1e3))


def test_a_restart_leaves_a_poor_basin():
    """The classes of moons from a start where every row is like every other: a linear boundary, or their own shape."""
    X, y = moons()
    once, again = (
        quietly(GPClassifier(POOR_BASIN, n_inducing=20, n_restarts_optimizer=n, random_state=0), X, y) for n in (0, 5)
    )
    assert again.elbo_ > once.elbo_ + 20.0
    assert again.score(X, y) > once.score(X, y)
    assert np.all((again.kernel_.theta >= POOR_BASIN.bounds[:, 0]) & (again.kernel_.theta <= POOR_BASIN.bounds[:, 1]))


@pytest.mark.parametrize("kernel", [None, RBF(1.0), ConstantKernel(1.0) * RBF([0.3, 3.0]) + WhiteKernel(0.1)], ids=str)
@pytest.mark.parametrize("n_inducing", [12, "auto"])
def test_restarts_never_lower_the_bound(kernel, n_inducing):
    X, y = moons(60)
    for seed in range(2):
        model = GPClassifier(kernel, n_inducing=n_inducing, random_state=seed)
        once, again = (quietly(clone(model).set_params(n_restarts_optimizer=n), X, y) for n in (0, 2))
        assert again.elbo_ >= once.elbo_ - 1e-9 * abs(once.elbo_)
        assert again.n_iter_ > once.n_iter_


# Data at the limits.


def test_separable_classes_are_learned_up_to_the_bound_of_the_variance():
    X = np.linspace(-3.0, 3.0, 60)[:, None]
    y = (X[:, 0] > 0.05).astype(int)
    kernel = ConstantKernel(2.0, (1e-2, 50.0)) * RBF(1.0)
    messages = warnings_of(model := GPClassifier(kernel, random_state=0), X, y)
    assert len(messages) == 1
    assert "k1__constant_value = 50 is at its upper bound" in messages[0]
    assert "the classes separate" in messages[0]
    assert model.score(X, y) == 1.0
    start = GPClassifier(kernel, optimizer=None, random_state=0).fit(X, y)
    assert model.elbo_ > start.elbo_ + 1.0


def test_constant_features_keep_their_length_scale_and_do_not_matter():
    value = 7.0
    X, y = moons(150)
    with_constant = np.column_stack([X, np.full(150, value)])
    kernel = ConstantKernel(2.0) * RBF([1.0, 0.8, 1.7])
    model = quietly(GPClassifier(kernel, n_inducing=15, random_state=0), with_constant, y)
    without = quietly(GPClassifier(ConstantKernel(2.0) * RBF([1.0, 0.8]), n_inducing=15, random_state=0), X, y)
    assert model.kernel_.k2.length_scale[2] == pytest.approx(1.7, rel=1e-5)
    assert not np.allclose(model.kernel_.k2.length_scale[:2], [1.0, 0.8], rtol=1e-3)
    np.testing.assert_allclose(model.inducing_points_[:, 2], value, rtol=1e-8)
    assert model.elbo_ == pytest.approx(without.elbo_, abs=1e-2)


# Each pair of a number of rows, an optimizer and the sizes of subsets.
@pytest.mark.parametrize(
    ("n", "optimizer", "subsets"),
    [
        (n, optimizer, ("auto", None, [1, 2])[(i + j) % 3])
        for i, n in enumerate((2, 3, 5))
        for j, optimizer in enumerate((None, "profile", "alternate", "adam"))
    ],
    ids=str,
)
def test_very_few_rows(n, optimizer, subsets):
    X, y = moons(60)
    rows = np.concatenate([np.flatnonzero(y == 0)[: n // 2], np.flatnonzero(y == 1)[: n - n // 2]])
    model = GPClassifier(optimizer=optimizer, subset_sizes=subsets, random_state=0)
    quietly(model, X[rows], y[rows])
    # The bound for a latent function that is constantly zero.
    assert model.elbo_ >= -n * np.log(2.0) - (0.5 if optimizer is None else 0.1)
    assert 1 <= len(model.inducing_points_) <= n
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)


# Trouble with the factorisation.


@pytest.mark.parametrize(
    ("optimizer", "bound"), [("profile", "exact"), ("alternate", "exact"), ("joint", "polya-gamma"), ("adam", "exact")]
)
def test_hyperparameters_whose_matrix_cannot_be_factorised_are_turned_back_from(monkeypatch, optimizer, bound):
    X, y = moons()
    kernel = ConstantKernel(3.8) * RBF([1.0, 1.0])
    model = GPClassifier(kernel, n_inducing=15, optimizer=optimizer, bound=bound, max_iter=60, random_state=0)
    honest = SparsePrior.build
    refused = []

    def build(spec, Z, dtype):
        if spec.theta[0] > np.log(4.0):
            refused.append(spec.theta[0])
            raise ValueError("not positive definite")
        return honest(spec, Z, dtype)

    free = quietly(model, X, y).kernel_.k1.constant_value
    monkeypatch.setattr(SparsePrior, "build", build)
    quietly(model, X, y)
    given = quietly(clone(model).set_params(optimizer=None), X, y)
    assert free > 4.0
    assert refused
    assert model.kernel_.k1.constant_value <= 4.0
    assert model.elbo_ > given.elbo_ + 1.0
