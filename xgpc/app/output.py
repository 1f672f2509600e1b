"""Where the commands write: files, which are replaced as a whole, and the two standard streams."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from ..files import check_writable, is_special, replacing


def check_output(path: str, inputs: Sequence[str] = (), may_be_special: bool = True) -> None:
    """Refuse, before any work is done, an output that could not be written or that would replace an input."""
    for source in inputs:
        if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
            raise ValueError(f"the output {path!r} is also an input, which it would replace; give it another name.")
    with writing(path):
        check_writable(path, may_be_special)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an OSError into a message about ``path``, but for a reader of standard output that has gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ValueError(
            f"cannot write {path!r}: {error.strerror or error}; give the name of a file in a directory that exists, "
            "has free space and may be written to."
        ) from None


@contextmanager
def output(path: str) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` at the end; write directly to a device or a pipe."""
    with writing(path), open(path, "wb") if is_special(path) else replacing(path) as file:
        yield file


def say(kind: str, message: object) -> None:
    """Print one line on standard error, without what a terminal would take for a command."""
    line = "".join(character if character.isprintable() else " " for character in str(message))
    print(f"xgpc: {kind}: {' '.join(line.split())}", file=sys.stderr)
