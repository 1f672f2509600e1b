"""Rows that do not fit into memory, and workers of a cluster

The rows have 28 features in float32. By default, `fit_batches` reads them from a Parquet file. All fits have 100
inducing points, learn the kernel, and run in separate processes. "In memory" fits the same rows as one array with
`fit(X, y)`; the goal is at most 1 GiB beyond this array. "X-GPC" is the paper's system with one thread; the goals are
120 s and 1 GiB. "Reading" is the time to read the file once. Memory is the peak memory of the process, of which the
imported modules take 150 MB. The cluster consists of dask workers on one machine, each a process with one thread, which
hold the rows in memory. They find the posterior under a given kernel; the goal is that two workers are 1.7 times as
fast as one. "Neighbours" are 24 for each row of an array with 10 features, under a given kernel; the goals are 30 s and
1.5 GB for a million rows, and 60 µs for the prediction of a single row.
"""

import statistics
import time
from contextlib import ExitStack
from functools import partial

import files
import numpy as np
from markdown_tables import number, table
from measure import alone, median_ratio, peak_memory, seconds, side_by_side, timed_fit
from records import OUTPUTS, VERSION
from scipy.special import expit
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from xgpc import GPClassifier, systems
from xgpc.rows import from_parquet

from . import Part

MINUTES, EXPIRES = 8, {OUTPUTS, VERSION}
D, M, GIB = 28, 100, 2**30 / 1e9
PARTITIONS, ITERATIONS, WORKERS = 20, 5, 2


def some_rows(n, d, start):
    """Classes whose log odds are waves in three of the features and a product of two others."""
    rng = np.random.default_rng([0, start])
    X = rng.normal(size=(min(files.BLOCK, n - start), d)).astype(np.float32)
    odds = np.sum(np.sin(2.0 * X[:, :3]), axis=1) + X[:, 3] * X[:, 4]
    return X, (odds + rng.logistic(size=len(X)) > 0).astype(np.int8)


def fit_file(path, settings, threads=2):
    start = time.perf_counter()
    model = GPClassifier(**settings, n_jobs=threads, random_state=0)
    model.fit_batches(from_parquet(path, target="y"))
    return {"seconds": time.perf_counter() - start, "gigabytes": peak_memory(), "elbo": model.elbo_}


def fit_in_memory(path, n):
    """A fit of the rows of a file that are all in memory before."""
    X, y = files.read_all(path, n, D)
    model = GPClassifier(n_inducing=M, n_neighbors=0, n_jobs=2, random_state=0)
    spent = timed_fit(model, X, y)
    return {"seconds": spent, "input": (X.nbytes + y.nbytes) / 1e9, "gigabytes": peak_memory(), "elbo": model.elbo_}


def measure(n, kind):
    path = files.file_of(n, D, some_rows)
    if kind == "in memory":
        return {"rows": n, **alone(fit_in_memory, path, n)}
    if kind == "X-GPC":
        return {"rows": n, **alone(fit_file, path, dict(systems["X-GPC"]), 1)}
    found, start = alone(fit_file, path, {"n_inducing": M, "n_neighbors": 0}), time.perf_counter()
    for _ in from_parquet(path, target="y"):
        pass
    return {"rows": n, **found, "reading": time.perf_counter() - start}


def near_rows(n):
    """Rows with ten features, three of which matter, and their classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    odds = 3.0 * np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + X[:, 2]
    return X, rng.uniform(size=n) < expit(odds)


NEAR = {
    "kernel": ConstantKernel(10.0) * Matern(np.full(10, 2.0), nu=1.5),
    "optimizer": None,
    "n_neighbors": 24,
    "random_state": 0,
}


def fit_neighbors(n):
    X, y = near_rows(n)
    model = GPClassifier(**NEAR, n_jobs=2)
    spent = timed_fit(model, X, y)
    peak, one = peak_memory(), statistics.median(seconds(partial(model.predict_proba, X[:1]), 1000))
    return {"rows": n, "seconds": spent, "gigabytes": peak, "one_row": one}


def cluster(n, repeats):
    """Seconds of fits by one worker and by several, in turn."""
    from distributed import Client, LocalCluster

    from xgpc.dask import DaskGPClassifier

    calls = {}
    with ExitStack() as stack:
        for k in (1, WORKERS):
            workers = stack.enter_context(LocalCluster(n_workers=k, threads_per_worker=1, dashboard_address=":0"))
            client = stack.enter_context(Client(workers, set_as_default=False))
            X, y = client.persist(random_rows(n))
            calls[k] = partial(timed_fit, DaskGPClassifier(client=client, **PASSES), X, y)
        times = side_by_side(calls, repeats)
    return {"speed_up": median_ratio(times[1], times[WORKERS]), "seconds": times}


def random_rows(n):
    from dask import array

    X = array.random.default_rng(0).normal(size=(n, D), chunks=(n // PARTITIONS, D)).astype(np.float32)
    return X, X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.5 * X[:, 3] > 0


PASSES = {
    "kernel": ConstantKernel(4.0) * RBF(np.full(D, 5.0)),
    "optimizer": None,
    "inducing_points": np.random.default_rng(1).normal(size=(M, D)),
    "n_neighbors": 0,
    "max_iter": ITERATIONS,
    "tol": 0.0,
}


def parts(data, quick):
    sizes, rows, repeats = ((3000,), 4000, 1) if quick else ((1_000_000, 11_000_000), 4_000_000, 3)
    kinds = {"": "file", " in memory": "in memory", ", X-GPC": "X-GPC"}
    found = [Part(f"{n} rows{end}", partial(measure, n, kind)) for n in sizes for end, kind in kinds.items()]
    n = sizes[0]
    found.append(Part(f"{n} rows, neighbours", partial(alone, fit_neighbors, n)))
    return [*found, Part(f"{rows} rows, {WORKERS} workers", partial(cluster, rows, repeats))]


def report(records):
    fits, neighbors, speed = [], [], []
    for name, record in records.items():
        found = record["numbers"]
        if "speed_up" in found:
            speed.append([name, f"{found['speed_up']:.2f}"])
            continue
        if "one_row" in found:
            spent, one = f"{found['seconds']:.1f} s", f"{1e6 * found['one_row']:.0f} µs"
            neighbors.append([name, spent, f"{found['gigabytes']:.2f} GB", one])
            continue
        beyond = f"{(found['gigabytes'] - found['input']) / GIB:.2f} GiB" if "input" in found else ""
        reading = f"{found['reading']:.1f} s" if "reading" in found else ""
        fits.append([name, f"{found['seconds']:.1f} s", reading, f"{found['gigabytes']:.2f} GB", beyond,
                     number(found["elbo"] / found["rows"], 4)])  # fmt: skip
    header = ["fit", "seconds", "reading", "peak memory", "beyond the rows", "bound per row, nats"]
    near = table(["fit", "seconds", "peak memory", "prediction of a row"], neighbors)
    return f"{table(header, fits)}\n\n{near}\n\n{table(['cluster', 'times as fast as one worker'], speed)}"
