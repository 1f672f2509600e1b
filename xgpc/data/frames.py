"""Read tables with narwhals (pandas, polars, Arrow and others) as columns of numbers or levels."""

from __future__ import annotations

import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from ..names import MatrixLike
from ..rows.columnar import index_in
from .checks import is_missing

TIMES = (date, time, timedelta, np.datetime64, np.timedelta64)
NUMBERS = (numbers.Real, Decimal, np.bool_)

# A value of a categorical column.
Level = str | int | float | bool


@dataclass(frozen=True, eq=False)
class Column:
    """A column of numbers (n,), NaN if missing, or of positions (n,) in ``levels``, -1 if missing."""

    name: str
    values: np.ndarray
    levels: Sequence[Level] | None = None

    def part(self, rows: np.ndarray) -> Column:
        return replace(self, values=self.values[rows])

    @property
    def n_missing(self) -> int:
        return int(np.count_nonzero(np.isnan(self.values) if self.levels is None else self.values < 0))


def _is_arrow_batch(X: object) -> bool:
    """Return whether X is a record batch of Arrow, which narwhals does not read."""
    arrow = nw.dependencies.get_pyarrow()
    return arrow is not None and isinstance(X, arrow.RecordBatch)


def is_table(X: object) -> bool:
    """Return whether X is a data frame (pandas, polars, ...), or a table or batch of Arrow."""
    return nw.dependencies.is_into_dataframe(X) or _is_arrow_batch(X)


def _frame(X: MatrixLike) -> nw.DataFrame[Any]:
    """Return a table as a frame of narwhals; raise ValueError if columns have the same name."""
    table = nw.dependencies.get_pyarrow().Table.from_batches([X]) if _is_arrow_batch(X) else X
    try:
        return nw.from_native(table, eager_only=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"{error} Rename the columns, or leave some out: their names tell them apart.") from error


def names_of(X: MatrixLike) -> tuple[str, ...] | None:
    """Return the names of a table's columns if all are text, or None."""
    names = _frame(X).columns if is_table(X) else []
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def refuse_times(X: MatrixLike) -> None:
    """Raise ValueError for dates and durations, which would become numbers of a unit that nobody chose."""
    how = "turn them into numbers, such as days since a first date, or leave them out."
    if isinstance(X, np.ndarray) and _are_times(X):
        raise ValueError(f"X has dates or durations ({X.dtype}); {how}")
    if is_table(X):
        frame = _frame(X)
        # To take a column out of a frame takes longer than to predict a row: only objects are looked at.
        times = [
            str(name)
            for name, dtype in frame.schema.items()
            if dtype.is_temporal() or (dtype in (nw.Object, nw.Unknown) and _are_times(frame.get_column(name)))
        ]
        if times:
            raise ValueError(f"X has dates or durations in the columns {times}; {how}")


def _are_times(values: MatrixLike) -> bool:
    """Return whether the first value of an array, or of a column of objects, is a date or a duration."""
    kind = getattr(values.dtype, "kind", "O")
    first = [type(value) for value in np.ravel(values[:1])] if kind == "O" else []
    return kind in "mM" or any(issubclass(one, TIMES) or one.__name__ == "Period" for one in first)


def index_columns(X: MatrixLike) -> list[str]:
    """Return the columns into which pandas wrote an index; in polars, those with a name that pandas made up."""
    if not is_table(X):
        return []
    X = nw.to_native(X, pass_through=True)
    if hasattr(X, "schema") and hasattr(X.schema, "pandas_metadata"):
        return index_in(X.schema)
    is_polars = nw.dependencies.is_polars_dataframe(X)
    return [name for name in X.columns if re.fullmatch(r"__index_level_\d+__", name)] if is_polars else []


def note_of_index(names: Sequence[str]) -> str:
    """Return a sentence on the columns of an index; empty if there are none."""
    if not names:
        return ""
    which = f"The columns {list(names)} are" if len(names) > 1 else f"The column {names[0]!r} is"
    return f"{which} the index of a data frame that pandas wrote, and no feature."


def with_names(X: MatrixLike, fitted: Sequence[str] = ()) -> MatrixLike:
    """Return a table without the columns of its index, as a type whose names scikit-learn reads; other X unchanged.

    Index columns that a model was ``fitted`` to stay.
    """
    if not is_table(X):
        return X
    left_out = [name for name in index_columns(X) if name not in fitted]
    # A frame of narwhals takes a tenth of the time to predict a row.
    if left_out or _is_arrow_batch(X):
        return _frame(X).drop(left_out).to_native()
    return nw.to_native(X, pass_through=True)


def columns_of(X: MatrixLike) -> list[Column]:
    """Return the columns of a table, or of an array (n, d).

    Text, and what a library calls categories, dictionaries or enumerations, are levels; numbers and truth values are
    numbers, also as Python's objects.

    Raises
    ------
    ValueError
        For columns of something else, such as dates, which it names, and if there are no columns or no rows.
    """
    X = _frame(X) if is_table(X) else X
    n_rows, n_columns = X.shape
    if not n_rows or not n_columns:
        raise ValueError(f"X has {n_rows} rows and {n_columns} columns; give a row and a column or more.")
    refuse_times(X)
    if isinstance(X, np.ndarray):
        return [_column(f"feature {j}", X[:, j]) for j in range(n_columns)]
    return [_series_column(str(name), one) for name, one in zip(X.columns, X.iter_columns(), strict=True)]


def _series_column(name: str, series: nw.Series[Any]) -> Column:
    dtype = series.dtype
    if isinstance(dtype, nw.Categorical | nw.Enum):
        values = np.empty(len(series), dtype=object)
        values[:] = series.to_list()
        return _column(name, values, are_levels=True)
    values = series.to_numpy()
    # Missing values, of whichever library, make of numbers an array of doubles or of objects.
    column, is_narrow = _column(name, values), dtype == nw.Float32 or values.dtype == np.float16
    return Column(name, column.values.astype(np.float32)) if column.levels is None and is_narrow else column


def _column(name: str, values: np.ndarray, are_levels: bool = False) -> Column:
    """Return the column of an array (n,) of numbers, or of Python objects that are all text or all numbers."""
    if values.dtype.kind in "biuf" and values.ndim == 1:
        return Column(name, values.astype(np.float32 if values.dtype == np.float32 else np.float64, copy=False))
    given = [None if is_missing(value) else value for value in values.astype(object).tolist()]
    kinds = {type(value) for value in given if value is not None}
    if others := sorted(kind.__name__ for kind in kinds if not issubclass(kind, (str, *NUMBERS))):
        raise ValueError(
            f"The column {name!r} has values that are neither numbers nor text, of type {others[0]}; make text of them "
            "with astype(str), make columns of numbers, or leave it out."
        )
    if len({issubclass(kind, str) for kind in kinds}) > 1:
        raise ValueError(
            f"The column {name!r} has both text and numbers; make them all one or the other, as astype(str) does."
        )
    if are_levels or any(issubclass(kind, str) for kind in kinds):
        places: dict[Level, int] = {}
        codes = [-1 if value is None else places.setdefault(value, len(places)) for value in given]
        levels = [level if isinstance(level, str | int) else float(level) for level in places]
        return Column(name, np.array(codes, dtype=np.intp), levels)
    return Column(name, np.array([np.nan if value is None else float(value) for value in given]))


def levels_of(y: Any) -> list[Any] | None:
    """Return the levels of labels with an order, also in a table of one column; None if they have no order.

    An ordered Categorical of pandas, an Enum of polars and an ordered dictionary of Arrow have one.
    """
    if is_table(y):
        frame = _frame(y)
        y = frame.get_column(frame.columns[0]).to_native() if frame.shape[1] == 1 else None
    dtype: Any = getattr(y, "dtype", None)
    if getattr(getattr(dtype, "pyarrow_dtype", getattr(y, "type", None)), "ordered", False):
        chunks = nw.dependencies.get_pyarrow().table({"y": y})["y"].chunks
        found = {tuple(chunk.dictionary.to_pylist()): None for chunk in chunks}
        if len(found) > 1:
            raise ValueError(
                f"The chunks of y have different levels, {' and '.join(str(list(one)) for one in found)}: give "
                "classes, all labels in their order."
            )
        return [level for one in found for level in one] or None
    return list(dtype.categories) if getattr(dtype, "ordered", type(dtype).__name__ == "Enum") else None


def as_levels(column: Column) -> tuple[np.ndarray, Sequence[Level]]:
    """Return positions (n,) and levels of a column; distinct numbers become levels."""
    if column.levels is not None:
        return column.values, column.levels
    is_known = ~np.isnan(column.values)
    levels, inverse = np.unique(column.values[is_known], return_inverse=True)
    codes = np.full(len(column.values), -1)
    codes[is_known] = inverse
    return codes, levels.tolist()


def as_numbers(column: Column) -> np.ndarray:
    """Return the values (n,) of a column of numbers, or of levels that are numbers; raise ValueError for text."""
    if column.levels is None:
        return column.values
    if any(isinstance(level, str) for level in column.levels):
        raise ValueError(
            f"The column {column.name!r} is text, such as {next(iter(column.levels))!r}, and categorical_features of "
            "the fit does not name it: name it there, turn it into numbers, or leave it out."
        )
    return np.array([*map(float, column.levels), np.nan])[column.values]
