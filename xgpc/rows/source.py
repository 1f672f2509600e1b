"""Sources of rows: blocks that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .block import BLOCK_ROWS, Block

# Whitened rows (n, m) are kept between passes with the same kernel and inducing points while they take less than this:
# they are 40 % of a pass. Beyond it memory stays O(n + m^2) and every pass projects again.
CACHE_BYTES = 2**29

NONE = np.empty(0)


class Picked(NamedTuple):
    """Rows in memory: numbers (r,) of rows of X (n, d), with labels (n,) and weights (n,), or empty for ones."""

    X: Any
    y: np.ndarray
    weight: np.ndarray
    rows: np.ndarray


class Blocks(Protocol):
    """Blocks that come one after the other, and need not all be in memory."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Block]: ...


class RowSource(Protocol):
    """Training rows, wherever they are.

    Attributes
    ----------
    n_rows, n_features : int
    total_weight : float, sum of the rows' weights
    """

    n_rows: int
    n_features: int
    total_weight: float

    def blocks(self) -> Blocks:
        """All rows in blocks, the same ones in the same order each time."""

    def labels(self) -> np.ndarray:
        """Labels (n,) of all rows: what subsets are drawn by."""

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> ArraySource:
        """Some rows (r,), by their numbers, in memory; their weights times ``scale``."""

    def pick(self, rows: np.ndarray) -> Picked:
        """Some rows (r,), by their numbers, for one reading: no copy where they are in memory."""


class ArraySource:
    """Rows in memory.

    Parameters
    ----------
    X : (n, d) float32 or float64, any strides, or CSR
    y : (n,) float64 labels: -1 or +1, or 0, ..., C - 1 for C latent functions; empty to predict
    weight : (n,) float64, positive, or empty for ones
    cache_bytes : int, memory that whitened rows may take
    first : int, number of the first row, where these are a part of the rows
    """

    def __init__(
        self,
        X: Any,
        y: np.ndarray = NONE,
        weight: np.ndarray = NONE,
        cache_bytes: int = CACHE_BYTES,
        first: int = 0,
    ):
        self.X, self.y, self.weight = X, y, weight
        self.n_rows, self.n_features = X.shape
        self.total_weight = float(np.sum(weight)) if len(weight) else float(self.n_rows)
        share = cache_bytes / max(1, self.n_rows)
        starts = range(0, self.n_rows, BLOCK_ROWS)
        parts = [slice(start, min(start + BLOCK_ROWS, self.n_rows)) for start in starts]
        self._blocks = [
            Block(first + rows.start, X[rows], y[rows], weight[rows], int(share * (rows.stop - rows.start)))
            for rows in parts
        ]

    def blocks(self) -> Sequence[Block]:
        return self._blocks

    def labels(self) -> np.ndarray:
        return self.y

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> ArraySource:
        weight = self.weight[rows] if len(self.weight) else np.ones(len(rows) if scale != 1.0 else 0)
        return ArraySource(self.X[rows], self.y[rows], scale * weight)

    def pick(self, rows: np.ndarray) -> Picked:
        return Picked(self.X, self.y, self.weight, rows)

    def reweighted(self, scale: float) -> ArraySource:
        """The same rows, their weights times ``scale``."""
        weight = self.weight if len(self.weight) else np.ones(self.n_rows)
        return ArraySource(self.X, self.y, scale * weight)

    def uncached(self) -> ArraySource:
        """The same rows, without memory for caches of whitened ones."""
        return ArraySource(self.X, self.y, self.weight, 0)


def labels_and_weights(source: RowSource) -> tuple[np.ndarray, np.ndarray]:
    """Labels and weights (n,) of all rows."""
    blocks = source.blocks()
    weights = [block.weight if len(block.weight) else np.ones(len(block)) for block in blocks]
    return np.concatenate([block.y for block in blocks]), np.concatenate(weights)
