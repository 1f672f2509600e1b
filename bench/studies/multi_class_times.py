"""Several classes: seconds to the likelihood that Adam has after minutes.

Of softmax with the exact bound. Split 0 of the study multi_class. The reference is softmax with 200 inducing points
and length scales for every class and feature, by Adam to convergence on a GPU, which took 140 to 260 s; it was
measured elsewhere. Every point of ours is a fit of its own with so many iterations, median of three.
"""

import statistics
from functools import partial

import numpy as np
from markdown_tables import number, table
from measure import scores, timed_fit
from methods import method
from problems import load, split
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from . import THREADS, Part

DEPENDS, TIMED = LIBRARY, True
# NLL of the reference, inducing points, whether the classes share a kernel (isotropic).
SETS = {
    "statlog-landsat": (0.229, 100, "none"),
    "pendigits": (0.031, 100, "kernel"),
    "wine-quality-white": (1.04, 100, "none"),
}
OPTIONS, QUICK = {"threads": THREADS}, {"sets": ["iris"]}
ITERATIONS = (2, 4, 6, 9, 12, 16, 20, 25, 30, 40)
REPEATS = 3


def measure(data, target, m, share, threads):
    kernel = ConstantKernel(5.0, (1e-2, 1e5)) * RBF(np.sqrt(data.X.shape[1]), (1e-2, 1e3))
    points = []
    for iterations in ITERATIONS:
        model = method("xgpc").make(
            threads, kernel=kernel, n_inducing=m, share=share, max_iter=iterations, n_neighbors=0
        )
        seconds = [timed_fit(model, data.X, data.y) for _ in range(REPEATS)]
        found = scores(model.predict_proba(data.X_test), data.y_test)
        points.append({"iterations": iterations, "seconds": seconds, **found})
        if found["nll"] <= target:
            break
    return {"m": m, "share": share, "reference_nll": target, "points": points}


def parts(options):
    for name in options.sets:
        problem, settings = load(options.data, name), SETS.get(name, (0.3, 20, "kernel"))
        yield Part(name, partial(measure, split(problem, 0), *settings, options.threads), name, problem.hash)


def report(records):
    rows = []
    for name, record in records.items():
        target, points = record["numbers"]["reference_nll"], record["numbers"]["points"]
        last = points[-1]
        reached = "" if last["nll"] <= target else "not reached, best "
        rows.append([name, number(target), f"{reached}{number(min(p['nll'] for p in points), 4)}",
                     str(last["iterations"]), f"{statistics.median(last['seconds']):.1f} s"])  # fmt: skip
    return table(["set", "reference NLL", "NLL", "iterations", "seconds"], rows)
