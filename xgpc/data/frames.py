"""Read tables with narwhals (pandas, polars, Arrow and others) as columns of numbers or levels."""

from __future__ import annotations

import numbers
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from ..ranges import refuse_masked
from ..rows.columnar import index_in
from .checks import is_missing

TIMES = "dates or durations; turn them into numbers, such as days since a first date, or leave them out"
NESTED = "values that are neither numbers nor text; make columns of these, or leave it out"
# Types of columns whose values are Python's objects.
OBJECTS = (nw.Object, nw.Unknown)
TIME_TYPES = (date, time, timedelta, np.datetime64, np.timedelta64)

# A value of a categorical column.
Level = str | int | float | bool


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers (n,), float32 or float64, with NaN for missing values."""

    name: str
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: np.ndarray) -> Numbers:
        return Numbers(self.name, self.values[rows])


@dataclass(frozen=True, eq=False)
class Levels:
    """A column of levels: positions (n,) in ``levels``, -1 for missing values."""

    name: str
    codes: np.ndarray
    levels: Sequence[Level]

    def __len__(self) -> int:
        return len(self.codes)

    def part(self, rows: np.ndarray) -> Levels:
        return Levels(self.name, self.codes[rows], self.levels)


Column = Numbers | Levels


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """A table made of columns of a file."""

    columns: Sequence[Column]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.column_stack([as_numbers(column).values for column in self.columns]).astype(dtype, copy=False)


def is_table(X: Any) -> bool:
    """Return whether X is a data frame (pandas, polars, ...), a table or batch of Arrow, or a ``ColumnTable``."""
    return isinstance(X, ColumnTable) or nw.dependencies.is_into_dataframe(X) or _is_arrow_batch(X)


def _is_arrow_batch(X: Any) -> bool:
    """Return whether X is a record batch of Arrow, which narwhals does not read."""
    arrow = nw.dependencies.get_pyarrow()
    return arrow is not None and isinstance(X, arrow.RecordBatch)


def _native(X: Any) -> Any:
    """Unwrap a frame of narwhals, and turn a record batch of Arrow into a table."""
    X = nw.to_native(X, pass_through=True)
    return nw.dependencies.get_pyarrow().Table.from_batches([X]) if _is_arrow_batch(X) else X


def _names(X: Any) -> list[Any]:
    """Return the names of a native table's columns, as its library has them."""
    return list(X.column_names if nw.dependencies.is_pyarrow_table(X) else X.columns)


def refuse_not_in_memory(*given: Any) -> None:
    """Raise ValueError for lazy frames, dask collections and masked values, which NumPy would turn into arrays."""
    refuse_masked(*given)
    for value in given:
        library, kind = type(value).__module__.partition(".")[0], type(value).__name__
        if library == "dask":
            raise ValueError(
                f"Got a {kind} of dask, whose rows need not be in this process: fit and predict with "
                "xgpc.dask.DaskGPClassifier, or give rows in memory, such as those that its compute() makes."
            )
        if kind == "LazyFrame":
            raise ValueError(f"Got a {kind} of {library}, a query that has no rows yet: give what its collect() makes.")


def refuse_times(X: Any) -> None:
    """Raise ValueError for dates and durations, which would become numbers of a unit that nobody chose."""
    how = "turn them into numbers, such as days since a first date, or leave them out."
    if isinstance(X, np.ndarray) and _are_times(X):
        raise ValueError(f"X has dates or durations ({X.dtype}); {how}")
    if is_table(X) and not isinstance(X, ColumnTable):
        # Types first: to take a column of numbers out of a frame takes longer than to predict a row.
        frame = nw.from_native(_native(X), eager_only=True)
        types = frame.schema.items()
        objects = [name for name, dtype in types if dtype in OBJECTS and _are_times(frame.get_column(name))]
        times = [str(name) for name, dtype in types if dtype.is_temporal() or name in objects]
        if times:
            raise ValueError(f"X has dates or durations in the columns {times}; {how}")


def _are_times(values: Any) -> bool:
    """Return whether the first value of an array, or of a column of objects, is a date or a duration."""
    kind = getattr(values.dtype, "kind", "O")
    return kind in "mM" or (kind == "O" and any(_is_time(type(value)) for value in np.ravel(values[:1])))


def _is_time(kind: type) -> bool:
    return issubclass(kind, TIME_TYPES) or kind.__name__ == "Period"


def index_columns(X: Any) -> list[str]:
    """Return the columns into which pandas wrote an index; in polars, those with a name that pandas made up."""
    if not is_table(X):
        return []
    X = _native(X)
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


def with_names(X: Any, fitted: Sequence[str] = ()) -> Any:
    """Return a table without the columns of its index, as a type whose names scikit-learn reads; other X unchanged.

    Index columns that a model was ``fitted`` to stay.

    Raises
    ------
    ValueError
        For a table of which several columns have one name.
    """
    if not is_table(X):
        return X
    X = _native(X)
    repeated = [name for name, count in Counter(_names(X)).items() if count > 1]
    if repeated:
        raise ValueError(
            f"X has several columns of the same name: {reprlib.repr(repeated)}; give each column a name of its own."
        )
    left_out = [name for name in index_columns(X) if name not in fitted]
    return nw.from_native(X, eager_only=True).drop(left_out).to_native() if left_out else X


def columns_of(X: Any) -> list[Column]:
    """Return the columns of a table, or of an array (n, d).

    Text, and what a library calls categories, dictionaries or enumerations, are levels; numbers and truth values are
    numbers, also as Python's objects.

    Raises
    ------
    ValueError
        For columns of something else, which it names, and if there are no columns or no rows.
    """
    n_rows, n_columns = X.shape
    if not n_rows or not n_columns:
        raise ValueError(f"X has {n_rows} rows and {n_columns} columns; give a row and a column or more.")
    if isinstance(X, ColumnTable):
        return list(X.columns)
    if not is_table(X):
        return [_column(f"column {j}", X[:, j]) for j in range(n_columns)]
    X = _native(X)
    series = nw.from_native(X, eager_only=True).iter_columns()
    return [_series_column(str(name), one) for name, one in zip(_names(X), series, strict=True)]


def _series_column(name: str, series: Any) -> Column:
    """Return the column of a narwhals series."""
    dtype = series.dtype
    if dtype.is_temporal():
        raise _unusable(name, TIMES)
    if dtype.is_nested() or dtype == nw.Binary:
        raise _unusable(name, NESTED)
    if isinstance(dtype, nw.Categorical | nw.Enum):
        # pandas has the codes, and levels that may be numbers.
        categories: Any = getattr(series.to_native(), "cat", None)
        if hasattr(categories, "codes"):
            codes, levels = categories.codes.to_numpy().astype(np.intp), categories.categories
        else:
            codes, levels = _distinct(series.to_list())
        return Levels(name, codes, _checked_levels(name, levels))
    values = series.to_numpy()
    # Missing values, of whichever library, make of numbers an array of doubles or of objects.
    column, is_narrow = _column(name, values), dtype == nw.Float32 or values.dtype == np.float16
    return Numbers(name, column.values.astype(np.float32)) if isinstance(column, Numbers) and is_narrow else column


def count_missing(column: Column) -> int:
    return int(np.count_nonzero(np.isnan(column.values) if isinstance(column, Numbers) else column.codes < 0))


def has_missing(column: Column) -> bool:
    return count_missing(column) > 0


def as_levels(column: Column) -> Levels:
    """Return a column with its distinct numbers as levels."""
    if isinstance(column, Levels):
        return column
    is_known = ~np.isnan(column.values)
    levels, inverse = np.unique(column.values[is_known], return_inverse=True)
    codes = np.full(len(column), -1)
    codes[is_known] = inverse
    return Levels(column.name, codes, levels.tolist())


def as_numbers(column: Column) -> Numbers:
    """Return a column with levels as numbers; raise ValueError for text."""
    if isinstance(column, Numbers):
        return column
    if any(isinstance(level, str) for level in column.levels):
        raise ValueError(
            f"The column {column.name!r} is text, such as {next(iter(column.levels))!r}, and categorical_features does "
            "not name it: name it there, turn it into numbers, or leave it out."
        )
    values = np.array([*map(float, column.levels), np.nan])
    return Numbers(column.name, values[column.codes])


def _unusable(name: str, what: str) -> ValueError:
    return ValueError(f"The column {name!r} has {what}.")


def _column(name: str, values: np.ndarray) -> Column:
    """Return the column of an array (n,) of numbers, or of Python objects that are all text or all numbers."""
    if values.dtype.kind in "biuf":
        return Numbers(name, values.astype(np.float32 if values.dtype == np.float32 else np.float64, copy=False))
    given = values.astype(object).tolist() if values.dtype.kind not in "mM" else [values.ravel()[0]]
    missing = [is_missing(value) for value in given]
    kinds = {type(value) for value, absent in zip(given, missing, strict=True) if not absent}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return Levels(name, *_distinct(given))
    if any(map(_is_time, kinds)):
        raise _unusable(name, TIMES)
    if all(issubclass(kind, numbers.Real | Decimal | np.bool_) for kind in kinds):
        pairs = zip(given, missing, strict=True)
        return Numbers(name, np.array([np.nan if absent else float(value) for value, absent in pairs], dtype=float))
    if all(issubclass(kind, str | numbers.Real | Decimal | np.bool_) for kind in kinds):
        raise _unusable(name, "both text and numbers; make them all one or the other, as astype(str) does")
    raise _unusable(name, NESTED)


def _distinct(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return positions (n,) in the distinct values, -1 for missing values, and the distinct values in row order."""
    places: dict[Any, int] = {}
    codes = [-1 if is_missing(value) else places.setdefault(value, len(places)) for value in values]
    return np.array(codes, dtype=np.intp), list(places)


def _checked_levels(name: str, levels: Iterable[Any]) -> list[Level]:
    """Return levels as Python text or numbers; raise ValueError for anything else."""
    found: list[Level] = [value.item() if isinstance(value, np.generic) else value for value in levels]
    if any(_is_time(type(value)) for value in found):
        raise _unusable(name, TIMES)
    is_text = [isinstance(value, str) for value in found]
    if not all(text or isinstance(value, int | float) for text, value in zip(is_text, found, strict=True)):
        raise _unusable(
            name, f"categories that are neither text nor numbers, such as {found[0]!r}; turn them into text"
        )
    if any(is_text) and not all(is_text):
        raise _unusable(name, "categories of which some are text and some numbers; make them all one or the other")
    return found
