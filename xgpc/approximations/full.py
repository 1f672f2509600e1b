"""The full Gaussian process: a latent value at every distinct training row, and no inducing points.

Learning uses it, too, where all rows are inducing points.

A white kernel's noise is no part of the latent function: it adds to the variance of each row's marginal. With
K = k(X, X) without noise, and sites of precision Lambda = diag(lambda) and linear terms r,

    q(f) = N(K alpha, K - K M K),  M = (K + Lambda^{-1})^{-1} = S B^{-1} S,  B = I + S K S,  S = Lambda^{1/2},

where B has no eigenvalue below 1 (Rasmussen & Williams 2006, section 3.4.3). Negative precisions are taken in
afterwards: with Sigma the covariance without them and T the root of their |Lambda|, M is less by N^T N, where
D D^T = I - T Sigma T has a Cholesky factor if and only if q exists, and N = D^{-1} T (I - K M) at their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import iadd
from typing import Self

import numpy as np

from .. import _engine
from .._kernels import InducingKernel, KernelGradient
from .._sites import Site
from ..kernels.spec import KernelSpec
from ..ranges import small_is_zero
from ..rows.blas import single_threaded_blas
from ..rows.block import Block
from ..rows.coinciding import first_of_each
from ..rows.executor import parts_of
from ..rows.source import ArraySource
from ..statistics import AnySites
from .base import (
    CompiledAscent,
    CovarianceForm,
    KernelPosterior,
    KernelPrior,
    Natural,
    SeparatePriors,
    Training,
    Value,
    groups_of_latents,
    new_key,
    read_only,
)

# Distinct rows: with more, the five (n, n) matrices that are alive at a time take 16 GB, and each update 10^13 flops.
MAX_ROWS = 20_000


def first_among(Z: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The number of the first row of Z (n, d) that each row of X (r, d) equals, (r,); n or more if none does."""
    return first_of_each(np.vstack([Z, X]), np.zeros(len(Z) + len(X)))[len(Z) :]


def places_among(Z: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Which of the distinct rows Z (n, d) each row of X (r, d) is equal to, (r,)."""
    places = first_among(Z, X)
    if np.any(places >= len(Z)):
        raise ValueError("A row is not in the training data: take FullPosterior.anywhere.")
    return places


class RowPrior(KernelPrior):
    """Latent functions by their values at distinct rows, which all groups share; sites of equal rows add up."""

    is_full = True

    def places(self, block: Block) -> np.ndarray:
        group = self.groups[0]
        return block.cache.made("places", group.key, lambda: places_among(group.Z, block.X))

    def work(self, n_latents: int) -> float:
        return 1.0

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        places, n = self.places(block), self.n_inducing
        return np.array([np.bincount(places, row, minlength=n) for row in values])

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> Natural:
        return self.sums(block, precision), self.sums(block, linear)

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        return np.take(w, self.places(block), axis=1)

    def posterior(self, natural: Natural) -> FullPosterior | None:
        """q from its sites; O(C n^3)."""
        each = zip(groups_of_latents(self, len(natural[0])), *natural, strict=True)
        solutions = [group.given_sites(precision, linear) for group, precision, linear in each]
        if None in solutions:
            return None
        factors, variance, mean, alpha = zip(*solutions, strict=True)
        return FullPosterior(self, *natural, factors, np.array(variance), np.array(mean), np.array(alpha))


class SeparateFullPriors(SeparatePriors, RowPrior):
    """A kernel of all rows for each latent function."""


@dataclass(frozen=True, eq=False)
class FactorsOfM(Value):
    """Factors of M = H^T H - N^T N, which a prior and the precisions of sites determine."""

    H: np.ndarray  # (n, n) lower triangular
    N: np.ndarray  # (r, n), a row for each negative precision
    half_log_det: float  # log |I + K Lambda| / 2

    def times(self, x: np.ndarray) -> np.ndarray:
        """M x."""
        return self.H.T @ (self.H @ x) - self.N.T @ (self.N @ x)


@dataclass(frozen=True, eq=False)
class FullPrior(RowPrior):
    """p(f) = N(0, K) at the distinct training rows, without a white kernel's noise."""

    spec: KernelSpec
    Z: np.ndarray  # (n, d) distinct training rows
    core: InducingKernel  # the compiled kernel at them
    K: np.ndarray  # (n, n) covariance matrix, without noise
    noise: np.ndarray  # (n,) variance of a white kernel at them, zeros without one
    key: str = field(repr=False)  # of the distinct rows in caches

    jitter, separate = 0.0, SeparateFullPriors

    @classmethod
    def build(cls, spec: KernelSpec, Z: np.ndarray, key: str = "") -> FullPrior:
        """The prior at rows Z, whose key in caches may be known; O(n^2 d)."""
        if len(Z) > MAX_ROWS:
            raise ValueError(
                f"A full Gaussian process takes O(n^3) time and O(n^2) memory: inducing_points='all' allows {MAX_ROWS} "
                f"distinct rows, got {len(Z)}. Take inducing points, of a GPClassifier by n_inducing=500, say."
            )
        core = spec.at(Z)
        covariance = _engine.full_covariance(core)
        if covariance is None:
            raise ValueError(
                f"The covariance matrix of the rows is not finite; kernel: {spec.kernel}. Scale the features, or give "
                "moderate kernel parameters."
            )
        return cls(spec, Z, core, *covariance, key or new_key())

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> FullPrior:
        return FullPrior.build(specs[0], Z, self.key if Z is self.Z or np.array_equal(Z, self.Z) else "")

    def gradient(self, training: Training, G: np.ndarray, by_noise: np.ndarray) -> KernelGradient:
        """The kernel's gradient from those by K, G (n, n), and by the noise of each row."""
        core, (n, d) = self.core, self.Z.shape

        def part_gradient(rows: slice) -> KernelGradient:
            part, work = KernelGradient.empty(core), _engine.workspace(rows.stop - rows.start, n, d)
            _engine.kernel_gradient(core, self.Z[rows], G[rows], by_noise[rows], work, part, is_noise=True)
            return part

        return reduce(iadd, training.executor.each(part_gradient, parts_of(n)))

    def given_sites(
        self, precision: np.ndarray, linear: np.ndarray
    ) -> tuple[FactorsOfM, np.ndarray, np.ndarray, np.ndarray] | None:
        """Factors of M, variance, mean and alpha (n,) of q with these sites (n,), or None if it is improper; O(n^3)."""
        solution = _engine.full_posterior(self.K, precision, linear)
        if solution is None:
            return None
        H, (variance, mean, alpha), half_log_det = solution
        N = np.empty((0, len(H)))
        negative = np.flatnonzero(precision < 0.0)
        if len(negative):
            T = np.sqrt(-precision[negative])
            rows = -(self.K[negative] @ H.T) @ H
            rows[np.arange(len(negative)), negative] += 1.0
            Sigma = rows @ self.K[:, negative]
            less = _engine.cholesky_and_inverse(np.eye(len(negative)) - T[:, None] * (0.5 * (Sigma + Sigma.T)) * T)
            if less is None:
                return None
            half_log_det += float(np.sum(np.log(np.diag(less[0]))))
            N = np.ascontiguousarray((less[1] * T) @ rows)
            added = N @ self.K
            variance += np.einsum("ij,ij->j", added, added)
            alpha += N.T @ (added @ linear)
            mean = self.K @ alpha
        return FactorsOfM(H, N, half_log_det), variance, mean, alpha


@dataclass(frozen=True, eq=False)
class FullPosterior(KernelPosterior):
    """q(f) = N(K alpha, K - K M K) of C independent latent functions, without noise.

    With ``is_anywhere`` blocks may have any rows, at O(n^2) each; at training rows the marginals differ by rounding.
    """

    prior: RowPrior
    precision: np.ndarray  # (C, n), with ``linear`` the sites of the distinct rows: natural parameters
    linear: np.ndarray
    factors: tuple[FactorsOfM, ...] = field(repr=False)  # one for each latent function
    variance: np.ndarray = field(repr=False)  # (C, n), without noise
    mean: np.ndarray = field(repr=False)  # (C, n), without noise
    alpha: np.ndarray = field(repr=False)  # (C, n), K^{-1} mean = r - Lambda mean
    is_anywhere: bool = False

    @cached_property
    def anywhere(self) -> FullPosterior:
        return replace(self, is_anywhere=True)

    @property
    def work(self) -> float:
        if not self.is_anywhere:
            return super().work
        n, d = self.groups[0].Z.shape
        return float(self.n_latents * n * (n + d))

    @property
    def eta(self) -> Natural:
        return self.precision, self.linear

    @property
    def mean_pair(self) -> Natural:
        return self.mean, self.alpha

    @cached_property
    def variance_with_noise(self) -> np.ndarray:
        return read_only(self.variance + np.array([group.noise for group in self.groups]))

    def block_marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        if not self.is_anywhere:
            return self.prior.products(block, self.mean), self.prior.products(block, self.variance_with_noise)
        X, forms, work = block.X, self.covariance_forms(), _engine.workspace(len(block), *self.groups[0].Z.shape)
        each = [_engine.full_marginals(form.core, X, form.explained, form.added, form.weights, work) for form in forms]
        mean, variance = np.stack(each, axis=1)
        return mean, variance

    def unexplained(self, block: Block) -> np.ndarray:
        return np.zeros((self.n_latents, len(block)))

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        return precision * self.mean

    def solve(self, residual: np.ndarray) -> Natural:
        """K alpha and alpha = (I - M K) residual, which is K^{-1} (K^{-1} + Lambda)^{-1} residual; O(C n^2)."""
        each = zip(self.groups, self.factors, residual, strict=True)
        alpha = [r - factor.times(group.K @ r) for group, factor, r in each]
        return np.array([group.K @ a for group, a in zip(self.groups, alpha, strict=True)]), np.array(alpha)

    def at_mean(self, mean: Natural) -> Self:
        """Linear terms K^{-1} mean + lambda mean; O(C n)."""
        value, alpha = mean
        return replace(self, linear=alpha + self.precision * value, mean=value, alpha=alpha)

    @cached_property
    def squared_norm(self) -> float:
        """mean^T K^{-1} mean of all latent functions."""
        return float(np.vdot(self.alpha, self.mean))

    @property
    def _half_log_det(self) -> float:
        return sum(factor.half_log_det for factor in self.factors)

    @cached_property
    @small_is_zero
    def kl(self) -> float:
        """KL(q || p) = (log |I + K Lambda| - sum_i lambda_i v_i + mean^T K^{-1} mean) / 2, in nats."""
        return self._half_log_det + 0.5 * (self.squared_norm - float(np.vdot(self.precision, self.variance)))

    def kl_to(self, other: Self, enough: float = np.inf) -> float:
        """O(C n)."""
        difference = other.mean - self.mean
        distance = np.vdot(other.alpha - self.alpha + other.precision * difference, difference)
        trace = np.vdot(other.precision - self.precision, self.variance)
        return float(0.5 * (trace + distance) + self._half_log_det - other._half_log_det)

    def first_order_gain(self, target: Natural, other: Self) -> float:
        """O(C n)."""
        missing = target[0] - self.precision
        by_mean = target[1] - self.linear - missing * self.mean
        linear = np.sum(by_mean * (other.mean - self.mean))
        return float(linear - 0.5 * np.sum(missing * (other.variance - self.variance)))

    def ascent(
        self, training: Training, site: Site, safe_site: Callable[[], Site] | None, tol: float, max_iter: int
    ) -> CompiledAscent | None:
        """For rows in one block, one latent function, and sites of positive precision that make a bound."""
        source, record, clock = training.source, site.record, training.executor.clock
        blocks = source.blocks() if isinstance(source, ArraySource) else []
        is_compiled = len(blocks) == 1 and record.has_quadratics and record.is_bound
        if not is_compiled or len(self.factors[0].N):
            return None
        (block,), (group,), (factor,) = blocks, self.prior.groups, self.factors
        of_rows = self.prior.places(block), site, safe_site, block.y, block.weight
        start = [self.precision, self.linear, self.variance, self.mean, self.alpha]
        clock.check()
        with single_threaded_blas():
            vectors, H, half_log_det, log_likelihood, elbo, n_iter, converged = _engine.full_ascent(
                group.K, group.noise, *of_rows, start, factor.H, factor.half_log_det, tol, max_iter, clock.has_passed
            )
        precision, linear, variance, mean, alpha, *target = vectors
        factors = FactorsOfM(H, factor.N, half_log_det)
        q = FullPosterior(self.prior, precision, linear, (factors,), variance, mean, alpha)
        return q, log_likelihood, (target[0], target[1]), elbo, n_iter, converged

    def gradient(self, training: Training, sites: AnySites, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        """dF/dK = (alpha alpha^T - M) / 2, and -lambda / 2 by the noise of each distinct row; the rows do not move.
        O(C n^3).
        """
        alphas, (precisions, _) = self.alpha, natural
        groups, gradients = self.prior.groups, []
        for g, group in enumerate(groups):
            latents = slice(None) if len(groups) == 1 else slice(g, g + 1)
            factors = self.factors[latents]
            G = _engine.gradient_by_covariance(alphas[latents], [factor.H for factor in factors])
            if of_negative := [0.5 * factor.N.T @ factor.N for factor in factors if len(factor.N)]:
                G += sum(of_negative)
            total = group.gradient(training, G, -0.5 * np.sum(precisions[latents], axis=0))
            gradients.append(group.spec.gradient(group.core, KernelGradient.empty(group.core), total)[0])
        return np.concatenate(gradients), np.zeros(self.prior.Z.shape)

    def covariance_forms(self) -> list[CovarianceForm]:
        """Mean alpha.k, variance k(x, x) - |H k|^2 + |N k|^2 of each latent function."""
        each = zip(self.groups, self.alpha, self.factors, strict=True)
        return [CovarianceForm(group.core, alpha, factor.H, factor.N) for group, alpha, factor in each]

    def path_deviations(self) -> np.ndarray:
        """Those of positive sites: H (K + Lambda^{-1}) H^T = I, and H has zeros where a site has no precision."""
        is_known = self.precision > np.finfo(float).tiny
        return np.sqrt(np.divide(1.0, self.precision, out=np.zeros_like(self.precision), where=is_known))

    def covariance_sums(self, X: np.ndarray, P: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """With the covariances C = k - K M k of the rows of X (r, d) with the distinct rows; O(r n^2)."""
        (factor,), (group,) = self.factors, self.groups
        k = group.core.cross(X)
        C = k - factor.times(k.T).T @ group.K
        return C @ h[0], C**2 @ P[0]
