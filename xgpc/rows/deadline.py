"""When a fit has to end: a deadline, an executor that keeps it, and interrupts that move it to now."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from .executor import Executor, Function, State
from .source import RowSource

# Passes over all rows that time is kept back for: one carries the sites over, one finds what they make, one makes a
# step, one may find a correction or a gap; and one more, as the rows of a subset are nearer to the processor than all.
FINAL_PASSES = 5.0
# Passes of less than so many seconds together tell little of the next ones: the first wait for memory and threads.
LEAST_SECONDS = 0.05

Result = TypeVar("Result")


class OutOfTime(Exception):
    """Learning has to end, ``where`` in words: no error, and nothing outside of a fit sees it."""

    where = ""


@contextmanager
def during(what: str) -> Iterator[None]:
    """Names what is done here, for an ``OutOfTime`` that ends it: of several names the innermost."""
    try:
        yield
    except OutOfTime as end:
        end.where = end.where or what
        raise


class Deadline:
    """The moment at which a fit has to end; never, unless there is one or somebody calls ``stop``.

    Parameters
    ----------
    seconds : float, from now on
    clock : function that returns the time in seconds
    stopped : Event, whether the moment is now; of two deadlines with the same one
    """

    def __init__(
        self,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        stopped: threading.Event | None = None,
    ):
        self.now, self.seconds = clock, seconds
        self.end = clock() + seconds
        self._stopped = stopped or threading.Event()

    def stop(self) -> None:
        """The moment is now."""
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def reason(self) -> str:
        """Of an end, in words."""
        return "an interrupt" if self.is_stopped else f"max_time={self.seconds:g}"

    @property
    def left(self) -> float:
        """Seconds."""
        return -math.inf if self.is_stopped else self.end - self.now()

    def earlier(self, share: float) -> Deadline:
        """One that leaves this share of the time, and stops with this one."""
        return Deadline(share * (self.end - self.now()), self.now, self._stopped)

    def allows_again(self, since: float) -> bool:
        """Whether there is as much time again as has passed since then."""
        now = self.now()
        return not self.is_stopped and now + (now - since) <= self.end


class Timed(Executor):
    """Another executor, which raises ``OutOfTime`` once what is left is needed for the posterior of all rows.

    That is estimated from passes of one function, here by its seconds for each row and multiply-add, and by what
    happens between two of them.

    Parameters
    ----------
    executor : Executor, that does the work
    deadline : Deadline
    n_rows : int, all rows
    final : the function of which the posterior of all rows takes passes
    """

    def __init__(self, executor: Executor, deadline: Deadline, n_rows: int, final: Function[Any]):
        self.n_threads = executor.n_threads
        self.deadline = deadline
        self._executor, self._n_rows, self._final = executor, n_rows, final
        self._seconds, self._work = 0.0, 0.0
        # Multiply-adds a row of the latest pass, when it ended, and least time between two of these.
        self._latest, self._ended, self._gap = 0.0, math.nan, math.inf

    @property
    def reserve(self) -> float:
        """Seconds to keep back."""
        if self._seconds < LEAST_SECONDS:
            return 0.0
        gap = self._gap if math.isfinite(self._gap) else 0.0
        return FINAL_PASSES * (self._n_rows * self._latest * self._seconds / self._work + gap)

    def check(self) -> None:
        """Raise ``OutOfTime`` if it is time."""
        if not self.deadline.left > self.reserve:
            raise OutOfTime

    def map(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        """As of the other one; the time is looked at after each record."""
        if function is self._final:
            return self._measured(function, source, state)
        return self._checked(function, source, state)

    def _checked(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        self.check()
        for record in self._executor.map(function, source, state):
            yield record
            self.check()

    def _measured(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        start, work = self.deadline.now(), state.cost.work
        if work != self._latest:
            self._latest, self._gap = work, math.inf
        else:
            self._gap = min(self._gap, start - self._ended)
        yield from self._checked(function, source, state)
        self._ended = self.deadline.now()
        self._seconds += self._ended - start
        self._work += source.n_rows * work


@contextmanager
def stopped_by_interrupts(deadline: Deadline) -> Iterator[None]:
    """In the main thread the first SIGINT stops the deadline, a second one raises KeyboardInterrupt.

    In other threads nothing changes: Python handles signals in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if deadline.is_stopped:
            raise KeyboardInterrupt
        deadline.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        # None: a handler that was not installed from Python, and cannot be given back by it.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
