"""Means and variances of latent functions, as a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul, sub

import numpy as np

from .._kernels import FAMILIES, InducingKernel
from ..approximations.base import CovarianceForm
from ..kernels.factors import AXIS_FAMILIES, LOG_FACTORS, NAMES, PROFILES
from . import graph
from .graph import Tensor, concatenated, maximum, minimum

DOT_PRODUCT = FAMILIES["dot-product"]
# As in ``src/xgpc/_kernels.pyx``: |x|^2 + |z|^2 - 2 x.z loses eps |z|^2. Above this |z|^2 the loss is too large; under
# the root of a Matern kernel with nu = 1/2 it always is.
CANCELLATION_LIMIT = 1e6


class Pairs(ABC):
    """Pairs of rows, as the factors of a kernel need them; ``scale`` (d,) multiplies the features."""

    @abstractmethod
    def zeros(self) -> Tensor:
        """Zeros of the covariances' shape."""

    @abstractmethod
    def products(self, scale: np.ndarray) -> Tensor:
        """x.z of features of which ``scale`` is 1 or 0."""

    @abstractmethod
    def differences(self, scale: np.ndarray) -> list[Tensor]:
        """x_j - z_j for each feature j. One feature at a time, because all at once would take much memory."""

    def half_distances(self, scale: np.ndarray, exact: bool) -> Tensor:
        """-|x - z|^2 / 2."""
        return -0.5 * reduce(add, [difference * difference for difference in self.differences(scale)])


class ToPoints(Pairs):
    """Rows X (rows, d) with points (m, d): covariances (rows, m)."""

    def __init__(self, X: Tensor, points: np.ndarray) -> None:
        # Distances lose the fewest digits if the points are centred.
        self.X, self.points, self.centre = X, points, points.mean(axis=0)

    def _scaled(self, scale: np.ndarray) -> tuple[Tensor, np.ndarray]:
        return (self.X - self.centre) * scale, (self.points - self.centre) * scale

    def zeros(self) -> Tensor:
        return 0.0 * self.X.sum(1) + np.zeros((1, len(self.points)))

    def products(self, scale: np.ndarray) -> Tensor:
        return self.X @ (self.points * scale).T.copy()

    def differences(self, scale: np.ndarray) -> list[Tensor]:
        x, z = self._scaled(scale)
        return [x.slice(1, j, j + 1) - z[None, :, j] for j in range(len(scale))]

    def half_distances(self, scale: np.ndarray, exact: bool) -> Tensor:
        x, z = self._scaled(scale)
        if exact or float(np.max(np.sum(z**2, axis=1))) > CANCELLATION_LIMIT:
            return super().half_distances(scale, exact)
        return minimum(x @ z.T.copy() - 0.5 * ((x * x).sum(1) + np.sum(z**2, axis=1)), 0.0)


class Among(Pairs):
    """The rows of each of several sets X (sets, k, d) among themselves: covariances (sets, k, k)."""

    def __init__(self, X: Tensor, d: int) -> None:
        self.X, self.features = X, [X.slice(2, j, j + 1) for j in range(d)]

    def zeros(self) -> Tensor:
        return 0.0 * _pairwise(add, self.X.sum(2))

    def products(self, scale: np.ndarray) -> Tensor:
        return reduce(add, [_pairwise(mul, self.features[j]) for j in np.flatnonzero(scale)], self.zeros())

    def differences(self, scale: np.ndarray) -> list[Tensor]:
        return [_pairwise(sub, feature * float(size)) for feature, size in zip(self.features, scale, strict=True)]


def _pairwise(operation: Callable[[Tensor, Tensor], Tensor], values: Tensor) -> Tensor:
    """An operation on all pairs (sets, k, k) of values (sets, k, 1)."""
    return operation(values, values.transposed(0, 2, 1))


def _factor(core: InducingKernel, f: int, pairs: Pairs) -> Tensor:
    """Factor f of the kernel."""
    name, shape, scale = NAMES[int(core.family[f])], float(core.shape[f]), core.inverse_length_scale[f]
    if core.family[f] == DOT_PRODUCT:
        return PROFILES[name](graph, pairs.products(scale), shape)
    if name in AXIS_FAMILIES.values():
        of_features = [LOG_FACTORS[name](graph, graph.absolute(difference)) for difference in pairs.differences(scale)]
        return PROFILES[name](graph, reduce(add, of_features), shape)
    return PROFILES[name](graph, pairs.half_distances(scale, exact=name == "matern-1/2"), shape)


def covariances(core: InducingKernel, pairs: Pairs) -> Tensor:
    """The kernel of pairs, without noise."""
    terms, zeros = [], pairs.zeros()
    for t in np.flatnonzero(np.asarray(core.noise) == 0):
        # Terms without factors need the shape of the covariances, too.
        constant = float(core.variance[t]) + zeros
        terms.append(reduce(mul, [_factor(core, int(f), pairs) for f in np.flatnonzero(core.term == t)], constant))
    return reduce(add, terms)


def variances(core: InducingKernel, X: Tensor) -> Tensor:
    """k(x, x) (rows, 1), including noise."""
    total = 0.0 * X.sum(1)
    for t in range(core.n_terms):
        products = np.flatnonzero((core.term == t) & (core.family == DOT_PRODUCT))
        factors = [float(core.shape[f]) + (X * X * core.inverse_length_scale[f]).sum(1) for f in products]
        total = total + reduce(mul, factors, float(core.variance[t]))
    return total


def _squared_norms(K: Tensor, matrix: np.ndarray) -> Tensor:
    """|M k|^2 (rows, 1) for rows k of K."""
    product = K @ matrix.T.copy()
    return (product * product).sum(1)


def marginals(forms: Sequence[CovarianceForm], X: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances (rows, C) of the latent functions; functions that share a kernel or a matrix share nodes."""
    kernels: dict[int, tuple[Tensor, Tensor]] = {}
    rest: dict[int, Tensor] = {}
    means, spread = [], []
    for core, weights, explained, added in forms:
        if id(core) not in kernels:
            kernels[id(core)] = covariances(core, ToPoints(X, core.inducing_points)), variances(core, X)
        K, prior = kernels[id(core)]
        if id(explained) not in rest:
            rest[id(explained)] = maximum(prior - _squared_norms(K, explained), 0.0)
        means.append(K @ weights[:, None])
        variance = rest[id(explained)]
        spread.append(variance + _squared_norms(K, added) if len(added) else variance)
    return concatenated(means, 1), concatenated(spread, 1)
