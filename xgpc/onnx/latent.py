"""Means and variances of latent functions as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._kernels import FAMILIES, InducingKernel
from ..approximations.base import CovarianceForm
from .graph import Tensor, concatenated, exp, log, maximum, minimum, sqrt

# Family -> function of h and the shape parameter, as in ``src/xgpc/profiles.h``: h = -r^2 / 2, of the dot product x.z.
PROFILES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "rbf": lambda h, shape: exp(h),
    "matern-1/2": lambda h, shape: exp(-sqrt(-2.0 * h)),
    "matern-3/2": lambda h, shape: _matern(sqrt(-6.0 * h), 0.0),
    "matern-5/2": lambda h, shape: _matern(sqrt(-10.0 * h), 1.0 / 3.0),
    "rational-quadratic": lambda h, shape: exp(-shape * log(1.0 - h / shape)),
    "dot-product": lambda h, shape: shape + h,
}
NAMES = {number: name for name, number in FAMILIES.items()}
DOT_PRODUCT = FAMILIES["dot-product"]
# As in ``src/xgpc/_kernels.pyx``: |x|^2 + |z|^2 - 2 x.z loses eps |z|^2, above this square and, under the root of a
# Matern kernel with nu = 1/2, always too much.
CANCELLATION_LIMIT = 1e6


def _matern(a: Tensor, square: float) -> Tensor:
    return (1.0 + a * (1.0 + square * a)) * exp(-a)


def _half_distances(x: Tensor, z: np.ndarray, by_differences: bool) -> Tensor:
    """-|x - z|^2 / 2 (rows, m) of scaled rows (rows, d) and points (m, d)."""
    if by_differences:
        # Feature by feature, as (rows, m, d) differences would take much memory.
        squares = [(x.slice(1, j, j + 1) - z[None, :, j]) for j in range(z.shape[1])]
        total = squares[0] * squares[0]
        for difference in squares[1:]:
            total = total + difference * difference
        return -0.5 * total
    return minimum(x @ z.T.copy() - 0.5 * ((x * x).sum(1) + np.sum(z**2, axis=1)), 0.0)


def _factor(core: InducingKernel, f: int, X: Tensor) -> Tensor:
    """Factor f of the kernel between rows and points, (rows, m)."""
    name, shape, Z = NAMES[int(core.family[f])], float(core.shape[f]), core.inducing_points
    if core.family[f] == DOT_PRODUCT:
        return PROFILES[name](X @ Z.T.copy(), shape)
    # Near the points' middle distances lose the fewest digits.
    centre, scale = Z.mean(axis=0), core.inverse_length_scale[f]
    z = (Z - centre) * scale
    by_differences = name == "matern-1/2" or float(np.max(np.sum(z**2, axis=1))) > CANCELLATION_LIMIT
    return PROFILES[name](_half_distances((X - centre) * scale, z, by_differences), shape)


def covariances(core: InducingKernel, X: Tensor) -> Tensor:
    """k(X, Z) (rows, m), without noise."""
    terms = []
    for t in np.flatnonzero(np.asarray(core.noise) == 0):
        # Shaped as the covariances, whatever a term's factors are.
        term = np.full((1, core.n_inducing), core.variance[t]) + 0.0 * X.sum(1)
        for f in np.flatnonzero(core.term == t):
            term = term * _factor(core, int(f), X)
        terms.append(term)
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def variances(core: InducingKernel, X: Tensor) -> Tensor:
    """k(x, x) (rows, 1), noise included."""
    squares = (X * X).sum(1)
    total: Any = 0.0 * squares
    for t in range(core.n_terms):
        term: Any = float(core.variance[t])
        for f in np.flatnonzero((core.term == t) & (core.family == DOT_PRODUCT)):
            term = term * (float(core.shape[f]) + squares)
        total = total + term
    return total


def _squared_norms(K: Tensor, matrix: np.ndarray) -> Tensor:
    """|M k|^2 (rows, 1) for rows k of K."""
    product = K @ matrix.T.copy()
    return (product * product).sum(1)


def marginals(forms: Sequence[CovarianceForm], X: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances (rows, C) of the latent functions; what several of them share is computed once."""
    kernels: dict[int, tuple[Tensor, Tensor]] = {}
    explained: dict[int, Tensor] = {}
    means, spread = [], []
    for form in forms:
        core, matrix = form.core, form.explained
        if id(core) not in kernels:
            kernels[id(core)] = covariances(core, X), variances(core, X)
        K, prior = kernels[id(core)]
        if id(matrix) not in explained:
            explained[id(matrix)] = _squared_norms(K, matrix)
        rest = maximum(prior - explained[id(matrix)], 0.0)
        means.append(K @ form.weights[:, None])
        spread.append(rest + _squared_norms(K, form.added) if len(form.added) else rest)
    return concatenated(means, 1), concatenated(spread, 1)
