"""Parquet files: tables, and batches of numbers, with errors that name the row and the column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..data.checks import BadRow, checked_labels
from ..data.frames import Column, ColumnTable, Levels, Numbers, as_levels, columns_of, has_missing
from ..data.training import numbers_of
from ..ranges import LARGEST_FEATURE
from ..rows.columnar import ArrowRows, index_in, parquet_dataset
from .columns import Table, Wanted


def is_parquet(path: str) -> bool:
    return path.lower().endswith(".parquet")


def parquet_rows(path: str, wanted: Wanted) -> tuple[ArrowRows, list[str]]:
    """Rows of a Parquet file, with features of any types, and columns that are none of these: those of an index.

    Raises
    ------
    ValueError
        For a file that cannot be read, or lacks columns.
    """
    try:
        dataset = parquet_dataset(path)
    except FileNotFoundError:
        raise ValueError(f"cannot read {path!r}: No such file or directory; give the path of a Parquet file.") from None
    except (OSError, ImportError, ValueError) as error:
        raise _of_file(path, error) from None
    index = index_in(dataset.schema)
    names = wanted.names(path, dataset.schema.names, index)
    return ArrowRows(dataset, wanted.target, names), [name for name in index if name not in (*names, *wanted.drop)]


def _of_file(path: str, error: Exception, source: ArrowRows | None = None, n_before: int = 0) -> ValueError:
    """What is wrong with a file; with a row of a batch of it, after so many other rows."""
    if isinstance(error, BadRow) and source is not None:
        column = source.target if error.column is None else source.feature_names[error.column]
        where = f"{path!r}, row {n_before + error.row + 1}, column {column!r}"
        return ValueError(f"{where}: {error.what}")
    is_read = not isinstance(error, OSError | ImportError)
    return ValueError(f"{path!r}: {error}" if is_read else f"cannot read {path!r}: {error}")


def parquet_table(path: str, source: ArrowRows, wanted: Wanted) -> Table:
    """All rows of a Parquet file."""
    try:
        features, labels = source.whole()
        n_rows = features.num_rows
        if not n_rows and wanted.target is None:
            return Table(path, source.feature_names, np.empty((0, len(source.feature_names))), [], (), "row")
        if not n_rows:
            raise ValueError("the file has no rows.")
        columns = columns_of(features)
        target = [] if labels is None else checked_labels(labels, n_rows).astype(np.str_).tolist()
    except (OSError, ValueError) as error:
        raise _of_file(path, error, source) from None
    columns = [as_levels(column) if column.name in wanted.categorical else column for column in columns]
    for column in columns:
        _check_column(path, column, wanted)
    numbers = [column.values for column in columns if isinstance(column, Numbers)]
    is_plain = len(numbers) == len(columns) and not any(has_missing(column) for column in columns)
    X = np.column_stack(numbers) if is_plain else ColumnTable(columns)
    return Table(path, source.feature_names, X, target, range(1, n_rows + 1), "row")


def _check_column(path: str, column: Column, wanted: Wanted) -> None:
    """ValueError for a number that is not finite, and for text or a missing number where there may be none."""
    if isinstance(column, Levels):
        only_numbers = wanted.are_levels is not None and not any(wanted.are_levels)
        if only_numbers and any(isinstance(level, str) for level in column.levels):
            raise ValueError(f"{path!r}, column {column.name!r}: it is text, and the model was fitted to numbers.")
        return
    bad = ~(np.abs(column.values, dtype=np.float64) <= LARGEST_FEATURE)
    if wanted.may_miss:
        bad &= ~np.isnan(column.values)
    if np.any(bad):
        row = int(np.argmax(bad))
        raise ValueError(
            f"{path!r}, row {row + 1}, column {column.name!r}: {column.values[row]}: features must be finite, and of "
            f"size {LARGEST_FEATURE:g} at most. Leave out such rows, or put in numbers."
        )


def text_batches(path: str, source: ArrowRows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of checked features (r, d), which are numbers, and of labels (r,) as text."""
    n_before = 0
    try:
        for X, y in source.of_numbers():
            rows = numbers_of(X)[1]
            yield rows, checked_labels(y, len(rows)).astype(np.str_)
            n_before += len(rows)
    except (OSError, ValueError) as error:
        raise _of_file(path, error, source, n_before) from None
