"""Mini-batches next to the full batch.

How close they come to its bound from cold, with no setting by hand. Goal: with m = 100 inducing points, mini-batches
of 100 rows and the default (adaptive) rate, the bound within 0.1 % of the full batch's after two epochs, for both
bounds. The kernel stays; the largest gap of all seeds.
"""

from functools import partial

from markdown_tables import number, table
from measure import median_of, timed_fit
from methods import method
from problems import load
from records import LIBRARY

from . import Option, Part

DEPENDS, TIMED, SETS = LIBRARY, False, ("electricity", "cod-rna")
OPTIONS = {"seeds": Option(3, "fits of each kind")}
QUICK = {"sets": ["ringnorm"], "seeds": 1}
BOUNDS, EPOCHS = ("exact", "polya-gamma"), (1, 2, 5)


def fit(problem, **settings):
    model = method("xgpc").make(threads=-1, n_inducing=100, optimizer=None, **settings)
    seconds = timed_fit(model, problem.X, problem.y)
    return model.elbo_, seconds


def measure(problem, seeds):
    rows = []
    for bound in BOUNDS:
        for seed in range(seeds):
            settings = {"bound": bound, "seed": seed}
            best, full_seconds = fit(problem, tol=1e-6, **settings)
            for epochs in EPOCHS:
                elbo, seconds = fit(problem, batch_size=100, max_iter=epochs, **settings)
                gap = 100 * (best - elbo) / abs(best)
                rows.append(
                    {"bound": bound, "seed": seed, "epochs": epochs, "full_batch_bound": best, "bound_reached": elbo,
                     "gap_percent": gap, "seconds": seconds, "full_seconds": full_seconds}
                )  # fmt: skip
    return {"rows": rows}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options.seeds), name, problem.hash)


def report(records):
    rows = []
    for name, record in records.items():
        for bound in BOUNDS:
            runs = [row for row in record["numbers"]["rows"] if row["bound"] == bound]
            gaps = (max(row["gap_percent"] for row in runs if row["epochs"] == epochs) for epochs in EPOCHS)
            two = [row for row in runs if row["epochs"] == 2]
            rows.append([name, bound, *(f"{gap:.3f} %" for gap in gaps), f"{number(median_of(two, 'seconds'), 2)} s",
                         f"{number(median_of(runs, 'full_seconds'), 2)} s"])  # fmt: skip
    epochs = (f"gap after {epochs} {'epoch' if epochs == 1 else 'epochs'}" for epochs in EPOCHS)
    return table(["set", "bound", *epochs, "two epochs", "full batch"], rows)
