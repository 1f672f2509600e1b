"""Rows with equal features and labels: one row with the sum of their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .source import ArraySource, labels_and_weights

# Rows whose hashes are made at a time: their bits stay in cache.
HASHED_ROWS = 2048

# Precisions and linear terms (C, n) of rows.
Sites = tuple[np.ndarray, np.ndarray]


def taken(pair: Sites, rows: np.ndarray) -> Sites:
    """Sites, or other pairs of arrays (C, n), of some rows."""
    return np.take(pair[0], rows, axis=1), np.take(pair[1], rows, axis=1)


@dataclass(frozen=True)
class Distinct:
    """The distinct rows among given rows.

    A row of weight w counts as w rows: for inducing points, copies of a row are as good as one row with the sum of
    their weights, but as neighbours they would take several of the k places.

    Rows are merged after held-out rows were drawn, not before. Where rows to predict repeat training rows, held-out
    rows do so too, so neighbours are judged as they will be used. (In wine's training rows 782 of 4409 repeat others,
    and 31 % of its test rows repeat one of them. Merged before the draw NLL was 1.05, merged after it .79.)

    Attributes
    ----------
    source : ArraySource with r rows, the first of each in their order
    place : (n,) number of the distinct row that each given row equals
    share : (n,) share of each given row in the weight of its distinct row
    """

    source: ArraySource
    place: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, given: ArraySource) -> Distinct:
        """Merge equal rows in O(n (d + log n)) time: 2 ms for 10 000 rows of 20 features, .15 s for 500 000 of 28."""
        first = first_of_each(given.X, given.y)
        kept = np.flatnonzero(first == np.arange(given.n_rows))
        if len(kept) == given.n_rows:
            return cls(given, kept, np.ones(given.n_rows))
        place = np.searchsorted(kept, first)
        _, weight = labels_and_weights(given)
        sums = np.bincount(place, weight)
        return cls(ArraySource(given.X[kept], given.y[kept], sums), place, weight / sums[place])

    def sums(self, sites: Sites) -> Sites:
        """Return sites (C, r) of the distinct rows, given those (C, n) of the given rows."""
        if len(self.place) == self.source.n_rows:
            return np.ascontiguousarray(sites[0]), np.ascontiguousarray(sites[1])
        precision, linear = (np.stack([np.bincount(self.place, one) for one in part]) for part in sites)
        return precision, linear

    def parts(self, sites: Sites) -> Sites:
        """Return sites (C, n) of the given rows, which share those (C, r) of the distinct rows."""
        return self.share * sites[0][:, self.place], self.share * sites[1][:, self.place]


def first_of_each(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return, for each row of X (n, d) with whole numbers y (n,), the number (n,) of the first equal row.

    ``np.unique`` of whole rows gives the same, and takes 30 times as long.
    """
    _, starts, inverse = np.unique(_hashes(X, y), return_index=True, return_inverse=True)
    first = starts[inverse]
    # Of a million rows that all differ, two have the same key with a probability below 1e-6; such a row stays apart.
    (later,) = np.nonzero(first != np.arange(len(first)))
    differ = (y[later] != y[first[later]]) | np.any(X[later] != X[first[later]], axis=1)
    first[later[differ]] = later[differ]
    return first


def _hashes(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return keys (n,) that are the same for equal rows, also if one has -0.0 where another has 0.0."""
    bits = np.dtype(f"u{X.dtype.itemsize}")
    # Sums of products with random odd numbers.
    factors = np.random.default_rng(0).integers(0, 2**63, X.shape[1] + 1, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    keys = y.astype(np.int64).astype(np.uint64) * factors[-1]
    for start in range(0, len(X), HASHED_ROWS):
        part = slice(start, start + HASHED_ROWS)
        # A sum with 0.0 is never -0.0.
        mixed = np.ascontiguousarray(X[part] + X.dtype.type(0.0)).view(bits).astype(np.uint64)
        # Low bits of numbers of few digits are zero, and so would those of products and sums be: high bits go there.
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        keys[part] += mixed @ factors[:-1]
    return keys
