"""Files: written whole or not at all, read without waiting; models in ``.npz`` files.

A model is a header in JSON and named arrays. NumPy alone reads and writes this form, with text and with a
checksum of each array. Arrays of Python objects are not read, so that nothing in a file can run. All sizes are compared
with the size of the file before memory is allocated.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np

Arrays = dict[str, np.ndarray]
Header = dict[str, Any]
# Opening a named pipe for reading would wait for a writer. Windows has no such pipes.
NO_WAITING = getattr(os, "O_NONBLOCK", 0)
SPECIAL = "{!r} is a device, a pipe or a socket; give the name of a file."
# The version of the contents.
FORMAT = 10
# Largest number of bytes to read at once. ``zipfile`` reads the directory of an archive at once: a model's is shorter.
CHUNK = 2**18
# Largest number of bytes of a text in an array: NumPy takes quadratic time to read one.
MAX_TEXT = 2**24
# Largest number of arrays, of characters that describe one, and of values in the header. A model has about 30 arrays,
# and three values for each length scale. Parsing the largest header takes a second and 60 MB.
MAX_ARRAYS, MAX_DESCRIPTION, MAX_VALUES = 64, 256, 500_000
# Types of arrays: truth, integers, floating-point numbers and text.
KINDS = "biufU"
# Largest number of characters of an error message.
MAX_REASON = 500


def _mode(path: str | os.PathLike[str]) -> int | None:
    """Type and permissions of the file that ``path`` leads to; None without a file."""
    with suppress(FileNotFoundError):
        return os.stat(path).st_mode
    return None


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether a device, a pipe or a socket has this name: it can be written to, but not replaced."""
    mode = _mode(path)
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def check_writable(path: str | os.PathLike[str], may_be_special: bool = False) -> None:
    """Raise the OSError of writing a file here, as far as it is known beforehand.

    ValueError for a device, a pipe or a socket, which cannot be replaced, unless it will be written to.
    """
    check_path(path)
    if is_special(path) and not may_be_special:
        raise ValueError(SPECIAL.format(os.fspath(path)))
    name, mode = os.fsdecode(path), _mode(path)
    target = os.path.realpath(name)
    folder = os.path.dirname(target)
    if not os.path.basename(name) or (mode is None and not os.path.isdir(folder)):
        raise FileNotFoundError(errno.ENOENT, f"there is no name of a file, or no directory {folder!r}", name)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", name)
    # A device itself is written to. A file is replaced, which needs a directory that may be written to.
    needed = ([] if mode is None else [target]) + ([] if is_special(path) else [folder])
    if not all(os.access(place, os.W_OK) for place in needed):
        raise PermissionError(errno.EACCES, "permission denied", name)


def check_path(path: object) -> None:
    """Raise TypeError for what is no path, such as a number, which the system would take for an open file."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"The name of a file must be text or a path, such as 'model.npz'; got {path!r}.")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the place of the one at ``path`` once it is whole and on the disk.

    A reader finds the old file or the new one, also after an error, an interrupt or a loss of power. A symbolic link
    stays, and its target is replaced. The new file has the mode of the old one. A process that is killed may leave the
    temporary file behind.
    """
    check_writable(path)
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


class _Chunks:
    """A binary file for ``zipfile`` that reads at most ``CHUNK`` bytes at once."""

    def __init__(self, file: BinaryIO):
        self.seek, self.tell, self.seekable, self._read = file.seek, file.tell, file.seekable, file.read

    def read(self, size: int = -1) -> bytes:
        return self._read(min(size, CHUNK) if size >= 0 else CHUNK)


def write(path: str | os.PathLike[str], kind: str, header: Header, arrays: Mapping[str, np.ndarray]) -> None:
    """Write header and arrays to a file of this kind, which takes the place of an older one at once."""
    text = to_json({"format": f"xgpc {kind} {FORMAT}", "arrays": sorted(arrays), **header})
    with replacing(path) as file:
        np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]


def to_json(header: Header) -> str:
    text = json.dumps(header, default=lambda value: np.asarray(value).tolist(), sort_keys=True)
    _check_length(text)
    return text


def _check_length(text: str) -> None:
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise ValueError(f"The header of a file has at most {MAX_VALUES} values; the kernels have more parameters.")


@contextmanager
def reading(path: str | os.PathLike[str], kind: str, saved_by: str) -> Iterator[tuple[Header, Arrays]]:
    """The header and the arrays of a file of this kind, which ``saved_by`` saved.

    Each error of reading a damaged or foreign file, here or in the context, becomes a ValueError that says what the
    file is not; so do a device, a pipe and a socket, which may have no end or make the reader wait.
    """
    check_path(path)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NO_WAITING)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(SPECIAL.format(os.fspath(path)))
        try:
            yield _read(file, kind)
        except MemoryError:
            raise
        except Exception as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            refusal = f"{os.fspath(path)!r} is not a model saved by {saved_by}.save"
            raise ValueError(f"{refusal}: {reason[:MAX_REASON].rstrip('.')}.") from error


def _read(file: BinaryIO, kind: str) -> tuple[Header, Arrays]:
    """The header and the arrays of a file of this kind; any exception for other files."""
    arrays = dict(_arrays(file))
    text = arrays.pop("header").tobytes().decode()
    _check_length(text)
    header: Header = json.loads(text)
    if (name := header.pop("format")) != f"xgpc {kind} {FORMAT}":
        raise ValueError(f"its format is {name!r}, but this version reads 'xgpc {kind} {FORMAT}'")
    if (expected := header.pop("arrays")) != sorted(arrays):
        raise ValueError(f"its arrays are {sorted(arrays)}, not {expected}")
    return header, arrays


def _arrays(file: BinaryIO) -> Iterator[tuple[str, np.ndarray]]:
    size, stream = file.seek(0, os.SEEK_END), _Chunks(file)
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if len(members) > MAX_ARRAYS or sum(member.file_size for member in members) > size:
            raise ValueError(f"it has {len(members)} arrays, which are too many or longer than the file")
        for member in members:
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as content:
                version = np.lib.format.read_magic(content)
                shape, _, dtype = np.lib.format.read_array_header_1_0(content, MAX_DESCRIPTION)
                is_valid = version == (1, 0) and dtype.kind in KINDS and 0 < dtype.itemsize <= MAX_TEXT
                length = content.tell() + math.prod(shape) * dtype.itemsize
                if not is_valid or min(shape, default=0) < 0 or length != member.file_size:
                    raise ValueError(f"its array {name!r} is not of numbers or text, or not as long as its shape says")
                content.seek(0)
                array = np.lib.format.read_array(content, max_header_size=MAX_DESCRIPTION)
            if dtype.kind == "U":
                # NumPy does not check that the characters exist before it makes strings of them.
                array.tolist()
            yield name, array.astype(dtype.newbyteorder("="), copy=False)
