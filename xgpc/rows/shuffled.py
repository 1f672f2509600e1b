"""Rows in random order, some at a time, for as long as they are asked for."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from .batches import Rows, joined
from .executor import closed_at_end
from .source import NONE, Picked, RowSource


def permuted(source: RowSource, size: int, random_state: np.random.RandomState) -> Generator[Picked]:
    """``size`` rows in memory at a time: one permutation of all of them after the other."""
    order = np.empty(0, np.intp)
    while True:
        while len(order) < size:
            order = np.concatenate([order, random_state.permutation(source.n_rows).astype(np.intp, copy=False)])
        yield source.pick(order[:size])
        order = order[size:]


def pooled(pool: RowSource, stream: RowSource, size: int, random_state: np.random.RandomState) -> Generator[Picked]:
    """``size`` rows at a time of a stream that is read again and again, shuffled by a pool in memory.

    Each block of the stream changes places with as many rows of the pool, which leave it in random order. The pool
    begins as a random sample of the stream, so that the first rows are a sample, too, in whichever order the stream
    comes; later ones are from its last ``len(pool)`` rows.
    """
    n = pool.n_rows
    X, y, weight, _ = pool.pick(np.arange(n))
    X, y, weight = X.copy(), y.copy(), weight.copy()
    order, waiting, n_waiting = random_state.permutation(n), list[Rows](), 0
    while True:
        with closed_at_end(iter(stream.blocks())) as blocks:
            for block in blocks:
                for first in range(0, len(block), n):
                    rows = slice(first, min(first + n, len(block)))
                    if len(order) < rows.stop - first:
                        order = random_state.permutation(n)
                    places, order = np.split(order, [rows.stop - first])
                    waiting.append(Rows(X[places], y[places], weight[places] if len(weight) else NONE))
                    X[places], y[places] = block.X[rows], block.y[rows]
                    if len(weight):
                        weight[places] = block.weight[rows]
                    n_waiting += len(places)
                if n_waiting >= size:
                    found = joined(waiting)
                    for first in range(0, n_waiting - size + 1, size):
                        yield Picked(*found, np.arange(first, first + size))
                    rest = slice(n_waiting - n_waiting % size, n_waiting)
                    waiting, n_waiting = [found.part(rest)], n_waiting % size
