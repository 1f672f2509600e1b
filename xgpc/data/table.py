"""Read rows once: data frames of any library (with narwhals), arrays and sparse matrices become one ``Table``."""

from __future__ import annotations

import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np

from ..names import MatrixLike
from ..ranges import BadRow, DoubtfulRow, as_csr
from ..rows.block import dense
from ..rows.columnar import index_in
from .checks import is_missing, refuse_not_in_memory

HOW_WITH_TIMES = "turn them into numbers, such as days since a first date, or leave them out."
TIMES = (date, time, timedelta, np.datetime64, np.timedelta64)
NUMBERS = (numbers.Real, Decimal, np.bool_)
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*|\s*[-+]?(nan|inf(inity)?)\s*", re.IGNORECASE)
CATEGORICAL = "categorical (astype('category') or categorical_features in Python, --categorical of the command)"
# If this share of a column of text looks like numbers, the others are probably mistakes.
NEARLY_ALL = 0.9

Frame: TypeAlias = nw.DataFrame[Any]
# A value of a categorical column.
Level = str | int | float | bool


@dataclass(frozen=True, eq=False)
class Column:
    """A column of numbers (n,), NaN if missing, or of positions (n,) in ``levels``, -1 if missing."""

    name: str
    values: np.ndarray
    levels: Sequence[Level] | None = None
    is_declared: bool = False  # whether the library of the table calls it categorical

    @property
    def n_missing(self) -> int:
        return int(np.count_nonzero(np.isnan(self.values) if self.levels is None else self.values < 0))

    def numbers(self) -> np.ndarray:
        """Return the values (n,) of numbers, or of levels that are numbers; raise ValueError for text."""
        if self.levels is None:
            return self.values
        if any(isinstance(level, str) for level in self.levels):
            raise BadRow(*self._text_at_fault("must have numbers"))
        return np.array([*map(float, self.levels), np.nan])[self.values]

    def _text_at_fault(self, beginning: str, consequence: str = "") -> tuple[str, int]:
        """Return a message on the first row with text that is no number, or else with text, and this row."""
        place = first_text(self.levels or ())
        row = int(np.argmax(self.values == place))
        return (
            f"The column {self.name!r} {beginning}, but row {row} has the text {(self.levels or ())[place]!r}"
            f"{consequence}. Correct it, or leave the cell empty; decimal commas are read with decimal=',' of "
            f"pandas.read_csv. Or fit with the column {CATEGORICAL}."
        ), row

    def doubt(self) -> DoubtfulRow | None:
        """Return a warning if text that becomes levels was probably meant as numbers."""
        levels = [] if self.is_declared else list(map(str, self.levels or ()))
        is_number = [bool(NUMBER.fullmatch(level)) for level in levels]
        looks = np.array([bool(NUMBER.fullmatch(level.replace(",", "."))) for level in levels])
        if all(is_number) or np.mean(looks[self.values[self.values >= 0]]) < NEARLY_ALL:
            return None
        return DoubtfulRow(*self._text_at_fault("has numbers in nearly all rows", ", which makes levels of all"))

    def as_levels(self) -> tuple[np.ndarray, Sequence[Level]]:
        """Return positions (n,) and levels; distinct numbers become levels."""
        if self.levels is not None:
            return self.values, self.levels
        is_known = ~np.isnan(self.values)
        levels, inverse = np.unique(self.values[is_known], return_inverse=True)
        codes = np.full(len(self.values), -1)
        codes[is_known] = inverse
        return codes, levels.tolist()


class Table(NamedTuple):
    """Rows that are given to a fit or a prediction.

    Attributes
    ----------
    rows : frame of narwhals, CSR matrix, or anything else that NumPy makes an array of
    native : the same as scikit-learn takes it
    names : of the columns of a frame, if all are text, or None
    labels : the names of a frame's columns as text, if not all are text, or None: scikit-learn does not compare these
    index_columns : columns of a data frame's index, which were left out
    """

    rows: MatrixLike
    native: MatrixLike
    names: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    index_columns: Sequence[str] = ()

    @classmethod
    def of(cls, X: MatrixLike, fitted: Sequence[str] = ()) -> Table:
        """Read rows without index columns, but for those that a model was ``fitted`` to.

        Raises
        ------
        ValueError
            For rows that are not in memory, masked values, sparse matrices that contradict themselves, columns with the
            same name, and for dates and durations, which would become numbers of a unit that nobody chose.
        """
        refuse_not_in_memory(X)
        frame = _frame(X)
        if frame is None:
            X = as_csr(X)
            if isinstance(X, np.ndarray) and _are_times(X):
                raise ValueError(f"X has dates or durations ({X.dtype}); {HOW_WITH_TIMES}")
            return cls(X, X)
        index = [name for name in _index_columns(frame) if name not in fitted]
        frame = frame.drop(index) if index else frame
        # To take a column out of a frame takes longer than to predict a row: only objects are looked at.
        times = [
            str(name)
            for name, dtype in frame.schema.items()
            if dtype.is_temporal() or (dtype in (nw.Object, nw.Unknown) and _are_times(frame.get_column(name)))
        ]
        if times:
            raise ValueError(f"X has dates or durations in the columns {times}; {HOW_WITH_TIMES}")
        columns = frame.columns
        is_text = all(isinstance(name, str) for name in columns)
        names, labels = (tuple(columns) or None, None) if is_text else (None, tuple(map(str, columns)))
        return cls(frame, frame.to_native(), names, labels, index)

    @property
    def is_frame(self) -> bool:
        return isinstance(self.rows, nw.DataFrame)

    def array(self) -> np.ndarray:
        """Return the rows as a two-dimensional array of any type; raise ValueError for other shapes."""
        array = np.asarray(dense(self.native))
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D array, or a table; got a {type(self.native).__name__} of shape {array.shape}. Reshape "
                "your data: a single row is [row], or a data frame of one row."
            )
        return array

    def columns(self) -> list[Column]:
        """Return the columns.

        Text, and what a library calls categories, dictionaries or enumerations, are levels; numbers and truth values
        are numbers, also as Python's objects.

        Raises ValueError for columns of something else, which it names.
        """
        if self.is_frame:
            return [_series_column(str(name), series) for name, series in self.rows.to_dict(as_series=True).items()]
        return [_column(f"feature {j}", column) for j, column in enumerate(self.array().T)]


def _frame(X: MatrixLike) -> Frame | None:
    """Return a data frame (pandas, polars, ...), or a table or batch of Arrow, as a frame of narwhals, None for others.

    Raise ValueError if columns have the same name.
    """
    if isinstance(X, np.ndarray):
        return None
    arrow = nw.dependencies.get_pyarrow()
    if arrow is not None and isinstance(X, arrow.RecordBatch):
        X = arrow.Table.from_batches([X])
    if not nw.dependencies.is_into_dataframe(X):
        return None
    try:
        return nw.from_native(X, eager_only=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"{error} Rename the columns, or leave some out: their names tell them apart.") from error


def _are_times(values: MatrixLike) -> bool:
    """Return whether the first value of an array, or of a column of objects, is a date or a duration."""
    kind = getattr(values.dtype, "kind", "O")
    first = [type(value) for value in np.ravel(values[:1])] if kind == "O" else []
    return kind in "mM" or any(issubclass(type_, TIMES) or type_.__name__ == "Period" for type_ in first)


def _index_columns(frame: Frame) -> list[str]:
    """Return the columns into which pandas wrote an index; in polars, those with a name that pandas made up."""
    if frame.implementation.is_pyarrow():
        return index_in(frame.to_native().schema)
    is_polars = frame.implementation.is_polars()
    return [name for name in frame.columns if re.fullmatch(r"__index_level_\d+__", name)] if is_polars else []


def note_of_index(names: Sequence[str]) -> str:
    """Return a sentence on the columns of an index, one or more."""
    which = f"The columns {list(names)} are" if len(names) > 1 else f"The column {names[0]!r} is"
    return f"{which} the index of a data frame that pandas wrote, and no feature."


def _series_column(name: str, series: nw.Series[Any]) -> Column:
    dtype = series.dtype
    are_levels = isinstance(dtype, nw.Categorical | nw.Enum)
    if are_levels or isinstance(dtype, nw.Int128 | nw.UInt128):
        values = np.empty(len(series), dtype=object)
        values[:] = series.to_list()
        return _column(name, values, are_levels)
    values = series.to_numpy()
    # Missing values, of whichever library, make of numbers an array of doubles or of objects.
    column = _column(name, values)
    is_narrow = dtype == nw.Float32 and column.levels is None
    return Column(name, column.values.astype(np.float32)) if is_narrow else column


def _column(name: str, values: np.ndarray, are_levels: bool = False) -> Column:
    """Return the column of an array (n,) of numbers, or of Python objects that are all text or all numbers."""
    if values.dtype.kind in "biuf" and values.ndim == 1:
        return Column(name, values.astype(np.float32 if values.dtype == np.float32 else np.float64, copy=False))
    # A call for each text would take most of the time of a table's predictions.
    objects = [None if type(x) is not str and is_missing(x) else x for x in values.astype(object).tolist()]
    kinds = {type(value) for value in objects if value is not None}
    if others := sorted(kind.__name__ for kind in kinds if not issubclass(kind, (str, *NUMBERS))):
        raise ValueError(
            f"The column {name!r} has values that are neither numbers nor text, of type {others[0]}; make text of them "
            "with astype(str), make columns of numbers, or leave it out."
        )
    if len({issubclass(kind, str) for kind in kinds}) > 1:
        raise ValueError(
            f"The column {name!r} has both text and numbers; make them all one or the other, as astype(str) does. Row "
            f"{(row := first_text(objects))} has the text {objects[row]!r}."
        )
    if are_levels or any(issubclass(kind, str) for kind in kinds):
        distinct = [value for value in dict.fromkeys(objects) if value is not None]
        places = {None: -1} | {value: place for place, value in enumerate(distinct)}
        codes = np.fromiter(map(places.__getitem__, objects), np.intp, len(objects))
        levels = [level if isinstance(level, str | int) else float(level) for level in distinct]
        return Column(name, codes, levels, are_levels)
    return Column(name, np.array([np.nan if value is None else float(value) for value in objects]))


def first_text(values: Sequence[object]) -> int:
    """Return the place of the first text that is no number, or else of the first text."""
    degrees = [isinstance(value, str) and 2 - bool(NUMBER.fullmatch(value)) for value in values]
    return degrees.index(max(degrees))


def orders_of(y: MatrixLike) -> dict[tuple[Level, ...], None]:
    """Return the orders of the levels of labels, also of a table of one column; an empty dict if they have no order.

    An ordered Categorical of pandas, an Enum of polars and an ordered dictionary of Arrow have an order. The chunks of
    the last may have several.
    """
    frame = _frame(y)
    if frame is not None:
        y = frame.get_column(frame.columns[0]).to_native() if frame.shape[1] == 1 else None
    dtype = getattr(y, "dtype", None)
    if getattr(getattr(dtype, "pyarrow_dtype", getattr(y, "type", None)), "ordered", False):
        chunks = nw.dependencies.get_pyarrow().table({"y": y})["y"].chunks
        return {tuple(chunk.dictionary.to_pylist()): None for chunk in chunks}
    is_ordered = getattr(dtype, "ordered", type(dtype).__name__ == "Enum")
    return {tuple(getattr(dtype, "categories", ())): None} if is_ordered else {}


def levels_in(orders: dict[tuple[Level, ...], None]) -> list[Level] | None:
    """Return the levels of the labels that have ``orders``; None if they have none, ValueError if they have several."""
    if len(orders) > 1:
        raise ValueError(
            f"Chunks or batches of y have different levels, {' and '.join(str(list(order)) for order in orders)}: give "
            "classes, all labels in their order."
        )
    return [level for order in orders for level in order] or None
