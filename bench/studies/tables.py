"""Tables with levels and missing values at all defaults, next to boosted trees.

Data frames made of the sets' codes: levels as text in columns of pandas' categories, numbers as they are, and a share
of all cells, of training and test rows alike, put out at random. All defaults of xgpc, in one line for the fit and one
for the predictions; LightGBM at its defaults, and stopped at the number of trees that is best on a tenth of the
training rows. By default xgpc has a length scale for each level, of bounded length; next to it are a kernel with one
that all levels of a column share, and the columns that xgpc makes of the levels as plain features, whose length scales
may switch them off. Of adult the test rows are its own; of splice 2000 random rows are for training. Means over draws
of the splits and of the missing cells, and the difference from the better LightGBM with its standard error.
"""

from functools import partial

import numpy as np
import pandas as pd
from internals import default_kernel
from markdown_tables import number, set_table, tally
from measure import fit_and_score, mean_of, median_of
from methods import method
from problems import Split, load
from records import LIBRARY

from . import THREADS, Option, Part

DEPENDS, TIMED = LIBRARY, False
# Columns of levels, and how many rows are for training: the first ones, or None for random ones of a number.
CATEGORICAL = {"adult": (1, 3, 5, 6, 7, 8, 9, 13), "splice": tuple(range(60))}
TRAINING = {"adult": (32_561, True), "splice": (2000, False)}
SETS = tuple(CATEGORICAL)
OPTIONS = {"splits": Option(3, "draws of each set"), "missing": Option(0.05, "share of the cells"), "threads": THREADS}
QUICK = {"sets": ["splice"], "splits": 1}
METHODS = ("xgpc", "lightgbm", "stopped", "shared", "plain")


def frame(name, X):
    """Codes (n, d), NaN where one is missing, as a data frame."""
    table = pd.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])])
    for j in CATEGORICAL[name]:
        levels = [None if np.isnan(code) else f"level {code:g}" for code in X[:, j]]
        table[f"column {j}"] = pd.Series(levels, dtype="category")
    return table


def draw_of(problem, seed, missing):
    """A split with missing cells; the training rows are in random order, so that any first ones are a sample."""
    rng = np.random.default_rng(seed)
    size, are_first = TRAINING[problem.name]
    order = np.arange(len(problem.y)) if are_first else rng.permutation(len(problem.y))
    train, test = rng.permutation(order[:size]), order[size:]
    table = frame(problem.name, np.where(rng.random(problem.X.shape) < missing, np.nan, problem.X))
    parts = (table.iloc[rows].reset_index(drop=True) for rows in (train, test))
    return Split(next(parts), problem.y[train], next(parts), problem.y[test])


def shared_kernel(encoding, start):
    """The default kernel ``start``, not yet learned, with a length scale that all levels of a column share."""
    _, first = np.unique(encoding.groups.index, return_index=True)
    return default_kernel(start.k2.length_scale[first] / np.sqrt(len(first)))


def one_draw(problem, seed, missing, threads):
    data = draw_of(problem, seed, missing)
    model = method("xgpc").make(threads, seed)
    found = {"seed": seed, "xgpc": fit_and_score(model, data)}
    found["xgpc"].update(neighbours=model.n_neighbors_, m=model.inducing_points_.shape[-2])
    trees = method("lightgbm")
    # The adapter stops at the best number of trees; what it is made of does not.
    found["lightgbm"] = fit_and_score(trees.make(threads, seed, n_estimators=100).model, data)
    found["stopped"] = fit_and_score(trees.make(threads, seed), data)
    start = method("xgpc").make(threads, seed, optimizer=None, n_inducing=32).fit(data.X, data.y).kernel_
    kernel = shared_kernel(model.encoding_, start)
    found["shared"] = fit_and_score(method("xgpc").make(threads, seed, kernel=kernel), data)
    encode = model.encoding_.encode
    columns = Split(encode(data.X), data.y, encode(data.X_test), data.y_test)
    found["plain"] = fit_and_score(method("xgpc").make(threads, seed, n_neighbors=0), columns)
    return found


def measure(problem, splits, missing, threads):
    runs = [one_draw(problem, seed, missing, threads) for seed in range(splits)]
    return {"rows": len(problem.y), "missing": missing, "runs": runs}


def part_name(name, missing):
    return f"{name}, {100 * missing:g} % missing"


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        run = partial(measure, problem, options.splits, options.missing, options.threads)
        yield Part(part_name(name, options.missing), run, name, problem.hash)


def cells(numbers):
    runs = {each: [run[each] for run in numbers["runs"]] for each in METHODS}
    nll = {each: np.array([run["nll"] for run in runs[each]]) for each in METHODS}
    best = min(("lightgbm", "stopped"), key=lambda one: np.mean(nll[one]))
    difference = nll["xgpc"] - nll[best]
    error = np.std(difference, ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
    return [
        str(numbers["rows"]), *(number(np.mean(nll[each]), 4) for each in METHODS[:3]),
        f"{np.mean(difference):+.4f} ± {error:.4f}", *(number(np.mean(nll[each]), 4) for each in METHODS[3:]),
        *(number(mean_of(runs[each], "error"), 4) for each in METHODS[:3]),
        *(f"{median_of(runs[each], 'seconds'):.1f} s" for each in ("xgpc", "stopped")),
    ]  # fmt: skip


def report(records):
    header = [
        "set", "rows", "NLL", "LightGBM's", "stopped", "less the better one's", "levels share length scales",
        "plain features", "error", "LightGBM's", "stopped", "fit", "LightGBM's, stopped",
    ]  # fmt: skip

    def means(numbers):
        best = min(mean_of([run[one] for run in numbers["runs"]], "nll") for one in METHODS[1:3])
        return mean_of([run["xgpc"] for run in numbers["runs"]], "nll"), best

    names = [part_name(name, OPTIONS["missing"].default) for name in SETS]
    return set_table(header, records, names, cells) + "\n\n" + tally(records, means, "xgpc's NLL", "LightGBM's")
