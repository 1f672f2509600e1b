"""Active learning from ten rows to sixty with default fits: queries by mutual information, and at random.

    python tools/active_learning.py [--seeds N]

Prints the mean negative log likelihood (NLL) of 2000 test rows over the loop, and at its end.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.metrics import log_loss

from xgpc import GPClassifier
from xgpc.acquisition import mutual_information

FIRST, LAST, POOL, TEST = 10, 60, 500, 2000

# Labels of rows in [-1, 1]^d, and d.
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "disk": (lambda X: np.sum(X**2, axis=1) < 0.5, 2),
    "ball": (lambda X: np.sum(X**2, axis=1) < 0.82, 3),
    "sine": (lambda X: np.sin(4.0 * X[:, 0]) > 1.5 * X[:, 1], 2),
}


def loop(name: str, seed: int, is_active: bool) -> list[float]:
    """NLL of the test rows after each fit."""
    labels, d = FUNCTIONS[name]
    rng = np.random.default_rng(seed)
    pool, test = (rng.uniform(-1.0, 1.0, size=(n, d)) for n in (POOL, TEST))
    y, y_test = labels(pool).astype(int), labels(test).astype(int)
    order = rng.permutation(POOL).tolist()
    known = order[:FIRST]
    # One row more where all are of one class.
    while len(set(y[known])) < 2:
        known.append(order[len(known)])
    losses = []
    while True:
        model = GPClassifier(random_state=0).fit(pool[known], y[known])
        losses.append(log_loss(y_test, model.predict_proba(test)))
        if len(known) >= LAST:
            return losses
        unknown = np.setdiff1d(order, known)
        best = np.argmax(mutual_information(model, pool[unknown])) if is_active else rng.integers(len(unknown))
        known.append(int(unknown[best]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("ignore")
    for name in FUNCTIONS:
        for is_active, queries in ((True, "mutual information"), (False, "at random")):
            found = [loop(name, seed, is_active) for seed in seeds]
            over, end = np.mean([np.mean(one) for one in found]), np.mean([one[-1] for one in found])
            print(f"{name}, {queries:18}  NLL {over:.3f} over the loop, {end:.3f} at its end", flush=True)


if __name__ == "__main__":
    main()
