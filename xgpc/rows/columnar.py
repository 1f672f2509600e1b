"""Sources of batches in files: Parquet, Arrow data sets, and NumPy's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pyarrow import Array, DataType, Schema, Table
    from pyarrow.dataset import Dataset, TaggedRecordBatch

# Rows of a batch. Memory for two batches is 14 MB each with 28 float32 features and 100 MB with 200 float64 ones, and
# batches of this size cost little time each.
BATCH_ROWS = 2**16
# Key of a field's metadata with a sentence on how files differ in it.
DIFFERENCE = b"difference"

Path = str | os.PathLike[str]
# A file or folder, or files.
Paths = Path | list[Path] | tuple[Path, ...]


def in_order() -> dict[str, int | bool]:
    """Return the options of a scan, one batch after the other: by default Arrow reads ahead what it can."""
    # Without reading ahead to the next file, a scan of CSV files never ends.
    return {"batch_size": BATCH_ROWS, "batch_readahead": 0, "fragment_readahead": 1, "use_threads": False}


def index_in(schema: Schema) -> list[str]:
    """Return the columns of an Arrow schema into which pandas wrote the index of a data frame."""
    described = schema.pandas_metadata or {}
    # An index that only counts the rows is described in the metadata and has no column.
    return [name for name in described.get("index_columns", ()) if isinstance(name, str) and name in schema.names]


class ArrowRows:
    """Rows of an Arrow data set, in batches (X, y), (X, y, sample_weight) or, without a target, X.

    X is a record batch of Arrow, y and sample_weight are arrays of NumPy.

    Attributes
    ----------
    feature_names : list of str
    target : str or None
    index : list of str, columns of a data frame's index, which are no features unless they are named
    """

    def __init__(self, dataset: Dataset, target: str | None, columns: Sequence[str] | None, weight: str | None):
        if isinstance(columns, str):
            raise ValueError(f"columns must be a list of names; got the text {columns!r}. Write columns=[{columns!r}].")
        if target is None and weight is not None:
            raise ValueError(f"weight={weight!r} is for training rows: name their target, too.")
        self._others = others = [name for name in (target, weight) if name is not None]
        self.index = [name for name in index_in(dataset.schema) if name not in others] if columns is None else []
        all_features = [name for name in dataset.schema.names if name not in (*others, *self.index)]
        self.feature_names = all_features if columns is None else list(columns)
        self._dataset, self.target, self._weight = dataset, target, weight
        used = [*self.feature_names, *others]
        check_names(dataset.schema, used)
        if len(set(others)) < len(others):
            raise ValueError(f"weight={weight!r} is also the target: name another column, or leave weight=None.")
        if not self.feature_names or len(set(used)) < len(used):
            raise ValueError(
                f"Features must be one column or more, none of them twice or in {others}; got {self.feature_names}."
            )

    def with_features(self, names: Sequence[str]) -> ArrowRows:
        """Return the same rows with the features of these names, in this order."""
        return ArrowRows(self._dataset, self.target, names, self._weight)

    def __iter__(self) -> ArrowBatches:
        scanner = self._dataset.scanner(columns=[*self.feature_names, *self._others], **in_order())
        return ArrowBatches(scanner.scan_batches(), self.feature_names, self._others)


class ArrowBatches:
    """An iterator over the batches of ``ArrowRows``.

    ``place`` is the last batch's file, and its first row there; None after an error of Arrow, which reads ahead.
    """

    def __init__(self, tagged: Iterator[TaggedRecordBatch], features: list[str], others: list[str]):
        self.place: tuple[str | None, int] | None = (None, 0)
        self._tagged, self._features, self._others, self._n_last = tagged, features, others, 0

    def __iter__(self) -> ArrowBatches:
        return self

    def __next__(self) -> object:
        (last, first), self.place = self.place or (None, 0), None
        tagged = next(self._tagged)
        batch, name = tagged.record_batch, getattr(tagged.fragment, "path", None)
        self.place = (name, first + self._n_last if name == last else 0)
        self._n_last = batch.num_rows
        # Without the metadata, by which a column that was named would count as a data frame's index.
        X = batch.select(self._features).replace_schema_metadata(None)
        return (X, *(_values(batch.column(name)) for name in self._others)) if self._others else X


def check_names(schema: Schema, names: Sequence[str]) -> None:
    """Raise ValueError for columns that data with an Arrow schema do not have, and say what may have been meant; and
    for columns that differ between files."""
    present = set(schema.names)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ValueError(f"Columns are given by their names, as text; got {wrong}. The data have {schema.names}.")
    if absent := [name for name in names if name not in present]:
        lower = {name.lower(): repr(name) for name in schema.names}
        meant = [lower[match] for name in absent for match in get_close_matches(name.lower(), lower, n=1)]
        guess = f" (did you mean {', '.join(meant)}?)" if meant else ""
        raise ValueError(f"The data lacks the columns {absent}{guess}; it has {schema.names}.")
    for name in names:
        if difference := (schema.field(name).metadata or {}).get(DIFFERENCE):
            raise ValueError(difference.decode())


def common_type(one: DataType, other: DataType) -> DataType | None:
    """Return the type that holds the values of both: of numbers, or of text and levels; None if there is none."""
    arrow, kinds = _pyarrow("pyarrow"), _pyarrow("pyarrow.types")
    if one == other or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    of_values = [kind.value_type if kinds.is_dictionary(kind) else kind for kind in (one, other)]
    if all(str(kind) in ("string", "large_string", "string_view") for kind in of_values):
        return of_values[0]
    # The integers of both types need not be within one.
    is_wide = "uint64" in map(str, of_values) and all(map(kinds.is_integer, of_values))
    if is_wide or not all(kinds.is_integer(kind) or kinds.is_floating(kind) for kind in of_values):
        return None
    schemas = [arrow.schema({"": kind}) for kind in of_values]
    return arrow.unify_schemas(schemas, promote_options="permissive").field(0).type


def joined(schema: Schema, own: Schema, path: str) -> Schema:
    """Return a schema with types that hold the values of a further file, too; others have the difference with them."""
    kinds, fields = dict(zip(own.names, own.types, strict=True)), []
    for field in schema:
        both = common_type(field.type, kinds[field.name]) if field.name in kinds else None
        if both is not None:
            fields.append(field.with_type(both))
            continue
        differs = f"lacks the columns [{field.name!r}], which other files have"
        if field.name in kinds:
            differs = f"has the type {kinds[field.name]} in the column {field.name!r}, and others {field.type}"
        message = f"The file {path!r} {differs}. Write all files alike, or leave the column out."
        fields.append(field.with_metadata({DIFFERENCE: message}))
    return _pyarrow("pyarrow").schema(fields, schema.metadata)


def _values(column: Array) -> np.ndarray:
    """Return labels or weights (r,), with NaN or None for missing ones."""
    kinds = _pyarrow("pyarrow.types")
    column = column.dictionary_decode() if kinds.is_dictionary(column.type) else column
    is_text = kinds.is_string(column.type) or kinds.is_large_string(column.type)
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    return values.astype(np.str_) if is_text and not column.null_count else values


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError("Parquet files and Arrow data sets need pyarrow: pip install 'xgpc[parquet]'") from error


def from_arrow(
    dataset: Dataset | Table,
    *,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
) -> ArrowRows:
    """Rows of an Arrow data set or table, for ``fit_batches`` and ``predict_proba_batches``.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset or pyarrow.Table
    target : str, default=None
        Column of the labels: text, whole numbers or truth values. None to predict.
    columns : sequence of str, default=None
        Columns of the features, in this order: floating point numbers, integers or truth values. None means all other
        columns, except the index of a data frame that pandas wrote; ``decision`` in the fit's ``history_`` says so.
    weight : str, default=None
        Column of sample weights.

    Raises
    ------
    ValueError
        If a column does not exist, or the data are of another type. A fit or a prediction raises it for features that
        are no numbers.
    ImportError
        Without pyarrow: the extra ``parquet``.
    """
    datasets = _pyarrow("pyarrow.dataset")
    if not isinstance(dataset, datasets.Dataset | _pyarrow("pyarrow").Table):
        raise ValueError(
            f"from_arrow takes a pyarrow.dataset.Dataset or pyarrow.Table; got a {type(dataset).__name__}. "
            "from_parquet reads files; pyarrow.Table.from_pandas(df), pyarrow.Table.from_batches(batches) and polars' "
            "df.to_arrow() make tables."
        )
    dataset = dataset if isinstance(dataset, datasets.Dataset) else datasets.dataset(dataset)
    return ArrowRows(dataset, target, columns, weight)


def from_parquet(
    path: Paths, *, target: str | None = None, columns: Sequence[str] | None = None, weight: str | None = None
) -> ArrowRows:
    """Rows of Parquet files, for ``fit_batches`` and ``predict_proba_batches``.

    Reading takes memory for some of the file's row groups: 450 MB if they have 112 MB each.

    Parameters
    ----------
    path : str or path, or a list of files
        A Parquet file, a folder of such files, or a list of files. The rows of several files follow each other; all
        files have the columns of the first one. Where these are numbers of different types, a type that holds all is
        taken, such as float64 for float32 and float64.
    target, columns, weight : as for ``from_arrow``

    Raises
    ------
    ValueError
        As ``from_arrow``; if the path is no Parquet file, a folder without any, or an empty list; and if a file lacks
        a column that others have, or has text or truth values where others have numbers.
    OSError
        If it cannot be read. While rows are read, also if a page differs from its checksum; files have checksums if
        they were written with ``write_page_checksum=True`` of pyarrow.
    """
    return from_arrow(parquet_dataset(path), target=target, columns=columns, weight=weight)


def parquet_dataset(path: Paths) -> Dataset:
    """Return the Arrow data set of Parquet files, as ``from_parquet`` takes them."""
    datasets = _pyarrow("pyarrow.dataset")
    # By default Arrow reads the next row groups whole: ten of 22 MB take 516 MB, and 94 MB with a stream.
    kind = datasets.ParquetFileFormat(pre_buffer=False, use_buffered_stream=True, page_checksum_verification=True)
    names = [os.fspath(file) for file in (path if isinstance(path, list | tuple) else [path])]
    if not names:
        raise ValueError("path is an empty list: give the name of a Parquet file or folder, or a list of files.")
    if len(names) > 1 and (folders := [name for name in names if os.path.isdir(name)]):
        raise ValueError(f"A list must have files alone; got the folders {folders}. Give a folder by itself.")
    # Arrow takes a folder alone, not in a list.
    rows = datasets.dataset(names if len(names) > 1 else names[0], format=kind)
    if not rows.files:
        raise ValueError(f"The folder {names[0]!r} has no Parquet files.")
    schema, fragments = rows.schema, list(rows.get_fragments())
    for fragment in fragments:
        if not fragment.physical_schema.equals(schema) and fragment.metadata.num_rows:
            schema = joined(schema, fragment.physical_schema, fragment.path)
    return datasets.FileSystemDataset(fragments, schema, kind, rows.filesystem)


class NumpyRows:
    """Batches (X, y) or (X, y, sample_weight) of arrays (n, d), (n,) and (n,), which may be memory maps."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self._arrays = arrays
        shapes = [array.shape for array in arrays]
        if len(shapes[0]) != 2 or any(shape not in (shapes[0][:1], (shapes[0][0], 1)) for shape in shapes[1:]):
            raise ValueError(f"X must have two dimensions, and y and weights a value for each row; got {shapes}.")

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        for start in range(0, len(self._arrays[0]), BATCH_ROWS):
            yield tuple(np.array(array[start : start + BATCH_ROWS]) for array in self._arrays)


def from_npy(X_path: Path, y_path: Path, weight_path: Path | None = None) -> NumpyRows:
    """Rows of ``.npy`` files, X (n, d), y (n,) and weights (n,), for ``fit_batches``.

    Raises
    ------
    ValueError
        If a file is none of NumPy's or has complex numbers, or if the files have different numbers of rows.
    OSError
        If one cannot be read.
    """
    arrays = []
    for path in (X_path, y_path) if weight_path is None else (X_path, y_path, weight_path):
        try:
            arrays.append(np.lib.format.open_memmap(os.fspath(path), mode="r"))
        except ValueError as error:
            raise ValueError(
                f"{os.fspath(path)!r} has no array that can be mapped into memory: {error} Save one array of numbers, "
                "or of text with a dtype such as 'U10', by np.save."
            ) from None
        if arrays[-1].dtype.kind == "c":
            raise ValueError(f"{os.fspath(path)!r} has complex numbers; save real ones.")
    return NumpyRows(arrays)
