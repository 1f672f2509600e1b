"""Dense NumPy implementations of the papers' unwhitened formulas, and data sets by their published definitions."""

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.datasets import load_iris, make_moons
from sklearn.preprocessing import StandardScaler


def divergence(mean, covariance, prior_mean, prior_covariance):
    """KL(N(mean, covariance) || N(prior_mean, prior_covariance))."""
    inverse, shift = np.linalg.inv(prior_covariance), mean - prior_mean
    log_dets = np.linalg.slogdet(prior_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(inverse @ covariance) + shift @ inverse @ shift - len(shift) + log_dets)


class DenseModel:
    """q(u) = N(mu, Sigma) as in the papers: kappa = K_nm K_mm^-1, eta_1 = Sigma^-1 mu, eta_2 = -Sigma^-1 / 2."""

    def __init__(self, covariance, diagonal, jitter, X, Z, y):
        self.y = y
        self.K_mm = covariance(Z, Z)
        self.K_mm += jitter * np.mean(np.diag(self.K_mm)) * np.eye(len(Z))
        self.K_inverse = np.linalg.inv(self.K_mm)
        K_nm = covariance(X, Z)
        self.kappa = np.linalg.solve(self.K_mm, K_nm.T).T
        self.K_tilde = diagonal(X) - np.sum(self.kappa * K_nm, axis=1)
        self.L = np.linalg.cholesky(self.K_mm)
        self.eta_1 = np.zeros(len(Z))
        self.eta_2 = -0.5 * self.K_inverse

    @property
    def moments(self):
        """mu and Sigma."""
        Sigma = np.linalg.inv(-2 * self.eta_2)
        return Sigma @ self.eta_1, Sigma

    def marginals(self):
        mu, Sigma = self.moments
        return self.kappa @ mu, self.K_tilde + np.sum(self.kappa @ Sigma * self.kappa, axis=1)

    def target(self, precision, linear):
        """eta_1 and eta_2 of the unit natural-gradient step with these sites: XGPC equation (12) with rate one."""
        kappa = self.kappa
        return kappa.T @ linear, -0.5 * (self.K_inverse + kappa.T @ (precision[:, None] * kappa))

    def unwhiten(self, P, h):
        """Take q of these whitened parameters."""
        Linv = np.linalg.inv(self.L)
        self.eta_1, self.eta_2 = Linv.T @ h, -0.5 * Linv.T @ P @ Linv

    def whitened(self):
        """P = L^T Sigma^-1 L and h = L^T eta_1."""
        return -2 * self.L.T @ self.eta_2 @ self.L, self.L.T @ self.eta_1


def jaakkola_jordan_bound(K_mm, K_nm, diagonal, y, xi):
    """vi-JJ's collapsed bound, JJ equation (14) with lambda(xi) = tanh(xi / 2) / (4 xi); all constants are in it."""
    lam = np.tanh(xi / 2) / (4 * xi)
    # K_mm may be almost singular, so B = 2 K_mn Lambda K_nm + K_mm is not formed: B = L (2 V^T Lambda V + I) L^T.
    V = solve_triangular(np.linalg.cholesky(K_mm), K_nm.T, lower=True).T
    B = 2 * V.T @ (lam[:, None] * V) + np.eye(len(K_mm))
    Vy = V.T @ y
    return (
        np.sum(-np.logaddexp(0, -xi) - xi / 2 + lam * xi**2)
        + Vy @ np.linalg.solve(B, Vy) / 8
        - 0.5 * np.linalg.slogdet(B)[1]
        - np.sum(lam * (diagonal - np.sum(V**2, axis=1)))
    )


def standardised(load, columns=slice(None), n=None):
    """Rows of one of scikit-learn's data sets, each feature less its mean, by its deviation."""
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X)[:n, columns], y[:n]


def iris():
    return standardised(load_iris)


def moons(n=200, seed=0):
    """Two noisy half circles in the plane."""
    return make_moons(n, noise=0.25, random_state=seed)


def additive(n, seed=0, d=2):
    """Two normal features that add up to the label, others without effect."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, (np.sin(2.0 * X[:, 0]) + X[:, 1] > 0.0).astype(int)


def in_levels(n=150, seed=0, levels=4):
    """Rows with one feature that orders the classes and one that does not."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 2))
    f = 2.0 * X[:, 0] + 0.7 * random.normal(size=n)
    return X, np.digitize(f, np.linspace(-2.0, 2.0, levels - 1) if levels > 2 else [0.0])


def checkerboard(n, seed, cells=10, noise=0.02):
    """Classes of the fields of a square, some labels wrong."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    colour = np.floor(cells * X).sum(axis=1) % 2
    return X, np.where(rng.random(n) < noise, 1 - colour, colour).astype(int)


def twonorm(n, rng):
    """Breiman 1996: N(+-a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 20)) + np.where(y, 1, -1)[:, None] * 2 / np.sqrt(20), y


def ringnorm(n, rng):
    """Breiman 1996: N(0, 4 I) against N(a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 20))
    return np.where(y[:, None], X + 2 / np.sqrt(20), 2 * X), y
