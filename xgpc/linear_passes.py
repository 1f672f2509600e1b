"""The linear model's prior, and passes over its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar

from ._engine import sites
from .blocks import BlockMap
from .posterior import SparsePosterior

# Most that one step changes log s^2: q is not at rest in the first of them.
LARGEST_MOVE = 2.0
# Columns of a triangular factor multiplied at a time: half the work of the whole, in products that are large enough.
PANEL = 128
# Density of a block of rows below which sparse products are faster than dense ones. Measured, times dense over sparse,
# at densities of .01, .05 and .1: 12, 1.6 and .6 with 500 features, 5, .7 and .4 with 2000.
SPARSE_BELOW = 0.03


@dataclass(frozen=True, eq=False)
class LinearPrior:
    """Coefficients beta = scale z with z ~ N(0, I).

    Attributes
    ----------
    scale : (D,) standard deviations: d times s, and last that of the intercept if there is one
    d : int, coefficients without the intercept
    low, high : float, range of log s^2; equal if s is given
    """

    scale: np.ndarray
    d: int
    low: float
    high: float

    @property
    def variance(self) -> float:
        return float(self.scale[0] ** 2)

    def of_dimension(self, d: int) -> LinearPrior:
        """The prior of d coefficients, at most as many, of the same variance."""
        return replace(self, scale=np.append(self.scale[:d], self.scale[self.d :]), d=d)

    def posterior(self, S: np.ndarray, h: np.ndarray) -> SparsePosterior:
        """q(z) from its sites' sums S = sum of lambda a a^T (lower triangle) and h = sum of r a; O(D^3)."""
        prior: Any = self
        q = SparsePosterior.from_natural(prior, np.eye(len(h)) + S, np.array(h))
        if q is None:
            raise ValueError("The posterior precision is not positive definite; give moderate sample weights.")
        return q

    def moved(self, log_t: float) -> tuple[LinearPrior, np.ndarray]:
        """The prior with exp(log_t) times s^2, and the factors (D + 1, D) that take rows (S, h) of any sites there."""
        t = np.ones(len(self.scale))
        t[: self.d] = np.exp(0.5 * log_t)
        return replace(self, scale=self.scale * t), np.vstack([np.outer(t, t), t])

    def best_move(self, S: np.ndarray, h: np.ndarray) -> tuple[float, float]:
        """log_t = log(s_new^2 / s^2) of most evidence with the sites as they are, and its gain in nats.

        Sites are normal densities. Let C and k be S and h with the intercept integrated out: the log evidence

            J(t) = (t k^T (I + t C)^{-1} k - log |I + t C|) / 2 + constant

        takes O(d) with the eigenvalues of C. At t = 1 its derivative by log t is that of the bound by log s^2 at fixed
        q(beta), (|w|^2 + tr P^{-1} - d) / 2 over the d coefficients: where such moves and the updates of q both rest,
        the bound maximised over q is stationary. Under conjugate bounds (polya-gamma, augmented) every move raises it.
        """
        if self.low == self.high:
            return 0.0, 0.0
        d, C, k = self.d, S[: self.d, : self.d], h[: self.d]
        if len(h) > d:
            C, k = C - np.outer(S[d, :d], S[d, :d]) / (1.0 + S[d, d]), k - S[d, :d] * (h[d] / (1.0 + S[d, d]))
        eigenvalues, vectors = np.linalg.eigh(C)
        eigenvalues, squares = np.maximum(eigenvalues, 0.0), (vectors.T @ k) ** 2

        def loss(log_t):
            t = np.exp(log_t)
            return 0.5 * float(np.sum(np.log1p(t * eigenvalues) - t * squares / (1.0 + t * eigenvalues)))

        here = np.log(self.variance)
        bounds = np.clip([min(self.low - here, 0.0), max(self.high - here, 0.0)], -LARGEST_MOVE, LARGEST_MOVE)
        found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-7})
        return float(found.x), loss(0.0) - float(found.fun)


def whitened(X: Any, prior: LinearPrior) -> Any:
    """Rows a_i = scale (x_i, 1) as an array (b, D), or CSR if X (b, d) is sparse enough."""
    if sparse.issparse(X) and X.nnz < SPARSE_BELOW * X.shape[0] * X.shape[1]:
        ones = np.ones((X.shape[0], len(prior.scale) - prior.d))
        a = sparse.hstack([sparse.csr_array(X), ones], format="csr", dtype=np.float64)
        return a @ sparse.diags_array(prior.scale, format="csr")
    a = np.empty((X.shape[0], len(prior.scale)))
    np.multiply(X.toarray() if sparse.issparse(X) else X, prior.scale[: prior.d], out=a[:, : prior.d])
    a[:, prior.d :] = prior.scale[prior.d :]
    return a


def marginals(a: Any, q: SparsePosterior) -> tuple[np.ndarray, np.ndarray]:
    """Means a_i . w and variances |R^{-1} a_i|^2 of whitened rows (b, D)."""
    variance = np.zeros(a.shape[0])
    panel = len(q.w) if sparse.issparse(a) else PANEL
    for start in range(0, len(q.w), panel):
        stop = min(start + panel, len(q.w))
        b = a[:, :stop] @ q.Rinv[start:stop, :stop].T
        variance += np.einsum("ij,ij->i", b, b)
    return a @ q.w, variance


class LinearPasses:
    """Passes over the rows of X, an (n, d) array or CSR, in blocks; what ``coordinate_ascent`` needs of ``Passes``.

    Blocks of sparse rows are made dense but where they are very sparse.
    """

    def __init__(self, X: Any, y: np.ndarray, weight: np.ndarray | None, n_jobs: int | None):
        self.X, self.y, self.n_jobs = X, y, n_jobs
        self.weight = np.empty(0) if weight is None else weight
        self.precision, self.variance = np.zeros((2, len(y)))
        self.target: tuple[np.ndarray, np.ndarray]

    def update(self, q: SparsePosterior, site: Any) -> tuple[float, np.ndarray, np.ndarray]:
        """Sum of ell, and natural parameters (P, h) of the unit step from q; O(n D^2)."""
        D = len(q.w)
        total, P, h = 0.0, np.eye(D), np.zeros(D)
        with BlockMap(len(self.y), D, D, self.n_jobs) as blocks:
            for ell, S, s in blocks(lambda start, stop, work: self.statistics(slice(start, stop), q, site)):
                total += ell
                P += S
                h += s
        self.target = P, h
        return total, P, h

    def statistics(self, rows: Any, q: Any, site: Any) -> tuple[float, np.ndarray, np.ndarray]:
        """Sums of ell, lambda a a^T and r a over some rows: a slice or indices."""
        a = whitened(self.X[rows], q.prior)
        mean, variance = marginals(a, q)
        ell, precision, linear = np.empty((3, len(mean)))
        weight = self.weight[rows] if len(self.weight) else self.weight
        sites(site, mean, variance, self.y[rows], weight, ell, precision, linear)
        self.variance[rows], self.precision[rows] = variance, precision
        if sparse.issparse(a):
            S = (a.T @ a.multiply(precision[:, None])).toarray()
            return float(np.sum(ell)), S, a.T @ linear
        h = linear @ a
        a *= np.sqrt(precision)[:, None]
        return float(np.sum(ell)), a.T @ a, h
