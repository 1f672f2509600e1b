"""Arrays of an uncompressed ``.npz`` file, without trust in what it says of itself.

Names, types and shapes are known before any array is read, so that who reads can refuse what does not fit; sizes are
compared with the file's own before memory is taken for them; and the checksum of all that is read is verified.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

# Bytes read at a time, far more than the directory of an archive takes, which ``zipfile`` reads at once.
CHUNK = 2**18
# A model has about twenty.
MAX_MEMBERS = 64
# Characters of an array's header: numbers of three axes, and a type.
MAX_ARRAY_HEADER = 256
# Booleans, integers, floats and text; nothing that would be executed.
KINDS = "biufU"
ENCRYPTED = 0x1


class _Chunks:
    """What ``zipfile`` needs of a file to read it; ValueError for a read of more than a chunk."""

    def __init__(self, file: BinaryIO):
        self.seek, self.tell, self.seekable, self._read = file.seek, file.tell, file.seekable, file.read

    def read(self, size: int = -1) -> bytes:
        if size > CHUNK:
            raise ValueError("its directory is too long")
        return self._read(CHUNK if size < 0 else size)


@dataclass(frozen=True)
class Member:
    """An array in the file: its type and shape, and where its values begin."""

    info: zipfile.ZipInfo
    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    start: int


class Archive(Mapping[str, np.ndarray]):
    """Arrays by name; each is read when it is asked for.

    Parameters
    ----------
    file : binary file, open to read

    Attributes
    ----------
    members : dict, name -> Member

    Raises
    ------
    ValueError, zipfile.BadZipFile
        For a file that ``np.savez`` has not written. Other exceptions of ``zipfile`` are possible.
    """

    def __init__(self, file: BinaryIO):
        size = file.seek(0, os.SEEK_END)
        stream: Any = _Chunks(file)
        self._zip = zipfile.ZipFile(stream)
        infos = self._zip.infolist()
        if len(infos) > MAX_MEMBERS:
            raise ValueError(f"it has {len(infos)} members")
        self.members: dict[str, Member] = {}
        for info in infos:
            name = info.filename.removesuffix(".npy")
            if name in self.members or name == info.filename:
                raise ValueError(f"its member {info.filename!r} is no array, or there twice")
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & ENCRYPTED:
                raise ValueError(f"its member {info.filename!r} is compressed or encrypted")
            if info.compress_size != info.file_size or info.file_size > size:
                raise ValueError(f"its member {info.filename!r} is longer than the file")
            self.members[name] = self._member(info)

    def _member(self, info: zipfile.ZipInfo) -> Member:
        with self._zip.open(info) as stream:
            if np.lib.format.read_magic(stream) != (1, 0):
                raise ValueError(f"its member {info.filename!r} is of an unknown version")
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream, MAX_ARRAY_HEADER)
            start = stream.tell()
        if dtype.kind not in KINDS or not dtype.itemsize or min(shape, default=0) < 0:
            raise ValueError(f"its member {info.filename!r} is no array of numbers or text: {dtype}, {shape}")
        if start + math.prod(shape) * dtype.itemsize != info.file_size:
            raise ValueError(f"its member {info.filename!r} is not as long as its shape says: {dtype}, {shape}")
        return Member(info, dtype, shape, fortran_order, start)

    def __getitem__(self, name: str) -> np.ndarray:
        member = self.members[name]
        values = np.empty(member.info.file_size - member.start, dtype=np.uint8)
        with self._zip.open(member.info) as stream:
            stream.read(member.start)
            for i in range(0, len(values), CHUNK):
                part = values[i : i + CHUNK]
                part[:] = np.frombuffer(stream.read(len(part)), dtype=np.uint8)
        array = values.view(member.dtype).reshape(member.shape, order="F" if member.fortran_order else "C")
        if member.dtype.kind == "b" and np.any(values > 1):
            raise ValueError(f"its member {member.info.filename!r} has booleans that are neither 0 nor 1")
        if member.dtype.kind == "U":
            # Of code points that there are: NumPy looks at none before it makes strings of them.
            array.tolist()
        return array.astype(member.dtype.newbyteorder("="), copy=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)
