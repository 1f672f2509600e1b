"""Choices of the local posterior.

What the defaults of fits with neighbours rest on: the NLL of rows that neither learning nor a later benchmark's test
has, an eighth of the training rows of split 0, 4000 at most, after fits to the others. All of them have neighbours,
whether these pay or not. "Without" is without. Each choice differs from the first, 24 neighbours of 32 inducing points,
by what its name says: kernels are to begin with, and learned; the factor of the variances is put to 1 after the fit;
the rounds of learning are those of `xgpc/learning/local.py`, with other rows, iterations or queries.
"""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
from markdown_tables import table
from measure import scores, timed_fit
from methods import method
from problems import load, split
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from . import THREADS, Option, Part

DEPENDS, TIMED, SETS = LIBRARY, False, ("electricity", "covtype", "magic", "higgs", "cod-rna", "banana", "ringnorm")
QUICK = {"sets": ["ringnorm"], "rows": 500}
OPTIONS = {"rows": Option(1_000_000, "to learn from, at most"), "threads": THREADS}
LATER_ROWS = 4000
ROUNDS, SHARE, STEP = (f"xgpc.learning.{name}" for name in ("local.ROUNDS", "queries.QUERY_SHARE", "local.MAX_STEP"))
# name -> (parameters of the classifier, constants of the library in place of its own)
CHOICES = {
    "24 neighbours, 32 points": ({}, {}),
    "without": ({"n_neighbors": 0}, {}),
    "Matern 1/2": ({"kernel": partial(Matern, nu=0.5)}, {}),
    "Matern 3/2": ({"kernel": partial(Matern, nu=1.5)}, {}),
    "RBF": ({"kernel": RBF}, {}),
    "16 neighbours": ({"n_neighbors": 16}, {}),
    "40 neighbours": ({"n_neighbors": 40}, {}),
    "128 points": ({"n_inducing": 128}, {}),
    "256 points": ({"n_inducing": 256}, {}),
    "a quarter of the rows are queries": ({}, {SHARE: 0.25}),
    "second round of 8000 rows": ({}, {ROUNDS: ((8000, 15), (8000, 12))}),
    "steps of 3 at most": ({}, {STEP: 3.0}),
}
NO_FACTOR = "variances without the factor"


def prepared(parameters, d):
    """Parameters of the classifier: a kernel to begin with is as wide as the default one."""
    found = {"n_neighbors": 24, "n_inducing": 32, **parameters}
    if "kernel" in found:
        found["kernel"] = ConstantKernel(2.0, (1e-2, 1e5)) * found["kernel"](np.full(d, np.sqrt(d)), (1e-2, 1e3))
    return found


def measure(problem, options):
    training = split(problem, 0)
    order = np.random.default_rng(1).permutation(len(training.X))
    later, rows = np.split(order, [min(LATER_ROWS, len(order) // 8)])
    X, y = training.X[rows[: options.rows]], training.y[rows[: options.rows]]
    found = {}
    for name, (parameters, constants) in CHOICES.items():
        model = method("xgpc").make(options.threads, **prepared(parameters, X.shape[1]))
        with ExitStack() as stack:
            for target, value in constants.items():
                stack.enter_context(patch(target, value))
            spent = timed_fit(model, X, y)
        found[name] = {"seconds": spent, **scores(model.predict_proba(training.X[later]), training.y[later])}
        if len(found) == 1 and model.posterior_ is not None:
            model.posterior_ = replace(model.posterior_, variance_scale=1.0)
            found[NO_FACTOR] = found[name] | scores(model.predict_proba(training.X[later]), training.y[later])
    return {"rows": len(X), "later": len(later), "choices": found}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options), name, problem.hash)


def report(records):
    names = [*CHOICES, NO_FACTOR]
    rows = [
        [name, *(
            f"{found[name]['nll']:.4f}, {found[name]['seconds']:.0f} s" if name in found else ""
            for found in (record["numbers"]["choices"] for record in records.values())
        )]
        for name in names
    ]  # fmt: skip
    sizes = [f"{name} ({record['numbers']['rows']})" for name, record in records.items()]
    return table(["", *sizes], rows) if records else ""
