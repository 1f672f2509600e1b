"""The full Gaussian process: time and memory at many rows, and next to scikit-learn's at few.

    python bench/full.py [--rows 10000] [--few 500 1000] [--threads 2]

Ringnorm (Breiman 1996) in twenty dimensions. At ``--rows`` rows the posterior alone at a fixed kernel; at few, a
variance and a length scale are learned by both libraries, with all else at its defaults, one after the other.
"""

import argparse
import resource
import statistics
import sys

import numpy as np
from common import scores, timed_fit, write
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from threadpoolctl import threadpool_limits

from xgpc import GPClassifier

DIMENSIONS = 20
START = ConstantKernel(2.0) * RBF(np.sqrt(DIMENSIONS))
ROUNDS = 3
TEST_ROWS = 2000


def ringnorm(n, rng):
    """N(0, 4 I) against N(a, I), a = 2 / sqrt(20) in each dimension."""
    y = rng.integers(0, 2, n)
    X = rng.standard_normal((n, DIMENSIONS))
    return np.where(y[:, None] == 1, X + 2.0 / np.sqrt(DIMENSIONS), 2.0 * X), y


def peak_memory():
    """Gigabytes that this process has had at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--few", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    X_test, y_test = ringnorm(TEST_ROWS, np.random.default_rng(1))

    few = []
    for n in arguments.few:
        runs = []
        for seed in range(ROUNDS):
            X, y = ringnorm(n, np.random.default_rng([seed, n]))
            run = {}
            for name, model in (
                ("xgpc", GPClassifier(START, inducing_points="all", n_jobs=arguments.threads)),
                ("scikit-learn", GaussianProcessClassifier(START)),
            ):
                with threadpool_limits(arguments.threads):
                    seconds = timed_fit(model, X, y)
                run[name] = {"seconds": seconds, **scores(model.predict_proba(X_test), y_test)}
            runs.append(run)
        ratio = statistics.median(run["scikit-learn"]["seconds"] / run["xgpc"]["seconds"] for run in runs)
        few.append({"rows": n, "ratio": ratio, "runs": runs})
        nll = {name: statistics.median(run[name]["nll"] for run in runs) for name in runs[0]}
        seconds = statistics.median(run["xgpc"]["seconds"] for run in runs)
        print(f"{n} rows, kernel learned: {seconds:.2f} s, scikit-learn {ratio:.1f} x; NLL {nll}", flush=True)

    X, y = ringnorm(arguments.rows, np.random.default_rng(0))
    before = peak_memory()
    model = GPClassifier(START, inducing_points="all", optimizer=None, n_jobs=arguments.threads)
    seconds = timed_fit(model, X, y)
    memory = peak_memory()
    matrices = 8e-9 * arguments.rows**2
    nll = scores(model.predict_proba(X_test), y_test)["nll"]
    print(f"{arguments.rows} rows, kernel fixed: {seconds:.1f} s, {model.n_iter_} iterations, {memory:.1f} GB at most, "
          f"{(memory - before) / matrices:.1f} matrices of the rows; NLL {nll:.4f}")  # fmt: skip
    many = {"rows": arguments.rows, "seconds": seconds, "iterations": model.n_iter_, "gigabytes": memory}
    write("full", {"few": few, "many": {**many, "gigabytes_before": before, "nll": nll}})


if __name__ == "__main__":
    main()
