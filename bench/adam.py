"""Bounds that Adam ends with, next to "profile": the same likelihood, bound, inducing points and start, all rows.

    python bench/adam.py --data FOLDER [--sets diabetes-pima german-numer svmguide1]

FOLDER holds a file NAME.npz with arrays X and y for every set; nine tenths of the rows of split 0 are used. Goal:
within two nats of profile's bound, or converged_ is False.
"""

import argparse
from pathlib import Path

from common import load, split, timed_fit, write

from xgpc import GPClassifier

SETS = ("diabetes-pima", "german-numer", "svmguide1")
BOUNDS = (("logit", "exact"), ("logit", "polya-gamma"), ("probit", "exact"), ("svm", "augmented"))
N_INDUCING, BATCH_ROWS, MOST_NATS = 100, 100, 2.0
WAYS = {
    "profile": {"optimizer": "profile", "subset_sizes": None},
    "full batch": {"optimizer": "adam"},
    "mini-batches": {"optimizer": "adam", "batch_size": BATCH_ROWS},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.sets:
        data = split(*load(arguments.data, name), 0)
        for likelihood, bound in BOUNDS:
            row = {"data": name, "likelihood": likelihood, "bound": bound, "n": len(data.y)}
            for way, params in WAYS.items():
                params = {"n_inducing": N_INDUCING, "random_state": 0, **params}
                model = GPClassifier(likelihood=likelihood, bound=bound, **params)
                seconds = timed_fit(model, data.X, data.y)
                row[way] = {"elbo": model.elbo_, "converged": model.converged_, "iterations": model.n_iter_,
                            "seconds": seconds}  # fmt: skip
            rows.append(row)
            print(f"{name:14s} {likelihood:6s} {bound:12s}", *(f"{way} {row[way]['elbo']:.2f} "
                  f"({row[way]['seconds']:.1f} s{'' if row[way]['converged'] else ', not converged'})"
                  for way in WAYS), sep="  ", flush=True)  # fmt: skip
    short = [row["profile"]["elbo"] - row[way]["elbo"] for row in rows for way in WAYS if row[way]["converged"]]
    print(f"converged ends below profile's bound by at most {max(short):.2f} nats (goal: {MOST_NATS:g})")
    write("adam", {"most_nats_below_profile": max(short), "rows": rows})


if __name__ == "__main__":
    main()
