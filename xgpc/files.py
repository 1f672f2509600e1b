"""Files that are written whole or not at all, and files that are read without waiting."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

# Opening a named pipe for reading would wait for a writer. Windows has no such pipes.
NO_WAITING = getattr(os, "O_NONBLOCK", 0)
SPECIAL = "{!r} is a device, a pipe or a socket; give the name of a file."


def _mode(path: str | os.PathLike[str]) -> int | None:
    """Type and permissions of the file that ``path`` leads to; None without a file."""
    with suppress(FileNotFoundError):
        return os.stat(path).st_mode
    return None


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether a device, a pipe or a socket has this name: it can be written to, but not replaced."""
    mode = _mode(path)
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise the OSError of writing a file here, as far as it is known beforehand."""
    name, mode = os.fsdecode(path), _mode(path)
    target = os.path.realpath(name)
    folder = os.path.dirname(target)
    if not os.path.basename(name):
        raise FileNotFoundError(errno.ENOENT, "there is no name of a file", name)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", name)
    if mode is None and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"there is no directory {folder!r}", name)
    # A device itself is written to. A file is replaced, which needs a directory that may be written to.
    needed = ([] if mode is None else [target]) + ([] if is_special(path) else [folder])
    if not all(os.access(one, os.W_OK) for one in needed):
        raise PermissionError(errno.EACCES, "permission denied", name)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """As ``check_writable``, and ValueError for a device, a pipe or a socket, which cannot be replaced."""
    if is_special(path):
        raise ValueError(SPECIAL.format(os.fspath(path)))
    check_writable(path)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the place of the one at ``path`` once it is whole and on the disk.

    A reader finds the old file or the new one, also after an error, an interrupt or a loss of power. A symbolic link
    stays, and its target is replaced. The new file has the mode of the old one, but not its owner and its other hard
    links. A process that is killed may leave the temporary file behind. Errors are those of ``check_replaceable``
    and of writing.
    """
    check_replaceable(path)
    target, mode = os.path.realpath(os.fsdecode(path)), _mode(path)
    folder = os.path.dirname(target)
    # In the same directory, because a file can take the place of another at once only within a file system.
    temporary = os.path.join(folder, f".xgpc-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None and mode != os.stat(temporary).st_mode:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    # The new name must be on the disk, too. Where directories cannot be synchronised, a loss of power may bring the old
    # file back.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to read; ValueError for a device, a pipe or a socket, which may have no end or make the reader wait."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NO_WAITING)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(SPECIAL.format(os.fspath(path)))
        yield file
