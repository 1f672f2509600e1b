"""The full Gaussian process: a latent value at every distinct training row, and no inducing points.

A white kernel's noise is no part of the latent function: q is over the function without it, and each row's own noise
keeps its prior, which adds to the variance of the row's marginal. So it is in the sparse posterior too, which this one
is the limit of: inducing points at all distinct rows.

With K = k(X, X) without noise, sites of precision Lambda = diag(lambda) and linear terms r,

    q(f) = N(K alpha, K - K M K),  M = (K + Lambda^{-1})^{-1} = S B^{-1} S,  B = I + S K S,  S = Lambda^{1/2},

where B has no eigenvalue below 1, however singular K is: no inverse of K is formed and no jitter needed (Rasmussen &
Williams 2006, section 3.4.3). Sites of negative precision, which additive noise has, are taken in afterwards: with
Sigma the covariance without them and T = |Lambda|^{1/2} of them alone, M is less by N^T N, where
D D^T = I - T Sigma T has a Cholesky factor if and only if q exists, and N = D^{-1} T (I - K M) at their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._kernels import InducingKernel, KernelGradient
from ..kernels.spec import KernelSpec
from ..rows.executor import Threads
from ..rows.source import ArraySource
from ..statistics import GivenSites, StatedSites
from .base import (
    CovarianceForm,
    Grouped,
    KernelPrior,
    LatentPosterior,
    Natural,
    Training,
    cholesky_and_inverse,
    groups_of_latents,
    joint_covariance,
    new_key,
    prior_covariance,
)
from .full_rows import (
    DistinctRows,
    Explained,
    Factor,
    GramGradient,
    Predictive,
    ValueBasis,
    ValueMarginalizer,
    explained_variances,
    gram_gradient,
)

# Distinct rows: with more, the five (n, n) matrices that are alive at a time take 16 GB, and each update 10^13 flops.
MAX_ROWS = 20_000
# Least lambda v = 1 - diag(B^{-1}) that gives v: below it rounding would cost v more than three digits.
LEAST_EXPLAINED = 1e-3


@dataclass(frozen=True, eq=False)
class FullPrior(Grouped):
    """p(f) = N(0, K) at the distinct training rows, without a white kernel's noise.

    Attributes
    ----------
    spec : KernelSpec
    core : the compiled kernel at them
    K : (n, n) covariance matrix, without noise
    noise : (n,) variance of a white kernel at them, zeros without one
    rows : DistinctRows
    n_jobs : int or None, threads to use
    """

    spec: KernelSpec
    core: InducingKernel
    K: np.ndarray
    noise: np.ndarray
    rows: DistinctRows
    n_jobs: int | None

    jitter = 0.0
    is_full = True

    @classmethod
    def build(
        cls, spec: KernelSpec, Z: np.ndarray, n_jobs: int | None = None, rows: DistinctRows | None = None
    ) -> FullPrior:
        """O(n^2 d); ``rows`` are those of Z, if there are any already."""
        if len(Z) > MAX_ROWS:
            raise ValueError(
                f"A full Gaussian process takes O(n^3) time and O(n^2) memory: inducing_points='all' allows {MAX_ROWS} "
                f"distinct rows, got {len(Z)}. Take inducing points, of a GPClassifier by n_inducing=500, say."
            )
        if not np.all(np.isfinite(Z)):
            raise ValueError("The rows contain NaN or infinity.")
        core = spec.at(Z)
        K = core.cross(Z)
        K += K.T
        K *= 0.5
        np.fill_diagonal(K, spec.without_noise().at(Z[:1]).diagonals(Z))
        noise = spec.noise_alone().at(Z[:1]).diagonals(Z)
        if not (np.all(np.isfinite(K)) and np.all(np.isfinite(noise))):
            raise ValueError(
                f"The covariance matrix of the rows is not finite; kernel: {spec.kernel}. Scale the features, or give "
                "moderate kernel parameters."
            )
        return cls(spec, core, K, noise, rows or DistinctRows(Z), n_jobs)

    @property
    def Z(self) -> np.ndarray:
        """(n, d) distinct training rows."""
        return self.rows.Z

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> FullPrior:
        """The prior with the kernel in ``specs`` at other rows."""
        rows = self.rows if np.array_equal(Z, self.Z) else None
        return FullPrior.build(specs[0], Z, self.n_jobs, rows)

    def basis_of(self, prior: Any, n_latents: int | None) -> ValueBasis:
        """The latent values at the distinct rows, which all groups of ``prior`` share."""
        return ValueBasis(self.rows, n_latents or 1)

    def with_sites(self, P: np.ndarray, h: np.ndarray) -> Natural:
        """P and h as they are: natural parameters are those that sites add to the prior's."""
        return P, h

    def posterior_of(self, prior: KernelPrior, natural: Natural) -> FullPosterior | None:
        """q under ``prior`` from sites (precision, linear), or None if they make no proper one."""
        return FullPosterior.from_natural(prior, *natural)

    def no_sites(self, shape: tuple[int, ...]) -> Natural:
        """Zeros (*shape, n), twice."""
        zeros = np.zeros((*shape, len(self.Z)))
        return zeros, zeros

    def factor(self, precision: np.ndarray) -> Factor | None:
        """Factors of M for sites of these precisions (n,), or None if q is not proper; O(n^3)."""
        n = len(self.K)
        root = np.sqrt(np.maximum(precision, 0.0))
        B = root[:, None] * self.K
        B *= root
        B.ravel()[:: n + 1] += 1.0
        factors = cholesky_and_inverse(B)
        if factors is None:
            return None
        L, H = factors
        half_log_det = float(np.sum(np.log(np.diag(L))))
        del L, B, factors
        # diag(B^{-1}) = 1 - lambda v: the variances without a product of matrices, where that keeps its digits.
        explained = 1.0 - np.einsum("ij,ij->j", H, H)
        variance = np.divide(explained, precision, out=np.zeros(n), where=explained > LEAST_EXPLAINED)
        H *= root
        rest = np.flatnonzero(explained <= LEAST_EXPLAINED)
        if len(rest):
            with Threads(self.n_jobs) as executor:
                source = ArraySource(rest[:, None], cache_bytes=0)
                variance[rest] = np.concatenate(list(executor.map(explained_variances, source, Explained(self.K, H))))
        N = np.empty((0, n))
        negative = np.flatnonzero(precision < 0.0)
        if len(negative):
            T = np.sqrt(-precision[negative])
            rows = -(self.K[negative] @ H.T) @ H
            rows[np.arange(len(negative)), negative] += 1.0
            Sigma = rows @ self.K[:, negative]
            less = cholesky_and_inverse(np.eye(len(negative)) - T[:, None] * (0.5 * (Sigma + Sigma.T)) * T)
            if less is None:
                return None
            half_log_det += float(np.sum(np.log(np.diag(less[0]))))
            N = np.ascontiguousarray((less[1] * T) @ rows)
            added = N @ self.K
            variance += np.einsum("ij,ij->j", added, added)
        return Factor(H, N, variance, half_log_det)


@dataclass(frozen=True, eq=False)
class FullPosterior(LatentPosterior):
    """q(f) = N(K alpha, K - K M K) of one latent function, or of C independent ones, without noise.

    Attributes
    ----------
    prior : FullPrior, or SeparatePriors of them
    precision, linear : (n,), or (C, n), sites of the distinct rows: natural parameters beyond the prior's
    factors : tuple of one Factor for each latent function
    alpha : (n,) or (C, n), r - Lambda mean, so that K alpha is the mean
    mean, variance : (n,) or (C, n) at the distinct rows
    """

    prior: Any
    precision: np.ndarray
    linear: np.ndarray
    factors: tuple[Factor, ...] = field(repr=False)
    alpha: np.ndarray = field(repr=False)
    mean: np.ndarray = field(repr=False)
    variance: np.ndarray = field(repr=False)
    key: str = field(default_factory=new_key, init=False, repr=False)

    @classmethod
    def from_natural(cls, prior: Any, precision: np.ndarray, linear: np.ndarray) -> FullPosterior | None:
        """q from its sites, or None if they make none; O(C n^3)."""
        factors, precisions = [], np.atleast_2d(precision)
        for group, values in zip(groups_of_latents(prior, len(precisions)), precisions, strict=True):
            factor = group.factor(values)
            if factor is None:
                return None
            factors.append(factor)
        return cls.of_factors(prior, precision, linear, factors)

    @classmethod
    def of_factors(
        cls, prior: Any, precision: np.ndarray, linear: np.ndarray, factors: Sequence[Factor]
    ) -> FullPosterior:
        """q from its sites and the factors that their precisions make; O(C n^2)."""
        groups = groups_of_latents(prior, len(factors))
        mean, alpha = _mean_and_alpha(groups, factors, linear)
        variance = np.reshape([factor.variance for factor in factors], linear.shape)
        return cls(prior, precision, linear, tuple(factors), alpha, mean, variance)

    @property
    def natural(self) -> Natural:
        return self.precision, self.linear

    @cached_property
    def marginalizer(self) -> ValueMarginalizer:
        noise = np.reshape([group.noise for group in self.groups], self.variance.shape)
        basis = self.prior.basis(self.n_latents)
        return ValueMarginalizer(self.key, basis, np.atleast_2d(self.mean), np.atleast_2d(self.variance + noise))

    @property
    def marginalizer_anywhere(self) -> ValueMarginalizer:
        """The marginalizer for rows that need not be training rows; with the factors, O(n^2) memory."""
        # Other bits than ``marginalizer`` has at the training rows: another key.
        return replace(self.marginalizer, key=f"{self.key} anywhere", anywhere=self._predictive)

    @property
    def _predictive(self) -> Predictive:
        cores = [group.core for group in self.groups]
        return Predictive(cores, self.factors, np.atleast_2d(self.alpha))

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        """The linear term that a precision, as in ``natural``, has at the mean."""
        return precision * self.mean

    @property
    def mean_pair(self) -> Natural:
        """The mean and alpha = K^{-1} mean."""
        return self.mean, self.alpha

    def solve(self, residual: np.ndarray) -> Natural:
        """K alpha and alpha = K^{-1} (K^{-1} + Lambda)^{-1} residual; O(C n^2)."""
        return _mean_and_alpha(self.groups, self.factors, residual)

    def at_mean(self, mean: Natural) -> FullPosterior:
        """q with the mean of a pair (mean, K^{-1} mean): linear terms K^{-1} mean + lambda mean; O(C n^2)."""
        value, alpha = mean
        return FullPosterior.of_factors(self.prior, self.precision, alpha + self.precision * value, self.factors)

    @cached_property
    def squared_norm(self) -> float:
        """mean^T K^{-1} mean of all latent functions."""
        return float(np.sum(self.alpha * self.mean))

    @property
    def _half_log_det(self) -> float:
        return sum(factor.half_log_det for factor in self.factors)

    @cached_property
    def kl(self) -> float:
        """KL(q || p) = (log |I + K Lambda| - sum_i lambda_i v_i + mean^T K^{-1} mean) / 2, in nats."""
        return self._half_log_det + 0.5 * (self.squared_norm - float(np.sum(self.precision * self.variance)))

    def kl_to(self, other: FullPosterior) -> float:
        """KL(q || other) of two posteriors under the same prior, in nats; O(n)."""
        difference = other.mean - self.mean
        distance = np.sum((other.alpha - self.alpha) * difference) + np.sum(other.precision * difference**2)
        trace = np.sum((other.precision - self.precision) * self.variance)
        return float(0.5 * (trace + distance) + self._half_log_det - other._half_log_det)

    def first_order_gain(self, target: Natural, other: FullPosterior) -> float:
        """O(C n): see ``KernelPosterior``; the gradients by a row's mean and variance are r' - r - missing mean and
        -missing / 2."""
        missing = target[0] - self.precision
        by_mean = target[1] - self.linear - missing * self.mean
        linear = np.sum(by_mean * (other.mean - self.mean))
        return float(linear - 0.5 * np.sum(missing * (other.variance - self.variance)))

    def gradient(
        self, training: Training, sites: StatedSites | GivenSites, natural: Natural
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of the bound by the kernels' ``theta`` at q's optimum, where ``natural`` are what sites make.

        dF/dK = (alpha alpha^T - M) / 2, and by the noise of each distinct row -lambda / 2. The rows do not move: their
        gradient is given as zero. O(C n^3).
        """
        alphas, precisions = np.atleast_2d(self.alpha), np.atleast_2d(natural[0])
        groups, gradients = self.prior.groups, []
        for g, group in enumerate(groups):
            here = range(len(alphas)) if len(groups) == 1 else range(g, g + 1)
            G = sum(np.outer(alphas[c], alphas[c]) - self.factors[c].matrix() for c in here)
            G *= 0.5
            by_noise = -0.5 * np.sum([precisions[c] for c in here], axis=0)
            source, state = ArraySource(group.Z, cache_bytes=0), GramGradient(group.core, G, by_noise)
            total = training.executor.reduce(gram_gradient, source, state)
            gradients.append(group.spec.gradient(group.core, KernelGradient.empty(group.core), total)[0])
        return np.concatenate(gradients), np.zeros(self.prior.Z.shape)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"Z": self.prior.Z, "eta": self.precision, "h": self.linear}

    def covariance_forms(self) -> list[CovarianceForm]:
        """Mean alpha.k, variance k(x, x) - |H k|^2 + |N k|^2 of each latent function."""
        each = zip(self.groups, np.atleast_2d(self.alpha), self.factors, strict=True)
        return [CovarianceForm(group.core, alpha, factor.H, factor.N) for group, alpha, factor in each]

    def covariance_sums(self, X: np.ndarray, s: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums (r,) over the distinct rows i of C_i t_i and C_i^2 s_i, with the covariances C = k - K M k of one latent
        function at the rows of X (r, d) and at them; O(r n^2)."""
        k = self.prior.core.cross(X)
        (factor,) = self.factors
        C = k - factor.times(k.T).T @ self.prior.K
        return C @ t, C**2 @ s

    def covariance_bytes(self, n_rows: int) -> float:
        """The results twice, four matrices more, and what training rows explain."""
        return 8.0 * n_rows * (n_rows * (2.0 * len(np.atleast_2d(self.alpha)) + 4.0) + 3.0 * self.alpha.shape[-1])

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (r, r) or (C, r, r) of a latent function at the rows of X, each with noise of its own;
        O(C r n (n + r))."""
        covariance = np.empty((len(self.factors), len(X), len(X)))
        for c, (group, factor) in enumerate(zip(self.groups, self.factors, strict=True)):
            if c == 0 or group is not self.groups[c - 1]:
                k, prior = group.core.cross(X), prior_covariance(group, X)
            covariance[c] = joint_covariance(prior, k @ factor.H.T, k @ factor.N.T)
        return covariance.reshape(*self.shape, len(X), len(X))


def _mean_and_alpha(groups: Sequence[FullPrior], factors: Sequence[Factor], linear: np.ndarray) -> Natural:
    """K alpha and alpha = (I - M K) r, shaped as the linear terms r (n,) or (C, n)."""
    each = zip(groups, factors, np.atleast_2d(linear), strict=True)
    alpha = [r - factor.times(group.K @ r) for group, factor, r in each]
    mean = [group.K @ a for group, a in zip(groups, alpha, strict=True)]
    return np.reshape(mean, linear.shape), np.reshape(alpha, linear.shape)
