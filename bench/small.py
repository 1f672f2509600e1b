"""Seconds and test likelihood on 200 rows, side by side with scikit-learn's GaussianProcessClassifier.

    python bench/small.py

Labels are drawn from a latent function of a Gaussian process; both start at its kernel and learn the hyperparameters.
"""

import argparse
import statistics

import numpy as np
from common import scores, timed_fit, write
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier

N, N_TEST, D = 200, 2000, 5
MODELS = {"xgpc": GPClassifier, "scikit-learn": GaussianProcessClassifier}


def kernel():
    return ConstantKernel(2.0) * RBF(np.full(D, 2.2))


def draw(seed):
    """Rows from N(0, I), labels from the logistic link of a draw from the prior; training rows first."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N + N_TEST, D))
    # The jitter is for the Cholesky factor of a nearly singular matrix.
    L = np.linalg.cholesky(kernel()(X) + 1e-8 * np.eye(len(X)))
    y = (rng.uniform(size=len(X)) < expit(L @ rng.normal(size=len(X)))).astype(int)
    return X[:N], y[:N], X[N:], y[N:]


def measure(seed):
    X, y, X_test, y_test = draw(seed)
    result = {"seed": seed}
    for name, estimator in MODELS.items():
        model = estimator(kernel(), random_state=0)
        result[name] = {"seconds": timed_fit(model, X, y), **scores(model.predict_proba(X_test), y_test)}
    result["ratio"] = result["scikit-learn"]["seconds"] / result["xgpc"]["seconds"]
    result["nll_difference"] = result["xgpc"]["nll"] - result["scikit-learn"]["nll"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    # The first fits of a process pay for imports and threads.
    measure(arguments.seeds)
    rows = [measure(seed) for seed in range(arguments.seeds)]
    for row in rows:
        parts = (f"{name} {row[name]['seconds']:.3f} s, NLL {row[name]['nll']:.4f}" for name in MODELS)
        print(f"seed {row['seed']}: {'; '.join(parts)}; ratio {row['ratio']:.2f}")
    medians = {key: statistics.median(row[key] for row in rows) for key in ("ratio", "nll_difference")}
    print("medians: scikit-learn's seconds over xgpc's {ratio:.2f}, NLL {nll_difference:+.4f}".format(**medians))
    write("small", {"medians": medians, "rows": rows})


if __name__ == "__main__":
    main()
