"""Held-out NLL with wrong cells, less that of the clean rows: -9999 in 1 % of the cells, or 1e6 in .3 % of them.

    python tools/contaminated.py --data FOLDER [--sets NAME ...] [--draws 4] [--first 4] [--rows 3000]

Cells of training and test rows are wrong at random, in each column as many. Draws 0 to 3 chose the constants of
``xgpc.data.far_values``. Prints for each set and kind the clean NLL, and the mean difference with its standard error.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from xgpc import GPClassifier

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from problems import load

SETS = (
    "electricity", "waveform", "waveform-raetsch", "cod-rna", "magic", "svmguide1", "banana", "diabetes-pima", "heart",
)  # fmt: skip
KINDS = {"-9999 in 1 %": (-9999.0, 0.01), "1e6 in .3 %": (1e6, 0.003)}


def nll(X, y, test):
    model = GPClassifier(n_neighbors=0, random_state=0).fit(X[~test], y[~test])
    probability = model.predict_proba(X[test])[np.arange(np.sum(test)), y[test]]
    return -float(np.mean(np.log(probability)))


def contaminated(X, value, share, random):
    X = X.copy()
    for column in X.T:
        column[random.choice(len(X), max(1, round(share * len(X))), replace=False)] = value
    return X


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("--rows", type=int, default=3000)
    given = parser.parse_args()
    for name in given.sets:
        problem = load(given.data, name)
        found = {kind: [] for kind in KINDS}
        clean = []
        for draw in range(given.first, given.first + given.draws):
            random = np.random.default_rng(draw)
            rows = random.permutation(len(problem.y))[: given.rows * 2]
            X = problem.X[rows] / np.where(problem.X.std(axis=0) > 0.0, problem.X.std(axis=0), 1.0)
            y = problem.y[rows]
            # Half of few rows are for testing, and as many as the training rows of more.
            test = np.arange(len(rows)) >= min(given.rows, len(rows) // 2)
            clean.append(nll(X, y, test))
            for kind, (value, share) in KINDS.items():
                found[kind].append(nll(contaminated(X, value, share, random), y, test) - clean[-1])
        told = [f"{kind}: {np.mean(d):+.4f} +- {np.std(d) / len(d) ** 0.5:.4f}" for kind, d in found.items()]
        print(f"{name}: clean {np.mean(clean):.4f}; " + "; ".join(told), flush=True)


if __name__ == "__main__":
    main()
