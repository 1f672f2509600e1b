"""Subsets of the rows, and splits into support rows, to learn from, and held-out rows, to predict."""

from __future__ import annotations

import reprlib
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, PredefinedSplit, StratifiedKFold

from ..rows.coinciding import by_first_row
from ..status import is_of_handler

# Rows held out for decisions: this share, but no more than this many. With half as many the standard error can be as
# large as the gain.
DECISION_SHARE, DECISION_ROWS = 0.1, 4000
# Of fewer rows none are held out for decisions by default: a few per cent of them cannot show which model is better.
FEW_ROWS = 2000
# Number of splits in which fits are compared by held-out rows: by groups, a splitter, or at random. A fit is repeated
# in each, mostly on two thirds of the rows, which together takes as long as two fits to all rows.
FOLDS = 3
# Only a splitter's last splits are kept: in a split by time they have the most support rows, and LeaveOneOut has one
# for each row. In a round of learning each has at least a tenth of the rows.
KEPT_SPLITS = 10

# Numbers of the support rows and of the held-out rows, ascending.
Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class HoldOut:
    """Draws support rows, to learn from, and held-out rows."""

    groups: np.ndarray | None  # (n,) labels; all rows of a group are on the same side of a split
    splitter: Any  # with scikit-learn's method ``split``, or None
    labels: np.ndarray  # (n,) class numbers, for splitters that stratify
    random_state: np.random.RandomState
    # If these rows are a part of more rows: what divides those, and the numbers of these rows among them.
    parts_of: tuple[HoldOut, np.ndarray] | None = None
    # (n,) numbers of places: rows with equal features have the same. Without groups and a splitter, rows of one place
    # are on the same side of a split; ``folds`` may separate them.
    places: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def is_random(self) -> bool:
        """Whether neither groups nor a splitter restrict the splits."""
        return self.groups is None and self.splitter is None

    def groups_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Groups of some rows, or their places; None if each row stands for itself."""
        groups = self.places if self.groups is None else self.groups
        return None if groups is None else groups[rows]

    def among(self, rows: np.ndarray) -> HoldOut:
        """The same for a subset of the rows, ascending, which are numbered anew."""
        groups, places = (None if each is None else each[rows] for each in (self.groups, self.places))
        return replace(self, groups=groups, labels=self.labels[rows], parts_of=(self, rows), places=places)

    def decision(self, least_rows: int = 0) -> Split:
        """Rows to learn from, and rows held out for decisions: a share of all, or those of a splitter's last split.

        No rows are held out if the share is less than one row, or if there are fewer than ``least_rows`` rows or fewer
        than four groups.
        """
        nothing_held_out = np.arange(self.n_rows), np.arange(0)
        if self.n_rows < least_rows:
            return nothing_held_out
        size = min(DECISION_ROWS, int(DECISION_SHARE * self.n_rows))
        if self.splitter is not None:
            support, held_out = self._splits[-1]
            return support, self._some(held_out, DECISION_ROWS)
        # A single group has no standard error.
        least = 1 if self.groups is None else 2
        if not size or (self.groups is not None and len(np.unique(self.groups)) < 2 * least):
            return nothing_held_out
        support, held_out = self._apart(size, least)
        return support, self._some(held_out, size)

    def folds(self, rows: np.ndarray | None, random_state: np.random.RandomState | None = None) -> list[Split]:
        """Splits of some rows (None: all), which are numbered anew, by groups or the splitter.

        Without these there are none, or with ``random_state`` random ones with the classes in proportion, unless a
        class has too few rows.
        """
        labels = self.labels
        if self.splitter is not None:
            splits = self._splits[-FOLDS:]
        elif self.groups is not None and (n_groups := len(np.unique(self.groups))) > 1:
            splits = list(GroupKFold(min(FOLDS, n_groups)).split(labels, groups=by_first_row(self.groups)[1]))
        elif self.is_random and random_state is not None and np.min(np.unique(labels, return_counts=True)[1]) >= FOLDS:
            splits = list(StratifiedKFold(FOLDS, shuffle=True, random_state=random_state).split(labels, labels))
        else:
            return []
        if rows is not None:
            splits, labels = _parts(splits, rows), labels[rows]
        # Rows of a single class, or of some classes, do not determine a kernel.
        n_classes = len(np.unique(labels))
        return [split for split in splits if len(np.unique(labels[split[0]])) == n_classes]

    def draw(self, size: int) -> list[Split]:
        """Support rows and as many held-out rows of a round: ``size`` rows in all, or all rows if there are fewer.

        With a splitter, each of its splits gives a part of these rows, because one split in time may be unlike all
        others. (NLL of the last tenth of electricity for three random states: .44 to .55 with one split, .44 to .45
        with five.)
        """
        splits = [self._apart(max(1, self.n_rows // 2))] if self.splitter is None else self._splits
        size, rounds = min(size, self.n_rows) // len(splits), list[Split]()
        for support, held_out in splits:
            some = self._some(held_out, max(1, size // 2))
            rounds.append((self._some(support, max(1, size - len(some))), some))
        return rounds

    def _some(self, rows: np.ndarray, size: int) -> np.ndarray:
        """At most ``size`` of some rows, by their numbers (r,), at random; ascending."""
        return np.sort(rows if size >= len(rows) else self.random_state.choice(rows, size, replace=False))

    def _apart(self, n_held_out: int, least: int = 1) -> Split:
        """Hold out random groups, at least ``least``; without groups, random rows. The larger part is the support."""
        groups = self.groups_of(np.arange(self.n_rows))
        # Groups are numbered in the order of their first rows, so that their names change no split.
        group = np.arange(self.n_rows) if groups is None else by_first_row(groups)[1]
        counts = np.bincount(group)
        if len(counts) < 2:
            present = "a single row" if self.groups is None else f"groups {np.unique(self.groups)}"
            raise ValueError(
                f"Neighbours need two rows or groups, one to learn from and one to hold out; got {present}. Give more "
                "rows or groups, leave groups out, or give n_neighbors=0."
            )
        order = self.random_state.permutation(len(counts))
        sizes = np.cumsum(counts[order])
        # Take the fewest groups that have this many rows, but leave some.
        n_groups = min(max(least, int(np.searchsorted(sizes, n_held_out)) + 1), len(counts) - least)
        is_held_out = np.isin(group, order[:n_groups])
        if 2 * np.sum(is_held_out) > self.n_rows:
            is_held_out = ~is_held_out
        return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)

    @cached_property
    def _splits(self) -> list[Split]:
        """The splitter's last splits, computed once, because a splitter that shuffles would return others next time.

        If these rows are a part of more rows and too few for the splitter, the splits of all rows divide them, or else
        a random split.
        """
        n_rows, splitter, kept = self.n_rows, self.splitter, list[Split]()
        if n_rows < 2:
            raise ValueError(
                f"held_out_split={splitter!r} leaves a single row to learn from after its last split is held out. Give "
                "more rows, a splitter whose last split holds out fewer, or None for random splits."
            )
        try:
            if isinstance(splitter, PredefinedSplit) and len(splitter.test_fold) != n_rows:
                raise ValueError(f"it divides {len(splitter.test_fold)} rows")
            splits = splitter.split(np.zeros((n_rows, 1)), self.labels, self.groups)
            kept.extend(deque((_checked(split, n_rows) for split in splits), maxlen=KEPT_SPLITS))
            if not kept:
                raise ValueError("it gave no splits")
        # The splitter is the user's code and may raise any exception.
        except Exception as error:
            if is_of_handler(error):
                raise
            if self.parts_of is not None:
                whole, rows = self.parts_of
                return _parts(whole._splits, rows) or replace(self, splitter=None).draw(n_rows)
            raise ValueError(
                f"held_out_split={splitter!r} cannot divide {n_rows} rows: {str(error).rstrip('.')}. Give one that can "
                "(with fewer splits if there are few rows; with fit(X, y, groups=...) if it needs groups), or None for "
                "random splits."
            ) from error
        return kept


class Subsets:
    """Nested random subsets of the rows that keep the proportions of the classes y (n,)."""

    def __init__(self, y: np.ndarray, random_state: np.random.RandomState):
        place = np.empty(len(y))
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)
            # A class is spread evenly over [0, 1) in random order, so that each interval holds its share.
            place[rows] = (random_state.permutation(len(rows)) + random_state.uniform()) / len(rows)
        self._order = np.argsort(place, kind="stable")

    def rows(self, size: int) -> np.ndarray | None:
        """Indices of the first ``size`` rows, ascending; None if these are all rows."""
        return None if size >= len(self._order) else np.sort(self._order[:size])


def _parts(splits: list[Split], rows: np.ndarray) -> list[Split]:
    """The parts of splits among some rows, ascending, which are numbered anew; the splitter is not called again."""
    parts = [tuple(np.flatnonzero(np.isin(rows, side)) for side in split) for split in splits]
    return [(support, held_out) for support, held_out in parts if len(support) and len(held_out)]


def _checked(split: Any, n_rows: int) -> Split:
    """The splitter's pair of arrays as ascending row numbers; ValueError if it is no valid split of ``n_rows`` rows."""
    allowed = (
        f"a split must be a pair of arrays of row numbers, integers from 0 to {n_rows - 1} (np.flatnonzero turns a "
        "mask into these), neither empty, with each row once, on one side, or its own label would predict it; it gave"
    )
    sides = [np.asarray(rows) for rows in split] if isinstance(split, tuple | list | np.ndarray) else []
    if len(sides) != 2 or not all(rows.ndim == 1 and len(rows) and rows.dtype.kind in "iu" for rows in sides):
        raise ValueError(f"{allowed} {reprlib.repr(split)}")
    support, held_out = (np.sort(rows).astype(np.intp) for rows in sides)
    numbers, counts = np.unique(np.concatenate([support, held_out]), return_counts=True)
    if numbers[0] < 0 or numbers[-1] >= n_rows:
        raise ValueError(f"{allowed} rows from {numbers[0]} to {numbers[-1]}")
    if np.max(counts) > 1:
        raise ValueError(f"{allowed} row {numbers[np.argmax(counts > 1)]} more than once")
    return support, held_out
