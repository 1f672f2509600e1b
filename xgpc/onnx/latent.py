"""Means and variances of latent functions, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, mul

import numpy as np

from .._kernels import FAMILIES, InducingKernel
from ..approximations.base import CovarianceForm
from ..kernels.factors import AXIS_FAMILIES, LOG_FACTORS, PROFILES
from . import graph
from .graph import Tensor, concatenated, maximum, minimum

NAMES = {number: name for name, number in FAMILIES.items()}
DOT_PRODUCT = FAMILIES["dot-product"]
# As in ``src/xgpc/_kernels.pyx``: |x|^2 + |z|^2 - 2 x.z loses eps |z|^2. Above this |z|^2 the loss is too large; under
# the root of a Matern kernel with nu = 1/2 it always is.
CANCELLATION_LIMIT = 1e6


def _differences(x: Tensor, z: np.ndarray) -> list[Tensor]:
    """x_j - z_j (rows, m) for each feature j of scaled rows x (rows, d) and points z (m, d)."""
    # One feature at a time, because differences (rows, m, d) would take much memory.
    return [x.slice(1, j, j + 1) - z[None, :, j] for j in range(z.shape[1])]


def _half_distances(x: Tensor, z: np.ndarray, by_differences: bool) -> Tensor:
    """-|x - z|^2 / 2 (rows, m) for scaled rows x (rows, d) and points z (m, d)."""
    if by_differences:
        return -0.5 * reduce(add, [one * one for one in _differences(x, z)])
    return minimum(x @ z.T.copy() - 0.5 * ((x * x).sum(1) + np.sum(z**2, axis=1)), 0.0)


def _factor(core: InducingKernel, f: int, X: Tensor) -> Tensor:
    """Factor f of the kernel between rows and points, (rows, m)."""
    name, shape, Z = NAMES[int(core.family[f])], float(core.shape[f]), core.inducing_points
    scale = core.inverse_length_scale[f]
    if core.family[f] == DOT_PRODUCT:
        return PROFILES[name](graph, X @ (Z * scale).T.copy(), shape)
    # Distances lose the fewest digits if the points are centred.
    centre = Z.mean(axis=0)
    x, z = (X - centre) * scale, (Z - centre) * scale
    if name in AXIS_FAMILIES.values():
        of_features = [LOG_FACTORS[name](graph, graph.absolute(one)) for one in _differences(x, z)]
        return PROFILES[name](graph, reduce(add, of_features), shape)
    by_differences = name == "matern-1/2" or float(np.max(np.sum(z**2, axis=1))) > CANCELLATION_LIMIT
    return PROFILES[name](graph, _half_distances(x, z, by_differences), shape)


def covariances(core: InducingKernel, X: Tensor) -> Tensor:
    """k(X, Z) (rows, m), without noise."""
    terms = []
    for t in np.flatnonzero(np.asarray(core.noise) == 0):
        # Terms without factors need the shape of the covariances, too.
        constant = np.full((1, core.n_inducing), core.variance[t]) + 0.0 * X.sum(1)
        terms.append(reduce(mul, [_factor(core, int(f), X) for f in np.flatnonzero(core.term == t)], constant))
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
            kernels[id(core)] = covariances(core, X), variances(core, X)
        K, prior = kernels[id(core)]
        if id(explained) not in rest:
            rest[id(explained)] = maximum(prior - _squared_norms(K, explained), 0.0)
        means.append(K @ weights[:, None])
        variance = rest[id(explained)]
        spread.append(variance + _squared_norms(K, added) if len(added) else variance)
    return concatenated(means, 1), concatenated(spread, 1)
