"""Deadlines of fits: the time kept for the posterior of all rows, and interrupts that end a fit."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .executor import Function, Monitor, State
from .source import RowSource

# Steps over all rows that time is kept for: one starts from the learned sites, one makes a step, one computes a
# correction or gap, and one more because all rows are farther from the processor than few.
FINAL_STEPS = 4.0
# The lower quartile of the latest steps estimates a step, because some of them include gradients or other work. The
# first steps wait for memory and threads, so fewer give no estimate.
LATEST_STEPS, LEAST_STEPS = 9, 3


class OutOfTime(Exception):
    """Ends learning for lack of time; ``where`` says what it was doing. It never leaves a fit."""

    where = ""


@contextmanager
def during(what: str) -> Iterator[None]:
    """Tell an ``OutOfTime`` that passes what was being done; the innermost name counts."""
    try:
        yield
    except OutOfTime as end:
        end.where = end.where or what
        raise


class Deadline:
    """The moment at which a fit has to end; by default never, unless ``stop`` is called.

    Parameters
    ----------
    seconds : float, from now on
    clock : function that returns the time in seconds
    stopped : Event, set when the moment is now; may be shared with another deadline
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
        """Set the moment to now; ``by`` names the cause."""
        self._stopped_by = self._stopped_by or by
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def reason(self) -> str:
        """The cause of the end, in words."""
        return self._stopped_by if self.is_stopped else f"max_time={self.seconds:g}"

    @property
    def left(self) -> float:
        """Seconds left."""
        return -math.inf if self.is_stopped else self.end - self.now()

    def earlier(self, share: float) -> Deadline:
        """A deadline after this share of the time left, which stops with this one."""
        return Deadline(share * (self.end - self.now()), self.now, self._stopped)

    def allows_again(self, since: float) -> bool:
        """Whether at least as much time is left as has passed since then."""
        now = self.now()
        return not self.is_stopped and now + (now - since) <= self.end


class Reserve(Monitor):
    """Raises ``OutOfTime`` once the time left is needed for the posterior of all rows.

    The estimate is made from steps: a pass of the function ``final``, with all that happens until its next pass over as
    many rows. Time in passes of any function counts as proportional to rows and multiply-adds, other time as constant.

    Parameters
    ----------
    deadline : Deadline
    n_rows : int, all rows
    final : function whose passes give the posterior of all rows
    """

    def __init__(self, deadline: Deadline, n_rows: int, final: Function[object]):
        self.deadline, self.n_rows, self.final = deadline, n_rows, final
        # For each step, seconds in passes for each row and multiply-add, and other seconds.
        self._steps: deque[tuple[float, float]] = deque(maxlen=LATEST_STEPS)
        # The latest pass of ``final``: rows and multiply-adds for each, and its end. Since then: seconds in all passes,
        # and in those of other functions.
        self._size, self._ended, self._in_passes, self._in_others = (0, 0.0), 0.0, 0.0, 0.0
        self._began, self._is_final = 0.0, False

    @property
    def seconds(self) -> float:
        """Seconds kept for the posterior."""
        if len(self._steps) < LEAST_STEPS:
            return 0.0
        in_passes, between = (sorted(values)[len(values) // 4] for values in zip(*self._steps, strict=True))
        return FINAL_STEPS * (self.n_rows * self._size[1] * in_passes + between)

    def begin(self, function: Function[object], source: RowSource, state: State) -> None:
        self._began, self._is_final = self.deadline.now(), function is self.final
        if self._is_final:
            size = source.n_rows, state.cost.work
            if size == self._size:
                others = self._began - self._ended - self._in_others
                self._steps.append((self._in_passes / math.prod(size), others))
            self._size, self._in_passes, self._in_others = size, 0.0, 0.0
        self.check()

    def check(self) -> None:
        if not self.deadline.left > self.seconds:
            raise OutOfTime

    def end(self) -> None:
        now = self.deadline.now()
        self._in_passes += now - self._began
        if self._is_final:
            self._ended = now
        else:
            self._in_others += now - self._began


@contextmanager
def stopped_by_interrupts(deadline: Deadline) -> Iterator[None]:
    """In the main thread, the first SIGINT stops the deadline and a second one raises KeyboardInterrupt.

    In other threads nothing changes, because Python handles signals only in the main thread.
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
        # None is a handler that was not installed from Python; it cannot be restored.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
