"""Test likelihood and error with 100 inducing points at the defaults, on five splits of every set.

    python bench/splits.py --data FOLDER [--sets magic banana] [--splits 5]

FOLDER holds a file NAME.npz with arrays X and y for every set but ringnorm, which is generated. A tenth of the rows is
for testing. The reference is the better of GPyTorch 1.15 (SVGP, Adam) and GPflow 2.11 (natural gradients and Adam) with
100 inducing points after 20 to 100 seconds on 2 cores, on split 0; it was measured elsewhere.
"""

import argparse
import statistics
from pathlib import Path

from common import Others, load, scores, split, timed_fit, write
from learning import ringnorm

from xgpc import GPClassifier

N_INDUCING = 100
REFERENCE = {
    "electricity": 0.411, "magic": 0.292, "banana": 0.214, "cod-rna": 0.096, "a9a": 0.329, "covtype": 0.369,
    "higgs": 0.551, "diabetes-pima": 0.482, "german-numer": 0.340, "heart": 0.334, "ringnorm": 0.048,
}  # fmt: skip


def measure(X, y, seed, threads):
    data = split(X, y, seed)
    model = GPClassifier(n_inducing=N_INDUCING, n_jobs=threads, random_state=0)
    seconds = timed_fit(model, data.X, data.y)
    return {"split": seed, "seconds": seconds, **scores(model.predict_proba(data.X_test), data.y_test)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(REFERENCE))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.sets:
        X, y = ringnorm() if name == "ringnorm" else load(arguments.data, name)
        with Others() as others:
            runs = [measure(X, y, seed, arguments.threads) for seed in range(arguments.splits)]
        medians = {key: statistics.median(run[key] for run in runs) for key in ("nll", "error", "seconds")}
        rows.append({"data": name, "rows": len(y), "reference_nll": REFERENCE[name], "medians": medians,
                     "cores_taken_by_others": others.cores, "runs": runs})  # fmt: skip
        print(f"{name:14s} NLL {medians['nll']:.4f} (split 0 {runs[0]['nll']:.4f}, reference {REFERENCE[name]:.3f}), "
              f"error {medians['error']:.4f}, {medians['seconds']:.2f} s", flush=True)  # fmt: skip
    write("splits", {"rows": rows})


if __name__ == "__main__":
    main()
