"""Rows in a file that need not fit into memory.

Each fit is of rows in a Parquet file, 28 features in float32, made block by block; 100 inducing points, the kernel
learned, all else at its defaults, in a process of its own. One reading is the file read in batches and nothing done
with it; a full pass is (2 n m d + 3 n m^2) flops at the rate of dgemm on so many threads. Memory is the most that the
process had, imports included; before the fit it has some 150 MB. Bounds differ, as learning from other samples of these
rows ends with one, two or three of their three waves. In memory: the same rows as one array in float32, which the
process has before `fit(X, y)`; goal: no more than 1 GiB beyond them. By the number of inducing points: the posterior
alone, of one file, at a kernel that is given; seconds of an iteration, which takes a pass, next to m^2. X-GPC: that
system by its name, of the same files, in one thread; goal: 120 s and 1 GiB.
"""

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from markdown_tables import number, table
from measure import gemm_call, peak_memory, seconds
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier, systems
from xgpc.rows import from_parquet

from . import THREADS, Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {
    "kinds": Option(
        ("file", "memory", "inducing", "x-gpc"),
        "some of these: by rows in a file, in memory, by inducing points, X-GPC by rows in a file",
    ),
    "rows": Option((100_000, 1_000_000, 11_000_000), "of the files, and in memory"),
    "inducing": Option((128, 512, 2048), "inducing points"),
    "inducing_rows": Option(200_000, "of the file for these"),
    "threads": THREADS,
}
QUICK = {"rows": [3000], "inducing": [16, 32], "inducing_rows": 3000}
D, M = 28, 100
# Of the three features of the waves and the product of two others, the others being noise.
LENGTH_SCALES = [1.5, 1.5, 1.5, 4.0, 4.0] + [100.0] * (D - 5)
GIB = 2**30 / 1e9
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


def fit(path, threads, system=None):
    """In a process that has done nothing else; by the defaults, or a paper's system."""
    start = time.perf_counter()
    settings = {"n_inducing": M, "n_neighbors": 0} if system is None else systems[system]
    model = GPClassifier(**settings, n_jobs=threads, random_state=0)
    model.fit_batches(from_parquet(path, target="y"))
    spent = time.perf_counter() - start
    return {"seconds": spent, "gigabytes": peak_memory(), "elbo": model.elbo_}


def fit_in_memory(path, threads):
    """Of the rows of a file that are all in memory before; in a process that has done nothing else."""
    n = rows_of_file(path)
    X, y, start = np.empty((n, D), np.float32), np.empty(n, np.int8), 0
    for rows, labels in from_parquet(path, target="y"):
        X[start : start + len(rows)], y[start : start + len(rows)] = rows, labels
        start += len(rows)
    begun = time.perf_counter()
    model = GPClassifier(n_inducing=M, n_neighbors=0, n_jobs=threads, random_state=0).fit(X, y)
    spent = time.perf_counter() - begun
    return {"seconds": spent, "input": (X.nbytes + y.nbytes) / 1e9, "gigabytes": peak_memory(), "elbo": model.elbo_}


def rows_of_file(path):
    from pyarrow import parquet

    return parquet.read_metadata(path).num_rows


def fit_posterior(path, m, threads):
    """Of the kernel that is given."""
    kernel = ConstantKernel(4.0) * RBF(LENGTH_SCALES)
    model = GPClassifier(
        kernel, optimizer=None, n_inducing=m, inducing_points="random", n_neighbors=0, n_jobs=threads, random_state=0
    )
    start = time.perf_counter()
    model.fit_batches(from_parquet(path, target="y"))
    spent = time.perf_counter() - start
    return {"inducing": m, "seconds": spent, "iterations": model.n_iter_, "gigabytes": peak_memory()}


def alone(function, *arguments):
    """What a function returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


@contextmanager
def file_of(n):
    """Path of a file of so many rows, for a ``with`` statement."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows.parquet")
        alone(write, path, n)
        yield path


def measure(n, threads):
    gemm, flops = gemm_call()
    rate = threads * flops / min(seconds(gemm, 9))
    with file_of(n) as path:
        found = alone(fit, path, threads)
        read = alone(reading, path)
    return {"rows": n, **found, "reading": read, "pass": (2.0 * n * M * D + 3.0 * n * M**2) / rate}


def measure_x_gpc(n):
    with file_of(n) as path:
        return {"rows": n, "x_gpc": True, **alone(fit, path, 1, "X-GPC")}


def measure_in_memory(n, threads):
    with file_of(n) as path:
        return {"rows": n, **alone(fit_in_memory, path, threads)}


def measure_by_points(points, n, threads):
    with file_of(n) as path:
        return {"rows": n, "fits": [alone(fit_posterior, path, m, threads) for m in points]}


def parts(options):
    if "file" in options.kinds:
        for n in options.rows:
            yield Part(f"{n} rows", partial(measure, n, options.threads))
    if "memory" in options.kinds:
        for n in options.rows:
            yield Part(f"{n} rows in memory", partial(measure_in_memory, n, options.threads))
    if "x-gpc" in options.kinds:
        for n in options.rows:
            yield Part(f"{n} rows, X-GPC", partial(measure_x_gpc, n))
    if "inducing" in options.kinds:
        points = partial(measure_by_points, options.inducing, options.inducing_rows, options.threads)
        yield Part("inducing points", points)


def of_kind(records, key):
    """The numbers of the records that have one of this name, the fewest rows first."""
    return sorted((one["numbers"] for one in records.values() if key in one["numbers"]), key=lambda run: run["rows"])


def report(records):
    tables = [by_rows(of_kind(records, "pass")), in_memory(of_kind(records, "input"))]
    tables.append(x_gpc(of_kind(records, "x_gpc")))
    tables += map(by_points, of_kind(records, "fits"))
    return "\n\n".join(filter(None, tables))


def in_memory(runs):
    header = ["rows in memory", "their size", "fit", "memory at most", "beyond the rows, in GiB"]
    rows = [
        [str(run["rows"]), f"{run['input']:.2f} GB", f"{run['seconds']:.1f} s", f"{run['gigabytes']:.2f} GB",
         number((run["gigabytes"] - run["input"]) / GIB, 2)] for run in runs
    ]  # fmt: skip
    return table(header, rows) if runs else ""


def x_gpc(runs):
    header = ["rows in a file: X-GPC, one thread", "fit", "memory at most", "bound, nats a row"]
    rows = [
        [str(run["rows"]), f"{run['seconds']:.1f} s", f"{run['gigabytes']:.2f} GB",
         number(run["elbo"] / run["rows"], 4)] for run in runs
    ]  # fmt: skip
    return table(header, rows) if runs else ""


def by_points(run):
    header = [
        "inducing points", f"posterior of {run['rows']} rows", "iterations", "s an iteration; / m^2, in microseconds",
        "memory at most",
    ]  # fmt: skip
    rows = []
    for fit in run["fits"]:
        each = fit["seconds"] / fit["iterations"]
        by_square = 1e6 * each / fit["inducing"] ** 2
        rows.append([
            str(fit["inducing"]), f"{fit['seconds']:.1f} s", str(fit["iterations"]), f"{each:.2f}; {by_square:.2f}",
            f"{fit['gigabytes']:.2f} GB",
        ])  # fmt: skip
    return table(header, rows)


def by_rows(runs):
    header = ["rows", "fit", "one reading", "a full pass", "fit in full passes", "memory at most", "bound, nats a row"]
    rows = []
    for run in runs:
        passes = run["seconds"] / run["pass"]
        rows.append([
            str(run["rows"]), f"{run['seconds']:.1f} s", f"{run['reading']:.1f} s", f"{run['pass']:.2f} s",
            number(passes, 1), f"{run['gigabytes']:.2f} GB", number(run["elbo"] / run["rows"], 4),
        ])  # fmt: skip
    return table(header, rows) if runs else ""


def draw(records, folder):
    """Seconds and memory against rows; seconds of an iteration against the number of inducing points."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(11.5, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    runs, kept = of_kind(records, "pass"), of_kind(records, "input")
    rows = [run["rows"] for run in runs]
    left.loglog(rows, [run["seconds"] for run in runs], "o-", label="fit of a file")
    if kept:
        left.loglog([run["rows"] for run in kept], [run["seconds"] for run in kept], "^-", label="fit in memory")
    left.loglog(rows, [run["reading"] for run in runs], "s-", label="one reading")
    left.loglog(rows, [14.0 * run["pass"] for run in runs], "k:", label="14 full passes")
    left.set(xlabel="rows", ylabel="seconds")
    middle.semilogx(rows, [run["gigabytes"] for run in runs], "o-", label="fit of a file")
    if kept:
        sizes = [run["rows"] for run in kept]
        middle.semilogx(sizes, [run["gigabytes"] for run in kept], "^-", label="fit in memory")
        middle.semilogx(sizes, [run["input"] + GIB for run in kept], "k:", label="the rows and 1 GiB")
    middle.set(xlabel="rows", ylabel="memory at most, GB", ylim=(0.0, None))
    for run in of_kind(records, "fits"):
        m = np.array([fit["inducing"] for fit in run["fits"]])
        each = np.array([fit["seconds"] / fit["iterations"] for fit in run["fits"]])
        right.loglog(m, each, "o-", label=f"{run['rows']} rows")
        right.loglog(m, each[-1] * (m / m[-1]) ** 2, "k:", label="m squared")
        right.set_xticks(m, [str(one) for one in m])
        right.xaxis.set_minor_formatter(NullFormatter())
    right.set(xlabel="inducing points m", ylabel="seconds an iteration")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(folder / "larger_than_memory.png", dpi=150)
    return ["larger_than_memory.png"]
