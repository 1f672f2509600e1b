"""The features of a kernel: which it sees, and which share a length scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from ..names import listed
from .wrappers import ActiveDims


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of features that come from the same column of a table; a kernel may have one length scale per group."""

    index: np.ndarray  # (d,) group of each feature, from 0
    names: tuple[str, ...]  # of the groups
    columns: np.ndarray  # (groups,) the table's column that each group is from

    def name_of(self, feature: int) -> str:
        """The quoted name of a feature's group, for messages."""
        return repr(self.names[self.index[feature]])

    @property
    def are_shared(self) -> np.ndarray:
        """Whether each feature (d,) shares its group with others, as levels do."""
        return np.bincount(self.index)[self.index] > 1


class Features(NamedTuple):
    """The features that a part of a kernel sees."""

    n_features: int  # of all
    groups: Groups | None
    columns: Sequence[int] | None = None  # the columns that these features come from, in this order; None: all features

    def among(self, kernel: ActiveDims) -> Features:
        n_columns = self.n_features if self.groups is None else 1 + int(np.max(self.groups.columns))
        columns = range(n_columns) if self.columns is None else self.columns
        return self._replace(columns=[columns[j] for j in kernel.numbers(len(columns))])

    @property
    def seen(self) -> np.ndarray:
        """The numbers of these features."""
        every, groups = np.arange(self.n_features), self.groups
        if self.columns is None:
            return every
        column_of = every if groups is None else groups.columns[groups.index]
        return np.concatenate([np.flatnonzero(column_of == column) for column in self.columns])

    def places(self, kernel: Kernel) -> np.ndarray:
        """Which of a factor's length scales each feature (d,) has; -1 for features that it does not see."""
        groups, size, places = self.groups, np.size(getattr(kernel, "length_scale", 1.0)), np.full(self.n_features, -1)
        seen = self.seen
        if size == len(seen) or size == 1:
            places[seen] = np.arange(size)
            return places
        described, alternative = f"{len(seen)} features", ""
        if groups is not None:
            # In the order in which the groups come.
            distinct, first, group = np.unique(groups.index[seen], return_index=True, return_inverse=True)
            order = np.argsort(first)
            if size == len(distinct):
                places[seen] = np.argsort(order)[group]
                return places
            described = f"{len(order)} features ({listed([groups.names[g] for g in distinct[order]])})"
            alternative = f"; or {len(seen)}, one per column of the matrix these become"
        where = "X has" if self.columns is None else "its columns are"
        raise ValueError(
            f"The kernel {kernel} has {size} length scales but {where} {described}; give one length scale, or one per "
            f"feature{alternative}."
        )
