"""Draws of latent functions from a posterior.

Exact: mean + S e with a factor S S^T of the joint covariance and e ~ N(0, I); O(n^3). Pathwise (Matheron's rule): a
draw f of the prior, which is a sum of random cosines, becomes one of the posterior. With points Z and q's mean alpha.k
and covariances k(x, x') - (E k).(E k') + (A k).(A k'), k = k(Z, x) (``CovarianceForm``), it is

    f(x) + k(x, Z) (alpha - E^T E (f(Z) + e) + A^T g),    g ~ N(0, I),

in O(n). The normal noise e has such a variance that the covariance of E (f(Z) + e) is the identity. For inducing points
e is the noise of the jitter, and the formula is f(x) + k(x, Z) K_mm^{-1} (u - f(Z) - e) with u ~ q(u). For a full
process e is the noise of the sites. Each draw has frequencies of its own: mean, covariance and, without a DotProduct in
a product, the distribution at a single row are then exact for any number of cosines, and the values at several rows are
nearly normal together.

References
----------
Wilson, Borovitskiy, Terenin, Mostowsky, Deisenroth. Efficiently sampling functions from Gaussian process posteriors.
ICML 2020, equations (12) and (13); there all draws share frequencies.
Rahimi, Recht. Random features for large-scale kernel machines. NIPS 2007, theorem in section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from .._kernels import InducingKernel
from ..kernels.spec import KernelSpec
from ..rows.blas import single_threaded_blas
from ..rows.executor import on_threads, parts_of
from .base import KernelPosterior
from .local import Posterior

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
        values[(*c, pivots - 1)] = np.tril(factor[:, :rank]) @ random.standard_normal((rank, n_draws))
    return values + mean[..., None] if n else values


@dataclass(frozen=True)
class Cosines:
    """Functions, each a sum of amplitude * cos(frequency . x + phase), times linear functions slope . x + offset."""

    frequency: np.ndarray  # (n_draws, F, d)
    phase: np.ndarray  # (n_draws, F)
    amplitude: np.ndarray
    slopes: np.ndarray  # (n_draws, L, F, d)
    offsets: np.ndarray  # (n_draws, L, F)

    def _parts(self, X: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Of each draw the angles (r, F), frequencies and amplitudes, and linear functions (L, r, F) and slopes."""
        for frequency, phase, amplitude, slopes, offsets in zip(*vars(self).values(), strict=True):
            linear = X @ np.swapaxes(slopes, 1, 2) + offsets[:, None]
            angle = X @ frequency.T
            angle += phase
            yield angle, frequency, amplitude, linear, slopes

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Values (n_draws, r) at the rows of X (r, d)."""
        values = np.empty((len(self.phase), len(X)))
        for value, (angle, _, amplitude, linear, _) in zip(values, self._parts(X), strict=True):
            waves = np.cos(angle, out=angle)
            for factor in linear:
                waves *= factor
            value[:] = waves @ amplitude
        return values

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Gradients (n_draws, r, d) by the rows."""
        values = np.empty((len(self.phase), *X.shape))
        for value, (angle, frequency, amplitude, linear, slopes) in zip(values, self._parts(X), strict=True):
            value[:] = -(np.sin(angle) * amplitude * np.prod(linear, axis=0)) @ frequency
            for i, slope in enumerate(slopes):
                value += (np.cos(angle) * amplitude * np.prod(np.delete(linear, i, axis=0), axis=0)) @ slope
        return values


def prior_draws(spec: KernelSpec, n_draws: int, random: np.random.RandomState) -> list[Cosines]:
    """Draws from the prior of a kernel without its white noise, as a sum over its terms.

    The frequencies of a product are sums of those of its factors: its spectrum is their convolution. A factor
    sigma_0^2 + x.z is the covariance of a linear function, another one for each cosine.
    """
    size, d, terms = (n_draws, N_COSINES), spec.n_features, []
    for variance, factors in spec.latent_terms():
        frequency, linear = np.zeros((*size, d)), []
        for leaf, shape, length_scale in factors:
            if leaf.factor.spectrum is None:
                linear.append((shape, leaf.places >= 0))
            else:
                frequency += leaf.factor.spectrum(leaf.kernel, shape, random, (*size, d)) / length_scale
        # Phase and amplitude of a cos + b sin with a, b ~ N(0, variance / N_COSINES).
        phase = random.uniform(0.0, 2.0 * np.pi, size)
        amplitude = np.sqrt(2.0 * variance / N_COSINES * random.standard_exponential(size))
        if linear and len(linear) == len(factors):
            # The sum of linear functions is one, and normal.
            phase, amplitude = np.zeros(size), np.full(size, np.sqrt(variance / N_COSINES))
        slopes, offsets = np.empty((n_draws, len(linear), N_COSINES, d)), np.empty((n_draws, len(linear), N_COSINES))
        for i, (sigma_0, is_seen) in enumerate(linear):
            slopes[:, i] = random.standard_normal((*size, d)) * is_seen
            offsets[:, i] = sigma_0 * random.standard_normal(size)
        terms.append(Cosines(frequency, phase, amplitude, slopes, offsets))
    return terms


def pathwise_obstacle(q: Posterior) -> str:
    """Why a posterior has no pathwise draws; empty if it has."""
    if q.n_neighbors:
        return "is not for models with neighbours (n_neighbors_ above 0)"
    for group in q.prior.groups:
        if group.spec.not_compiled:
            return f"is for compiled kernels; {group.spec.kernel} is called, because {group.spec.not_compiled}"
    return ""


@dataclass(frozen=True)
class Paths:
    """Draws of a latent function: draws of its prior, and weights (n_draws, m) of the covariances with points."""

    first: list[Cosines]  # whose sum is the draw of the prior
    weights: np.ndarray
    core: InducingKernel

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Values (n_draws, r) at the rows of X (r, d)."""
        return sum(cosines(X) for cosines in self.first) + self.weights @ self.core.cross(X).T

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Gradients (n_draws, r, d) by the rows."""
        G = np.repeat(self.weights[..., None], len(X), axis=2)
        return sum(cosines.gradient(X) for cosines in self.first) + self.core.row_gradients(X, G)


def drawn_paths(q: KernelPosterior, n_draws: int, random: np.random.RandomState) -> Iterator[tuple[int, slice, Paths]]:
    """Draws of each latent function, a few at a time: its number, and which of its draws these are."""
    each = zip(q.groups, q.covariance_forms(), q.path_deviations(), strict=True)
    for c, (prior, form, deviation) in enumerate(each):
        for part in parts_of(n_draws, DRAWS):
            first = prior_draws(prior.spec, part.stop - part.start, random)
            at_points = np.sum([cosines(prior.Z) for cosines in first], axis=0)
            at_points += deviation * random.standard_normal(at_points.shape)
            weights = form.weights - (at_points @ form.explained.T) @ form.explained
            weights += random.standard_normal((len(weights), len(form.added))) @ form.added
            yield c, part, Paths(first, weights, prior.core)


def pathwise_draws(
    q: KernelPosterior, X: np.ndarray, n_draws: int, random: np.random.RandomState, n_jobs: int | None
) -> np.ndarray:
    """Draws (n, n_draws) or (C, n, n_draws) at the rows of X (n, d); O(C n n_draws (F d + m)), F = ``N_COSINES``.

    A white kernel's noise is drawn for each row and draw. The same bits for any ``n_jobs``.
    """
    X, values = np.asarray(X, dtype=np.float64), np.empty((len(q.groups), len(X), n_draws))
    parts = [X[part] for part in parts_of(len(X)) or [slice(0)]]
    with single_threaded_blas():
        for c, draws, paths in drawn_paths(q, n_draws, random):
            values[c, :, draws] = np.concatenate(on_threads(n_jobs)(paths, parts), axis=1).T
    for value, prior in zip(values, q.groups, strict=True):
        _, variance = prior.core.parts_of_diagonal(X)
        if np.any(variance):
            value += np.sqrt(variance)[:, None] * random.standard_normal(value.shape)
    return values.reshape(*q.shape, len(X), n_draws)
