"""The command line: ``xgpc demo``, ``fit``, ``predict`` and ``evaluate``."""

from __future__ import annotations

import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from enum import IntEnum
from importlib import import_module
from io import TextIOWrapper

from .arguments import parser
from .output import say


class Exit(IntEnum):
    """The status of the process; the last three are what a shell reports after SIGINT, SIGPIPE and SIGTERM."""

    OK = 0
    BAD_INPUT = 2
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as an interrupt does: temporary files are removed."""


def _run(argv: Sequence[str] | None) -> None:
    """Parse and run a command, then show its warnings."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit:
        # After --help or --version; errors of the parser are ValueErrors.
        return
    from sklearn.exceptions import ConvergenceWarning

    from ..ranges import DoubtfulRow

    with warnings.catch_warnings(record=True) as caught:
        # Others, of deprecation and the like, are for those who call from Python.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.filterwarnings("always", message="n_neighbors=|X has .* missing", category=UserWarning)
        # The first block of a CSV file chose the type of such a column, not the user.
        warnings.simplefilter("error", DoubtfulRow)
        try:
            module = import_module(".demo" if arguments.command == "demo" else ".commands", __package__)
        except ModuleNotFoundError as error:
            raise ValueError("CSV and Parquet files need pyarrow: pip install 'xgpc[app]'") from error
        getattr(module, arguments.command)(arguments)
    # Batches of rows warn of the same with other numbers. A reader would take a batch's count of missing numbers for
    # that of all rows.
    texts = [re.sub(r"\d+ missing numbers? \(NaN\):", "missing numbers (NaN) in", str(w.message)) for w in caught]
    texts = [re.sub(r"(in|,) \d+ in (?=['\"])", r"\1 ", text) for text in texts]
    for text in {re.sub(r"\d+", "", text): text for text in texts}.values():
        say("warning", text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with the given arguments, or those of the process, and return the exit status.

    It is 0; 2 for bad input, explained in one line on standard error; 130 after an interrupt; 141 if the reader of
    standard output has gone; 143 after ``Terminated``.
    """
    try:
        _run(argv)
        # Here rather than at the interpreter's end, where a failure could not be handled.
        print(end="", flush=True)
        return Exit.OK
    except BrokenPipeError:
        _abandon_stdout()
        return Exit.BROKEN_PIPE
    except KeyboardInterrupt as error:
        is_terminated = isinstance(error, Terminated)
        print(f"xgpc: {'terminated' if is_terminated else 'interrupted'}", file=sys.stderr)
        return Exit.TERMINATED if is_terminated else Exit.INTERRUPTED
    except MemoryError:
        say("error", "not enough memory; use fewer inducing points (--inducing) or mini-batches (--batch-size).")
    except ValueError as error:
        say("error", " ".join([str(error), *getattr(error, "__notes__", ())]))
    except OSError as error:
        _abandon_stdout()
        say("error", f"cannot write standard output: {error.strerror or error}; use --output FILE.")
    return Exit.BAD_INPUT


def _abandon_stdout() -> None:
    """Let the interpreter's last flush of standard output, which failed once, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def command() -> int:
    """Run ``main`` in a process of its own, which SIGTERM ends; a second SIGTERM ends it at once."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    # Names that a terminal has no code for are shown with escapes such as \xf6.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return main()
