"""Training rows of the command line, which need not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..classifier import GPClassifier
from .columns import Table, Wanted, listed
from .delimited import CsvRows, Record, name_of, opened, parsed
from .parquet import is_parquet, parquet_rows, parquet_table, text_batches
from .tables import parse_labels

# Bytes of numbers up to which rows are read into memory; with more the fit reads them in batches.
IN_MEMORY = 2**30
# Rows of a batch of a temporary file.
BATCH_ROWS = 2**16

# Batches of features (r, d) and labels (r,) as text.
TextBatches = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class TrainingRows:
    """Rows, described, and how a model is fitted to them.

    Attributes
    ----------
    path : str, as messages call it
    features : names of the columns of X
    categorical : those of levels
    n_rows : int
    classes : (C,) labels
    fit : function of the model
    index : columns of a data frame's index, which are no features
    """

    path: str
    features: list[str]
    categorical: list[str]
    n_rows: int
    classes: np.ndarray
    fit: Callable[[GPClassifier], Any]
    index: list[str] = field(default_factory=list)


@contextmanager
def training_rows(path: str, wanted: Wanted, folder: Path) -> Iterator[TrainingRows]:
    """Rows of a CSV or Parquet file, in memory if they take no more than ``IN_MEMORY`` bytes.

    More must be numbers. More of CSV are turned into these once, in a temporary file in ``folder`` that is removed in
    the end.
    """
    if is_parquet(path):
        source, index = parquet_rows(path, wanted)
        if 8 * source.n_rows * len(source.feature_names) <= IN_MEMORY:
            found = _of_table(parquet_table(path, source, wanted))
        else:
            found = _of_batches(path, source.feature_names, lambda: text_batches(path, source))
        yield replace(found, index=index)
        return
    with tempfile.TemporaryDirectory(prefix=".xgpc-", dir=folder) as place:
        with opened(path) as file:
            found = _of_csv(name_of(path), *parsed(name_of(path), file, wanted), Path(place))
        yield found


def _of_table(table: Table) -> TrainingRows:
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(text, len(places)) for text in table.target])
    y = parse_labels(list(places))[codes]
    described = table.path, table.features, table.categorical, len(y), np.unique(y)
    return TrainingRows(*described, lambda model: model.fit(table.X, y))


class _Files:
    """Temporary files of numbers (n, d) and of the labels' numbers (n,)."""

    def __init__(self, place: Path, n_features: int):
        self._X_path, self._y_path, self._n_features, self.n_rows = place / "X", place / "y", n_features, 0

    def add(self, X: np.ndarray, codes: np.ndarray) -> None:
        try:
            for path, numbers in ((self._X_path, X), (self._y_path, codes)):
                with open(path, "ab") as file:
                    numbers.tofile(file)
        except OSError as error:
            raise ValueError(
                f"cannot write a temporary file in {str(self._X_path.parent)!r}: {error.strerror}; the rows, which are "
                "too many for memory, are kept there during the fit."
            ) from None
        self.n_rows += len(X)

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Features (r, d) and codes (r,)."""
        X = np.memmap(self._X_path, np.float64, "r", shape=(self.n_rows, self._n_features))
        codes = np.memmap(self._y_path, np.int64, "r", shape=self.n_rows)
        for start in range(0, self.n_rows, BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            yield np.array(X[part]), np.array(codes[part])


def _of_csv(
    path: str, names: list[str], are_levels: list[bool], records: Iterator[Record], place: Path
) -> TrainingRows:
    """Rows of CSV, in memory as long as they fit, in files in ``place`` from then on."""
    rows, files = CsvRows(names, are_levels), _Files(place, len(names))
    for record in records:
        rows.add(*record)
        if 8 * len(rows.values) > (8 * BATCH_ROWS * len(names) if files.n_rows else IN_MEMORY):
            files.add(*_numbers_alone(path, rows))
    if not files.n_rows:
        return _of_table(rows.table(path, has_target=True))
    files.add(*_numbers_alone(path, rows))
    texts = np.array(list(rows.labels))
    return _of_batches(path, names, lambda: ((X, texts[places]) for X, places in files.batches()))


def _numbers_alone(path: str, rows: CsvRows) -> tuple[np.ndarray, np.ndarray]:
    """Features and codes of rows that go to files; ValueError for levels and missing numbers."""
    X, codes, lines = rows.take()
    what = f"the rows take more than {IN_MEMORY / 2**20:g} MiB, and so many must be numbers, none of them missing"
    levels = [name for name, known in zip(rows.names, rows.levels, strict=True) if known is not None]
    if levels:
        raise ValueError(
            f"{path!r}: {what}, but {listed(levels)} are text; leave them out (--drop), or take fewer rows."
        )
    places = np.argwhere(np.isnan(X))
    if len(places):
        row, column = places[0].tolist()
        raise ValueError(
            f"{path!r}, line {lines[row]}, column {rows.names[column]!r}: the number is missing; {what}: put in a "
            "number, remove the row, leave the column out (--drop), or take fewer rows."
        )
    return X, codes


def _of_batches(path: str, names: list[str], batches: TextBatches) -> TrainingRows:
    """Rows of numbers that are read anew each time."""
    n_rows, found = 0, set[str]()
    for X, cells in batches():
        n_rows += len(X)
        found.update(np.unique(cells).tolist())
    texts = np.array(sorted(found))
    labels = parse_labels(texts.tolist())

    def typed() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for X, cells in batches():
            yield X, labels[np.searchsorted(texts, cells)]

    return TrainingRows(path, names, [], n_rows, np.unique(labels), lambda model: model.fit_batches(typed))
