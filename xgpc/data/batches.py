"""Check batches of rows: training rows with labels and weights, and rows to predict."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import _get_feature_names

from ..ranges import LARGEST_FEATURE, largest_size, refuse_masked
from ..rows.columnar import ArrowRows, NumpyRows
from ..rows.source import dense
from .checks import BadRow, checked_labels, checked_weights
from .frames import Column, Levels, columns_of, is_table, refuse_not_in_memory, refuse_times, with_names

HOW_TO_READ_AGAIN = (
    "A fit reads the rows many times. Give a function that returns a new iterator each time it is called, such as "
    "lambda: batches_of('rows.csv'), a list of batches, an object whose __iter__ begins anew, or one of "
    "xgpc.rows.from_parquet, from_arrow and from_npy"
)


class Columns(NamedTuple):
    """The number of features, and their names or None."""

    n_features: int
    names: tuple[str, ...] | None

    def check_same(self, first: Columns, of_whom: str) -> None:
        """Raise ValueError if the columns differ from ``first``, called ``of_whom``: "the first batch" or "the fit"."""
        if self.n_features != first.n_features:
            raise ValueError(
                f"The batch has {self.n_features} features, {of_whom} {first.n_features}: give all batches the same "
                "columns."
            )
        if self.names != first.names:
            given, wanted = (list(one.names or ()) or "no names" for one in (self, first))
            raise ValueError(
                f"The batch has other feature names than {of_whom}: {given} and {wanted}. Give all batches the same "
                "columns in the same order."
            )

    @classmethod
    def fitted(cls, model: Any) -> Columns:
        """Return the columns that an estimator was fitted to."""
        names = getattr(model, "feature_names_in_", None)
        return cls(model.n_features_in_, None if names is None else tuple(names))

    def set_on(self, model: Any) -> None:
        """Set the attributes by which an estimator remembers the columns of its fit."""
        model.n_features_in_, model._column_labels = self.n_features, None
        if self.names is not None:
            model.feature_names_in_ = np.array(self.names, dtype=object)
        elif hasattr(model, "feature_names_in_"):
            del model.feature_names_in_


class Batch(NamedTuple):
    """Training rows: X (r, d) float32 or float64, C-contiguous, labels (r,), and weights (r,) or None for ones."""

    columns: Columns
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None


def reading(source: Any, again: bool = True) -> Callable[[], Iterator[Any]]:
    """Return a function that reads a source of batches from the beginning each time it is called.

    Parameters
    ----------
    source : a function without arguments that returns an iterator, an iterable, or an object with ``__len__`` and
        ``__getitem__``
    again : whether it must be possible to read it more than once

    Raises
    ------
    ValueError
        For what is no such source, or an iterator, which can be read only once, where that is not enough.
    """
    is_short = again and isinstance(source, tuple | list) and len(source) in (2, 3)
    if is_short and [len(getattr(part, "shape", ())) for part in source[:2]] in ([2, 1], [2, 2]):
        raise ValueError(
            "A source is a sequence of batches, each of them a tuple; got arrays, which seem to be X and y of one "
            "batch. Write fit_batches([(X, y)]), or fit(X, y)."
        )
    first, kind = _iterator(source), type(source).__name__
    if first is None and not callable(source):
        how = HOW_TO_READ_AGAIN if again else "Of rows in memory make a list of one batch, [X], or call predict_proba"
        raise ValueError(f"A source of batches must be a function or an iterable; got a {kind}. {how}.")
    if again and first is source:
        raise ValueError(f"The source is a {kind}, which can be read only once. {HOW_TO_READ_AGAIN}.")

    def read() -> Iterator[Any]:
        begun = source() if first is None else source
        iterator = _iterator(begun)
        if iterator is None:
            kind = type(begun).__name__
            raise ValueError(f"The source's function must return an iterator of batches; it returned a {kind}.")
        return iterator

    return read


def _iterator(source: Any) -> Iterator[Any] | None:
    """Return an iterator over a source; None if there is none, or if the items are no batches (tables and arrays)."""
    if isinstance(source, str | bytes | dict | np.ndarray) or hasattr(source, "columns"):
        return None
    if not hasattr(source, "__iter__") and hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[i] for i in range(len(source)))
    return iter(source) if hasattr(source, "__iter__") else None


def names_of_source(source: Any) -> tuple[str, ...] | None:
    """Return the feature names that a source states once for all batches, or None."""
    names = getattr(source, "feature_names", None)
    return None if names is None else tuple(names)


def fills_memory_again(source: Any) -> bool:
    """Return whether a source may reuse a batch's memory for the next batch, which is read while it is in use."""
    return not isinstance(source, list | tuple | ArrowRows | NumpyRows)


def numbered(batches: Iterator[Any], check: Callable[[Any], Any]) -> Generator[Any, None, None]:
    """Yield ``check(batch)`` for each batch; a note of every error names the batch, counted from 0, and the file.

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


def checked_features(X: Any, names: tuple[str, ...] | None = None, copy: bool = False) -> tuple[Columns, np.ndarray]:
    """Return a batch's columns, and its rows (r, d), finite and C-contiguous; ``names`` are for rows without names.

    Sparse ones are dense from here on. With ``copy`` the rows are in other memory than X.

    Raises
    ------
    ValueError
        For what is no table of finite numbers of moderate size; it names the first bad row.
    """
    refuse_not_in_memory(X)
    X = dense(with_names(X))
    found = _get_feature_names(X)
    own = names if found is None else tuple(str(name) for name in found)
    if is_table(X) and len(X):
        rows = np.column_stack([_numbers(column) for column in columns_of(X)])
    else:
        refuse_times(X)
        as_numbers: dict[str, Any] = {"dtype": (np.float64, np.float32), "order": "C", "copy": copy}
        rows = check_array(X, **as_numbers, ensure_all_finite=False, ensure_min_samples=0, input_name="X")
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


def _numbers(column: Column) -> np.ndarray:
    """Return the values (r,) of a column of a batch; raise ValueError for levels."""
    if isinstance(column, Levels):
        raise ValueError(
            f"The column {column.name!r} of the batch has levels, such as {next(iter(column.levels), None)!r}. "
            "GPClassifier.fit takes them, but rows in batches, and of dask, must be numbers: make columns of the "
            "levels before, as sklearn.preprocessing.OneHotEncoder does, or leave such columns out."
        )
    return column.values


def rows_to_predict(batch: Any, names: tuple[str, ...] | None, fitted: Columns, copy: bool = False) -> np.ndarray:
    """Return the rows (r, d) of a batch X, or of a tuple that begins with X; raise ValueError if columns differ.

    Names count where both have them.
    """
    columns, rows = checked_features(batch[0] if isinstance(batch, tuple) and batch else batch, names, copy)
    if columns.names is None or fitted.names is None:
        columns, fitted = columns._replace(names=None), fitted._replace(names=None)
    columns.check_same(fitted, "the fit")
    return rows


def training_batch(batch: Any, names: tuple[str, ...] | None, copy: bool = False) -> Batch | None:
    """Check a batch (X, y) or (X, y, sample_weight) by itself; return None if it has no rows.

    With ``copy`` features and weights are in memory of their own; labels are not.
    """
    parts = batch if isinstance(batch, tuple | list) else ()
    if len(parts) not in (2, 3):
        what = f"{len(parts)} parts" if len(parts) else f"a {type(batch).__name__}"
        raise ValueError(f"A batch must be a tuple (X, y) or (X, y, sample_weight); got {what}.")
    X, y, weight = (*parts, None)[:3]
    if np.shape(y)[:1] == (0,) and np.shape(X)[:1] == (0,):
        return None
    columns, rows = checked_features(X, names, copy)
    refuse_masked(y)
    labels = checked_labels(y, len(rows))
    return Batch(columns, rows, labels, None if weight is None else checked_weights(weight, len(rows)))
