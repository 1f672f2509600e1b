"""What the tests of the sampler share."""

import numpy as np
import pytest
from scipy.special import expit, log_expit, logsumexp
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from xgpc.gibbs import GibbsClassifier

from .reference import moons

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


class TruePosterior:
    """Integrals over a grid in whitened coordinates of f at three rows at most, cov f = Q(X, X) + diag(rest).

    Q is what the inducing points Z give, all of the smooth kernel's where they are X. The trapezoidal rule is as good
    as exact: the logistic function has no pole within pi, more than a standard deviation, of the real line.
    """

    AXIS = np.arange(-7.5, 7.6, 0.5)

    def __init__(self, kernel, smooth, X, y, Z):
        self.kernel, self.smooth, self.X, self.Z = kernel, smooth, X, Z
        self.C = fitc(smooth, 0.0, X, Z, X)
        # Rows that are equal have a singular one.
        np.fill_diagonal(self.C, kernel.diag(X) + 1e-12)
        z = np.stack(np.meshgrid(*[self.AXIS] * len(X), indexing="ij")).reshape(len(X), -1)
        self.f = np.linalg.cholesky(self.C) @ z
        log_density = -0.5 * np.sum(z**2, axis=0) + log_expit(y[:, None] * self.f).sum(axis=0)
        self.p = np.exp(log_density - logsumexp(log_density))
        self.log_evidence = logsumexp(log_density) - len(X) * logsumexp(-0.5 * self.AXIS**2)

    def at(self, new):
        """Mean and variance of the latent value, and probability of the label +1, (3, r) at the rows (r, d)."""
        cross = fitc(self.smooth, 0.0, self.X, self.Z, new)
        B = np.linalg.solve(self.C, cross.T).T
        rest = np.maximum(self.kernel.diag(new) - np.sum(B * cross, axis=1), 0.0)
        given = B @ self.f
        mean = given @ self.p
        variance = rest + (given - mean[:, None]) ** 2 @ self.p
        weight = np.exp(-0.5 * self.AXIS**2)
        weight /= weight.sum()
        positive = sum(
            w * expit(given + t * np.sqrt(rest)[:, None]) @ self.p for t, w in zip(self.AXIS, weight, strict=True)
        )
        return np.array([mean, variance, positive])
