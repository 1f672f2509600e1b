"""Replace values that are far from all others of a feature: codes for missing values, other units, typing errors."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..rows.blas import single_threaded_blas
from ..rows.source import dense

# Values are far where no row is over a gap of so many times the range of all that is nearer, from the other side's
# quartile on. Codes such as -9999, and 1e6, leave gaps of 17 ranges and more in magic; heavy tails thin out by and by.
# In draws of 3000 rows of 28 public sets one feature of german (12 rows of 1000 have such values), one of page-blocks
# and three of shuttle have limits; NLL without and with these, means of four draws: german .501 and .500, page-blocks
# .110 and .110, shuttle's first class .005 and .005.
FAR = 5.0
# Many values are no code, and are far from the others only if this share of the rows at most have them: what differs
# between more rows may tell.
RARE = 0.05
# A value of so many rows is no part of the spread, which would be zero: quartiles are those of the others.
REPEATED = 0.5
# Of fewer rows none is known to be far from the others: three in a row and one aside are few, not wrong.
LEAST_ROWS = 20
# Rows that are looked at, evenly spread.
LOOKED_AT = 131_072
# Far values are predicted from the other features by a regression on so many rows, evenly spread, with a prior of so
# many rows without any correlation, or of this share of the rows: features may be copies of each other. (-9999 in 1 %
# of the cells, 3000 rows, four draws, NLL above that of the clean rows, with far values at a limit near the others, at
# the mean, and predicted: electricity -.004, .010, .001; waveform .021, .003, .002; cod-rna .024, .036, .016; svmguide1
# .005, .007, .003; magic .019, .011, .005.)
REGRESSION_ROWS, UNCORRELATED_ROWS, LEAST_SHARE = 10_000, 10.0, 1e-8
# Of so many features: fewer tell too little of each other (as above: banana, of two, .010, .027, .027; skin, of three,
# .008, .021, .013), and of more the (d, d) matrices take long.
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

    def filled(self, X: np.ndarray) -> np.ndarray:
        """Return the feature (n,) of rows X (n, d) that all have far values: the mean, or without slopes the limit."""
        values = X[:, self.feature]
        return np.full_like(values, self.mean) if self.slopes else np.clip(values, self.low, self.high)

    def predicted(self, X: np.ndarray) -> np.ndarray:
        """Return the replacements of far values, given rows X (n, d) whose far values are ``filled``."""
        if not self.slopes:
            return X[:, self.feature]
        # Sums along rows in memory do not depend on how many rows there are, as a matrix product's may.
        explained = np.sum(np.ascontiguousarray(X, dtype=np.float64) * self.slopes, axis=1)
        return np.clip(self.intercept + explained, self.low, self.high)


def limits_of(X: np.ndarray, weight: np.ndarray) -> tuple[Limit, ...]:
    """Return limits of the features that have far values in rows X (n, d), with weights (n,) or empty for ones.

    A row of weight w counts as w rows.
    """
    if X.shape[0] < LEAST_ROWS:
        return ()
    chosen = _spread(X, LOOKED_AT)
    X = X[chosen]
    weight = weight[chosen] if len(weight) else np.ones(len(X))
    ends = {j: limits(np.asarray(X[:, j], dtype=np.float64), weight) for j in range(X.shape[1])}
    ends = {j: pair for j, pair in ends.items() if np.any(np.isfinite(pair))}
    if ends and X.shape[1] in FEATURES:
        return _predicting(ends, X, weight)
    return tuple(Limit(j, *pair) for j, pair in ends.items())


def _spread(X: np.ndarray, most: int) -> slice:
    """Return a slice of ``most`` rows or fewer, evenly spread."""
    return slice(None, None, -(-len(X) // most))


def _predicting(ends: dict[int, tuple[float, float]], X: np.ndarray, weight: np.ndarray) -> tuple[Limit, ...]:
    """Return limits of features, given their ends, with linear regressions from rows (n, d) with weights (n,).

    The regressions are conditional means of a normal distribution with the rows' mean and covariance, far values being
    at the mean: -P_jk / P_jj for the precision P.
    """
    chosen = _spread(X, REGRESSION_ROWS)
    X, weight = np.asarray(X[chosen], dtype=np.float64), weight[chosen, None]
    far = np.zeros(X.shape, dtype=bool)
    for j, (low, high) in ends.items():
        far[:, j] = (X[:, j] < low) | (X[:, j] > high)
    mean = np.average(X, axis=0, weights=weight * ~far)
    deviation = np.where(far, 0.0, X - mean)
    scale = np.sqrt(np.average(deviation**2, axis=0, weights=weight[:, 0]))
    # A constant feature tells nothing, though the rounding of the mean may leave it deviations.
    scale[(scale == 0.0) | (np.ptp(deviation, axis=0) == 0.0)] = np.inf
    deviation /= scale
    total = float(np.sum(weight))
    with single_threaded_blas():
        correlation = (weight * deviation).T @ deviation / total
        correlation[np.diag_indices_from(correlation)] += max(UNCORRELATED_ROWS / total, LEAST_SHARE)
        precision = np.linalg.inv(correlation)
    found = []
    for j, pair in ends.items():
        slopes = -precision[j] / precision[j, j] * (scale[j] / scale)
        slopes[j] = 0.0
        intercept = float(mean[j] - np.sum(slopes * mean))
        found.append(Limit(j, *pair, float(mean[j]), intercept, tuple(slopes.tolist())))
    return tuple(found)


def limits(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return the limits of values (n,) with weights (n,); infinite on a side without far values."""
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
    below = _upper(-values[::-1], mass[::-1], -high, -low)
    return -below, _upper(values, mass, low, high)


def _quartile(values: np.ndarray, mass: np.ndarray) -> float:
    """Return the first quartile of distinct sorted values with masses; for negated values it is the last one."""
    return float(values[np.searchsorted(np.cumsum(mass), 0.25 * np.sum(mass))])


def _upper(values: np.ndarray, mass: np.ndarray, low: float, high: float) -> float:
    """Return the upper limit of distinct sorted values with masses, given the quartiles."""
    nearer, reach = values[:-1], values[:-1] - low
    is_rare = np.sum(mass) - np.cumsum(mass)[:-1] <= RARE * np.sum(mass)
    # A single value can be a code however often it is.
    is_rare[-1] = True
    (places,) = np.nonzero((nearer >= high) & (reach > 0.0) & (np.diff(values) >= FAR * reach) & is_rare)
    # Values of other rows may lie somewhat beyond the nearer ones.
    return float(nearer[places[0]] + reach[places[0]]) if len(places) else np.inf


def limits_from_data(data: Any) -> tuple[Limit, ...]:
    """Return the limits in a list of lists, as JSON holds them; raise ValueError unless features are sorted."""
    rows: list[Any] = data if isinstance(data, list) else [None]
    types = [int, float, float, float, float, list]
    if all(isinstance(one, list) and [type(value) for value in one] == types for one in rows):
        found = tuple(Limit._make([*one[:5], tuple(one[5])]) for one in rows)
        features = [one.feature for one in found]
        are_ends = all(one.feature >= 0 and one.low < one.high for one in found)
        numbers = [number for one in found for number in (one.mean, one.intercept, *one.slopes)]
        are_numbers = all(type(number) is float and math.isfinite(number) for number in numbers)
        if are_ends and are_numbers and features == sorted(set(features)):
            return found
    raise ValueError(f"its limits are not valid: {reprlib.repr(data)}")


def within(X: Any, limits: Sequence[Limit]) -> Any:
    """Return rows X (n, d) with all values within limits: X itself if they are. Limits make sparse rows dense."""
    if not limits:
        return X
    X = dense(X)
    far = [(one, rows) for one in limits if len(rows := np.flatnonzero(one.is_far(X)))]
    if not far:
        return X
    X = np.array(X)
    for one, rows in far:
        X[rows, one.feature] = one.filled(X[rows])
    predicted = [one.predicted(X[rows]) for one, rows in far]
    for (one, rows), values in zip(far, predicted, strict=True):
        X[rows, one.feature] = values
    return X


def described(limits: Sequence[Limit], names: Sequence[str], listed: int) -> str:
    """Describe the first ``listed`` limits in words, with the features' names."""
    parts = [
        f"{names[j]} "
        + " and ".join(f"{side} {limit:.4g}" for side, limit in (("below", low), ("above", high)) if np.isfinite(limit))
        for j, low, high, *_ in limits[:listed]
    ]
    return ", ".join(parts) + (f" and {len(limits) - listed} more" if len(limits) > listed else "")
