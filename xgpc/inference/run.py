"""The context of a fit: history, progress, deadline, and reports to the user."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from ..rows.deadline import Deadline, Reserve
from ..rows.executor import Function, Monitor
from ..rows.executor import State as PassState
from ..rows.source import RowSource
from ..status import Status
from .history import History
from .progress import Progress

# For each field of the state: history columns, of which the first present gives its value, and its type.
STATES: dict[str, tuple[tuple[str, ...], Callable[..., object]]] = {
    "n_rows": (("n_rows",), int),
    "n_inducing": (("n_inducing",), int),
    "iteration": (("evaluation", "iteration", "epoch"), int),
    "elbo": (("elbo",), float),
    "query_score": (("learned_score", "query_score"), float),
}


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


class Run(Monitor):
    """A fit in progress: a context manager that re-raises a callback's exception, and the monitor of its executor.

    Parameters
    ----------
    deadline : Deadline or None, never if None
    status : Status or None, displays the progress
    callback : function of a ``FitState``, or None
        If it returns True or raises StopIteration, the deadline is set to now.
    random_state : int, RandomState or None

    Attributes
    ----------
    deadline : Deadline
    history : History
    progress : Progress, keeps the best result so far
    random_state : RandomState
    """

    def __init__(
        self,
        deadline: Deadline | None = None,
        status: Status | None = None,
        callback: Callable[[FitState], object] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.deadline, self.progress = deadline or Deadline(), Progress()
        self.random_state: np.random.RandomState = check_random_state(random_state)
        self._status, self._callback = status, callback
        self._is_heard = status is not None or callback is not None
        self.history = History(self._listen if self._is_heard else None)
        self._state, self._reserve = FitState(), Monitor()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.close()
        if isinstance(error, CallbackError):
            raise error.raised from error.raised.__cause__

    @contextmanager
    def reserving(self, n_rows: int, final: Function[object]) -> Iterator[None]:
        """Passes raise ``OutOfTime`` once the time left is needed for the posterior of all rows, see ``Reserve``."""
        self._reserve = Reserve(self.deadline, n_rows, final)
        try:
            yield
        finally:
            self._reserve = Monitor()

    def begin(self, function: Function[object], source: RowSource, state: PassState) -> None:
        self._reserve.begin(function, source, state)

    def check(self) -> None:
        self._reserve.check()

    def end(self) -> None:
        self._reserve.end()
        self.report()

    def report(self, decision: str = "", **changes: Any) -> None:
        """Change the state and report it to the user."""
        if not self._is_heard:
            return
        changes |= {"seconds": self.history.seconds, "seconds_left": max(0.0, self.deadline.left)}
        self._state = state = replace(self._state, decision=decision, **changes)
        if self._status is not None:
            if decision:
                self._status.say(decision)
            self._status.update(state.__str__)
        if self._callback is not None and self._ends(self._callback, state):
            self.deadline.stop("the callback")

    def _listen(self, columns: dict[str, ArrayLike]) -> None:
        """Report a row of the history."""
        if "stage" in columns:
            self._state = FitState(str(columns["stage"]))
        decision, found = str(columns.get("decision", "")), {}
        # The other columns of a decision describe an option that may have been rejected.
        if not decision:
            for name, (names, kind) in STATES.items():
                given = [columns[other] for other in names if other in columns]
                if given:
                    found[name] = kind(given[0])
        self.report(decision, **found)

    def _ends(self, callback: Callable[[FitState], object], state: FitState) -> bool:
        """Whether the callback ends the fit: only True does, because other values are often returned by accident."""
        try:
            answer = callback(state)
        except StopIteration:
            return True
        except Exception as error:
            raise CallbackError(error) from error
        return isinstance(answer, bool | np.bool_) and bool(answer)
