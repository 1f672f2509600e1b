"""CSV files as arrays, with errors that name the line and the column."""

from __future__ import annotations

import csv
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

DELIMITERS = (",", ";", "\t")
# Names listed in a message before it says how many more there are.
LISTED = 10


@dataclass(frozen=True)
class Table:
    """Columns of a CSV file.

    Attributes
    ----------
    path : str
    features : names of the columns of X
    X : (n, d) float64, finite
    target : (n,) cells of the target column as text; empty if none was asked for
    lines : (n,) line numbers of the rows in the file, from 1
    """

    path: str
    features: list[str]
    X: np.ndarray
    target: list[str]
    lines: Sequence[int]


def listed(names: Sequence[object]) -> str:
    """The first few names, quoted, for a message."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(repr(str(name)) for name in names[:LISTED]) + more


def read_table(path: str, *, target: str | None = None, features: Sequence[str] | None = None) -> Table:
    """Read a CSV file with a header line.

    Cells are separated by comma, semicolon or tab, whichever the first lines show. Blank lines are skipped.

    Parameters
    ----------
    path : str
    target : str, default=None
        Column of labels, kept as text.
    features : sequence of str, default=None
        Columns that make up X, in this order, found by name; others are ignored. None: all but ``target``.

    Raises
    ------
    ValueError
        If the file cannot be read, is not UTF-8, has no rows, lacks a column, has rows of different lengths, or has a
        cell that is empty or, in a feature, not a finite number.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _parse(path, file, target, features)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path!r} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); save it as CSV in UTF-8."
        ) from None
    except csv.Error as error:
        raise ValueError(f"{path!r} is not well-formed CSV: {error}; check quotation marks.") from None
    except OSError as error:
        raise ValueError(
            f"cannot read {path!r}: {error.strerror}; give the path of a CSV file with a header line."
        ) from None


def _parse(path: str, file: Iterator[str], target: str | None, features: Sequence[str] | None) -> Table:
    head = list(islice(file, 2))
    delimiter = _delimiter(head)
    # Strict: a quotation mark that is never closed would otherwise swallow the rest of the file.
    reader = csv.reader(chain(head, file), delimiter=delimiter, skipinitialspace=True, strict=True)
    records = ((reader.line_num, [cell.strip() for cell in record]) for record in reader if record)
    line, header = next(records, (0, []))
    if not header:
        raise ValueError(f"{path!r} is empty; it needs a header line of column names, then one line for each row.")
    _check_header(path, line, header)
    if target is not None and target not in header:
        raise ValueError(f"{path!r} has no target column {target!r}; its columns are {listed(header)}.")
    if features is None:
        features = [name for name in header if name != target]
        if not features:
            raise ValueError(
                f"{path!r} has no column besides the target {target!r}; add features, separated by comma, semicolon "
                "or tab."
            )
    missing = [name for name in features if name not in header]
    if missing:
        raise ValueError(
            f"{path!r} lacks the feature{'s' if len(missing) > 1 else ''} {listed(missing)} that the model was fitted "
            f"to; its columns are {listed(header)}."
        )
    chosen = [header.index(name) for name in features]
    label = None if target is None else header.index(target)

    values, labels, lines = array("d"), [], array("q")
    for line, record in records:
        if len(record) != len(header):
            raise ValueError(
                f"{path!r}, line {line}: {len(record)} cell{'s' if len(record) != 1 else ''}, but the header has "
                f"{len(header)} columns (separated by {delimiter!r}); give every row as many."
            )
        try:
            values.extend([_number(record[i]) for i in chosen])
            if label is not None:
                labels.append(_label(record[label]))
        except ValueError:
            raise _cell_error(path, line, header, record, chosen, label) from None
        lines.append(line)
    if not lines:
        raise ValueError(f"{path!r} has a header line but no rows; add one line for each row.")
    X = np.frombuffer(values, dtype=np.float64).reshape(len(lines), len(chosen))
    return Table(path, list(features), X, labels, lines)


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


def plain(cell: str) -> str:
    """The cell; ValueError for characters that only Python takes for parts of a number.

    It reads 1_000, and the digits of every script; other programs that write CSV do not mean a number by the one, nor
    do those that read it all know the others.
    """
    if "_" in cell or not cell.isascii():
        raise ValueError(f"{cell!r} is not a number in plain digits")
    return cell


def _number(cell: str) -> float:
    value = float(plain(cell))
    if not math.isfinite(value):
        raise ValueError
    return value


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
    path: str, line: int, header: Sequence[str], record: Sequence[str], chosen: Sequence[int], label: int | None
) -> ValueError:
    """What is wrong with the first bad cell of a record."""
    for i in [*chosen, *([] if label is None else [label])]:
        cell = record[i]
        try:
            _label(cell) if i == label else _number(cell)
        except ValueError:
            where = f"{path!r}, line {line}, column {header[i]!r}"
            what = "a label" if i == label else "a finite number such as 1.5 or -2e-3"
            given = f"{cell!r} is not allowed" if cell else "the cell is empty"
            return ValueError(f"{where}: {given}; put in {what}, or remove the row or the column.")
    raise AssertionError("called for a record without a bad cell")


def parse_labels(cells: Sequence[str]) -> np.ndarray:
    """Labels (n,) as integers if all are, as floats if all are whole numbers, else as text."""
    for kind in (int, float):
        try:
            numbers = [kind(plain(cell)) for cell in cells]
        except ValueError:
            continue
        if all(number == int(number) and abs(number) < 2**53 for number in numbers):
            return np.array(numbers, dtype=np.int64 if kind is int else np.float64)
    return np.array(cells)


def are_measurements(labels: np.ndarray) -> bool:
    """Whether all labels are numbers and not all are whole."""
    try:
        numbers = [float(plain(str(label))) for label in labels]
    except ValueError:
        return False
    return not all(number == int(number) for number in numbers)


def encode_labels(table: Table, target: str, classes: np.ndarray) -> np.ndarray:
    """Positions (n,) of a table's labels in the classes of a model.

    Numbers are compared as numbers, so that a file may say 1 where that of the training data said 1.0.

    Raises
    ------
    ValueError
        For a label that is not among the classes.
    """
    numeric = classes.dtype.kind in "iuf"
    codes = {float(name) if numeric else str(name): code for code, name in enumerate(classes.tolist())}
    encoded = np.empty(len(table.target), dtype=np.intp)
    for i, cell in enumerate(table.target):
        try:
            encoded[i] = codes[float(plain(cell)) if numeric else cell]
        except (KeyError, ValueError):
            raise ValueError(
                f"{table.path!r}, line {table.lines[i]}, column {target!r}: {cell!r} is not a class of the "
                f"model; its classes are {listed(classes.tolist())}."
            ) from None
    return encoded
