"""Warp features with heavy tails: nearly unchanged near the median, logarithmic far from it."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..names import MatrixLike
from ..ranges import varies
from ..rows.source import dense
from .far_values import LEAST_ROWS, LOOKED_AT, Limit

# Excess kurtosis of heavy tails: 0 for a normal distribution, 3 for a Laplace, 6 for an exponential one.
HEAVY = 5.0
# A feature of fewer distinct values has codes, levels or scores rather than tails.
LEAST_DISTINCT = 11
# The median absolute deviation times this is the standard deviation of a normal distribution.
NORMAL = 1.4826
# Where more than half of the rows have the median, this quantile of the other deviations is the scale: zeros are then
# clearly apart from the amounts of other rows.
NEAR = 0.25
# A smaller part of the largest deviation is no scale: the ratio would be beyond what rounding leaves.
LEAST_SCALE = 1e-12


class Warp(NamedTuple):
    """The warp of one feature: centre + scale * arcsinh((x - centre) / scale) in place of x."""

    feature: int
    centre: float
    scale: float


def warps_of(X: np.ndarray, weight: np.ndarray, limits: Sequence[Limit]) -> tuple[Warp, ...]:
    """Return warps of the features with heavy tails in rows X (n, d), with weights (n,) or empty for ones.

    Values beyond the limits do not count. A row of weight w counts as w rows.
    """
    if X.shape[0] < LEAST_ROWS:
        return ()
    chosen = slice(None, None, -(-len(X) // LOOKED_AT))
    X = X[chosen]
    weight, far = weight[chosen] if len(weight) else np.ones(len(X)), {one.feature: one.is_far(X) for one in limits}

    def found(j: int) -> Warp | None:
        near = slice(None) if j not in far else ~far[j]
        values = X[near, j]
        is_constant = not varies(np.min(values), np.max(values))
        return None if is_constant else _warp(j, np.asarray(values, dtype=np.float64), weight[near])

    return tuple(one for one in map(found, range(X.shape[1])) if one is not None)


def _warp(feature: int, values: np.ndarray, weight: np.ndarray) -> Warp | None:
    """Return the warp of a feature's values (n,), or None unless they have heavy tails."""
    deviation = values - np.average(values, weights=weight)
    largest = np.max(np.abs(deviation))
    squares = (deviation / largest) ** 2
    variance = np.average(squares, weights=weight)
    if np.average(squares**2, weights=weight) <= (3.0 + HEAVY) * variance**2 or len(np.unique(values)) < LEAST_DISTINCT:
        return None
    centre = _quantile(values, weight, 0.5)
    size = np.abs(values - centre)
    scale = NORMAL * _quantile(size, weight, 0.5)
    if scale == 0.0:
        scale = _quantile(size[size > 0.0], weight[size > 0.0], NEAR)
    return Warp(feature, centre, max(scale, LEAST_SCALE * float(largest)))


def _quantile(values: np.ndarray, weight: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    mass = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(mass, share * mass[-1])]])


def warped(X: MatrixLike, warps: Sequence[Warp], function: Callable[..., np.ndarray] = np.arcsinh) -> MatrixLike:
    """Return rows X (n, d) with warped features, X itself without any; ``np.sinh`` takes warps back.

    Warps make sparse rows dense.
    """
    if not warps:
        return X
    X = np.array(dense(X))
    features, centre, scale = map(np.array, zip(*warps, strict=True))
    part = X[:, features].astype(np.float64)
    part -= centre
    part /= scale
    function(part, out=part)
    part *= scale
    part += centre
    X[:, features] = part
    return X


def warp_slopes(X: np.ndarray, warps: Sequence[Warp]) -> np.ndarray:
    """Return the derivatives (n, d) of warped features by those of rows X (n, d): 1 / sqrt(1 + u^2) for arcsinh u."""
    slopes = np.ones(X.shape)
    for feature, centre, scale in warps:
        slopes[:, feature] = 1.0 / np.hypot(1.0, (X[:, feature] - centre) / scale)
    return slopes


def warps_from_data(data: Sequence[Sequence[Any]]) -> tuple[Warp, ...]:
    """Return the warps in a list of lists, as JSON holds them; raise ValueError unless features are sorted."""
    found = tuple(Warp._make(one) for one in data)
    features = [one.feature for one in found]
    is_valid = features == sorted(set(features)) and all(type(j) is int and j >= 0 for j in features)
    is_valid &= all(type(number) is float and np.isfinite(number) for one in found for number in one[1:])
    if not is_valid or any(one.scale <= 0.0 for one in found):
        raise ValueError(f"its warps are not valid: {reprlib.repr(data)}")
    return found
