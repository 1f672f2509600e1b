"""The distinct rows of a full Gaussian process, its marginals, and the factors that sites make of its covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import lapack

from .. import _full
from .._kernels import InducingKernel
from .._sites import Site
from ..rows.block import Block, Sites
from ..rows.executor import Cost, workspace
from .base import Natural, Value, new_key


@dataclass(frozen=True, eq=False)
class ValueBasis(Value):
    """The latent values at the distinct rows Z (n, d): a(x) picks one of them, as every training row is equal to one.

    The sites of equal rows add up at their common latent value.
    """

    Z: np.ndarray
    key: str = field(default_factory=new_key, init=False, repr=False)

    @property
    def cost(self) -> Cost:
        return Cost(1, len(self.Z))

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

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        places, n = self.places(block), len(self.Z)
        return np.array([np.bincount(places, row, minlength=n) for row in values])

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> Natural:
        return self.sums(block, precision), self.sums(block, linear)

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        return np.take(w, self.places(block), axis=1)


@dataclass(frozen=True, eq=False)
class ValueMarginalizer:
    """Marginals, with noise, of rows that are equal to distinct ones; mean and variance (C, n) are those of these."""

    key: str
    basis: ValueBasis
    mean: np.ndarray
    variance: np.ndarray

    @property
    def cost(self) -> Cost:
        return self.basis.cost

    def marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        return self.basis.products(block, self.mean), self.basis.products(block, self.variance)

    def update(self, block: Block, site: Site) -> tuple[Sites, np.ndarray, np.ndarray]:
        sites = block.evaluated(self.key, site, *self.marginals(block))
        return sites, *self.basis.moments(block, sites.precision, sites.linear)


@dataclass(frozen=True, eq=False)
class Factor(Value):
    """Factors of M = H^T H - N^T N, which a prior and the precisions of sites determine."""

    H: np.ndarray  # (n, n) lower triangular
    N: np.ndarray  # (r, n), a row for each negative precision
    variance: np.ndarray  # (n,) of the latent values
    half_log_det: float  # log |I + K Lambda| / 2

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
class FactorMarginalizer:
    """Marginals of any rows at O(n^2) each, by the factors of C latent functions and the weights alpha (C, n)."""

    key: str
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
