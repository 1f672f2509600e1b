"""CSV and Parquet files as arrays, with errors that name the line, or the row, and the column."""

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
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from ..reading import checked_features
from ..rows.batches import BadRow
from ..rows.columnar import ArrowRows, from_parquet, near_names
from ..rows.labels import checked_labels

DELIMITERS = (",", ";", "\t")
# Characters of a line at which it is taken for one without end, as of /dev/zero: twice those of a million features of
# 25 characters and a separator. They are read in a moment.
LONGEST_LINE = 2**26
# Names listed in a message before it says how many more there are.
LISTED = 10


@dataclass(frozen=True)
class Table:
    """Columns of a file.

    Attributes
    ----------
    path : str
    features : names of the columns of X
    X : (n, d) float64, finite
    target : (n,) cells of the target column as text; empty if none was asked for
    lines : (n,) numbers of the rows' lines in the file, from 1; of a Parquet file of the rows themselves
    unit : "line" or "row", what these number
    """

    path: str
    features: list[str]
    X: np.ndarray
    target: list[str]
    lines: Sequence[int]
    unit: str = "line"


def listed(names: Sequence[object]) -> str:
    """The first few names, quoted, for a message."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(repr(str(name)) for name in names[:LISTED]) + more


def of_numbers(model: Any) -> Any:
    """A model of rows of numbers; ValueError for one of a table with levels or missing numbers, which no file has."""
    if model.encoding_ is not None:
        raise ValueError(
            "The model was fitted in Python to a table with levels or missing numbers, and commands read numbers "
            "alone: predict with GPClassifier.load."
        )
    return model


def is_parquet(path: str) -> bool:
    return path.lower().endswith(".parquet")


def read_table(path: str, *, target: str | None = None, features: Sequence[str] | None = None) -> Table:
    """Read a CSV file with a header line, or a Parquet file, by its name.

    Cells of CSV are separated by comma, semicolon or tab, whichever the first lines show. Blank lines are skipped.

    Parameters
    ----------
    path : str
        "-" is standard input; a name that ends in ".gz" is of a file compressed by gzip, in ".parquet" of a Parquet
        file; everything else is CSV.
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
    if is_parquet(path):
        return _parquet_table(parquet_rows(path, target, features), path)
    with opened(path) as file:
        names, rows = parsed(name_of(path), file, target, features)
        values, labels, lines = array("d"), [], array("q")
        for line, numbers, label in rows:
            values.extend(numbers)
            labels.append(label)
            lines.append(line)
    X = np.frombuffer(values, dtype=np.float64).reshape(len(lines), len(names))
    return Table(name_of(path), names, X, labels if target is not None else [], lines)


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


def parquet_rows(path: str, target: str | None, features: Sequence[str] | None) -> ArrowRows:
    """Rows of a Parquet file; ValueError for one that cannot be read."""
    try:
        return from_parquet(path, target=target, columns=features)
    except FileNotFoundError:
        raise ValueError(f"cannot read {path!r}: No such file or directory; give the path of a Parquet file.") from None
    except (OSError, ImportError) as error:
        raise ValueError(f"cannot read {path!r}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path!r}: {error}") from None


def _parquet_table(source: ArrowRows, path: str) -> Table:
    X, target = [], []
    for rows, cells in text_batches(path, source):
        X.append(rows.astype(np.float64))
        target += cells.tolist()
    n_rows = sum(map(len, X))
    if not n_rows:
        raise ValueError(f"{path!r} has no rows.")
    return Table(path, source.feature_names, np.concatenate(X), target, range(1, n_rows + 1), "row")


def text_batches(path: str, source: ArrowRows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of checked features (r, d), and labels (r,) as text, or none of them without a target."""

    n_before = 0
    try:
        for batch in source:
            X, *y = batch if isinstance(batch, tuple) else (batch,)
            rows = checked_features(X)[1]
            yield rows, checked_labels(y[0], len(rows)).astype(np.str_) if y else np.empty(0, dtype=np.str_)
            n_before += len(rows)
    except BadRow as error:
        column = source.target if error.column is None else source.feature_names[error.column]
        where = f"{path!r}, row {n_before + error.row + 1}, column {column!r}"
        raise ValueError(f"{where}: {error.given}{error.advice}") from None
    except OSError as error:
        raise ValueError(f"cannot read {path!r}: {error}") from None


def parsed(
    path: str, file: Iterator[str], target: str | None, features: Sequence[str] | None
) -> tuple[list[str], Iterator[tuple[int, list[float], str]]]:
    """Names of the features, and for each row of a CSV file its line, features and label, "" without a target."""
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
        raise ValueError(
            f"{path!r} has no target column {target!r}{near_names([target], header)}; its columns are {listed(header)}."
        )
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

    def rows() -> Iterator[tuple[int, list[float], str]]:
        line = None
        for line, record in records:
            if len(record) != len(header):
                raise ValueError(
                    f"{path!r}, line {line}: {len(record)} cell{'s' if len(record) != 1 else ''}, but the header has "
                    f"{len(header)} columns (separated by {delimiter!r}); give every row as many."
                )
            try:
                found = line, [_number(record[i]) for i in chosen], "" if label is None else _label(record[label])
            except ValueError:
                raise _cell_error(path, line, header, record, chosen, label) from None
            yield found
        if line is None:
            raise ValueError(f"{path!r} has a header line but no rows; add one line for each row.")

    return list(features), rows()


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
                f"{table.path!r}, {table.unit} {table.lines[i]}, column {target!r}: {cell!r} is not a class of the "
                f"model; its classes are {listed(classes.tolist())}."
            ) from None
    return encoded
