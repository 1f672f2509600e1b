"""What learning has come to, kept as it goes: what there is when it has to end, and where it can go on from."""

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
    """The best so far.

    Attributes
    ----------
    q : posterior of the rows of its stage
    site : Site
    n_rows : int, rows of the stage
    is_growing : bool, whether more inducing points may be added
    n_starts : int, starts of the kernel parameters that it is the best of; 0: the first has not ended
    is_decided : bool, whether the fit has decided for as many kernels as q has
    state : arrays by name that mini-batches go on from, or none
    """

    q: KernelPosterior
    site: Site
    n_rows: int
    is_growing: bool
    n_starts: int = 0
    is_decided: bool = False
    state: State | None = None


class Store(Protocol):
    """Where milestones are kept for later."""

    def offer(self, best: BestSoFar, at_once: bool = False) -> None:
        """Keep one, unless the last was kept a moment ago."""

    def load(self, site: Site, groups: Groups | None = None) -> BestSoFar | None:
        """What an earlier fit has kept, if there is anything, of features that share length scales."""

    def remove(self) -> None:
        """Nothing of the fit need be kept any more."""


class Progress:
    """The latest milestone of a fit, and what was cut short.

    Attributes
    ----------
    latest : BestSoFar or None
    n_reached : int, milestones so far
    is_decided : bool, whether those that come are of as many kernels as was decided for
    cuts : what there was no time for, in words
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self.latest: BestSoFar | None = None
        self.n_updates = 0
        self.is_decided = False
        self.skipped: list[str] = []

    def resume(self, best: BestSoFar) -> None:
        """An earlier fit had come to it."""
        self.latest, self.is_decided = best, best.is_decided

    def update(self, best: BestSoFar) -> None:
        self._keep(best)
        self.n_updates += 1

    def decide(self, best: BestSoFar) -> None:
        """The fit goes on from there, with as many kernels: not to be decided again."""
        self.is_decided = True
        self._keep(best, at_once=True)

    def _keep(self, best: BestSoFar, at_once: bool = False) -> None:
        self.latest = replace(best, is_decided=self.is_decided)
        if self.store is not None:
            self.store.offer(self.latest, at_once)

    def skip(self, what: str, history: History) -> None:
        """There was no time for something, or for the rest of it; the history tells it, too."""
        self.skipped.append(what)
        history.add(decision=f"There was no time left for {what}.")
