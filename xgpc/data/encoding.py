"""Encode tables as matrices of numbers: a column for each level of a categorical column, and for missing numbers.

An encoding also holds the limits of features that have values far from all others; an array has limits alone.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..kernels.spec import Groups
from ..status import warn_user
from .far_values import Limit, limits, limits_from_data, within
from .frames import (
    Column,
    Level,
    Levels,
    Numbers,
    as_levels,
    as_numbers,
    columns_of,
    count_missing,
    has_missing,
    is_table,
    with_names,
)

# Two levels of a column are at a distance of one: each has this in its own column of the matrix, and 0 in those of the
# others.
IN_OWN_COLUMN = math.sqrt(0.5)
# Of a categorical column at most, as HistGradientBoostingClassifier has it: each takes a column of the matrix, and a
# few rows of each tell little.
MAX_LEVELS = 255
# Columns or levels that a message names.
LISTED = 10
INDICATOR, REPEATED = "missingindicator_", "repeated_"
# A number that more than this share of the rows have is a state rather than a measure, and what the others have often
# are amounts that rules know. (Two draws of 12 000 of adult's training rows, NLL of 8141 others of these: .285 and .291
# with such levels, .305 and .313 without.) Values of fewer rows than ten share a level: of each alone little is known.
REPEATED_SHARE, LEAST_REPEATED = 0.5, 10
HOW_TO_MISS = (
    "Put in numbers, as sklearn.impute.SimpleImputer does in a pipeline; or give a data frame of pandas or polars, or "
    "a table of Arrow, in which numbers may be missing."
)


@dataclass(frozen=True)
class NumberColumn:
    """The encoding of a column of numbers: the numbers themselves.

    Attributes
    ----------
    name : str
    fill : float
        The training rows' mean, of values within limits, which stands for a missing number.
    has_missing : bool, whether an indicator says which are missing: the training rows missed some
    repeated : tuple of float
        Values that are levels, too, next to the number itself, sorted; most columns have none.
    """

    name: str
    fill: float
    has_missing: bool
    repeated: tuple[float, ...] = ()


@dataclass(frozen=True)
class LevelColumn:
    """The encoding of a categorical column: one column for each level, and one for unknown levels.

    Attributes
    ----------
    name : str
    levels : tuple, of the training rows, sorted
    has_missing : bool, whether to miss a value is a level, too, the last
    """

    name: str
    levels: tuple[Level, ...]
    has_missing: bool


@dataclass(frozen=True)
class Encoding:
    """The encoding of a table or an array as a matrix, learned from training rows: an immutable value.

    The matrix has the columns in their order, a categorical one as a column for each level, to miss a value among
    them, and one for unknown levels; then an indicator for each column of numbers of which the training rows missed
    some; then levels of columns of numbers of which one value has more than half of the training rows, such as gains
    that most have none of: the values of ten rows or more, and one level for all others. Two levels of a column have
    the squared distance 1, whichever they are, and so have one that the training rows had and one that they had not.
    Missing numbers are the mean of the training rows, at a distance of 1 from known ones by their indicator.

    Attributes
    ----------
    columns : tuple of NumberColumn and LevelColumn; empty of an array, whose features stay as they are but for limits
    dtype : "float32", if all numbers are, or "float64"; empty of an array
    limits : tuple of Limit
        Of the columns of the matrix that had values far from all others, and what stands for values beyond these: what
        a linear regression on the other columns says, or the limit.
    """

    columns: tuple[NumberColumn | LevelColumn, ...]
    dtype: str
    limits: tuple[Limit, ...] = ()

    @classmethod
    def learn(
        cls,
        columns: Sequence[Column],
        is_categorical: Sequence[bool],
        rows: np.ndarray,
        weight: np.ndarray | None,
        allow_missing: bool,
    ) -> Encoding:
        """Learn the encoding of a table's columns from the rows with these numbers (r,), and weights (r,) or None.

        Raises
        ------
        ValueError
            For columns of too many levels, of text that is not categorical, or without any number; for numbers that
            are missing, unless they are allowed to be.
        """
        if not allow_missing:
            numbers = [column for column, categorical in zip(columns, is_categorical, strict=True) if not categorical]
            missing = [(column.name, count_missing(column)) for column in numbers if has_missing(column)]
            if missing:
                raise ValueError(f"X has {said_missing(missing)}. {HOW_TO_MISS}")
        found = [
            _levels(as_levels(column), rows) if categorical else _numbers(as_numbers(column), rows, weight)
            for column, categorical in zip(columns, is_categorical, strict=True)
        ]
        given = [column.values.dtype for column in columns if isinstance(column, Numbers)]
        return cls(tuple(found), str(np.result_type(*given)) if given else "float64")

    @cached_property
    def _parts(self) -> list[tuple[int, str]]:
        """The matrix's parts, in order: the number of a column of the table, and the prefix of the part's name."""
        numbers = [(j, one) for j, one in enumerate(self.columns) if isinstance(one, NumberColumn)]
        return [
            *((j, "") for j in range(len(self.columns))),
            *((j, INDICATOR) for j, one in numbers if one.has_missing),
            *((j, REPEATED) for j, one in numbers if one.repeated),
        ]

    @cached_property
    def groups(self) -> Groups:
        """The length scale of each column of the matrix, and the names of the length scales."""
        widths = [len(self._names_of(*part)) for part in self._parts]
        names = tuple(before + self.columns[j].name for j, before in self._parts)
        return Groups(np.repeat(np.arange(len(widths)), widths), names)

    def _names_of(self, j: int, before: str) -> list[tuple[str, str]]:
        """Return the names of a part's columns, and their names for messages."""
        one, name = self.columns[j], self.columns[j].name
        if isinstance(one, LevelColumn):
            levels = [(f"{name}={level}", f"level {level!r} of column {name!r}") for level in one.levels]
            missing = [(f"{name}=missing", f"missing values of column {name!r}")] * one.has_missing
            return [*levels, *missing, (f"{name}=unknown", f"unknown levels of column {name!r}")]
        if before == REPEATED:
            values = [(f"{name}={value:g}", f"value {value:g} of column {name!r}") for value in one.repeated]
            return [*values, (f"{name}={np.nan}", f"other values of column {name!r}")]
        return [(before + name, repr(before + name))]

    @property
    def column_of_matrix(self) -> np.ndarray:
        """The table's column that each column of the matrix was made from."""
        return np.array([j for j, _ in self._parts])[self.groups.index]

    @property
    def has_levels(self) -> bool:
        """Whether there are categorical columns."""
        return any(isinstance(one, LevelColumn) for one in self.columns)

    @property
    def length_scale_names(self) -> tuple[str, ...]:
        """The kernel's length scales: the columns, then ``missingindicator_`` and ``repeated_`` before a name."""
        return self.groups.names

    @property
    def matrix_names(self) -> tuple[str, ...]:
        """Names of the columns of the matrix, and of inducing points."""
        return tuple(name for part in self._parts for name, _ in self._names_of(*part))

    @property
    def described_columns(self) -> list[str]:
        """Names of the columns of the matrix for messages."""
        return [described for part in self._parts for _, described in self._names_of(*part)]

    def encode(self, X: Any) -> np.ndarray:
        """Return the matrix (n, d) of a table or an array with the columns that the encoding was learned from.

        Raises
        ------
        ValueError
            For other columns, for numbers that are infinite, and for those that an array misses in columns in which the
            training rows missed none.

        Warns
        -----
        UserWarning
            For such numbers of a table.
        """
        if not self.columns:
            return self.within_limits(as_array(X))
        if not len(X):
            return np.empty((0, len(self.groups.index)), dtype=self.dtype)
        if not is_table(X):
            return self.within_limits(self.matrix(columns_of(as_array(X)), allow_missing=False))
        return self.within_limits(self.matrix(columns_of(with_names(X, [one.name for one in self.columns]))))

    def within_limits(self, X: Any) -> np.ndarray:
        """Return rows (n, d) of the matrix, or of an array, with values beyond the limits replaced."""
        return within(X, self.limits)

    def matrix(
        self, columns: Sequence[Column], rows: np.ndarray | None = None, allow_missing: bool = True
    ) -> np.ndarray:
        """Encode columns, or their rows with these numbers; see ``encode``."""
        if len(columns) != len(self.columns):
            raise ValueError(f"X has {len(columns)} columns; the model was fitted to {len(self.columns)}.")
        if rows is not None:
            columns = [column.part(rows) for column in columns]
        n = len(columns[0])
        X = np.zeros((n, len(self.groups.index)), dtype=self.dtype)
        unexpected: list[tuple[str, int]] = []
        starts = np.searchsorted(self.groups.index, np.arange(len(self._parts)))
        for start, (j, before) in zip(starts, self._parts, strict=True):
            one = self.columns[j]
            if isinstance(one, LevelColumn):
                X[np.arange(n), start + _places(columns[j], one)] = IN_OWN_COLUMN
                continue
            values = _numbers_of(columns[j], one.name)
            missing = np.isnan(values)
            if before == INDICATOR:
                X[:, start] = missing
            elif before == REPEATED:
                X[np.arange(n), start + _places_of(values, one.repeated)] = IN_OWN_COLUMN
            else:
                X[:, start] = np.where(missing, one.fill, values)
                if not one.has_missing and np.any(missing):
                    unexpected.append((repr(one.name), int(np.sum(missing))))
        if unexpected and not allow_missing:
            raise ValueError(f"X has {said_missing(unexpected)}. {HOW_TO_MISS}")
        if unexpected:
            warn_of_means(unexpected)
        return X

    def to_data(self) -> dict[str, Any]:
        """Return the encoding as values that JSON can hold."""
        return {
            **({"limits": [[*one[:-1], list(one.slopes)] for one in self.limits]} if self.limits else {}),
            "dtype": self.dtype,
            "columns": [
                {"name": one.name, "fill": one.fill, "has_missing": one.has_missing, "repeated": list(one.repeated)}
                if isinstance(one, NumberColumn)
                else {"name": one.name, "levels": list(one.levels), "has_missing": one.has_missing}
                for one in self.columns
            ],
        }

    @classmethod
    def from_data(cls, data: Any) -> Encoding:
        """Return the encoding that ``to_data`` described; raise ValueError for anything else."""
        if not (isinstance(data, dict) and sorted({"limits": [], **data}) == ["columns", "dtype", "limits"]):
            raise ValueError(f"its encoding is not valid: {reprlib.repr(data)}")
        found = data.get("limits", [])
        # An array has limits alone.
        is_array = data["columns"] == [] and data["dtype"] == "" and found
        is_table = data["columns"] and data["dtype"] in ("float32", "float64")
        if not (is_array or is_table) or not isinstance(data["columns"], list):
            raise ValueError(f"its encoding is not valid: {reprlib.repr(data)}")
        return cls(tuple(map(_column_from_data, data["columns"])), data["dtype"], limits_from_data(found))


def of_table(encoding: Encoding | None) -> Encoding | None:
    """Return the encoding of a table; None for the encoding of an array, which has limits alone."""
    return encoding if encoding is not None and encoding.columns else None


def is_categorical(setting: Any, X: Any, columns: Sequence[Column]) -> list[bool]:
    """Return which columns of X the parameter ``categorical_features`` makes categorical.

    Raises
    ------
    ValueError
        For names, positions or a mask that do not fit the columns.
    """
    if setting is None:
        return [False] * len(columns)
    if isinstance(setting, str):
        return [is_table(X) and isinstance(column, Levels) for column in columns]
    given = list(setting)
    if given and all(isinstance(one, bool | np.bool_) for one in given):
        if len(given) != len(columns):
            raise ValueError(f"categorical_features is a mask of {len(given)} columns; X has {len(columns)}.")
        return [bool(one) for one in given]
    names = [column.name for column in columns] if is_table(X) else []
    chosen = [False] * len(columns)
    for one in given:
        place = names.index(one) if isinstance(one, str) and one in names else one
        if isinstance(place, str):
            what = f"its columns are {names[:LISTED]}" if names else "it has no names of columns: give their positions"
            raise ValueError(f"categorical_features names {one!r}, which X does not have; {what}.")
        if not 0 <= place < len(columns):
            raise ValueError(f"categorical_features has {one}; positions are from 0 to {len(columns) - 1} here.")
        chosen[int(place)] = True
    return chosen


def said_missing(counts: Sequence[tuple[str, int]]) -> str:
    """Return a phrase on how many numbers are missing, and in which columns."""
    total, more = sum(count for _, count in counts), len(counts) - LISTED
    listed = ", ".join(f"{count} in {name}" for name, count in counts[:LISTED])
    return (
        f"{total} missing number{'s' if total > 1 else ''} (NaN): {listed}"
        f"{f' and others in {more} more columns' if more > 0 else ''}"
    )


def warn_of_means(counts: Sequence[tuple[str, int]]) -> None:
    """Warn of missing numbers in columns in which the training rows missed none."""
    warn_user(
        f"X has {said_missing(counts)}. The training rows missed none there: their mean stands for such a number, as "
        "if it had been seen. Fit with rows that miss some if predictions are to know of it."
    )


def as_array(X: Any) -> np.ndarray:
    """Return a two-dimensional array of any dtype; raise ValueError for other shapes."""
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, rows and columns; got an array of shape {X.shape}.")
    return X


def _column_from_data(data: Any) -> NumberColumn | LevelColumn:
    is_named = isinstance(data, dict) and isinstance(data.get("name"), str)
    if is_named and sorted(data) == ["fill", "has_missing", "name", "repeated"]:
        fill, has_missing, repeated = data["fill"], data["has_missing"], data["repeated"]
        are_values = isinstance(repeated, list) and len(repeated) <= MAX_LEVELS and all(map(_is_finite, repeated))
        is_right = _is_finite(fill) and isinstance(has_missing, bool)
        if is_right and are_values and repeated == sorted(set(repeated)):
            return NumberColumn(data["name"], fill, has_missing, tuple(repeated))
    elif is_named and sorted(data) == ["has_missing", "levels", "name"]:
        levels, has_missing = data["levels"], data["has_missing"]
        if isinstance(levels, list) and len(levels) <= MAX_LEVELS and isinstance(has_missing, bool):
            are_text = all(isinstance(level, str) for level in levels)
            are_numbers = all(isinstance(level, int | float) and abs(level) < math.inf for level in levels)
            if (are_text or are_numbers) and levels == sorted(set(levels)) and len(levels) + has_missing:
                return LevelColumn(data["name"], tuple(levels), has_missing)
    raise ValueError(f"its encoding is not valid: {reprlib.repr(data)}")


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _levels(column: Levels, rows: np.ndarray) -> LevelColumn:
    """Learn the sorted levels of some rows."""
    codes = column.codes[rows]
    counts = np.bincount(codes + 1, minlength=len(column.levels) + 1)
    present = sorted((level for level, count in zip(column.levels, counts[1:], strict=True) if count))
    if not present:
        raise ValueError(f"The column {column.name!r} has no values; leave it out.")
    if len(present) > MAX_LEVELS:
        raise ValueError(
            f"The column {column.name!r} has {len(present)} distinct levels, such as {present[0]!r}; a categorical "
            f"column has at most {MAX_LEVELS}. Leave it out if it names the rows; else put rare levels together, or "
            "make a number of it, as sklearn.preprocessing.TargetEncoder does."
        )
    return LevelColumn(column.name, tuple(present), bool(counts[0]))


def _numbers(column: Numbers, rows: np.ndarray, weight: np.ndarray | None) -> NumberColumn:
    values = column.values[rows]
    known = ~np.isnan(values)
    if not np.any(known):
        raise ValueError(f"The column {column.name!r} has no values; leave it out.")
    _refuse_infinite(column.name, values)
    weight = np.ones(len(values)) if weight is None else weight
    values, weight = values[known].astype(np.float64), weight[known]
    # Of values that are far from all others, codes perhaps, the mean would be none of the others'. Numbers that are too
    # large for a sum are refused in the matrix.
    with np.errstate(over="ignore"):
        low, high = limits(values, weight)
        near = (values >= low) & (values <= high)
        fill = float(np.average(values[near], weights=weight[near]))
    return NumberColumn(column.name, fill, not np.all(known), _repeated(values, weight))


def _repeated(values: np.ndarray, weight: np.ndarray) -> tuple[float, ...]:
    """Return the values of a column that become levels, too, from rows with weights."""
    distinct, inverse = np.unique(values, return_inverse=True)
    counts = np.bincount(inverse, weight)
    often = distinct[counts >= LEAST_REPEATED]
    # Of a column of two values levels tell nothing that the number does not.
    is_uneven = len(distinct) > 2 and np.max(counts) > REPEATED_SHARE * np.sum(counts)
    return tuple(often.tolist()) if is_uneven and 1 < len(often) <= MAX_LEVELS else ()


def _places_of(values: np.ndarray, repeated: tuple[float, ...]) -> np.ndarray:
    """Return the positions (n,) of numbers in sorted ones; all other numbers, and NaN, get one position more."""
    places = np.minimum(np.searchsorted(repeated, values), len(repeated) - 1)
    return np.where(np.asarray(repeated)[places] == values, places, len(repeated))


def _numbers_of(column: Column, name: str) -> np.ndarray:
    """Return the values (n,) of a column of numbers, NaN for missing ones; raise ValueError for text."""
    try:
        values = as_numbers(column).values
    except ValueError as error:
        raise ValueError(f"The column {name!r} has text; the model was fitted to numbers there.") from error
    _refuse_infinite(name, values)
    return values


def _refuse_infinite(name: str, values: np.ndarray) -> None:
    (infinite,) = np.nonzero(np.isinf(values))
    if len(infinite):
        raise ValueError(
            f"The column {name!r} has not only finite numbers: row {infinite[0]} has {values[infinite[0]]}. Leave out "
            "such rows, or put in numbers."
        )


def _places(column: Column, one: LevelColumn) -> np.ndarray:
    """Return each row's position (n,) in the columns of a categorical column."""
    given = as_levels(column)
    were_text = isinstance(one.levels[0], str) if one.levels else None
    are_text = isinstance(given.levels[0], str) if len(given.levels) else were_text
    if were_text is not None and are_text != were_text:
        what = ("text", "numbers") if were_text else ("numbers", "text")
        raise ValueError(
            f"The column {one.name!r} has {what[1]}, such as {given.levels[0]!r}; the model was fitted to {what[0]}, "
            f"such as {one.levels[0]!r}. Give it as it was."
        )
    unknown = len(one.levels) + one.has_missing
    known = {level: place for place, level in enumerate(one.levels)}
    # The last is of those that are missing, whose code is -1.
    places = [known.get(level, unknown) for level in given.levels]
    places.append(len(one.levels) if one.has_missing else unknown)
    return np.array(places, dtype=np.intp)[given.codes]
