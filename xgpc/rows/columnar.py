"""Sources of batches in files: Parquet, Arrow data sets, and NumPy's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

# Rows of a batch that is read: memory for two, 14 MB each with 28 float32 features and 100 MB with 200 float64 ones,
# and enough for a file's own reading to cost little for each.
BATCH_ROWS = 2**16


def index_in(schema: Any) -> list[str]:
    """Columns of an Arrow schema that pandas wrote of a data frame's index."""
    described = schema.pandas_metadata or {}
    # An index that only counts is a description there, and no column.
    return [name for name in described.get("index_columns", ()) if isinstance(name, str) and name in schema.names]


class ArrowRows:
    """Rows of an Arrow data set, in batches (X, y), (X, y, sample_weight) or, without a target, X.

    Attributes
    ----------
    feature_names : list of str
    target : str or None
    index : list of str, columns of the index of a data frame that are no features, as nobody named them
    n_rows : int
    """

    def __init__(
        self, dataset: Any, target: str | None = None, columns: Sequence[str] | None = None, weight: str | None = None
    ):
        names = dataset.schema.names
        if isinstance(columns, str):
            raise ValueError(f"columns must be a list of names; got the text {columns!r}. Write columns=[{columns!r}].")
        self._others = others = [name for name in (target, weight) if name is not None]
        self.index = [name for name in index_in(dataset.schema) if name not in others] if columns is None else []
        rest = [name for name in names if name not in (*others, *self.index)]
        self.feature_names = rest if columns is None else list(columns)
        self._dataset, self.target, self._weight = dataset, target, weight
        if target is None and weight is not None:
            raise ValueError(f"weight={weight!r} is for training rows: name their target, too.")
        absent = [name for name in (*self.feature_names, *others) if name not in names]
        if absent:
            raise ValueError(f"The data have no columns {absent}{near_names(absent, names)}; they have {names}.")
        if not self.feature_names or len({*self.feature_names, *others}) < len(self.feature_names) + len(others):
            raise ValueError(
                f"Features must be one column or more, none of them twice and none of {others}; got "
                f"{self.feature_names}."
            )

    @cached_property
    def _dtype(self) -> Any:
        """float32 if no feature needs more; ValueError for one that is no number."""
        kinds, are_narrow = _pyarrow("pyarrow.types"), []
        for name in self.feature_names:
            kind = self._dataset.schema.field(name).type
            if not (kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_boolean(kind)):
                raise ValueError(
                    f"The feature {name!r} is of type {kind}: features must be numbers. Turn it into numbers, or leave "
                    "it out of columns."
                )
            are_narrow.append(kinds.is_float32(kind) or kinds.is_float16(kind))
        return np.float32 if all(are_narrow) else np.float64

    def with_features(self, names: Sequence[str]) -> ArrowRows:
        """The same rows with the features of these names, in this order; ValueError unless they are numbers."""
        return ArrowRows(self._dataset, self.target, names, self._weight).of_numbers()

    def whole(self) -> tuple[Any, np.ndarray | None]:
        """All rows at once: a table of Arrow of features of any types, and the labels, or None without a target."""
        table = self._dataset.to_table(columns=[*self.feature_names, *([] if self.target is None else [self.target])])
        labels = None if self.target is None else _labels(table[self.target].combine_chunks())
        return table.select(self.feature_names), labels

    def of_numbers(self) -> ArrowRows:
        """The rows; ValueError for features that are no numbers, and for a file that lacks a column, or has one of a
        type that cannot become the first file's."""
        _, names = self._dtype, [*self.feature_names, *self._others]
        for fragment in self._dataset.get_fragments():
            schema = fragment.physical_schema
            if absent := [name for name in names if name not in schema.names]:
                raise ValueError(
                    f"The file {fragment.path!r} has no columns {absent}{near_names(absent, schema.names)}, which the "
                    f"first file has; it has {schema.names}."
                )
            for name in names:
                here, there = schema.field(name).type, self._dataset.schema.field(name).type
                if _is_text(here) != _is_text(there):
                    raise ValueError(
                        f"The column {name!r} of the file {fragment.path!r} is of type {here}, that of the first file "
                        f"of type {there}: make them alike."
                    )
        return self

    def check_target(self) -> None:
        """ValueError without a target, which rows to learn from need."""
        if self.target is None:
            raise ValueError(
                "The rows have no labels, which a fit needs: name their column, such as "
                f"target={self.feature_names[-1]!r}, in from_parquet or from_arrow. The columns are "
                f"{self.feature_names}."
            )

    @property
    def n_rows(self) -> int:
        return int(self._dataset.count_rows())

    def __iter__(self) -> ArrowBatches:
        # By default Arrow reads ahead what it can, with threads for all cores; whoever reads this does so in one.
        scanner = self._dataset.scanner(
            columns=[*self.feature_names, *self._others],
            batch_size=BATCH_ROWS,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
        )
        return ArrowBatches(scanner.scan_batches(), len(self.feature_names), len(self._others), self._dtype)


class ArrowBatches:
    """An iterator over the batches of ``ArrowRows``.

    Attributes
    ----------
    place : (str or None, int), the file that the last batch is of, and the number of its first row there, from 0
    """

    def __init__(self, tagged: Iterator[Any], n_features: int, n_others: int, dtype: Any):
        self.place: tuple[str | None, int] = (None, 0)
        self._tagged, self._n_features, self._n_others, self._dtype = tagged, n_features, n_others, dtype
        self._n_last = 0

    def __iter__(self) -> ArrowBatches:
        return self

    def __next__(self) -> Any:
        tagged = next(self._tagged)
        batch, name = tagged.record_batch, getattr(tagged.fragment, "path", None)
        self.place = (name, self.place[1] + self._n_last if name == self.place[0] else 0)
        self._n_last = batch.num_rows
        X = np.empty((batch.num_rows, self._n_features), dtype=self._dtype)
        for j in range(self._n_features):
            X[:, j] = _numbers(batch.column(j))
        rest = [_labels(batch.column(self._n_features))] if self._n_others else []
        rest += [_numbers(batch.column(self._n_features + 1))] if self._n_others > 1 else []
        return (X, *rest) if rest else X


def near_names(absent: Sequence[str], names: Sequence[str]) -> str:
    """What may have been meant by names that there are not, in brackets, or nothing."""
    lower = {name.lower(): name for name in names}
    found = [get_close_matches(name.lower(), lower, n=1) for name in absent]
    near = [repr(lower[one]) for one, *_ in filter(None, found)]
    return f" (did you mean {', '.join(near)}?)" if near else ""


def _is_text(kind: Any) -> bool:
    """Whether a column of this type is of text, or of levels that are."""
    kinds = _pyarrow("pyarrow.types")
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def _numbers(column: Any) -> np.ndarray:
    """Values (r,), NaN for those that are missing."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=None if not column.null_count else np.float64)


def _labels(column: Any) -> np.ndarray:
    """Values (r,); None for those that are missing."""
    kinds = _pyarrow("pyarrow.types")
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_text = _is_text(column.type)
    if column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    if not is_text:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    # Few texts that occur often: each is made once.
    encoded = column.dictionary_encode()
    return np.array(encoded.dictionary.to_pylist(), dtype=np.str_)[encoded.indices.to_numpy()]


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError("Parquet files and Arrow data sets need pyarrow: pip install 'xgpc[parquet]'") from error


def from_arrow(
    dataset: Any, *, target: str | None = None, columns: Sequence[str] | None = None, weight: str | None = None
) -> ArrowRows:
    """Rows of an Arrow data set or table, for ``fit_batches`` and ``predict_proba_batches``.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset or pyarrow.Table
    target : str, default=None
        Column of the labels: text, whole numbers or truth values. None to predict.
    columns : sequence of str, default=None
        Columns of the features, in this order: floating point numbers, integers or truth values. None: all others, but
        for the index of a data frame that pandas wrote, as ``decision`` in the fit's ``history_`` then says.
    weight : str, default=None
        Column of sample weights.

    Raises
    ------
    ValueError
        For columns that there are not, or features that are no numbers.
    ImportError
        Without pyarrow: the extra ``parquet``.
    """
    datasets = _pyarrow("pyarrow.dataset")
    found = dataset if isinstance(dataset, datasets.Dataset) else datasets.dataset(dataset)
    rows = ArrowRows(found, target, columns, weight)
    # Of rows to predict it is the model that tells which columns it needs.
    return rows if target is None and columns is None else rows.of_numbers()


def from_parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
) -> ArrowRows:
    """Rows of a Parquet file, of several, or of a folder of such files, for ``fit_batches`` and
    ``predict_proba_batches``.

    Reading takes memory for some of the file's row groups: of 112 MB each, 450 MB.

    Parameters
    ----------
    path : str or path, or a list of those of files
        The rows of several files come one after the other; they have the columns of the first one.
    target, columns, weight : as for ``from_arrow``

    Raises
    ------
    ValueError
        As ``from_arrow``, for what is no Parquet file, and for an empty list.
    OSError
        If it cannot be read. Where the rows are read, too: also if a page is not what its checksum says, of a file that
        was written with these (``write_page_checksum=True`` of pyarrow).
    """
    return from_arrow(parquet_dataset(path), target=target, columns=columns, weight=weight)


def parquet_dataset(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Any:
    """The Arrow data set of Parquet files, as ``from_parquet`` takes them."""
    datasets = _pyarrow("pyarrow.dataset")
    # Arrow would read row groups, and the next ones, whole. (Memory for reading three of 112 MB: 536 MB without its
    # buffer of what comes next, 439 MB with a stream; ten of 22 MB: 516 MB with its buffer, 94 MB with a stream.)
    # Checksums are of pages, and written by who asks for them; without, a bit that has changed would be another value.
    kind = datasets.ParquetFileFormat(pre_buffer=False, use_buffered_stream=True, page_checksum_verification=True)
    given: list[Any] = list(path) if isinstance(path, list | tuple) else [path]
    if not (given and all(isinstance(one, str | os.PathLike) for one in given)):
        raise ValueError(
            f"path must be the name of a Parquet file or folder, or a list of one file or more; got {path!r}."
        )
    names = [os.fspath(one) for one in given]
    # A list cannot have a folder in it.
    paths = names if len(names) > 1 else names[0]
    return datasets.dataset(paths, format=kind)


class NumpyRows:
    """Rows of NumPy's files, which are mapped into memory, in batches (X, y) or (X, y, sample_weight)."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]):
        self._paths = paths
        arrays = self._arrays()
        for path, array, what in zip(paths, arrays, ("X", "y", "sample_weight"), strict=False):
            ndim = 2 if what == "X" else 1
            if array.ndim != ndim and (ndim == 2 or array.shape[1:] != (1,)):
                raise ValueError(
                    f"{os.fspath(path)!r} has an array of shape {array.shape}; {what} must have {ndim} "
                    f"dimension{'s' if ndim > 1 else ''}."
                )
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"X, y and weights must have one row each for all; the files have {lengths} rows.")

    def _arrays(self) -> list[np.ndarray]:
        """The files' arrays, mapped into memory; ValueError for what is no such file."""
        found = []
        for path in self._paths:
            name = repr(os.fspath(path))
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except ValueError as error:
                raise ValueError(
                    f"{name} has no array that can be mapped into memory: {error} Save one of numbers, or of text with "
                    "a dtype such as 'U10', by np.save."
                ) from None
            if not isinstance(array, np.ndarray):
                array.close()
                raise ValueError(f"{name} is an archive of arrays (.npz), not one array: save each by np.save.")
            found.append(array)
        return found

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        arrays = self._arrays()
        for start in range(0, len(arrays[0]), BATCH_ROWS):
            yield tuple(np.array(array[start : start + BATCH_ROWS]) for array in arrays)


def from_npy(
    X_path: str | os.PathLike[str],
    y_path: str | os.PathLike[str],
    weight_path: str | os.PathLike[str] | None = None,
) -> NumpyRows:
    """Rows of ``.npy`` files, X (n, d), y (n,) and weights (n,), for ``fit_batches``.

    Raises
    ------
    ValueError
        For files that are none of NumPy's, or have not as many rows as each other.
    OSError
        If one cannot be read.
    """
    return NumpyRows([X_path, y_path] if weight_path is None else [X_path, y_path, weight_path])
