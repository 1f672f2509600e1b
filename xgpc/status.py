"""How something goes, told while it goes: records of the logger "xgpc", or lines on standard error."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

LOGGER = logging.getLogger("xgpc")
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# A terminal's line is written anew so often at most: eyes follow no faster, and writing costs some microseconds.
SECONDS_BETWEEN_UPDATES = 0.1
# Where every line stays, in a file or a notebook: 360 of them an hour.
SECONDS_BETWEEN_LINES = 10.0


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and name the line of the user's code that called the library."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class Status:
    """Messages that stay, and a line between them that is told anew.

    An application that shows records of the logger "xgpc" at level INFO gets records and nothing else. Everywhere else
    lines go to a stream: on a terminal the running line is replaced in its place, in other streams a new one is
    written now and then. What cannot be written is left out: it is no reason for a fit to fail.

    Parameters
    ----------
    stream : TextIO, default=None
        None: standard error.
    clock : function that returns the time in seconds
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._is_logged = LOGGER.isEnabledFor(logging.INFO) and LOGGER.hasHandlers()
        self._in_place = not self._is_logged and _is_terminal(self._stream)
        self._between = SECONDS_BETWEEN_UPDATES if self._in_place else SECONDS_BETWEEN_LINES
        # When the next running line may come, and characters of the one that is there.
        self._next, self._width = -float("inf"), 0

    def say(self, message: str) -> None:
        """A message that stays."""
        if self._is_logged:
            LOGGER.info("%s", message)
        else:
            self._write(f"{self._erased()}xgpc: {message}\n")
        if not self._in_place:
            self._next = self._clock() + self._between

    def update(self, line: Callable[[], str]) -> None:
        """The running line, made only if it is time for one."""
        now = self._clock()
        if now < self._next:
            return
        if not self._in_place:
            self.say(line())
            return
        self._next = now + self._between
        # One column short: some terminals begin a new line after the last one.
        shown = f"xgpc: {line()}"[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{shown.ljust(self._width)}")
        self._width = len(shown)

    def close(self) -> None:
        """Nothing is left of the running line."""
        self._write(self._erased())

    def _erased(self) -> str:
        """What takes the running line away."""
        blank, self._width = " " * self._width, 0
        return f"\r{blank}\r" if blank else ""

    def _write(self, text: str) -> None:
        # There is no standard error in programs without a console.
        if not text or self._stream is None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        # ValueError: the stream is closed.
        with suppress(OSError, ValueError):
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a line can be written anew in its place."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        # It is closed.
        return False
