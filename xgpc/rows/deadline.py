"""When a fit has to end: a deadline, an executor that keeps it, and interrupts that move it to now."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from .executor import Executor, Function, Item, State
from .source import RowSource

# Steps over all rows that time is kept back for: one carries the sites over and finds what they make, one makes a step,
# one may find a correction or a gap; and one more, as few rows are nearer to the processor than all.
FINAL_STEPS = 4.0
# What a step takes is told by the latest ones, of which some have gradients, too, or come after something else: by the
# lower quartile. The first wait for memory and threads; before there are so many nothing is told.
LATEST_STEPS, LEAST_STEPS = 9, 3

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
        self._stopped_by = ""

    def stop(self, by: str = "an interrupt") -> None:
        """The moment is now; by whom, in words."""
        self._stopped_by = self._stopped_by or by
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def reason(self) -> str:
        """Of an end, in words."""
        return self._stopped_by if self.is_stopped else f"max_time={self.seconds:g}"

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

    That is estimated from steps: passes of one function, and what comes before the next of them on the same rows. Time
    in passes, of whatever function, is in proportion to rows and multiply-adds; other time is as long for all rows.

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
        # Of steps: seconds in passes for each row and multiply-add, and other seconds.
        self._in_passes: deque[float] = deque(maxlen=LATEST_STEPS)
        self._between: deque[float] = deque(maxlen=LATEST_STEPS)
        self._estimate = 0.0, 0.0
        # Of the latest pass of the function: rows, multiply-adds a row, its end; and since its start seconds in passes,
        # and in those of other functions.
        self._rows, self._work, self._ended = 0, 0.0, 0.0
        self._seconds, self._others = 0.0, 0.0

    @property
    def reserve(self) -> float:
        """Seconds to keep back."""
        in_passes, between = self._estimate
        return FINAL_STEPS * (self._n_rows * self._work * in_passes + between)

    def check(self) -> None:
        """Raise ``OutOfTime`` if it is time."""
        if not self.deadline.left > self.reserve:
            raise OutOfTime

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        self.check()
        found = self._executor.each(function, items)
        self.check()
        return found

    def map(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        """As of the other one; the time is looked at after each record."""
        start = self.deadline.now()
        if function is self._final:
            rows, work = source.n_rows, state.cost.work
            if (rows, work) == (self._rows, self._work):
                self._in_passes.append(self._seconds / (rows * work))
                self._between.append(start - self._ended - self._others)
                if len(self._between) >= LEAST_STEPS:
                    self._estimate = _lower_quartile(self._in_passes), _lower_quartile(self._between)
            self._rows, self._work, self._seconds, self._others = rows, work, 0.0, 0.0
        self.check()
        for record in self._executor.map(function, source, state):
            yield record
            self.check()
        end = self.deadline.now()
        self._seconds += end - start
        if function is self._final:
            self._ended = end
        else:
            self._others += end - start


def _lower_quartile(values: Collection[float]) -> float:
    return sorted(values)[len(values) // 4]


@contextmanager
def stopped_by_interrupts(deadline: Deadline) -> Iterator[None]:
    """In the main thread the first SIGINT stops the deadline, a second one raises KeyboardInterrupt.

    In other threads nothing changes: Python handles signals in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    is_first = True

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_first
        if not is_first:
            raise KeyboardInterrupt
        is_first = False
        deadline.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        # None: a handler that was not installed from Python, and cannot be given back by it.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
