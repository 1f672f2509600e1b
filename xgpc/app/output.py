"""What commands write: tables in files, and text on standard output."""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np

from ..files import check_writable, is_special, replacing
from .parquet import is_parquet

# Rows that are turned into text at a time.
WRITTEN_ROWS = 10_000


def check_output(path: str, inputs: Sequence[str] = (), check: Callable[[str], None] = check_writable) -> None:
    """Refuse, before any work is done, an output that could not be written or that would replace an input."""
    for given in inputs:
        if os.path.exists(path) and os.path.exists(given) and os.path.samefile(path, given):
            raise ValueError(f"the output {path!r} is also an input, which it would replace; give it another name.")
    with writing(path):
        check(path)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an OSError into a message about ``path``."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write {path!r}: {error.strerror or error}; give the name of a file in a directory that exists, "
            "has free space and may be written to."
        ) from None


@contextmanager
def output(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` at the end; a device or a pipe is written to."""
    with writing(path), open(path, "wb") if is_special(path) else replacing(path) as file:
        yield file


def write_table(path: str | None, names: Sequence[str], labels: np.ndarray, numbers: np.ndarray) -> None:
    """A table of labels (n,) and numbers (n, k), in the form that the name of the file asks for.

    Parameters
    ----------
    path : str or None
        ".parquet" at the end means a Parquet file, ".gz" CSV compressed by gzip, everything else that
        ``check_table_name`` allows CSV; None: CSV to standard output.
    names : of the k + 1 columns
    """
    if path is None:
        if sys.stdout is None:
            raise ValueError("standard output is closed; use --output FILE.")
        _write_csv(sys.stdout, names, labels, numbers)
        return
    with output(path) as file:
        if is_parquet(path):
            _write_parquet(file, names, labels, numbers)
        elif path.lower().endswith(".gz"):
            # Without the time the same predictions make the same file.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
                _write_csv(_as_text(compressed), names, labels, numbers)
        else:
            _write_csv(_as_text(file), names, labels, numbers)


def check_table_name(path: str) -> None:
    """Refuse, before any work is done, a table whose form cannot be written, by the ending of its name."""
    stem, ending = os.path.splitext(path.lower())
    if ending == ".gz":
        ending = os.path.splitext(stem)[1]
    if (ending not in ("", ".csv") and not is_parquet(path)) and not is_special(path):
        raise ValueError(
            f"the output {path!r} must end in .csv, .csv.gz (compressed by gzip) or .parquet; a name without an ending "
            "is CSV, too."
        )
    if is_parquet(path) and find_spec("pyarrow") is None:
        raise ValueError(
            f"the output {path!r} is a Parquet file, which needs pyarrow: pip install 'xgpc[parquet]', or give it "
            "another name for CSV."
        )


_as_text = codecs.getwriter("utf-8")


def _write_csv(file: Any, names: Sequence[str], labels: np.ndarray, numbers: np.ndarray) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for start in range(0, len(labels), WRITTEN_ROWS):
        part = slice(start, start + WRITTEN_ROWS)
        rows = zip(labels[part].tolist(), numbers[part].tolist(), strict=True)
        writer.writerows([label, *row] for label, row in rows)


def _write_parquet(file: BinaryIO, names: Sequence[str], labels: np.ndarray, numbers: np.ndarray) -> None:
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    # Of no labels, too, with their type; objects are text.
    labels = labels.astype(np.str_) if labels.dtype.kind == "O" else labels
    columns = [pyarrow.array(labels), *(pyarrow.array(column) for column in numbers.T)]
    parquet.write_table(pyarrow.table(columns, names=list(names)), file)


def show(text: str) -> None:
    """Print, with escapes such as \\xf6 for characters that standard output has no code for."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def check_encoding(names: Sequence[object]) -> None:
    """Refuse names that standard output has no code for: escapes in a table of data would be other names."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        "".join(map(str, names)).encode(encoding)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"standard output is {encoding}, which has no {error.object[error.start]!r}; use --output FILE, which is "
            "UTF-8, or set PYTHONIOENCODING=utf-8."
        ) from None
