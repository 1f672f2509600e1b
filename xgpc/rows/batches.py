"""Rows in batches that can be read again: read ahead by a thread, and cut into blocks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

import numpy as np

from .._threads import Pool
from .block import Block, block_size
from .source import ArraySource

T = TypeVar("T")


class Rows(NamedTuple):
    """Consecutive rows: X (r, d), labels y (r,), and weights (r,)."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def part(self, rows: slice | np.ndarray) -> Rows:
        return Rows(self.X[rows], self.y[rows], self.weight[rows])


def read_ahead(begin: Callable[[], Iterator[T]]) -> Generator[T]:
    """Yield the items of an iterator in order; while one is in use, a thread makes the next.

    That thread begins, uses and closes the iterator, and ends with this generator. Its errors are raised here.
    """
    end = object()
    with Pool(1) as thread:
        iterator = thread.submit(begin).result()
        try:
            pending = thread.submit(next, iterator, end)
            while (item := pending.result()) is not end:
                pending = thread.submit(next, iterator, end)
                yield item
                del item
        finally:
            if hasattr(iterator, "close"):
                thread.submit(iterator.close).result()


def in_blocks(batches: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Cut batches of any sizes into blocks of ``size`` rows, in order; the last block may have fewer."""
    parts, missing = list[Rows](), size
    for rows in batches:
        start = 0
        while len(rows.X) - start >= missing:
            yield joined_rows([*parts, rows.part(slice(start, start + missing))])
            start += missing
            parts, missing = [], size
        if start < len(rows.X):
            # A view would keep the whole batch in memory.
            parts.append(Rows(*(array[start:].copy() for array in rows)))
            missing -= len(rows.X) - start
    if parts:
        yield joined_rows(parts)


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows."""
    return parts[0] if len(parts) == 1 else Rows(*map(np.concatenate, zip(*parts, strict=True)))


class BatchSource:
    """A ``RowSource`` that is read anew in every pass.

    It takes memory for two batches and the blocks at work, and keeps no caches.

    Parameters
    ----------
    read : function that reads all rows from the first one, in batches of any sizes
    n_rows, n_features : int
    total_weight : float
    """

    def __init__(self, read: Callable[[], Iterator[Rows]], n_rows: int, n_features: int, total_weight: float):
        self.read, self.n_rows, self.n_features, self.total_weight = read, n_rows, n_features, total_weight

    def blocks(self) -> Iterator[Block]:
        start = 0
        with closing(read_ahead(self.read)) as batches:
            for rows in in_blocks(batches, block_size(self.n_rows)):
                yield Block(start, *rows, cache_bytes=0)
                start += len(rows.X)

    def sample(self, rows: np.ndarray, scale: float = 1.0) -> ArraySource:
        numbers, order = np.unique(rows, return_inverse=True)
        parts = []
        for block in self.blocks():
            first, end = np.searchsorted(numbers, [block.start, block.start + len(block)])
            parts.append(Rows(block.X, block.y, block.weight).part(numbers[first:end] - block.start))
        return ArraySource(*joined_rows(parts)).sample(order, scale)
