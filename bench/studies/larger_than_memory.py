"""Rows in a file that need not fit into memory.

Each fit is of rows in a Parquet file, 28 features in float32, made block by block; 100 inducing points, the kernel
learned, all else at its defaults, in a process of its own. One reading is the file read in batches and nothing done
with it; a full pass is (2 n m d + 3 n m^2) flops at the rate of dgemm on so many threads. Memory is the most that the
process had, imports included; before the fit it has some 150 MB. Bounds differ, as learning from other samples of these
rows ends with one, two or three of their three waves.
"""

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from markdown_tables import number, table
from measure import gemm_call, peak_memory, seconds
from records import LIBRARY

from xgpc import GPClassifier
from xgpc.rows import from_parquet

from . import THREADS, Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {"rows": Option((100_000, 1_000_000, 11_000_000), "of the files"), "threads": THREADS}
QUICK = {"rows": [3000]}
D, M = 28, 100
WRITTEN_ROWS = 100_000


def write(path, n):
    """Classes whose log odds are waves in three of the features and a product of two others."""
    import pyarrow
    from pyarrow import parquet

    names = [f"x{j}" for j in range(D)]
    schema = pyarrow.schema([*((name, pyarrow.float32()) for name in names), ("y", pyarrow.int8())])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, n, WRITTEN_ROWS):
            rng = np.random.default_rng([0, start])
            X = rng.normal(size=(min(WRITTEN_ROWS, n - start), D)).astype(np.float32)
            odds = np.sum(np.sin(2.0 * X[:, :3]), axis=1) + X[:, 3] * X[:, 4]
            y = (odds + rng.logistic(size=len(X)) > 0).astype(np.int8)
            columns = [pyarrow.array(column) for column in (*X.T, y)]
            writer.write_table(pyarrow.table(columns, schema=schema))


def reading(path):
    """Seconds of one reading."""
    start = time.perf_counter()
    for _ in from_parquet(path, target="y"):
        pass
    return time.perf_counter() - start


def fit(path, threads):
    """In a process that has done nothing else."""
    start = time.perf_counter()
    model = GPClassifier(n_inducing=M, n_neighbors=0, n_jobs=threads, random_state=0)
    model.fit_batches(from_parquet(path, target="y"))
    spent = time.perf_counter() - start
    return {"seconds": spent, "gigabytes": peak_memory(), "elbo": model.elbo_}


def alone(function, *arguments):
    """What a function returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def measure(n, threads):
    gemm, flops = gemm_call()
    rate = threads * flops / min(seconds(gemm, 9))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows.parquet")
        alone(write, path, n)
        found = alone(fit, path, threads)
        read = alone(reading, path)
    return {"rows": n, **found, "reading": read, "pass": (2.0 * n * M * D + 3.0 * n * M**2) / rate}


def parts(options):
    for n in options.rows:
        yield Part(f"{n} rows", partial(measure, n, options.threads))


def report(records):
    header = ["rows", "fit", "one reading", "a full pass", "fit in full passes", "memory at most", "bound, nats a row"]
    rows = []
    for record in records.values():
        run = record["numbers"]
        passes = run["seconds"] / run["pass"]
        rows.append([
            str(run["rows"]), f"{run['seconds']:.1f} s", f"{run['reading']:.1f} s", f"{run['pass']:.2f} s",
            number(passes, 1), f"{run['gigabytes']:.2f} GB", number(run["elbo"] / run["rows"], 4),
        ])  # fmt: skip
    return table(header, rows)


def draw(records, folder):
    """Seconds and memory against rows."""
    from matplotlib.figure import Figure

    runs = sorted((record["numbers"] for record in records.values()), key=lambda run: run["rows"])
    left, right = (figure := Figure(figsize=(9, 3.6), layout="constrained")).subplots(1, 2)
    rows = [run["rows"] for run in runs]
    left.loglog(rows, [run["seconds"] for run in runs], "o-", label="fit")
    left.loglog(rows, [run["reading"] for run in runs], "s-", label="one reading")
    left.loglog(rows, [14.0 * run["pass"] for run in runs], ":", label="14 full passes")
    left.set(xlabel="rows", ylabel="seconds")
    left.legend()
    right.semilogx(rows, [run["gigabytes"] for run in runs], "o-")
    right.set(xlabel="rows", ylabel="memory at most, GB", ylim=(0.0, None))
    figure.savefig(folder / "larger_than_memory.png", dpi=100)
    return ["larger_than_memory.png"]
