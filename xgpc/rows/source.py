"""Sources of rows: blocks that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from ..names import MatrixLike
from .block import BLOCK_ROWS, Block, Cache, block_size, dense

# Memory for whitened rows (n, m), which passes with the same kernel and inducing points share: computing them is 40 %
# of a pass. If they need more, every pass computes them again, and memory stays O(n + m^2).
CACHE_BYTES = 2**29
# Values of sparse rows that predictions make dense at a time, 16 MB: many blocks of a hundred features.
DENSE_VALUES = 2**21
NONE = np.empty(0)


class RowSource(Protocol):
    """Training rows.

    If the rows are elsewhere, a source may also have a method ``sums(function, state)``, which yields sums of
    ``function(block, state)`` in order; an executor then uses it in place of the blocks.

    Attributes
    ----------
    n_rows, n_features : int
    total_weight : float, sum of the rows' weights
    """

    n_rows: int
    n_features: int
    total_weight: float

    def blocks(self) -> Iterable[Block]:
        """All rows in blocks, each time the same ones in the same order; they need not all be in memory."""

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> ArraySource:
        """Rows in memory by their numbers (r,), with weights times ``scale``."""


class ArraySource:
    """Rows in memory.

    Parameters
    ----------
    rows : (n, d) float32 or float64, any strides, or CSR; ``X`` has these as a dense array
    y : (n,) float64 labels: -1 or +1, or 0, ..., C - 1 for C latent functions; empty to predict
    weight : (n,) float64, positive; empty means ones, which the attribute has
    cache_bytes : int, memory for whitened rows
    """

    def __init__(
        self, rows: MatrixLike, y: np.ndarray = NONE, weight: np.ndarray = NONE, cache_bytes: int = CACHE_BYTES
    ):
        self.n_rows, self.n_features = rows.shape
        self.rows, self.y, self.weight = rows, y, weight if len(weight) else np.ones(self.n_rows)
        self.total_weight = float(np.sum(self.weight))
        share, size, self._blocks = cache_bytes / max(1, self.n_rows), block_size(self.n_rows), []
        for start in range(0, self.n_rows, size):
            end = min(start + size, self.n_rows)
            arrays = rows[start:end], y[start:end], self.weight[start:end]
            self._blocks.append(Block(start, *arrays, int(share * (end - start))))

    @property
    def X(self) -> np.ndarray:
        return dense(self.rows)

    def blocks(self) -> list[Block]:
        return self._blocks

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> ArraySource:
        return ArraySource(self.rows[rows], self.y[rows], scale * self.weight[rows])

    def forget(self) -> None:
        """Free the memory of whitened rows; passes to come compute them again."""
        for block in self._blocks:
            block.cache = Cache()


def permuted(source: RowSource, size: int, random_state: np.random.RandomState) -> Iterator[ArraySource]:
    """``size`` rows at a time without end, from one permutation of all rows after the other."""
    order = np.empty(0, np.intp)
    while True:
        while len(order) < size:
            order = np.concatenate([order, random_state.permutation(source.n_rows).astype(np.intp, copy=False)])
        yield source.sample(order[:size])
        order = order[size:]


def is_mapped(X: MatrixLike) -> bool:
    """Whether an array is a memory map, or a part of one: a copy may not fit into memory."""
    base: object = X
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    return isinstance(X, np.ndarray) and base is not None


def in_dense_parts(X: MatrixLike) -> Iterator[np.ndarray]:
    """Rows (n, d) of a sparse matrix in order, some whole blocks at a time."""
    n, d = X.shape
    size = max(1, DENSE_VALUES // (BLOCK_ROWS * max(1, d))) * BLOCK_ROWS
    for start in range(0, max(1, n), size):
        yield dense(X[start : start + size])
