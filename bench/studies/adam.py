"""Bounds that Adam ends with, next to "profile".

The same likelihood, bound, inducing points and start; nine tenths of the rows of split 0. Goal: within two nats of
profile's bound, or `converged_` is False. Nats above profile's bound; negative ones are below it.
"""

from functools import partial

from markdown_tables import table
from measure import timed_fit
from methods import method
from problems import load, split
from records import LIBRARY

from . import Part

DEPENDS, TIMED, SETS = LIBRARY, False, ("diabetes-pima", "german-numer", "svmguide1")
OPTIONS, QUICK = {}, {"sets": ["breast-cancer"]}
BOUNDS = (("logit", "exact"), ("logit", "polya-gamma"), ("probit", "exact"), ("svm", "augmented"))
N_INDUCING, BATCH_ROWS = 100, 100
WAYS = {
    "profile": {"optimizer": "profile", "subset_sizes": None},
    "full batch": {"optimizer": "adam"},
    "mini-batches": {"optimizer": "adam", "batch_size": BATCH_ROWS},
}


def measure(data):
    rows = []
    for likelihood, bound in BOUNDS:
        row = {"likelihood": likelihood, "bound": bound, "n": len(data.y)}
        for way, settings in WAYS.items():
            settings = {"likelihood": likelihood, "bound": bound, "n_inducing": N_INDUCING, **settings}
            model = method("xgpc").make(threads=None, **settings)
            seconds = timed_fit(model, data.X, data.y)
            row[way] = {"elbo": model.elbo_, "converged": model.converged_, "iterations": model.n_iter_,
                        "seconds": seconds}  # fmt: skip
        rows.append(row)
    return {"rows": rows}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, split(problem, 0)), name, problem.hash)


def way_cell(row, way):
    found = row[way]
    text = f"{found['elbo']:.2f}" if way == "profile" else f"{found['elbo'] - row['profile']['elbo']:+.2f}"
    return f"{text}, {found['seconds']:.1f} s" + ("" if found["converged"] else ", not converged")


def report(records):
    rows = [[name, row["likelihood"], row["bound"], *(way_cell(row, way) for way in WAYS)]
            for name, record in records.items() for row in record["numbers"]["rows"]]  # fmt: skip
    fits = [(row, way) for record in records.values() for row in record["numbers"]["rows"] for way in list(WAYS)[1:]]
    converged = [row[way]["elbo"] - row["profile"]["elbo"] for row, way in fits if row[way]["converged"]]
    said = f"{len(converged)} of {len(fits)} fits by Adam say that they converged"
    if converged:
        said += f", between {min(converged):+.2f} and {max(converged):+.2f} nats from profile's bound"
    return table(["set", "likelihood", "bound", *WAYS], rows) + f"\n\n{said}."
