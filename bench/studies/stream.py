"""Streams: what sites that stay as they were cost.

`partial_fit`, batch after batch, next to one fit of all rows with the same kernel and 100 inducing points, which were
learned from the first 5000 rows; with several classes they share these. A tenth of the rows is for testing, of 100 000
at most. Cost: nats by which the bound of all rows, sum E_q[log p(y | f)] - KL(q || p), at the stream's posterior is
below that at the fit's. NLL: how much higher it is on the test rows. Rows are in random order, in three: means, and in
brackets the least and the largest; electricity also in order of time, which is one of its features. "5000 rows" stops
after these: what there is to gain from the others. Drift: NLL of each batch of 1000 rows before it is learned, in order
of time, by the forgetting factor, with the inducing points of the first rows or with 10 more from each batch. The
frequencies of the classes alone have .682 there: a kernel from the first rows, of which time is a feature, is no good
for later ones.
"""

from functools import partial

import numpy as np
from markdown_tables import set_table, table
from measure import scores, timed_fit
from methods import method
from problems import load, standardised
from records import LIBRARY

from . import Option, Part

DEPENDS, TIMED = LIBRARY, False
SETS = ("electricity", "magic", "covtype", "statlog-landsat")
IN_TIME, TIME = "electricity", "electricity, in order of time"
OPTIONS = {
    "batches": Option((100, 1000, 5000), "rows of a batch"),
    "orders": Option(3, "random orders"),
    "max_rows": Option(100_000, "rows of a set"),
}
QUICK = {"sets": ["breast-cancer"], "batches": [50, 200], "orders": 2}
N_INDUCING, FIRST_ROWS = 100, 5000
# Costs are to be of sites that stay, not of iterations that end early.
TOL, MAX_ITER = 1e-6, 500
FACTORS, NEW_POINTS, DRIFT_ROWS = (1.0, 0.95, 0.8, 0.5), (0, 10), 1000


def learned(data):
    """A model of the first rows, whose kernel and inducing points all others have."""
    settings = {"n_inducing": N_INDUCING, "n_neighbors": 0, "share": "kernel", "max_iter": 50}
    model = method("xgpc").make(threads=1, **settings)
    timed_fit(model, data.X[:FIRST_ROWS], data.y[:FIRST_ROWS])
    return model


def unlearned(first):
    """An estimator with the kernel and inducing points of a model, which stay."""
    settings = {"inducing_points": first.inducing_points_, "optimizer": None, "tol": TOL, "max_iter": MAX_ITER}
    return method("xgpc").make(threads=1, kernel=first.kernel_, n_neighbors=0, **settings)


def streamed(first, data, order, rows):
    model, classes = unlearned(first), np.unique(data.y)
    for start in range(0, len(order), rows):
        batch = order[start : start + rows]
        model.partial_fit(data.X[batch], data.y[batch], classes=classes)
    return model


def found_of(model, data):
    return {
        "bound": model.elbo(data.X, data.y),
        "nll": scores(model.predict_proba(data.X_test), data.y_test)["nll"],
    }


def nll_ahead(first, data, factor, new_points):
    """NLL of rows before they are learned."""
    model, classes, total = unlearned(first), np.unique(data.y), 0.0
    for start in range(0, len(data.y), DRIFT_ROWS):
        X, y = data.X[start : start + DRIFT_ROWS], data.y[start : start + DRIFT_ROWS]
        if start:
            total += scores(model.predict_proba(X), y)["nll"] * len(y)
        model.partial_fit(X, y, classes=classes, forgetting_factor=factor, n_new_inducing=new_points)
    return total / (len(data.y) - DRIFT_ROWS)


def drift(first, data):
    return [
        {"new_points": points, "nll": {str(factor): nll_ahead(first, data, factor, points) for factor in FACTORS}}
        for points in NEW_POINTS
    ]


def measure(problem, options, in_time):
    rng = np.random.default_rng(0)
    size = min(len(problem.y), options.max_rows)
    chosen = rng.permutation(len(problem.y))[:size]
    test, train = np.split(chosen, [size // 10])
    data = standardised(problem.X, problem.y, np.sort(train) if in_time else train, test)
    first = learned(data)
    whole = unlearned(first)
    timed_fit(whole, data.X, data.y)
    few = unlearned(first)
    timed_fit(few, data.X[:FIRST_ROWS], data.y[:FIRST_ROWS])
    orders = [np.arange(len(data.y))]
    orders += [rng.permutation(len(data.y)) for _ in range(0 if in_time else options.orders - 1)]
    streams = {
        str(rows): [found_of(streamed(first, data, order, rows), data) for order in orders] for rows in options.batches
    }
    numbers = {"rows": len(data.y), "whole": found_of(whole, data), "first": found_of(few, data), "streams": streams}
    return numbers | ({"drift": drift(first, data)} if in_time else {})


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options, in_time=False), name, problem.hash)
        if name == IN_TIME:
            yield Part(TIME, partial(measure, problem, options, in_time=True), name, problem.hash)


def cell(numbers, runs):
    whole = numbers["whole"]
    costs = [whole["bound"] - run["bound"] for run in runs]
    nll = np.mean([run["nll"] for run in runs]) - whole["nll"]
    spread = f" ({min(costs):.1f} to {max(costs):.1f})" if len(runs) > 1 else ""
    return f"{np.mean(costs):.1f}{spread}, NLL {nll:+.4f}"


def said_of_orders(records):
    """Where the order of the rows changes the cost by more than the cost itself."""
    cells = {(name, rows): [record["numbers"]["whole"]["bound"] - run["bound"] for run in runs]
             for name, record in records.items() for rows, runs in record["numbers"]["streams"].items()
             if len(runs) > 1}  # fmt: skip
    more = [f"{name} by {rows}" for (name, rows), costs in cells.items() if np.ptp(costs) > abs(np.mean(costs))]
    text = f"From order to order costs differ by less than their mean in {len(cells) - len(more)} of {len(cells)} cases"
    return f"{text}, by more in {', '.join(more)}." if more else f"{text}."


def report(records):
    sizes = sorted({rows for record in records.values() for rows in record["numbers"]["streams"]}, key=int)

    def cells(numbers):
        whole, streams = numbers["whole"], numbers["streams"]
        costs = [cell(numbers, streams[rows]) if rows in streams else "" for rows in sizes]
        return [str(numbers["rows"]), f"{whole['bound']:.1f}, NLL {whole['nll']:.4f}", *costs,
                cell(numbers, [numbers["first"]])]  # fmt: skip

    header = ["set", "rows", "all rows: bound", *(f"cost, batches of {rows}" for rows in sizes), "5000 rows: cost"]
    text = f"{set_table(header, records, SETS, cells)}\n\n{said_of_orders(records)}"
    found = [row for record in records.values() for row in record["numbers"].get("drift", ())]
    if found:
        rows = [
            [f"{row['new_points']} new points a batch", *(f"{nll:.4f}" for nll in row["nll"].values())] for row in found
        ]
        text += "\n\n" + table([f"{TIME}: NLL ahead", *(f"factor {one}" for one in found[0]["nll"])], rows)
    return text
