"""CSV and Parquet files as tables, and their labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .columns import Table, Wanted, listed, plain
from .delimited import CsvRows, name_of, opened, parsed
from .parquet import is_parquet, parquet_rows, parquet_table


def read_table(path: str, wanted: Wanted) -> Table:
    """Read a CSV file with a header line, or a Parquet file, by its name.

    Cells of CSV are separated by comma, semicolon or tab, whichever the first lines show. Blank lines are skipped.

    Parameters
    ----------
    path : str
        "-" is standard input; a name that ends in ".gz" is of a file compressed by gzip, in ".parquet" of a Parquet
        file; everything else is CSV.

    Raises
    ------
    ValueError
        If the file cannot be read, is not UTF-8, has no rows though a target is wanted, lacks a column, has rows of
        different lengths, an empty label, or a cell of a column of numbers that is no finite number, or is missing
        where none may be.
    """
    if is_parquet(path):
        return parquet_table(path, parquet_rows(path, wanted)[0], wanted)
    with opened(path) as file:
        names, are_levels, records = parsed(name_of(path), file, wanted)
        rows = CsvRows(names, are_levels)
        for record in records:
            rows.add(*record)
    return rows.table(name_of(path), wanted.target is not None)


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
