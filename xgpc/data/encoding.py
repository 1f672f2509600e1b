"""Encode tables as matrices of numbers: a column for each level of a categorical column, and for missing numbers.

An encoding also holds the limits of features that have values far from all others, and the warps of features with heavy
tails; an array has these alone.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from ..kernels.features import Groups
from ..names import LISTED, MatrixLike
from ..ranges import LARGEST_FEATURE, small_is_zero, varies
from ..rows.block import dense
from ..status import warn_user
from .checks import check_features, said_missing
from .table import Column, Level, Table, first_text
from .tails import REPEATED_SHARE, Limit, Warp, from_data, limits, warped, within

FLOATS = (np.float64, np.float32)
# Each level has this in its own column of the matrix and 0 in the others, so that two levels are at a distance of 1.
IN_OWN_COLUMN = math.sqrt(0.5)
# Most levels of a column, as in HistGradientBoostingClassifier: each takes a column of the matrix. If there are more,
# levels of fewer than LEAST_OF_LEVEL rows count as unknown, because a single row says little about others.
MAX_LEVELS, LEAST_OF_LEVEL = 255, 2
# Rows with levels of their own that a small table may have.
FEW_ALONE = 10
INDICATOR, REPEATED = "missingindicator_", "repeated_"
# Numbers beside one that more than ``REPEATED_SHARE`` of the rows have are often amounts that rules fix (NLL of adult's
# test rows .285 with levels for them, .305 without). Values of fewer than ten rows share one level, because little is
# known of each.
LEAST_REPEATED = 10
HOW_TO_MISS = (
    "Put in numbers, as sklearn.impute.SimpleImputer does in a pipeline; or give a data frame of pandas or polars, or "
    "a table of Arrow, in which numbers may be missing."
)


@dataclass(frozen=True)
class ColumnEncoding:
    """The encoding of a column of a table.

    Attributes
    ----------
    name : str
    levels : tuple, sorted
        The training rows' levels, if the column is categorical; none if no row has a value: the column is constant.
        Else values that many training rows have: they are levels next to the number itself.
    has_missing : bool
        Whether the training rows missed some values: these are the last known level, or have an indicator.
    fill : float or None
        The training rows' mean, of values within limits, which stands for a missing number; None for a categorical
        column.
    is_single : bool
        Whether the training rows' numbers were float32; other numbers are then rounded to float32 before they are
        compared with the levels.
    """

    name: str
    levels: tuple[Level, ...]
    has_missing: bool
    fill: float | None
    is_single: bool = False

    def __post_init__(self) -> None:
        numbers = [*(() if self.has_text else self.levels), *(() if self.fill is None else (self.fill,))]
        is_valid = isinstance(self.name, str) and len(self.levels) <= MAX_LEVELS
        is_valid &= all(isinstance(truth, bool) for truth in (self.has_missing, self.is_single))
        is_valid &= all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
        if not is_valid or self.levels != tuple(sorted(set(self.levels))):
            raise ValueError(f"its encoding is not valid: {reprlib.repr(self)}")

    @property
    def is_categorical(self) -> bool:
        return self.fill is None

    @property
    def has_text(self) -> bool:
        """Whether there are levels, and all are text."""
        return self.is_categorical and bool(self.levels) and all(isinstance(level, str) for level in self.levels)

    @property
    def n_known(self) -> int:
        """Number of levels, a missing value included if it is one; unknown levels come after these."""
        return len(self.levels) + (self.is_categorical and self.has_missing)

    def names(self, prefix: str) -> list[str]:
        """Return the names of the columns of the matrix in a part with this prefix."""
        if not self.is_categorical and prefix != REPEATED:
            return [prefix + self.name]
        shown = [level if isinstance(level, str) else f"{level:.15g}" for level in self.levels]
        missing = ["missing"] if self.n_known > len(self.levels) else []
        return [f"{self.name}={level}" for level in (*shown, *missing, "unknown")]

    def places(self, column: Column) -> np.ndarray:
        """Return the position (n,) of each row's level among the columns of the matrix."""
        are_numbers = self.is_categorical and not self.has_text and column.levels is None
        if are_numbers and any(abs(float(level)) >= 2.0**53 for level in self.levels):
            raise ValueError(
                f"The column {self.name!r} is categorical, and has numbers of size 2**53 or more, which are rounded: "
                "integers could coincide. Make text of them with astype(str), in training rows and others."
            )
        (codes, levels), own = column.as_levels(), self.levels
        has_both = bool(len(levels) and own)
        if has_both and isinstance(levels[0], str) != isinstance(own[0], str):
            kind, fitted_kind = ("text", "numbers") if isinstance(levels[0], str) else ("numbers", "text")
            raise ValueError(
                f"The column {self.name!r} has {kind}, such as {levels[first_text(levels)]!r}; the model was fitted to "
                f"{fitted_kind}, such as {own[0]!r}. Give it as it was."
            )
        if has_both and (self.is_single or column.values.dtype == np.float32):
            with np.errstate(over="ignore"):
                own, levels = (np.array(numbers, dtype=np.float32).tolist() for numbers in (own, levels))
        place_of = {level: place for place, level in enumerate(own)}
        # The last is for missing values, whose code is -1.
        places = [*(place_of.get(level, self.n_known) for level in levels), len(self.levels)]
        return np.array(places, dtype=np.intp)[codes]


def _is_date(text: str) -> bool:
    """Whether text is a date, perhaps with a time, in the form of ISO 8601 with hyphens."""
    try:
        return text[4:5] == "-" and datetime.fromisoformat(text) is not None
    except ValueError:
        return False


def learned_levels(column: Column, rows: np.ndarray, weight: np.ndarray) -> ColumnEncoding:
    """Return the encoding of a categorical column with the levels of some rows, or the most frequent if they are many.

    The other levels count as unknown. A row of weight w counts as w rows.
    """
    codes, levels = column.as_levels()
    counts = np.bincount(codes[rows] + 1, weight, len(levels) + 1)
    n_rows = {level: count for level, count in zip(levels, counts[1:], strict=True) if count}
    kept = list(n_rows)
    if len(kept) > MAX_LEVELS:
        frequent = sorted(kept, key=lambda level: (-n_rows[level], level))[:MAX_LEVELS]
        kept = [level for level in frequent if n_rows[level] >= LEAST_OF_LEVEL] or frequent[:1]
    # If no row has a value, any later one counts as one level, as a missing one does.
    has_missing, is_single = bool(n_rows and counts[0]), column.values.dtype == np.float32
    return ColumnEncoding(column.name, tuple(sorted(kept)), has_missing, None, is_single)


def learned_numbers(column: Column, rows: np.ndarray, weight: np.ndarray) -> ColumnEncoding:
    """Return the encoding of a column of numbers: the mean of some rows (r,) with weights (r,), and its levels."""
    numbers = column.numbers()[rows]
    # Numbers that are infinite, or too large for a sum, are refused in the matrix.
    is_usable = np.abs(numbers, dtype=np.float64) <= LARGEST_FEATURE
    has_missing = bool(np.any(np.isnan(numbers)))
    if not np.any(is_usable):
        is_empty = bool(np.all(np.isnan(numbers)))
        return ColumnEncoding(column.name, (), has_missing and not is_empty, None if is_empty else 0.0)
    values, weight = numbers[is_usable].astype(np.float64), weight[is_usable]
    # Values that are far from all others, perhaps codes, would move the mean away from the others.
    low, high = limits(values, weight)
    is_within = (values >= low) & (values <= high)
    fill = float(np.average(values[is_within], weights=weight[is_within]))
    distinct, inverse = np.unique(values, return_inverse=True)
    counts = np.bincount(inverse, weight)
    often = distinct[counts >= LEAST_REPEATED]
    # In a column of two values, levels have no more information than the number.
    differs = len(distinct) > 2 and varies(np.min(numbers[is_usable]), np.max(numbers[is_usable]))
    is_uneven = differs and np.max(counts) > REPEATED_SHARE * np.sum(counts)
    repeated = often.tolist() if is_uneven and 1 < len(often) <= MAX_LEVELS else []
    return ColumnEncoding(column.name, tuple(repeated), has_missing, fill, column.values.dtype == np.float32)


class Part(NamedTuple):
    """Consecutive columns of the matrix, at a ``place``, that were made from one column of the table.

    ``names`` are those of the matrix's columns.
    """

    number: int
    column: ColumnEncoding
    prefix: str
    names: list[str]
    place: slice


@dataclass(frozen=True)
class Encoding:
    """The encoding of a table or an array as a matrix, learned from training rows: an immutable value.

    The matrix has the columns in their order, a categorical one as a column for each level, for missing values among
    them, and one for unknown levels. An indicator follows for each column of numbers of which the training rows missed
    some. Then come levels of columns of numbers in which more than half of the training rows have the same value, such
    as capital gains, which are 0 for most people: one level for each value of ten rows or more, and one for all other
    values. Any two levels have the squared distance 1. Missing numbers are the mean of the training rows, at a distance
    of 1 from known ones by their indicator.

    Attributes
    ----------
    columns : tuple of ColumnEncoding; empty for an array, whose features stay as they are but for limits and warps
    dtype : "float32", if all numbers are, or "float64"; empty for an array
    limits : tuple of Limit
        Of the columns of the matrix that had values far from all others; the limit stands for a value beyond it.
    warps : tuple of Warp
        Of the columns of the matrix that have heavy tails: centre + scale * arcsinh((x - centre) / scale) stands for x.
    n_features, names, labels
        Of the training rows, for the checks of ``encode``; 0 and None before a model publishes the encoding.
    """

    columns: tuple[ColumnEncoding, ...]
    dtype: str
    limits: tuple[Limit, ...] = ()
    warps: tuple[Warp, ...] = ()
    n_features: int = field(default=0, compare=False)
    names: tuple[str, ...] | None = field(default=None, compare=False)
    labels: tuple[str, ...] | None = field(default=None, compare=False)

    @classmethod
    def learn(cls, columns: Sequence[Column], chosen: Sequence[bool], rows: np.ndarray, weight: np.ndarray) -> Encoding:
        """Learn the encoding of a table's columns from the rows with these numbers (r,) and weights (r,).

        ``chosen`` says which columns are categorical. Columns of text that is not categorical raise ValueError.
        """
        encodings = tuple(
            learned_levels(column, rows, weight) if categorical else learned_numbers(column, rows, weight)
            for column, categorical in zip(columns, chosen, strict=True)
        )
        dtypes = [column.values.dtype for column in columns if column.levels is None]
        return cls(encodings, str(np.result_type(*dtypes)) if dtypes else "float64")

    @cached_property
    def parts(self) -> list[Part]:
        """The matrix's parts in order."""
        numbers = [(j, column) for j, column in enumerate(self.columns) if not column.is_categorical]
        prefixes = [
            *((j, "") for j in range(len(self.columns))),
            *((j, INDICATOR) for j, column in numbers if column.has_missing),
            *((j, REPEATED) for j, column in numbers if column.levels),
        ]
        parts, end = [], 0
        for j, prefix in prefixes:
            names = self.columns[j].names(prefix)
            start, end = end, end + len(names)
            parts.append(Part(j, self.columns[j], prefix, names, slice(start, end)))
        return parts

    @cached_property
    def groups(self) -> Groups:
        """The length scale of each column of the matrix, and the names of the length scales."""
        index = np.repeat(np.arange(len(self.parts)), [len(part.names) for part in self.parts])
        names = tuple(part.prefix + part.column.name for part in self.parts)
        return Groups(index, names, np.array([part.number for part in self.parts]))

    def features_of(self, n_columns: int) -> np.ndarray:
        """The feature, or the table's column, that each of the columns (n_columns,) of encoded rows was made from."""
        return self.groups.columns[self.groups.index] if self.columns else np.arange(n_columns)

    def described_levels(self, X: np.ndarray) -> list[str]:
        """Return sentences on columns of which rows of the matrix X (n, d) have unknown, rare, no levels or dates."""
        sentences = []
        for column, place in ((part.column, part.place) for part in self.parts if part.column.is_categorical):
            name, levels = column.name, column.levels
            if not levels:
                sentences.append(f"No row has a value of the column {name!r}, so this column is ignored.")
                continue
            counts = np.count_nonzero(X[:, place], axis=0)
            if counts[-1]:
                sentences.append(
                    f"{counts[-1]} of {len(X)} rows have levels of the column {name!r} that count as one, as unknown "
                    f"levels do; {len(levels)} levels are told apart. Leave out a column that names the rows."
                )
            n_alone = np.count_nonzero(counts[: len(levels)] == 1)
            if n_alone > max(FEW_ALONE, len(X) / 2):
                sentences.append(
                    f"{n_alone} of {len(X)} rows have a level of the column {name!r} that no other row has, and "
                    "that tells nothing of new rows. Leave out a column that names the rows."
                )
            if all(isinstance(level, str) and _is_date(level) for level in levels):
                sentences.append(
                    f"The levels of the column {name!r} are dates, such as {levels[0]!r}, and have no order as levels. "
                    "Turn them into numbers, such as days since a first date, or leave the column out."
                )
        return sentences

    @property
    def length_scale_names(self) -> tuple[str, ...]:
        """The kernel's length scales: the columns, then ``missingindicator_`` and ``repeated_`` before a name."""
        return self.groups.names

    @property
    def matrix_names(self) -> tuple[str, ...]:
        """Names of the columns of the matrix, and of inducing points."""
        return tuple(name for part in self.parts for name in part.names)

    @small_is_zero
    def encode(self, X: MatrixLike) -> np.ndarray:
        """Return the matrix (n, d) of a table or an array with the columns that the encoding was learned from.

        Raises
        ------
        ValueError
            For other columns, for infinite or too large numbers, and, unless the training rows missed numbers in the
            same column, for missing numbers of an array or of a table of numbers alone.

        Warns
        -----
        UserWarning
            For such missing numbers of any other table.
        """
        table = Table.of(X, [column.name for column in self.columns] or self.names or ())
        check_names(table.names, self.names)
        check_names(table.labels, self.labels)
        if self.columns:
            return self.transform(self.matrix(table.columns(), allow_missing=table.is_frame))
        rows = check_array(dense(table.native), dtype=FLOATS, ensure_all_finite=False, ensure_min_samples=0)
        if rows.shape[1] != (self.n_features or rows.shape[1]):
            raise ValueError(f"X has {rows.shape[1]} columns; the model was fitted to {self.n_features}.")
        check_features(rows, self.names)
        return self.transform(rows)

    def transform(self, X: MatrixLike) -> MatrixLike:
        """Return rows (n, d) of the matrix, or of an array, within the limits and warped."""
        return warped(within(X, self.limits), self.warps)

    def transform_vjp(self, X: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return gradients (..., n, d) by rows X (n, d), from those by ``transform(X)``."""
        by_x, limited = np.array(gradient), within(X, self.limits)
        for feature, centre, scale in self.warps:
            # The derivative of arcsinh u is 1 / sqrt(1 + u^2).
            by_x[..., feature] *= 1.0 / np.hypot(1.0, (limited[:, feature] - centre) / scale)
        # A far value has no influence.
        for limit in self.limits:
            by_x[..., limit.is_far(X), limit.feature] = 0.0
        return by_x

    @small_is_zero
    def inverse(self, X: MatrixLike) -> MatrixLike:
        """Return rows (n, d), such as inducing points, with the features in the units of the data.

        Anything but rows of finite numbers with the columns of the matrix, or of the array, raises ValueError.
        """
        X = check_array(X, dtype=FLOATS, input_name="X")
        wanted, least = len(self.matrix_names), 1 + max((warp.feature for warp in self.warps), default=0)
        if X.shape[1] < least or (wanted and X.shape[1] != wanted):
            columns = f"{wanted} columns of matrix_names" if wanted else f"features of the fit, {least} or more"
            raise ValueError(f"X has {X.shape[1]} columns; give the {columns}, as inducing_points_ has them.")
        return warped(X, self.warps, np.sinh)

    def typical(self, mean: np.ndarray) -> np.ndarray:
        """Return a row (d,) of the matrix from the rows' mean (d,): each column's most frequent level.

        A number is the mean, or the value that more than half of a table's rows have.
        """
        row = mean.copy()
        for part in self.parts:
            shares = mean[part.place]
            if part.prefix == INDICATOR:
                row[part.place] = shares > 0.5
            elif part.column.is_categorical or part.prefix == REPEATED:
                level = int(np.argmax(shares))
                row[part.place] = 0.0
                row[part.place.start + level] = IN_OWN_COLUMN
                # The last place has all other numbers, and missing ones.
                if part.prefix == REPEATED and level < len(part.column.levels):
                    value = np.full((1, len(mean)), float(part.column.levels[level]))
                    j = self.parts[part.number].place.start
                    row[j] = warped(value, self.warps)[0, j]
        return row

    def matrix(self, columns: Sequence[Column], allow_missing: bool = True, is_learned: bool = False) -> np.ndarray:
        """Encode columns; see ``encode``. ``is_learned``: from these, whose rows of weight 0 may miss numbers."""
        if len(columns) != len(self.columns):
            raise ValueError(f"X has {len(columns)} columns; the model was fitted to {len(self.columns)}.")
        X = np.zeros((len(columns[0].values), len(self.groups.index)), dtype=self.dtype)
        rows = np.arange(len(X))
        unexpected: list[tuple[str, int]] = []
        for number, column, prefix, _, place in self.parts:
            if column.fill is None or prefix == REPEATED:
                X[rows, place.start + column.places(columns[number])] = IN_OWN_COLUMN
                continue
            values = columns[number].numbers()
            missing = np.isnan(values)
            X[:, place.start] = missing if prefix == INDICATOR else np.where(missing, column.fill, values)
            if not (column.has_missing or is_learned) and np.any(missing):
                unexpected.append((repr(column.name), int(np.sum(missing))))
        if unexpected and not allow_missing:
            raise ValueError(f"X has {said_missing(unexpected)}. {HOW_TO_MISS}")
        if unexpected:
            warn_of_means(unexpected)
        check_features(X, self.matrix_names)
        return X

    def to_data(self) -> dict[str, Any]:
        """Return the encoding as values that JSON can hold."""
        columns, warps = [asdict(column) for column in self.columns], {"warps": list(self.warps)} if self.warps else {}
        # Files of earlier versions do not have what is false.
        for column in columns:
            if not column["is_single"]:
                del column["is_single"]
        return {"dtype": self.dtype, "columns": columns, "limits": list(self.limits), **warps}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Encoding:
        """Return the encoding that ``to_data`` described; raise ValueError for anything else."""
        try:
            columns = tuple(ColumnEncoding(**{**item, "levels": tuple(item["levels"])}) for item in data["columns"])
            limits, warps = from_data(Limit, data["limits"]), from_data(Warp, data.get("warps", ()))
            encoding = cls(columns, data["dtype"], limits, warps)
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"its encoding is not valid: {reprlib.repr(data)}") from error
        # An array has limits and warps alone.
        if encoding.dtype not in (("float32", "float64") if columns else ("",)) or not (columns or limits or warps):
            raise ValueError(f"its encoding is not valid: {reprlib.repr(data)}")
        return encoding


# The encoding of an array, or a table of numbers, that changes nothing.
PLAIN = Encoding((), "")


def is_categorical(setting: Sequence[Any] | str | None, table: Table, columns: Sequence[Column]) -> list[bool]:
    """Return which columns of a table the parameter ``categorical_features`` makes categorical.

    Names, positions or a mask that do not fit the columns raise ValueError.
    """
    if isinstance(setting, str):
        return [table.is_frame and column.levels is not None for column in columns]
    chosen = [] if setting is None else list(setting)
    names = [column.name for column in columns] if table.is_frame else []
    if chosen and all(isinstance(choice, bool | np.bool_) for choice in chosen):
        if len(chosen) != len(columns):
            raise ValueError(f"categorical_features is a mask of {len(chosen)} columns; X has {len(columns)}.")
        return [bool(choice) for choice in chosen]
    places = [names.index(choice) if choice in names else choice for choice in chosen]
    named = f"names must be among {names[:LISTED]}, those of X's columns," if names else "X has no names of columns,"
    if wrong := [place for place in places if isinstance(place, str) or not 0 <= place < len(columns)]:
        raise ValueError(
            f"categorical_features has {wrong[0]!r}: {named} and positions are from 0 to {len(columns) - 1} here."
        )
    return [j in places for j in range(len(columns))]


def check_names(names: Sequence[str] | None, fitted: Sequence[str] | None) -> None:
    """Raise ValueError if columns have other names than those of a fit, if both have names."""
    if names and fitted and names != fitted:
        texts = [reprlib.repr(list(side)) for side in (names, fitted)]
        raise ValueError(
            f"X has the columns {texts[0]}; the model was fitted to {texts[1]}. Give the same columns in the same "
            "order, or an array, whose columns count by their positions."
        )


def warn_of_means(counts: Sequence[tuple[str, int]]) -> None:
    """Warn of missing numbers in columns in which the training rows missed none."""
    warn_user(
        f"X has {said_missing(counts)}. The training rows missed none there: their mean replaces such a number. Fit to "
        "rows that miss some if the model is to learn what a missing number means."
    )
