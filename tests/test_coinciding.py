"""Rows that coincide, in features and label: as neighbours they are one row with the sum of their weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import ConstantKernel as C
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier

N = 90
X, Y = moons(N)
THREE = np.where(X[:, 0] > 1.0, 2, Y > 0)
FRESH, _ = moons(60, seed=1)
NUMBERS = np.random.default_rng(5).integers(1, 4, N)
LABELS = pytest.mark.parametrize("y", [Y, THREE], ids=["two classes", "three"])
NEIGHBOURS = pytest.mark.parametrize("n_neighbors", [3, 10, N])
POINTS = pytest.mark.parametrize("points", [np.full((1, 2), 1e4), X[60:66]], ids=["far", "near"])


# Fits.


@pytest.fixture
def to_the_end(monkeypatch):
    """Sweeps go on until nothing changes, so that no tolerance is between two fits."""
    monkeypatch.setattr("xgpc.inference.sweeps.TOLERANCE", 1e-10)
    monkeypatch.setattr("xgpc.inference.sweeps.CLASSES_TOLERANCE", 1e-10)


def given(points, n_neighbors):
    """A model with nothing to learn."""
    return GPClassifier(C(4.0) * RBF(0.5), inducing_points=points, optimizer=None, n_neighbors=n_neighbors)


@POINTS
@NEIGHBOURS
@LABELS
def test_repeated_rows_are_rows_with_their_number_as_weight(y, n_neighbors, points, to_the_end):
    model = given(points, n_neighbors)
    weighted = quietly(clone(model), X, y, sample_weight=NUMBERS)
    repeated = quietly(clone(model), np.repeat(X, NUMBERS, axis=0), np.repeat(y, NUMBERS))
    assert repeated.n_neighbors_ == weighted.n_neighbors_ == n_neighbors
    assert_allclose(repeated.predict_proba(FRESH), weighted.predict_proba(FRESH), rtol=0.0, atol=1e-6)
    assert_allclose(repeated.predict_latent(FRESH), weighted.predict_latent(FRESH), rtol=0.0, atol=1e-5)
    assert_array_equal(repeated.posterior_.X, X)


@POINTS
@NEIGHBOURS
@LABELS
def test_a_row_is_its_parts_whose_weights_sum_to_its_own(y, n_neighbors, points, to_the_end):
    """Wherever the parts stand behind the first of them."""
    rng = np.random.default_rng(0)
    weight, share, order = rng.gamma(2.0, size=N), rng.uniform(0.1, 0.9, size=N), rng.permutation(N)
    model = given(points, n_neighbors)
    whole = quietly(clone(model), X, y, sample_weight=weight)
    parts = np.r_[share * weight, ((1.0 - share) * weight)[order]]
    split = quietly(clone(model), np.r_[X, X[order]], np.r_[y, y[order]], sample_weight=parts)
    assert_allclose(split.predict_proba(FRESH), whole.predict_proba(FRESH), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("n_distinct", [1, 2, 3])
def test_few_distinct_rows(n_distinct):
    """Fewer than neighbours were asked for; of one place with both labels."""
    rows = np.repeat(np.arange(float(n_distinct)), 40)[:, None]
    y = np.arange(len(rows)) % 2
    model = quietly(GPClassifier(n_neighbors=20, random_state=0, max_iter=5), rows, y)
    assert model.n_neighbors_ in (0, 2 * n_distinct)
    assert_allclose(model.predict_proba(rows), 0.5, atol=0.05)
