"""Samples of the data and inducing points drawn from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import make_blobs

from xgpc.inducing import (
    DEFAULT_INDUCING,
    METHODS,
    SAMPLE_ROWS,
    SAMPLE_ROWS_PER_POINT,
    Sample,
    inducing_points,
    sample_size,
)

every_method = pytest.mark.parametrize("method", METHODS)
repeatable = settings(deadline=None, derandomize=True, max_examples=60)
# A few values, so that rows repeat.
repeating_rows = arrays(
    np.float64, st.tuples(st.integers(1, 25), st.integers(1, 3)), elements=st.sampled_from([-1.0, 0.0, 0.5, 3.0])
)


def state(seed=0):
    return np.random.RandomState(seed)


def sample_of(X, weight=None, size=10**6):
    return Sample(np.asarray(X), weight, size, state())


def inertia(X, Z):
    """Mean squared distance to the nearest point of Z."""
    return np.mean(np.min(np.sum((X[:, None] - Z) ** 2, axis=2), axis=1))


@pytest.fixture(scope="module")
def X():
    return make_blobs(400, n_features=2, centers=12, cluster_std=0.4, random_state=0)[0]


# Sample.


@repeatable
@given(repeating_rows)
def test_rows_are_distinct_and_counted(X):
    sample = sample_of(X)
    assert len(np.unique(sample.rows, axis=0)) == len(sample.rows)
    assert np.array_equal(np.repeat(sample.rows, sample.counts.astype(int), axis=0), X[np.lexsort(X.T[::-1])])


@repeatable
@given(repeating_rows, st.integers(0, 2**20))
def test_weights_equal_repeats(X, seed):
    repeats = np.random.default_rng(seed).integers(1, 5, len(X))
    weighted, repeated = sample_of(X, repeats.astype(np.float64)), sample_of(np.repeat(X, repeats, axis=0))
    for name in ("rows", "counts", "mean", "scale"):
        assert np.array_equal(getattr(weighted, name), getattr(repeated, name))


@every_method
def test_weights_equal_repeats_for_inducing_points(X, method):
    repeats = np.random.default_rng(1).integers(1, 5, len(X))
    weighted, repeated = sample_of(X, repeats.astype(np.float64)), sample_of(np.repeat(X, repeats, axis=0))
    points = [inducing_points(sample, method, 20, state(3)) for sample in (weighted, repeated)]
    assert np.array_equal(*points)


@repeatable
@given(repeating_rows, st.integers(0, 2**20))
def test_mean_and_scale_are_weighted_moments(X, seed):
    weight = np.random.default_rng(seed).uniform(0.1, 3.0, len(X))
    sample = sample_of(X, weight)
    mean = np.average(X, axis=0, weights=weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    np.testing.assert_allclose(sample.mean, mean, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(sample.scale, np.where(np.ptp(X, axis=0) > 0.0, spread, 1.0), rtol=1e-13)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.7e100, 1e6 / 3, 1e-200, 1e-310])
@pytest.mark.parametrize("n", [1, 20, 1000, 5000])
def test_a_constant_feature_has_scale_one(n, value):
    """However the mean rounds, beside a feature that varies, weighted or not."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.arange(n, dtype=np.float64), np.full(n, value)])
    assert sample_of(X).scale[1] == 1.0
    assert sample_of(X, random.uniform(0.1, 3.0, n)).scale[1] == 1.0


@every_method
@pytest.mark.parametrize("scale", [1e-280, 1e-200, 1e-30, 1e30, 1e120, 1e150])
def test_huge_and_tiny_features_stay_in_range(X, method, scale):
    """Relative to the scale, the same as of moderate features up to rounding."""
    plain, scaled = sample_of(X), sample_of(X * scale)
    np.testing.assert_allclose(scaled.scale / scale, plain.scale, rtol=1e-12)
    np.testing.assert_allclose(scaled.mean / scale, plain.mean, rtol=1e-12)
    Z = inducing_points(scaled, method, 12, state())
    np.testing.assert_allclose(Z / scale, inducing_points(plain, method, 12, state()), rtol=1e-9)


def test_features_of_different_scales_count_alike(X):
    stretch = np.array([1e-120, 1e120])
    Z = inducing_points(sample_of(X * stretch), "kmeans", 12, state())
    np.testing.assert_allclose(Z / stretch, inducing_points(sample_of(X), "kmeans", 12, state()), rtol=1e-9)


def test_a_large_sample_is_a_random_choice_without_repeats():
    X = np.arange(5000.0)[:, None]
    sample = Sample(X, None, 300, state())
    assert sample.rows.shape == (300, 1)
    assert np.all(sample.counts == 1.0)
    assert np.isin(sample.rows, X).all()
    assert abs(sample.mean[0] - X.mean()) < 4 * X.std() / np.sqrt(300)


def test_a_sample_keeps_its_rows_weights():
    X = np.arange(500.0)[:, None]
    sample = Sample(X, X[:, 0] + 1.0, 100, state())
    assert np.array_equal(sample.counts, sample.rows[:, 0] + 1.0)


def test_samples_of_float32_rows_are_float64(X):
    single = X.astype(np.float32)
    assert sample_of(single).rows.dtype == np.float64
    assert np.array_equal(sample_of(single).rows, sample_of(single.astype(np.float64)).rows)


def test_sample_size_grows_with_the_inducing_points():
    assert sample_size("auto") == max(SAMPLE_ROWS, SAMPLE_ROWS_PER_POINT * DEFAULT_INDUCING)
    assert sample_size(10) == SAMPLE_ROWS
    assert sample_size(10_000) == 10_000 * SAMPLE_ROWS_PER_POINT


# Inducing points.


@every_method
@repeatable
@given(X=repeating_rows, n_inducing=st.integers(1, 30))
def test_never_more_points_than_asked_for_or_distinct_rows(method, X, n_inducing):
    sample = sample_of(X)
    Z = inducing_points(sample, method, n_inducing, state())
    distinct = len(sample.rows)
    assert Z.shape == (distinct if method == "all" else min(n_inducing, distinct), X.shape[1])
    assert len(np.unique(Z, axis=0)) == len(Z)
    np.testing.assert_allclose(Z, np.clip(Z, X.min(axis=0), X.max(axis=0)), atol=1e-12)
    if n_inducing >= distinct:
        assert np.array_equal(Z, sample.rows)


@every_method
def test_auto_is_the_default_number(X, method):
    sample = sample_of(X)
    Z = inducing_points(sample, method, "auto", state())
    assert np.array_equal(Z, inducing_points(sample, method, DEFAULT_INDUCING, state()))
    assert len(Z) == (400 if method == "all" else DEFAULT_INDUCING)


def test_all_takes_every_distinct_row(X):
    assert np.array_equal(inducing_points(sample_of(np.vstack([X, X])), "all", 3, state()), np.unique(X, axis=0))


@repeatable
@given(repeating_rows, st.integers(1, 10), st.integers(0, 2**20))
def test_random_points_are_rows(X, n_inducing, seed):
    Z = inducing_points(sample_of(X), "random", n_inducing, state(seed))
    assert all(np.any(np.all(z == X, axis=1)) for z in Z)


@pytest.mark.parametrize("method", ["kmeans", "random"])
def test_points_are_determined_by_the_random_state(X, method):
    sample = sample_of(X)
    assert np.array_equal(*(inducing_points(sample, method, 15, state(7)) for _ in range(2)))
    assert not np.array_equal(*(inducing_points(sample, method, 15, state(seed)) for seed in (7, 8)))


def test_kmeans_points_cover_better_than_random_rows(X):
    sample = sample_of(X)
    kmeans = [inertia(X, inducing_points(sample, "kmeans", 12, state(seed))) for seed in range(5)]
    random = [inertia(X, inducing_points(sample, "random", 12, state(seed))) for seed in range(5)]
    assert max(kmeans) < min(random)


def test_kmeans_finds_well_separated_clusters():
    """Twelve clusters of width 1e-3 on a grid of spacing one: a centre in each."""
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0)), axis=-1).reshape(-1, 2)
    rows = np.repeat(grid, 30, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=(360, 2))
    Z = inducing_points(sample_of(rows), "kmeans", 12, state())
    assert np.array_equal(np.unique(np.round(Z), axis=0), np.unique(grid, axis=0))
    assert np.abs(Z - np.round(Z)).max() < 1e-3


def test_a_heavy_row_draws_a_centre():
    X = np.random.default_rng(0).normal(size=(200, 2))
    weight = np.ones(200)
    weight[17] = 1e9
    Z = inducing_points(sample_of(X, weight), "kmeans", 5, state())
    assert np.sqrt(np.min(np.sum((Z - X[17]) ** 2, axis=1))) < 1e-6


# Given points.


@pytest.mark.parametrize("convert", [np.ndarray.tolist, np.float32, np.asfortranarray])
def test_given_points_are_taken_as_they_are(X, convert):
    points = np.array([[1.0, 2.0], [3.0, 4.0]])
    Z = inducing_points(sample_of(X), convert(points), "auto", state())
    assert Z.dtype == np.float64
    assert Z.flags.c_contiguous
    assert np.array_equal(Z, points)


def test_given_points_are_copied(X):
    points = np.ones((3, 2))
    inducing_points(sample_of(X), points, "auto", state())[:] = 5.0
    assert np.all(points == 1.0)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.ones((3, 3)), r"here of shape \(m, 2\) for data with 2 features; got \(3, 3\)"),
        (np.ones(2), r"array \(m, d\), here of shape \(m, 2\)"),
        (np.ones((1, 3, 2)), r"array \(m, d\), here of shape \(m, 2\)"),
        (np.empty((0, 2)), r"array \(m, d\), here of shape \(m, 2\)"),
        (None, r"'kmeans', 'random', 'all'.* or a numeric array \(m, d\)"),
        ([["a", "b"]], r"or a numeric array \(m, d\)"),
        ([[1.0, 2.0], [3.0]], r"or a numeric array \(m, d\)"),
        ([[1j, 2.0]], r"or a numeric array \(m, d\)"),
        ("centres", "must be one of .*'kmeans'.* got 'centres'"),
    ],
)
def test_bad_points_are_refused(X, points, message):
    with pytest.raises(ValueError, match=message):
        inducing_points(sample_of(X), points, 5, state())


def test_bad_number_is_refused(X):
    with pytest.raises(ValueError, match="n_inducing must be a positive integer or 'auto'; got 'many'"):
        inducing_points(sample_of(X), "kmeans", "many", state())
