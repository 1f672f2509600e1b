"""CSV and Parquet files as record batches of Arrow (extra ``app``)."""

from __future__ import annotations

import gzip
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from reprlib import repr as short
from typing import IO

import pyarrow as pa
from pyarrow import compute, csv, parquet

from ..rows.columnar import in_order, is_number, near_names, parquet_dataset
from .output import output

Types = Mapping[str, pa.DataType]
# Bytes of CSV that are parsed at a time. The first block decides which columns are numbers.
BLOCK_BYTES = 2**24
# pandas reads the last two as missing, too.
MISSING = [*csv.ConvertOptions().null_values, "<NA>", "None"]
# A column of text is a column of numbers with mistakes in it if most cells look like this: commas are such a mistake.
LIKE_A_NUMBER = r"^\s*[-+]?[\d.,]+([eE][-+]?\d+)?\s*$"
HOW_TO_MEND = (
    "Give numbers such as 1.5 or -2e-3, and empty cells where one is missing; or let 'xgpc fit' leave the column out "
    "(--drop), or take its cells as names (--categorical)."
)


def is_parquet(path: str) -> bool:
    """Whether the name is that of a Parquet file; all others are CSV."""
    return path.lower().endswith(".parquet")


class Rows:
    """The rows of a CSV file with a header line, or of a Parquet file, which can be read many times.

    Attributes
    ----------
    name : str, the file in messages
    target : str or None, the column of the labels
    schema : pyarrow.Schema, all columns; the first block of a CSV file decides on their types
    """

    def __init__(self, path: str, name: str, target: str | None):
        self._path, self.name, self.target, self.schema = path, name, target, pa.schema([])
        with self.named():
            self._dataset = parquet_dataset(path) if is_parquet(path) else None
            self.schema = self._schema_of_csv() if self._dataset is None else self._dataset.schema
        if wrong := [one for one, count in Counter(self.schema.names).items() if count > 1 or not one.strip()]:
            raise ValueError(f"{name!r}: each column needs a name of its own in the header; got {short(wrong)}.")
        self.check_names([] if target is None else [target])

    def _schema_of_csv(self) -> pa.Schema:
        """Find the delimiter, and the types of the columns from the first block."""
        with pa.input_stream(self._path) as file:
            header = file.read(BLOCK_BYTES).decode("utf-8", "replace").lstrip().partition("\n")[0]
        delimiter = max((",", ";", "\t"), key=re.sub('"[^"]*"', "", header).count)
        self._parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        with self._read([], {}) as reader:
            first = next(reader, None) or pa.RecordBatch.from_pylist([], reader.schema)
        types = [_type_of(column, name == self.target) for name, column in zip(first.schema.names, first, strict=True)]
        return pa.schema(zip(first.schema.names, types, strict=True))

    def _read(self, names: list[str], types: Types) -> pa.RecordBatchReader:
        """Return an iterator over record batches of some columns, or of all if there are no names, in order.

        Batches of a CSV file also contain all other columns, as bytes: a missing quotation mark in one of these columns
        would join rows, which ``batches`` refuses.
        """
        if self._dataset is not None:
            return self._dataset.to_batches(columns=names, **in_order())
        known = {field.name: field.type for field in self.schema}
        # Truth values are numbers, too.
        known |= {name: kind for name, kind in types.items() if (known[name], kind) != (pa.bool_(), pa.float64())}
        others = [name for name in known if names and name not in names]
        options = csv.ConvertOptions(
            include_columns=[*names, *others],
            column_types=known | dict.fromkeys(others, pa.binary()),
            null_values=MISSING,
            strings_can_be_null=True,
        )
        # With threads Arrow does not know the rows of wrong cells.
        how = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
        return csv.open_csv(self._path, how, self._parsing, options)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ValueError for columns that the file does not have."""
        given = self.schema.names
        if absent := [name for name in names if name not in given]:
            which = f"{short(absent)}{near_names(absent, given)}; it has {short(given)}"
            raise ValueError(f"{self.name!r} lacks the columns {which}.")

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the file and the column in errors, and count the rows from 1 below the header."""
        with _reading(self.name):
            try:
                yield
            except MemoryError:
                raise
            except (ValueError, pa.ArrowException) as error:
                text = re.sub(r"Row #(\d+)", lambda found: f"row {int(found[1]) - 1}", str(error))
                text = re.sub(r"CSV column #(\d+)", lambda found: f"column {self.schema.names[int(found[1])]!r}", text)
                text = f"{text}. {HOW_TO_MEND}" if "conversion error" in text else text
                raise ValueError(f"{self.name!r}: {text}") from None

    def batches(
        self, features: list[str], types: Types, may_miss: bool = True
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Yield batches of features, and arrays of labels or None without a target; without rows one empty batch.

        Infinite numbers, missing labels, lists and the like, and a target without rows raise ValueError; missing
        numbers unless they ``may_miss``. ``types`` of columns of CSV replace those of the schema.
        """
        n_rows, names = 0, features if self.target is None else [*features, self.target]
        with self.named():
            if nested := [name for name in names if pa.types.is_nested(self.schema.field(name).type)]:
                kind = self.schema.field(nested[0]).type
                raise ValueError(f"column {nested[0]!r} has values of type {kind}; give numbers, truth values or text.")
            for batch in self._read(names, types):
                for field, column in zip(batch.schema, batch.columns, strict=True):
                    if field.type in (pa.float32(), pa.float64()):
                        refuse(compute.is_inf(column), n_rows, field.name, "an infinite number")
                    if field.type in (pa.string(), pa.binary()) and self._dataset is None:
                        what = "several lines of text, perhaps for want of a quotation mark"
                        refuse(compute.match_substring(column, "\n"), n_rows, field.name, what)
                    if field.name == self.target or (field.name in names and not may_miss):
                        refuse(column.is_null(nan_is_null=True), n_rows, field.name, "a missing value")
                n_rows += batch.num_rows
                yield batch.select(features), None if self.target is None else batch[self.target]
            if not n_rows and self.target is not None:
                raise ValueError("there is a header but no rows.")
        if not n_rows:
            yield pa.RecordBatch.from_pylist([], pa.schema([(name, types[name]) for name in features])), None


def refuse(bad: pa.BooleanArray, n_before: int, column: str | None, what: str) -> None:
    """Raise ValueError if the mask ``bad`` has a row, after ``n_before`` other rows."""
    if (row := compute.index(bad, True).as_py()) >= 0:
        how = "put in another value, or leave out such rows"
        raise ValueError(f"row {n_before + row + 1}, column {column!r}: {what}; {how}.")


def _type_of(cells: pa.Array, is_target: bool) -> pa.DataType:
    """Return the type of a column of CSV, from its first cells: truth values, numbers or text."""
    if is_target or pa.types.is_boolean(cells.type):
        return cells.type if is_number(cells.type) else pa.string()
    is_text = pa.types.is_temporal(cells.type)
    if pa.types.is_string(cells.type):
        n_like = compute.sum(compute.match_substring_regex(cells, LIKE_A_NUMBER)).as_py() or 0
        is_text = 2 * n_like < len(cells) - cells.null_count
    return pa.string() if is_text else pa.float64()


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn an OSError into a message about a file."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot read {name!r}: {error.strerror or error}") from None


@contextmanager
def opened(path: str, target: str | None = None) -> Iterator[Rows]:
    """Open a file; standard input ("-") and pipes, which can be read only once, are copied to a temporary file."""
    if path == "-" and sys.stdin is None:
        raise ValueError("standard input is closed; give the name of a file.")
    name, place = "standard input" if path == "-" else path, path
    with ExitStack() as stack:
        with _reading(name):
            if path == "-" or Path(path).is_fifo():
                place = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xgpc-"))) / "rows.csv")
                with (
                    open(place, "wb") as copy,
                    nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as given,
                ):
                    shutil.copyfileobj(given, copy)
        yield Rows(place, name, target)


def write_rows(path: str | None, batches: Iterator[pa.RecordBatch]) -> None:
    """Write one record batch or more as the name says: .parquet, .gz for compressed CSV, else CSV; None: stdout."""
    first = next(batches)
    with ExitStack() as stack:
        if path is None and sys.stdout is None:
            raise ValueError("standard output is closed; use --output FILE.")
        file: IO[bytes] | gzip.GzipFile = sys.stdout.buffer if path is None else stack.enter_context(output(path))
        if path is not None and path.lower().endswith(".gz"):
            # Without the time the same predictions make the same file.
            file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        writer_of = parquet.ParquetWriter if path is not None and is_parquet(path) else csv.CSVWriter
        writer = stack.enter_context(writer_of(file, first.schema))
        for batch in chain([first], batches):
            writer.write(batch)
