"""What is learned from which rows: subsets, the number of inducing points, restarts, warnings, odd data."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.fits import quietly, rows_of, warnings_of
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

import xgpc
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


def test_sizes_that_are_given_or_none():
    assert subset_sizes(10**6, 100, None) == [10**6]
    assert subset_sizes(10**6, 100, [200, 5000]) == [200, 5000]
    assert subset_sizes(3000, 100, (200, 3000)) == [200, 3000]
    assert subset_sizes(3000, 100, np.array([200, 5000])) == [200, 3000]
    assert subset_sizes(50, 100, [200]) == [50]


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


def test_history_tells_the_stages(staged):
    X, _, model = staged
    n_theta = len(model.kernel_.theta)
    learning_rows, posterior_rows = rows_of(model, "evaluation"), rows_of(model, "iteration")
    sizes = learning_rows["n_rows"]
    assert sorted(set(sizes)) == [300, 900]
    assert np.all(np.diff(sizes) >= 0)
    assert np.all(posterior_rows["n_rows"] == len(X))
    assert np.all(model.history_["n_inducing"] == 25)
    assert learning_rows["theta"].shape == (len(sizes), n_theta)
    assert np.all(np.isfinite(learning_rows["theta"]))
    assert np.all(np.isnan(posterior_rows["theta"]))
    assert np.any(np.all(learning_rows["theta"] == model.kernel_.theta, axis=1))
    for size in (300, 900):
        assert np.array_equal(learning_rows["evaluation"][sizes == size], 1 + np.arange(np.sum(sizes == size)))
    assert np.all(np.diff(model.history_["seconds"]) >= 0.0)
    assert len({len(column) for column in model.history_.values()}) == 1
    assert model.history_["elbo"][-1] == model.elbo_
    assert np.nanmax(posterior_rows["elbo"]) == model.elbo_


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


def test_decisions_are_explained(grown):
    X, _, model = grown
    table = rows_of(model, "gain_per_point")
    *taken, last = table["decision"]
    gains = table["gain_per_point"]
    m = FIRST_OF_FEW
    for text, gain in zip(taken, gains, strict=False):
        assert text.startswith(f"Adding {m} inducing points to {m} changes the bound by ")
        assert text.endswith(f" nats, {gain:+.3g} for each new point: taken.")
        assert gain >= MIN_GAIN
        m *= 2
    assert taken
    assert m == len(model.inducing_points_)
    assert last.startswith(f"Adding {min(m, len(X) - m)} inducing points to {m} changes")
    assert last.endswith(f": not taken, as at least {MIN_GAIN:g} is required.")
    assert gains[-1] < MIN_GAIN
    assert np.all(table["n_rows"] == len(X))
    assert np.array_equal(table["n_inducing"], FIRST_OF_FEW * 2 ** np.arange(len(gains)))


@pytest.mark.parametrize(("optimizer", "bound"), [(None, "exact"), ("profile", "exact"), ("alternate", "polya-gamma")])
def test_data_that_need_no_more_inducing_points_get_none(optimizer, bound):
    X, y = moons(200)
    model = quietly(GPClassifier(optimizer=optimizer, bound=bound, random_state=0), X, y)
    assert len(model.inducing_points_) == FIRST_OF_FEW
    assert "not taken" in model.decisions_[-1]


def test_never_more_inducing_points_than_the_cap(monkeypatch):
    monkeypatch.setattr("xgpc.learning.inducing.MAX_INDUCING", FIRST_OF_FEW + 7)
    monkeypatch.setattr("xgpc.learning.candidates.MIN_GAIN", -1.0)
    X, y = ringnorm(300, np.random.default_rng(1))
    model = quietly(GPClassifier(optimizer=None, max_iter=10, random_state=0), X, y)
    assert len(model.inducing_points_) == FIRST_OF_FEW + 7
    assert model.decisions_[-1].startswith(f"No more inducing points were tried: {FIRST_OF_FEW + 7} are the most")


@pytest.mark.parametrize("params", [{"inducing_points": "all"}, {"inducing_points": np.eye(20)}, {"n_inducing": 10}])
def test_a_number_that_was_given_is_kept(params):
    X, y = ringnorm(200, np.random.default_rng(0))
    model = quietly(GPClassifier(max_iter=3, random_state=0, **params), X, y)
    assert len(model.inducing_points_) == {"all": 200}.get(
        str(params.get("inducing_points")), params.get("n_inducing", 20)
    )
    assert not [text for text in model.history_.get("decision", []) if text and "inducing points" in text]


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


def test_restarts_are_compared_on_the_same_rows():
    """Length scales at which rows are strangers take so many points that learning ends on the first subset."""
    X, y = moons(3000)
    kernel = ConstantKernel(2.0, (1.0, 10.0)) * RBF(1.0, (1e-6, 1.5))
    once, again = (
        quietly(GPClassifier(kernel, subset_sizes=[300, 3000], n_restarts_optimizer=n, random_state=0), X, y)
        for n in (0, 2)
    )
    assert again.elbo_ >= once.elbo_ - 0.1


def test_restarts_need_finite_bounds_of_what_is_free():
    X, y = moons(60)
    kernel = ConstantKernel(2.0, (1e-3, np.inf)) * RBF(1.0)
    with pytest.raises(ValueError, match="n_restarts_optimizer needs finite bounds of all free kernel parameters"):
        GPClassifier(kernel, n_restarts_optimizer=1).fit(X, y)
    for allowed in ({"n_restarts_optimizer": 0}, {"optimizer": None, "n_restarts_optimizer": 1}):
        assert np.isfinite(quietly(GPClassifier(kernel, n_inducing=5, **allowed), X, y).elbo_)
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0)
    assert np.isfinite(quietly(GPClassifier(kernel, n_inducing=5, n_restarts_optimizer=1), X, y).elbo_)


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


def test_rows_repeated_many_times_are_learned_from():
    X, y = moons(30)
    repeated = np.repeat(X, 12, axis=0), np.repeat(y, 12)
    model = quietly(GPClassifier(random_state=0), *repeated)
    assert len(model.inducing_points_) <= 30
    assert model.elbo_ > quietly(GPClassifier(optimizer=None, random_state=0), *repeated).elbo_ + 5.0
    assert model.score(X, y) == 1.0


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


def test_jitter_that_learning_needed_is_reported(monkeypatch):
    """Sixty rows, of which most depend on the others to far more than 1e-5."""
    X, y = moons(60)
    model = GPClassifier(inducing_points=X, learn_inducing=False, random_state=0)
    assert quietly(model, X, y).jitter_ == 1e-6
    honest = xgpc.approximations.sparse.cholesky_and_inverse
    # As if round-off took a hundred thousandth of the diagonal.
    monkeypatch.setattr(
        "xgpc.approximations.sparse.cholesky_and_inverse",
        lambda matrix: honest(matrix - 1e-5 * np.mean(np.diag(matrix)) * np.eye(len(matrix))),
    )
    bound = model.elbo_
    assert quietly(model, X, y).jitter_ == model.posterior_.prior.jitter > 1e-6
    assert model.elbo_ == pytest.approx(bound, rel=0.01)


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
