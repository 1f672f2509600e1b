"""Deadlines of fits: the time kept for the posterior of all rows, and interrupts that end a fit."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

from .._threads import Held

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
    """The moment at which a fit has to end, in ``seconds`` by a ``clock``, or now once the event ``stopped`` is set.

    An executor calls ``begin`` and ``end`` of each pass, ``check`` after some work, such as a block, and ``report``
    after other work than a pass.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        stopped: threading.Event | None = None,
    ):
        self.now, self.seconds, self._end = clock, seconds, clock() + seconds
        self._stopped, self._stopped_by = stopped or threading.Event(), ""
        self.report: Callable[[], None] = lambda: None
        self._n_rows = 0
        self._final: object = None
        # For each step, seconds in passes for each row and multiply-add, and other seconds.
        self._steps: deque[tuple[float, float]] = deque(maxlen=LATEST_STEPS)
        # The step at work: its rows and multiply-adds for each, its begin and that of the pass, its seconds in passes.
        self._size, self._began, self._pass_began, self._in_passes = (0, 0.0), 0.0, 0.0, 0.0

    def stop(self, by: str = "an interrupt") -> None:
        """Set the moment to now; ``by`` names the cause."""
        self._stopped_by = self._stopped_by or by
        self._stopped.set()

    @property
    def reason(self) -> str:
        """The cause of the end, in words."""
        return self._stopped_by if self._stopped.is_set() else f"max_time={self.seconds:g}"

    @property
    def left(self) -> float:
        """Seconds left."""
        return -math.inf if self._stopped.is_set() else self._end - self.now()

    def earlier(self, share: float) -> Deadline:
        """A deadline after this share of the time left, which stops with this one."""
        return Deadline(share * (self._end - self.now()), self.now, self._stopped)

    def allows_again(self, since: float) -> bool:
        """Whether at least as much time is left as has passed since then."""
        now = self.now()
        return not self._stopped.is_set() and now + (now - since) <= self._end

    @contextmanager
    def reserving(self, n_rows: int, final: object) -> Iterator[None]:
        """Passes raise ``OutOfTime`` once the time left is needed for the posterior of ``n_rows`` rows.

        The estimate is made from steps: a pass of the function ``final``, and all until its next pass over as many
        rows. Time in passes of any function is proportional to rows and multiply-adds, other time is constant.
        """
        self._n_rows, self._final = n_rows, final
        try:
            yield
        finally:
            self._final = None

    @property
    def reserved(self) -> float:
        """Seconds kept for the posterior."""
        if len(self._steps) < LEAST_STEPS:
            return 0.0
        in_passes, between = (sorted(values)[len(values) // 4] for values in zip(*self._steps, strict=True))
        return FINAL_STEPS * (self._n_rows * self._size[1] * in_passes + between)

    def begin(self, function: object, n_rows: int, work: float) -> None:
        """A pass begins, of so many multiply-adds for each row."""
        if self._final is None:
            return
        self._pass_began = self.now()
        if function is self._final:
            size = n_rows, work
            if size == self._size:
                others = self._pass_began - self._began - self._in_passes
                self._steps.append((self._in_passes / (n_rows * work), others))
            self._size, self._began, self._in_passes = size, self._pass_began, 0.0
        self.check()

    def check(self) -> None:
        """Raise ``OutOfTime`` if only the reserved time is left."""
        if self._final is not None and not self.left > self.reserved:
            raise OutOfTime

    def end(self) -> None:
        """The pass is complete."""
        if self._final is not None:
            self._in_passes += self.now() - self._pass_began
        self.report()


# The default of what may have a deadline.
NEVER = Deadline()


def stopped_by_interrupts(deadline: Deadline) -> AbstractContextManager[object]:
    """In the main thread, the first SIGINT stops the deadline and a second one raises KeyboardInterrupt.

    In other threads nothing changes, because Python handles signals only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    before, n_signals = signal.getsignal(signal.SIGINT), 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal n_signals
        n_signals += 1
        if n_signals > 1:
            raise KeyboardInterrupt
        deadline.stop()

    # None is a handler that was not installed from Python; it cannot be restored.
    after = signal.SIG_DFL if before is None else before
    return Held(lambda _: signal.signal(signal.SIGINT, stop), lambda _: signal.signal(signal.SIGINT, after))
