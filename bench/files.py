"""Parquet files of rows in float32 that are made block by block, for fits of rows that need not fit into memory."""

import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from measure import alone

from xgpc.rows import from_parquet

# Rows of a block.
BLOCK = 100_000


def write(path, n, d, rows):
    """Write n rows of d features; ``rows(n, d, start)`` returns those from row ``start`` on, a block at most, and their
    classes."""
    import pyarrow
    from pyarrow import parquet

    names = [f"x{j}" for j in range(d)]
    schema = pyarrow.schema([*((name, pyarrow.float32()) for name in names), ("y", pyarrow.int8())])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, n, BLOCK):
            X, y = rows(n, d, start)
            writer.write_table(pyarrow.table([pyarrow.array(column) for column in (*X.T, y)], schema=schema))


@lru_cache(1)
def folder():
    """A folder for the files, which ends with the process."""
    return tempfile.TemporaryDirectory()


def file_of(n, d, rows):
    """Path of a file of so many rows, which is written once; the files of other rows go."""
    path = Path(folder().name) / f"{rows.__module__}-{n}-{d}.parquet"
    if not path.exists():
        for other in path.parent.iterdir():
            other.unlink()
        alone(write, str(path), n, d, rows)
    return str(path)


def read_all(path, n, d):
    """All rows (n, d) of a file and their classes (n,), in memory."""
    X, y, start = np.empty((n, d), np.float32), np.empty(n, np.int8), 0
    for rows, labels in from_parquet(path, target="y"):
        X[start : start + len(rows)], y[start : start + len(rows)] = rows, labels
        start += len(rows)
    return X, y
