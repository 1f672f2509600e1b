"""Dense NumPy implementations of the papers' unwhitened formulas, and data sets by their published definitions."""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
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


def jaakkola_jordan_gradient(K_mm, K_nm, diagonal, y, xi):
    """Gradient of JJ equation (14) by K_mm, K_nm, every k_ii and xi, and the xi at which the last would vanish."""
    tanh = np.tanh(xi / 2)
    precision = tanh / (2 * xi)
    slope = np.where(np.abs(xi) < 0.01, -xi / 24, (xi / 2 * (1 - tanh**2) - tanh) / (2 * xi**2))
    L = np.linalg.cholesky(K_mm)
    V = solve_triangular(L, K_nm.T, lower=True).T
    interpolation = solve_triangular(L, V.T, lower=True, trans="T").T
    posterior = np.linalg.solve(V.T @ (precision[:, None] * V) + np.eye(len(K_mm)), V.T)
    posterior = solve_triangular(L, posterior, lower=True, trans="T").T
    c = posterior.T @ y / 2
    mean = K_nm @ c
    explained = interpolation - posterior
    optimum = np.sqrt(mean**2 + diagonal - np.sum(explained * K_nm, axis=1))
    by_K_nm = np.outer(y / 2 - precision * mean, c) + precision[:, None] * explained
    by_K_mm = -(np.outer(c, c) + interpolation.T @ (precision[:, None] * explained)) / 2
    return by_K_mm, by_K_nm, -precision / 2, slope * (xi**2 - optimum**2) / 2, optimum


def maximise_jaakkola_jordan(X, y, Z, theta, bounds, jitter):
    """Maximum of JJ equation (14) over theta and xi together, by L-BFGS without any of the library's code.

    Parameters
    ----------
    theta : (d + 1,) start: logarithms of the variance and of one length scale for each feature
    bounds : (d + 1, 2) of theta
    jitter : float, relative to the variance

    Returns
    -------
    value : float
    theta : (d + 1,)
    """
    n_theta = len(theta)
    squares = [(rows[:, None] - Z) ** 2 for rows in (X, Z)]

    def matrices(theta):
        variance, precisions = np.exp(theta[0]), np.exp(-2 * theta[1:])
        K_nm, K_mm = (variance * np.exp(-0.5 * (square @ precisions)) for square in squares)
        return K_mm + jitter * variance * np.eye(len(Z)), K_nm, np.full(len(X), variance)

    def negative(vector):
        theta, xi = vector[:n_theta], vector[n_theta:]
        K_mm, K_nm, diagonal = matrices(theta)
        value = jaakkola_jordan_bound(K_mm, K_nm, diagonal, y, xi)
        by_K_mm, by_K_nm, by_diagonal, by_xi, _ = jaakkola_jordan_gradient(K_mm, K_nm, diagonal, y, xi)
        weights = by_K_nm * K_nm, by_K_mm * K_mm
        by_variance = np.sum(weights[0]) + np.sum(weights[1]) + by_diagonal @ diagonal
        by_lengths = sum(np.einsum("ij,ijk", G, square) for G, square in zip(weights, squares, strict=True))
        return -value, -np.concatenate([[by_variance], np.exp(-2 * theta[1:]) * by_lengths, by_xi])

    # From the best xi for the start: others send length scales to their bounds, where the gradient vanishes.
    xi = np.ones(len(X))
    for _ in range(100):
        xi = jaakkola_jordan_gradient(*matrices(theta), y, xi)[-1]
    result = minimize(
        negative,
        np.concatenate([theta, xi]),
        jac=True,
        method="L-BFGS-B",
        bounds=[*bounds, *[(None, None)] * len(X)],
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-14, "gtol": 1e-7, "maxcor": 50},
    )
    return -result.fun, result.x[:n_theta]


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


def twonorm(n, rng):
    """Breiman 1996: N(+-a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 20)) + np.where(y, 1, -1)[:, None] * 2 / np.sqrt(20), y


def ringnorm(n, rng):
    """Breiman 1996: N(0, 4 I) against N(a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 20))
    return np.where(y[:, None], X + 2 / np.sqrt(20), 2 * X), y


def waveform(n, rng):
    """Breiman et al. 1984: noisy mixtures of two of three triangular waves on 21 points; class 0 against the rest."""
    i = np.arange(1, 22)
    waves = np.array([np.maximum(6 - np.abs(i - centre), 0) for centre in (11, 15, 7)])
    pairs = np.array([(0, 1), (0, 2), (1, 2)])
    y = rng.integers(0, 3, n)
    u = rng.uniform(size=(n, 1))
    X = u * waves[pairs[y, 0]] + (1 - u) * waves[pairs[y, 1]] + rng.normal(size=(n, 21))
    return X, (y == 0).astype(int)
