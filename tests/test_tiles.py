"""Marginals and statistics of tiles of whitened rows, for every width of strips and triangles that there is."""

import numpy as np
import pytest

from xgpc import _engine

ROWS = [1, 3, 7, 8, 23, 24, 25, 47, 49, 97, 391]
POINTS = [1, 2, 3, 4, 5, 7, 9, 33, 66]


def whitened(a, rows, n_latents, dtype):
    """The rows a (n, m) as they are cached, in tiles of at most so many rows."""
    n, m = a.shape
    tiles = [a[start : start + rows].T.ravel() for start in range(0, n, rows)]
    cache = _engine.RowCache(np.concatenate(tiles).astype(dtype), is_filled=True)
    return [_engine.WhitenedRows(None, None, None, cache, _engine.Workspace(rows, m, 1, n_latents))]


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("m", POINTS)
@pytest.mark.parametrize("n", ROWS)
def test_tiles_are_dense_algebra(n, m, dtype, rtol):
    rng = np.random.default_rng(1000 * n + m)
    C, a = 2, rng.normal(size=(n, m))
    # What is above the diagonal of a triangle is not read.
    Rinv = np.tril(rng.normal(size=(C, m, m))) + np.triu(np.full((m, m), np.nan), 1)
    w, precision, linear = rng.normal(size=(C, m)), rng.normal(size=(C, n)), rng.normal(size=(C, n))
    a = a.astype(dtype).astype(float)

    for rows in (n, 24):
        block = whitened(a, rows, C, dtype)
        mean, variance = _engine.marginals_block(block, Rinv, w)
        P, h = _engine.statistics_block(block, precision, linear)

        scale = np.abs(a) @ np.abs(np.tril(np.nan_to_num(Rinv))).max(axis=0).T
        np.testing.assert_allclose(mean, w @ a.T, rtol=0.0, atol=rtol * np.max(np.abs(w) @ np.abs(a).T))
        spread = np.sum((a @ np.swapaxes(np.nan_to_num(Rinv), 1, 2)) ** 2, axis=2)
        # Without a kernel the whitened rows explain all of the prior variance.
        np.testing.assert_allclose(variance, spread, rtol=rtol, atol=rtol * np.max(scale**2))
        sums = np.tril(np.einsum("ci,ij,ik->cjk", precision, a, a))
        np.testing.assert_allclose(P, sums, rtol=0.0, atol=rtol * np.sum(np.abs(precision)) * np.max(np.abs(a)) ** 2)
        np.testing.assert_allclose(h, linear @ a, rtol=0.0, atol=1e-12 * np.sum(np.abs(linear)) * np.max(np.abs(a)))


def test_a_rows_marginals_do_not_depend_on_other_rows():
    rng = np.random.default_rng(0)
    a, w = rng.normal(size=(60, 11)), rng.normal(size=(1, 11))
    Rinv = np.tril(rng.normal(size=(1, 11, 11)))
    together = _engine.marginals_block(whitened(a, 60, 1, float), Rinv, w)
    for start, stop in ((0, 1), (5, 12), (13, 44)):
        alone = _engine.marginals_block(whitened(a[start:stop], 60, 1, float), Rinv, w)
        np.testing.assert_array_equal(alone, together[..., start:stop])


@pytest.mark.parametrize("m", [*POINTS, 8, 100, 256, 257])
def test_the_cholesky_factor_and_its_inverse(m):
    B = np.random.default_rng(m).normal(size=(2, m, m))
    symmetric = B @ np.swapaxes(B, 1, 2) + np.eye(m)
    # What is above the diagonal is not read.
    factors, inverses = _engine.cholesky_and_inverse(np.tril(symmetric) + np.triu(np.full((m, m), np.nan), 1))
    np.testing.assert_allclose(factors, np.linalg.cholesky(symmetric), rtol=0.0, atol=1e-13 * m)
    np.testing.assert_allclose(inverses @ factors, np.tile(np.eye(m), (2, 1, 1)), rtol=0.0, atol=1e-12)
    assert not np.any(np.triu(inverses, 1))
    symmetric[1, m - 1, m - 1] -= np.sum(factors[1, m - 1] ** 2) * (1.0 + 1e-10)
    assert _engine.cholesky_and_inverse(symmetric) is None
