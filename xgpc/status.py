"""Progress and warnings for the user: records of the logger "xgpc", or lines on standard error and a bar of tqdm."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tqdm import tqdm

LOGGER = logging.getLogger("xgpc")
# NumPy's ``errstate`` decorates the public functions.
PACKAGES = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, np.__file__))
# Least time between lines about the progress where there is no bar, and every line stays: 360 lines per hour.
SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a note to an exception that the block raises."""
    try:
        yield
    except Exception as error:
        error.add_note(note)
        raise


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn, and name the line of the user's code that called the library."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(PACKAGES) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class Status:
    """Messages and the progress of a fit.

    An application that shows records of the logger "xgpc" at level INFO receives records only. Otherwise messages are
    lines on standard error, and a terminal has a bar of tqdm below them, if tqdm is installed.
    """

    def __init__(self) -> None:
        self._is_logged = LOGGER.isEnabledFor(logging.INFO) and LOGGER.hasHandlers()
        self._bar = None if self._is_logged else _bar()
        self._next_line = -math.inf

    def say(self, message: str) -> None:
        """Write a message."""
        if self._is_logged:
            LOGGER.info("%s", message)
        elif sys.stderr is not None:
            with _errors_left_out():
                write = print if self._bar is None else self._bar.write
                write(f"xgpc: {message}", file=sys.stderr)

    def update(self, line: Callable[[], str]) -> None:
        """Show the progress, if it is time; ``line`` is called only then."""
        if self._bar is None:
            if time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + SECONDS_BETWEEN_LINES
                self.say(line())
            return
        with _errors_left_out():
            if self._bar.update():
                self._bar.set_description_str(line())

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            with _errors_left_out():
                self._bar.close()


def _bar() -> tqdm | None:
    """A bar on a terminal; None without tqdm, and where standard error is no terminal, closed or missing."""
    with suppress(AttributeError, ImportError, OSError, ValueError):
        if sys.stderr.isatty():
            from tqdm import tqdm

            return tqdm(bar_format="xgpc: {desc}", dynamic_ncols=True, leave=False, miniters=1)
    return None


@contextmanager
def _errors_left_out() -> Iterator[None]:
    """Ignore errors of the stream, which should not make a fit fail."""
    try:
        yield
    except (OSError, ValueError) as error:
        if is_of_handler(error):
            raise


def is_of_handler(error: BaseException) -> bool:
    """Whether a signal's handler has raised an error to end a call: the system's errors have numbers."""
    return isinstance(error, TimeoutError) and error.errno is None
