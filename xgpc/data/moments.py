"""Means and scales of features, from all rows or a sample of them."""

from __future__ import annotations

import numpy as np

from ..kernels.features import Groups
from ..ranges import varies
from ..rows.source import RowSource
from .tails import limits_of, within

# Squares of differences below SMALL lose digits, or are 0; times UNIT, a power of two, they are not.
SMALL, UNIT = 1e-140, 2.0**600


class Sample:
    """Distinct rows of a random sample of the data; a row of weight w counts as w rows.

    Attributes
    ----------
    rows : (r, d) float64, distinct, sorted
    counts : (r,) float64
    within_limits : (r, d) float64, the rows with values far from all others moved to the limits
    mean, scale : (d,) float64, mean and standard deviation of ``within_limits``
        The scale is 1 or more for a constant feature, and half the difference for a feature of two values, because the
        deviation would put a rare value very far away. The levels of a column count as equally frequent.
    """

    def __init__(self, source: RowSource, size: int, random_state: np.random.RandomState, groups: Groups | None = None):
        n = source.n_rows
        part = source.sample(np.arange(n) if n <= size else random_state.choice(n, size, replace=False))
        self.rows, inverse = np.unique(np.asarray(part.X, dtype=np.float64), axis=0, return_inverse=True)
        self.counts = np.bincount(inverse.ravel(), part.weight)
        self.within_limits = within(self.rows, limits_of(self.rows, self.counts))
        self.mean, self.scale = mean_and_scale(self.within_limits, self.counts)
        low, high = np.min(part.X, axis=0), np.max(part.X, axis=0)
        is_varying = varies(low, high)
        self.scale[~is_varying] = scale_of_rounding(low, high)[~is_varying]
        two_valued = is_varying & np.all((self.rows == low) | (self.rows == high), axis=0)
        self.scale[two_valued] = 0.5 * (high - low)[two_valued]
        if groups is not None:
            n_levels = np.maximum(groups.sums(low < high), 1.0)[groups.index]
            level_scale = np.where(n_levels > 1.0, np.sqrt(0.5 - 0.5 / n_levels), 1.0)
            self.scale = np.where(groups.are_shared, level_scale, self.scale)


def mean_and_scale(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation (d,) of rows (r, d); a constant feature has ``scale_of_rounding``."""
    mean = np.average(rows, axis=0, weights=counts)
    deviation = rows - mean
    # Dividing by the largest deviation before squaring avoids overflow and underflow.
    largest = np.max(np.abs(deviation), axis=0)
    low, high = np.min(rows, axis=0), np.max(rows, axis=0)
    is_varying = varies(low, high)
    relative = np.divide(deviation, largest, out=np.zeros_like(deviation), where=is_varying)
    scale = largest * np.sqrt(np.average(relative**2, axis=0, weights=counts))
    return mean, np.where(is_varying, scale, scale_of_rounding(low, high))


def scale_of_rounding(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The scale (d,) of constant features, from least and largest values: 1, and a million of their differences."""
    return np.maximum(1.0, 1e6 * (high.astype(np.float64) - low))


def mean_and_spread(source: RowSource) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation (d,) of all rows, and whether a feature (d,) differs by rounding alone.

    Constant features have deviation 0, also where they differ by rounding.
    """
    # Sums of deviations from one of the rows: their squares lose at most n eps, and those of constant features are 0.
    low = high = source.sample(np.arange(1)).X[0]
    first, sums = np.asarray(low, dtype=np.float64), np.zeros((2, source.n_features))
    for block in source.blocks():
        low, high = np.minimum(low, np.min(block.X, axis=0)), np.maximum(high, np.max(block.X, axis=0))
        deviation = block.X - first
        sums += [block.weight @ deviation, block.weight @ np.square(deviation, out=deviation)]
        del deviation  # Not there beside that of the next block.
    shift, square = sums / source.total_weight
    is_varying = varies(low, high)
    spread = np.where(is_varying, np.sqrt(np.maximum(square - shift**2, 0.0)), 0.0)
    is_small = is_varying & (high - low < SMALL)
    if np.any(is_small):
        part = first[is_small]
        squares = sum(b.weight @ np.square(UNIT * (b.X[:, is_small] - part)) for b in source.blocks())
        variance = squares / source.total_weight - np.square(UNIT * shift[is_small])
        spread[is_small] = np.sqrt(np.maximum(variance, 0.0)) / UNIT
    return first + shift, spread, (low < high) & ~is_varying
