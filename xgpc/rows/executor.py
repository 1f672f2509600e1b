"""Executors apply functions to blocks of rows.

A sum over rows is formed block by block and added in the order of the blocks, whichever thread computed a block, so the
number of threads changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
from joblib import effective_n_jobs

from .._threads import Pool
from .blas import single_threaded_blas
from .block import BLOCK_ROWS, Block
from .clock import Clock
from .source import ArraySource, RowSource

# Arrays in memory are divided into parts of PART_ROWS rows. If these were more than MOST_PARTS, the parts are larger,
# because the result of each part, such as an (m, m) matrix, is kept until all are done.
PART_ROWS, MOST_PARTS, LEAST_ROWS = 512, 64, 32
# The calling thread wakes after GROUP blocks or parts, because waking for each costs some percent. It wakes after fewer
# blocks if these take more than GROUP_WORK multiply-adds a row: a record has at most as many numbers as multiply-adds a
# row, and waiting records take memory.
GROUP, GROUP_WORK = 8, 2**20
# A pass of fewer multiply-adds, half a millisecond, stays on the calling thread: starting others costs as much.
# Two running threads were 1.2 times as fast as one at 1.4e6, and 1.5 to 1.7 times at 1e7.
MIN_PARALLEL_WORK = 5e6


class State(Protocol):
    """The second argument of a block function: it can be pickled, and no function changes it."""

    @property
    def work(self) -> float:
        """Multiply-adds of the function for each row."""


Item = TypeVar("Item")
Result = TypeVar("Result")
Each = Callable[[Callable[[Item], Result], Sequence[Item]], list[Result]]
Function = Callable[[Block, Any], Result]


class Executor(Pool):
    """Applies functions to blocks of rows, or to parts of arrays, with threads that end with the context.

    ``n_jobs`` is as in scikit-learn: None means one unless in a ``joblib.parallel_config`` context, -1 all cores. The
    end of the ``clock`` may end a pass.
    """

    def __init__(self, n_jobs: int | None = None, clock: Clock | None = None):
        super().__init__(max(1, effective_n_jobs(n_jobs)))
        self.clock = clock or Clock()

    def records(self, function: Function[Result], source: RowSource, state: State) -> Generator[Result]:
        """Records of ``function(block, state)`` in the order of the blocks, or sums of consecutive records.

        A source with a method ``sums(function, state)`` yields these itself, from where its rows are.
        """
        if hasattr(source, "sums"):
            yield from source.sums(function, state)
            return
        with closing(closable(source.blocks())) as blocks:
            if self.n_threads == 1 or is_small(source.n_rows, state):
                yield from (function(block, state) for block in blocks)
                return
            group = max(1, min(GROUP, int(GROUP_WORK / state.work)))
            # A task has several blocks if these have little work.
            size = max(1, min(group, int(0.5 * MIN_PARALLEL_WORK / (BLOCK_ROWS * state.work))))

            def apply(task: list[Block]) -> list[Result]:
                return [function(block, state) for block in task]

            tasks = iter(lambda: list(islice(blocks, size)), [])
            # Later passes use the same blocks, so no thread may still work on them when this pass ends.
            with closing(self.in_order(apply, tasks, group // size)) as records:
                for results in records:
                    yield from results

    def reduce(self, function: Function[Result], source: RowSource, state: State) -> Result:
        """Sum of the records, added in the order of the blocks, to the first one in place if that is possible."""
        self.clock.check()
        total: Any
        with single_threaded_blas():
            if isinstance(source, ArraySource) and source.n_rows <= BLOCK_ROWS:
                (block,) = source.blocks()
                total = function(block, state)
            else:
                with closing(self.records(function, source, state)) as records:
                    total = next(records)
                    for record in records:
                        self.clock.check(begins_pass=False)
                        total += record
        return total

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Values of a function at each item, in order; the function may write to arrays."""
        values: list[Result] = []
        self.fold(function, items, values.append)
        return values

    def fold(self, function: Callable[[Item], Result], items: Sequence[Item], use: Callable[[Result], object]) -> None:
        """Call ``use`` in the calling thread with the values of a function at each item, in order."""
        is_alone = self.n_threads == 1 or len(items) < 2
        self.clock.check()
        with single_threaded_blas():
            for value in map(function, items) if is_alone else self.in_order(function, items, GROUP):
                use(value)


def closable(items: Iterable[Item]) -> Generator[Item]:
    """The items; closing this closes their iterator, too, which may have a thread that reads ahead."""
    yield from items


def is_small(n_rows: int, state: State) -> bool:
    """Whether a pass has too little work for several threads."""
    return n_rows * state.work < MIN_PARALLEL_WORK


def parts_of(n_rows: int, size: int = 0) -> list[slice]:
    """Parts of the rows, for ``Executor.each``; or parts of about ``size`` rows."""
    size = size or max(PART_ROWS, -(-n_rows // MOST_PARTS))
    size += -size % 8  # the core works on 8 rows at a time
    starts = range(0, n_rows, size)
    return list(map(slice, starts, [*starts[1:], n_rows]))


def parts_for(n_rows: int, n_classes: int) -> list[slice]:
    """Parts of the rows for ``Executor.fold``, smaller with more classes: their arrays stay in a cache."""
    return parts_of(n_rows, max(LEAST_ROWS, PART_ROWS // n_classes))


def on_threads(n_jobs: int | None) -> Each[Any, Any]:
    """``Executor.each`` with its own threads, which end with each call; a single item needs none."""

    def each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if len(items) < 2:
            return list(map(function, items))
        with Executor(n_jobs) as executor:
            return executor.each(function, items)

    return each


def joined(make: Callable[[slice], np.ndarray], parts: list[slice], n_jobs: int | None, axis: int = 0) -> np.ndarray:
    """Arrays that a function makes of parts of the rows, on threads, one after another along the axis of the rows."""
    with single_threaded_blas():
        return np.concatenate(on_threads(n_jobs)(make, parts or [slice(0, 0)]), axis=axis)
