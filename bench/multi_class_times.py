"""Seconds until softmax has the test likelihood that Adam has after minutes, exact bound.

    python bench/multi_class_times.py --data FOLDER

FOLDER holds a file NAME.npz with arrays X and y for every set; split 0 of bench/multi_class.py. The reference is
softmax with 200 inducing points and length scales for every class and feature, by Adam to convergence on a GPU, which
took 140 to 260 s; it was measured elsewhere. Every point of ours is a fit of its own with so many iterations, median
of three.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
from common import load, scores, split, timed_fit, write
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier

# NLL of the reference, inducing points, whether the classes share a kernel (isotropic).
SETS = {
    "statlog-landsat": (0.229, 100, "none"),
    "pendigits": (0.031, 100, "kernel"),
    "wine-quality-white": (1.04, 100, "none"),
}
ITERATIONS = (2, 4, 6, 9, 12, 16, 20, 25, 30, 40)
REPEATS = 3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for name, (target, m, share) in SETS.items():
        data = split(*load(arguments.data, name), 0)
        kernel = ConstantKernel(5.0, (1e-2, 1e5)) * RBF(np.sqrt(data.X.shape[1]), (1e-2, 1e3))
        points = []
        for iterations in ITERATIONS:
            model = GPClassifier(
                kernel, n_inducing=m, share=share, max_iter=iterations, n_jobs=arguments.threads, random_state=0
            )
            seconds = [timed_fit(model, data.X, data.y) for _ in range(REPEATS)]
            found = scores(model.predict_proba(data.X_test), data.y_test)
            points.append({"iterations": iterations, "seconds": seconds, **found})
            print(f"{name:18s} m = {m}, {iterations} iterations: {statistics.median(seconds):.2f} s, NLL "
                  f"{found['nll']:.4f} (reference {target})", flush=True)  # fmt: skip
            if found["nll"] <= target:
                break
        rows.append({"data": name, "m": m, "share": share, "reference_nll": target, "points": points})
    write("multi_class_times", {"rows": rows})


if __name__ == "__main__":
    main()
