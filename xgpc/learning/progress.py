"""What learning has come to, kept as it goes: what there is when it has to end, and where it can go on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .._sites import Site
from ..approximations.base import KernelPosterior
from ..inference.history import History
from ..kernels.spec import Groups


@dataclass(frozen=True)
class Milestone:
    """The best so far.

    Attributes
    ----------
    q : posterior of the rows of its stage
    site : Site
    n_rows : int, rows of the stage
    is_growing : bool, whether more inducing points may be added
    n_starts : int, starts of the kernel parameters that it is the best of; 0: the first has not ended
    """

    q: KernelPosterior
    site: Site
    n_rows: int
    is_growing: bool
    n_starts: int = 0


class Store(Protocol):
    """Where milestones are kept for later."""

    def offer(self, milestone: Milestone, at_once: bool = False) -> None:
        """Keep one, unless the last was kept a moment ago."""

    def load(self, site: Site, groups: Groups | None = None) -> Milestone | None:
        """What an earlier fit has kept, if there is anything, of features that share length scales."""

    def remove(self) -> None:
        """Nothing of the fit need be kept any more."""


class Progress:
    """The latest milestone of a fit, and what was cut short.

    Attributes
    ----------
    latest : Milestone or None
    n_reached : int, milestones so far
    cuts : what there was no time for, in words
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self.latest: Milestone | None = None
        self.n_reached = 0
        self.cuts: list[str] = []

    def reach(self, milestone: Milestone) -> None:
        self.latest = milestone
        self.n_reached += 1
        if self.store is not None:
            self.store.offer(milestone)

    def cut(self, what: str, history: History) -> None:
        """There was no time for something, or for the rest of it; the history tells it, too."""
        self.cuts.append(what)
        history.add(decision=f"There was no time left for {what}.")
