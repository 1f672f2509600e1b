"""Neighbours in files and streams

"Files" are Parquet files of rows in float32 whose classes change quickly in three of the features; the lowest possible
NLL is that of the true probabilities. "Array" fits the same rows from memory. "Sample" is the number of rows that the
model keeps for neighbours, if it has any. LightGBM, with early stopping, needs all rows in memory. The goals: a file of
a million rows takes at most 45 s and twice the time of the array, with the same result; 11 million rows take at most
180 s and 4 GB, and have at most LightGBM's NLL. Memory is the peak memory of the process. "Generated" are fits without
neighbours, with 100 inducing points, to rows of ten features that a function makes anew for each reading; the goals for
100 million rows are 20 minutes and 1.5 GB.

"Streams" are the rows of electricity, a thousand at a time, in the order of time or shuffled. The NLL is the mean over
all batches but the first, each predicted before the model learns from it. In the order of time, `held_out_split` is
`TimeSeriesSplit()`. LightGBM is fitted anew to all rows so far: at its defaults, and with early stopping on the first
tenth of them. "Slowest" is the longest time of a single batch.
"""

import time
from functools import partial

import files
import numpy as np
import problems
from markdown_tables import number, table
from measure import alone, peak_memory, scores, timed_fit
from methods import THREADS, make
from records import OUTPUTS, VERSION
from scipy.special import expit
from sklearn.model_selection import TimeSeriesSplit

from xgpc import GPClassifier
from xgpc.rows import from_parquet

from . import Part

MINUTES, EXPIRES = 21, {OUTPUTS, VERSION}
TEST_ROWS = 50_000
BATCH = 1000
WAYS = {
    "neighbours": {},
    "without neighbours": {"n_neighbors": 0},
}


def odds(X):
    return 3.0 * np.sin(2.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + 2.0 * np.sin(2.0 * X[:, 2])


def some_rows(n, d, start):
    """Rows from row ``start`` on, at most a block, and their classes."""
    rng = np.random.default_rng([0, start])
    X = rng.standard_normal(size=(min(files.BLOCK, n - start), d), dtype=np.float32)
    return X, (rng.uniform(size=len(X)) < expit(odds(X))).astype(np.int8)


def judged(predict_proba, d):
    """NLL of test rows, and that of their true probabilities."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal(size=(TEST_ROWS, d), dtype=np.float32)
    p = expit(odds(X))
    y = (rng.uniform(size=len(X)) < p).astype(int)
    return {"nll": scores(predict_proba(X), y)["nll"], "lowest": scores(np.column_stack([1.0 - p, p]), y)["nll"]}


def kept_rows(model):
    return len(model.posterior_.X) if model.n_neighbors_ else 0


def fit_file(path, d, settings):
    model, start = GPClassifier(**settings, n_jobs=THREADS, random_state=0), time.perf_counter()
    model.fit_batches(from_parquet(path, target="y"))
    spent = time.perf_counter() - start
    names = [f"x{j}" for j in range(d)]

    def predict_proba(X):
        import pandas as pd

        return model.predict_proba(pd.DataFrame(X, columns=names))

    return {"seconds": spent, "gigabytes": peak_memory(), "kept": kept_rows(model), **judged(predict_proba, d)}


def fit_array(path, n, d, method):
    X, y = files.read_all(path, n, d)
    model = make(method)
    spent = timed_fit(model, X, y)
    kept = kept_rows(model) if method == "xgpc" else 0
    return {"seconds": spent, "gigabytes": peak_memory(), "kept": kept, **judged(model.predict_proba, d)}


def measure_file(n, d, way):
    path = files.file_of(n, d, some_rows)
    if way in WAYS:
        return {"rows": n, **alone(fit_file, path, d, WAYS[way])}
    if way == "lightgbm":
        # The record names the versions of the libraries that this process has loaded.
        import lightgbm  # noqa: F401
    return {"rows": n, **alone(fit_array, path, n, d, "xgpc" if way == "in memory" else way)}


def generated(n):
    def batches():
        return (some_rows(n, 10, start) for start in range(0, n, files.BLOCK))

    model, start = GPClassifier(n_inducing=100, n_neighbors=0, n_jobs=THREADS, random_state=0), time.perf_counter()
    model.fit_batches(batches)
    return {"rows": n, "seconds": time.perf_counter() - start, "gigabytes": peak_memory()}


def predicted_in_turn(X, y, learn):
    """Mean NLL of all batches but the first, and the times of the batches; ``learn(rows so far, their labels, batch)``
    returns what predicts the next one."""
    nll, times, predict_proba = [], [], None
    for start in range(0, len(y), BATCH):
        batch = slice(start, start + BATCH)
        if predict_proba is not None:
            nll.append(scores(predict_proba(X[batch]), y[batch])["nll"])
        began = time.perf_counter()
        predict_proba = learn(X[: batch.stop], y[: batch.stop], batch)
        times.append(time.perf_counter() - began)
    return {"nll": float(np.mean(nll)), "seconds": float(np.sum(times)), "slowest": float(np.max(times))}


def stream(data, order, method, most):
    problem = problems.load(data, "electricity")
    X, y = problem.X[:most], problem.y[:most]
    if order == "shuffled":
        rows = np.random.default_rng(0).permutation(len(y))
        X, y = X[rows], y[rows]
    if method in WAYS:
        split = TimeSeriesSplit() if order == "in time" else None
        model = GPClassifier(**WAYS[method], held_out_split=split, n_jobs=THREADS, random_state=0)

        def learn(_X, _y, batch):
            return model.partial_fit(X[batch], y[batch], classes=[0, 1]).predict_proba
    elif method == "LightGBM, early stopping":

        def learn(X, y, _):
            return make("lightgbm").fit(X, y).predict_proba
    else:
        import lightgbm

        def learn(X, y, _):
            return lightgbm.LGBMClassifier(n_jobs=THREADS, verbose=-1, random_state=0).fit(X, y).predict_proba

    return predicted_in_turn(X, y, learn)


def parts(data, quick):
    small, large, made = (4000, 6000, (4000,)) if quick else (1_000_000, 11_000_000, (10**6, 10**7, 10**8))
    found = []
    for n, d, ways in (
        (small, 10, ("neighbours", "in memory", "without neighbours", "lightgbm")),
        (large, 28, ("neighbours", "lightgbm")),
    ):
        for way in ways:
            of = ("lightgbm",) if way == "lightgbm" else ("xgpc",)
            found.append(Part(f"{n} rows of {d} features: {way}", partial(measure_file, n, d, way), None, of))
    found += [Part(f"{n} generated rows", partial(alone, generated, n)) for n in made]
    # Without the folder of the data sets there are no streams.
    for order in ("in time", "shuffled") if data is not None or not quick else ():
        for method in ("neighbours", "without neighbours", "LightGBM", "LightGBM, early stopping"):
            of = ("lightgbm",) if method.startswith("LightGBM") else ("xgpc",)
            measure = partial(stream, data, order, method, 3000 if quick else None)
            found.append(Part(f"electricity {order}: {method}", measure, "electricity", of))
    return found


def report(records):
    files, made, streams = [], [], []
    for name, record in records.items():
        of, _, way = name.rpartition(": ")
        found, title = record["numbers"], {"lightgbm": "LightGBM", "neighbours": "file", "in memory": "array"}
        if "slowest" in found:
            of = of.removeprefix("electricity ")
            streams.append([of, way, number(found["nll"], 4), f"{found['seconds']:.0f} s", f"{found['slowest']:.1f} s"])
        elif way == name or "nll" not in found:
            made.append([name, f"{found['seconds']:.0f} s", f"{found['gigabytes']:.2f} GB"])
        else:
            kept = f"{found['kept']}" if found["kept"] else ""
            files.append([of, title.get(way, f"file, {way}"), f"{found['seconds']:.0f} s",
                          f"{found['gigabytes']:.2f} GB", kept, number(found["nll"], 4),
                          number(found["lowest"], 4)])  # fmt: skip
    header = ["rows", "fit", "seconds", "peak memory", "sample", "NLL", "lowest possible"]
    of_streams = table(["order", "method", "NLL", "all batches", "slowest"], streams)
    of_made = table(["fit", "seconds", "peak memory"], made)
    return f"{table(header, files)}\n\n{of_made}\n\n{of_streams}"
