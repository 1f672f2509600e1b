"""Streams that begin badly: a kernel learned again from a reservoir.

Kernel and 100 inducing points are learned from the first 300 rows alone, then batches of 1000 come to `partial_fit`.
NLL of each batch before it is learned, and of the test rows, a tenth, at the end. "First kernel": it stays.
"Reservoir": after 5, 15 and 45 batches a new model learns kernel, inducing points and posterior from
at most 5000 rows, drawn from all before with weights that stand for these, and goes on from there. "Carried over":
kernel and inducing points are those of that model, and the posterior is the stream's so far: what the rows told of f at
the old points is taken to have been told of the mean of f there, given the new points under the new kernel. Rows are in
random order, means of the orders; electricity also in order of time, which is one of its features: later rows are then
in places where there were none, and test rows are of all times. "1000 rows first": the first batch has so many, and the
kernel is learned again after 4, 12 and 20 batches.
"""

import warnings
from functools import partial

import numpy as np
from internals import carried_over
from markdown_tables import table
from measure import scores
from methods import method
from problems import load, standardised
from records import LIBRARY
from sklearn.exceptions import ConvergenceWarning

from . import Option, Part

DEPENDS, TIMED = LIBRARY, False
SETS = ("electricity", "magic", "covtype", "statlog-landsat")
IN_TIME, TIME = "electricity", "electricity, in order of time"
OTHER_TIMES = f"{TIME}, 1000 rows first"
OPTIONS = {"orders": Option(3, "random orders"), "max_rows": Option(30_000, "rows of a set")}
QUICK = {"sets": ["breast-cancer"], "orders": 1}
N_INDUCING, BATCH_ROWS, RESERVOIR = 100, 1000, 5000
# Rows of the first batch, and batches after which the kernel is learned again.
BADLY, LATER = (300, (5, 15, 45)), (1000, (4, 12, 20))
WAYS = FIRST, RELEARNED, CARRIED = "first kernel", "reservoir", "carried over"
HEADER = ["set: NLL ahead, and at the end", "rows", *WAYS]


def quietly(function, *given, **named):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return function(*given, **named)


def stream(data, way, schedule):
    """NLL of rows before they are learned, and of the test rows at the end."""
    settings = {"threads": 1, "n_inducing": N_INDUCING, "n_neighbors": 0, "share": "kernel", "max_iter": 50}
    fresh, classes = partial(method("xgpc").make, **settings), np.unique(data.y)
    model, keys, total = fresh(), np.random.default_rng(0).random(len(data.y)), 0.0
    first_rows, after = schedule
    starts = [0, *range(first_rows, len(data.y), BATCH_ROWS), len(data.y)]
    for number, rows in enumerate(map(slice, starts, starts[1:])):
        X, y = data.X[rows], data.y[rows]
        if number:
            total += scores(model.predict_proba(X), y)["nll"] * len(y)
        quietly(model.partial_fit, X, y, classes=classes)
        if way != FIRST and number in after:
            # Those of the least keys, in their order: each of the rows so far is among them as probably as any other.
            kept = np.sort(np.argsort(keys[: rows.stop])[:RESERVOIR])
            weight = rows.stop / len(kept)
            before, model = model.posterior_, quietly(fresh().partial_fit, data.X[kept], data.y[kept], classes, weight)
            if way == CARRIED:
                model.posterior_ = carried_over(before, model.posterior_.prior)
    end = scores(model.predict_proba(data.X_test), data.y_test)["nll"]
    return {"ahead": total / max(1, len(data.y) - first_rows), "end": end}


def measure(problem, options, in_time, schedule=BADLY):
    runs = {way: [] for way in WAYS}
    for seed in range(1 if in_time else options.orders):
        chosen = np.random.default_rng(seed).permutation(len(problem.y))[: options.max_rows]
        test, train = np.split(chosen, [len(chosen) // 10])
        data = standardised(problem.X, problem.y, np.sort(train) if in_time else train, test)
        for way in WAYS:
            runs[way].append(stream(data, way, schedule))
    return {"rows": len(data.y), "runs": runs}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options, in_time=False), name, problem.hash)
        if name == IN_TIME:
            in_time = partial(measure, problem, options, in_time=True)
            yield Part(TIME, in_time, name, problem.hash)
            yield Part(OTHER_TIMES, partial(in_time, schedule=LATER), name, problem.hash)


def means(runs):
    return [float(np.mean([run[when] for run in runs])) for when in ("ahead", "end")]


def report(records):
    rows, pairs = [], []
    for name, record in records.items():
        runs = record["numbers"]["runs"]
        found = {way: means(runs[way]) for way in WAYS}
        rows.append(
            [name, str(record["numbers"]["rows"]), *(", ".join(f"{one:.4f}" for one in found[way]) for way in WAYS)]
        )
        pairs += zip(*found.values(), strict=True)
    least = {way: sum(pair[place] == min(pair) for pair in pairs) for place, way in enumerate(WAYS)}
    said = "; ".join(f"{way} {count}" for way, count in least.items())
    return f"{table(HEADER, rows)}\n\nLowest NLL, of {len(pairs)}: {said}."
