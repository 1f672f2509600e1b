"""Means and scales of features, from all rows or a sample of them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..kernels.features import Groups
from ..ranges import varies
from ..rows.block import Block
from ..rows.executor import Executor
from ..rows.source import ArraySource, RowSource
from .tails import limits_of, within


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
        self._groups, self._dtype = groups, part.X.dtype

    @cached_property
    def within_limits(self) -> np.ndarray:
        return within(self.rows, limits_of(self.rows, self.counts))

    @cached_property
    def mean(self) -> np.ndarray:
        return np.average(self.within_limits, axis=0, weights=self.counts)

    @cached_property
    def scale(self) -> np.ndarray:
        groups, scale = self._groups, scale_of(self.within_limits, self.counts)
        # In the precision of the data, in which a feature may vary by rounding alone.
        low, high = (end(self.rows, axis=0).astype(self._dtype) for end in (np.min, np.max))
        is_varying = varies(low, high)
        scale = np.where(is_varying, scale, scale_of_rounding(low, high))
        two_valued = is_varying & np.all((self.rows == low) | (self.rows == high), axis=0)
        scale = np.where(two_valued, 0.5 * (high - low), scale)
        if groups is None:
            return scale
        n_levels = np.maximum(np.bincount(groups.index, low < high), 1.0)[groups.index]
        level_scale = np.where(n_levels > 1.0, np.sqrt(0.5 - 0.5 / n_levels), 1.0)
        return np.where(groups.are_shared, level_scale, scale)


def scale_of(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weighted standard deviation (d,) of rows (r, d); a constant feature has ``scale_of_rounding``."""
    deviation = rows - np.average(rows, axis=0, weights=counts)
    # Dividing by the largest deviation before squaring avoids overflow and underflow.
    largest = np.max(np.abs(deviation), axis=0)
    low, high = np.min(rows, axis=0), np.max(rows, axis=0)
    is_varying = varies(low, high)
    relative = np.divide(deviation, largest, out=np.zeros_like(deviation), where=is_varying)
    scale = largest * np.sqrt(np.average(relative**2, axis=0, weights=counts))
    return np.where(is_varying, scale, scale_of_rounding(low, high))


def scale_of_rounding(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The scale (d,) of constant features, from least and largest values: 1, and a million of their differences."""
    return np.maximum(1.0, 1e6 * (high.astype(np.float64) - low))


def mean_and_spread(source: ArraySource, executor: Executor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation (d,) of all rows, and whether a feature (d,) differs by rounding alone.

    Constant features have deviation 0, also where they differ by rounding.
    """
    ends = executor.each(lambda block: (np.min(block.X, axis=0), np.max(block.X, axis=0)), source.blocks())
    lows, highs = zip(*ends, strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    is_varying = varies(low, high)
    # Squares of small differences would lose digits, or be 0. A power of two rounds nothing.
    _, exponent = np.frexp(np.subtract(high, low, dtype=np.float64))
    unit = np.where(is_varying, np.ldexp(1.0, exponent), 1.0)
    # Sums of deviations from one of the rows: their squares lose at most n eps, and those of constant features are 0.
    first = np.asarray(source.sample(np.arange(1)).X[0], dtype=np.float64)

    def sums(block: Block) -> tuple[np.ndarray, np.ndarray]:
        deviation = block.X - first
        deviation /= unit
        return block.weight @ deviation, block.weight @ np.square(deviation, out=deviation)

    of_blocks = zip(*executor.each(sums, source.blocks()), strict=True)
    shift, square = (sum(part, np.zeros(len(first))) / source.total_weight for part in of_blocks)
    spread = np.where(is_varying, unit * np.sqrt(np.maximum(square - shift**2, 0.0)), 0.0)
    return first + unit * shift, spread, (low < high) & ~is_varying
