"""Draws of latent functions from a posterior.

Exact: mean + S e with a factor S S^T of the joint covariance and e ~ N(0, I); O(n^3). Pathwise (Matheron's rule): a
draw f of the prior, which is a sum of random cosines, becomes one of the posterior,

    f(x) + k(x, Z) K_mm^{-1} (u - f(Z) - e),    u ~ q(u),  e ~ N(0, jitter),

in O(n). Each draw has frequencies of its own: mean, covariance and the distribution at a single row are then exact for
any number of cosines, and several rows together are nearly normal.

References
----------
Wilson, Borovitskiy, Terenin, Mostowsky, Deisenroth. Efficiently sampling functions from Gaussian process posteriors.
ICML 2020, equations (12) and (13); there all draws share frequencies.
Rahimi, Recht. Random features for large-scale kernel machines. NIPS 2007, theorem in section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import lapack

from .._kernels import InducingKernel
from ..kernels.factors import FACTORS
from ..kernels.spec import KernelSpec
from ..rows.blas import single_threaded_blas
from ..rows.executor import Threads, parts_of
from .base import Posterior, noise_variances
from .sparse import SparsePosterior

# Cosines of a term of the kernel in each draw. Given its frequencies a draw is normal, with correlations that differ
# from the kernel's by 1 / sqrt(2 N_COSINES) = .03 at most, in standard deviations.
N_COSINES = 512
# Draws made in a pass over the rows: their frequencies are N_COSINES * d numbers each.
DRAWS = 16


def exact_draws(mean: np.ndarray, covariance: np.ndarray, n_draws: int, random: np.random.RandomState) -> np.ndarray:
    """Draws (..., n, n_draws) from N(mean, covariance), (..., n) and (..., n, n) of independent functions; O(n^3).

    Equal rows and other singular covariances need no jitter: the factor is a pivoted Cholesky one.
    """
    n = mean.shape[-1]
    values = np.empty((*mean.shape, n_draws))
    for c in np.ndindex(mean.shape[:-1]):
        factor, pivots, rank, _ = lapack.dpstrf(covariance[c].T, lower=1)
        lower = np.tril(factor[:, :rank])
        values[(*c, pivots - 1)] = lower @ random.standard_normal((rank, n_draws))
    return values + mean[..., None] if n else values


@dataclass(frozen=True)
class Cosines:
    """Functions, each a sum of amplitude * cos(frequency . x + phase)."""

    frequency: np.ndarray  # (n_draws, F, d)
    phase: np.ndarray  # (n_draws, F)
    amplitude: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Values (n_draws, r) at the rows of X (r, d)."""
        values = np.empty((len(self.phase), len(X)))
        for s, (frequency, phase, amplitude) in enumerate(zip(*vars(self).values(), strict=True)):
            angle = X @ frequency.T
            angle += phase
            values[s] = np.cos(angle, out=angle) @ amplitude
        return values

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Gradients (n_draws, r, d) by the rows."""
        values = np.empty((len(self.phase), *X.shape))
        for s, (frequency, phase, amplitude) in enumerate(zip(*vars(self).values(), strict=True)):
            values[s] = -(np.sin(X @ frequency.T + phase) * amplitude) @ frequency
        return values


def prior_draws(spec: KernelSpec, n_draws: int, random: np.random.RandomState) -> Cosines:
    """Draws from the prior of a kernel, whose terms have spectra, without its white noise.

    The frequencies of a product are sums of those of its factors: its spectrum is their convolution.
    """
    size, d = (n_draws, N_COSINES), spec.n_features
    frequencies, phases, amplitudes = [], [], []
    for term in spec.without_noise().terms:
        frequency = np.zeros((*size, d))
        for draw, length_scale in spec.spectrum(term) or []:
            tau = draw(random, (*size, d))
            frequency += np.sqrt(tau) * random.standard_normal((*size, d)) / length_scale
        frequencies.append(frequency)
        # Of a cos + b sin with a, b ~ N(0, variance / N_COSINES).
        phases.append(random.uniform(0.0, 2.0 * np.pi, size))
        amplitudes.append(np.sqrt(2.0 * spec.variance(term) / N_COSINES * random.standard_exponential(size)))
    return Cosines(*(np.concatenate(parts, axis=1) for parts in (frequencies, phases, amplitudes)))


def pathwise_obstacle(q: Posterior) -> str:
    """Why there are no pathwise draws of a posterior, if so."""
    if not isinstance(q, SparsePosterior):
        return "is for inducing points: not for neighbours (n_neighbors_ above 0), nor for inducing_points='all'"
    for group in q.prior.groups:
        if group.spec.not_compiled or any(
            group.spec.spectrum(term) is None for term in group.spec.without_noise().terms
        ):
            known = ", ".join(kind.__name__ for kind, factor in FACTORS.items() if factor.mixing is not None)
            return f"is for sums and products of {known}; the kernel is {group.spec.kernel}"
    return ""


@dataclass(frozen=True)
class Paths:
    """Draws of a latent function: draws of its prior, and weights (n_draws, m) of the covariances with points."""

    first: Cosines
    weights: np.ndarray
    core: InducingKernel

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Values (n_draws, r) at the rows of X (r, d)."""
        return self.first(X) + self.weights @ self.core.cross(X).T

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Gradients (n_draws, r, d) by the rows."""
        G = np.repeat(self.weights[..., None], len(X), axis=2)
        return self.first.gradient(X) + self.core.row_gradients(X, G)


def drawn_paths(
    q: SparsePosterior, c: int, n_draws: int, random: np.random.RandomState
) -> Iterator[tuple[slice, Paths]]:
    """Draws of latent function c, a few at a time, and which of all these are."""
    prior, (Rinv, w) = q.groups[c], (each[c] for each in q.stacked())
    for start in range(0, n_draws, DRAWS):
        first = prior_draws(prior.spec, min(DRAWS, n_draws - start), random)
        # K_mm = k(Z, Z) + jitter times its mean diagonal.
        noise = np.mean(np.sum(prior.L**2, axis=1)) * prior.jitter / (1.0 + prior.jitter)
        at_points = first(prior.Z)
        at_points += np.sqrt(noise) * random.standard_normal(at_points.shape)
        z = w + random.standard_normal(at_points.shape) @ Rinv
        weights = (z - at_points @ prior.Linv.T) @ prior.Linv
        yield slice(start, start + len(weights)), Paths(first, weights, prior.core)


def pathwise_draws(
    q: SparsePosterior, X: np.ndarray, n_draws: int, random: np.random.RandomState, n_jobs: int | None
) -> np.ndarray:
    """Draws (n, n_draws) or (C, n, n_draws) at the rows of X (n, d); O(C n n_draws (F d + m)), F = ``N_COSINES``.

    A white kernel's noise is drawn for each row and draw. The same bits for any ``n_jobs``.
    """
    X, values = np.asarray(X, dtype=np.float64), np.empty((len(q.groups), len(X), n_draws))

    def fill(paths: Paths, found: np.ndarray, part: slice) -> None:
        found[part] = paths(X[part]).T

    with single_threaded_blas(), Threads(n_jobs) as executor:
        for c, prior in enumerate(q.groups):
            for draws, paths in drawn_paths(q, c, n_draws, random):
                executor.each(partial(fill, paths, values[c, :, draws]), parts_of(len(X)))
            variance = noise_variances(prior, X)
            if np.any(variance):
                values[c] += np.sqrt(variance)[:, None] * random.standard_normal(values[c].shape)
    return values.reshape(*q.shape, len(X), n_draws)
