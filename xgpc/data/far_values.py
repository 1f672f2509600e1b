"""Limit values that are far from all others of a feature: codes for missing values, other units, typing errors."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..names import MatrixLike
from ..ranges import varies
from ..rows.source import dense

# Values are far if a gap of so many times the range of all nearer values, from the other side's quartile on, separates
# them. Codes such as -9999 leave gaps of 17 ranges and more, and heavy tails thin out gradually.
FAR = 5.0
# Several values can be far only if at most this share of the rows have them: what differs between more rows may tell.
RARE = 0.05
# A value of so large a share of the rows does not count in the quartiles, which would coincide.
REPEATED = 0.5
# With fewer rows none is known to be far: three in a row and one aside are few, not wrong.
LEAST_ROWS = 20
# Rows that are looked at, evenly spread.
LOOKED_AT = 131_072


class Limit(NamedTuple):
    """Limits of one feature: values below ``low`` or above ``high`` are far from all others, and count as these."""

    feature: int
    low: float
    high: float

    def is_far(self, X: np.ndarray) -> np.ndarray:
        """Return which rows (n,) of X (n, d) have a far value."""
        values = X[:, self.feature]
        return (values < self.low) | (values > self.high)


def limits_of(X: np.ndarray, weight: np.ndarray, heavy: Collection[int] = ()) -> tuple[Limit, ...]:
    """Return limits of the features that have far values in rows X (n, d), with weights (n,) or empty for ones.

    A row of weight w counts as w rows. In ``heavy`` features, whose tails are warped, only repeated values can be far.
    """
    if X.shape[0] < LEAST_ROWS:
        return ()
    chosen = slice(None, None, -(-len(X) // LOOKED_AT))
    X = X[chosen]
    weight = weight[chosen] if len(weight) else np.ones(len(X))
    counted = None if np.all(weight == 1.0) else weight
    # Differences by rounding have no gaps.
    features = np.flatnonzero(varies(np.min(X, axis=0), np.max(X, axis=0))).tolist()
    ends = [(j, *limits(np.asarray(X[:, j], dtype=np.float64), counted)) for j in features]
    found = tuple(Limit(*one) for one in ends if np.any(np.isfinite(one[1:])))
    return tuple(one for one in found if one.feature not in heavy or _is_repeated(X[one.is_far(X), one.feature]))


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


def _is_repeated(values: np.ndarray) -> bool:
    """Whether values (r,) occur twice or more on average, as codes do; the largest values of a tail are unique."""
    return 2 * len(np.unique(values)) <= len(values)


def limits(values: np.ndarray, weight: np.ndarray | None) -> tuple[float, float]:
    """Return the limits of values (n,) with weights (n,), None for ones; infinite on a side without far values."""
    if weight is None:
        if _has_near_ends(values):
            return -np.inf, np.inf
        # Counts take a tenth of the time of places.
        values, mass = np.unique(values, return_counts=True)
    else:
        values, place = np.unique(values, return_inverse=True)
        mass = np.bincount(place, weight)
    if len(values) < 3:
        return -np.inf, np.inf
    others, most = mass.copy(), int(np.argmax(mass))
    is_repeated = mass[most] >= REPEATED * np.sum(mass)
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


def limits_from_data(data: Sequence[Sequence[Any]]) -> tuple[Limit, ...]:
    """Return the limits in a list of lists, as JSON holds them; raise ValueError unless features are sorted."""
    limits = tuple(Limit._make(one) for one in data)
    features = [one.feature for one in limits]
    is_valid = all(type(j) is int and j >= 0 for j in features) and features == sorted(set(features))
    if not (is_valid and all(type(low) is type(high) is float and low < high for _, low, high in limits)):
        raise ValueError(f"its limits are not valid: {reprlib.repr(data)}")
    return limits


def within(X: MatrixLike, limits: Sequence[Limit]) -> MatrixLike:
    """Return rows X (n, d) with all values within limits, X itself without any. Limits make sparse rows dense."""
    if not limits:
        return X
    X = np.array(dense(X))
    for j, low, high in limits:
        np.clip(X[:, j], low, high, out=X[:, j])
    return X


def within_vjp(X: np.ndarray, limits: Sequence[Limit], gradient: np.ndarray) -> np.ndarray:
    """Return gradients (..., n, d) by rows X (n, d), from those by ``within`` of them: a far value has no influence."""
    result = np.array(gradient)
    for one in limits:
        result[..., one.is_far(X), one.feature] = 0.0
    return result


def described(limits: Sequence[Limit], names: Sequence[str], listed: int) -> str:
    """Describe the first ``listed`` limits in words, with the features' names."""
    parts = [
        f"{names[j]} "
        + " and ".join(f"{side} {limit:.4g}" for side, limit in (("below", low), ("above", high)) if np.isfinite(limit))
        for j, low, high in limits[:listed]
    ]
    return ", ".join(parts) + (f" and {len(limits) - listed} more" if len(limits) > listed else "")
