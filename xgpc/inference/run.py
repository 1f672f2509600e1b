"""The context of a fit: history, clock, the best result so far, and reports to the user."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior
from ..data.checks import random_state_of
from ..names import RandomSeed
from ..rows.clock import OutOfTime
from ..rows.executor import Executor
from ..status import Status
from .history import History

# The field of ``FitState`` that a column of the history changes; of several columns the last one in this order counts.
FIELDS = {name: name for name in ("n_rows", "n_inducing", "elbo", "held_out_score")}
FIELDS |= {"epoch": "iteration", "iteration": "iteration", "evaluation": "iteration", "learned_score": "held_out_score"}

Learned = TypeVar("Learned")


@dataclass(frozen=True)
class FitState:
    """The state of a fit, which ``callback`` receives.

    Attributes
    ----------
    stage : str
        "checking" parameters and rows; "reading" the rows of ``fit_batches`` for the first time; "start": choosing
        inducing points and a kernel; "learning" these from ``n_rows`` rows; "neighbours": learning with neighbours, or
        computing their sites; "posterior" of all rows; "done".
    n_rows : int
        Rows in use; while "reading", rows read so far.
    n_inducing : int
        Number of inducing points.
    iteration : int
        Evaluations of the optimizer in this stage, or iterations or epochs of the posterior; 0 before the first.
    elbo : float or None
        The latest bound on these rows, in nats.
    held_out_score : float or None
        With neighbours, the latest mean log probability of held-out rows, in nats.
    seconds : float
        Seconds since the fit began.
    seconds_left : float
        Seconds left of ``max_time``, not negative; infinite without a limit.
    decision : str
        The decision just made, as in ``decisions_``; mostly empty.
    """

    stage: str = "checking"
    n_rows: int = 0
    n_inducing: int = 0
    iteration: int = 0
    elbo: float | None = None
    held_out_score: float | None = None
    seconds: float = 0.0
    seconds_left: float = math.inf
    decision: str = ""

    def __str__(self) -> str:
        parts = [
            f"{self.n_rows} rows" if self.n_rows else "",
            f"m = {self.n_inducing}" if self.n_inducing else "",
            f"iteration {self.iteration}" if self.iteration else "",
            "" if self.elbo is None else f"bound {self.elbo:.6g}",
            "" if self.held_out_score is None else f"score {self.held_out_score:.4g}",
            f"{self.seconds:.1f} s",
            f"{self.seconds_left:.0f} s left" if math.isfinite(self.seconds_left) else "",
        ]
        return f"{self.stage}: {', '.join(part for part in parts if part)}"


class CallbackError(Exception):
    """Carries a callback's exception, its cause, out of the fit, past code that handles errors of its own."""


class Run(AbstractContextManager["Run"]):
    """A fit in progress: a context manager that re-raises a callback's exception.

    ``executor`` makes passes over rows until its ``clock`` says that time is over. ``status`` displays the progress. If
    ``callback``, a function of a ``FitState``, returns True or raises StopIteration, the clock is stopped. ``skipped``
    describes the parts that there was no time for, and ``n_updates`` counts the results so far.
    """

    def __init__(
        self,
        executor: Executor,
        status: Status | None = None,
        callback: Callable[[FitState], object] | None = None,
        random_state: RandomSeed = None,
    ):
        self.executor, self.clock, self._status, self._callback = executor, executor.clock, status, callback
        self.random_state: np.random.RandomState = random_state_of(random_state)
        self.history, self._state = History(), FitState()
        if status is not None or callback is not None:
            self.history.tell = self.clock.report = self._report
        # The best posterior of the rows of a stage, with its site, from which a fit ends early.
        self.best: tuple[KernelPosterior, Site] | None = None
        self.n_updates = 0
        self.skipped: list[str] = []

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # The history no longer refers to the run that refers to it, so that the rows are freed at once.
        self.history.tell, self.clock.report = (lambda **columns: None), None
        if self._status is not None:
            self._status.close()
        if isinstance(error, CallbackError) and error.__cause__ is not None:
            raise error.__cause__ from error.__cause__.__cause__

    def update(self, q: KernelPosterior, site: Site) -> None:
        """Keep a better result."""
        self.n_updates += 1
        self.best = q, site

    def in_time(self, part: str, learn: Callable[..., Learned | None], *args: object) -> Learned | None:
        """The result of a part of learning; None if the time for it ends, and the fit goes on without it."""
        self.clock.is_learning = True
        try:
            return learn(*args)
        except OutOfTime as end:
            self.skip(end.where or part)
            return None
        finally:
            self.clock.is_learning = False

    def skip(self, part: str) -> None:
        """Record once that there was no time for a part of the fit, or for the rest of it."""
        if part not in self.skipped:
            self.skipped.append(part)
            self.history.add(decision=f"There was no time left for {part}.")

    def _report(self, **columns: Any) -> None:
        """Report the state to the user, changed by the columns of a row of the history."""
        if "stage" in columns:
            self._state = FitState(columns["stage"])
        decision = columns.get("decision", "")
        # The other columns of a decision describe an option that may have been rejected.
        changes = {} if decision else {field: columns[name] for name, field in FIELDS.items() if name in columns}
        seconds, seconds_left = self.history.seconds, self.clock.seconds_left
        self._state = replace(self._state, **changes, decision=decision, seconds=seconds, seconds_left=seconds_left)
        if self._status is not None:
            if decision:
                self._status.say(decision)
            self._status.update(self._state.__str__)
        if self._callback is None:
            return
        try:
            answer = self._callback(self._state)
        except StopIteration:
            answer = True
        except Exception as error:
            raise CallbackError from error
        # Other true values are often returned by accident.
        if isinstance(answer, bool | np.bool_) and answer:
            self.clock.stop("the callback")
