"""Which rows ask, and which answer: query rows as the model will be used."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit

# Rows that are kept from learning to decide by: this share, but at most so many. With a twentieth of magic's 17 000 the
# standard error was as large as the gain.
DECISION_SHARE, DECISION_ROWS = 0.1, 4000
# Share of the rows of a round that are queries.
QUERY_SHARE = 0.5
# Splits of a splitter that are kept, the last ones: rounds are fewer, and LeaveOneOut has as many as there are rows.
KEPT_SPLITS = 10

# Rows to learn from, and rows to ask.
Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class HoldOut:
    """Draws rows to predict, and rows to predict them from; all by their numbers, ascending.

    Attributes
    ----------
    n_rows : int
    groups : (n,) of any labels, or None; rows of a group stay on one side
    splitter : object with scikit-learn's ``split``, or None
    labels : (n,) class numbers, for splitters that look at them
    random_state : RandomState
    """

    n_rows: int
    groups: np.ndarray | None
    splitter: Any
    labels: np.ndarray
    random_state: np.random.RandomState

    def among(self, rows: np.ndarray) -> HoldOut:
        """The same of some of the rows, ascending, which are numbered anew."""
        groups = None if self.groups is None else self.groups[rows]
        return HoldOut(len(rows), groups, self.splitter, self.labels[rows], self.random_state)

    def decision(self, share: float = DECISION_SHARE, random_state: np.random.RandomState | None = None) -> Split:
        """Rows to learn from, and rows to decide by: this share of them, or what a splitter's last split asks.

        Of few rows, or two groups, none can be spared to decide by. They are drawn by another ``random_state``, if one
        is given.
        """
        random_state = random_state or self.random_state
        size = min(DECISION_ROWS, int(share * self.n_rows))
        if self.splitter is None:
            if not size or (self.groups is not None and len(np.unique(self.groups)) < 3):
                return np.arange(self.n_rows), np.arange(0)
            others, held_out = self._apart(size, random_state)
            return others, _some(held_out, size, random_state)
        others, held_out = self._splits[-1]
        return others, _some(held_out, DECISION_ROWS, random_state)

    def draw(self, number: int, size: int) -> Split:
        """Support rows and query rows of round ``number``: ``size`` in all, or as many as there are."""
        size = min(size, self.n_rows)
        n_queries = max(1, int(QUERY_SHARE * size))
        if self.splitter is None:
            support, held_out = self._apart(max(1, int(QUERY_SHARE * self.n_rows)), self.random_state)
        else:
            splits = self._splits
            # The last split comes first: in time it is the one with most rows before it.
            support, held_out = splits[-1 - number % len(splits)]
        held_out = _some(held_out, n_queries, self.random_state)
        return _some(support, size - len(held_out), self.random_state), held_out

    def _apart(self, n_asked: int, random_state: np.random.RandomState) -> Split:
        """Some of the rows at random, or of their groups, against the others, which are more."""
        if self.groups is None:
            order = random_state.permutation(self.n_rows)
            return np.sort(order[n_asked:]), np.sort(order[:n_asked])
        names, group = np.unique(self.groups, return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"groups must have two groups or more, to learn from some and to ask others; got {names}.")
        order = random_state.permutation(len(names))
        sizes = np.cumsum(np.bincount(group)[order])
        # As few groups as have so many rows, but not all of them.
        n_groups = min(int(np.searchsorted(sizes, n_asked)) + 1, len(names) - 1)
        is_asked = np.isin(group, order[:n_groups])
        if 2 * np.sum(is_asked) > self.n_rows:
            is_asked = ~is_asked
        return np.flatnonzero(~is_asked), np.flatnonzero(is_asked)

    @cached_property
    def _splits(self) -> list[Split]:
        """The last splits of the splitter, which is asked once: if it shuffles, it would answer otherwise again."""
        n_rows, splitter = self.n_rows, self.splitter
        if isinstance(splitter, PredefinedSplit):
            raise ValueError(
                "query_split is a PredefinedSplit, which divides the rows that it was made for alone, but those that "
                "are not kept apart are divided again. Give a splitter that divides any number of rows, such as "
                "TimeSeriesSplit(), or leave query_split=None and give fit(X, y, groups=...) which belong together."
            )
        if n_rows < 2:
            raise ValueError(
                f"query_split={splitter!r} leaves a single row to learn from where those that its last split asks are "
                "kept apart, and one row cannot be divided again into rows to learn from and rows to ask. Give more "
                "rows, a splitter whose last split asks fewer of them, or None, for random queries."
            )
        try:
            found = splitter.split(np.zeros((n_rows, 1)), self.labels, self.groups)
            splits = deque((_checked(split, n_rows) for split in found), maxlen=KEPT_SPLITS)
            if not splits:
                raise ValueError("it gave no splits")
        # Splitters are code of others, and may fail in any way.
        except Exception as error:
            raise ValueError(
                f"query_split={splitter!r} cannot divide {n_rows} rows: {str(error).rstrip('.')}. It is asked to "
                "divide all rows, and then those that are not kept apart, into pairs (rows to learn from, other rows "
                "to ask) of integer arrays. Give one that can: with fewer splits, if rows are few; with "
                "fit(X, y, groups=...), if it needs groups; or None, for random queries."
            ) from error
        return list(splits)


def _some(rows: np.ndarray, size: int, random_state: np.random.RandomState) -> np.ndarray:
    return np.sort(rows if size >= len(rows) else random_state.choice(rows, size, replace=False))


def _checked(split: Any, n_rows: int) -> Split:
    """A splitter's pair of row numbers, ascending; ValueError for what is none of so many rows."""
    parts = split if isinstance(split, tuple | list | np.ndarray) else ()
    if len(parts) != 2:
        what = f"{len(parts)} parts" if len(parts) else repr(split)
        raise ValueError(f"a split must be a pair of arrays; it gave {what}")
    support, held_out = (_row_numbers(part, n_rows) for part in parts)
    both = np.intersect1d(support, held_out, assume_unique=True)
    if len(both):
        raise ValueError(
            f"{len(both)} rows, row {both[0]} among them, are both to be learned from and to be asked: they know their "
            "own labels"
        )
    return support, held_out


def _row_numbers(rows: Any, n_rows: int) -> np.ndarray:
    rows = np.asarray(rows)
    if rows.ndim != 1:
        raise ValueError(f"row numbers must be an array of one dimension; it gave one of shape {rows.shape}")
    if not len(rows):
        raise ValueError("a split has no rows on one side")
    if rows.dtype.kind == "b":
        raise ValueError("it gave a boolean mask, of which np.flatnonzero makes row numbers")
    if rows.dtype.kind not in "iu":
        raise ValueError(f"row numbers must be integers; it gave values of type {rows.dtype}")
    least, largest = np.min(rows), np.max(rows)
    if least < 0 or largest >= n_rows:
        outside = least if least < 0 else largest
        raise ValueError(f"row numbers must be from 0 to {n_rows - 1}; it gave {outside}")
    numbers, counts = np.unique(rows, return_counts=True)
    if len(numbers) < len(rows):
        most = int(np.argmax(counts))
        raise ValueError(
            f"an array of row numbers has row {numbers[most]} {counts[most]} times. Give each row once; what it counts "
            "for is for fit(X, y, sample_weight=...) to say"
        )
    return numbers.astype(np.intp)
