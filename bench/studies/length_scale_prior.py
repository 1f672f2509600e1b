"""The prior of length scales, with and without.

All defaults, with the default kernel's log-normal prior of the ratios of its length scales ("auto": standard deviation
1) and without (None), on the same rows. Of the nine tenths of a set that other studies fit to, 400 random rows, or two
thirds where there are fewer, are fitted, and up to 2000 of the others are asked; the tenth that those studies test by
is not looked at. Means over random draws; the difference is negative where the prior is better, and has its standard
error over the draws, which share rows. The standard deviation was chosen by rows kept apart of heart, breast-cancer,
german and waveform; the other sets had no part in that.
"""

from functools import partial

import numpy as np
from markdown_tables import number, set_table, tally
from measure import fit_and_score, mean_of
from problems import load, split, standardised
from records import LIBRARY

from xgpc import GPClassifier

from . import Option, Part

DEPENDS, TIMED = LIBRARY, False
# Those that the prior was chosen by, and those that it was not.
CHOSEN_BY = ("heart", "breast-cancer", "german", "waveform")
SETS = (*CHOSEN_BY, "german-numer", "diabetes-pima", "ringnorm", "svmguide1", "statlog-landsat", "splice")
OPTIONS = {
    "rows": Option(400, "most rows to fit"),
    "draws": Option(10, "draws of the rows of each set"),
    "asked": Option(2000, "most rows that are asked"),
}
QUICK = {"sets": ["breast-cancer"], "draws": 1, "rows": 100}
METHODS = {"with": "auto", "without": None}


def one_draw(problem, seed, rows, asked):
    """Rows of the training part alone: some to fit, others to ask."""
    whole = split(problem, 0)
    order = np.random.default_rng(seed).permutation(len(whole.y))
    size = min(rows, 2 * len(order) // 3)
    data = standardised(whole.X, whole.y, order[:size], order[size : size + asked])
    found = {"seed": seed, "fitted": size, "asked": len(data.y_test)}
    for name, prior in METHODS.items():
        found[name] = fit_and_score(GPClassifier(length_scale_prior=prior, random_state=seed), data)
    return found


def measure(problem, draws, rows, asked):
    return {"features": problem.X.shape[1], "runs": [one_draw(problem, seed, rows, asked) for seed in range(draws)]}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        run = partial(measure, problem, options.draws, options.rows, options.asked)
        yield Part(name, run, name, problem.hash)


def cells(numbers):
    runs = {name: [run[name] for run in numbers["runs"]] for name in METHODS}
    nll = {name: np.array([run["nll"] for run in runs[name]]) for name in METHODS}
    difference = nll["with"] - nll["without"]
    error = np.std(difference, ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
    return [
        str(numbers["features"]), str(numbers["runs"][0]["fitted"]),
        *(number(np.mean(nll[name]), 4) for name in METHODS), f"{np.mean(difference):+.4f} ± {error:.4f}",
        *(number(mean_of(runs[name], "error"), 4) for name in METHODS),
    ]  # fmt: skip


def report(records):
    header = ["set", "features", "rows", "NLL with", "without", "difference", "error with", "without"]

    def means(numbers):
        return tuple(mean_of([run[name] for run in numbers["runs"]], "nll") for name in METHODS)

    held = {name: record for name, record in records.items() if name not in CHOSEN_BY}
    words = "The prior's NLL, of the sets that it was not chosen by,"
    return set_table(header, records, SETS, cells) + "\n\n" + tally(held, means, words, "that without")
