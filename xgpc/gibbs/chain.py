"""Steps of a Markov chain whose distribution is the exact posterior of the logit Gaussian process."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ..approximations.sparse import SparsePrior
from ..kernels.spec import KernelSpec


class Whitening:
    """The prior in independent coordinates: f(x) = a(x) . z + e, z ~ N(0, I) (r,), e ~ N(0, k) independent.

    "all" rows: a(x) = D^{-1/2} V^T k(X, x) with the eigenvectors V and eigenvalues D of K. No jitter is added, which
    would swamp a small part of a kernel next to a large one: eigenvalues that are rounding errors are left out. At
    inducing points Z: a(x) = L^{-1} k(Z, x), K_mm = L L^T; what they leave of the variance is k, whose correlations are
    dropped: the prior of the fully independent training conditional (Snelson & Ghahramani 2006, equation (7)).

    Parameters
    ----------
    spec : KernelSpec
    Z : (m, d) inducing points or distinct rows
    full : bool, whether they are the rows
    """

    def __init__(self, spec: KernelSpec, Z: np.ndarray, full: bool):
        if full:
            self._core = spec.at(Z)
            K = self._core.cross(Z)
            values, vectors = np.linalg.eigh(0.5 * (K + K.T))
            self._rounding = len(K) * np.finfo(float).eps * values[-1]
            large = values > self._rounding
            self._map = vectors[:, large] / np.sqrt(values[large])
        else:
            prior = SparsePrior.build(spec, Z)
            self._core, self._map = prior.core, prior.Linv.T
            # The mean diagonal that the jitter is relative to is a sum of squares of L.
            self._rounding = prior.jitter * np.sum(prior.L**2) / len(Z)

    def rows(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a (n, r) and k (n,), a white kernel's noise included, of the rows of X (n, d); O(n m (d + r))."""
        A = self._core.cross(X) @ self._map
        residual = self._core.diagonals(X) - np.einsum("ij,ij->i", A, A)
        residual[residual <= 2.0 * self._rounding] = 0.0
        return A, residual


class Model:
    """Labels of n rows with f_i = a_i . z + e_i.

    Attributes
    ----------
    A : (n, r), residual : (n,) k
    y : (n,) -1 or +1
    whitening : Whitening, which makes them of rows
    """

    def __init__(self, whitening: Whitening, X: np.ndarray, y: np.ndarray):
        self.y, self.whitening = y, whitening
        self.A, self.residual = whitening.rows(X)
        n, r = self.A.shape
        # Multiply-adds of a draw of z given omega, from n pseudo-observations or from r natural parameters.
        self._from_rows = n**3 / 6 < n * r**2 + r**3 / 6
        self._gram = self.A @ self.A.T if self._from_rows else None

    def draw(self, omega: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """z (r,) and e (n,) given Polya-Gamma variables.

        omega makes f_i a normal observation of y_i / (2 omega_i) with variance 1 / omega_i. From the rows by Matheron's
        rule, z = z_0 + A^T (A A^T + D)^{-1} (y / (2 omega) - A z_0 - eps), eps ~ N(0, D), D = diag(k + 1 / omega), in
        O(n^3), or as ``Conditional`` in O(n r^2).
        """
        if self._gram is None:
            Z, E = Conditional(self, omega, 0.5 * self.y).draw(1, rng)
            return Z[:, 0], E[:, 0]
        n, m = self.A.shape
        noise = self.residual + 1.0 / omega
        start = rng.standard_normal(m)
        S = self._gram.copy()
        S.ravel()[:: n + 1] += noise
        difference = 0.5 * self.y / omega - self.A @ start - np.sqrt(noise) * rng.standard_normal(n)
        z = start + self.A.T @ cho_solve((np.linalg.cholesky(S), True), difference, check_finite=False)
        return z, self.draw_residual((self.A @ z)[:, None], omega, 0.5 * self.y, rng)[:, 0]

    def draw_residual(
        self, g: np.ndarray, precision: np.ndarray, linear: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """e (n, count) given g = A z (n, count) and the rows' factors exp(-precision f^2 / 2 + linear f)."""
        if not np.any(self.residual):
            return np.zeros_like(g)
        variance = (self.residual / (1.0 + precision * self.residual))[:, None]
        mean = variance * (linear[:, None] - precision[:, None] * g)
        return mean + np.sqrt(variance) * rng.standard_normal(g.shape)

    def log_likelihood(self, f: np.ndarray) -> np.ndarray:
        """log p(y | f), (...) for f (n, ...)."""
        return -np.sum(np.logaddexp(0.0, -(f.T * self.y).T), axis=0)


class Conditional:
    """The prior times a factor exp(-precision f_i^2 / 2 + linear f_i) for each row: a normal distribution of z and e.

    With e integrated out, z ~ N(P^{-1} h, P^{-1}), P = I + sum_i precision_i / (1 + precision_i k_i) a_i a_i^T and
    h = sum_i linear_i / (1 + precision_i k_i) a_i. O(n r^2).
    """

    def __init__(self, model: Model, precision: np.ndarray, linear: np.ndarray):
        self.model, self.precision, self.linear = model, precision, linear
        shrink = 1.0 / (1.0 + precision * model.residual)
        P = model.A.T @ ((precision * shrink)[:, None] * model.A)
        P.ravel()[:: len(P) + 1] += 1.0
        self._root = np.linalg.cholesky(P)
        self._mean = cho_solve((self._root, True), model.A.T @ (linear * shrink), check_finite=False)

    def draw(self, count: int, rng: np.random.Generator, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """z (r, count), of ``scale`` times the standard deviation, and e (n, count) given it; O(n r) each."""
        noise = rng.standard_normal((len(self._mean), count))
        Z = self._mean[:, None] + scale * solve_triangular(self._root, noise, lower=True, trans=1, check_finite=False)
        return Z, self.model.draw_residual(self.model.A @ Z, self.precision, self.linear, rng)


class Proposals:
    """Metropolis steps whose proposals are independent draws from the variational posterior of the exact bound.

    Its sites make it the prior times a normal factor for each row: the ratio of posterior and proposal density is that
    of the likelihood and the factors, O(n) beyond f.
    """

    def __init__(self, model: Model, precision: np.ndarray, linear: np.ndarray):
        self.model, self.normal = model, Conditional(model, precision, linear)

    def log_weight(self, f: np.ndarray) -> np.ndarray:
        """log p(y | f) less the logarithms of the factors, (count,) for f (n, count)."""
        q = self.normal
        return self.model.log_likelihood(f) - q.linear @ f + 0.5 * q.precision @ f**2

    def steps(
        self, z: np.ndarray, e: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """States z (r, count), e and f (n, count) after each step from z and e, and how many were accepted."""
        proposed, residuals = self.normal.draw(count, rng)
        Z, E = np.column_stack([z, proposed]), np.column_stack([e, residuals])
        F = self.model.A @ Z + E
        log_weight = self.log_weight(F)
        log_uniform = np.log(rng.uniform(size=count))
        path = np.zeros(count + 1, dtype=np.intp)
        for step in range(1, count + 1):
            here = path[step - 1]
            path[step] = step if log_uniform[step - 1] < log_weight[step] - log_weight[here] else here
        accepted = int(np.count_nonzero(np.diff(path)))
        return Z[:, path[1:]], E[:, path[1:]], F[:, path[1:]], accepted
