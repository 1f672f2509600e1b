"""Jaakkola and Jordan's bound and the profiled Polya-Gamma bound.

Whether they have the same maximum. Izmailov & Kropotov's equation (14) is maximised over kernel parameters and xi
together by SciPy's L-BFGS, in the dense NumPy formulas of tests/support/reference.py, from several starts; xgpc
maximises its Polya-Gamma bound over the posterior and, outside, the kernel parameters. Both start at the default kernel
with the same inducing points, which stay.
"""

import sys
from functools import partial

import numpy as np
from internals import default_kernel
from markdown_tables import number, table
from measure import timed_fit
from problems import load
from records import LIBRARY, ROOT
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from xgpc import GPClassifier

from . import Part

DEPENDS, TIMED, SETS = LIBRARY, False, ("german", "diabetes-pima")
OPTIONS, QUICK = {}, {"sets": ["breast-cancer"]}
N_INDUCING = 50
# Starts of the dense maximisation: what is added to the logarithms of the default kernel's parameters.
STARTS = (0.0, 0.25, 0.5, 1.0, -0.5)
OPTIMIZERS = ("profile", "alternate", "hybrid", "joint")


def reference():
    """The dense formulas of the tests."""
    folder = str(ROOT / "tests")
    if folder not in sys.path:
        sys.path.append(folder)
    from support import reference

    return reference


def measure(problem):
    X, y = (problem.X - problem.X.mean(axis=0)) / problem.X.std(axis=0), problem.y
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
    for shift in STARTS:
        start = np.clip(kernel.theta + shift, *kernel.bounds.T)
        value, theta = reference().maximise_jaakkola_jordan(
            X, np.where(y, 1.0, -1.0), Z, start, kernel.bounds, model.jitter_
        )
        result["equation_14"].append({"shift": shift, "bound": value, "theta": theta.tolist()})
    return result


def parts(options):
    # Matrices of 50 inducing points are too small for threads of BLAS.
    with threadpool_limits(1):
        for name in options.sets:
            problem = load(options.data, name)
            yield Part(name, partial(measure, problem), name, problem.hash)


def report(records):
    rows = []
    for name, record in records.items():
        numbers = record["numbers"]
        bounds = {way: found["bound"] for way, found in numbers["xgpc"].items()}
        dense = max(run["bound"] for run in numbers["equation_14"])
        rows.append([name, number(dense, 4), *(number(bounds[way], 4) for way in OPTIMIZERS),
                     f"{max(bounds.values()) - dense:+.1e}"])  # fmt: skip
    return table(["set", "equation (14), dense", *OPTIMIZERS, "best minus dense, nats"], rows)
