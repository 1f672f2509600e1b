"""Progress and warnings for the user: records of the logger "xgpc", or lines on standard error."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from typing import TextIO

LOGGER = logging.getLogger("xgpc")
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Least time between updates of the line on a terminal: eyes follow no faster, and an update costs some microseconds.
SECONDS_BETWEEN_UPDATES = 0.1
# Least time between lines in a file or a notebook, where every line stays: 360 lines per hour.
SECONDS_BETWEEN_LINES = 10.0


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and name the line of the user's code that called the library."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class Status:
    """Messages, and a progress line that is updated.

    An application that shows records of the logger "xgpc" at level INFO receives records only. Otherwise lines go to a
    stream: a terminal shows one progress line and updates it in place; other streams get a new line now and then. An
    error of the stream is ignored, because it should not make a fit fail; an error of a signal's handler is raised.

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
        # Time of the next progress line, and length of the present one.
        self._next, self._width = -float("inf"), 0

    def say(self, message: str) -> None:
        """Write a message."""
        if self._is_logged:
            LOGGER.info("%s", message)
        else:
            self._write(f"{self._erased()}xgpc: {message}\n")
        if not self._in_place:
            self._next = self._clock() + self._between

    def update(self, line: Callable[[], str]) -> None:
        """Update the progress line, if it is time; ``line`` is called only then."""
        now = self._clock()
        if now < self._next:
            return
        if not self._in_place:
            self.say(line())
            return
        self._next = now + self._between
        # One column less than the width, because some terminals begin a new line after the last column.
        shown = f"xgpc: {line()}"[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{shown.ljust(self._width)}")
        self._width = len(shown)

    def close(self) -> None:
        """Remove the progress line."""
        self._write(self._erased())

    def _erased(self) -> str:
        """The characters that erase the progress line."""
        blank, self._width = " " * self._width, 0
        return f"\r{blank}\r" if blank else ""

    def _write(self, text: str) -> None:
        # Programs without a console have no standard error.
        if not text or self._stream is None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        # ValueError: the stream is closed.
        except (OSError, ValueError) as error:
            if is_of_handler(error):
                raise


def is_of_handler(error: BaseException) -> bool:
    """Whether a signal's handler has raised an error to end a call: the system's errors have numbers."""
    return isinstance(error, TimeoutError) and error.errno is None


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a line can be updated in place."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        # The stream is closed.
        return False
