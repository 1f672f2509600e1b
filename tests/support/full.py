"""What the tests of the full Gaussian process share."""

import numpy as np
from scipy.special import expit, log_expit
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from xgpc import GPClassifier
from xgpc.likelihoods import record_of

from .gradients import points_apart
from .internals import FullPrior, KernelSpec, SeparatePriors

EXACT = record_of("logit", "exact").site()
SMOOTH = ConstantKernel(2.0) * Matern(1.2, nu=0.5)


def assert_near(actual, expected, tolerance):
    """To ``tolerance`` of the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance * np.abs(expected).max())


def full_prior(Z, kernels):
    priors = tuple(FullPrior.build(KernelSpec(kernel, Z.shape[1]), Z) for kernel in kernels)
    return priors[0] if len(priors) == 1 else SeparatePriors(priors)


def labelled(n, seed=0, n_classes=3, d=2):
    """Rows that are apart and overlapping classes."""
    random = np.random.default_rng(seed)
    X = points_apart(random, n, d)
    f = np.sin(2.0 * X[:, 0] + np.linspace(0.0, 6.0, n_classes + 1)[:n_classes, None])
    return random.permuted(X, axis=1), np.argmax(f + 0.4 * random.normal(size=f.shape), axis=0)


def classifier(kernel=SMOOTH, **options):
    options = {"optimizer": None, "tol": 1e-12, "max_iter": 5000, "random_state": 0, **options}
    return GPClassifier(kernel, inducing_points="all", **options)


def gibbs_mackay(c, K, y, weight=1.0, noise=0.0):
    """sum log sigma(c) - c / 2 + theta c^2 / 2, plus log integral N(f; 0, K) exp(y.f / 2 - f^T Theta f / 2) df.

    Noise e of each row that keeps its prior N(0, noise) takes E[theta e^2] / 2 away. Also the mean and variance of the
    normal distribution under the integral.
    """
    theta = weight * (expit(c) - 0.5) / c
    linear = 0.5 * weight * y
    scaled = np.eye(len(K)) + K * theta
    Sigma = np.linalg.inv(scaled) @ K
    terms = weight * (log_expit(c) - 0.5 * c) + 0.5 * theta * (c**2 - noise)
    value = np.sum(terms) + 0.5 * linear @ Sigma @ linear - 0.5 * np.linalg.slogdet(scaled)[1]
    return value, Sigma @ linear, np.diag(Sigma)


def fixed_point(K, y, weight=1.0, noise=0.0):
    """The maximum of Gibbs and MacKay's bound, by c^2 = mean^2 + variance + noise in turn with the posterior."""
    c = np.ones(len(y))
    for _ in range(1000):
        value, mean, variance = gibbs_mackay(c, K, y, weight, noise)
        c = np.sqrt(mean**2 + variance + noise)
    return value, mean, variance
