"""Fits by the hundred in one process: memory does not grow with them."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, warnings
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from xgpc import BayesianLinearClassifier, GPClassifier

warnings.simplefilter("ignore", ConvergenceWarning)
rng = np.random.default_rng(0)
X = rng.normal(size=(100, 3))
y = (X[:, 0] + np.sin(2.0 * X[:, 1]) > 0.0).astype(int)
short = {"n_inducing": 12, "optimizer": None, "random_state": 0}
models = {
    "sparse": lambda: GPClassifier(4.0 * RBF(), n_jobs=2, **short).fit(X, y),
    "full": lambda: GPClassifier(4.0 * RBF(), inducing_points="all", optimizer=None).fit(X, y),
    "several classes": lambda: GPClassifier(4.0 * RBF(), **short).fit(X, y + (X[:, 2] > 1.0)),
    "mini-batches": lambda: GPClassifier(4.0 * RBF(), batch_size=40, max_iter=3, **short).fit(X, y),
    "neighbours": lambda: GPClassifier(4.0 * RBF(), n_neighbors=5, **short).fit(X, y),
    "learned": lambda: GPClassifier(n_inducing=8, n_neighbors=0, max_iter=2, random_state=0).fit(X, y),
    "linear": lambda: BayesianLinearClassifier().fit(X, y),
    "failed": lambda: GPClassifier(n_inducing=0).fit(X, y),
}
def fit(times):
    for _ in range(times):
        try:
            models[sys.argv[1]]().predict_proba(X)
        except ValueError:
            assert sys.argv[1] == "failed"
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)

print(fit(30), fit(int(sys.argv[2])))
"""
# MB at the peak: what the allocator may take for good on the way. Each kind of fit has arrays of ten kB and more: one
# of them kept from each fit would take 3 MB.
MARGIN = 2.0
FITS = 300
KINDS = ("sparse", "full", "several classes", "mini-batches", "neighbours", "learned", "linear", "failed")


@pytest.mark.skipif(sys.platform == "win32", reason="the peak of a process's memory is had otherwise there")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_with_the_number_of_fits(kind, tmp_path):
    command = [sys.executable, "-c", SCRIPT, kind, str(FITS)]
    done = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    before, after = map(float, done.stdout.split())
    assert after - before < MARGIN
