"""How close mini-batches come to the full batch, from cold, with no setting by hand.

    python bench/mini_batches.py --data FOLDER

FOLDER holds electricity.npz and cod-rna.npz with arrays X and y. Goal: with m = 100 inducing points, mini-batches of
100 rows and the default (adaptive) rate, the bound within 0.1 % of the full batch's after two epochs, for both bounds.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from common import write
from sklearn.exceptions import ConvergenceWarning

from xgpc import GPClassifier


def load(folder, name):
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        return file["X"].astype(np.float64), file["y"]


def fit(X, y, **params):
    model = GPClassifier(n_inducing=100, optimizer=None, n_jobs=-1, **params)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return model.elbo_, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rows = []
    for name in ("electricity", "cod-rna"):
        X, y = load(arguments.data, name)
        for bound in ("exact", "polya-gamma"):
            for seed in range(arguments.seeds):
                params = {"bound": bound, "random_state": seed}
                best, full_seconds = fit(X, y, tol=1e-6, **params)
                for epochs in (1, 2, 5):
                    elbo, seconds = fit(X, y, batch_size=100, max_iter=epochs, **params)
                    gap = 100 * (best - elbo) / abs(best)
                    rows.append(
                        {"data": name, "bound": bound, "seed": seed, "epochs": epochs, "full_batch_bound": best,
                         "bound_reached": elbo, "gap_percent": gap, "seconds": seconds, "full_seconds": full_seconds}
                    )  # fmt: skip
                    print(f"{name} {bound} seed {seed}: {epochs} epochs, {gap:.3f} % below the full batch, "
                          f"{seconds:.1f} s ({full_seconds:.1f} s)", flush=True)  # fmt: skip
    worst = max(row["gap_percent"] for row in rows if row["epochs"] == 2)
    print(f"largest gap after two epochs: {worst:.3f} %")
    write("mini_batches", {"largest_gap_percent_after_two_epochs": worst, "rows": rows})


if __name__ == "__main__":
    main()
