"""Tables with names and types: data frames of pandas and polars, and tables of Arrow, as columns of numbers or levels.

None of these libraries is imported: whoever gives a table has imported its own.
"""

from __future__ import annotations

import numbers
import re
import reprlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

TIMES = "dates or durations; turn them into numbers, such as days since a first date, or leave them out"
NESTED = "values that are neither numbers nor text; make columns of these, or leave it out"

# A value of a categorical column.
Level = str | int | float | bool


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers: (n,) float32 or float64, NaN where one is missing."""

    name: str
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: np.ndarray) -> Numbers:
        return Numbers(self.name, self.values[rows])


@dataclass(frozen=True, eq=False)
class Levels:
    """A column of levels: (n,) positions among some distinct ones, -1 where one is missing."""

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
    """A table of columns that were read from a file."""

    columns: Sequence[Column]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.column_stack([as_numbers(column).values for column in self.columns]).astype(dtype, copy=False)


def is_table(X: Any) -> bool:
    """Whether X is a data frame of pandas or polars, a table or batch of Arrow, or one of columns."""
    if isinstance(X, ColumnTable):
        return True
    kind = type(X)
    library = kind.__module__.partition(".")[0]
    if library == "pandas":
        return hasattr(X, "iloc") and hasattr(X, "columns")
    return (library, kind.__name__) in (("polars", "DataFrame"), ("pyarrow", "Table"), ("pyarrow", "RecordBatch"))


def is_arrow(X: Any) -> bool:
    return is_table(X) and type(X).__module__.partition(".")[0] == "pyarrow"


def index_in(schema: Any) -> list[str]:
    """Columns of an Arrow schema that pandas wrote of a data frame's index."""
    described = schema.pandas_metadata or {}
    # An index that only counts is a description there, and no column.
    return [name for name in described.get("index_columns", ()) if isinstance(name, str) and name in schema.names]


def index_columns(X: Any) -> list[str]:
    """Columns of a table that pandas wrote of a data frame's index; of polars by the names that pandas makes up."""
    if is_arrow(X):
        return index_in(X.schema)
    is_polars = is_table(X) and type(X).__module__.partition(".")[0] == "polars"
    return [name for name in X.columns if re.fullmatch(r"__index_level_\d+__", name)] if is_polars else []


def note_of_index(names: Sequence[str]) -> str:
    """What users are told of the columns of an index, or nothing if there are none."""
    if not names:
        return ""
    which = f"The columns {list(names)} are" if len(names) > 1 else f"The column {names[0]!r} is"
    return f"{which} the index of a data frame that pandas wrote, and no feature."


def with_names(X: Any, fitted: Sequence[str] = ()) -> Any:
    """A table or batch of Arrow as a table of features, which scikit-learn knows the names of; other rows as they are.

    The columns of an index are left out, but for those that a model was ``fitted`` to.

    Raises
    ------
    ValueError
        For a table of which several columns have one name.
    """
    if not is_table(X):
        return X
    counts = Counter(X.schema.names if is_arrow(X) else X.columns)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise ValueError(
            f"X has several columns of the same name: {reprlib.repr(repeated)}; give each column a name of its own."
        )
    left_out = [name for name in index_columns(X) if name not in fitted]
    if not is_arrow(X):
        return X.drop(left_out) if left_out else X
    table = X if type(X).__name__ == "Table" else sys.modules["pyarrow"].Table.from_batches([X])
    return table.drop_columns(left_out) if left_out else table


def columns_of(X: Any) -> list[Column]:
    """The columns of a table, or of an array (n, d).

    Text, and what a library calls categories, dictionaries or enumerations, are levels; numbers and truth values are
    numbers, also as Python's objects.

    Raises
    ------
    ValueError
        For columns of something else, which it names, and if there are no columns or no rows.
    """
    library = type(X).__module__.partition(".")[0]
    n_rows, n_columns = X.shape
    if not n_rows or not n_columns:
        raise ValueError(f"X has {n_rows} rows and {n_columns} columns; give a row and a column or more.")
    if isinstance(X, ColumnTable):
        return list(X.columns)
    if not is_table(X):
        return [_array_column(f"column {j}", X[:, j]) for j in range(n_columns)]
    if library == "pandas":
        return [_pandas_column(str(name), X.iloc[:, j]) for j, name in enumerate(X.columns)]
    if library == "polars":
        return [_polars_column(series) for series in X.get_columns()]
    return [_arrow_column(name, column) for name, column in zip(X.schema.names, X.columns, strict=True)]


def count_missing(column: Column) -> int:
    return int(np.count_nonzero(np.isnan(column.values) if isinstance(column, Numbers) else column.codes < 0))


def has_missing(column: Column) -> bool:
    return count_missing(column) > 0


def as_levels(column: Column) -> Levels:
    """Distinct numbers as levels."""
    if isinstance(column, Levels):
        return column
    is_known = ~np.isnan(column.values)
    levels, inverse = np.unique(column.values[is_known], return_inverse=True)
    codes = np.full(len(column), -1)
    codes[is_known] = inverse
    return Levels(column.name, codes, levels.tolist())


def as_numbers(column: Column) -> Numbers:
    """Levels that are numbers as these; ValueError for text."""
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


def _pandas_column(name: str, series: Any) -> Column:
    dtype = series.dtype
    if dtype.name == "category":
        return Levels(name, series.cat.codes.to_numpy().astype(np.intp), checked_levels(name, series.cat.categories))
    if dtype.kind in "mM" or dtype.name.startswith("period"):
        raise _unusable(name, TIMES)
    if dtype.kind in "biuf":
        is_plain = isinstance(dtype, np.dtype) and dtype in (np.float32, np.float64)
        return Numbers(
            name, series.to_numpy() if is_plain else series.to_numpy(dtype=_narrowest(dtype), na_value=np.nan)
        )
    return _object_column(name, series.to_numpy(dtype=object).tolist(), series.isna().to_numpy().tolist())


def _narrowest(dtype: Any) -> type:
    """float32 for columns of it, whichever library's."""
    return np.float32 if str(dtype).lower().startswith(("float32", "float[", "halffloat", "float16")) else np.float64


def _polars_column(series: Any) -> Column:
    polars = sys.modules["polars"]
    dtype, name = series.dtype, series.name
    if dtype.is_temporal():
        raise _unusable(name, TIMES)
    if dtype.is_nested() or dtype == polars.Binary:
        raise _unusable(name, NESTED)
    if dtype.is_numeric() or dtype in (polars.Boolean, polars.Null):
        narrow = dtype == polars.Float32
        values = series.cast(polars.Float32 if narrow else polars.Float64).to_numpy()
        return Numbers(name, values)
    values = series.to_list()
    return _object_column(name, values, [value is None for value in values])


def _arrow_column(name: str, column: Any) -> Column:
    arrow = sys.modules["pyarrow"]
    kinds, kind = arrow.types, column.type
    if kinds.is_temporal(kind):
        raise _unusable(name, TIMES)
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) or kinds.is_boolean(kind):
        narrow = kinds.is_float32(kind) or kinds.is_float16(kind)
        # Through integers, as Arrow has no cast from truth values to numbers with a point.
        column = column.cast(arrow.int8()) if kinds.is_boolean(kind) else column
        values = column.cast(arrow.float32() if narrow else arrow.float64(), safe=False)
        return Numbers(name, values.to_numpy(zero_copy_only=False))
    if kinds.is_null(kind):
        return Numbers(name, np.full(len(column), np.nan))
    if kinds.is_nested(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
        raise _unusable(name, NESTED)
    values = column.to_pylist()
    missing = [value is None for value in values]
    if kinds.is_dictionary(kind):
        codes, levels = _distinct(values, missing)
        return Levels(name, codes, checked_levels(name, levels))
    return _object_column(name, values, missing)


def _array_column(name: str, values: np.ndarray) -> Column:
    if values.dtype.kind in "mM":
        raise _unusable(name, TIMES)
    if values.dtype.kind in "biuf":
        return Numbers(name, values if values.dtype in (np.float32, np.float64) else values.astype(np.float64))
    objects = values.astype(object).tolist()
    return _object_column(name, objects, [value is None or _is_unequal(value) for value in objects])


def _is_unequal(value: Any) -> bool:
    """Whether a value is not equal to itself: NaN, or pandas.NA, which does not say."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _object_column(name: str, values: Sequence[Any], missing: Sequence[bool]) -> Column:
    """Of Python's objects: text, or numbers."""
    kinds = {type(value) for value, absent in zip(values, missing, strict=True) if not absent}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return Levels(name, *_distinct(values, missing))
    if all(issubclass(kind, numbers.Real | Decimal | np.bool_) for kind in kinds):
        pairs = zip(values, missing, strict=True)
        return Numbers(name, np.array([np.nan if absent else float(value) for value, absent in pairs], dtype=float))
    if any(issubclass(kind, date | time | timedelta | np.datetime64 | np.timedelta64) for kind in kinds):
        raise _unusable(name, TIMES)
    if all(issubclass(kind, str | numbers.Real | Decimal | np.bool_) for kind in kinds):
        raise _unusable(name, "both text and numbers; make them all one or the other, as astype(str) does")
    raise _unusable(name, NESTED)


def _distinct(values: Iterable[Any], missing: Iterable[bool]) -> tuple[np.ndarray, list[Any]]:
    """Positions (n,) among the distinct values, -1 where one is missing, and these, in the order of their rows."""
    places: dict[Any, int] = {}
    add: Callable[[Any, int], int] = places.setdefault
    pairs = zip(values, missing, strict=True)
    codes = np.array([-1 if absent else add(value, len(places)) for value, absent in pairs], dtype=np.intp)
    return codes, list(places)


def checked_levels(name: str, levels: Iterable[Any]) -> list[Level]:
    """Levels as Python's text or numbers; ValueError for others."""
    found: list[Level] = [value.item() if isinstance(value, np.generic) else value for value in levels]
    if any(isinstance(value, date | timedelta) for value in found):
        raise _unusable(name, TIMES)
    is_text = [isinstance(value, str) for value in found]
    if not all(text or isinstance(value, int | float) for text, value in zip(is_text, found, strict=True)):
        raise _unusable(
            name, f"categories that are neither text nor numbers, such as {found[0]!r}; turn them into text"
        )
    if any(is_text) and not all(is_text):
        raise _unusable(name, "categories of which some are text and some numbers; make them all one or the other")
    return found
