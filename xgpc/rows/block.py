"""A block of rows, and the values that it keeps from earlier passes."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from .._engine import RowCache
from ..names import MatrixLike

Made = TypeVar("Made")
# Rows of a block. Their work is large against the (m, m) addition at the block's end, and the blocks of twenty thousand
# rows still balance over many threads.
BLOCK_ROWS = 1152
# Up to so many blocks are about equal and even in number, so that two threads end a pass at about the same time.
FEW_BLOCKS = 8
# Bytes from which an array has pages of its own; smaller arrays share pages with others, as pages of its own take a
# tenth of the time of a fit of 100 rows.
LEAST_PAGES = 2**18


def block_size(n_rows: int) -> int:
    """Rows of each block of a source but the last."""
    n_blocks = -(-n_rows // BLOCK_ROWS)
    if not 1 < n_blocks <= FEW_BLOCKS:
        return BLOCK_ROWS
    # The core works on 8 rows at a time.
    return 8 * -(-n_rows // (8 * (n_blocks + n_blocks % 2)))


def own_pages(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An array whose memory returns to the system when it ends.

    The C library keeps the memory that thousands of arrays of some 100 kB have freed, for others of such sizes: a
    quarter of a gigabyte after passes over a million rows with the usual number of inducing points.
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < LEAST_PAGES or os.name != "posix":
        return np.empty(shape, dtype)
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape)


def dense(rows: MatrixLike) -> np.ndarray:
    """Dense or sparse rows as an array."""
    return np.asarray(rows.toarray()) if sparse.issparse(rows) else rows


class Cache(dict[str, tuple[object, Any]]):
    """The last value of each kind computed from a block, with a key for its other arguments; caching changes no bit."""

    def at(self, kind: str, key: object) -> Any:
        """The last value of a kind if it has this key, else None."""
        last_key, value = self.get(kind, (None, None))
        return value if last_key == key else None

    def made(self, kind: str, key: object, make: Callable[[], Made]) -> Made:
        """As ``at``; a missing value is made and kept."""
        value = self.at(kind, key)
        if value is None:
            value = make()
            self[kind] = key, value
        return value


class Block:
    """Consecutive rows of a source.

    Parameters
    ----------
    start : int, number of the first row in the source
    matrix, y, weight : rows (rows, d), dense or sparse, labels (rows,) and weights (rows,) of ``ArraySource``
    cache_bytes : int, memory for whitened rows

    Attributes
    ----------
    cache : Cache, the only part that changes; a pickled block has an empty one
    """

    def __init__(self, start: int, matrix: MatrixLike, y: np.ndarray, weight: np.ndarray, cache_bytes: int):
        self.start, self.matrix, self.y, self.weight = start, matrix, y, weight
        self.cache_bytes, self.cache = cache_bytes, Cache()

    def __len__(self) -> int:
        return self.matrix.shape[0]

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "cache": Cache()}

    @property
    def X(self) -> np.ndarray:
        """The rows; those of a sparse matrix become dense on each access."""
        return self.matrix if isinstance(self.matrix, np.ndarray) else dense(self.matrix)

    @property
    def rows(self) -> slice:
        """The block's rows in arrays of all rows of the source."""
        return slice(self.start, self.start + len(self))

    def row_caches(self, key: object, n_groups: int, size: int, dtype: type) -> list[RowCache]:
        """Memory for rows whitened by each kernel of a prior with this key: (size,), or (0,) if that is too much.

        Rows of another prior are overwritten.
        """
        if np.dtype(dtype).itemsize * n_groups * size > self.cache_bytes:
            return list(map(RowCache, np.empty((n_groups, 0), dtype)))
        shape = n_groups, size, dtype

        def empty() -> list[RowCache]:
            return list(map(RowCache, self.cache.made("memory", shape, lambda: own_pages((n_groups, size), dtype))))

        return self.cache.made("whitened rows", (key, shape), empty)
