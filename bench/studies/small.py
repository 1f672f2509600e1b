"""Few rows: latency, and thousands of fits

The rows are drawn from N(0, I) in five dimensions. A draw of a Gaussian process and the logistic link give the labels;
2000 rows are for testing. xgpc and scikit-learn's `GaussianProcessClassifier` start at the same kernel and learn its
parameters. "Defaults" is `GPClassifier()`, "full process" has all rows as inducing points. Numbers are medians over
five draws. The table "thousands of fits" measures a package that embeds the classifier: one process fits 100 rows many
times, each time predicts, and copies the model. It has the time of one fit, the peak memory of the process after the
first fits, and the memory that all further fits add. "Gradients" compares predictions with and without their gradients
by the features, six of them, with 64 inducing points: least times of a call. "Trials" come one after the other, from 10
rows to 110, as in a package that embeds the classifier in an optimisation, and the model learns from each. The label
says whether a random setting is in the region of Townsend's or Branin's function, those of the trials that fail. The
NLL of 2000 other settings is a mean over all trials of three seeds, and the times are processor times of a trial.
"""

import math
import pickle
import statistics
import time
import warnings
from functools import partial

import numpy as np
from markdown_tables import number, table
from measure import alone, fit_and_score, median_of, peak_memory, seconds, side_by_side
from methods import METHODS, make, warm_up
from problems import Split, classes_of
from records import OUTPUTS_WITHOUT_NEIGHBORS, VERSION
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import BayesianLinearClassifier, GPClassifier

from . import Part, by_set
from .failures import TASKS

MINUTES, EXPIRES = 4, {OUTPUTS_WITHOUT_NEIGHBORS, VERSION}
N_TEST, D = 2000, 5
KERNEL = ConstantKernel(2.0) * RBF(np.full(D, 2.2))
# Name -> method and its parameters.
WAYS = {
    "xgpc": ("xgpc", {"kernel": KERNEL}),
    "defaults": ("xgpc", {}),
    "full process": ("xgpc", {"kernel": KERNEL, "inducing_points": "all"}),
    "scikit-learn": ("laplace", {"kernel": KERNEL}),
}
SHORT = {"n_inducing": 20, "n_neighbors": 0}
KINDS = {
    "kernel given": (partial(GPClassifier, 4.0 * RBF(1.0), n_inducing=20, optimizer=None), 2),
    "kernel learned": (partial(GPClassifier, **SHORT), 2),
    "full process": (partial(GPClassifier, inducing_points="all", max_iter=5), 2),
    "three classes": (partial(GPClassifier, **SHORT), 3),
    "linear": (BayesianLinearClassifier, 2),
}


def drawn(n, seed):
    rng = np.random.default_rng([n, seed])
    X = rng.normal(size=(n + N_TEST, D))
    # The jitter is for the Cholesky factor of a nearly singular matrix.
    L = np.linalg.cholesky(KERNEL(X) + 1e-8 * np.eye(len(X)))
    y = (rng.uniform(size=len(X)) < expit(L @ rng.normal(size=len(X)))).astype(int)
    return Split(X[:n], y[:n], X[n:], y[n:])


def measure(n, way, draws):
    name, settings = WAYS[way]
    warm_up("xgpc")
    runs = []
    for seed in range(draws):
        data, model = drawn(n, seed), make(name, None, **settings)
        run = fit_and_score(model, data)
        times = seconds(partial(model.predict_proba, data.X_test[:1]), 50)
        runs.append({**run, "one_row": statistics.median(times)})
    return {"runs": runs}


def fit_one(kind, seed):
    """A fit to rows of its own, predictions, and a copy."""
    make_model, n_classes = KINDS[kind]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 3))
    score = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.5 * rng.normal(size=len(X))
    y = classes_of(score, n_classes)
    start = time.perf_counter()
    model = make_model(random_state=seed).fit(X, y)
    spent = time.perf_counter() - start
    pickle.loads(pickle.dumps(model)).predict_proba(X)
    return spent


def fit_many(kind, fits, first):
    """Seconds of a fit, and GB at the peak after the first fits and after all."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    times = [fit_one(kind, seed) for seed in range(first)]
    before = peak_memory()
    times += [fit_one(kind, seed) for seed in range(first, fits)]
    return {"seconds": statistics.median(times), "first": before, "all": peak_memory(), "fits": fits}


CALLS = ("latent", "latent grad", "proba", "proba grad")
GRADIENT_WAYS = {
    "two classes": (2, {"n_neighbors": 0}),
    "three classes": (3, {"n_neighbors": 0}),
    "16 neighbours": (2, {"n_neighbors": 16}),
}


def with_gradients(way, rows, repeats):
    """Least seconds of predictions without and with their gradients."""
    n_classes, settings = GRADIENT_WAYS[way]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6))
    score = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=len(X))
    y = classes_of(score, n_classes)
    warnings.simplefilter("ignore", ConvergenceWarning)
    model = GPClassifier(n_inducing=64, max_iter=10, random_state=0, **settings).fit(X, y)
    X_new = rng.normal(size=(rows, 6))
    calls = {
        f"{name}{' grad' if is_grad else ''}": partial(method, X_new, return_grad=is_grad)
        for name, method in (("latent", model.predict_latent), ("proba", model.predict_proba))
        for is_grad in (False, True)
    }
    return {name: min(times) for name, times in side_by_side(calls, repeats).items()}


FIRST, EVERY = 10, 5


def refit(model, X, y):
    return GPClassifier(n_neighbors=0, random_state=0).fit(X, y)


def given_kernel(model, X, y):
    return GPClassifier(model.kernel_, optimizer=None, n_neighbors=0, random_state=0).fit(X, y)


def updated(model, X, y):
    return model.partial_fit(X[-1:], y[-1:])


def updated_with_a_point(model, X, y):
    return model.partial_fit(X[-1:], y[-1:], n_new_inducing=1)


# What follows a fit, and after how many trials the next fit is.
TRIALS = {
    "a fit after each": (refit, 1),
    "every fifth, kernel kept between": (given_kernel, EVERY),
    "every fifth, partial_fit with a new point between": (updated_with_a_point, EVERY),
    "partial_fit": (updated, math.inf),
    "partial_fit with a new point": (updated_with_a_point, math.inf),
}


def trials(task, way, count, seeds):
    """Mean NLL over all trials, and seconds of the mean and the longest trial."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    (between, every), nll, times = TRIALS[way], [], []
    for seed in range(seeds):
        X = np.random.default_rng(seed).uniform(*TASKS[task].box, (FIRST + count + N_TEST, 2))
        y, test, model = TASKS[task].works(*X.T).astype(int), slice(-N_TEST, None), None
        for trial in range(count):
            rows, learn = slice(FIRST + trial), refit if model is None or trial % every == 0 else between
            start = time.process_time()
            model = learn(model, X[rows], y[rows])
            times.append(time.process_time() - start)
            nll.append(-np.mean(np.take_along_axis(model.predict_log_proba(X[test]), y[test, None], axis=1)))
    return {"trial_nll": float(np.mean(nll)), "seconds": float(np.mean(times)), "longest": float(np.max(times))}


def parts(data, quick):
    sizes, draws, fits, first = ((50,), 1, 20, 5) if quick else ((50, 200, 1000), 5, 1000, 100)
    found = [
        Part(f"{n} rows: {way}", partial(measure, n, way, draws), of=(METHODS[WAYS[way][0]].library,))
        for n in sizes for way in WAYS
    ]  # fmt: skip
    found += [Part(f"thousands: {kind}", partial(alone, fit_many, kind, fits, first)) for kind in KINDS]
    calls = ((10, 10),) if quick else ((1000, 200),)
    some = (6, 1) if quick else (100, 3)
    found += [Part(f"trials, {task}: {way}", partial(trials, task, way, *some)) for task in TASKS for way in TRIALS]
    return found + [
        Part(f"gradients: {way}, {rows} rows", partial(with_gradients, way, rows, repeats))
        for way in GRADIENT_WAYS for rows, repeats in calls
    ]  # fmt: skip


def pivoted(found, columns):
    """Rows of a table from numbers by row and column: (titles of the columns, what the cell of a column has)."""
    return [[one, *(cell(numbers[way]) if way in numbers else "" for way, cell in columns)]
            for one, numbers in found.items()]  # fmt: skip


def report(records):
    found = by_set(records)
    tables = []
    if single := {name: ways for name, ways in found.items() if name.endswith(" rows") and "xgpc" in ways}:
        columns = {f"{way}: ms": (way, lambda one: f"{1e3 * median_of(one['runs'], 'seconds'):.1f}") for way in WAYS}
        for way in ("defaults", "scikit-learn"):
            columns[f"{way}: µs a row"] = (way, lambda one: f"{1e6 * median_of(one['runs'], 'one_row'):.0f}")
            columns[f"{way}: NLL"] = (way, lambda one: number(median_of(one["runs"], "nll"), 4))
        tables.append(table(["a fit", *columns], pivoted(single, columns.values())))
    many = [
        [kind, str(numbers["fits"]), f"{1e3 * numbers['seconds']:.1f}",
         number(1e3 * numbers["first"], 1), number(1e3 * (numbers["all"] - numbers["first"]), 1)]
        for kind, numbers in found.get("thousands", {}).items()
    ]  # fmt: skip
    header = ["thousands of fits", "fits", "a fit, ms", "peak after the first, MB", "added by the others, MB"]
    tables.append(table(header, many))
    each = {}
    for task in TASKS:
        for way, numbers in found.get(f"trials, {task}", {}).items():
            each.setdefault(way, {})[task] = numbers
    if each:
        columns = {}
        for task in TASKS:
            columns[f"{task}: NLL"] = (task, lambda one: number(one["trial_nll"], 3))
            for title, key in (("a trial", "seconds"), ("longest", "longest")):
                columns[f"{task}: {title}, ms"] = (task, lambda one, key=key: f"{1e3 * one[key]:.1f}")
        tables.append(table(["trials", *columns], pivoted(each, columns.values())))
    slopes = [
        [way, *(f"{1e6 * numbers[call]:.0f}" for call in CALLS),
         *(f"{numbers[call + ' grad'] / numbers[call]:.1f}" for call in ("latent", "proba"))]
        for way, numbers in found.get("gradients", {}).items()
    ]  # fmt: skip
    if slopes:
        columns = ["latent moments, µs", "with gradients", "probabilities, µs", "with gradients", "times", "times"]
        tables.append(table(["gradients", *columns], slopes))
    return "\n\n".join(tables)
