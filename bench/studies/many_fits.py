"""Thousands of fits in one process.

What a package does that embeds a classifier: fits to 100 rows, one after the other, of the same process, with
predictions and a copy of each model. The peak of the process's memory after the first fits, which load libraries and
make tables, and what the others add to it.
"""

import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
from markdown_tables import number, table
from measure import peak_memory
from records import LIBRARY
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from xgpc import BayesianLinearClassifier, GPClassifier

from . import Option, Part

# Memory does not depend on the load of others.
DEPENDS, TIMED = (*LIBRARY, "xgpc/**/linear*.py"), False
ROWS = 100
SHORT = {"n_inducing": 20, "n_neighbors": 0, "max_iter": 5}
KINDS = {
    "given-kernel": (partial(GPClassifier, 4.0 * RBF(1.0), n_inducing=20, optimizer=None), 2),
    "learned-kernel": (partial(GPClassifier, **SHORT), 2),
    "two-threads": (partial(GPClassifier, **SHORT, n_jobs=2), 2),
    "mini-batches": (partial(GPClassifier, **SHORT, batch_size=30, optimizer=None), 2),
    "full-process": (partial(GPClassifier, inducing_points="all", max_iter=5), 2),
    "three-classes": (partial(GPClassifier, **SHORT), 3),
    "neighbours": (partial(GPClassifier, n_inducing=20, n_neighbors=5, max_iter=2), 2),
    "linear": (BayesianLinearClassifier, 2),
}
OPTIONS = {"fits": Option(2000, "fits of each kind"), "first": Option(200, "of them before memory is looked at"),
           "kinds": Option(tuple(KINDS), ", ".join(KINDS))}  # fmt: skip
QUICK = {"fits": 30, "first": 10, "kinds": ["given-kernel", "linear"]}


def fit_one(kind, seed):
    """A fit to rows of its own, predictions, and a copy."""
    make, n_classes = KINDS[kind]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, 3))
    score = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.5 * rng.normal(size=ROWS)
    y = np.searchsorted(np.quantile(score, np.linspace(0.0, 1.0, n_classes + 1)[1:-1]), score)
    model = make(random_state=seed).fit(X, y)
    return pickle.loads(pickle.dumps(model)).predict_proba(X)


def fit_many(kind, fits, first):
    """GB at the peak after the first fits, and after all."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    for seed in range(first):
        fit_one(kind, seed)
    before = peak_memory()
    for seed in range(first, fits):
        fit_one(kind, seed)
    return {"first": before, "all": peak_memory()}


def measure(kind, fits, first):
    # A peak is one of a whole process.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(fit_many, kind, fits, first).result()


def parts(options):
    for kind in options.kinds:
        yield Part(kind, partial(measure, kind, options.fits, options.first))


def report(records):
    rows = [
        [name, number(1e3 * found["first"], 1), number(1e3 * (found["all"] - found["first"]), 1)]
        for name, record in records.items() for found in (record["numbers"],)
    ]  # fmt: skip
    return table(["fits", "peak after the first, MB", "added by the others, MB"], rows)
