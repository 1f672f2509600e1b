"""The full Gaussian process.

Its time and memory at many rows, and next to scikit-learn's at few. Ringnorm (Breiman 1996) in twenty dimensions. At
many rows the posterior alone at a fixed kernel; at few, a variance and a length scale are learned by both libraries,
with all else at its defaults, one after the other, medians of three.
"""

import statistics
from functools import partial

import numpy as np
from markdown_tables import number, table
from measure import fit_and_score, median_of, peak_memory
from methods import method
from problems import Split, ringnorm
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from threadpoolctl import threadpool_limits

from . import THREADS, Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {"rows": Option(10_000, "with a fixed kernel"), "few": Option((500, 1000), "with a kernel that is learned"),
           "threads": THREADS}  # fmt: skip
QUICK = {"rows": 400, "few": [100]}
START = ConstantKernel(2.0) * RBF(np.sqrt(20))
ROUNDS, TEST_ROWS = 3, 2000


def data_of(n, seed):
    return Split(*ringnorm(n, seed), *ringnorm(TEST_ROWS, 1))


def few_rows(n, threads):
    runs = []
    for seed in range(ROUNDS):
        data = data_of(n, [seed, n])
        models = {"xgpc": method("xgpc").make(threads, seed=None, kernel=START, inducing_points="all"),
                  "scikit-learn": method("sklearn").make(seed=None, kernel=START)}  # fmt: skip
        with threadpool_limits(threads):
            runs.append({name: fit_and_score(model, data) for name, model in models.items()})
    return {"rows": n, "runs": runs}


def many_rows(n, threads):
    data, before = data_of(n, 0), peak_memory()
    model = method("xgpc").make(threads, seed=None, kernel=START, inducing_points="all", optimizer=None)
    found = fit_and_score(model, data)
    return {"rows": n, **found, "iterations": model.n_iter_, "gigabytes": peak_memory(), "gigabytes_before": before}


def parts(options):
    for n in options.few:
        yield Part(f"{n} rows, kernel learned", partial(few_rows, n, options.threads))
    yield Part(f"{options.rows} rows, kernel fixed", partial(many_rows, options.rows, options.threads))


def cells(numbers):
    if "runs" not in numbers:
        return [f"{numbers['seconds']:.1f} s", "", "", number(numbers["nll"], 4), "", f"{numbers['gigabytes']:.1f} GB"]
    ours, theirs = ([run[name] for run in numbers["runs"]] for name in ("xgpc", "scikit-learn"))
    ratio = statistics.median(b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True))
    return [f"{median_of(ours, 'seconds'):.2f} s", f"{median_of(theirs, 'seconds'):.2f} s", number(ratio, 1),
            number(median_of(ours, "nll")), number(median_of(theirs, "nll")), ""]  # fmt: skip


def report(records):
    header = ["", "xgpc", "scikit-learn", "times as fast", "xgpc's NLL", "scikit-learn's", "memory at most"]
    return table(header, [[name, *cells(record["numbers"])] for name, record in records.items()])
