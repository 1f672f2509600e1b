"""Fit to training rows in partitions on a cluster: the tasks of a partition, and the sums of their results.

A cluster has to provide ``Partitions.run`` alone. A task gives the same result if it runs again, so a worker may die at
any time. Records are added in the order of the partitions: the bits do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import accumulate, chain
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..rows.batches import BatchSource, Rows, joined
from ..rows.executor import Function, Result, State, Threads, closed_at_end
from ..rows.source import ArraySource, RowSource
from .batches import training_batch
from .draw import keys_from, mean_numbers, most_numbers, of_least_keys, seed_of_keys, whole_numbers
from .far_values import Limit
from .summary import Summary
from .survey import PreparedRows, Streamed, Survey, codes_of


@runtime_checkable
class Partitions(Protocol):
    """Batches (X, y) or (X, y, sample_weight), as for ``GPClassifier.fit_batches``, that need not be in this process.

    Each is as large as the memory of who works on it allows, and may have no rows.
    """

    def __len__(self) -> int: ...

    def run(self, function: Callable[[Any, Any, Any], Any], common: Any, each: Sequence[Any]) -> Iterator[Any]:
        """``function(batch, common, each[i])`` of each partition i, in order, by a module-level, pure function.

        ``common`` and the items of ``each`` can be pickled. What goes wrong in a partition says in which it did: see
        ``in_partition``.
        """


@contextmanager
def in_partition(number: int) -> Iterator[None]:
    """Add a note with the partition's number to an error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"(partition {number} of the rows, counted from 0)")
        raise


def summarized(batch: Any, allowed: np.ndarray | None, each: None) -> Summary | None:
    """Check a partition and count its rows; return None if it has no rows."""
    checked = training_batch(batch, None)
    return None if checked is None else Summary.of(checked, allowed)[0]


class Drawing(NamedTuple):
    """How to find a partition's candidates for the sample: the keys' seed, the classes (C,), and the keys (C,) below
    which a class's rows are candidates."""

    seed: np.ndarray
    classes: np.ndarray
    limits: np.ndarray


def candidates(batch: Any, drawing: Drawing, place: tuple[int, int]) -> tuple[np.ndarray, Rows] | None:
    """Return keys and rows of a partition's candidates for the sample, class numbers as y; None if it has no rows.

    Parameters
    ----------
    place : number of the partition's first row among all, and of its rows
    """
    checked = training_batch(batch, None)
    first, n_rows = place
    _check_same_number(0 if checked is None else len(checked.X), n_rows)
    if checked is None:
        return None
    keys = keys_from(drawing.seed, first).random(n_rows)
    codes = codes_of(checked.y, drawing.classes)
    weight = np.ones(n_rows) if checked.weight is None else checked.weight
    keep = (keys < drawing.limits[codes]) & (weight > 0.0)
    return keys[keep], Rows(checked.X[keep], codes[keep], weight[keep])


def _check_same_number(n_rows: int, before: int) -> None:
    if n_rows != before:
        raise ValueError(
            f"The partition had {before} rows when it was first read, and has {n_rows} now: it must give the same rows "
            "each time it is computed. Where it is made at random, give it a seed, or keep it (persist)."
        )


def survey_partitions(
    partitions: Partitions,
    allowed: np.ndarray | None,
    size: int,
    random_state: np.random.RandomState,
    check_streamed: Callable[[], None],
    read_so_far: Callable[[int], None],
) -> tuple[Survey, Streamed]:
    """Check and count all partitions, then draw the rows to learn from: the rows that ``survey`` would draw.

    Two readings: how many rows of a class are drawn is known once all are counted, and then hardly more than these
    leave their partitions. Parameters as for ``survey``, whose ``classes`` are ``allowed`` here.

    Returns
    -------
    Survey, and what makes ``PartitionedRows``

    Raises
    ------
    ValueError
        For bad rows; a note names the partition.
    """
    found, counts = None, np.zeros((2, len(partitions)), dtype=np.int64)
    with closed_at_end(partitions.run(summarized, allowed, [None] * len(partitions))) as summaries:
        for number, summary in enumerate(summaries):
            if summary is not None:
                counts[:, number] = summary.n_rows, summary.n_given
                first = found or summary
                with in_partition(number):
                    summary.columns.check_same(first.columns, "the first partition that has rows")
                    found = summary if found is None else found + summary
            read_so_far(int(counts[0].sum()))
    if found is None:
        raise ValueError(f"The {len(partitions)} partitions have no rows. Give some that have.")
    is_all = found.n_rows <= size
    if not is_all:
        check_streamed()
    classes, order = found.labels.classes()
    given = found.tally[1]
    limits = np.minimum(1.0, most_numbers(mean_numbers(given, size)) / np.maximum(1, given))[order]
    n_rows, n_given = counts.tolist()
    places = list(zip(accumulate(n_rows, initial=0), n_rows, strict=False))
    drawing = Drawing(seed_of_keys(random_state), classes, limits)
    parts = [part for part in partitions.run(candidates, drawing, places) if part is not None]
    keys, rows = np.concatenate([keys for keys, _ in parts]), joined([rows for _, rows in parts])
    rows = rows._replace(y=order[rows.y])
    keep, _ = of_least_keys(keys, rows, whole_numbers(given, size))
    rows = Rows(*(array[keep] for array in rows))
    surveyed = Survey.of(found, rows, is_all, allowed)

    def stream(factors: np.ndarray | None, labels: np.ndarray, limits: Sequence[Limit]) -> PartitionedRows:
        total_weight = float(np.sum(surveyed.class_totals(factors)))
        return PartitionedRows(partitions, n_rows, n_given, surveyed.rows(factors, labels, limits), total_weight)

    return surveyed, stream


# Number of a partition's first row among those of positive weight, and of all its rows.
Place = tuple[int, int]


class Pass(NamedTuple):
    """One pass over the partitions: how to prepare the rows, a function of a block, and the function's state."""

    prepare: PreparedRows
    function: Function[Any]
    state: State


def prepared(batch: Any, prepare: PreparedRows, place: Place) -> Rows:
    """Return a partition's rows of positive weight with site labels."""
    n_rows, rows = prepare.of(batch)
    _check_same_number(n_rows, place[1])
    return rows


def _blocks(batch: Any, prepare: PreparedRows, place: Place) -> ArraySource:
    # Caches would be lost with the task.
    return ArraySource(*prepared(batch, prepare, place), cache_bytes=0, first=place[0])


def mapped(batch: Any, asked: Pass, place: Place) -> list[Any]:
    """Return the records of a partition's blocks, in order."""
    source = _blocks(batch, asked.prepare, place)
    with Threads(1) as executor:
        return list(executor.map(asked.function, source, asked.state)) if source.n_rows else []


def reduced(batch: Any, asked: Pass, place: Place) -> Any:
    """Return the sum of the records of a partition's blocks, in order; None if it has no rows."""
    source = _blocks(batch, asked.prepare, place)
    with Threads(1) as executor:
        return executor.reduce(asked.function, source, asked.state) if source.n_rows else None


class PartitionedRows(BatchSource):
    """All rows of positive weight of surveyed partitions.

    A ``RowSource``. Read here, its rows come one partition after the other; where ``OverPartitions`` works on it they
    stay where they are, and each partition has blocks of its own.
    """

    def __init__(
        self, partitions: Partitions, n_all: list[int], n_given: list[int], prepare: PreparedRows, total_weight: float
    ):
        """``n_all`` are the rows of each partition, ``n_given`` those of positive weight."""
        self.partitions, self.prepare = partitions, prepare
        self.places: list[Place] = list(zip(accumulate(n_given, initial=0), n_all, strict=False))
        super().__init__(self._rows, sum(n_given), prepare.columns.n_features, total_weight)

    def _rows(self) -> Iterator[Rows]:
        return self.partitions.run(prepared, self.prepare, self.places)

    def answers(self, run: Callable[[Any, Pass, Place], Any], function: Function[Any], state: State) -> Iterator[Any]:
        """Run ``mapped`` or ``reduced`` on each partition; yield the results in order."""
        return self.partitions.run(run, Pass(self.prepare, function, state), self.places)


class OverPartitions(Threads):
    """Threads for rows in memory; for ``PartitionedRows`` a task on each partition works on its blocks."""

    @contextmanager
    def records(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Iterator[Result]]:
        if not isinstance(source, PartitionedRows):
            with super().records(function, source, state) as records:
                yield records
            return
        with closed_at_end(source.answers(mapped, function, state)) as parts:
            yield chain.from_iterable(parts)

    @contextmanager
    def sums(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Iterator[Result]]:
        """Sums of the records of each partition, in order."""
        if not isinstance(source, PartitionedRows):
            with self.records(function, source, state) as records:
                yield records
            return
        with closed_at_end(source.answers(reduced, function, state)) as sums:
            # The first one is added to, and the worker may share it.
            yield (deepcopy(one) for one in sums if one is not None)
