"""Means and variances of latent functions, as a graph."""

from __future__ import annotations

import numpy as np

from .._kernels import CANCELLATION_LIMIT, InducingKernel
from ..approximations.base import KernelPosterior
from ..kernels import factors
from ..kernels.factors import Pairs
from . import graph
from .graph import Tensor, concatenated, maximum, minimum


class ToPoints(Pairs):
    """Rows X (rows, d) with points (m, d): covariances (rows, m)."""

    def __init__(self, X: Tensor, points: np.ndarray) -> None:
        self.X, self.points = X, points
        super().__init__(
            lambda j: (X.slice(1, j, j + 1), points[None, :, j]), 0.0 * X.sum(1) + np.zeros((1, len(points)))
        )

    def products(self, scale: np.ndarray) -> Tensor:
        return self.X @ (self.points * scale).T.copy()

    def half_squares(self, scale: np.ndarray, family: str) -> Tensor:
        # Distances lose the fewest digits if the points are centred.
        centre = self.points.mean(axis=0)
        x, z = (self.X - centre) * scale, (self.points - centre) * scale
        norms = np.sum(z**2, axis=1)
        if family == "matern-1/2" or float(np.max(norms)) > CANCELLATION_LIMIT:
            return super().half_squares(scale, family)
        return minimum(x @ z.T.copy() - 0.5 * ((x * x).sum(1) + norms), 0.0)


def among(X: Tensor) -> Pairs:
    """The rows of each of several sets X (sets, k, d) among themselves: covariances (sets, k, k)."""

    def features(j: int) -> tuple[Tensor, Tensor]:
        feature = X.slice(2, j, j + 1)
        return feature, feature.transposed(0, 2, 1)

    total = X.sum(2)
    return Pairs(features, 0.0 * (total + total.transposed(0, 2, 1)))


def covariances(core: InducingKernel, pairs: Pairs, is_own: bool = False) -> Tensor:
    """The kernel of pairs without noise; with noise for pairs of each row with itself."""
    return factors.covariances(core, pairs, lambda family: graph, is_own)


def variances(core: InducingKernel, X: Tensor) -> Tensor:
    """k(x, x) (rows, 1), including noise."""
    return covariances(core, Pairs(lambda j: (X.slice(1, j, j + 1),) * 2, 0.0 * X.sum(1)), is_own=True)


def _squared_norms(K: Tensor, matrix: np.ndarray) -> Tensor:
    """|M k|^2 (rows, 1) for rows k of K."""
    product = K @ matrix.T.copy()
    return (product * product).sum(1)


def marginals(q: KernelPosterior, X: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances (rows, C) of the latent functions; functions that share a kernel or a matrix share nodes."""
    means, spread = [], []
    for group, forms in q.forms_by_group:
        K, prior = covariances(group.core, ToPoints(X, group.Z)), variances(group.core, X)
        residuals: dict[int, Tensor] = {}
        for _, weights, explained, added in forms:
            if id(explained) not in residuals:
                residuals[id(explained)] = maximum(prior - _squared_norms(K, explained), 0.0)
            means.append(K @ weights[:, None])
            variance = residuals[id(explained)]
            spread.append(variance + _squared_norms(K, added) if len(added) else variance)
    return concatenated(means, 1), concatenated(spread, 1)
