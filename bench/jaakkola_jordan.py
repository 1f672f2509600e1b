"""Whether Jaakkola and Jordan's bound and the profiled Polya-Gamma bound have the same maximum.

    python bench/jaakkola_jordan.py --data FOLDER

FOLDER holds german.npz and diabetes-pima.npz with arrays X and y. Izmailov & Kropotov's equation (14) is maximised over
kernel parameters and xi together by SciPy's L-BFGS, in the dense NumPy formulas of tests/reference.py, from several
starts; xgpc maximises its Polya-Gamma bound over the posterior and, outside, the kernel parameters. Both start at the
default kernel with the same inducing points, which stay.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from common import load, timed_fit, write
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from xgpc import GPClassifier
from xgpc.kernels.spec import default_kernel

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from reference import maximise_jaakkola_jordan

SETS = ("german", "diabetes-pima")
N_INDUCING = 50
# Starts of the dense maximisation: what is added to the logarithms of the default kernel's parameters.
STARTS = (0.0, 0.25, 0.5, 1.0, -0.5)
OPTIMIZERS = ("profile", "alternate", "hybrid", "joint")


def measure(folder, name):
    X, y = load(folder, name)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Z = KMeans(N_INDUCING, n_init=1, random_state=0).fit(X).cluster_centers_
    kernel = default_kernel(np.ones(X.shape[1]))
    result = {"rows": len(X), "features": X.shape[1], "xgpc": {}, "equation_14": []}
    for optimizer in OPTIMIZERS:
        model = GPClassifier(
            kernel, bound="polya-gamma", optimizer=optimizer, inducing_points=Z, learn_inducing=False,
            subset_sizes=None, tol=1e-8, max_iter=3000, random_state=0,
        )  # fmt: skip
        spent = timed_fit(model, X, y)
        result["xgpc"][optimizer] = {"bound": model.elbo_, "seconds": spent, "theta": model.kernel_.theta.tolist()}
        print(f"{name} {optimizer}: {model.elbo_:.4f} in {spent:.1f} s", flush=True)
    for shift in STARTS:
        start = np.clip(kernel.theta + shift, *kernel.bounds.T)
        value, theta = maximise_jaakkola_jordan(X, np.where(y, 1.0, -1.0), Z, start, kernel.bounds, model.jitter_)
        result["equation_14"].append({"shift": shift, "bound": value, "theta": theta.tolist()})
        print(f"{name} equation (14) from theta {shift:+g}: {value:.4f}", flush=True)
    maxima = max(run["bound"] for run in result["equation_14"]), max(r["bound"] for r in result["xgpc"].values())
    result["maxima"] = dict(zip(("equation_14", "xgpc"), maxima, strict=True))
    print(f"{name}: maximum of equation (14) {maxima[0]:.4f}, of xgpc's bound {maxima[1]:.4f}, "
          f"difference {maxima[1] - maxima[0]:+.2e} nats", flush=True)  # fmt: skip
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    arguments = parser.parse_args()
    # Matrices of 50 inducing points are too small for threads of BLAS.
    with threadpool_limits(1):
        write("jaakkola_jordan", {"sets": {name: measure(arguments.data, name) for name in arguments.sets}})


if __name__ == "__main__":
    main()
