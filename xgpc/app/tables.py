"""CSV and Parquet files as data sets of Arrow (extra ``app``)."""

from __future__ import annotations

import gzip
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from csv import field_size_limit, reader
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, dataset, parquet

from ..ranges import BadRow
from ..rows.columnar import in_order, index_in, parquet_dataset
from .output import output, writing

# Bytes of CSV that are parsed at a time. The first block decides on the types of the columns.
BLOCK_BYTES = 2**24


def is_parquet(path: str) -> bool:
    """Whether the name is that of a Parquet file; all others are CSV."""
    return path.lower().endswith(".parquet")


def _parse_options(path: str) -> csv.ParseOptions:
    """How a CSV file separates its cells; an error of Arrow for a file that has not even one row's line."""
    with pa.input_stream(path) as file:
        block = file.read(BLOCK_BYTES)
    # Arrow would say of both that it cannot infer the number of columns.
    if not block.strip() or not re.search(rb"[\r\n]", block):
        raise pa.ArrowInvalid("The file has a header, and no rows" if block.strip() else "The file is empty")
    # Quoted names may have other separators.
    header = re.sub(r'(^|[,;\t])"(?:[^"]|"")*', r"\1", block.partition(b"\n")[0].decode("utf-8-sig", "replace"))
    return csv.ParseOptions(delimiter=max(",;\t", key=header.count), newlines_in_values=True)


def _line(path: str, row: int) -> int:
    """The line of a CSV file, from 1, on which a row below the header ends, from 0; empty lines are no rows."""
    field_size_limit(BLOCK_BYTES)
    with pa.input_stream(path) as file:
        lines = reader(TextIOWrapper(file, "utf-8", "replace", newline=""), delimiter=_parse_options(path).delimiter)
        return next(islice((lines.line_num for cells in lines if cells), row + 1, None), row + 2)


def _csv_dataset(path: str, is_text: Mapping[str, bool], target: str | None) -> dataset.Dataset:
    """The rows of a CSV file; ``is_text`` as for ``opened``. Numbers but the target's are floating point."""
    # Predictions, which have no target, keep the text of other columns: ``batches`` finds the missing cells.
    conversion = csv.ConvertOptions(strings_can_be_null=target is not None)
    options = dataset.CsvFragmentScanOptions(conversion, csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False))
    form = dataset.CsvFileFormat(_parse_options(path), options)
    fields = []
    for field in dataset.dataset(path, format=form).schema:
        # Text that is not UTF-8 is inferred as bytes, and an error as text.
        name, kind = field.name, pa.string() if pa.types.is_binary(field.type) else field.type
        # After whole numbers, or none, in the first block, further ones may have fractions. In a column of numbers a
        # cell of text is an error that names it; as text it would make text of all others.
        is_float = name != target and (kind in (pa.int64(), pa.null()) or (kind == pa.string() and name in is_text))
        fields.append((name, pa.string() if is_text.get(name) else pa.float64() if is_float else kind))
    return dataset.dataset(path, pa.schema(fields), form)


@contextmanager
def opened(path: str, is_text: Mapping[str, bool], target: str | None = None) -> Iterator[dataset.Dataset]:
    """Open a file, and name it in errors of Arrow and the system; ``is_text`` says of columns of CSV if they are text.

    Standard input ("-") and pipes, which can be read only once, and files ".GZ" are copied to a temporary file.
    """
    name = "standard input" if path == "-" else path
    if path == "-" and sys.stdin is None:
        raise ValueError("standard input is closed; give the name of a file.")
    with ExitStack() as stack:
        try:
            # Arrow knows the ending .gz in small letters alone.
            ending = Path(path).suffix
            if path == "-" or Path(path).is_fifo() or (ending != ".gz" and ending.lower() == ".gz"):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="xgpc-"))
                with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as source:
                    path = str(Path(folder) / f"rows.csv{ending.lower()}")
                    with open(path, "wb") as copy:
                        shutil.copyfileobj(source, copy)
            rows = parquet_dataset(path) if is_parquet(path) else _csv_dataset(path, is_text, target)
            yield rows
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ValueError(f"cannot read {name!r}: {error.strerror or error}") from None
        except (pa.ArrowException, UnicodeDecodeError) as error:
            # Arrow says at length that it could not open the file, and counts rows from the header, which is 1.
            reason = re.sub(r"^(Error creating dataset\.|Could not open CSV) .*?: Invalid: ", "", str(error))
            reason = re.sub(r"Row #(\d+)", lambda row: f"line {_line(path, int(row[1]) - 2)}", reason, count=1)
            # Columns are counted from 0.
            reason = re.sub(r"CSV column #(\d+)", lambda place: f"column {rows.schema.names[int(place[1])]!r}", reason)
            numeral = r"\1 is no number; correct or empty it (decimals have a point, no comma)"
            reason = re.sub(r"CSV conv.* double: invalid value ('.*')", numeral, reason)
            form = "Data are CSV files in UTF-8 with a header line, or .parquet."
            raise ValueError(f"cannot read {name!r}: {reason}. {form}") from None


@contextmanager
def places_named(rows: dataset.Dataset, n_before: int = 0) -> Iterator[None]:
    """Say in errors, which count rows from 0, where the bad row is in the file; ``n_before`` rows come before these."""
    try:
        yield
    except BadRow as error:
        path, row = rows.files[0], n_before + error.row
        place = f"row {row} of the data, counted from 0" if is_parquet(path) else f"line {_line(path, row)} of the file"
        error.add_note(f"The first such row is {place}.")
        raise


def index_columns(rows: dataset.Dataset) -> list[str]:
    """The columns into which pandas wrote an index; in CSV a first one without a name that has 0, 1, 2, and so on."""
    first = rows.schema.names[:1]
    if first in ([""], ["Unnamed: 0"]):
        values = rows.to_table(first, **in_order())[0].to_numpy()
        return first if np.array_equal(values, np.arange(len(values))) else []
    return index_in(rows.schema)


def batches(rows: dataset.Dataset, used: Sequence[str], kept: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """Record batches of these columns, in the order of the rows; without rows one empty batch.

    Words such as NA are missing cells of CSV in columns that are used; others keep all but empty cells.
    """
    columns, null_words = {name: pc.field(name) for name in (*used, *kept)}, csv.ConvertOptions().null_values
    if isinstance(rows.format, dataset.CsvFileFormat):
        for name in columns:
            if pa.types.is_string(rows.schema.field(name).type):
                is_missing = pc.is_in(pc.field(name), pa.array(null_words if name in used else [""]))
                columns[name] = pc.if_else(is_missing, None, pc.field(name))
    scanner = rows.scanner(columns=columns, **in_order())
    record_batches = scanner.to_batches()
    try:
        yield next(record_batches, pa.RecordBatch.from_pylist([], scanner.projected_schema))
        yield from record_batches
    except OSError as error:
        # An OSError would count as one of the file that the predictions are written to.
        raise pa.ArrowException((error.strerror or str(error)).rstrip(" .\n")) from None


def write_rows(path: str | None, batches: Iterator[pa.RecordBatch]) -> None:
    """Write one record batch or more as the name says: .parquet, .gz for compressed CSV, else CSV; None: stdout."""
    if path is None and sys.stdout is None:
        raise ValueError("standard output is closed; use --output FILE.")
    first = next(batches)
    with ExitStack() as stack:
        file: IO[bytes] | gzip.GzipFile = sys.stdout.buffer if path is None else stack.enter_context(output(path))
        if path is not None and path.lower().endswith(".gz"):
            # Without the time the same predictions make the same file.
            file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        writer_of = parquet.ParquetWriter if path is not None and is_parquet(path) else csv.CSVWriter
        nested = [field.name for field in first.schema if pa.types.is_nested(field.type)]
        if nested and writer_of is csv.CSVWriter:
            raise ValueError(f"CSV cannot hold the nested columns {nested}; write Parquet: --output FILE.parquet.")
        writer = stack.enter_context(writer_of(file, first.schema))
        for batch in chain([first], batches):
            with writing(path or "standard output"):
                writer.write(batch)
