"""Replace values that are far from all others of a feature: codes for missing values, other units, typing errors."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..names import MatrixLike
from ..ranges import varies
from ..rows.blas import single_threaded_blas
from ..rows.source import dense

# Values are far if a gap of so many times the range of all nearer values, from the other side's quartile on, separates
# them. Codes such as -9999 leave gaps of 17 ranges and more, and heavy tails thin out gradually. (Of 28 public data
# sets, five features of three sets have limits; these change NLL by .001 at most.)
FAR = 5.0
# Several values can be far only if at most this share of the rows have them: what differs between more rows may tell.
RARE = 0.05
# A value of so large a share of the rows does not count in the quartiles, which would coincide.
REPEATED = 0.5
# With fewer rows none is known to be far: three in a row and one aside are few, not wrong.
LEAST_ROWS = 20
# Rows that are looked at, and rows of the regression that predicts far values, evenly spread.
LOOKED_AT, REGRESSION_ROWS = 131_072, 10_000
# The regression's prior counts as so many rows without any correlation, or as this share of the rows, because features
# may be copies of each other. (-9999 in 1 % of the cells: NLL above that of the clean rows, with far values at a limit,
# at the mean, and predicted, is .021, .003, .002 on waveform and .019, .011, .005 on magic.)
UNCORRELATED_ROWS, LEAST_SHARE = 10.0, 1e-8
# Fewer features tell too little of each other (banana, of two: .010, .027, .027), and more make large (d, d) matrices.
FEATURES = range(4, 1001)


class Limit(NamedTuple):
    """Limits of one feature: values below ``low`` or above ``high`` are far from all others.

    Without ``slopes`` the limit that they are beyond stands for them. Else ``intercept`` and the inner product of
    ``slopes`` (d,) with the row do, within the limits, where the row's far values are at the ``mean`` of their feature.
    """

    feature: int
    low: float
    high: float
    mean: float = 0.0
    intercept: float = 0.0
    slopes: tuple[float, ...] = ()

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
    found = tuple(one for one in found if one.feature not in heavy or _is_repeated(X[one.is_far(X), one.feature]))
    return _predicting(found, X, weight) if found and X.shape[1] in FEATURES else found


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


def _predicting(found: Sequence[Limit], X: np.ndarray, weight: np.ndarray) -> tuple[Limit, ...]:
    """Add linear regressions from rows (n, d) with weights (n,).

    The regressions are conditional means of a normal distribution with the rows' mean and covariance, far values being
    at the mean: -P_jk / P_jj for the precision P.
    """
    chosen = slice(None, None, -(-len(X) // REGRESSION_ROWS))
    X, weight = np.asarray(X[chosen], dtype=np.float64), weight[chosen, None]
    far = np.zeros(X.shape, dtype=bool)
    for one in found:
        far[:, one.feature] = one.is_far(X)
    mean = np.average(X, axis=0, weights=weight * ~far)
    deviation = np.where(far, 0.0, X - mean)
    scale = np.sqrt(np.average(deviation**2, axis=0, weights=weight[:, 0]))
    # A constant feature tells nothing, though rounding may leave it deviations.
    scale[~varies(mean + np.min(deviation, axis=0), mean + np.max(deviation, axis=0))] = np.inf
    deviation /= scale
    total = float(np.sum(weight))
    with single_threaded_blas():
        correlation = (weight * deviation).T @ deviation / total
        correlation[np.diag_indices_from(correlation)] += max(UNCORRELATED_ROWS / total, LEAST_SHARE)
        precision = np.linalg.inv(correlation)

    def predicting(one: Limit) -> Limit:
        j = one.feature
        slopes = -precision[j] / precision[j, j] * (scale[j] / scale)
        slopes[j] = 0.0
        intercept = float(mean[j] - np.sum(slopes * mean))
        return one._replace(mean=float(mean[j]), intercept=intercept, slopes=tuple(slopes.tolist()))

    return tuple(map(predicting, found))


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
    found = tuple(Limit._make([*one[:5], tuple(one[5])]) for one in data)
    features = [one.feature for one in found]
    numbers = [number for one in found for number in (one.mean, one.intercept, *one.slopes)]
    is_valid = features == sorted(set(features)) and all(type(number) is float for number in numbers)
    is_valid &= all(type(one.feature) is int and one.feature >= 0 and float(one.low) < one.high for one in found)
    if not (is_valid and np.all(np.isfinite(numbers))):
        raise ValueError(f"its limits are not valid: {reprlib.repr(data)}")
    return found


def within(X: MatrixLike, limits: Sequence[Limit]) -> MatrixLike:
    """Return rows X (n, d) with all values within limits: X itself if they are. Limits make sparse rows dense."""
    if not limits:
        return X
    X = dense(X)
    far = [(one, rows) for one in limits if len(rows := np.flatnonzero(one.is_far(X)))]
    if not far:
        return X
    X = np.array(X)
    for one, rows in far:
        X[rows, one.feature] = one.mean if one.slopes else np.clip(X[rows, one.feature], one.low, one.high)
    predicted = [(one, rows) for one, rows in far if one.slopes]
    # Sums along rows in memory do not depend on how many rows there are, as a matrix product's may.
    sums = [np.sum(np.ascontiguousarray(X[rows], dtype=np.float64) * one.slopes, axis=1) for one, rows in predicted]
    for (one, rows), explained in zip(predicted, sums, strict=True):
        X[rows, one.feature] = np.clip(one.intercept + explained, one.low, one.high)
    return X


def within_vjp(X: np.ndarray, limits: Sequence[Limit], gradient: np.ndarray) -> np.ndarray:
    """Return gradients (..., n, d) by rows X (n, d), from those by the rows that ``within`` makes of them.

    A far value has no influence, and others have one on what stands for it, unless that is at a limit.
    """
    found, is_far, inside = np.array(gradient), np.zeros(X.shape, dtype=bool), within(X, limits)
    for one in limits:
        is_far[:, one.feature] = one.is_far(X)
        found[..., is_far[:, one.feature], one.feature] = 0.0
    for one in limits:
        j = one.feature
        moves = is_far[:, j] & (inside[:, j] > one.low) & (inside[:, j] < one.high)
        if one.slopes and np.any(moves):
            found[..., moves, :] += gradient[..., moves, j, None] * np.where(is_far[moves], 0.0, one.slopes)
    return found


def described(limits: Sequence[Limit], names: Sequence[str], listed: int) -> str:
    """Describe the first ``listed`` limits in words, with the features' names."""
    parts = [
        f"{names[j]} "
        + " and ".join(f"{side} {limit:.4g}" for side, limit in (("below", low), ("above", high)) if np.isfinite(limit))
        for j, low, high, *_ in limits[:listed]
    ]
    return ", ".join(parts) + (f" and {len(limits) - listed} more" if len(limits) > listed else "")
