"""The local posterior: a sparse one, and what the nearest rows know of the residual that it leaves.

f(x) = a(x) . z + g(x), with whitened a and z ~ N(0, I) as in a sparse posterior, and g ~ GP(0, D) with
D(x, x') = k(x, x') - a(x) . a(x'). Each training row has a site; a prediction conditions g on those of the k nearest
rows, and z on all of them (Vecchia's approximation of the residual; Gyger, Furrer, Sigrist 2025, arXiv 2507.05064).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from .. import _local
from .._kernels import FAMILIES, InducingKernel
from ..rows.block import Block
from ..rows.executor import Cost, Executor, Threads
from ..rows.neighbours import Neighbours
from ..rows.source import ArraySource, RowSource
from .base import Value, cholesky_and_inverse
from .sparse import SparsePrior

# Rows whose covariances with all neighbours are formed at a time.
CHUNK = 512
# Bytes of a cache line. Whitened rows begin with one: reading vectors that span two costs 4 to 5 % of a sweep.
CACHE_LINE = 64
# A site's precision counts as so much at least where it is divided by.
LEAST_PRECISION = 1e-300
# Precisions and linear terms (C, n) of the training rows' sites.
Sites = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class LocalRows:
    """What a prior makes of rows.

    Attributes
    ----------
    x : (n_factors, n, d), features divided by each factor's length scales
    a : (n, m), whitened
    residual : (n,), D(x, x)
    """

    x: np.ndarray
    a: np.ndarray
    residual: np.ndarray

    def part(self, rows: np.ndarray | slice) -> LocalRows:
        return LocalRows(np.ascontiguousarray(self.x[:, rows]), self.a[rows], self.residual[rows])


@dataclass(frozen=True)
class Whitening:
    """The prior that rows are whitened by."""

    prior: SparsePrior

    @property
    def cost(self) -> Cost:
        m, d = self.prior.core.n_inducing, self.prior.core.n_features
        return Cost(m * (m + d), m)


def whitened(block: Block, state: Whitening) -> LocalRows:
    """Of a block: features by length scales, a = L^-1 k(Z, x), and what they leave of k(x, x)."""
    core = state.prior.core
    X = np.ascontiguousarray(block.X, dtype=np.float64)
    a = core.cross(X) @ state.prior.Linv.T
    residual = np.maximum(core.diagonals(X) - np.einsum("ij,ij->i", a, a), 0.0)
    return LocalRows(X * core.inverse_length_scale[:, None, :], a, residual)


def aligned_rows(parts: list[np.ndarray]) -> np.ndarray:
    """Rows of parts (., m), one after the other, from the beginning of a cache line."""
    shape = sum(len(part) for part in parts), parts[0].shape[1]
    memory = np.empty(8 * shape[0] * shape[1] + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    rows = memory[start : start + 8 * shape[0] * shape[1]].view(np.float64).reshape(shape)
    return np.concatenate(parts, out=rows)


def local_rows(executor: Executor, prior: SparsePrior, source: RowSource) -> LocalRows:
    """All rows of a source; O(n m (m + d))."""
    parts = list(executor.map(whitened, source, Whitening(prior)))
    return LocalRows(
        np.concatenate([part.x for part in parts], axis=1),
        aligned_rows([part.a for part in parts]),
        np.concatenate([part.residual for part in parts]),
    )


@dataclass(frozen=True)
class Coefficients:
    """q(z) = N(w, V) of C latent functions, from sites whose residuals are integrated out row by row.

    Attributes
    ----------
    w, V : (C, m) and (C, m, m)
    own_precision, own_linear : (C, n), lambda / (1 + lambda D_ii) and r / (1 + lambda D_ii): what each row adds to the
        natural parameters, as lambda a a^T and r a
    """

    w: np.ndarray
    V: np.ndarray
    own_precision: np.ndarray
    own_linear: np.ndarray


@dataclass(frozen=True)
class Weighted:
    """Whitened rows and the precisions and linear terms (C, n) to sum them with."""

    a: np.ndarray
    precision: np.ndarray
    linear: np.ndarray

    @property
    def cost(self) -> Cost:
        C, m = len(self.precision), self.a.shape[1]
        return Cost(C * m * m, C * m * m)


def natural_sums(block: Block, state: Weighted) -> tuple[np.ndarray, np.ndarray]:
    """Of a block: sum lambda a a^T (C, m, m) and sum r a (C, m), its part of the natural parameters of q(z)."""
    a, precision, linear = state.a[block.rows], state.precision[:, block.rows], state.linear[:, block.rows]
    return np.stack([(a * values[:, None]).T @ a for values in precision]), linear @ a


def coefficients(executor: Executor, source: RowSource, rows: LocalRows, sites: Sites) -> Coefficients:
    """q(z) from the sites of all rows; O(C n m^2).

    Raises
    ------
    ValueError
        If its precision is not positive definite.
    """
    precision, linear = sites
    C, m = len(precision), rows.a.shape[1]
    denominator = 1.0 + precision * rows.residual
    own_precision, own_linear = precision / denominator, linear / denominator
    P, h = np.broadcast_to(np.eye(m), (C, m, m)).copy(), np.zeros((C, m))
    for P_part, h_part in executor.map(natural_sums, source, Weighted(rows.a, own_precision, own_linear)):
        P += P_part
        h += h_part
    V = np.empty_like(P)
    for c in range(C):
        factors = cholesky_and_inverse(P[c])
        if factors is None:
            raise ValueError("The precision of the sites is not positive definite.")
        V[c] = factors[1].T @ factors[1]
    return Coefficients((V @ h[..., None])[..., 0], V, own_precision, own_linear)


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Rows to predict, and the training rows that they are predicted from.

    Attributes
    ----------
    core : the compiled kernel
    support, sites, q : the training rows, their sites, and q(z)
    rows : to predict
    index : (r, k), which of the training rows are near
    own : (C, r) arrays, what each row to predict has itself in q(z) and must not count; or None
    """

    core: InducingKernel
    support: LocalRows
    sites: Sites
    q: Coefficients
    rows: LocalRows
    index: np.ndarray
    own: Sites | None = None

    @property
    def cost(self) -> Cost:
        k, m, d = self.index.shape[1], self.support.a.shape[1], self.core.n_features
        return Cost(k * k * (m + d) + k**3, k)

    @property
    def n_latents(self) -> int:
        return len(self.q.w)

    @property
    def own_terms(self) -> Sites:
        """``own``, of rows that have it."""
        assert self.own is not None
        return self.own

    @cached_property
    def compiled(self) -> _local.Support:
        s = self.support
        return _local.Support(self.core, s.x, s.a, s.residual, *self.sites, self.q.w, self.q.V)

    def source(self) -> ArraySource:
        """The rows to predict, as blocks to work on."""
        return ArraySource(self.rows.a, cache_bytes=0)

    def arguments(self, block: Block) -> tuple[object, ...]:
        """Rows of a block as the compiled functions take them."""
        here, rows = block.rows, self.rows.part(block.rows)
        own = (None, None) if self.own is None else tuple(np.ascontiguousarray(part[:, here]) for part in self.own)
        return rows.x, rows.a, rows.residual, self.index[here], *own


def local_marginals(block: Block, state: Neighbourhoods) -> tuple[np.ndarray, np.ndarray]:
    """Of a block: means and variances (C, r)."""
    mean, variance = np.empty((2, state.n_latents, len(block)))
    state.compiled.predict(*state.arguments(block), mean, variance)
    return mean, variance


def predicted(executor: Executor, state: Neighbourhoods) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (C, r); O(r (k^2 (m + d) + C (k^3 + m^2)))."""
    if not len(state.index):
        return np.empty((state.n_latents, 0)), np.empty((state.n_latents, 0))
    means, variances = zip(*executor.map(local_marginals, state.source(), state), strict=True)
    return np.concatenate(means, axis=1), np.concatenate(variances, axis=1)


@dataclass(frozen=True)
class PullBack:
    """Predictions, and a gradient (C, r) by their means and variances."""

    at: Neighbourhoods
    d_mean: np.ndarray
    d_variance: np.ndarray

    @property
    def cost(self) -> Cost:
        work, _ = self.at.cost
        return Cost(3.0 * work, self.at.index.shape[1])


# What the compiled gradient has for each row and latent function, and how wide; see src/xgpc/local.h.
Pulled = dict[str, np.ndarray]


def pull_back(block: Block, state: PullBack) -> tuple[Pulled, tuple[np.ndarray, ...]]:
    """Of a block: what ``xg_local_gradient`` has of each row, and sums over the rows: terms, shapes and scales."""
    at, here, n = state.at, block.rows, len(block)
    C, k, m = at.n_latents, at.index.shape[1], at.support.a.shape[1]
    widths = {"gamma": k, "chi": k, "b": m, "u": m, "d_precision": k, "d_linear": k, "own": 5}
    found = {name: np.zeros((C, n, width)) for name, width in widths.items()}
    found["d_a"] = np.empty((n, m))
    given = (np.ascontiguousarray(part[:, here]) for part in (state.d_mean, state.d_variance))
    return found, at.compiled.pull_back(*at.arguments(block), *given, *(found[name] for name in _local.OUTPUTS))


def pulled_back(executor: Executor, state: PullBack) -> tuple[Pulled, list[np.ndarray]]:
    """By row what ``xg_local_gradient`` has, and its sums: terms, shapes and scales; some four times ``predicted``."""
    found, sums = zip(*executor.map(pull_back, state.at.source(), state), strict=True)
    joined = {name: np.concatenate([part[name] for part in found], axis=0 if name == "d_a" else 1) for name in found[0]}
    return joined, [sum(parts) for parts in zip(*sums, strict=True)]


def metric(core: InducingKernel) -> np.ndarray:
    """What features (d,) are multiplied with before distances are compared: all factors' inverse length scales."""
    has_scale = core.family != FAMILIES["dot-product"]
    if not np.any(has_scale):
        return np.ones(core.n_features)
    return np.asarray(np.hypot.reduce(core.inverse_length_scale[has_scale], axis=0))


@dataclass(frozen=True, eq=False)
class LocalPosterior(Value):
    """Training rows with their sites, from which latent values are predicted.

    Attributes
    ----------
    prior : SparsePrior
    X : (n, d) training rows, float32 or float64
    precision, linear : (C, n) sites
    n_neighbors : int, k
    n_latents : int or None, number C of latent functions; None: one, without an axis in the results
    variance_scale : float
        Factor of all variances and covariances. Classes may be more certain away from their borders than a process
        whose borders are as rough: 1 is the process's own, less was learned from the labels of query rows.
    """

    prior: SparsePrior
    X: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    n_neighbors: int
    n_latents: int | None = None
    variance_scale: float = 1.0

    @classmethod
    def from_fit(
        cls,
        prior: SparsePrior,
        X: np.ndarray,
        sites: Sites,
        n_neighbors: int,
        n_latents: int | None,
        variance_scale: float,
        whitened_rows: LocalRows,
        neighbours: Neighbours,
    ) -> LocalPosterior:
        """The same as of the other arguments, with what a fit has made of them: it need not be made again.

        Parameters
        ----------
        whitened_rows : of X, as ``local_rows`` makes them
        neighbours : of X times ``metric``
        """
        found = cls(prior, X, *sites, n_neighbors, n_latents, variance_scale)
        # Values of cached properties, which pickles and files leave out.
        vars(found).update(whitened_rows=whitened_rows, neighbours=neighbours)
        return found

    @property
    def sites(self) -> Sites:
        return self.precision, self.linear

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.n_latents is None else (self.n_latents,)

    @cached_property
    def metric(self) -> np.ndarray:
        return metric(self.prior.core)

    @cached_property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.X * self.metric)

    @cached_property
    def whitened_rows(self) -> LocalRows:
        with Threads(1) as executor:
            return local_rows(executor, self.prior, ArraySource(self.X, cache_bytes=0))

    @cached_property
    def coefficients(self) -> Coefficients:
        with Threads(1) as executor:
            return coefficients(executor, ArraySource(self.X, cache_bytes=0), self.whitened_rows, self.sites)

    def _at(self, executor: Executor, X: np.ndarray) -> Neighbourhoods:
        rows = local_rows(executor, self.prior, ArraySource(X, cache_bytes=0))
        index = self.neighbours.of(X * self.metric, self.n_neighbors, executor.n_threads)
        return Neighbourhoods(self.prior.core, self.whitened_rows, self.sites, self.coefficients, rows, index)

    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (r,) or (C, r) of the latent functions at the rows of X (r, d).

        A search, and O(r (k^2 (m + d) + C (k^3 + m^2))).
        """
        with Threads(n_jobs) as executor:
            mean, variance = predicted(executor, self._at(executor, X))
        variance *= self.variance_scale
        return mean.reshape(*self.shape, len(X)), variance.reshape(*self.shape, len(X))

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (r, r) or (C, r, r) of the latent values at the rows of X (r, d), given their predictions.

        Each row is predicted from its own neighbours. Of the errors e_i = f(x_i) - mean_i it is

            Cov(e_i, e_j) = b_i V b_j + D_ij - gamma_i D_Nj - D_iN gamma_j + gamma_i (D_NN + diag(1 / lambda)) gamma_j

        with N the neighbours of either, times ``variance_scale``: positive semidefinite, and the predictions' variances
        are its diagonal.
        O(r^2 k^2 (m + d)) time, O(r^2 k) memory.
        """
        X = np.asarray(X, dtype=np.float64)
        with Threads(1) as executor:
            at = self._at(executor, X)
            _, variances = predicted(executor, at)
            ones = np.ones(variances.shape)
            found, _ = pulled_back(executor, PullBack(at, ones, np.zeros_like(ones)))
            seen, places = np.unique(at.index, return_inverse=True)
            near = np.asarray(self.X[seen], dtype=np.float64)
            support, kernel = at.support.part(seen), self.prior.spec.at(near)
            cross = kernel.cross(X) - at.rows.a @ support.a.T
            joint = self.prior.spec.at(X).cross(X) - at.rows.a @ at.rows.a.T
            ends = np.arange(0, at.index.size + 1, at.index.shape[1])
            covariance = np.empty((len(ones), len(X), len(X)))
            for c, (gamma, b, diagonal) in enumerate(zip(found["gamma"], found["b"], variances, strict=True)):
                G = csr_array((gamma.ravel(), places.ravel(), ends), shape=(len(X), len(seen)))
                G_t = G.T.toarray()
                # Sums over the neighbours, so many of them at a time that the kernel's values fit.
                own = support.residual + 1.0 / np.maximum(self.precision[c, seen], LEAST_PRECISION)
                inner = np.zeros((len(X), len(X)))
                for part in np.array_split(np.arange(len(seen)), 1 + len(seen) // CHUNK):
                    D = kernel.cross(near[part]) - support.a[part] @ support.a.T
                    D[np.arange(len(part)), part] = own[part]
                    inner += G_t[part].T @ (D @ G_t)
                crossed = G @ cross.T
                total = b @ at.q.V[c] @ b.T + joint - crossed - crossed.T + inner
                covariance[c] = 0.5 * (total + total.T)
                np.fill_diagonal(covariance[c], diagonal)
        covariance *= self.variance_scale
        return covariance.reshape(*self.shape, len(X), len(X))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"rows": self.X, "site_precision": self.precision, "site_linear": self.linear}
