"""Values of a feature that are far from all others: codes for what is missing, other units, typing errors."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .source import dense

# Values are far where no row is over a gap of so many times the range of all that is nearer, from the other side's
# quartile on. Codes such as -9999, and 1e6, leave gaps of 17 ranges and more in magic; heavy tails thin out by and by.
# In draws of 3000 rows of 28 public sets one feature of german (12 rows of 1000 have such values), one of page-blocks
# and three of shuttle have limits; NLL without and with these, means of two to four draws: german .481 and .479,
# page-blocks .075 and .075, shuttle's first class .0074 and .0060.
FAR = 5.0
# The limit is so many interquartile ranges beyond the quartile (Tukey's outer fence), and no lower than all but a
# hundredth of the values that are not far. There they are apart from the others, but near enough for the other features
# to count. (-9999 in 1 % of the cells, 3000 rows, NLL with limits at the largest value that is not far, here, and
# without limits: magic .343, .340, .51; svmguide1 .093, .083, .088; heart .420, .405, .69; electricity .469, .429, .68;
# waveform .204, .217, .63.)
FENCE, KEPT = 3.0, 0.99
# Many values are no code, and are far from the others only if this share of the rows at most have them: what differs
# between more rows may tell.
RARE = 0.05
# A value of so many rows is no part of the spread, which would be zero: quartiles are those of the others.
REPEATED = 0.5
# Rows that are looked at, evenly spread.
LOOKED_AT = 131_072


class Limit(NamedTuple):
    """Values of a feature, the column of this number, below ``low`` become that, and those above ``high`` that."""

    feature: int
    low: float
    high: float


def limits_of(X: np.ndarray, weight: np.ndarray) -> tuple[Limit, ...]:
    """Limits of the features of rows X (n, d), with weights (n,) or empty for ones, that have values far from others.

    A row of weight w counts as w rows.
    """
    chosen = slice(None, None, -(-len(X) // LOOKED_AT))
    X = X[chosen]
    weight = weight[chosen] if len(weight) else np.ones(len(X))
    found = [Limit(j, *limits(np.asarray(X[:, j], dtype=np.float64), weight)) for j in range(X.shape[1])]
    return tuple(one for one in found if np.any(np.isfinite(one[1:])))


def limits(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Of values (n,) with weights (n,): infinite on a side where none is far from the others."""
    values, place = np.unique(values, return_inverse=True)
    if len(values) < 3:
        return -np.inf, np.inf
    mass = np.bincount(place, weight)
    others, most = mass.copy(), int(np.argmax(mass))
    is_repeated = mass[most] >= REPEATED * np.sum(mass)
    if is_repeated:
        others[most] = 0.0
    low, high = _quartile(values, others), -_quartile(-values[::-1], others[::-1])
    if is_repeated:
        low, high = min(low, values[most]), max(high, values[most])
    below = _upper(-values[::-1], mass[::-1], others[::-1], -high, -low)
    return -below, _upper(values, mass, others, low, high)


def _quartile(values: np.ndarray, mass: np.ndarray) -> float:
    """The first, of distinct sorted values with masses; of their negatives that of the last one."""
    return float(values[np.searchsorted(np.cumsum(mass), 0.25 * np.sum(mass))])


def _upper(values: np.ndarray, mass: np.ndarray, others: np.ndarray, low: float, high: float) -> float:
    """Limit of distinct sorted values with masses, and masses without the repeated value, beyond quartiles."""
    nearer, reach = values[:-1], values[:-1] - low
    is_rare = np.sum(mass) - np.cumsum(mass)[:-1] <= RARE * np.sum(mass)
    # A single value can be a code however often it is.
    is_rare[-1] = True
    (places,) = np.nonzero((nearer >= high) & (reach > 0.0) & (np.diff(values) >= FAR * reach) & is_rare)
    if not len(places):
        return np.inf
    kept = np.cumsum(others[: places[0] + 1])
    return float(max(high + FENCE * (high - low), values[np.searchsorted(kept, KEPT * kept[-1])]))


def limits_from_data(data: Any) -> tuple[Limit, ...]:
    """Of a list of lists, as JSON has them; ValueError for anything but limits of different features, in order."""
    rows: list[Any] = data if isinstance(data, list) else [None]
    if all(isinstance(one, list) and [type(value) for value in one] == [int, float, float] for one in rows):
        found = tuple(Limit(*one) for one in rows)
        features = [one.feature for one in found]
        if all(one.feature >= 0 and one.low < one.high for one in found) and features == sorted(set(features)):
            return found
    raise ValueError(f"its limits are not valid: {reprlib.repr(data)}")


def within(X: Any, limits: Sequence[Limit]) -> Any:
    """Rows X (n, d) with all values within limits: X itself if they are; sparse ones become dense if there are any."""
    if not limits:
        return X
    X = dense(X)
    outside = [one for one in limits if np.any((X[:, one.feature] < one.low) | (X[:, one.feature] > one.high))]
    if not outside:
        return X
    X = np.array(X)
    for feature, low, high in outside:
        X[:, feature] = np.clip(X[:, feature], low, high)
    return X


def described(limits: Sequence[Limit], names: Sequence[str], listed: int) -> str:
    """Limits in words, by the features' names, of so many of them."""
    parts = [
        f"{names[j]} "
        + " and ".join(f"{side} {limit:.4g}" for side, limit in (("below", low), ("above", high)) if np.isfinite(limit))
        for j, low, high in limits[:listed]
    ]
    return ", ".join(parts) + (f" and {len(limits) - listed} more" if len(limits) > listed else "")
