"""Several classes at all defaults, next to boosted trees and a logistic regression.

All defaults of xgpc; LightGBM, which stops at the number of trees that is best on a tenth of the training rows;
scikit-learn's logistic regression at its defaults. A tenth of the rows is for testing, features are in units of the
training rows' deviations. Means over the splits, and differences with their standard errors. The published figures are
those of GPCsm, as in the study multi_class: other splits of the same sets, and means of ten.
"""

from collections import Counter
from functools import partial

import numpy as np
from markdown_tables import number, set_table, tally
from measure import fit_and_score, mean_of, median_of
from methods import method
from problems import load, split
from records import LIBRARY
from sklearn.linear_model import LogisticRegression

from . import THREADS, Option, Part
from .multi_class import SETS as PUBLISHED

DEPENDS, TIMED, SETS = LIBRARY, True, tuple(PUBLISHED)
OPTIONS = {"splits": Option(5, "splits of each set"), "threads": THREADS}
QUICK = {"sets": ["wine"], "splits": 2}
METHODS = ("xgpc", "lightgbm", "logistic")


def one_split(problem, seed, threads):
    data = split(problem, seed)
    model = method("xgpc").make(threads)
    found = {"split": seed, "xgpc": fit_and_score(model, data)}
    found["xgpc"].update(neighbours=model.n_neighbors_, m=model.inducing_points_.shape[-2], share=model.share_)
    found["lightgbm"] = fit_and_score(method("lightgbm").make(threads), data)
    found["logistic"] = fit_and_score(LogisticRegression(max_iter=1000), data)
    return found


def measure(problem, splits, threads):
    published = PUBLISHED[problem.name].nll if problem.name in PUBLISHED else None
    runs = [one_split(problem, seed, threads) for seed in range(splits)]
    return {"rows": len(problem.y), "published": published, "runs": runs}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options.splits, options.threads), name, problem.hash)


def chosen(runs):
    """What the fits came to, and how often."""
    words = [f"{run['neighbours']} neighbours" if run["neighbours"] else
             {"kernel": "one kernel", "none": "a kernel each"}[run["share"]] for run in runs]  # fmt: skip
    return ", ".join(f"{word} ({count})" for word, count in Counter(words).most_common())


def cells(numbers):
    runs = {each: [run[each] for run in numbers["runs"]] for each in METHODS}
    nll = {each: np.array([run["nll"] for run in runs[each]]) for each in METHODS}
    difference = nll["xgpc"] - nll["lightgbm"]
    # Of a single split there is none.
    error = f" ± {np.std(difference, ddof=1) / np.sqrt(len(difference)):.4f}" if len(difference) > 1 else ""
    return [
        str(numbers["rows"]), chosen(runs["xgpc"]), *(number(np.mean(nll[each]), 4) for each in METHODS),
        number(numbers["published"], 4), f"{np.mean(difference):+.4f}{error}",
        *(number(mean_of(runs[each], "error"), 4) for each in METHODS),
        *(f"{median_of(runs[each], 'seconds'):.1f} s" for each in METHODS[:2]),
    ]  # fmt: skip


def report(records):
    header = [
        "set", "rows", "what was chosen", "NLL", "LightGBM's", "logistic regression's", "GPCsm's, published",
        "less LightGBM's", "error", "LightGBM's", "logistic regression's", "fit", "LightGBM's",
    ]  # fmt: skip

    def means(numbers):
        return tuple(mean_of([run[one] for run in numbers["runs"]], "nll") for one in METHODS[:2])

    def beside_published(numbers):
        return mean_of([run["xgpc"] for run in numbers["runs"]], "nll"), numbers["published"]

    known = {name: record for name, record in records.items() if record["numbers"]["published"] is not None}
    tallies = tally(records, means, "xgpc's NLL", "LightGBM's"), tally(known, beside_published, "It", "GPCsm's")
    return set_table(header, records, SETS, cells) + "\n\n" + " ".join(tallies)
