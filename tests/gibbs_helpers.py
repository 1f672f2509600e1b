"""What the tests of the sampler share."""

import numpy as np
import pytest
from reference import moons
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from xgpc.gibbs import GibbsClassifier

SMOOTH = ConstantKernel(3.0) * Matern(1.2, nu=1.5)
NOISY = SMOOTH + WhiteKernel(0.7)
NEW = np.array([[0.1, 0.4], [2.5, -1.0], [-0.8, 0.9]])
DATA = moons(40)
GRID = np.random.default_rng(8).normal(size=(9, 2))
short_chains = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def small(kernel=SMOOTH, **options):
    return GibbsClassifier(kernel, **{"n_samples": 20, "n_warmup": 2, "n_chains": 2, "random_state": 0, **options})


def fitc(smooth, jitter, X, Z, new):
    """k(new, Z) K_mm^-1 k(Z, X): the covariance of rows that the inducing points give."""
    K = smooth(Z)
    K += jitter * np.mean(np.diag(K)) * np.eye(len(Z))
    return smooth(new, Z) @ np.linalg.solve(K, smooth(Z, X))
