"""Draws of latent functions from a posterior: jointly at some rows, or as functions that any rows can be put into.

Exact: mean + S e with a factor S S^T of the joint covariance and e ~ N(0, I); O(n^3).

Pathwise (Matheron's rule): a draw f of the prior becomes one of the posterior by what inducing values drawn from q have
other than its own,

    f(x) + k(x, Z) K_mm^{-1} (u - f(Z) - e),    u ~ q(u),  e ~ N(0, jitter),

which has the posterior's mean and covariance exactly if f has the prior's; O(n). f is a sum of random cosines. Each
draw has frequencies of its own: its mean and covariance are then the prior's for any number of cosines, and at a single
row it is normal. Together the values at several rows are nearly normal.

References
----------
Wilson, Borovitskiy, Terenin, Mostowsky, Deisenroth. Efficiently sampling functions from Gaussian process posteriors.
ICML 2020, equations (12) and (13); there all draws share frequencies.
Rahimi, Recht. Random features for large-scale kernel machines. NIPS 2007, theorem in section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from .._kernels import InducingKernel
from ..kernels.spec import KernelSpec
from ..rows.blas import single_threaded_blas
from ..rows.block import Block
from ..rows.executor import Cost, Threads
from ..rows.source import ArraySource
from .sparse import SparsePosterior, SparsePrior

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


@dataclass(frozen=True, eq=False)
class PriorDraws:
    """Draws of functions, sums of amplitude * cos(frequency . x + phase).

    Attributes
    ----------
    frequency : (n_draws, F, d)
    phase, amplitude : (n_draws, F)
    """

    frequency: np.ndarray
    phase: np.ndarray
    amplitude: np.ndarray

    def at(self, X: np.ndarray) -> np.ndarray:
        """Values (n_draws, r) at the rows of X (r, d)."""
        values = np.empty((len(self.phase), len(X)))
        for s, (frequency, phase, amplitude) in enumerate(zip(self.frequency, self.phase, self.amplitude, strict=True)):
            angle = X @ frequency.T
            angle += phase
            values[s] = np.cos(angle, out=angle) @ amplitude
        return values


def prior_draws(spec: KernelSpec, n_draws: int, random: np.random.RandomState) -> PriorDraws:
    """Draws from the prior of a kernel, whose terms have spectra, without its white noise.

    The frequencies of a product are sums of those of its factors: its spectrum is their convolution.
    """
    size, d = (n_draws, N_COSINES), spec.n_features
    frequencies, phases, amplitudes = [], [], []
    for term in spec.without_noise().terms:
        frequency = np.zeros((*size, d))
        for draw, length_scale in spec.spectrum(term) or []:
            tau = draw(random, size)
            frequency += np.sqrt(tau)[..., None] * random.standard_normal((*size, d)) / length_scale
        frequencies.append(frequency)
        # Of a cos + b sin with a, b ~ N(0, variance / N_COSINES).
        phases.append(random.uniform(0.0, 2.0 * np.pi, size))
        amplitudes.append(np.sqrt(2.0 * spec.variance(term) / N_COSINES * random.standard_exponential(size)))
    return PriorDraws(*(np.concatenate(values, axis=1) for values in (frequencies, phases, amplitudes)))


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Draws of a latent function, without noise.

    Attributes
    ----------
    first : PriorDraws
    core : the compiled kernel at the inducing points
    weights : (n_draws, m), of k(x, Z)
    """

    first: PriorDraws
    core: InducingKernel
    weights: np.ndarray

    @property
    def cost(self) -> Cost:
        # A cosine counts as ten multiply-adds.
        return Cost(float(self.first.phase.size * (self.core.n_features + 10) + self.weights.size), len(self.weights))


def values_of(block: Block, state: PosteriorDraws) -> np.ndarray:
    """Values (n_draws, rows) at the rows of a block."""
    X = np.asarray(block.X, dtype=np.float64)
    return state.first.at(X) + state.weights @ state.core.cross(X).T


def posterior_draws(
    prior: SparsePrior, Rinv: np.ndarray, w: np.ndarray, n_draws: int, random: np.random.RandomState
) -> PosteriorDraws:
    """Draws of a latent function with q(z) = N(w, Rinv^T Rinv); O(n_draws m (F d + m))."""
    first = prior_draws(prior.spec, n_draws, random)
    # K_mm = k(Z, Z) + jitter times its mean diagonal.
    noise = np.mean(np.sum(prior.L**2, axis=1)) * prior.jitter / (1.0 + prior.jitter)
    at_points = first.at(prior.Z) + np.sqrt(noise) * random.standard_normal((n_draws, len(w)))
    z = w + random.standard_normal((n_draws, len(w))) @ Rinv
    return PosteriorDraws(first, prior.core, (z - at_points @ prior.Linv.T) @ prior.Linv)


def pathwise_obstacle(q: Any) -> str:
    """Why there are no pathwise draws of a posterior, if so."""
    if not isinstance(q, SparsePosterior):
        return "is for inducing points: not for neighbours (n_neighbors_ above 0), nor for inducing_points='all'"
    for group in q.prior.groups:
        if any(group.spec.spectrum(term) is None for term in group.spec.without_noise().terms):
            return f"is for sums and products of RBF, Matern and RationalQuadratic; the kernel is {group.spec.kernel}"
    return ""


def pathwise_draws(
    q: SparsePosterior, X: np.ndarray, n_draws: int, random: np.random.RandomState, n_jobs: int | None
) -> np.ndarray:
    """Draws (n, n_draws) or (C, n, n_draws) at the rows of X (n, d); O(C n n_draws (F d + m)), F = ``N_COSINES``.

    A white kernel's noise is drawn for each row and draw. The same bits for any ``n_jobs``.
    """
    Rinv, w = q.stacked()
    priors = q.prior.groups if len(q.prior.groups) > 1 else q.prior.groups * len(w)
    source = ArraySource(X, cache_bytes=0)
    values = np.empty((len(w), len(X), n_draws))
    with single_threaded_blas(), Threads(n_jobs) as executor:
        for c, prior in enumerate(priors):
            for start in range(0, n_draws, DRAWS):
                part = slice(start, min(n_draws, start + DRAWS))
                state = posterior_draws(prior, Rinv[c], w[c], part.stop - part.start, random)
                for block, drawn in zip(source.blocks(), executor.map(values_of, source, state), strict=True):
                    values[c, block.rows, part] = drawn.T
            variance = prior.spec.noise_alone().at(prior.Z[:1]).diagonals(X)
            if np.any(variance):
                values[c] += np.sqrt(variance)[:, None] * random.standard_normal(values[c].shape)
    return values.reshape(*q.shape, len(X), n_draws)
