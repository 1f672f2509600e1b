"""Sources of rows: blocks that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from scipy import sparse

from .block import BLOCK_ROWS, Block

# Whitened rows (n, m) are kept between passes with the same kernel and inducing points while they take less than this:
# they are 40 % of a pass. Beyond it memory stays O(n + m^2) and every pass projects again.
CACHE_BYTES = 2**29

# Values of sparse rows that are dense at a time where rows are predicted: 16 MB, many blocks of a hundred features.
DENSE_VALUES = 2**21

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

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> ArraySource | SparseSource:
        """Some rows (r,), by their numbers, in memory; their weights times ``scale``."""

    def pick(self, rows: np.ndarray) -> Picked:
        """Some rows (r,), by their numbers, for one reading: no copy where they are in memory."""


class SparseBlock(Block):
    """Rows of a sparse matrix, made dense anew each time that they are asked for."""

    @property
    def X(self) -> np.ndarray:
        return np.asarray(self._sparse.toarray())

    @X.setter
    def X(self, rows: Any) -> None:
        self._sparse = rows

    def __len__(self) -> int:
        return int(self._sparse.shape[0])

    def __getstate__(self) -> tuple[Any, ...]:
        return self.start, self._sparse, self.y, self.weight, self.cache_bytes


class _InMemory:
    """Rows in memory.

    Parameters
    ----------
    rows : (n, d) float32 or float64, any strides, or CSR
    y : (n,) float64 labels: -1 or +1, or 0, ..., C - 1 for C latent functions; empty to predict
    weight : (n,) float64, positive, or empty for ones
    cache_bytes : int, memory that whitened rows may take
    first : int, number of the first row, where these are a part of the rows
    """

    _kind: type[Block]

    def __init__(
        self,
        rows: Any,
        y: np.ndarray = NONE,
        weight: np.ndarray = NONE,
        cache_bytes: int = CACHE_BYTES,
        first: int = 0,
    ):
        self.rows, self.y, self.weight = rows, y, weight
        self.n_rows, self.n_features = rows.shape
        self.total_weight = float(np.sum(weight)) if len(weight) else float(self.n_rows)
        share = cache_bytes / max(1, self.n_rows)
        parts = [slice(start, min(start + BLOCK_ROWS, self.n_rows)) for start in range(0, self.n_rows, BLOCK_ROWS)]
        self._blocks = [
            self._kind(first + part.start, rows[part], y[part], weight[part], int(share * (part.stop - part.start)))
            for part in parts
        ]

    def blocks(self) -> Sequence[Block]:
        return self._blocks

    def labels(self) -> np.ndarray:
        return self.y

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> Self:
        weight = self.weight[rows] if len(self.weight) else np.ones(len(rows) if scale != 1.0 else 0)
        return type(self)(self.rows[rows], self.y[rows], scale * weight)

    def uncached(self) -> Self:
        """The same rows, without memory for caches of whitened ones."""
        return type(self)(self.rows, self.y, self.weight, 0)


class ArraySource(_InMemory):
    """Rows of an array (n, d)."""

    _kind = Block

    @property
    def X(self) -> Any:
        return self.rows

    def pick(self, rows: np.ndarray) -> Picked:
        return Picked(self.X, self.y, self.weight, rows)

    def reweighted(self, scale: float) -> ArraySource:
        """The same rows, their weights times ``scale``."""
        weight = self.weight if len(self.weight) else np.ones(self.n_rows)
        return ArraySource(self.X, self.y, scale * weight)


class SparseSource(_InMemory):
    """Rows of a sparse matrix, CSR (n, d), dense a block at a time."""

    _kind = SparseBlock

    @property
    def X(self) -> np.ndarray:
        """All rows as a dense array, made anew each time: for a few of them."""
        return dense(self.rows)

    def pick(self, rows: np.ndarray) -> Picked:
        weight = self.weight[rows] if len(self.weight) else self.weight
        return Picked(dense(self.rows[rows]), self.y[rows], weight, np.arange(len(rows)))


def source_of(X: Any, y: np.ndarray = NONE, weight: np.ndarray = NONE) -> ArraySource | SparseSource:
    """Rows in memory, dense or CSR."""
    return (SparseSource if sparse.issparse(X) else ArraySource)(X, y, weight)


def permuted(source: RowSource, size: int, random_state: np.random.RandomState) -> Iterator[Picked]:
    """``size`` rows in memory at a time, without end: one permutation of all of them after the other."""
    order = np.empty(0, np.intp)
    while True:
        while len(order) < size:
            order = np.concatenate([order, random_state.permutation(source.n_rows).astype(np.intp, copy=False)])
        yield source.pick(order[:size])
        order = order[size:]


def dense(rows: Any) -> np.ndarray:
    """Rows, of a sparse matrix perhaps, as an array."""
    return np.asarray(rows.toarray()) if sparse.issparse(rows) else rows


def in_dense_parts(X: Any) -> Iterator[np.ndarray]:
    """Rows (n, d) in order: an array as it is, and of a sparse matrix some whole blocks at a time."""
    n, d = X.shape
    size = max(1, DENSE_VALUES // (BLOCK_ROWS * max(1, d))) * BLOCK_ROWS if sparse.issparse(X) else max(1, n)
    for start in range(0, max(1, n), size):
        yield dense(X[start : start + size])


def labels_and_weights(source: RowSource) -> tuple[np.ndarray, np.ndarray]:
    """Labels and weights (n,) of all rows."""
    blocks = source.blocks()
    weights = [block.weight if len(block.weight) else np.ones(len(block)) for block in blocks]
    return np.concatenate([block.y for block in blocks]), np.concatenate(weights)
