"""Batches of rows, checked as they are read: training rows that need not fit into memory, and rows to predict."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import _get_feature_names

from .learning import stages
from .ranges import LARGEST_FEATURE, WEIGHT_RANGE, check_weight_range, largest_size, refuse_masked
from .rows.batches import HOW_TO_READ_AGAIN, BadRow, BatchSource, Rows, in_blocks, read_ahead, reading
from .rows.columnar import ArrowRows, NumpyRows
from .rows.draw import Draw, keys_from, seed_of_keys
from .rows.labels import check_same_kind, checked_labels, kind_of, refuse_rounded
from .rows.source import NONE, RowSource, dense
from .rows.tables import Levels, columns_of, is_table, with_names
from .rows.tails import Limit, within
from .validation import class_factors, one_class_error, refuse_not_in_memory, refuse_times

# What an empty batch adds.
NO_ROWS = Rows(np.empty((0, 0)), NONE, NONE)


# What reads all rows of positive weight, for weights (C,) of the classes, or None, what sites take for each (C,), and
# limits of the features.
Streamed = Callable[[np.ndarray | None, np.ndarray, Sequence[Limit]], RowSource]


class Columns(NamedTuple):
    """How many features rows have, and their names, if they have any."""

    n_features: int
    names: tuple[str, ...] | None


class Batch(NamedTuple):
    """A batch as the source gave it, in arrays: rows (r, d), labels (r,), weights (r,) or None."""

    columns: Columns
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None


@dataclass(frozen=True)
class Survey:
    """What the first reading of a source found.

    Attributes
    ----------
    columns : Columns
    dtype : of the features: float32 if all batches are
    n_rows : int, all rows
    n_given : int, rows of positive weight
    has_weights : bool
    classes : (C,) labels
    counts : (C,) rows of each class, whatever their weights
    weights : (C,) sums of the weights of each class
    sample : Rows, some of them, or all if ``is_all``, with positions in ``classes`` as y
    """

    columns: Columns
    dtype: np.dtype[Any]
    n_rows: int
    n_given: int
    has_weights: bool
    classes: np.ndarray
    counts: np.ndarray
    weights: np.ndarray
    sample: Rows
    is_all: bool

    def class_factors(self, class_weight: Any) -> np.ndarray | None:
        """Weights (C,) of the classes for a parameter ``class_weight``.

        Raises
        ------
        ValueError
            For a bad one, or if rows of positive weight are of one class.
        """
        present = self.classes[self.weights > 0.0]
        if len(present) < 2:
            raise one_class_error(present)
        return None if class_weight is None else class_factors(class_weight, self.classes, self.counts)

    def class_totals(self, factors: np.ndarray | None) -> np.ndarray:
        """Sums (C,) of the rows' weights, with weights (C,) of the classes, or without."""
        return self.weights if factors is None else factors * self.weights

    def total_weight(self, factors: np.ndarray | None) -> float:
        """Of all rows."""
        return float(np.sum(self.class_totals(factors)))

    def preparation(
        self,
        factors: np.ndarray | None,
        labels: np.ndarray,
        limits: Sequence[Limit],
        names: tuple[str, ...] | None = None,
    ) -> Preparation:
        """How batches are read again; ``labels`` (C,) are what the sites take for each class."""
        is_weighted = self.has_weights or factors is not None
        return Preparation(self.columns, self.dtype, self.classes, is_weighted, factors, labels, limits, names)


@dataclass(frozen=True)
class Preparation:
    """How the batches of rows that were surveyed become rows as sites take them: a value that can be pickled.

    Attributes
    ----------
    columns, dtype, classes : as in ``Survey``
    is_weighted : bool, whether rows have weights
    factors : (C,) weights of the classes, or None
    labels : (C,) what the sites take for each class
    limits : of the features
    names : of the features, where the source tells them once, or None
    """

    columns: Columns
    dtype: np.dtype[Any]
    classes: np.ndarray
    is_weighted: bool
    factors: np.ndarray | None
    labels: np.ndarray
    limits: Sequence[Limit]
    names: tuple[str, ...] | None

    def rows_of(self, given: Any, copy: bool = False) -> tuple[int, Rows]:
        """How many rows a batch has, and those of positive weight; in memory of their own with ``copy``.

        Raises
        ------
        ValueError
            For a bad batch, and for columns or labels that the source did not have before.
        """
        batch = training_batch(given, self.names, copy)
        if batch is None:
            return 0, Rows(np.empty((0, self.columns.n_features), self.dtype), NONE, NONE)
        check_same_columns(batch.columns, self.columns, "the first batch")
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


def names_of_source(source: Any) -> tuple[str, ...] | None:
    """Names of the features that a source of columns tells once for all of its batches."""
    names = getattr(source, "feature_names", None)
    return None if names is None else tuple(names)


def numbered(batches: Iterator[Any], check: Callable[[Any], Any]) -> Generator[Any, None, None]:
    """What a check makes of each batch; whatever goes wrong says in which batch, from 0, it did, and in which file.

    An iterator over files has a ``place``: the name of the file that the last batch is of, and the number of its first
    row there.
    """
    number = 0
    try:
        for batch in batches:
            yield check(batch)
            # The next one is read while nobody has the last one.
            del batch
            number += 1
    except Exception as error:
        name, first = getattr(batches, "place", (None, 0))
        rows = f"row {first + error.row}" if isinstance(error, BadRow) else f"rows from {first} on"
        where = "" if name is None else f"{rows} of {name!r}, "
        error.add_note(f"({where}batch {number} of the source, counted from 0)")
        raise
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def fills_memory_again(source: Any) -> bool:
    """Whether a source of batches may put one where the last one was: while that is in use it is asked for the next."""
    return not isinstance(source, list | tuple | ArrowRows | NumpyRows)


def checked_features(X: Any, names: tuple[str, ...] | None = None, copy: bool = False) -> tuple[Columns, np.ndarray]:
    """Rows (r, d) of finite numbers of a batch, C-contiguous, and their columns, with names of their own or given ones.

    Sparse ones are dense from here on. With ``copy`` the rows are in other memory than X.

    Raises
    ------
    ValueError
        For what is no table of finite numbers of moderate size; it names the first bad row.
    """
    refuse_not_in_memory(X)
    refuse_times(X)
    X = dense(with_names(X))
    _refuse_levels(X)
    found = _get_feature_names(X)
    rows = check_array(
        X,
        dtype=(np.float64, np.float32),
        order="C",
        copy=copy,
        ensure_all_finite=False,
        ensure_min_samples=0,
        input_name="X",
    )
    own = names if found is None else tuple(str(name) for name in found)
    if not largest_size(rows) <= LARGEST_FEATURE:
        # The limit is infinite in float32, where it would not be exceeded.
        row, column = np.argwhere(~(np.abs(rows, dtype=np.float64) <= LARGEST_FEATURE))[0]
        advice = (
            f": features must be finite, and of size {LARGEST_FEATURE:g} at most. Leave out such rows, or put in "
            "numbers."
        )
        name = None if own is None else own[column]
        raise BadRow(int(row), f"{rows[row, column]}", advice, int(column), name)
    return Columns(rows.shape[1], own), rows


def _refuse_levels(X: Any) -> None:
    """ValueError for a table with columns that are no numbers."""
    if not is_table(X) or not len(X):
        return
    levels = [column for column in columns_of(X) if isinstance(column, Levels)]
    if levels:
        raise ValueError(
            f"The column {levels[0].name!r} of the batch has levels, such as {next(iter(levels[0].levels), None)!r}. "
            "GPClassifier.fit takes them, but rows in batches, and of dask, must be numbers: make columns of the "
            "levels before, as sklearn.preprocessing.OneHotEncoder does, or leave such columns out."
        )


def check_same_columns(columns: Columns, first: Columns, of_whom: str) -> None:
    """ValueError for a batch with other columns than ``of_whom``, "the first batch" for instance."""
    if columns.n_features != first.n_features:
        raise ValueError(
            f"The batch has {columns.n_features} features, {of_whom} {first.n_features}: give all batches the same "
            "columns."
        )
    if columns.names != first.names:
        given, wanted = (list(one.names or ()) or "no names" for one in (columns, first))
        raise ValueError(
            f"The batch has other feature names than {of_whom}: {given} and {wanted}. Give all batches the same "
            "columns in the same order."
        )


def set_columns(model: Any, columns: Columns) -> None:
    """Set what estimators remember of the columns that they were fitted to."""
    model.n_features_in_, model._column_labels = columns.n_features, None
    if columns.names is not None:
        model.feature_names_in_ = np.array(columns.names, dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_


def columns_names(model: Any) -> tuple[str, ...] | None:
    """Names of the features that an estimator was fitted to, if they had any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(names)


def rows_to_predict(batch: Any, names: tuple[str, ...] | None, fitted: Columns, copy: bool = False) -> np.ndarray:
    """Rows (r, d) of a batch X, or a tuple that begins with one; ValueError for other columns than were fitted to.

    Names count where both have them.
    """
    columns, rows = checked_features(batch[0] if isinstance(batch, tuple) and batch else batch, names, copy)
    if columns.names is None or fitted.names is None:
        columns, fitted = columns._replace(names=None), fitted._replace(names=None)
    check_same_columns(columns, fitted, "the fit")
    return rows


def _parts(batch: Any) -> tuple[Any, Any, Any]:
    """X, y and weights, or None, of a training batch."""
    parts = batch if isinstance(batch, tuple | list) else ()
    if len(parts) not in (2, 3):
        what = f"{len(parts)} parts" if len(parts) else f"a {type(batch).__name__}"
        raise ValueError(f"A batch must be a tuple (X, y) or (X, y, sample_weight); got {what}.")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


def training_batch(batch: Any, names: tuple[str, ...] | None, copy: bool = False) -> Batch | None:
    """A batch of training rows, checked by itself; None for one that has no rows.

    With ``copy`` features and weights are in memory of their own; labels are not.
    """
    X, y, weight = _parts(batch)
    if np.shape(y)[:1] == (0,) and np.shape(X)[:1] == (0,):
        return None
    columns, rows = checked_features(X, names, copy)
    refuse_masked(y, weight)
    labels = checked_labels(y, len(rows))
    return Batch(columns, rows, labels, None if weight is None else _checked_weights(weight, len(rows)))


def _checked_weights(weight: Any, n_rows: int) -> np.ndarray:
    values = np.asarray(weight)
    if values.dtype.kind not in "biuf" or values.shape not in ((), (n_rows,)):
        raise ValueError(
            f"sample_weight must be a real number for each of the batch's {n_rows} rows; got an array of "
            f"{values.dtype} of shape {values.shape}."
        )
    values = np.array(np.broadcast_to(values, n_rows), dtype=np.float64)
    low, high = WEIGHT_RANGE
    (bad,) = np.nonzero(~((values == 0.0) | ((values >= low) & (values <= high))))
    if len(bad):
        raise ValueError(
            f"Row {bad[0]} of the batch has sample_weight {values[bad[0]]:g}: weights must be 0 or between {low:g} and "
            f"{high:g}."
        )
    return values


class Labels:
    """Labels, numbered in the order of the rows that they turn up in, with counts."""

    def __init__(self, allowed: np.ndarray | None):
        self.numbers: dict[Any, int] = {}
        self.counts = np.zeros(0, dtype=np.int64)
        self._allowed = None if allowed is None else set(allowed.tolist())
        self._kinds: list[np.ndarray] = []

    def numbered(self, y: np.ndarray) -> np.ndarray:
        """Numbers (r,) of the labels of a batch."""
        labels, inverse = np.unique(y, return_inverse=True)
        values = labels.tolist()
        unknown = [] if self._allowed is None else [value for value in values if value not in self._allowed]
        if unknown:
            row = int(np.flatnonzero(y == unknown[0])[0])
            raise ValueError(
                f"Row {row} of the batch has the label {unknown[0]!r}, which is not among the given classes "
                f"{sorted(self._allowed or ())}."
            )
        is_new = labels.dtype not in {known.dtype for known in self._kinds}
        if is_new or any(value not in self.numbers for value in values):
            if self._kinds:
                check_same_kind(labels, self._kinds[0])
            self._kinds.append(labels)
            # Not in another order, which could depend on where batches end: it decides between classes that are equal.
            for place in np.argsort(np.unique(y, return_index=True)[1]):
                self.numbers.setdefault(values[place], len(self.numbers))
        codes = np.array([self.numbers[value] for value in values], dtype=np.intp)[inverse.ravel()]
        counts = np.bincount(codes, minlength=len(self.numbers))
        self.counts = np.pad(self.counts, (0, len(counts) - len(self.counts))) + counts
        return codes

    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct labels, sorted, of the type that all labels in one array would have; and their numbers."""
        classes = np.unique(np.concatenate(self._kinds))
        refuse_rounded(self.numbers, classes)
        return classes, np.array([self.numbers[value] for value in classes.tolist()], dtype=np.intp)


def _added(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Their sum; the shorter one has zeros at its end."""
    total = np.zeros(max(len(one), len(other)))
    total[: len(one)] += one
    total[: len(other)] += other
    return total


def survey(
    source: Any,
    classes: np.ndarray | None,
    random_state: np.random.RandomState,
    check_streamed: Callable[[], None],
    read_so_far: Callable[[int], None],
) -> Survey:
    """Read a source once: check all batches, count, and draw the rows to learn from.

    Parameters
    ----------
    source : as for ``reading``
    classes : the labels that there are, or None for those that turn up
    random_state : its state is read and left as it is
    check_streamed : called as soon as there are more rows than are kept in memory; raises if that cannot be
    read_so_far : told how many rows were read, again and again

    Raises
    ------
    ValueError
        For a bad source or batch; a note names the batch.
    """
    if isinstance(source, ArrowRows):
        source.check_target()
    # Other random numbers than what learning draws, so that a fit of few rows is the same as ``fit``.
    draw = Draw(stages.LAST_ROWS, keys_from(seed_of_keys(random_state), 0))
    labels, names, first = Labels(classes), names_of_source(source), None
    has_weights, n_given, sums, dtype = False, 0, np.zeros(0), np.dtype(np.float32)

    def rows_of(given: Any) -> Rows:
        nonlocal first, has_weights, dtype
        batch = training_batch(given, names, fills_memory_again(source))
        if batch is None:
            return NO_ROWS
        if first is None:
            first = batch.columns
        check_same_columns(batch.columns, first, "the first batch")
        has_weights |= batch.weight is not None
        dtype = np.result_type(dtype, batch.X.dtype)
        weight = np.ones(len(batch.X)) if batch.weight is None else batch.weight
        return Rows(batch.X, labels.numbered(batch.y), weight)

    read = reading(source)
    checked = read_ahead(lambda: numbered(read(), rows_of))
    with closing(checked):
        for rows in in_blocks(checked):
            was_all = draw.is_all
            draw.add(rows)
            if was_all and not draw.is_all:
                check_streamed()
            read_so_far(draw.n_rows)
            n_given += int(np.count_nonzero(rows.weight))
            sums = _added(sums, np.bincount(rows.y, rows.weight))
    if first is None or not draw.n_rows:
        raise ValueError("The source has no rows. Give batches (X, y) that have some.")
    found, order = labels.classes()
    check_none_absent(classes, found)
    X, y, weight = draw.sample()
    sample = Rows(X.astype(dtype, copy=False), np.argsort(order)[y], weight)
    sums = _added(sums, np.zeros(len(order)))
    return Survey(
        first, dtype, draw.n_rows, n_given, has_weights, found, labels.counts[order], sums[order], sample, draw.is_all
    )


def check_none_absent(allowed: np.ndarray | None, found: np.ndarray) -> None:
    """ValueError if no row has one of the labels that there are."""
    absent = [] if allowed is None else np.setdiff1d(allowed, found).tolist()
    if absent:
        raise ValueError(f"No row has a label of the given classes {absent}. Leave them out of classes.")


def streamed(
    source: Any, found: Survey, factors: np.ndarray | None, labels: np.ndarray, limits: Sequence[Limit]
) -> BatchSource:
    """All rows of positive weight of a source that was surveyed, to be read anew in every pass.

    Parameters
    ----------
    factors : (C,) weights of the classes, or None
    labels : (C,) what the sites take for each class
    limits : of the features

    Every reading raises ValueError if the source has other rows than in the first one, as far as their number, columns
    and labels tell.
    """
    begin, preparation = reading(source), found.preparation(factors, labels, limits, names_of_source(source))
    prepare = partial(preparation.rows_of, copy=fills_memory_again(source))

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

    return BatchSource(read, found.n_given, found.columns.n_features, found.total_weight(factors))


def codes_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Positions (r,) of labels in the classes."""
    if kind_of(y[:1]) != kind_of(classes):
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
