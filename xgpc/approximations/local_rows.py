"""The latent values of rows given the sites of their nearest training rows.

With a(x) the whitened rows of a sparse prior, f(x) = a(x).z + g(x), z ~ N(0, I), g ~ GP(0, D), and
D(x, x') = k(x, x') - a(x).a(x'). Given z and the sites of the neighbours N, f(x) is normal with mean b.z + mean, where
b = a(x) - sum of gamma_j a_j over the neighbours j, and gamma = (D_NN + diag(1 / lambda))^-1 D_N(x).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from .. import _engine, _local
from .._kernels import FAMILIES, InducingKernel
from ..kernels.factors import AXIS_FAMILIES
from ..rows.executor import Executor, parts_of
from ..rows.neighbours import Metric
from ..statistics import Sums
from .sparse import SparsePrior

# Bytes of a cache line. Whitened rows begin with one: reading vectors that span two costs 4 to 5 % of a sweep.
CACHE_LINE = 64
# Largest memory for the covariances of the neighbourhoods' residuals, which is that of 288 000 rows with 24 neighbours;
# if they need more, each sweep computes them anew, which takes a third longer.
BLOCK_BYTES = 750_000_000
EVERY_ROW = slice(None)


class LocalRows(NamedTuple):
    """Rows as the prior transforms them."""

    x: np.ndarray  # (n_factors, n, d), features divided by each factor's length scales
    a: np.ndarray  # (n, m), whitened
    residual: np.ndarray  # (n,), D(x, x)


def aligned(n: int, m: int) -> np.ndarray:
    """Memory (n, m) that starts with a cache line, each row with a zero, as ``blocks_for`` needs; to write nothing else
    saves 3 % of a score's time.
    """
    memory = np.empty(8 * n * m + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    rows = memory[start : start + 8 * n * m].view(np.float64).reshape(n, m)
    rows[:, 0] = 0.0
    return rows


def local_rows(executor: Executor, prior: SparsePrior, X: np.ndarray) -> LocalRows:
    """Transform rows X (n, d); O(n m (m + d))."""
    core, (m, d) = prior.core, prior.Z.shape
    out = LocalRows(np.empty((core.n_factors, *X.shape)), aligned(len(X), m), np.empty(len(X)))

    def fill(rows: slice) -> None:
        _local.transform_rows(core, prior.Linv, X[rows], rows.start, _engine.workspace(len(X[rows]), m, d), out)

    executor.each(fill, parts_of(len(X)))
    return out


def metric(core: InducingKernel) -> Metric:
    """Return the metric for the search of neighbours, which divides features by the length scales of all factors.

    Distances are sums of absolute differences if any factor is axis-aligned, because neighbours help most with the
    roughest factor, and Euclidean otherwise.
    """
    scales = core.inverse_length_scale[core.family != FAMILIES["dot-product"]]
    if not len(scales):
        return Metric(np.ones(core.n_features))
    if np.any(np.isin(core.family, [FAMILIES[name] for name in AXIS_FAMILIES.values()])):
        return Metric(np.sum(scales, axis=0), 1)
    return Metric(np.asarray(np.hypot.reduce(scales, axis=0)))


def in_order(index: np.ndarray, numbers: slice | np.ndarray = EVERY_ROW) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours (n, k) of rows among themselves, those that come earlier first, and the number (n,) of the earlier.

    The order of the rows is random, but always the same for rows of the same ``numbers`` (n,), by default 0, 1, ... By
    the chain rule of probabilities with a few neighbours, a random order loses less than one along coordinates
    (Guinness 2018, arXiv 1609.05372).
    """
    place = np.random.default_rng(0).permutation(len(index))[numbers]
    is_later = place[index] >= place[:, None]
    n_earlier = np.count_nonzero(~is_later, axis=1).astype(np.int32)
    return np.take_along_axis(index, np.argsort(is_later, axis=1, kind="stable"), axis=1), n_earlier


def neighbour_matrices(index: np.ndarray, weights: np.ndarray, n: int) -> list[csr_array]:
    """Weights (C, r, k) of the neighbours index (r, k) as C sparse matrices (r, n)."""
    ends = index.shape[1] * np.arange(len(index) + 1)
    return [csr_array((part.ravel(), index.ravel(), ends), shape=(len(index), n)) for part in weights]


def blocks_for(n: int, k: int) -> np.ndarray | None:
    """Memory for the covariances of n neighbourhoods' residuals, which conditionals share; None if it is too large."""
    size = (k + 1) * (k + 2) // 2
    # Eight more rows, as the core writes up to eight at a time.
    return aligned(n + 8, size) if 8 * n * size <= BLOCK_BYTES else None


class Conditional(NamedTuple):
    """Latent values given z and the neighbours' sites: normal with mean b.z + mean; see the head of the module."""

    b: np.ndarray  # (C, m, r)
    variance: np.ndarray  # (C, r)
    mean: np.ndarray  # (C, r)
    gamma: np.ndarray  # (C, r, k), or (C, r, 0) if nobody needs it


class Neighbourhoods(_local.Neighbourhoods):
    """Rows to predict, and the training rows near them, ``support``, with their sites; see the compiled class."""

    support: LocalRows
    rows: LocalRows

    def empty(self, n_rows: int, with_gamma: bool = False) -> Conditional:
        """Arrays for the conditionals of so many rows."""
        k, m, C = self.index.shape[1] if with_gamma else 0, self.support.a.shape[1], len(self.sites[0])
        return Conditional(*map(np.empty, ((C, m, n_rows), (C, n_rows), (C, n_rows), (C, n_rows, k))))


def row_sums(b: np.ndarray, t: np.ndarray, s: np.ndarray) -> Sums:
    """Sums over rows of C latent functions, for b (C, m, r) and factors (C, r): of t b, (C, m), and s b b^T, (C, m, m),
    lower triangles.

    They are what sites add to the natural parameters h and P of q(z), or the gradient by w and V of q(z) = N(w, V),
    from those by the means and variances of b.z.
    """
    return Sums(_engine.outer_sums(b, np.ascontiguousarray(t), np.ascontiguousarray(s)))


@dataclass(frozen=True)
class Coefficients:
    """q(z) = N(w, V) of C latent functions, w (C, m) and V = Rinv^T Rinv (C, m, m), Rinv lower triangles."""

    w: np.ndarray
    V: np.ndarray
    Rinv: np.ndarray

    @classmethod
    def given(cls, h: np.ndarray, P: np.ndarray) -> Coefficients:
        """q(z) from what sites add to the prior's natural parameters, lower triangles of P; ValueError if it is not
        proper."""
        precision = np.eye(P.shape[-1]) + P
        factors = _engine.cholesky_and_inverse(precision)
        if factors is not None:
            Rinv = factors[1]
        elif np.all(np.isfinite(precision)):
            # Rows that almost coincide may have so large precisions that the prior's precision, 1, is lost by rounding.
            value, vector = np.linalg.eigh(precision)
            root = np.swapaxes(vector / np.sqrt(np.maximum(value, 1.0))[:, None], 1, 2)
            Rinv = np.ascontiguousarray(np.linalg.qr(root[..., ::-1])[1][:, ::-1, ::-1])
        else:
            raise ValueError(
                "The labels tell larger precisions than a double can hold. Bound the kernel's variance, for example "
                "with kernel=ConstantKernel(1.0, (0.01, 10.0)) * RBF() of sklearn.gaussian_process.kernels; give "
                "moderate sample weights, if you give any; or give n_neighbors=0."
            )
        V = np.swapaxes(Rinv, 1, 2) @ Rinv
        return cls((V @ h[..., None])[..., 0], V, Rinv)

    def moments(self, b: np.ndarray) -> np.ndarray:
        """Means and variances (2, C, r) of b.z for b (C, m, r)."""
        return _engine.moments_of_rows(b, self.w, self.Rinv)
