"""Markov chains whose distribution is the exact posterior of the logit Gaussian process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ..approximations.sparse import SparsePrior
from ..kernels.spec import KernelSpec

# (c (n,), generator) -> draws (n,) from PG(1, c)
PolyaGamma = Callable[[np.ndarray, np.random.Generator], np.ndarray]
# Chains start apart, for R-hat: with so many times the standard deviation of the normal approximation.
DISPERSION = 1.5


class Whitening:
    """The prior in independent coordinates: f(x) = a(x) . z + e, with z ~ N(0, I) (r,) and independent e ~ N(0, k).

    If ``full``, Z (m, d) are the distinct rows, and a(x) = D^{-1/2} V^T k(Z, x) with the eigenvectors V and eigenvalues
    D of K. Eigenvalues that are rounding errors are left out; there is no jitter, which would swamp a small part of a
    kernel. Otherwise Z are inducing points, and a(x) = L^{-1} k(Z, x) with K_mm = L L^T; k is the rest of the variance,
    without correlations: FITC (Snelson & Ghahramani 2006, equation (7)).
    """

    def __init__(self, spec: KernelSpec, Z: np.ndarray, full: bool):
        self.kernel, self.Z = spec.kernel, Z
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
            # The jitter is relative to the mean diagonal of L L^T.
            self._rounding = prior.jitter * np.sum(prior.L**2) / len(Z)

    def rows(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a (n, r) and k (n,) for the rows of X (n, d); k includes white noise. O(n m (d + r))."""
        A = self._core.cross(X) @ self._map
        residual = self._core.diagonals(X) - np.einsum("ij,ij->i", A, A)
        residual[residual <= 2.0 * self._rounding] = 0.0
        return A, residual


class Model:
    """n rows with labels y of -1 or +1 and latent values f_i = a_i . z + e_i: A (n, r), and variances k (n,) of e."""

    def __init__(self, whitening: Whitening, X: np.ndarray, y: np.ndarray):
        self.y, self.whitening = y, whitening
        self.A, self.residual = whitening.rows(X)

    def log_likelihood(self, f: np.ndarray) -> np.ndarray:
        """log p(y | f), of shape (...), for f (n, ...)."""
        return -np.sum(np.logaddexp(0.0, -(f.T * self.y).T), axis=0)


class Conditional:
    """The normal distribution of z and f: the prior times exp(-precision_i f_i^2 / 2 + linear_i f_i) for each row.

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
        """Draw z (r, count), with ``scale`` times the standard deviation, and f (n, count) given z. O(n r) per draw."""
        noise = rng.standard_normal((len(self._mean), count))
        Z = self._mean[:, None] + scale * solve_triangular(self._root, noise, lower=True, trans=1, check_finite=False)
        F, residual = self.model.A @ Z, self.model.residual
        if np.any(residual):
            variance = (residual / (1.0 + self.precision * residual))[:, None]
            mean = variance * (self.linear[:, None] - self.precision[:, None] * F)
            F += mean + np.sqrt(variance) * rng.standard_normal(F.shape)
        return Z, F

    def steps(
        self, Z: np.ndarray, F: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Metropolis steps from z (r, 1) and f (n, 1) whose proposals are independent draws from this distribution.

        Returns the states z (r, 1 + count) and f (n, 1 + count), from the given one on, and the number of accepted
        proposals. The ratio of target and proposal density is that of the likelihood and the rows' factors, in O(n).
        """
        proposed, latent = self.draw(count, rng)
        Z, F = np.hstack([Z, proposed]), np.hstack([F, latent])
        log_weight = self.model.log_likelihood(F) - self.linear @ F + 0.5 * self.precision @ F**2
        log_uniform = np.log(rng.uniform(size=count))
        path = np.zeros(count + 1, dtype=np.intp)
        for step in range(1, count + 1):
            current = path[step - 1]
            path[step] = step if log_uniform[step - 1] < log_weight[step] - log_weight[current] else current
        return Z[:, path], F[:, path], int(np.count_nonzero(np.diff(path)))


class Chain:
    """A Markov chain: every ``thin``-th state z as a draw, with watched values, and sums over all states."""

    def __init__(
        self, proposals: Conditional, watched_rows: np.ndarray, seed: np.random.SeedSequence, n_samples: int, thin: int
    ) -> None:
        self._proposals, self._watched_rows, self._seed, self._thin = proposals, watched_rows, seed, thin
        self.whitening = proposals.model.whitening
        r = proposals.model.A.shape[1]
        self.draws, self.watched = np.empty((n_samples, r)), np.empty((n_samples, len(watched_rows) + 1))
        self.sum, self.squares = np.zeros(r), np.zeros((r, r))
        self.count = self.n_proposed = self.n_accepted = 0

    def run(self, n_warmup: int, n_proposals: int, polya_gamma: PolyaGamma, advance: Callable[[], bool]) -> Chain:
        """Run all sweeps: a Gibbs step, then ``n_proposals`` Metropolis steps, each of which makes a state.

        ``advance`` is called before each sweep, and ends the chain if it returns False.
        """
        model, rng = self._proposals.model, np.random.default_rng(self._seed)
        _, F = self._proposals.draw(1, rng, DISPERSION)
        n_states, n_sweeps = len(self.draws) * self._thin, 0
        while self.count < n_states and advance():
            # Given omega, a Polya-Gamma variable, y / (2 omega) is a normal observation of f with variance 1 / omega.
            omega = polya_gamma(F[:, -1], rng)
            Z, F = Conditional(model, omega, 0.5 * model.y).draw(1, rng)
            Z, F, n_accepted = self._proposals.steps(Z, F, n_proposals, rng)
            n_sweeps += 1
            if n_sweeps > n_warmup:
                self._add(Z[:, : n_states - self.count], F)
                self.n_proposed += n_proposals
                self.n_accepted += n_accepted
        return self

    def _add(self, Z: np.ndarray, F: np.ndarray) -> None:
        self.sum += np.sum(Z, axis=1)
        self.squares += Z @ Z.T
        number = self.count + 1 + np.arange(Z.shape[1])
        picked = np.flatnonzero(number % self._thin == 0)
        kept = number[picked] // self._thin - 1
        self.draws[kept] = Z[:, picked].T
        self.watched[kept, 0] = self._proposals.model.log_likelihood(F[:, picked])
        self.watched[kept, 1:] = F[np.ix_(self._watched_rows, picked)].T
        self.count += Z.shape[1]
