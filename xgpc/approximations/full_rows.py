"""Marginals, statistics and gradients that a full Gaussian process computes from blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import lapack

from .. import _full
from .._kernels import InducingKernel, KernelGradient
from .._sites import Site
from ..rows.block import Block, Sites
from ..rows.executor import Cost, workspace
from .base import Natural, Value, new_key


@dataclass(frozen=True, eq=False)
class DistinctRows(Value):
    """The rows whose latent values the process has: every training row is equal to one of them.

    Attributes
    ----------
    Z : (n, d)
    key : str
    """

    Z: np.ndarray
    key: str = field(default_factory=new_key, init=False, repr=False)

    def places(self, block: Block) -> np.ndarray:
        """Which of them each row of a block is equal to, (rows,)."""
        return block.cache.made("places", self.key, lambda: self._places(block.X))

    def _places(self, X: np.ndarray) -> np.ndarray:
        n = len(self.Z)
        number = np.unique(np.vstack([self.Z, X]), axis=0, return_inverse=True)[1].ravel()
        place = np.full(len(number), -1, dtype=np.intp)
        place[number[:n]] = np.arange(n)
        places = place[number[n:]]
        if np.any(places < 0):
            raise ValueError(
                "A row is none of the distinct rows; FullPosterior.marginalizer_anywhere has its marginals."
            )
        return places


@dataclass(frozen=True, eq=False)
class ValueBasis:
    """The latent values at the distinct rows themselves: a(x) picks one of them.

    The sites of equal rows add up at their common latent value.
    """

    rows: DistinctRows
    n_latents: int

    @property
    def key(self) -> str:
        return self.rows.key

    @property
    def cost(self) -> Cost:
        return Cost(self.n_latents, self.n_latents * len(self.rows.Z))

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        places, n = self.rows.places(block), len(self.rows.Z)
        return np.array([np.bincount(places, row, minlength=n) for row in values])

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> Natural:
        return self.sums(block, precision), self.sums(block, linear)

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        return np.take(w, self.rows.places(block), axis=1)


@dataclass(frozen=True, eq=False)
class ValueMarginalizer:
    """Marginals of the latent values, with their noise.

    Attributes
    ----------
    key : str
    basis : ValueBasis
    mean, variance : (C, n) at the distinct rows
    anywhere : Predictive or None
        None: a row has the marginals of the distinct row that it is equal to, and must be equal to one. Else it has
        those that this predicts, at O(n^2) a row: for other rows than the posterior was made from.
    """

    key: str
    basis: ValueBasis
    mean: np.ndarray
    variance: np.ndarray
    anywhere: Predictive | None = None

    @property
    def cost(self) -> Cost:
        return self.basis.cost if self.anywhere is None else self.anywhere.cost

    def marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        if self.anywhere is not None:
            return self.anywhere.marginals(block)
        places = self.basis.rows.places(block)
        return np.take(self.mean, places, axis=1), np.take(self.variance, places, axis=1)

    def update(self, block: Block, site: Site) -> tuple[Sites, np.ndarray, np.ndarray]:
        sites = block.evaluated(self.key, site, *self.marginals(block))
        return sites, *self.basis.moments(block, sites.precision, sites.linear)


@dataclass(frozen=True, eq=False)
class Factor(Value):
    """Factors of M = H^T H - N^T N, which a prior and the precisions of sites determine.

    Attributes
    ----------
    H : (n, n) lower triangular
    N : (r, n), a row for each negative precision
    variance : (n,) of the latent values
    half_log_det : log |I + K Lambda| / 2
    """

    H: np.ndarray
    N: np.ndarray
    variance: np.ndarray
    half_log_det: float

    def times(self, x: np.ndarray) -> np.ndarray:
        """M x."""
        return self.H.T @ (self.H @ x) - self.N.T @ (self.N @ x)

    def matrix(self) -> np.ndarray:
        """M (n, n); O(n^3)."""
        product, _ = lapack.dlauum(self.H.T, lower=0)
        M = np.triu(product)
        M += np.triu(product, 1).T
        return M - self.N.T @ self.N if len(self.N) else M


@dataclass(frozen=True, eq=False)
class Predictive:
    """Marginals of C latent functions at any rows: factors of each, and weights alpha (C, n) of the distinct rows."""

    cores: Sequence[InducingKernel]
    factors: Sequence[Factor]
    alpha: np.ndarray

    @property
    def cost(self) -> Cost:
        C, n = self.alpha.shape
        return Cost(C * n * (n + self.cores[0].n_features), 1)

    def marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        X, work = block.X, workspace(len(block), self.alpha.shape[1], self.cores[0].n_features)
        each = zip(self.cores, self.factors, self.alpha, strict=True)
        mean, variance = np.stack(
            [_full.marginals_block(core, X, factor.H, factor.N, alpha, work) for core, factor, alpha in each], axis=1
        )
        return mean, variance


@dataclass(frozen=True, eq=False)
class Explained:
    """Covariances K (n, n) of the distinct rows, and the factor H (n, n) of what sites explain of them."""

    K: np.ndarray
    H: np.ndarray

    @property
    def cost(self) -> Cost:
        return Cost(len(self.K) ** 2, 1)


def explained_variances(block: Block, state: Explained) -> np.ndarray:
    """Latent variances (rows,) of the distinct rows whose numbers a block's single feature has."""
    index = np.ascontiguousarray(block.X[:, 0])
    return _full.variances_block(state.K, index, state.H, workspace(len(block), len(state.K), 1))


@dataclass(frozen=True, eq=False)
class GramGradient:
    """The gradient G (n, n) of the bound by a kernel's matrix, and by the noise of each row."""

    core: InducingKernel
    G: np.ndarray
    by_noise: np.ndarray

    @property
    def cost(self) -> Cost:
        return Cost(len(self.G) * (len(self.G) + self.core.n_features), 1)


def gram_gradient(block: Block, state: GramGradient) -> KernelGradient:
    """Contraction with the kernel's derivatives, for a block of the distinct rows."""
    core, rows, total = state.core, block.rows, KernelGradient.empty(state.core)
    work = workspace(len(block), core.n_inducing, core.n_features)
    _full.gradient_of_block(core, rows.start, rows.stop, state.G, state.by_noise, work, total)
    return total
