"""Read training rows in batches that need not fit into memory: once to count and draw, then again in each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..names import ClassWeight
from ..rows.batches import BatchSource, Rows, in_blocks, read_ahead
from ..rows.source import NONE, RowSource
from .batches import HOW_TO_READ_AGAIN, reading
from .checks import (
    check_classes_present,
    class_factors,
    class_numbers,
    kind_of,
    refuse_rounded,
    times_class_weights,
)
from .draw import Draw, keys_from, seed_of_keys, tally
from .far_values import Limit, within
from .training import Columns, training_batch

# Makes the source of all rows of positive weight, from the site labels (C,) of the classes and the limits.
Streamed = Callable[[np.ndarray, Sequence[Limit]], RowSource]


@dataclass(frozen=True)
class Summary:
    """Counts of some rows; the sum of two summaries is the summary of all their rows.

    Attributes
    ----------
    columns : Columns
    dtype, label_dtype : of the features (float32 if all are) and of an array of all labels
    has_weights : bool, whether any rows have weights
    tally : for each label the numbers of its rows, and of those of positive weight, and the sum of weights; labels are
        in the order of their first rows, which breaks ties between classes and does not depend on where batches end
    """

    columns: Columns
    dtype: np.dtype[np.generic]
    label_dtype: np.dtype[np.generic]
    has_weights: bool
    tally: dict[object, np.ndarray]

    @classmethod
    def of(cls, columns: Columns, rows: Rows) -> tuple[Summary, np.ndarray]:
        """Return the summary of rows, and each row's label number (r,)."""
        labels, first, inverse = np.unique(rows.y, return_index=True, return_inverse=True)
        order = np.argsort(first)
        codes = np.argsort(order)[inverse]
        counts = dict(zip(labels[order].tolist(), tally(codes, weights_of(rows)).T, strict=True))
        return cls(columns, rows.X.dtype, rows.y.dtype, len(rows.weight) > 0, counts), codes

    def __add__(self, other: Summary) -> Summary:
        """Add a summary; raise ValueError if it has other columns, or another kind of labels."""
        other.columns.check_same(self.columns)
        before, here = kind_of(self.label_dtype), kind_of(other.label_dtype)
        if here != before:
            raise ValueError(
                f"The batch has labels that are {here}, such as {next(iter(other.tally))!r}; those before are "
                f"{before}. Give all labels as one or the other."
            )
        total = dict(self.tally)
        for label, counts in other.tally.items():
            total[label] = total.get(label, 0.0) + counts
        dtype = np.result_type(self.dtype, other.dtype)
        label_dtype = np.result_type(self.label_dtype, other.label_dtype)
        return Summary(self.columns, dtype, label_dtype, self.has_weights or other.has_weights, total)

    @property
    def counts(self) -> np.ndarray:
        """Numbers (3, k) of the rows, of the rows of positive weight, and sums of weights, of each label."""
        return np.transpose(list(self.tally.values()))

    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted labels (C,) and their numbers; raise ValueError if one array of all labels rounds some."""
        classes, numbers = np.unique(np.array(list(self.tally), dtype=self.label_dtype), return_index=True)
        refuse_rounded(self.tally, classes)
        return classes, numbers


@dataclass(frozen=True)
class Survey:
    """The result of the first reading of batches, and how later readings make rows of them; it can be pickled.

    Attributes
    ----------
    columns : Columns
    dtype : of the features
    classes : (C,) labels
    order : (C,) the classes' numbers in the order of their first rows
    totals : (C,) total weights of the classes, class weights included
    n_rows, n_given : numbers of rows, and of rows of positive weight
    has_weights : bool, whether any rows have weights
    factors : (C,) weights of the classes, or None
    labels : (C,) y of the rows of each class: class numbers, or site labels
    limits : of the features
    """

    columns: Columns
    dtype: np.dtype[np.generic]
    classes: np.ndarray
    order: np.ndarray
    totals: np.ndarray
    n_rows: int
    n_given: int
    has_weights: bool
    factors: np.ndarray | None
    labels: np.ndarray
    limits: Sequence[Limit] = ()

    @classmethod
    def of(cls, found: Summary, allowed: np.ndarray | None, class_weight: ClassWeight | None) -> Survey:
        """Return the survey of rows with a summary; raise ValueError for too few classes or bad class weights."""
        classes, order = found.classes()
        absent = [] if allowed is None else np.setdiff1d(allowed, classes).tolist()
        if absent:
            raise ValueError(f"No row has a label of the given classes {absent}. Leave them out of classes.")
        n_each, n_given, totals = found.counts[:, order]
        check_classes_present(classes[totals > 0.0])
        factors = class_factors(class_weight, classes, n_each)
        totals, numbers = totals if factors is None else factors * totals, np.arange(len(classes))
        sizes = int(n_each.sum()), int(n_given.sum())
        return cls(found.columns, found.dtype, classes, order, totals, *sizes, found.has_weights, factors, numbers)

    def rows(self, batch: object) -> tuple[np.ndarray, Rows]:
        """Return which rows (r,) of a batch that was read before have a positive weight, and these rows.

        A bad batch raises ValueError, and columns or labels that the source did not have before.
        """
        checked = training_batch(batch)
        if checked is None:
            return np.empty(0, dtype=bool), Rows(np.empty((0, self.columns.n_features), self.dtype), NONE, NONE)
        columns, rows = checked
        columns.check_same(self.columns)
        codes = class_numbers(rows.y, self.classes, " The source must give the same rows each time it is read.")
        keep, X = weights_of(rows) > 0.0, within(rows.X.astype(self.dtype, copy=False), self.limits)
        kept = self.weighted(X if np.all(keep) else X[keep], codes[keep], weights_of(rows)[keep])
        return keep, kept._replace(y=self.labels[kept.y])

    def weighted(self, X: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> Rows:
        """Return rows with class numbers and a weight each, in the dtype of all rows and with class weights."""
        weight = times_class_weights(weight if self.has_weights else NONE, self.factors, codes)
        return Rows(X.astype(self.dtype, copy=False), codes, weight)


def weights_of(rows: Rows) -> np.ndarray:
    """Return a weight (r,) for each row."""
    return rows.weight if len(rows.weight) else np.ones(len(rows.X))


def survey(
    source: object,
    allowed: np.ndarray | None,
    class_weight: ClassWeight | None,
    size: int,
    random_state: np.random.RandomState,
    progress: Callable[[int], None],
) -> tuple[Survey, Rows, Streamed]:
    """Read a source once: check all batches, count, and draw the rows to learn from.

    Parameters
    ----------
    source : as for ``reading``
    allowed : the labels that there are, or None for those that turn up
    class_weight : the parameter of this name
    size : rows that are kept in memory, at most
    random_state : its state is read and left as it is: a fit of few rows is the same as ``fit``
    progress : told how many rows were read, again and again

    Returns
    -------
    Survey, a sample of the rows of positive weight, or all if they fit, with class numbers as y, and what makes the
    source of all rows

    Raises
    ------
    ValueError
        For a bad source or batch; a note names the batch.
    """
    draw, keys, found = Draw(size), keys_from(seed_of_keys(random_state), 0), None

    def rows_of(batch: object) -> Rows:
        nonlocal found
        checked = training_batch(batch)
        if checked is None:
            return Rows(np.empty((0, 0)), np.empty(0, np.intp), NONE)
        if allowed is not None:
            class_numbers(checked[1].y, allowed)
        summary, codes = Summary.of(*checked)
        found = summary if found is None else found + summary
        numbers = {label: number for number, label in enumerate(found.tally)}
        numbers_here = np.array([numbers[label] for label in summary.tally])
        return Rows(checked[1].X, numbers_here[codes], weights_of(checked[1]))

    with closing(read_ahead(reading(source, rows_of))) as batches:
        for rows in in_blocks(batches):
            draw.add(rows, keys.random(len(rows.X)))
            progress(int(draw.tally[0].sum()))
    if found is None:
        raise ValueError("The source has no rows. Give batches (X, y) that have some.")
    # Sums over blocks, whose bits do not depend on where batches end.
    total = replace(found, tally=dict(zip(found.tally, draw.tally.T, strict=True)))
    surveyed, rows = Survey.of(total, allowed, class_weight), draw.sample()
    sample = surveyed.weighted(rows.X, np.argsort(surveyed.order)[rows.y], rows.weight)
    return surveyed, sample, partial(streamed, source, surveyed)


def streamed(source: object, found: Survey, labels: np.ndarray, limits: Sequence[Limit]) -> BatchSource:
    """Return all rows of positive weight of a surveyed source, to be read in every pass.

    Every reading raises ValueError if the source has other rows than in the first one, as far as their number, columns
    and labels tell.
    """
    found = replace(found, labels=labels, limits=limits)
    begin = reading(source, found.rows)

    def read() -> Iterator[Rows]:
        n_rows = 0
        with closing(begin()) as batches:
            for keep, rows in batches:
                n_rows += len(keep)
                if n_rows > found.n_rows:
                    break
                yield rows
        if n_rows != found.n_rows:
            many = "more" if n_rows > found.n_rows else str(n_rows)
            raise ValueError(
                f"The source had {found.n_rows} rows when it was first read, and {many} later: it must give the same "
                f"rows each time. {HOW_TO_READ_AGAIN}."
            )

    return BatchSource(read, found.n_given, found.columns.n_features, float(np.sum(found.totals)))
