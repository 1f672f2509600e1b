"""Training rows of the command line, which need not fit into memory."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..classifier import GPClassifier
from .tables import (
    is_parquet,
    name_of,
    opened,
    parquet_rows,
    parse_labels,
    parsed,
    read_table,
    text_batches,
)

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
    n_rows : int
    classes : (C,) labels
    fit : function of the model
    """

    path: str
    features: list[str]
    n_rows: int
    classes: np.ndarray
    fit: Callable[[GPClassifier], Any]


@contextmanager
def training_rows(path: str, target: str, folder: Path) -> Iterator[TrainingRows]:
    """Rows of a CSV or Parquet file, in memory if they take no more than ``IN_MEMORY`` bytes.

    More of CSV are turned into numbers once, in a temporary file in ``folder`` that is removed in the end.
    """
    if is_parquet(path):
        source = parquet_rows(path, target, None)
        if 8 * source.n_rows * len(source.feature_names) <= IN_MEMORY:
            table = read_table(path, target=target)
            yield _of_arrays(path, table.features, table.X, parse_labels(table.target))
        else:
            yield _of_batches(path, source.feature_names, lambda: text_batches(path, source))
        return
    with tempfile.TemporaryDirectory(prefix=".xgpc-", dir=folder) as place:
        with opened(path) as file:
            found = _of_csv(name_of(path), *parsed(name_of(path), file, target, None), Path(place))
        yield found


def _of_arrays(path: str, names: list[str], X: np.ndarray, y: np.ndarray) -> TrainingRows:
    return TrainingRows(path, names, len(y), np.unique(y), lambda model: model.fit(X, y))


class _Rows:
    """Rows of numbers in memory, and what of them has gone to files."""

    def __init__(self, n_features: int, place: Path):
        self.n_features, self.n_rows, self.n_in_files = n_features, 0, 0
        self.X_path, self.y_path = place / "X", place / "y"
        self.values, self.codes = array("d"), array("q")

    def add(self, numbers: list[float], code: int) -> None:
        self.values.extend(numbers)
        self.codes.append(code)
        self.n_rows += 1
        if 8 * len(self.values) > (8 * BATCH_ROWS * self.n_features if self.n_in_files else IN_MEMORY):
            self.to_files()

    def to_files(self) -> None:
        try:
            for path, numbers in ((self.X_path, self.values), (self.y_path, self.codes)):
                with open(path, "ab") as file:
                    numbers.tofile(file)
        except OSError as error:
            raise ValueError(
                f"cannot write a temporary file in {str(self.X_path.parent)!r}: {error.strerror}; the rows, which are "
                "too many for memory, are kept there during the fit."
            ) from None
        self.n_in_files = self.n_rows
        self.values, self.codes = array("d"), array("q")

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of rows that are all in files: features (r, d) and codes (r,)."""
        X = np.memmap(self.X_path, np.float64, "r", shape=(self.n_rows, self.n_features))
        codes = np.memmap(self.y_path, np.int64, "r", shape=self.n_rows)
        for start in range(0, self.n_rows, BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            yield np.array(X[part]), np.array(codes[part])


def _of_csv(path: str, names: list[str], records: Iterator[tuple[int, list[float], str]], place: Path) -> TrainingRows:
    """Rows of CSV, in memory as long as they fit, in files in ``place`` from then on."""
    rows, codes = _Rows(len(names), place), dict[str, int]()
    for _, numbers, label in records:
        rows.add(numbers, codes.setdefault(label, len(codes)))
    texts = np.array(list(codes))
    if not rows.n_in_files:
        X = np.frombuffer(rows.values, dtype=np.float64).reshape(rows.n_rows, len(names))
        return _of_arrays(path, names, X, parse_labels(texts.tolist())[np.frombuffer(rows.codes, dtype=np.int64)])
    rows.to_files()
    return _of_batches(path, names, lambda: ((X, texts[places]) for X, places in rows.batches()))


def _of_batches(path: str, names: list[str], batches: TextBatches) -> TrainingRows:
    """Rows that are read anew each time."""
    n_rows, found = 0, set[str]()
    for X, cells in batches():
        n_rows += len(X)
        found.update(np.unique(cells).tolist())
    texts = np.array(sorted(found))
    labels = parse_labels(texts.tolist())

    def typed() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for X, cells in batches():
            yield X, labels[np.searchsorted(texts, cells)]

    return TrainingRows(path, names, n_rows, np.unique(labels), lambda model: model.fit_batches(typed))
