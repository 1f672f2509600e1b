"""Read rows in batches that need not fit into memory: once to count and draw, then again in each pass."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from scipy.sparse import issparse

from ..names import MatrixLike
from ..ranges import BadRow
from ..rows.batches import BatchSource, Rows, in_blocks, joined_rows, read_ahead
from ..rows.block import BLOCK_ROWS
from ..rows.coinciding import by_first_row
from ..rows.columnar import ArrowRows, NumpyRows
from ..rows.executor import closable
from ..rows.source import NONE, RowSource
from .checks import check_classes_present, class_numbers, kind_of, refuse_rounded
from .table import Level, orders_of
from .training import Columns, training_batch

T = TypeVar("T")
# Makes the source of all rows of positive weight, with the site labels and the columns' encoding of the survey.
Streamed = Callable[["Survey"], RowSource]
AllRows = tuple["Survey", Streamed]

HOW_TO_READ_AGAIN = (
    "A fit reads the rows many times. Give a function that returns a new iterator each time it is called, such as "
    "lambda: batches_of('rows.csv'), a list of batches, an object whose __iter__ begins anew, or one of "
    "xgpc.rows.from_parquet, from_arrow and from_npy"
)
# Rows of a class are kept while they can still be among the rows of least keys that make the final sample. Their number
# among the rows read so far is hypergeometric: less than one of 1e14 draws exceeds its mean by MARGIN_ERRORS standard
# deviations and MARGIN, which is for means near 0.
MARGIN_ERRORS, MARGIN = 8.0, 32
# Rows that cannot be drawn any more are dropped each time that the rows in memory have grown by this factor.
ROOM = 1.5


def reading(source: object, check: Callable[[MatrixLike], T], many_times: bool = True) -> Callable[[], Generator[T]]:
    """Return a function that reads a source from the beginning at each call, and yields ``check(batch)`` of each batch.

    Parameters
    ----------
    source : a function without arguments that returns an iterator, an iterable, or an object with ``__len__`` and
        ``__getitem__``
    check : a note of each of its errors names the batch, counted from 0, and the file, if the source's iterator has a
        ``place``: the name of the last batch's file and the number of its first row there, or None for no note
    many_times : whether it must be possible to read the source more than once

    Raises
    ------
    ValueError
        If it is no such source, or an iterator, which can be read only once, where that is not enough.
    """
    first, kind = _iterator(source), type(source).__name__
    if first is None and not callable(source):
        in_memory = "Of rows in memory make a list of one batch, [X], or call predict_proba"
        advice = HOW_TO_READ_AGAIN if many_times else in_memory
        raise ValueError(f"A source of batches must be a function or an iterable; got a {kind}. {advice}.")
    if many_times and first is source:
        raise ValueError(f"The source is a {kind}, which can be read only once. {HOW_TO_READ_AGAIN}.")
    # Another source may fill the memory of one batch with the next, which is read while the first is in use.
    is_kept = isinstance(source, list | tuple | ArrowRows | NumpyRows)

    def read() -> Generator[T]:
        begun = source() if first is None and callable(source) else source
        batches, number = _iterator(begun), 0
        if batches is None:
            kind = type(begun).__name__
            raise ValueError(f"The source's function must return an iterator of batches; it returned a {kind}.")
        with closing(closable(batches)) as items:
            try:
                for batch in items:
                    yield check(batch if is_kept else deepcopy(batch))
                    # The last batch is released before the next one is read.
                    del batch
                    number += 1
            except Exception as error:
                place = getattr(batches, "place", (None, 0))
                name, row = place or (None, 0)
                rows = f"rows from {row} on"
                if isinstance(error, BadRow):
                    error.row += row
                    rows = f"row {error.row}"
                where = "" if name is None else f"{rows} of {name!r}, "
                if place is not None:
                    error.add_note(f"({where}batch {number} of the source, counted from 0)")
                raise

    return read


def _iterator(source: object) -> Iterator[object] | None:
    """Return an iterator over a source; None if there is none, or if the items are no batches (tables and arrays)."""
    if isinstance(source, str | bytes | dict) or hasattr(source, "columns") or hasattr(source, "shape"):
        return None
    if not hasattr(source, "__iter__") and hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[i] for i in range(len(source)))
    return iter(source) if hasattr(source, "__iter__") else None


def seed_of_keys(random_state: np.random.RandomState) -> np.ndarray:
    """Return the seed (4,) of the rows' keys; ``random_state`` stays as it is, and its numbers are other ones."""
    state = random_state.get_state(legacy=False)
    seed = random_state.randint(2**32, size=4, dtype=np.uint64)
    random_state.set_state(state)
    return seed


def numbers_drawn(counts: np.ndarray, size: int, is_final: bool = True) -> np.ndarray:
    """Return the numbers (C,) of rows of each class, of which there are ``counts``, in a sample of some size.

    Largest remainders are rounded up. While rows still come (not ``is_final``), these are upper bounds of the final
    numbers.
    """
    means = min(1.0, size / max(1, int(counts.sum()))) * counts
    if not is_final:
        return np.ceil(means + MARGIN_ERRORS * np.sqrt(means) + MARGIN).astype(int)
    numbers = np.floor(means).astype(int)
    missing = min(size, int(counts.sum())) - int(numbers.sum())
    numbers[np.argsort(numbers - means, kind="stable")[:missing]] += 1
    return numbers


def of_least_keys(keys: np.ndarray, codes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return which rows (r,) have the least keys of their class: of class c, ``numbers[c]`` rows."""
    keep = np.ones(len(keys), dtype=bool)
    for c, number in enumerate(numbers):
        (members,) = np.nonzero(codes == c)
        keep[members[np.argsort(keys[members], kind="stable")[number:]]] = False
    return keep


def tally(codes: np.ndarray, weight: np.ndarray, n_labels: int = 0) -> np.ndarray:
    """Return (3, k) for k label numbers: the rows, the rows of positive weight, and the sums of weights."""
    return np.array([np.bincount(codes, values, n_labels) for values in (None, weight > 0.0, weight)], dtype=np.float64)


class Draw:
    """Draws ``size`` rows from rows that come one after the other: of each class the rows of least keys.

    Memory is for ``ROOM`` times the sample, or little more. The sample depends on the order of the rows and on their
    keys alone.
    """

    def __init__(self, size: int):
        self.size = size
        # Counts of all rows that have come, by the numbers of their labels, and keys below which rows may be drawn.
        self.tally, self._limits = np.zeros((3, 0)), np.zeros(0)
        self._parts: list[tuple[np.ndarray, Rows]] = []
        self._most = ROOM * size

    def add(self, rows: Rows, keys: np.ndarray) -> None:
        """Add rows with label numbers as y and a weight each; rows of weight 0 are counted, not drawn."""
        more = tally(rows.y, rows.weight, self.tally.shape[1])
        n_new = more.shape[1] - len(self._limits)
        self.tally = np.pad(self.tally, [(0, 0), (0, n_new)]) + more
        self._limits = np.append(self._limits, np.ones(n_new))
        keep = (rows.weight > 0.0) & (keys < self._limits[rows.y])
        self._parts.append((keys[keep], rows.part(keep)))
        if sum(len(keys) for keys, _ in self._parts) > self._most:
            self._most = ROOM * max(self.size, len(self.sample(is_final=False).y))

    def sample(self, is_final: bool = True) -> Rows:
        """Return the rows drawn so far, in order, all rows of positive weight if they fit; and drop all others."""
        keys, rows = np.concatenate([keys for keys, _ in self._parts]), joined_rows([rows for _, rows in self._parts])
        keep = of_least_keys(keys, rows.y, numbers_drawn(self.tally[1], self.size, is_final))
        # No later row of a class is drawn if its key is above one that is dropped here.
        np.minimum.at(self._limits, rows.y[~keep], keys[~keep])
        self._parts = [(keys[keep], rows.part(keep))]
        return self._parts[0][1]


@dataclass(frozen=True)
class Summary:
    """Counts of some rows; the sum of two summaries is the summary of all their rows.

    ``dtype`` is float32 if all features are, and ``label_dtype`` that of an array of all labels. ``tally`` has for each
    label the numbers of its rows, and of those of positive weight, and the sum of weights. Labels are in the order of
    their first rows, which breaks ties between classes and does not depend on where batches end. ``orders`` has
    the orders of the levels of all labels, as from ``orders_of``; ``is_sparse`` says whether all rows were sparse.
    """

    columns: Columns
    dtype: np.dtype
    label_dtype: np.dtype
    tally: dict[object, np.ndarray]
    orders: dict[tuple[Level, ...], None]
    is_sparse: bool

    @classmethod
    def of(cls, batch: MatrixLike, allowed: np.ndarray | None) -> tuple[Summary | None, Rows]:
        """Check a batch; return its summary, None without rows, and the rows with label numbers as y."""
        columns, rows = training_batch(batch)
        if columns is None:
            return None, rows
        X, y, weight = rows
        if allowed is not None:
            class_numbers(y, allowed)
        first, codes = by_first_row(y)
        counts = dict(zip(y[first].tolist(), tally(codes, weight).T, strict=True))
        orders, is_sparse = orders_of(batch[1]), issparse(batch[0])
        return cls(columns, X.dtype, y.dtype, counts, orders, is_sparse), Rows(X, codes, weight)

    def __add__(self, other: Summary) -> Summary:
        """Add a summary; raise ValueError if it has other columns, or another kind of labels."""
        other.columns.check_same(self.columns)
        kind, other_kind = kind_of(self.label_dtype), kind_of(other.label_dtype)
        if kind != other_kind:
            raise ValueError(f"The batch has labels that are {other_kind}; those before are {kind}. Make all alike.")
        total = dict(self.tally)
        for label, counts in other.tally.items():
            total[label] = total.get(label, 0.0) + counts
        dtype = np.result_type(self.dtype, other.dtype)
        label_dtype = np.result_type(self.label_dtype, other.label_dtype)
        orders, is_sparse = self.orders | other.orders, self.is_sparse and other.is_sparse
        return Summary(self.columns, dtype, label_dtype, total, orders, is_sparse)

    @property
    def counts(self) -> np.ndarray:
        """Numbers (3, k) of the rows, of the rows of positive weight, and sums of weights, of each label."""
        return np.transpose(list(self.tally.values()))


@dataclass(frozen=True)
class Survey:
    """The result of the first reading of batches, and how later readings make rows of them; it can be pickled.

    Attributes
    ----------
    summary : of all rows
    columns : with the encoding of later readings
    classes : (C,) labels
    order : (C,) the classes' numbers in the order of their first rows
    counts : (3, C) numbers of the classes' rows, and of those of positive weight, and total weights
    labels : (C,) y of the rows of each class: class numbers, or site labels
    """

    summary: Summary
    columns: Columns
    classes: np.ndarray
    order: np.ndarray
    counts: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, summary: Summary, allowed: np.ndarray | None) -> Survey:
        """Return the survey of rows with a summary.

        Raise ValueError for too few classes, and for labels that one array of all of them rounds.
        """
        classes, order = np.unique(np.array(list(summary.tally), dtype=summary.label_dtype), return_index=True)
        refuse_rounded(summary.tally, classes)
        absent = [] if allowed is None else np.setdiff1d(allowed, classes).tolist()
        if absent:
            raise ValueError(f"No row has a label of the given classes {absent}. Leave them out of classes.")
        counts, labels = summary.counts[:, order], np.arange(len(classes))
        check_classes_present(classes[counts[2] > 0.0])
        return cls(summary, summary.columns, classes, order, counts, labels)

    @property
    def n_rows(self) -> int:
        """Number of all rows."""
        return int(np.sum(self.counts[0]))

    @property
    def sizes(self) -> tuple[int, int, float]:
        """Number and features of the rows of positive weight, and the sum of their weights."""
        return int(np.sum(self.counts[1])), self.columns.n_features, float(np.sum(self.counts[2]))

    def rows(self, batch: MatrixLike) -> tuple[np.ndarray, Rows]:
        """Return which rows (r,) of a batch that was read before have a positive weight, and these rows.

        A bad batch raises ValueError, and columns or labels that the source did not have before.
        """
        columns, rows = training_batch(batch)
        if columns is None:
            return np.empty(0, dtype=bool), Rows(np.empty((0, self.columns.n_features), self.summary.dtype), NONE, NONE)
        columns.check_same(self.columns)
        codes = class_numbers(rows.y, self.classes, " The source must give the same rows each time it is read.")
        keep, X = rows.weight > 0.0, self.columns.encoding.transform(rows.X.astype(self.summary.dtype, copy=False))
        return keep, Rows(X if np.all(keep) else X[keep], self.labels[codes[keep]], rows.weight[keep])


def survey(
    source: object,
    allowed: np.ndarray | None,
    size: Callable[[int], int],
    random_state: np.random.RandomState,
    progress: Callable[[int], None],
) -> tuple[Survey, Rows, Streamed]:
    """Read a source once: check all batches, count, and draw the rows to learn from.

    Parameters
    ----------
    source : as for ``reading``
    allowed : the labels that there are, or None for those that turn up
    size : most rows that are kept in memory, as a function of the number of features
    random_state : read and not changed, so that few rows give the result of ``fit``
    progress : called with the number of rows read so far, again and again

    Returns
    -------
    Survey, a sample of the rows of positive weight, or all if they fit, with class numbers as y, and a function that
    makes the source of all rows
    """
    draw, keys, summary = None, np.random.Generator(np.random.PCG64(seed_of_keys(random_state))), None

    def rows_of(batch: MatrixLike) -> Rows:
        nonlocal summary
        batch_summary, rows = Summary.of(batch, allowed)
        if batch_summary is None:
            return rows
        summary = batch_summary if summary is None else summary + batch_summary
        numbers = {label: number for number, label in enumerate(summary.tally)}
        return rows._replace(y=np.array([numbers[label] for label in batch_summary.tally])[rows.y])

    with closing(read_ahead(reading(source, rows_of))) as batches:
        for rows in in_blocks(batches, BLOCK_ROWS):
            draw = draw or Draw(size(rows.X.shape[1]))
            draw.add(rows, keys.random(len(rows.X)))
            progress(int(draw.tally[0].sum()))
    if summary is None or draw is None:
        raise ValueError("The source has no rows. Give batches (X, y) that have some.")
    # Sums over blocks, whose bits do not depend on where batches end.
    total = replace(summary, tally=dict(zip(summary.tally, draw.tally.T, strict=True)))
    surveyed, rows = Survey.of(total, allowed), draw.sample()
    sample = Rows(rows.X.astype(total.dtype, copy=False), np.argsort(surveyed.order)[rows.y], rows.weight)
    return surveyed, sample, partial(streamed, source)


def streamed(source: object, surveyed: Survey) -> BatchSource:
    """Return all rows of positive weight of a surveyed source, to be read in every pass.

    A reading raises ValueError if the source has other rows than in the first one, as far as their number, columns and
    labels show it.
    """
    begin = reading(source, surveyed.rows)

    def read() -> Iterator[Rows]:
        n_rows = 0
        with closing(begin()) as batches:
            for keep, rows in batches:
                n_rows += len(keep)
                if n_rows > surveyed.n_rows:
                    break
                yield rows
        if n_rows != surveyed.n_rows:
            later = f"{'more' if n_rows > surveyed.n_rows else n_rows} later. {HOW_TO_READ_AGAIN}."
            raise ValueError(f"The source had {surveyed.n_rows} rows when it was first read, and {later}")

    return BatchSource(read, *surveyed.sizes)
