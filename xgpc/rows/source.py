"""Sources of rows: blocks that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

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
        self._blocks = in_blocks(Block, X, y, weight, cache_bytes, first)

    @property
    def rows(self) -> Any:
        """As they are in memory."""
        return self.X

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


class SparseSource:
    """Rows of a sparse matrix in memory, CSR (n, d), dense a block at a time.

    Parameters as for ``ArraySource``. ``rows`` are as they are in memory, and ``X`` is all of them as a dense array,
    made anew each time: for a few of them.
    """

    def __init__(self, rows: Any, y: np.ndarray = NONE, weight: np.ndarray = NONE, cache_bytes: int = CACHE_BYTES):
        self.rows, self.y, self.weight = rows, y, weight
        self.n_rows, self.n_features = rows.shape
        self.total_weight = float(np.sum(weight)) if len(weight) else float(self.n_rows)
        self._blocks = in_blocks(SparseBlock, rows, y, weight, cache_bytes, 0)

    @property
    def X(self) -> np.ndarray:
        return dense(self.rows)

    def blocks(self) -> Sequence[Block]:
        return self._blocks

    def labels(self) -> np.ndarray:
        return self.y

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> SparseSource:
        weight = self.weight[rows] if len(self.weight) else np.ones(len(rows) if scale != 1.0 else 0)
        return SparseSource(self.rows[rows], self.y[rows], scale * weight)

    def pick(self, rows: np.ndarray) -> Picked:
        weight = self.weight[rows] if len(self.weight) else self.weight
        return Picked(dense(self.rows[rows]), self.y[rows], weight, np.arange(len(rows)))

    def uncached(self) -> SparseSource:
        """The same rows, without memory for caches of whitened ones."""
        return SparseSource(self.rows, self.y, self.weight, 0)


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


def in_blocks(
    kind: type[Block], X: Any, y: np.ndarray, weight: np.ndarray, cache_bytes: int, first: int
) -> list[Block]:
    """Blocks of a class of rows in memory, the first of which has the number ``first``."""
    n = X.shape[0]
    share = cache_bytes / max(1, n)
    parts = [slice(start, min(start + BLOCK_ROWS, n)) for start in range(0, n, BLOCK_ROWS)]
    return [
        kind(first + rows.start, X[rows], y[rows], weight[rows], int(share * (rows.stop - rows.start)))
        for rows in parts
    ]


def labels_and_weights(source: RowSource) -> tuple[np.ndarray, np.ndarray]:
    """Labels and weights (n,) of all rows."""
    blocks = source.blocks()
    weights = [block.weight if len(block.weight) else np.ones(len(block)) for block in blocks]
    return np.concatenate([block.y for block in blocks]), np.concatenate(weights)
