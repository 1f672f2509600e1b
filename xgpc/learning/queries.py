"""Which rows ask, and which answer: query rows as the model will be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Rows that are kept from learning to decide by: this share, but at most so many.
DECISION_SHARE, DECISION_ROWS = 0.05, 4000
# Share of the rows of a round that are queries.
QUERY_SHARE = 0.25

Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Queries:
    """Draws rows to predict, and rows to predict them from; all by their numbers, ascending.

    Attributes
    ----------
    n_rows : int
    groups : (n,) of any labels, or None; rows of a group stay on one side
    splitter : object with scikit-learn's ``split``, or None
    labels : (n,), for splitters that look at them
    random_state : RandomState
    """

    n_rows: int
    groups: np.ndarray | None
    splitter: Any
    labels: np.ndarray
    random_state: np.random.RandomState

    def among(self, rows: np.ndarray) -> Queries:
        """The same of some of the rows, ascending, which are numbered anew."""
        groups = None if self.groups is None else self.groups[rows]
        return Queries(len(rows), groups, self.splitter, self.labels[rows], self.random_state)

    def decision(self) -> Split:
        """Rows to learn from, and rows to decide by."""
        size = min(DECISION_ROWS, int(DECISION_SHARE * self.n_rows))
        if self.splitter is None:
            others, asked = self._apart(size)
            return others, self._some(asked, max(size, 1))
        others, asked = self._splits()[-1]
        return others, self._some(asked, DECISION_ROWS)

    def draw(self, number: int, size: int) -> Split:
        """Support rows and query rows of round ``number``: ``size`` in all, or as many as there are."""
        size = min(size, self.n_rows)
        n_queries = max(1, int(QUERY_SHARE * size))
        if self.splitter is None:
            support, asked = self._apart(max(1, int(QUERY_SHARE * self.n_rows)))
        else:
            splits = self._splits()
            # The last split comes first: in time it is the one with most rows before it.
            support, asked = splits[-1 - number % len(splits)]
        asked = self._some(asked, n_queries)
        return self._some(support, size - len(asked)), asked

    def _some(self, rows: np.ndarray, size: int) -> np.ndarray:
        if size >= len(rows):
            return np.sort(rows)
        return np.sort(self.random_state.choice(rows, size, replace=False))

    def _apart(self, n_asked: int) -> Split:
        """Some of the rows at random, or of their groups, against the others, which are more."""
        if self.groups is None:
            order = self.random_state.permutation(self.n_rows)
            return np.sort(order[n_asked:]), np.sort(order[:n_asked])
        names, group = np.unique(self.groups, return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"groups must have two groups or more, to learn from some and to ask others; got {names}.")
        order = self.random_state.permutation(len(names))
        sizes = np.cumsum(np.bincount(group)[order])
        # As few groups as have so many rows, but not all of them.
        n_groups = min(int(np.searchsorted(sizes, n_asked)) + 1, len(names) - 1)
        is_asked = np.isin(group, order[:n_groups])
        if 2 * np.sum(is_asked) > self.n_rows:
            is_asked = ~is_asked
        return np.flatnonzero(~is_asked), np.flatnonzero(is_asked)

    def _splits(self) -> list[Split]:
        found = list(self.splitter.split(np.zeros((self.n_rows, 1)), self.labels, self.groups))
        splits = [(np.unique(support), np.unique(asked)) for support, asked in found]
        if not splits or not all(len(support) and len(asked) for support, asked in splits):
            raise ValueError(f"query_split must give rows to learn from and rows to ask; {self.splitter!r} gave none.")
        return splits
