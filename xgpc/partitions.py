"""Training rows in partitions that live elsewhere: what is asked of each, and how the answers become a fit.

All that a cluster has to do is ``Partitions.run``: apply a module-level, pure function to each partition, wherever that
is, and return the results in order. A task that is run again gives the same, so that it may be lost at any time. The
partitions' records are added in their order: the result has the same bits for any number of workers.
``GPClassifier.fit_batches`` takes an object of such a class; ``xgpc.dask`` has one, ``examples/cluster`` has others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from .learning import stages
from .reading import (
    Columns,
    Labels,
    Preparation,
    Streamed,
    Survey,
    check_none_absent,
    check_same_columns,
    codes_of,
    training_batch,
)
from .rows.batches import BatchSource, Rows, joined
from .rows.draw import keys_from, mean_numbers, most_numbers, of_least_keys, seed_of_keys, whole_numbers
from .rows.executor import Function, Result, State, Threads, closed_at_end
from .rows.source import ArraySource, RowSource
from .rows.tails import Limit


@runtime_checkable
class Partitions(Protocol):
    """Batches (X, y) or (X, y, sample_weight), as for ``GPClassifier.fit_batches``, that need not be in this process.

    Each is as large as the memory of who works on it allows, and may have no rows.
    """

    def __len__(self) -> int: ...

    def run(self, function: Callable[[Any, Any, Any], Any], common: Any, each: Sequence[Any]) -> Iterator[Any]:
        """``function(batch, common, each[i])`` of each partition i, in order.

        ``common`` and the items of ``each`` can be pickled. What goes wrong in a partition says in which it did: see
        ``in_partition``.
        """


@contextmanager
def in_partition(number: int) -> Iterator[None]:
    """Errors say in which partition they occurred."""
    try:
        yield
    except Exception as error:
        error.add_note(f"(partition {number} of the rows, counted from 0)")
        raise


@dataclass(frozen=True)
class Counted:
    """What a partition has.

    Attributes
    ----------
    columns : Columns
    dtype : of the features
    n_rows : int
    has_weights : bool
    labels : (k,) the distinct ones, in the order of their first rows
    counts, given : (k,) rows of each, and those of positive weight
    weights : (k,) sums of weights
    """

    columns: Columns
    dtype: np.dtype[Any]
    n_rows: int
    has_weights: bool
    labels: np.ndarray
    counts: np.ndarray
    given: np.ndarray
    weights: np.ndarray


def counted(batch: Any, allowed: np.ndarray | None, each: None) -> Counted | None:
    """Check a partition and count its rows; None of no rows.

    Parameters
    ----------
    allowed : (C,) the labels that there are, or None for any

    Raises
    ------
    ValueError
        For a bad row.
    """
    checked = training_batch(batch, None)
    if checked is None:
        return None
    labels = Labels(allowed)
    codes = labels.numbered(checked.y)
    classes, order = labels.classes()
    weight = np.ones(len(codes)) if checked.weight is None else checked.weight
    return Counted(
        checked.columns,
        checked.X.dtype,
        len(codes),
        checked.weight is not None,
        classes[np.argsort(order)],
        labels.counts,
        np.bincount(codes, weight > 0.0).astype(np.int64),
        np.bincount(codes, weight),
    )


@dataclass(frozen=True)
class Totals:
    """What all partitions have.

    Attributes
    ----------
    columns, dtype : of all
    n_rows, n_given : int for each partition, and of these the rows of positive weight
    has_weights : bool, whether any has
    classes : (C,) labels, sorted
    first_order : (C,) positions of the classes in the order of their first rows
    counts, given : (C,) rows of each class, and those of positive weight
    weights : (C,) sums of weights
    """

    columns: Columns
    dtype: np.dtype[Any]
    n_rows: list[int]
    n_given: list[int]
    has_weights: bool
    classes: np.ndarray
    first_order: np.ndarray
    counts: np.ndarray
    given: np.ndarray
    weights: np.ndarray


def totals(parts: Sequence[Counted | None]) -> Totals:
    """Sum of what the partitions have.

    Raises
    ------
    ValueError
        If there are no rows, or partitions have other columns, or labels of another kind, than those before.
    """
    filled = [(number, part) for number, part in enumerate(parts) if part is not None]
    if not filled:
        raise ValueError(f"The {len(parts)} partitions have no rows. Give some that have.")
    first, labels, codes = filled[0][1], Labels(None), []
    for number, part in filled:
        with in_partition(number):
            check_same_columns(part.columns, first.columns, "the first partition that has rows")
            codes.append(labels.numbered(part.labels))
    classes, order = labels.classes()
    sums = np.zeros((3, len(classes)))
    for places, (_, part) in zip(codes, filled, strict=True):
        sums[:, places] += part.counts, part.given, part.weights
    counts, given, weights = sums[:, order]
    return Totals(
        first.columns,
        np.result_type(np.float32, *[part.dtype for _, part in filled]),
        [0 if part is None else part.n_rows for part in parts],
        [0 if part is None else int(part.given.sum()) for part in parts],
        any(part.has_weights for _, part in filled),
        classes,
        np.argsort(order),
        counts.astype(np.int64),
        given.astype(np.int64),
        weights,
    )


class Drawing(NamedTuple):
    """How a partition's rows that may be in the sample are found: seed of the keys, classes (C,), and keys (C,) below
    which those of each class are, or None for all rows, those of weight 0, too."""

    seed: np.ndarray
    classes: np.ndarray
    limits: np.ndarray | None


def candidates(batch: Any, drawing: Drawing, place: tuple[int, int]) -> tuple[np.ndarray, Rows] | None:
    """Keys and rows of a partition that may be in the sample, with positions in the classes as y; None of no rows.

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
    keep = np.ones(n_rows, dtype=bool)
    if drawing.limits is not None:
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
    random_state: np.random.RandomState,
    check_streamed: Callable[[], None],
    read_so_far: Callable[[int], None],
) -> tuple[Survey, Streamed]:
    """Check and count all partitions, then draw the rows to learn from: the same ones however rows are divided.

    Two readings: how many rows of a class are drawn is known once all are counted, and then hardly more than these
    leave their partitions.

    Parameters
    ----------
    allowed : (C,) the labels that there are, or None for those that turn up
    random_state : its state is read and left as it is
    check_streamed : called if there are more rows than are kept in memory; raises if that cannot be
    read_so_far : told after each partition how many rows were counted

    Returns
    -------
    Survey, and what makes ``PartitionedRows``

    Raises
    ------
    ValueError
        For bad rows; a note names the partition.
    """
    nothing = [None] * len(partitions)
    all_counted: list[Counted | None] = []
    with closed_at_end(partitions.run(counted, allowed, nothing)) as answers:
        for part in answers:
            all_counted.append(part)
            read_so_far(sum(one.n_rows for one in all_counted if one is not None))
    found = totals(all_counted)
    check_none_absent(allowed, found.classes)
    n_rows, size = sum(found.n_rows), stages.LAST_ROWS
    is_all, limits, order = n_rows <= size, None, found.first_order
    if not is_all:
        check_streamed()
        most = most_numbers(mean_numbers(found.given, size))
        limits = np.minimum(1.0, most / np.maximum(1, found.given))
    places = list(zip(accumulate(found.n_rows, initial=0), found.n_rows, strict=False))
    drawing = Drawing(seed_of_keys(random_state), found.classes, limits)
    parts = [part for part in partitions.run(candidates, drawing, places) if part is not None]
    keys, rows = np.concatenate([keys for keys, _ in parts]), joined([rows for _, rows in parts])
    if not is_all:
        numbers = np.zeros_like(found.given)
        numbers[order] = whole_numbers(found.given[order], size)
        keep, _ = of_least_keys(keys, rows, numbers)
        rows = Rows(*(array[keep] for array in rows))
    sample = rows._replace(X=rows.X.astype(found.dtype, copy=False))
    counts = found.classes, found.counts, found.weights
    of_all = Survey(found.columns, found.dtype, n_rows, sum(found.n_given), found.has_weights, *counts, sample, is_all)

    def stream(factors: np.ndarray | None, labels: np.ndarray, limits: Sequence[Limit]) -> PartitionedRows:
        prepare = of_all.preparation(factors, labels, limits)
        return PartitionedRows(partitions, found, prepare, of_all.total_weight(factors))

    return of_all, stream


class Pass(NamedTuple):
    """What is asked of each partition in a pass: how its rows are prepared, a function of a block, and its state."""

    prepare: Preparation
    function: Function[Any]
    state: State


# Number of a partition's first row among those of positive weight, and of all its rows.
Place = tuple[int, int]


def prepared(batch: Any, prepare: Preparation, place: Place) -> Rows:
    """A partition's rows of positive weight, as sites take them."""
    n_rows, rows = prepare.rows_of(batch)
    _check_same_number(n_rows, place[1])
    return rows


def _blocks(batch: Any, prepare: Preparation, place: Place) -> ArraySource:
    # Caches would be lost with the task.
    return ArraySource(*prepared(batch, prepare, place), cache_bytes=0, first=place[0])


def mapped(batch: Any, asked: Pass, place: Place) -> list[Any]:
    """Records of a partition's blocks, in order."""
    source = _blocks(batch, asked.prepare, place)
    with Threads(1) as executor:
        return list(executor.map(asked.function, source, asked.state)) if source.n_rows else []


def reduced(batch: Any, asked: Pass, place: Place) -> Any:
    """Sum of the records of a partition's blocks, in order; None of no rows."""
    source = _blocks(batch, asked.prepare, place)
    with Threads(1) as executor:
        return executor.reduce(asked.function, source, asked.state) if source.n_rows else None


class PartitionedRows(BatchSource):
    """All rows of positive weight of partitions that were surveyed.

    A ``RowSource``. Read here, its rows come one partition after the other; where ``OverPartitions`` works on it they
    stay where they are, and each partition has blocks of its own.

    Parameters
    ----------
    partitions : Partitions
    found : Totals
    prepare : Preparation
    total_weight : float
    """

    def __init__(self, partitions: Partitions, found: Totals, prepare: Preparation, total_weight: float):
        self.partitions, self.prepare = partitions, prepare
        self.places = list(zip(accumulate(found.n_given, initial=0), found.n_rows, strict=False))
        super().__init__(self._rows, sum(found.n_given), found.columns.n_features, total_weight)

    def _rows(self) -> Iterator[Rows]:
        return self.partitions.run(prepared, self.prepare, self.places)

    def answers(self, run: Callable[[Any, Pass, Place], Any], function: Function[Any], state: State) -> Iterator[Any]:
        """What ``mapped`` or ``reduced`` makes of each partition, in order."""
        return self.partitions.run(run, Pass(self.prepare, function, state), self.places)


class OverPartitions(Threads):
    """Threads for rows in memory; of ``PartitionedRows`` each partition's task does its own blocks."""

    def map(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        if not isinstance(source, PartitionedRows):
            yield from super().map(function, source, state)
            return
        with closed_at_end(source.answers(mapped, function, state)) as parts:
            for records in parts:
                yield from records

    def reduce(self, function: Function[Result], source: RowSource, state: State) -> Result:
        """Records of the partitions are added in their order."""
        if not isinstance(source, PartitionedRows):
            return super().reduce(function, source, state)
        total: Any = None
        with closed_at_end(source.answers(reduced, function, state)) as records:
            for record in records:
                if total is None:
                    # It is added to, and may be shared with who made it.
                    total = deepcopy(record)
                elif record is not None:
                    total += record
        return total
