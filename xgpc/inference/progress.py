"""The best result so far, from which a fit ends early or resumes at a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior
from ..kernels.spec import Groups
from .history import History

# Arrays by name.
State = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class BestSoFar:
    """The best result so far, and the stage of the fit that it belongs to.

    Attributes
    ----------
    q : posterior of the rows of its stage
    site : Site
    n_rows : int, rows of the stage
    is_growing : bool, whether more inducing points may be added
    n_starts : int, number of completed starts that it is the best of; 0 during the first
    is_decided : bool, whether the number of kernels is decided
    state : arrays by name from which mini-batches continue, or None
    """

    q: KernelPosterior
    site: Site
    n_rows: int
    is_growing: bool
    n_starts: int = 0
    is_decided: bool = False
    state: State | None = None


class Store(Protocol):
    """Keeps results on disk for a later fit."""

    def offer(self, best: BestSoFar, at_once: bool = False) -> None:
        """Keep a result, unless the last one was kept a moment ago."""

    def load(self, site: Site, groups: Groups | None = None) -> BestSoFar | None:
        """The result that an earlier fit kept, or None; ``groups`` are features that share length scales."""

    def remove(self) -> None:
        """Delete the kept result."""


class Progress:
    """The best result so far of a fit, and the parts that it skipped.

    Attributes
    ----------
    store : Store or None
    latest : BestSoFar or None
    n_updates : int, results so far
    skipped : descriptions of parts that there was no time for
    """

    def __init__(self) -> None:
        self.store: Store | None = None
        self.latest: BestSoFar | None = None
        self.n_updates = 0
        self.skipped: list[str] = []

    def resume(self, best: BestSoFar) -> None:
        """Continue from the result of an earlier fit."""
        self.latest = best

    def update(self, best: BestSoFar) -> None:
        """Record a better result."""
        self.n_updates += 1
        self._keep(best)

    def decide(self, best: BestSoFar) -> None:
        """Record a result with a decided number of kernels, so that a resumed fit does not decide again."""
        self._keep(replace(best, is_decided=True), at_once=True)

    def _keep(self, best: BestSoFar, at_once: bool = False) -> None:
        # Once the number of kernels is decided, it stays decided.
        is_decided = best.is_decided or (self.latest is not None and self.latest.is_decided)
        self.latest = replace(best, is_decided=is_decided)
        if self.store is not None:
            self.store.offer(self.latest, at_once)

    def skip(self, what: str, history: History) -> None:
        """Record in the history that there was no time for a part of the fit, or for the rest of it."""
        self.skipped.append(what)
        history.add(decision=f"There was no time left for {what}.")

    def close(self) -> None:
        """Remove the checkpoint of a complete fit; update that of a fit that ended early."""
        if self.store is None:
            return
        if not self.skipped:
            self.store.remove()
        elif self.latest is not None:
            self.store.offer(self.latest, at_once=True)
