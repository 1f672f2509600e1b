"""What goes with a fit from its first moment: its record, its end, and whom it tells how it goes."""

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

# Columns of the record, of which the first that a row has becomes a field of the state, and its type.
STATES: tuple[tuple[tuple[str, ...], str, Callable[[Any], Any]], ...] = (
    (("n_rows",), "n_rows", int),
    (("n_inducing",), "n_inducing", int),
    (("evaluation", "iteration", "epoch"), "iteration", int),
    (("elbo",), "elbo", float),
    (("learned_score", "query_score"), "query_score", float),
)


@dataclass(frozen=True)
class FitState:
    """How a fit stands: what ``callback`` gets.

    Attributes
    ----------
    stage : str
        "checking" parameters and rows; "reading" the rows of ``fit_batches`` for the first time; "start": choosing
        inducing points and a kernel; "learning" these, from ``n_rows`` rows; "neighbours": learning with them, or
        finding their sites; "posterior" of all rows; "done".
    n_rows : int
        Rows in use; of "reading" those that were read so far.
    n_inducing : int
        Number of inducing points.
    iteration : int
        Evaluations of the optimizer in this stage, or iterations, or epochs, of the posterior; 0 before the first.
    elbo : float or None
        The latest bound on these rows, in nats.
    query_score : float or None
        The latest mean log probability of query rows, in nats, with neighbours.
    seconds : float
        Since the fit began.
    seconds_left : float
        Of ``max_time``, not negative; infinite without one.
    decision : str
        What was decided just now, in words, mostly nothing: what ``decisions_`` tells, and what time more inducing
        points may take.
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
    """Carries what a callback raised out of the fit, past code that can go on after errors of its own."""

    def __init__(self, raised: Exception):
        super().__init__(str(raised))
        self.raised = raised


class Watched(Executor):
    """Another executor, of which somebody is told after each pass, in the calling thread."""

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
        # Its own way to do it: that of a cluster adds where the rows are.
        total = self._executor.reduce(function, source, state)
        self._after_pass()
        return total


class Run:
    """A fit under way; a context manager, which passes on what the callback raised.

    Parameters
    ----------
    deadline : Deadline or None
    status : Status or None, which shows how it goes
    callback : function of a ``FitState``, or None
        If it returns True, or raises StopIteration, the deadline, which there must be then, is now.
    random_state : int, RandomState or None

    Attributes
    ----------
    deadline : Deadline or None
    history : History
    progress : Progress, which keeps what learning has come to
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
        """The executor, or where somebody wants to know one that tells of its passes."""
        return Watched(executor, self._go_on) if self._is_heard else executor

    def row(self, columns: dict[str, Any]) -> None:
        """What a row of the history says; with a ``stage`` among its columns that one begins."""
        if "stage" in columns:
            self._state = FitState(columns["stage"])
        decision, found = str(columns.get("decision", "")), {}
        # The other columns of a decision are of what was decided on, taken or left.
        if not decision:
            for names, name, kind in STATES:
                given = [columns[other] for other in names if other in columns]
                if given:
                    found[name] = kind(given[0])
        self._go_on(decision=decision, **found)

    def _go_on(self, decision: str = "", **changes: Any) -> None:
        """Tell the state, changed."""
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
        """Whether the callback ends the fit. Only True does: other values are mostly returned without a thought."""
        assert self._callback is not None
        try:
            answer = self._callback(state)
        except StopIteration:
            return True
        except Exception as error:
            raise CallbackError(error) from error
        return isinstance(answer, bool | np.bool_) and bool(answer)
