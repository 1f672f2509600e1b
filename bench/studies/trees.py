"""All defaults, next to LightGBM.

A tenth of the rows is for testing. LightGBM is at its own defaults, but stops at the number of trees that is best on
a tenth of the training rows. Means over the splits; medians of the inducing points m and the seconds; in parentheses
the seconds of all processors together.
"""

import time
from functools import partial

from markdown_tables import number, set_table, tally
from measure import fit_and_score, mean_of, median_of
from methods import method
from problems import BINARY, load, split
from records import LIBRARY

from . import THREADS, Option, Part

DEPENDS, TIMED, SETS = LIBRARY, True, BINARY
OPTIONS = {"splits": Option(1, "random splits of each set"), "threads": THREADS}
QUICK = {"sets": ["breast-cancer"]}


def gaussian_process(data, threads):
    model = method("xgpc").make(threads)
    processor = time.process_time()
    found = fit_and_score(model, data)
    processor = time.process_time() - processor
    return {**found, "processor_seconds": processor, "m": len(model.inducing_points_), "elbo": model.elbo_}


def trees(data, threads):
    model = method("lightgbm").make(threads)
    return {**fit_and_score(model, data), "trees": model.trees}


def measure(problem, splits, threads):
    runs = []
    for seed in range(splits):
        data = split(problem, seed)
        runs.append({"split": seed, "xgpc": gaussian_process(data, threads), "lightgbm": trees(data, threads)})
    return {"rows": len(data.y), "runs": runs}


def parts(options):
    # The first fits of a process pay for imports and threads.
    measure(load(None, "breast-cancer"), 1, options.threads)
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options.splits, options.threads), name, problem.hash)


def cells(numbers):
    ours, theirs = ([run[name] for run in numbers["runs"]] for name in ("xgpc", "lightgbm"))
    spent, processor = median_of(ours, "seconds"), median_of(ours, "processor_seconds")
    return [
        str(numbers["rows"]), f"{median_of(ours, 'm'):.0f}",
        *(number(mean_of(runs, key)) for key in ("nll", "error") for runs in (ours, theirs)),
        f"{spent:.1f} s ({processor:.0f} s)", f"{median_of(theirs, 'seconds'):.1f} s",
    ]  # fmt: skip


def means(key, numbers):
    return tuple(mean_of([run[name] for run in numbers["runs"]], key) for name in ("xgpc", "lightgbm"))


def report(records):
    header = ["set", "rows", "m", "NLL", "LightGBM's", "error", "LightGBM's", "fit (processors)", "LightGBM's"]
    tallies = (tally(records, partial(means, key), f"xgpc's {text}", "LightGBM's")
               for key, text in (("nll", "NLL"), ("error", "error")))  # fmt: skip
    return set_table(header, records, SETS, cells) + "\n\n" + " ".join(tallies)
