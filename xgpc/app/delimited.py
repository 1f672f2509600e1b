"""CSV files: rows of numbers and text, with errors that name the line and the column."""

from __future__ import annotations

import csv
import gzip
import io
import math
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from ..data.frames import Column, ColumnTable, Levels, Numbers
from ..ranges import largest_size
from .columns import Table, Wanted, listed, plain

DELIMITERS = (",", ";", "\t")
# Characters of a line at which it is taken for one without end, as of /dev/zero: twice those of a million features of
# 25 characters and a separator. They are read in a moment.
LONGEST_LINE = 2**26
# As pandas, R and spreadsheets write them.
TRUTHS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
# Cells of columns of numbers that are missing: those that pandas.read_csv reads as such.
MISSING = {
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
}  # fmt: skip
# By how many cells of a file's first rows its columns are numbers or text: 20 000 rows of ten columns, 16 MB of text.
DECIDING_CELLS = 200_000


def name_of(path: str) -> str:
    """How messages call a file."""
    return "standard input" if path == "-" else path


def _binary(path: str) -> AbstractContextManager[Any]:
    """The bytes of CSV."""
    if path == "-":
        if sys.stdin is None:
            raise ValueError("standard input is closed; give the name of a file.")
        return nullcontext(sys.stdin.buffer)
    return gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")


@contextmanager
def opened(path: str) -> Iterator[Iterator[str]]:
    """Lines of a CSV file; errors of reading it are ValueErrors that say what is wrong with the file."""
    name = name_of(path)
    try:
        with _binary(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            try:
                yield _lines(text, name)
            finally:
                # Standard input stays open.
                text.detach()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name!r} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); save it as CSV in UTF-8."
        ) from None
    except csv.Error as error:
        raise ValueError(f"{name!r} is not well-formed CSV: {error}; check quotation marks.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name!r} is not a whole file of gzip: {error}; compress it again.") from None
    except OSError as error:
        raise ValueError(
            f"cannot read {name!r}: {error.strerror}; give the path of a CSV file with a header line."
        ) from None


def _lines(text: io.TextIOWrapper, name: str) -> Iterator[str]:
    """Lines of a file; ValueError for one that seems to have no end, as of a device."""
    for number, line in enumerate(iter(partial(text.readline, LONGEST_LINE), ""), 1):
        if len(line) == LONGEST_LINE:
            raise ValueError(
                f"{name!r}, line {number} has {LONGEST_LINE} characters or more; give a file with a line for each row."
            )
        yield line


class CsvRows:
    """Rows of CSV as they are read: numbers, and those of levels, NaN where one is missing.

    Attributes
    ----------
    names : of the columns
    levels : for each column its distinct cells with their numbers, or None for a column of numbers
    labels : distinct labels with their numbers
    values, codes, lines : numbers of the cells, row by row, and of the labels, and the rows' lines
    """

    def __init__(self, names: Sequence[str], are_levels: Sequence[bool]):
        self.names = list(names)
        self.levels: list[dict[str, int] | None] = [{} if is_level else None for is_level in are_levels]
        self.labels: dict[str, int] = {}
        self._has_levels = any(are_levels)
        self._begin()

    def _begin(self) -> None:
        self.values, self.codes, self.lines = array("d"), array("q"), array("q")

    def add(self, line: int, cells: Sequence[Any], label: str) -> None:
        if self._has_levels:
            cells = [
                cell if known is None else known.setdefault(cell, len(known)) if cell else math.nan
                for cell, known in zip(cells, self.levels, strict=True)
            ]
        self.values.extend(cells)
        self.codes.append(self.labels.setdefault(label, len(self.labels)))
        self.lines.append(line)

    def take(self) -> tuple[np.ndarray, np.ndarray, Sequence[int]]:
        """Cells (r, d), numbers of labels (r,) and lines of the rows so far, which are then given away."""
        cells = np.frombuffer(self.values, dtype=np.float64).reshape(len(self.lines), len(self.names))
        taken = cells, np.frombuffer(self.codes, dtype=np.int64), self.lines
        self._begin()
        return taken

    def table(self, path: str, has_target: bool) -> Table:
        """All rows."""
        cells, codes, lines = self.take()
        texts = list(self.labels)
        target = [texts[code] for code in codes.tolist()] if has_target else []
        if not self._has_levels and not math.isnan(largest_size(cells)):
            return Table(path, self.names, cells, target, lines)
        columns: list[Column] = []
        for name, known, values in zip(self.names, self.levels, cells.T, strict=True):
            if known is None:
                columns.append(Numbers(name, values))
            else:
                columns.append(Levels(name, np.where(np.isnan(values), -1.0, values).astype(np.intp), list(known)))
        return Table(path, self.names, ColumnTable(columns), target, lines)


# A row of CSV: its line, the cells of X, numbers or text, and the label, "" without a target.
Record = tuple[int, list[str | float], str]


def parsed(path: str, file: Iterator[str], wanted: Wanted) -> tuple[list[str], list[bool], Iterator[Record]]:
    """The columns of X in a CSV file, whether they are levels, and the rows."""
    head = list(islice(file, 2))
    delimiter = _delimiter(head)
    # Strict: a quotation mark that is never closed would otherwise swallow the rest of the file.
    reader = csv.reader(chain(head, file), delimiter=delimiter, skipinitialspace=True, strict=True)
    records = ((reader.line_num, [cell.strip() for cell in record]) for record in reader if record)
    line, header = next(records, (0, []))
    if not header:
        raise ValueError(f"{path!r} is empty; it needs a header line of column names, then one line for each row.")
    _check_header(path, line, header)
    names = wanted.names(path, header)
    chosen = [header.index(name) for name in names]
    target = None if wanted.target is None else header.index(wanted.target)

    def complete() -> Iterator[tuple[int, list[str]]]:
        for line, record in records:
            if len(record) != len(header):
                raise ValueError(
                    f"{path!r}, line {line}: {len(record)} cell{'s' if len(record) != 1 else ''}, but the header has "
                    f"{len(header)} columns (separated by {delimiter!r}); give every row as many."
                )
            yield line, record

    whole = complete()
    first = list(islice(whole, max(1, DECIDING_CELLS // len(header))))
    # There may be no rows to predict, such as a filter leaves.
    if not first and target is not None:
        raise ValueError(f"{path!r} has a header line but no rows; add one line for each row.")
    are_levels = list(wanted.are_levels or ())
    if wanted.are_levels is None:
        are_levels = [
            name in wanted.categorical or _are_text([record[i] for _, record in first])
            for name, i in zip(names, chosen, strict=True)
        ]
    columns = list(zip(chosen, are_levels, strict=True))

    def rows() -> Iterator[Record]:
        for line, record in chain(first, whole):
            try:
                cells = [record[i] if is_level else _number(record[i], wanted.may_miss) for i, is_level in columns]
                found = line, cells, "" if target is None else _label(record[target])
            except ValueError:
                raise _cell_error(path, line, header, record, columns, target, wanted) from None
            yield found

    return names, are_levels, rows()


def _delimiter(head: Sequence[str]) -> str:
    """The delimiter of most columns in the header, preferably one that splits the first row into as many."""

    def count(line: str, delimiter: str) -> int:
        try:
            return len(next(csv.reader([line], delimiter=delimiter)))
        except csv.Error:
            # A cell that is too long: a line that another delimiter separates.
            return 1

    def fit(delimiter: str) -> tuple[bool, int]:
        columns = [count(line, delimiter) for line in head if line.strip()]
        return len(columns) == 2 and columns[0] == columns[1] > 1, max(columns[:1], default=0)

    return max(DELIMITERS, key=fit)


def _check_header(path: str, line: int, header: Sequence[str]) -> None:
    if "" in header:
        raise ValueError(
            f"{path!r}, line {line}: column {header.index('') + 1} has no name; "
            "name it, or remove it if it only numbers the rows."
        )
    repeated = [name for name, count in Counter(header).items() if count > 1]
    if repeated:
        raise ValueError(
            f"{path!r}, line {line}: more than one column is named {listed(repeated)}; rename or remove them."
        )


def _number(cell: str, may_miss: bool) -> float:
    try:
        value = float(plain(cell))
    except ValueError:
        # Most cells are numbers: they are not looked up.
        value = TRUTHS.get(cell, math.nan)
    if not math.isfinite(value) and not (may_miss and cell in MISSING):
        raise ValueError
    return value


def _are_text(cells: Sequence[str]) -> bool:
    """Whether most cells of a column, of those that are not missing, are neither numbers nor truth values."""
    filled = [cell for cell in cells if cell not in MISSING]
    return 2 * sum(not _is_like_a_number(cell) for cell in filled) > len(filled)


def _is_like_a_number(cell: str) -> bool:
    """Also numbers as other programs write them, with commas: not read as such, but no names either."""
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return cell in TRUTHS
    return True


def _label(cell: str) -> str:
    if not cell or cell.lower() == "nan":
        raise ValueError
    try:
        finite = math.isfinite(float(cell))
    except ValueError:
        return cell
    if not finite:
        raise ValueError
    return cell


def _cell_error(
    path: str,
    line: int,
    header: Sequence[str],
    record: Sequence[str],
    columns: Sequence[tuple[int, bool]],
    target: int | None,
    wanted: Wanted,
) -> ValueError:
    """What is wrong with the first bad cell of a record."""
    numbers = [i for i, is_level in columns if not is_level]
    for i in [*numbers, *([] if target is None else [target])]:
        cell = record[i]
        try:
            _label(cell) if i == target else _number(cell, wanted.may_miss)
        except ValueError:
            where = f"{path!r}, line {line}, column {header[i]!r}"
            given = f"{cell!r} is not allowed" if cell else "the cell is empty"
            if i == target:
                how = "put in a label, or remove the row"
            else:
                how = "put in a finite number such as 1.5 or -2e-3"
                how += ", or nothing or NA if it is missing" if wanted.may_miss else ""
                how += ", or remove the row"
            if i != target and wanted.are_levels is None:
                how += f"; or leave the column out (--drop), or take its cells as names (--categorical {header[i]!r})"
            return ValueError(f"{where}: {given}; {how}.")
    raise AssertionError("called for a record without a bad cell")
