"""Files that are written whole or not at all, and files that are read without waiting."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

# Opening a named pipe to read would wait for a writer. Windows has no such pipes.
NO_WAITING = getattr(os, "O_NONBLOCK", 0)
SPECIAL = "{!r} is a device, a pipe or a socket; give the name of a file."


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether a device, a pipe or a socket has this name: what can be written to, but not replaced."""
    mode = _mode(path)
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise the OSError that writing a file here would fail with, as far as that is known beforehand."""
    name = os.fsdecode(path)
    if not os.path.basename(name):
        raise FileNotFoundError(errno.ENOENT, "there is no name of a file", name)
    target = os.path.realpath(name)
    mode, folder = _mode(name), os.path.dirname(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", os.fspath(path))
    if mode is None and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"there is no directory {folder!r}", os.fspath(path))
    # A device is written to itself; a file is replaced, which takes a directory that may be written to.
    needed = [] if mode is None else [target]
    if mode is None or stat.S_ISREG(mode):
        needed.append(folder)
    if not all(os.access(name, os.W_OK) for name in needed):
        raise PermissionError(errno.EACCES, "permission denied", os.fspath(path))


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """As ``check_writable``, and ValueError for a device, a pipe or a socket, which would have to be removed."""
    if is_special(path):
        raise ValueError(SPECIAL.format(os.fspath(path)))
    check_writable(path)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the place of the one at ``path`` once it is whole and on the disk.

    Whoever reads ``path`` meanwhile, or after a failure, an interrupt or a loss of power, finds the old file or the new
    one. A symbolic link stays and its target is replaced. A file that there was keeps its mode, a new one has that of
    the umask; owner and other hard links are not kept. A process that is killed may leave the temporary file behind.

    Raises
    ------
    OSError
        If the file cannot be written; nothing is left of it then.
    ValueError
        If a device, a pipe or a socket has this name.
    """
    check_replaceable(path)
    target = os.path.realpath(os.fsdecode(path))
    mode = _mode(target)
    # In the same directory: only within a file system can one file take the place of another at once.
    temporary = os.path.join(os.path.dirname(target), f".xgpc-{secrets.token_hex(8)}.tmp")
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
    _sync_directory(os.path.dirname(target))


@contextmanager
def regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file, open to read its bytes.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is a device, a pipe or a socket, which may have no end or make the reader wait.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NO_WAITING)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(SPECIAL.format(os.fspath(path)))
        yield file


def _mode(path: str | os.PathLike[str]) -> int | None:
    """Type and permissions of what ``path`` leads to; None if there is nothing."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _sync_directory(folder: str) -> None:
    """Bring the new name to the disk too.

    Not every platform and file system lets a directory be synchronised. Where that fails, the new file is in place all
    the same, and a loss of power could at worst bring the old one back.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
