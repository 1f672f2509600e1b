"""The context of a fit: history, progress, deadline, and reports to the user."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..rows.deadline import Deadline
from ..rows.executor import Executor, Function, Item, Result, State
from ..rows.source import RowSource
from ..status import Status
from .history import History
from .progress import Progress

# For each field of the state: history columns, of which the first present gives its value, and its type.
STATES: tuple[tuple[tuple[str, ...], str, Callable[[Any], Any]], ...] = (
    (("n_rows",), "n_rows", int),
    (("n_inducing",), "n_inducing", int),
    (("evaluation", "iteration", "epoch"), "iteration", int),
    (("elbo",), "elbo", float),
    (("learned_score", "query_score"), "query_score", float),
)


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
    query_score : float or None
        With neighbours, the latest mean log probability of held-out rows, in nats.
    seconds : float
        Seconds since the fit began.
    seconds_left : float
        Seconds left of ``max_time``, not negative; infinite without a limit.
    decision : str
        The decision just made, as in ``decisions_``, or the time that more inducing points may take; mostly empty.
    """

    stage: str = "checking"
    n_rows: int = 0
    n_inducing: int = 0
    iteration: int = 0
    elbo: float | None = None
    query_score: float | None = None
    seconds: float = 0.0
    seconds_left: float = math.inf
    decision: str = ""

    def __str__(self) -> str:
        parts = [
            f"{self.n_rows} rows" if self.n_rows else "",
            f"m = {self.n_inducing}" if self.n_inducing else "",
            f"iteration {self.iteration}" if self.iteration else "",
            "" if self.elbo is None else f"bound {self.elbo:.6g}",
            "" if self.query_score is None else f"score {self.query_score:.4g}",
            f"{self.seconds:.1f} s",
            f"{self.seconds_left:.0f} s left" if math.isfinite(self.seconds_left) else "",
        ]
        return f"{self.stage}: {', '.join(part for part in parts if part)}"


class CallbackError(Exception):
    """Carries a callback's exception out of the fit, past code that handles errors of its own."""

    def __init__(self, raised: Exception):
        super().__init__(str(raised))
        self.raised = raised


class Watched(Executor):
    """An executor that calls a function after each pass, in the calling thread."""

    def __init__(self, executor: Executor, after_pass: Callable[[], None]):
        self.n_threads = executor.n_threads
        self._executor, self._after_pass = executor, after_pass

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        found = self._executor.each(function, items)
        self._after_pass()
        return found

    def map(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        yield from self._executor.map(function, source, state)
        self._after_pass()

    def reduce(self, function: Function[Result], source: RowSource, state: State) -> Result:
        # The wrapped executor has its own reduce: a cluster's adds up where the rows are.
        total = self._executor.reduce(function, source, state)
        self._after_pass()
        return total


class Run:
    """A fit in progress; a context manager that re-raises a callback's exception.

    Parameters
    ----------
    deadline : Deadline or None
    status : Status or None, displays the progress
    callback : function of a ``FitState``, or None
        If it returns True or raises StopIteration, the deadline is set to now; a callback needs a deadline.
    random_state : int, RandomState or None

    Attributes
    ----------
    deadline : Deadline or None
    history : History
    progress : Progress, keeps the best result so far
    random_state : RandomState
    """

    def __init__(
        self,
        deadline: Deadline | None = None,
        status: Status | None = None,
        callback: Callable[[FitState], Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.deadline, self.progress = deadline, Progress()
        self.random_state: np.random.RandomState = check_random_state(random_state)
        self._status, self._callback = status, callback
        self._is_heard = status is not None or callback is not None
        self.history = History(self if self._is_heard else None)
        self._state = FitState()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.close()
        if isinstance(error, CallbackError):
            raise error.raised from error.raised.__cause__

    def watching(self, executor: Executor) -> Executor:
        """The executor, wrapped to report its passes if there is a status or a callback."""
        return Watched(executor, self._go_on) if self._is_heard else executor

    def row(self, columns: dict[str, Any]) -> None:
        """Receive a row of the history; a column ``stage`` means that this stage begins."""
        if "stage" in columns:
            self._state = FitState(columns["stage"])
        decision, found = str(columns.get("decision", "")), {}
        # The other columns of a decision describe the option that was decided on, which may have been rejected.
        if not decision:
            for names, name, kind in STATES:
                given = [columns[other] for other in names if other in columns]
                if given:
                    found[name] = kind(given[0])
        self._go_on(decision=decision, **found)

    def _go_on(self, decision: str = "", **changes: Any) -> None:
        """Change the state and report it."""
        left = math.inf if self.deadline is None else max(0.0, self.deadline.left)
        seconds = self.history.seconds
        self._state = state = replace(self._state, seconds=seconds, seconds_left=left, decision=decision, **changes)
        if self._status is not None:
            if decision:
                self._status.say(decision)
            self._status.update(state.__str__)
        if self._callback is not None and self.deadline is not None and self._ends(state):
            self.deadline.stop("the callback")

    def _ends(self, state: FitState) -> bool:
        """Whether the callback ends the fit: only True does, because other values are often returned by accident."""
        assert self._callback is not None
        try:
            answer = self._callback(state)
        except StopIteration:
            return True
        except Exception as error:
            raise CallbackError(error) from error
        return isinstance(answer, bool | np.bool_) and bool(answer)
