"""Limits of values that are far from all others of a feature, and warps of features with heavy tails.

Far values are codes for missing values, other units, or typing errors. A warp is nearly the identity near the median,
and logarithmic far from it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ..names import MatrixLike
from ..ranges import LEAST_VARIATION, varies
from ..rows.block import dense

# Values are far if a gap separates them that is this many times as wide as the range of all nearer values, measured
# from the other side's quartile. Codes such as -9999 leave gaps of 17 ranges and more, and heavy tails thin out
# gradually.
FAR = 5.0
# Several values can be far only if at most this share of the rows have them: differences between more rows may be
# informative.
RARE = 0.05
# A value that this share of the rows has is a state rather than a measure. It does not count in the quartiles, which
# would otherwise coincide.
REPEATED_SHARE = 0.5
# With fewer rows none is known to be far: three in a row and one aside are few, not wrong.
LEAST_ROWS = 20
# At most this many rows, evenly spread, are looked at.
LOOKED_AT = 131_072
# Excess kurtosis of heavy tails: 0 for a normal distribution, 3 for a Laplace, 6 for an exponential one.
HEAVY = 5.0
# A feature of fewer distinct values has codes, levels or scores rather than tails.
LEAST_DISTINCT = 11
# The median absolute deviation times this is the standard deviation of a normal distribution.
NORMAL = 1.4826
# Where more than half of the rows have the median, this quantile of the other deviations is the scale: zeros are then
# clearly apart from the amounts of other rows.
NEAR = 0.25


class Limit(NamedTuple):
    """Limits of one feature: values below ``low`` or above ``high`` are far from all others, and count as these."""

    feature: int
    low: float
    high: float

    @property
    def is_valid(self) -> bool:
        return self.low < self.high

    def is_far(self, X: np.ndarray) -> np.ndarray:
        """Return which rows (n,) of X (n, d) have a far value."""
        values = X[:, self.feature]
        return (values < self.low) | (values > self.high)


class Warp(NamedTuple):
    """The warp of one feature: centre + scale * arcsinh((x - centre) / scale) in place of x."""

    feature: int
    centre: float
    scale: float

    @property
    def is_valid(self) -> bool:
        return bool(np.isfinite(self.centre) and 0.0 < self.scale < np.inf)


Record = TypeVar("Record", Limit, Warp)


def _looked_at(X: np.ndarray) -> slice:
    """Return which of the rows (n, d) are looked at."""
    return slice(None, None, -(-len(X) // LOOKED_AT))


def limits_of(X: np.ndarray, weight: np.ndarray) -> tuple[Limit, ...]:
    """Return limits of the features that have far values in rows X (n, d) with weights (n,).

    A row of weight w counts as w rows.
    """
    if X.shape[0] < LEAST_ROWS:
        return ()
    X, weight = X[_looked_at(X)], weight[_looked_at(X)]
    counted = None if np.all(weight == 1.0) else weight
    # Differences by rounding have no gaps.
    features = np.flatnonzero(varies(np.min(X, axis=0), np.max(X, axis=0))).tolist()
    ends = [(j, *limits(np.asarray(X[:, j], dtype=np.float64), counted)) for j in features]
    return tuple(Limit(*end) for end in ends if np.any(np.isfinite(end[1:])))


def limits_beside(warps: Sequence[Warp], limits: Sequence[Limit], X: np.ndarray) -> tuple[Limit, ...]:
    """Return the limits of rows X (n, d) that stay beside warps.

    In features whose tails are warped only repeated values, such as codes, are far: the values of a tail are unique.
    """
    X, heavy = X[_looked_at(X)], {warp.feature for warp in warps}
    pairs = [(limit, X[limit.is_far(X), limit.feature]) for limit in limits]
    return tuple(end for end, far in pairs if end.feature not in heavy or 2 * len(np.unique(far)) <= len(far))


def _has_near_ends(values: np.ndarray) -> bool:
    """Whether the ends of values (n,) show that none is far, by a test that is quicker than gaps.

    A gap of ``FAR`` ranges beyond a value above the upper quartile needs an end at least as far from both quartiles. If
    the median is none of the quartiles, no value counts as repeated.
    """
    n = len(values)
    first = -(-n // 4)
    places = [0, first, n // 2, n - 1 - first, n - 1]
    least, low, median, high, most = np.partition(values, places)[places].tolist()
    far = FAR * (high - low)
    return low < median < high and least > low - far and most < high + far


def limits(values: np.ndarray, weight: np.ndarray | None) -> tuple[float, float]:
    """Return the limits of values (n,) with weights (n,), None for ones; infinite on a side without far values."""
    if weight is None:
        if _has_near_ends(values):
            return -np.inf, np.inf
        # ``return_counts`` takes a tenth of the time of ``return_inverse``.
        values, mass = np.unique(values, return_counts=True)
    else:
        values, place = np.unique(values, return_inverse=True)
        mass = np.bincount(place, weight)
    if len(values) < 3:
        return -np.inf, np.inf
    others, most = mass.copy(), int(np.argmax(mass))
    is_repeated = mass[most] >= REPEATED_SHARE * np.sum(mass)
    if is_repeated:
        others[most] = 0.0

    def upper(values: np.ndarray, mass: np.ndarray, others: np.ndarray) -> float:
        """Return the upper limit of distinct sorted values; that of the negated values is the lower limit."""
        low = values[np.searchsorted(np.cumsum(others), 0.25 * np.sum(others))]
        high = values[::-1][np.searchsorted(np.cumsum(others[::-1]), 0.25 * np.sum(others))]
        if is_repeated:
            low, high = min(low, values[np.argmax(mass)]), max(high, values[np.argmax(mass)])
        nearer, reach = values[:-1], values[:-1] - low
        is_rare = np.sum(mass) - np.cumsum(mass)[:-1] <= RARE * np.sum(mass)
        # A single value can be a code however often it occurs.
        is_rare[-1] = True
        (places,) = np.nonzero((nearer >= high) & (reach > 0.0) & (np.diff(values) >= FAR * reach) & is_rare)
        # Values of other rows may lie somewhat beyond the nearer ones.
        return float(nearer[places[0]] + reach[places[0]]) if len(places) else np.inf

    return -upper(-values[::-1], mass[::-1], others[::-1]), upper(values, mass, others)


def warps_of(X: np.ndarray, weight: np.ndarray, limits: Sequence[Limit]) -> tuple[Warp, ...]:
    """Return warps of the features with heavy tails in rows X (n, d) with weights (n,).

    Values beyond the limits do not count. A row of weight w counts as w rows.
    """
    if X.shape[0] < LEAST_ROWS:
        return ()
    X, weight = X[_looked_at(X)], weight[_looked_at(X)]
    far, warps = {limit.feature: limit.is_far(X) for limit in limits}, []
    for j in range(X.shape[1]):
        counted = ~far[j] if j in far else slice(None)
        values, mass = X[counted, j], weight[counted]
        if not varies(np.min(values), np.max(values)):
            continue
        values = np.asarray(values, dtype=np.float64)
        deviation = values - np.average(values, weights=mass)
        largest = np.max(np.abs(deviation))
        squares = (deviation / largest) ** 2
        limit_of_kurtosis = (3.0 + HEAVY) * np.average(squares, weights=mass) ** 2
        if np.average(squares**2, weights=mass) <= limit_of_kurtosis or len(np.unique(values)) < LEAST_DISTINCT:
            continue
        centre = _quantile(values, mass, 0.5)
        size = np.abs(values - centre)
        scale = NORMAL * _quantile(size, mass, 0.5)
        if scale == 0.0:
            scale = _quantile(size[size > 0.0], mass[size > 0.0], NEAR)
        # A smaller scale would be that of rounding errors.
        warps.append(Warp(j, centre, max(scale, LEAST_VARIATION * float(largest))))
    return tuple(warps)


def _quantile(values: np.ndarray, weight: np.ndarray, share: float) -> float:
    return float(np.quantile(values, share, weights=weight, method="inverted_cdf"))


def within(X: MatrixLike, limits: Sequence[Limit]) -> MatrixLike:
    """Return rows X (n, d) with all values within limits, X itself without any. Limits make sparse rows dense."""
    if not limits:
        return X
    X = np.array(dense(X))
    for j, low, high in limits:
        np.clip(X[:, j], low, high, out=X[:, j])
    return X


def warped(X: MatrixLike, warps: Sequence[Warp], function: Callable[..., np.ndarray] = np.arcsinh) -> MatrixLike:
    """Return rows X (n, d) with warped features, X itself without any; ``np.sinh`` takes warps back.

    Warps make sparse rows dense.
    """
    if not warps:
        return X
    X = np.array(dense(X))
    features, centre, scale = map(np.array, zip(*warps, strict=True))
    ratio = (X[:, features] - centre) / scale
    X[:, features] = centre + scale * function(ratio, out=ratio)
    return X


def described(limit: Limit, name: str) -> str:
    """Describe a limit in words, with the feature's name."""
    ends = [f"{side} {end:.4g}" for side, end in zip(("below", "above"), limit[1:], strict=True) if np.isfinite(end)]
    return f"{name} {' and '.join(ends)}"


def from_data(kind: type[Record], data: Sequence[Sequence[float]]) -> tuple[Record, ...]:
    """Return limits or warps from lists, as JSON holds them; raise ValueError for bad numbers or unsorted features."""
    records = tuple(kind._make(values) for values in data)
    features = [record.feature for record in records]
    is_valid = all(type(j) is int and j >= 0 for j in features) and features == sorted(set(features))
    is_valid &= all(type(number) is float for record in records for number in record[1:])
    if not (is_valid and all(record.is_valid for record in records)):
        raise ValueError(f"its {kind.__name__.lower()}s are not valid: {reprlib.repr(data)}")
    return records
