"""Neighbours, next to those of GPBoost.

Its Gaussian process conditions each latent value on those of 20 neighbours (Vecchia's approximation), with a Matern
kernel of smoothness 3/2 and a length scale for each feature, and a Laplace approximation. xgpc at its defaults, which
are without neighbours on fewer than 2000 rows, and with 24. On small sets only: on 4770 rows of banana GPBoost takes a
minute. A tenth of the rows is for testing; means over the splits, and medians of seconds.
"""

from functools import partial

from markdown_tables import number, set_table
from measure import fit_and_score, mean_of, median_of
from methods import method
from problems import load, split
from records import LIBRARY

from . import SPLITS, THREADS, Part

DEPENDS, TIMED = LIBRARY, True
SETS = ("heart", "diabetes-pima", "german-numer", "banana")
OPTIONS = {"splits": SPLITS, "threads": THREADS}
QUICK = {"sets": ["breast-cancer"], "splits": 1}
METHODS = {"xgpc": ("xgpc", {}), "24 neighbours": ("xgpc", {"n_neighbors": 24}), "GPBoost": ("gpboost", {})}


def measure(problem, options):
    runs = []
    for seed in range(options.splits):
        data = split(problem, seed)
        runs.append(
            {
                name: fit_and_score(method(library).make(options.threads, seed=0, **settings), data)
                for name, (library, settings) in METHODS.items()
            }
        )
    return {"rows": len(problem.y), "runs": runs}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options), name, problem.hash)


def cells(numbers):
    columns = [[run[name] for run in numbers["runs"]] for name in METHODS]
    nlls = (f"{mean_of(runs, 'nll'):.4f}" for runs in columns)
    return [str(numbers["rows"]), *nlls, *(f"{number(median_of(runs, 'seconds'))} s" for runs in columns)]


def report(records):
    header = ["set", "rows", *(f"NLL of {name}" for name in METHODS), *(f"fit of {name}" for name in METHODS)]
    return set_table(header, records, SETS, cells)
