"""Read training rows in batches that need not fit into memory: once to count and draw, then again in each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..ranges import check_weight_range
from ..rows.batches import BatchSource, Rows, in_blocks, read_ahead
from ..rows.columnar import ArrowRows
from ..rows.source import NONE, RowSource
from .batches import (
    HOW_TO_READ_AGAIN,
    Columns,
    fills_memory_again,
    names_of_source,
    numbered,
    reading,
    training_batch,
)
from .checks import check_classes_present, class_factors
from .draw import Draw, keys_from, seed_of_keys
from .far_values import Limit, within
from .summary import Summary, kind_of

# What an empty batch adds.
NO_ROWS = Rows(np.empty((0, 0)), np.empty(0, np.intp), NONE)

# What reads all rows of positive weight, for weights (C,) of the classes, or None, what sites take for each (C,), and
# limits of the features.
Streamed = Callable[[np.ndarray | None, np.ndarray, Sequence[Limit]], RowSource]


@dataclass(frozen=True)
class Survey:
    """The result of the first reading of batches.

    Attributes
    ----------
    columns : Columns
    dtype : of the features: float32 if all batches are
    has_weights : bool
    classes : (C,) labels
    tally : (3, C) rows of each class, those of positive weight, and sums of weights
    sample : Rows of positive weight, some or, if ``is_all``, all, with positions in ``classes`` as y
    """

    columns: Columns
    dtype: np.dtype[Any]
    has_weights: bool
    classes: np.ndarray
    tally: np.ndarray
    sample: Rows
    is_all: bool

    @classmethod
    def of(cls, found: Summary, sample: Rows, is_all: bool, allowed: np.ndarray | None) -> Survey:
        """Combine the summary of all rows and a sample with label numbers as y.

        Raises
        ------
        ValueError
            If no row has one of the labels that are ``allowed``.
        """
        classes, order = found.labels.classes()
        absent = [] if allowed is None else np.setdiff1d(allowed, classes).tolist()
        if absent:
            raise ValueError(f"No row has a label of the given classes {absent}. Leave them out of classes.")
        drawn = sample._replace(X=sample.X.astype(found.dtype, copy=False), y=np.argsort(order)[sample.y])
        return cls(found.columns, found.dtype, found.has_weights, classes, found.tally[:, order], drawn, is_all)

    @property
    def n_rows(self) -> int:
        return int(self.tally[0].sum())

    def class_factors(self, class_weight: Any) -> np.ndarray | None:
        """Return the weights (C,) of the classes for the parameter ``class_weight``, or None.

        Raises
        ------
        ValueError
            For a bad one, or if rows of positive weight are of one class.
        """
        check_classes_present(self.classes[self.tally[2] > 0.0])
        return None if class_weight is None else class_factors(class_weight, self.classes, self.tally[0])

    def training_rows(self, factors: np.ndarray | None) -> Rows:
        """Return the sample, with the rows' weights times the weights (C,) of their classes."""
        X, codes, weight = self.sample
        if factors is None and not self.has_weights:
            return self.sample._replace(weight=NONE)
        weight = weight if factors is None else factors[codes] * weight
        check_weight_range(weight)
        return Rows(X, codes, weight)

    def class_totals(self, factors: np.ndarray | None) -> np.ndarray:
        """Return the total weight (C,) of each class, times the weights (C,) of the classes."""
        return self.tally[2] if factors is None else factors * self.tally[2]

    def rows(self, factors: np.ndarray | None, labels: np.ndarray, limits: Sequence[Limit]) -> PreparedRows:
        """Return how to prepare batches in later readings; ``labels`` (C,) are the site labels of the classes."""
        is_weighted = self.has_weights or factors is not None
        return PreparedRows(self.columns, self.dtype, self.classes, is_weighted, factors, labels, limits)


@dataclass(frozen=True)
class PreparedRows:
    """How surveyed batches become rows with site labels: a value that can be pickled.

    Attributes
    ----------
    columns, dtype, classes : as in ``Survey``
    is_weighted : bool, whether rows have weights
    factors : (C,) weights of the classes, or None
    labels : (C,) what the sites take for each class
    limits : of the features
    """

    columns: Columns
    dtype: np.dtype[Any]
    classes: np.ndarray
    is_weighted: bool
    factors: np.ndarray | None
    labels: np.ndarray
    limits: Sequence[Limit]

    def of(self, given: Any, names: tuple[str, ...] | None = None, copy: bool = False) -> tuple[int, Rows]:
        """Return a batch's number of rows, and its rows of positive weight, in their own memory with ``copy``.

        Raises
        ------
        ValueError
            For a bad batch, and for columns or labels that the source did not have before.
        """
        batch = training_batch(given, names, copy)
        if batch is None:
            return 0, Rows(np.empty((0, self.columns.n_features), self.dtype), NONE, NONE)
        batch.columns.check_same(self.columns, "the first batch")
        codes = codes_of(batch.y, self.classes)
        X, weight = within(batch.X.astype(self.dtype, copy=False), self.limits), batch.weight
        if not self.is_weighted:
            return len(X), Rows(X, self.labels[codes], NONE)
        weight = np.ones(len(X)) if weight is None else weight
        keep = weight > 0.0
        if not np.all(keep):
            X, codes, weight = X[keep], codes[keep], weight[keep]
        if self.factors is not None:
            weight = self.factors[codes] * weight
            check_weight_range(weight)
        return len(keep), Rows(X, self.labels[codes], weight)


def codes_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the positions (r,) of labels in the classes of the first reading."""
    if kind_of(y.dtype) != kind_of(classes.dtype):
        raise ValueError(
            f"The batch has labels such as {y[:1].tolist()[0]!r}, others than when the source was first read."
        )
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    (unknown,) = np.nonzero(classes[codes] != y)
    if len(unknown):
        row = unknown[0]
        raise ValueError(
            f"Row {row} of the batch has the label {y[row : row + 1].tolist()[0]!r}, which no row had when the source "
            "was first read: it must give the same rows each time."
        )
    return codes


def survey(
    source: Any,
    classes: np.ndarray | None,
    size: int,
    random_state: np.random.RandomState,
    check_streamed: Callable[[], None],
    read_so_far: Callable[[int], None],
) -> tuple[Survey, Streamed]:
    """Read a source once: check all batches, count, and draw the rows to learn from.

    Parameters
    ----------
    source : as for ``reading``
    classes : the labels that there are, or None for those that turn up
    size : rows that are kept in memory, at most
    random_state : its state is read and left as it is
    check_streamed : called as soon as there are more rows than are kept in memory; raises if that cannot be
    read_so_far : told how many rows were read, again and again

    Returns
    -------
    Survey, and what makes a ``BatchSource`` of all rows

    Raises
    ------
    ValueError
        For a bad source or batch; a note names the batch.
    """
    if isinstance(source, ArrowRows):
        source.check_target()
    # Other random numbers than what learning draws, so that a fit of few rows is the same as ``fit``.
    draw = Draw(size, keys_from(seed_of_keys(random_state), 0))
    found: Summary | None = None

    def rows_of(given: Any) -> Rows:
        nonlocal found
        batch = training_batch(given, names_of_source(source), fills_memory_again(source))
        if batch is None:
            return NO_ROWS
        summary, codes = Summary.of(batch, classes)
        found = summary if found is None else found + summary
        weight = np.ones(len(codes)) if batch.weight is None else batch.weight
        return Rows(batch.X, found.labels.places(summary.labels.values)[codes], weight)

    read = reading(source)
    checked = read_ahead(lambda: numbered(read(), rows_of))
    with closing(checked):
        for rows in in_blocks(checked):
            was_all = draw.is_all
            draw.add(rows)
            if was_all and not draw.is_all:
                check_streamed()
            read_so_far(draw.n_rows)
    if found is None:
        raise ValueError("The source has no rows. Give batches (X, y) that have some.")
    # Sums over blocks, whose bits do not depend on where batches end.
    total = Summary(found.columns, found.dtype, found.has_weights, found.labels, draw.tally)
    surveyed = Survey.of(total, draw.sample(), draw.is_all, classes)
    return surveyed, partial(streamed, source, surveyed)


def streamed(
    source: Any, found: Survey, factors: np.ndarray | None, labels: np.ndarray, limits: Sequence[Limit]
) -> BatchSource:
    """Return all rows of positive weight of a surveyed source, to be read in every pass.

    Parameters
    ----------
    factors : (C,) weights of the classes, or None
    labels : (C,) what the sites take for each class
    limits : of the features

    Every reading raises ValueError if the source has other rows than in the first one, as far as their number, columns
    and labels tell.
    """
    begin, prepared = reading(source), found.rows(factors, labels, limits)
    prepare = partial(prepared.of, names=names_of_source(source), copy=fills_memory_again(source))

    def read() -> Iterator[Rows]:
        n_rows = 0
        with closing(numbered(begin(), prepare)) as batches:
            for n_more, rows in batches:
                n_rows += n_more
                if n_rows > found.n_rows:
                    break
                yield rows
        if n_rows != found.n_rows:
            many = "more" if n_rows > found.n_rows else str(n_rows)
            raise ValueError(
                f"The source had {found.n_rows} rows when it was first read, and {many} later: it must give the same "
                f"rows each time. {HOW_TO_READ_AGAIN}."
            )

    total_weight = float(np.sum(found.class_totals(factors)))
    return BatchSource(read, int(found.tally[1].sum()), found.columns.n_features, total_weight)
