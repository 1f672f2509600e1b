"""All sets at all defaults, next to LightGBM and CatBoost.

All defaults of xgpc (`n_jobs=2`); LightGBM and CatBoost at theirs, in two threads, each stopped at the number of trees
that is best on a tenth of the training rows. One split, a tenth of the rows for testing; features in units of the
training rows' deviations. Adult and splice are tables, whose categorical columns are levels for all three. "In time"
means that the last tenth of electricity's time is for testing (`query_split=TimeSeriesSplit(5)`), "kept apart" that no
test row is equal to one of the training rows (`groups`). A win is a mean negative log likelihood (NLL) of the test rows
that is lower by more than two standard errors of the paired difference, a loss one that is higher by as much, all else
is a tie; other training rows could change more. German is german-numer in another coding, and is left out; a8a is a
part of a9a, and adult is of the same people in other columns; waveform-raetsch has the rows of waveform, one class
against two.
"""

import time
from functools import partial

import numpy as np
from markdown_tables import number, set_table
from measure import scores, timed_fit
from methods import method
from problems import BINARY, Problem, Split, load
from records import LIBRARY

from . import THREADS, Option, Part
from .multi_class import SETS as SEVERAL
from .neighbours import APART, IN_TIME, KEPT_APART, OTHERS, Grouped, prepared
from .tables import CATEGORICAL, frame

DEPENDS, TIMED = LIBRARY, True
SETS = (*BINARY, *(name for name in OTHERS if name != "german"), *APART, *SEVERAL)
OPTIONS = {"split": Option(0, "which split"), "threads": THREADS}
QUICK = {"sets": ["breast-cancer", "wine"]}
TREES = ("lightgbm", "catboost")
METHODS = ("xgpc", *TREES)
TITLES = {"xgpc": "xgpc", "lightgbm": "LightGBM", "catboost": "CatBoost"}
# Of a difference, in standard errors, within which chance could turn it.
CHANCE = 2.0


def drawn(problem, seed):
    """A split, and what it asks of xgpc's estimator and of its ``fit``."""
    if problem.name not in CATEGORICAL:
        return prepared(problem, seed)
    order = np.random.default_rng(seed).permutation(len(problem.y))
    test, train = np.split(order, [len(order) // 10])
    table = frame(problem.name, problem.X)
    parts = [table.iloc[rows].reset_index(drop=True) for rows in (train, test)]
    return Split(parts[0], problem.y[train], parts[1], problem.y[test]), {}, {}


def result(model, fit, data):
    """Seconds and scores, and the log probability of each test row."""
    spent = timed_fit(fit, data.X, data.y)
    # A class of a handful of rows can be missing among the training rows.
    probabilities = np.zeros((len(data.y_test), 1 + max(np.max(data.y), np.max(data.y_test))))
    start = time.perf_counter()
    found = model.predict_proba(data.X_test)
    asked = time.perf_counter() - start
    probabilities[:, np.unique(data.y)] = found
    true = np.maximum(probabilities[np.arange(len(data.y_test)), data.y_test], 1e-15)
    return {"seconds": spent, "prediction_seconds": asked, **scores(probabilities, data.y_test)}, np.log(true)


def measure(problem, seed, threads):
    data, settings, options = drawn(problem, seed)
    model = method("xgpc").make(threads, **settings)
    ours, log_p = result(model, Grouped(model, options), data)
    ours.update(neighbours=model.n_neighbors_, m=model.inducing_points_.shape[-2])
    found = {"rows": len(data.y), "features": data.X.shape[1], "classes": len(model.classes_), "xgpc": ours}
    found["test_rows"] = len(data.y_test)
    for name in TREES:
        model = method(name).make(threads, seed)
        found[name], others = result(model, model, data)
        gap = others - log_p
        found[name].update(gap=float(np.mean(gap)), error_of_gap=float(np.std(gap, ddof=1) / np.sqrt(len(gap))))
    return found


def parts(options):
    # The first fits of a process pay for imports and threads.
    measure(load(None, "breast-cancer"), options.split, options.threads)
    for name in options.sets:
        problem = load(options.data, name.removesuffix(IN_TIME).removesuffix(KEPT_APART))
        problem = Problem(name, problem.X, problem.y)
        yield Part(name, partial(measure, problem, options.split, options.threads), name, problem.hash)


def verdict(numbers, name):
    """-1 if xgpc's NLL is lower by more than chance, 1 if it is higher, 0 for a tie."""
    gap, error = numbers[name]["gap"], numbers[name]["error_of_gap"]
    return 0 if abs(gap) <= CHANCE * error else int(np.sign(gap))


def counts(records, name):
    """Names of the sets that xgpc wins, loses and ties against another."""
    found = {-1: [], 1: [], 0: []}
    for key, record in records.items():
        found[verdict(record["numbers"], name)].append(key)
    return found[-1], found[1], found[0]


def cells(numbers):
    gaps = [f"{numbers[name]['gap']:+.4f} ± {numbers[name]['error_of_gap']:.4f}" for name in TREES]
    microseconds = [1e6 * numbers[name]["prediction_seconds"] / numbers["test_rows"] for name in METHODS]
    return [
        *(str(numbers[one]) for one in ("rows", "features", "classes")), str(numbers["xgpc"]["neighbours"]),
        *(number(numbers[name]["nll"], 4) for name in METHODS), *gaps,
        *(number(numbers[name]["error"], 4) for name in METHODS),
        *(f"{numbers[name]['seconds']:.1f} s" for name in METHODS), *(f"{one:.1f} µs" for one in microseconds),
    ]  # fmt: skip


def report(records):
    others = [f"{TITLES[name]}'s" for name in TREES]
    header = [
        "set", "training rows", "features", "classes", "neighbours", "NLL", *others, *(f"less {one}" for one in others),
        "error", *others, "fit", *others, "prediction of a row", *others,
    ]  # fmt: skip
    text = []
    for name in TREES:
        wins, losses, ties = counts(records, name)
        said = f"Next to {TITLES[name]}: {len(wins)} wins, {len(losses)} losses, {len(ties)} ties"
        text.append(said + (f"; losses: {', '.join(losses)}." if losses else "."))
    return set_table(header, records, SETS, cells) + "\n\n" + " ".join(text)
