"""The sparse posterior of the difference of a latent function at the two rows of a pair.

A row of the data is a pair [x, x'] (2 d,), and its latent value f(x) - f(x'): whitened rows are a(x) - a(x'), and the
prior variance is k(x, x) + k(x', x') - 2 k(x, x'). Inducing points are single rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from .. import _engine
from .._engine import RowCache, WhitenedRows
from .._kernels import KernelGradient
from ..rows.block import Block
from ..rows.executor import parts_of
from ..statistics import AnySites, Contraction, Projection
from .base import KernelPosterior, Natural, Training
from .sparse import SparsePosterior, SparsePrior

# Pairs whose covariances k(x, x') are the diagonal of one matrix: its other values are of no use, but a call for each
# pair would take longer.
PAIRS = 64


def _sides(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = X.shape[1] // 2
    return X[:, :d], X[:, d:]


@dataclass(frozen=True, eq=False)
class PairPosterior(SparsePosterior):
    """q(z) under sites of differences."""

    def block_marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = super().block_marginals(block)
        identity = np.eye(self.prior.n_inducing)[None]
        _, explained = _engine.marginals_block(self.prior.whitened(block, 1), identity, self.w)
        variances = block.cache.made("prior", self.prior.key, partial(self.prior.variances, block))
        return mean, variance + np.maximum(variances - explained, 0.0)

    update = KernelPosterior.update

    @property
    def of_rows(self) -> SparsePosterior:
        """The posterior of the latent function itself."""
        prior = self.prior
        single = SparsePrior(prior.spec, prior.Z, prior.core, prior.L, prior.Linv, prior.jitter, prior.dtype)
        return SparsePosterior(single, self.P, self.h, self.Rinv, self.w, self.kl, self.squared_norm)

    def gradients(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """By both rows of each pair, (n, 2, d) each; see ``quadratics``."""
        ((core, alpha, B),) = self.of_rows.quadratics
        first, second = (np.ascontiguousarray(side, dtype=np.float64) for side in _sides(X))
        by_k = np.stack([np.repeat(alpha.T, len(X), axis=1), ((core.cross(first) - core.cross(second)) @ B[0]).T])
        sides = []
        for sign, rows, others in ((1.0, first, second), (-1.0, second, first)):
            by_mean, by_variance = sign * core.row_gradients(rows, by_k)
            by_variance += core.diagonal_gradient(rows)
            for part in parts_of(len(rows), PAIRS):
                weights = -2.0 * np.eye(len(rows[part]))[None]
                by_variance[part] += self.prior.spec.at(others[part]).row_gradients(rows[part], weights)[0]
            sides.append((by_mean, by_variance))
        by_mean, by_variance = np.stack(sides, axis=2)
        return by_mean, by_variance

    def gradient(self, training: Training, sites: AnySites, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        d_theta, d_Z = super().gradient(training, sites, natural)
        return d_theta + training.reduce(pair_covariance_gradient, Projection(sites, self.prior)), d_Z


@dataclass(frozen=True, eq=False)
class PairPrior(SparsePrior):
    """p(u) at inducing points that are single rows."""

    posterior_class = PairPosterior

    def _differences(self, block: Block) -> np.ndarray:
        """The whitened rows a(x) - a(x'), tile by tile as in a ``RowCache``."""
        core, n = self.core, len(block)
        work, no_weights = _engine.workspace(n, core.n_inducing, core.n_features, 1), np.zeros((1, core.n_inducing))
        caches = [RowCache(np.empty(n * core.n_inducing)) for _ in range(2)]
        for side, cache in zip(_sides(block.X), caches, strict=True):
            # Any function of all rows fills the cache.
            _engine.products_block([WhitenedRows(core, side, self.Linv, cache, work)], no_weights)
        return np.asarray(caches[0].values - caches[1].values)

    def differences(self, block: Block) -> np.ndarray:
        return block.cache.made("whitened pairs", self.key, lambda: self._differences(block))

    def whitened(self, block: Block, n_latents: int) -> list[WhitenedRows]:
        work = _engine.workspace(len(block), self.core.n_inducing, self.core.n_features, 1)
        return [WhitenedRows(None, None, None, RowCache(self.differences(block), True), work)]

    def gradient(self, block: Block, state: Contraction) -> list[KernelGradient]:
        """All but what k(x, x') contributes: a pair is the row x with a label, and x' with the opposite one."""
        core, total, sites = self.core, KernelGradient.empty(self.core), state.sites.of(block)
        work = _engine.workspace(len(block), core.n_inducing, core.n_features, 1)
        for sign, side in zip((1.0, -1.0), _sides(block.X), strict=True):
            rows = WhitenedRows(core, side, self.Linv, RowCache(sign * self.differences(block), True), work)
            signed = sites.precision, sign * sites.linear
            (of_side,) = _engine.gradient_of_block([rows], state.M, state.alpha, state.w, *signed)
            total += of_side
        return [total]

    def variances(self, block: Block) -> np.ndarray:
        """k(x, x) + k(x', x') - 2 k(x, x') (rows,)."""
        first, second = map(np.ascontiguousarray, _sides(block.X))
        parts = parts_of(len(first), PAIRS)
        covariances = np.concatenate([np.diag(self.spec.at(second[part]).cross(first[part])) for part in parts])
        return self.core.diagonals(first) + self.core.diagonals(second) - 2.0 * covariances


def pair_covariance_gradient(block: Block, state: Projection) -> np.ndarray:
    """Gradient (n_theta,) of the sum of lambda k(x, x') at fixed lambda."""
    first, second = _sides(block.X)
    spec, precision = state.prior.spec, state.sites.of(block).precision[0]
    total = np.zeros(len(spec.theta))
    for part in parts_of(len(first), PAIRS):
        half = np.diag(0.5 * precision[part])
        core = spec.at(np.concatenate([first[part], second[part]]))
        gram, zeros = KernelGradient.empty(core), np.zeros_like(half)
        _engine.gradient_of_gram(core, np.block([[zeros, half], [half, zeros]]), gram)
        total += spec.gradient(core, KernelGradient.empty(core), gram)[0]
    return total
