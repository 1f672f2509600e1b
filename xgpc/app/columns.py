"""Columns of files: which of them are read, and the table that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..classifier import GPClassifier
from ..data.encoding import LevelColumn, of_table
from ..data.frames import ColumnTable, Levels
from ..rows.columnar import near_names

# Names listed in a message before it says how many more there are.
LISTED = 10


@dataclass(frozen=True)
class Wanted:
    """Which columns of a file are read, and as what.

    Attributes
    ----------
    target : str or None, column of the labels, which are kept as text
    features : columns of X, in this order, found by name, while others are ignored; None: all but the target
    drop : columns that are none of X
    categorical : columns of X whose cells are levels, whatever they look like
    are_levels : for each column of X whether its cells are levels that are text; None: as the cells look
    may_miss : whether numbers of X may be missing
    """

    target: str | None = None
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    are_levels: Sequence[bool] | None = None
    may_miss: bool = True

    @classmethod
    def by(cls, model: GPClassifier, names: Sequence[str] | None, target: str | None) -> Wanted:
        """What a model was fitted to, and the names of its features, if they have any."""
        encoding = of_table(model.encoding_)
        if encoding is None:
            # Models that were saved before do not know the means of their features.
            return cls(
                target, names, are_levels=[False] * model.n_features_in_, may_miss=hasattr(model, "feature_mean_")
            )
        levels = [one.levels if isinstance(one, LevelColumn) else () for one in encoding.columns]
        return cls(target, names, are_levels=[any(isinstance(level, str) for level in one) for one in levels])

    def names(self, path: str, given: Sequence[str], index: Sequence[str] = ()) -> list[str]:
        """The columns of X in a file that has the ``given`` ones, of which those of an ``index`` are none by default.

        Raises
        ------
        ValueError
            For columns that there are not, and if nothing is left.
        """
        if self.target is not None and self.target not in given:
            near = near_names([self.target], given)
            raise ValueError(f"{path!r} has no target column {self.target!r}{near}; its columns are {listed(given)}.")
        for option, named in (("--drop", self.drop), ("--categorical", self.categorical)):
            absent = [name for name in named if name not in given or name == self.target]
            if absent:
                what = f"{near_names(absent, given)}; its columns are {listed(given)}"
                what = "; it is the target" if self.target in absent else what
                raise ValueError(f"{path!r} has no feature {absent[0]!r}, which {option} names{what}.")
        if both := [name for name in self.drop if name in self.categorical]:
            raise ValueError(f"the column {both[0]!r} is named by --drop and by --categorical; name it once.")
        if self.features is None:
            others = {self.target, *self.drop, *(name for name in index if name not in self.categorical)}
            names = [name for name in given if name not in others]
            if not names:
                left = "".join(f" and {listed([name])}" for name in (*self.drop, *index))
                raise ValueError(
                    f"{path!r} has no column besides the target {self.target!r}{left}; add features (cells of CSV are "
                    "separated by comma, semicolon or tab)."
                )
        else:
            names = list(self.features)
            if missing := [name for name in names if name not in given]:
                raise ValueError(
                    f"{path!r} lacks the feature{'s' if len(missing) > 1 else ''} {listed(missing)} that the model was "
                    f"fitted to; its columns are {listed(given)}."
                )
        if self.are_levels is not None and len(names) != len(self.are_levels):
            raise ValueError(
                f"{path!r} has {len(names)} feature columns, but the model was fitted to {len(self.are_levels)}, "
                "without names; give exactly those, in the same order."
            )
        return names


@dataclass(frozen=True)
class Table:
    """Columns of a file.

    Attributes
    ----------
    path : str
    features : names of the columns of X
    X : (n, d) array where all columns are numbers, and none of them missing; else a table
    target : (n,) cells of the target column as text; empty if none was asked for
    lines : (n,) numbers of the rows' lines in the file, from 1; of a Parquet file of the rows themselves
    unit : "line" or "row", what these number
    """

    path: str
    features: list[str]
    X: Any
    target: list[str]
    lines: Sequence[int]
    unit: str = "line"

    @property
    def categorical(self) -> list[str]:
        """Columns of levels."""
        columns = self.X.columns if isinstance(self.X, ColumnTable) else ()
        return [column.name for column in columns if isinstance(column, Levels)]


def listed(names: Sequence[object]) -> str:
    """The first few names, quoted, for a message."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(repr(str(name)) for name in names[:LISTED]) + more


def plain(cell: str) -> str:
    """The cell; ValueError for characters that only Python takes for parts of a number.

    It reads 1_000, and the digits of every script; other programs that write CSV do not mean a number by the one, nor
    do those that read it all know the others.
    """
    if "_" in cell or not cell.isascii():
        raise ValueError(f"{cell!r} is not a number in plain digits")
    return cell
