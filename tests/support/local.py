"""Dense NumPy versions of the local posterior's formulas, and of expectation propagation."""

from functools import cached_property

import numpy as np
from scipy.special import log_expit, log_ndtr
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, RationalQuadratic
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White

from xgpc.kernels import AxisMatern
from xgpc.likelihoods import record_of

from .internals import (
    ArraySource,
    Executor,
    HeldOutScore,
    KernelSpec,
    Local,
    LocalPosterior,
    Neighbourhoods,
    Neighbours,
    SparsePrior,
    Sweep,
    converged_sites,
    in_order,
    local_rows,
    metric,
    start_sites,
)

KERNELS = {
    "rbf": C(2.0) * RBF([0.7, 1.2]),
    "matern-1/2": C(2.0) * Matern(0.8, nu=0.5),
    "matern-3/2": C(1.5) * Matern([1.1, 0.6], nu=1.5),
    "matern-5/2": C(1.5) * Matern([1.1, 0.6], nu=2.5),
    "rational quadratic": C(2.0) * RationalQuadratic(0.9, 0.7),
    "dot product": C(0.5) * DotProduct(0.8) + C(0.4) * RBF(0.5),
    "sum": C(0.5) + C(1.3) * RBF([0.7, 1.2]) + C(0.3) * Matern(0.4, nu=1.5),
    "product": C(2.0) * RBF([0.7, 1.2]) * RationalQuadratic(0.9, 0.7) * DotProduct(1.0),
    "axis-1/2": C(2.0) * AxisMatern([1.4, 2.3]),
    "axis-3/2": C(1.5) * AxisMatern([1.4, 2.3], nu=1.5),
    "axis, sum and product": C(1.3) * RBF([0.7, 1.2]) * AxisMatern(2.0) + C(0.5) * AxisMatern([1.1, 0.6], nu=1.5),
    "white": C(2.0) * Matern([1.1, 0.6], nu=1.5) + White(0.3),
    "scaled white": (C(0.7) + RBF([0.7, 1.2])) * (C(0.8) + White(0.4)),
}
LINKS = {"logit": log_expit, "probit": log_ndtr}


class Problem:
    """Rows with labels of two or three classes, their whitening, their k neighbours, and sites at random.

    Attributes
    ----------
    rows, sites, index : of the training rows
    """

    def __init__(self, kernel, n=60, m=5, k=8, seed=0, n_latents=1, X=None, y=None, Z=None, name="logit", weight=None):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, 2)) if X is None else X
        n, d = self.X.shape
        two = np.where(np.sin(3.0 * self.X[:, 0]) + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)
        self.y = (three_classes(self.X) if name == "softmax" else two) if y is None else y
        self.kernel, self.n_neighbors, self.executor = kernel, k, Executor(1)
        self.site = record_of(name, "exact").site(3 if name == "softmax" else 2)
        self.prior = SparsePrior.build(KernelSpec(kernel, d), rng.normal(size=(m, d)) if Z is None else Z)
        self.weight = np.empty(0) if weight is None else weight
        self.rows = local_rows(self.executor, self.prior, self.X)
        self.sites = np.array([np.exp(rng.normal(size=(n_latents, n)) - 1.0), rng.normal(size=(n_latents, n))])
        self.near = Neighbours(self.X, metric(self.prior.core))
        self.index, self.n_earlier = in_order(self.near.of_rows(min(k, n - 1)))

    @property
    def source(self):
        return ArraySource(self.X, self.y, self.weight)

    @property
    def sweep(self):
        return Sweep(self.local, self.sites)

    @property
    def q(self):
        return self.sweep.q

    @property
    def local(self):
        return Local.of(self.executor, self.source, self.prior, (self.index, self.n_earlier), self.site)

    def swept(self, tol=None, start=None, factor=1.0):
        """Sites that agree with each other, from a start's times a factor; they become the problem's."""
        start = start_sites(self.source, self.site) if start is None else start
        sweeps = converged_sites(self.local, factor * start, tol)
        assert sweeps.converged
        self.sites = sweeps.sites
        return sweeps

    def posterior(self, k):
        q, weight = self.q, self.weight if self.weight.size else np.ones(len(self.y))
        return LocalPosterior(self.prior, self.X, self.y, weight, *self.sites, q.w, q.V, k)

    def neighbours_of(self, T):
        return self.near.of(T, min(self.n_neighbors, len(self.X)))

    def predicted(self, T):
        """Means and variances (C, r) of latent values at new rows."""
        rows = local_rows(self.executor, self.prior, T)
        return predicted(Neighbourhoods(self.prior.core, self.rows, rows, self.sites, self.neighbours_of(T)), self.q)

    def score_of(self, T, y, weight=None, **options):
        held_out = ArraySource(T, y, np.empty(0) if weight is None else weight)
        return HeldOutScore(self.local, self.source, held_out, self.neighbours_of(T), self.sites, **options)


def three_classes(X):
    return np.floor(1.5 + 1.49 * np.sin(3.0 * X[:, 0]))


def predicted(at, q):
    """Means and variances (C, r) of latent values by the conditionals of all neighbourhoods."""
    given = at.empty(len(at.index))
    at.condition(0, len(at.index), [given])
    mean, variance = np.einsum("cmr,cm->cr", given.b, q.w), np.einsum("cmr,cmk,ckr->cr", given.b, q.V, given.b)
    return given.mean + mean, given.variance + variance


class Dense:
    """MATH of the model with scikit-learn's kernel: f = a.z + g, z ~ N(0, I), g ~ GP(0, k - a.a).

    Sites (n,) of one latent function.
    """

    def __init__(self, kernel, X, Z, jitter, precision, linear, index, n_earlier):
        self.kernel, self.X, self.Z, self.precision, self.linear = kernel, X, Z, precision, linear
        self.index, self.n_earlier = index, n_earlier
        gram = kernel(Z, Z)
        self.L = np.linalg.cholesky(gram + jitter * np.mean(np.diag(gram)) * np.eye(len(Z)))
        self.A = self.whiten(X)

    def whiten(self, T):
        return np.linalg.solve(self.L, self.kernel(self.Z, T)).T

    @cached_property
    def q(self):
        """w and V, by the chain rule: each row's target given those of its earlier neighbours."""
        P, h = np.eye(self.A.shape[1]), np.zeros(self.A.shape[1])
        for i, (near, count) in enumerate(zip(self.index, self.n_earlier, strict=True)):
            b, mean, variance = self.row(i, near[:count])
            total = variance + 1.0 / self.precision[i]
            P += np.outer(b, b) / total
            h += b * (self.linear[i] / self.precision[i] - mean) / total
        V = np.linalg.inv(P)
        return V @ h, V

    def row(self, i, near):
        """What neighbours say of a training row given z: b, mean and variance."""
        gamma, b, D, residual = self.weights(self.X[i], near)
        return b, gamma @ (self.linear[near] / self.precision[near]), residual - D @ gamma

    def cavity(self, i):
        """Of a training row, with its own conditional term taken out of q(z)."""
        b, mean, variance = self.row(i, self.index[i])
        total = variance + 1.0 / self.precision[i]
        w, V = self.q
        P = np.linalg.inv(V)
        h = P @ w - b * (self.linear[i] / self.precision[i] - mean) / total
        V = np.linalg.inv(P - np.outer(b, b) / total)
        return b @ V @ h + mean, variance + b @ V @ b

    def weights(self, x, near):
        """gamma, b and the residual's prior variance of one row."""
        a, A = self.whiten(x[None])[0], self.A[near]
        M = self.kernel(self.X[near]) - A @ A.T + np.diag(1.0 / self.precision[near])
        D = self.kernel(self.X[near], x[None])[:, 0] - A @ a
        gamma = np.linalg.solve(M, D)
        return gamma, a - A.T @ gamma, D, self.kernel.diag(x[None])[0] - a @ a

    def predict(self, x, near):
        gamma, b, D, residual = self.weights(x, near)
        w, V = self.q
        mean = b @ w + gamma @ (self.linear[near] / self.precision[near])
        return mean, residual - D @ gamma + b @ V @ b

    def joint_covariance(self, T, index):
        """Errors of predictions from each row's own neighbours, as linear functions of z, g and the sites' noise."""
        r, n = len(T), len(self.X)
        gammas, b = np.zeros((r, n)), np.empty((r, self.A.shape[1]))
        for i, (x, near) in enumerate(zip(T, index, strict=True)):
            gammas[i, near], b[i], _, _ = self.weights(x, near)
        a = self.whiten(T)
        among = self.kernel(self.X) - self.A @ self.A.T + np.diag(1.0 / self.precision)
        across = self.kernel(T, self.X) - a @ self.A.T
        mixed = gammas @ across.T
        own = self.kernel(T) - a @ a.T
        return b @ self.q[1] @ b.T + own - mixed - mixed.T + gammas @ among @ gammas.T


def tilted_moments(link, y, m, v):
    """log normaliser, mean and variance of p(y | f) N(f | m, v), by the trapezoidal rule around the mode."""
    sd = np.sqrt(v)[:, None]
    f = m[:, None] + sd * np.linspace(-14.0, 14.0, 701)
    logs = LINKS[link](y[:, None] * f) - 0.5 * ((f - m[:, None]) / sd) ** 2
    top = logs.max(axis=1, keepdims=True)
    p = np.exp(logs - top)
    total = p.sum(axis=1)
    mean = np.sum(p * f, axis=1) / total
    variance = np.sum(p * (f - mean[:, None]) ** 2, axis=1) / total
    value = top[:, 0] + np.log(total * (28.0 / 700.0) / np.sqrt(2.0 * np.pi))
    return value, mean, variance


def probit_moments(y, m, v):
    """Rasmussen and Williams, equations (3.58) and (3.82) to (3.84)."""
    z = y * m / np.sqrt(1.0 + v)
    ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
    mean = m + y * v * ratio / np.sqrt(1.0 + v)
    return norm.logcdf(z), mean, v - v**2 * ratio / (1.0 + v) * (z + ratio)


def expectation_propagation(K, y, moments, weight=1.0, tol=1e-12):
    """Sites of Rasmussen and Williams' algorithm 3.5, in parallel and damped, until nothing changes.

    Returns
    -------
    precision, linear, and the approximate posterior's mean and covariance
    """
    n = len(y)
    precision, linear = np.full(n, 0.2), np.zeros(n)
    for _ in range(2000):
        root = np.sqrt(precision)
        B = np.linalg.inv(np.eye(n) + root[:, None] * K * root)
        covariance = K - (K * root) @ B @ (root[:, None] * K)
        mean = covariance @ linear
        # One of a row's ``weight`` equal sites is left out.
        v = 1.0 / (1.0 / np.diag(covariance) - precision / weight)
        m = v * (mean / np.diag(covariance) - linear / weight)
        _, tilted_mean, tilted_variance = moments(y, m, v)
        step = weight * (1.0 / tilted_variance - 1.0 / v) - precision
        linear_step = weight * (tilted_mean / tilted_variance - m / v) - linear
        precision, linear = precision + 0.7 * step, linear + 0.7 * linear_step
        if max(np.abs(step).max(), np.abs(linear_step).max()) < tol:
            return precision, linear, mean, covariance
    raise AssertionError("expectation propagation did not converge")
