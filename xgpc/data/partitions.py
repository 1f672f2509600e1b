"""Fit to training rows in partitions on a cluster: the tasks of a partition, and the sums of their results.

A cluster only has to provide ``Partitions``. A task gives the same result if it runs again, so a worker may die at
any time. Records are added in the order of the partitions: the bits do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from copy import deepcopy
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from ..names import MatrixLike
from ..rows.batches import BatchSource, Rows, joined_rows
from ..rows.executor import Executor, Function, State
from ..rows.source import ArraySource
from ..status import noted
from .survey import (
    Streamed,
    Summary,
    Survey,
    numbers_drawn,
    of_least_keys,
    seed_of_keys,
)

Result = TypeVar("Result")


@runtime_checkable
class Partitions(Protocol):
    """Batches of training rows that need not be in this process.

    They are as for ``GPClassifier.fit_batches``, and may have no rows. Functions are pure and at module level: a worker
    that dies changes no result, as another one applies them again. Arguments can be pickled.
    """

    def __len__(self) -> int: ...

    def run(self, function: Callable[..., Result], common: object, each: Sequence[object]) -> Generator[Result]:
        """``function(batch, common, each[i])`` of each partition i, in order; errors name it by ``in_partition``."""


def in_partition(number: int) -> AbstractContextManager[None]:
    """Add a note with the partition's number to an error."""
    return noted(f"(partition {number} of the rows, counted from 0)")


def counted(batch: MatrixLike, allowed: np.ndarray | None, each: None) -> Summary | None:
    """Check a partition and count its rows; return None if it has no rows."""
    return Summary.of(batch, allowed)[0]


def prepared(batch: MatrixLike, surveyed: Survey, n_rows: int) -> tuple[np.ndarray, Rows]:
    """Return which of a partition's rows have a positive weight, and these rows with site labels."""
    keep, rows = surveyed.rows(batch)
    if len(keep) != n_rows:
        raise ValueError(
            f"The partition had {n_rows} rows when it was first read, and has {len(keep)} now: it must give the same "
            "rows each time it is computed. Where it is made at random, give it a seed, or keep it (persist)."
        )
    return keep, rows


def candidates(
    batch: MatrixLike, drawing: tuple[np.ndarray, np.ndarray, Survey], place: tuple[int, int]
) -> tuple[np.ndarray, Rows]:
    """Return keys and rows of a partition's candidates for the sample, with class numbers as y.

    ``drawing`` has the seed of the keys, the keys (C,) below which a class's rows are candidates, and the survey;
    ``place`` the number of the partition's first row, and that of its rows.
    """
    (seed, limits, surveyed), (first, n_rows) = drawing, place
    kept, rows = prepared(batch, surveyed, n_rows)
    # A key takes one step of the generator.
    keys = np.random.Generator(np.random.PCG64(seed).advance(first)).random(n_rows)[kept]
    keep = keys < limits[rows.y.astype(np.intp)]
    return keys[keep], rows.part(keep)


def survey_partitions(
    partitions: Partitions,
    allowed: np.ndarray | None,
    size: Callable[[int], int],
    random_state: np.random.RandomState,
    progress: Callable[[int], None],
) -> tuple[Survey, Rows, Streamed]:
    """Check and count all partitions, then draw the rows to learn from: the rows that ``survey`` would draw.

    This takes two readings: once all rows are counted, the number of rows to draw from each class is known, and hardly
    more than these leave their partitions. Parameters and results as of ``survey``; a note of an error names the
    partition.
    """
    total, n_rows = None, np.zeros(len(partitions), dtype=np.int64)
    with closing(partitions.run(counted, allowed, [None] * len(partitions))) as summaries:
        for number, summary in enumerate(summaries):
            if summary is not None:
                n_rows[number] = np.sum(summary.counts[0])
                with in_partition(number):
                    total = summary if total is None else total + summary
            progress(int(n_rows.sum()))
    if total is None:
        raise ValueError(f"The {len(partitions)} partitions have no rows. Give some that have.")
    surveyed, n_each = Survey.of(total, allowed), total.counts[1]
    n_kept = size(total.columns.n_features)
    limits = np.minimum(1.0, numbers_drawn(n_each, n_kept, is_final=False) / np.maximum(1, n_each))
    drawing = seed_of_keys(random_state), limits[surveyed.order], surveyed
    places = zip((np.cumsum(n_rows) - n_rows).tolist(), n_rows.tolist(), strict=True)
    keys, parts = zip(*partitions.run(candidates, drawing, list(places)), strict=True)
    rows = joined_rows([part for part in parts if len(part.X)])
    keep = of_least_keys(np.concatenate(keys), rows.y, numbers_drawn(n_each, n_kept)[surveyed.order])
    return surveyed, rows.part(keep), partial(PartitionedRows, partitions, n_rows.tolist())


class PartitionedRows(BatchSource):
    """All rows of positive weight of surveyed partitions.

    A ``RowSource``. Read here, its rows come one partition after the other; for sums over them they stay where they
    are, and a task on each partition works on its blocks.
    """

    def __init__(self, partitions: Partitions, rows_of_each: Sequence[int], surveyed: Survey):
        self._partitions, self._rows_of_each, self._surveyed = partitions, rows_of_each, surveyed
        super().__init__(self._rows, *surveyed.sizes)

    def _rows(self) -> Iterator[Rows]:
        return (rows for _, rows in self._partitions.run(prepared, self._surveyed, self._rows_of_each))

    def sums(self, function: Function[Result], state: State) -> Generator[Result]:
        """Yield the sum of the records of each partition's blocks, in order; none for a partition without rows."""
        with closing(self._partitions.run(summed, (function, state, self._surveyed), self._rows_of_each)) as sums:
            # The caller adds to the first sum, which the worker may share, so each is a copy.
            yield from (deepcopy(total) for total in sums if total is not None)


def summed(batch: MatrixLike, work: tuple[Function[Result], State, Survey], n_rows: int) -> Result | None:
    """Return the sum of the records of a partition's blocks, in order; None if it has no rows."""
    function, state, surveyed = work
    # Caches would be lost with the task.
    source = ArraySource(*prepared(batch, surveyed, n_rows)[1], cache_bytes=0)
    return Executor(1).reduce(function, source, state) if source.n_rows else None
