"""Test likelihood and seconds at the defaults, side by side with LightGBM at its own.

    python bench/trees.py --data FOLDER [--sets magic banana] [--splits 1]

FOLDER holds a file NAME.npz with arrays X and y for every set. A tenth of the rows is for testing; LightGBM stops at
the number of trees that is best on another tenth, as without it its probabilities would be overconfident.
"""

import argparse
import statistics
import time
from pathlib import Path

from common import Others, hold_out, load, require, scores, split, timed_fit, write

from xgpc import GPClassifier

SETS = ("magic", "higgs", "banana", "a9a", "diabetes-pima", "german-numer", "electricity", "cod-rna")
# Out of reach, so that early stopping decides: electricity takes 1600 trees (NLL .160, after 1000 of them .168).
MOST_TREES = 10_000
PATIENCE = 50
COLUMNS = ("m", "gp_nll", "trees_nll", "gp_error", "trees_error", "gp_seconds", "trees_seconds")


def gaussian_process(data, threads):
    model = GPClassifier(n_jobs=threads, random_state=0)
    processor = time.process_time()
    seconds = timed_fit(model, data.X, data.y)
    processor = time.process_time() - processor
    reached = scores(model.predict_proba(data.X_test), data.y_test)
    size = {"m": len(model.inducing_points_), "elbo": model.elbo_}
    return {"seconds": seconds, "processor_seconds": processor, **reached, **size}


def trees(data, threads):
    lightgbm = require("lightgbm", "lightgbm")
    part = hold_out(data)
    model = lightgbm.LGBMClassifier(n_estimators=MOST_TREES, n_jobs=threads, verbose=-1)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    seconds = timed_fit(model, part.X, part.y, eval_X=part.X_test, eval_y=part.y_test, callbacks=[stop])
    reached = scores(model.predict_proba(data.X_test), data.y_test)
    return {"seconds": seconds, **reached, "trees": model.best_iteration_}


def measure(folder, name, seed, threads):
    data = split(*load(folder, name), seed)
    with Others() as others:
        found = {"gp": gaussian_process(data, threads), "trees": trees(data, threads)}
    return {"data": name, "seed": seed, "rows": len(data.y), "cores_taken_by_others": others.cores, **found}


def row(name, runs):
    """Means over the splits; medians of m and seconds."""
    values = {"data": name, "rows": runs[0]["rows"], "m": statistics.median(run["gp"]["m"] for run in runs)}
    values["gp_processor_seconds"] = statistics.median(run["gp"]["processor_seconds"] for run in runs)
    for method in ("gp", "trees"):
        for key, average in (("nll", statistics.mean), ("error", statistics.mean), ("seconds", statistics.median)):
            values[f"{method}_{key}"] = average(run[method][key] for run in runs)
    return values


def line(values):
    numbers = (f"{values[key]:15.0f}" if key == "m" else f"{values[key]:15.4g}" for key in COLUMNS)
    return f"{values['data']:14s}" + "".join(numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    # The first fits of a process pay for imports and threads.
    measure(arguments.data, arguments.sets[0], 0, arguments.threads)
    print(" " * 14 + "".join(f"{column:>15s}" for column in COLUMNS))
    runs, rows = [], []
    for name in arguments.sets:
        mine = [measure(arguments.data, name, seed, arguments.threads) for seed in range(arguments.splits)]
        runs += mine
        rows.append(row(name, mine))
        print(line(rows[-1]), flush=True)
    wins = sum(values["gp_nll"] <= values["trees_nll"] for values in rows)
    print(f"GPClassifier's NLL is the lower one on {wins} of {len(rows)} sets")
    write("trees", {"sets": rows, "runs": runs})


if __name__ == "__main__":
    main()
