"""The linear classifier with more features than rows: in the span of the rows it is what it is in all features."""

from unittest.mock import patch

import numpy as np
import pytest
from scipy import sparse
from support.dense import assert_all_near, assert_near
from support.fits import peak_bytes, quietly

from xgpc import BayesianLinearClassifier
from xgpc.linear import RowSpan


def problem(n, d, seed=0, rank=None):
    """Rows, of so many linearly independent ones, labels of two classes that overlap, and new rows."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    if rank is not None:
        X = random.normal(size=(n, rank)) @ X[:rank]
    f = X @ random.normal(size=d) / np.sqrt(np.mean(np.sum(X**2, axis=1)))
    y = (f + 0.5 * random.normal(size=n) > 0.0).astype(int)
    y[:2] = 0, 1
    return X, y, np.vstack([random.normal(size=(6, d)), 30.0 * random.normal(size=(3, d)), X[:3], np.zeros((1, d))])


def fit(X, y, sample_weight=None, **params):
    params = {"random_state": 0, "tol": 1e-11, "max_iter": 2000, **params}
    return quietly(BayesianLinearClassifier(**params), X, y, sample_weight=sample_weight)


def in_all_features(*given, **params):
    """A fit without the reduction."""
    with patch("xgpc.linear.RowSpan.of", lambda X: (RowSpan(None), X)):
        return fit(*given, **params)


def assert_same(mine, theirs, new, tolerance=1e-8):
    """The bound to 1e-8, all else to ``tolerance`` of the largest entry."""
    for name in ("coef_", "intercept_", "coef_covariance_"):
        assert_near(getattr(mine, name), getattr(theirs, name), tolerance)
    assert_near(mine.predict_log_proba(new), theirs.predict_log_proba(new), tolerance)
    assert_all_near(mine.predict_latent(new), theirs.predict_latent(new), tolerance)
    assert mine.elbo_ == pytest.approx(theirs.elbo_, rel=1e-8)
    assert mine.prior_variance_ == pytest.approx(theirs.prior_variance_, rel=tolerance)


# Rows, features, and rank; where r is the span's dimension.
SHAPES = {
    "few rows": (12, 60, None, 12), "one row less than features": (29, 30, None, 29), "as many": (30, 30, None, None),
    "one more": (31, 30, None, None), "linearly dependent rows": (25, 40, 7, 7), "two rows": (2, 9, None, 2),
}  # fmt: skip


@pytest.mark.parametrize("prior_variance", ["auto", 0.07])
@pytest.mark.parametrize(("i", "shape"), [*enumerate(SHAPES)])
def test_is_the_fit_in_all_features(i, shape, prior_variance):
    n, d, rank, r = SHAPES[shape]
    fit_intercept = (i % 2 == 0) == (prior_variance == "auto")
    X, y, new = problem(n, d, rank=rank)
    # Steps that gain 1e-10 nats are within a few digits of the rounding of the bound, which would say when to stop.
    params = {"fit_intercept": fit_intercept, "prior_variance": prior_variance, "tol": 1e-9}
    model, direct = fit(X, y, **params), in_all_features(X, y, **params)
    assert direct.posterior_.prior.n_inducing == d + fit_intercept
    assert model.posterior_.prior.n_inducing == (d if r is None else r) + fit_intercept
    # The search for the prior variance, which compares values of the bound, finds its logarithm to 1e-7.
    assert_same(model, direct, new, 5e-7 if prior_variance == "auto" else 1e-8)
    assert model.coef_covariance_.shape == (d + fit_intercept,) * 2
    assert (model.n_iter_, model.converged_) == (direct.n_iter_, direct.converged_)


@pytest.mark.parametrize("density", [0.02, 0.5])
def test_sparse_rows(density):
    random = np.random.default_rng(2)
    X, y, new = problem(30, 200, seed=2)
    X, new = X * (random.random(X.shape) < density), new * (random.random(new.shape) < density)
    direct = in_all_features(X, y, prior_variance=0.07)
    for kind in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array):
        model = fit(kind(X), y, prior_variance=0.07)
        assert_same(model, direct, new)
        assert_all_near(model.predict_latent(kind(new)), direct.predict_latent(new), 1e-8)


def test_single_precision():
    """The features keep their values, and sums over them are of double precision."""
    X, y, new = problem(20, 45, seed=3)
    X, new = X.astype(np.float32), new.astype(np.float32)
    model, direct = fit(X, y, prior_variance=0.07), in_all_features(X.astype(float), y, prior_variance=0.07)
    for rows in (new, new.astype(float), sparse.csr_array(new)):
        assert_all_near(model.predict_latent(rows), direct.predict_latent(new.astype(float)), 1e-8)
    assert_same(model, direct, new.astype(float))
    assert_same(fit(sparse.csr_array(X), y, prior_variance=0.07), direct, new.astype(float))


@pytest.mark.parametrize("learning_rate", [0.1, (5.0, 0.7)])
def test_mini_batches_take_the_same_steps(learning_rate):
    """At rates that do not depend on the size of the steps, in whose measure off-diagonal elements count once."""
    X, y, new = problem(60, 80, seed=6)
    params = {"batch_size": 5, "learning_rate": learning_rate, "tol": 0.0, "max_iter": 4, "prior_variance": 0.07}
    model, direct = fit(X, y, **params), in_all_features(X, y, **params)
    assert model.posterior_.prior.n_inducing == 61
    assert model.n_iter_ == 4
    assert_same(model, direct, new)


def test_nothing_of_the_size_of_the_features_squared_is_made():
    """Of 20 000 features a covariance matrix would take 3.2 GB; the rows and their basis take 6 MB each."""
    X, y, new = problem(40, 20_000)
    at_fit, model = peak_bytes(lambda: fit(X, y, tol=1e-4))
    at_predict, (mean, variance) = peak_bytes(model.predict_latent, new)
    assert max(at_fit, at_predict) < 1e8
    assert model.coef_.shape == (1, 20_000)
    np.testing.assert_allclose(mean, new @ model.coef_[0] + model.intercept_, rtol=1e-9, atol=1e-9)
    # Far from the rows nearly nothing is known.
    unknown = model.prior_variance_ * np.sum(new[:6] ** 2, axis=1)
    assert np.all((variance[:6] > 0.95 * unknown) & (variance[:6] < unknown + 101.0))
