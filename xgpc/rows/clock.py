"""The time of a fit: when learning and the fit end, and interrupts that end both."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

from .._threads import Held

# Learning ends after this share of the time. The rest is for the posterior of all rows: some passes over these, whereas
# learning makes hundreds, though mostly over fewer rows.
LEARNING_SHARE = 0.8


class OutOfTime(Exception):
    """Ends learning for lack of time; ``where`` names the interrupted part. It never leaves a fit."""

    where = ""


@contextmanager
def during(part: str) -> Iterator[None]:
    """Name the part that an ``OutOfTime`` interrupts, where it passes; the innermost name counts."""
    try:
        yield
    except OutOfTime as end:
        end.where = end.where or part
        raise


class Clock:
    """The time of a fit that has ``seconds``, by a function ``now``; it is over, too, once it is stopped.

    Executors call ``check`` before each pass and between blocks.
    """

    def __init__(self, seconds: float = math.inf, now: Callable[[], float] = time.monotonic):
        self.seconds, self._now, self._began = seconds, now, now()
        self._stopped_by = ""
        # While this is true, ``check`` ends what is done once the time for learning is over.
        self.is_learning = False
        # Tells the user how far the fit is, and may stop the clock.
        self.report: Callable[[], None] | None = None

    def stop(self, by: str = "an interrupt") -> None:
        """Time is over now; ``by`` names the cause."""
        self._stopped_by = self._stopped_by or by

    @property
    def reason(self) -> str:
        """The cause of the end, in words."""
        return self._stopped_by or f"max_time={self.seconds:g}"

    @property
    def seconds_left(self) -> float:
        """Not negative; 0 once the clock is stopped."""
        return 0.0 if self._stopped_by else max(0.0, self._began + self.seconds - self._now())

    def has_passed(self, share: float = 1.0) -> bool:
        """Whether this share of the time is over."""
        return bool(self._stopped_by) or self._now() - self._began >= share * self.seconds

    def check(self, begins_pass: bool = True) -> None:
        """Report that a pass begins, and raise ``OutOfTime`` if the time for learning is over."""
        if begins_pass and self.report is not None:
            self.report()
        if self.is_learning and self.has_passed(LEARNING_SHARE):
            raise OutOfTime


def stopped_by_interrupts(clock: Clock) -> AbstractContextManager[object]:
    """In the main thread, the first SIGINT stops the clock and a second one raises KeyboardInterrupt.

    In other threads nothing changes, because Python handles signals only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    handler_before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        clock.stop()

    # None is a handler that was not installed from Python; it cannot be restored.
    handler_after = signal.SIG_DFL if handler_before is None else handler_before
    return Held(lambda _: signal.signal(signal.SIGINT, stop), lambda _: signal.signal(signal.SIGINT, handler_after))
