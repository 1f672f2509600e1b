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
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import lapack

from . import _full
from ._engine import Site
from ._kernels import InducingKernel
from .blocks import BlockMap
from .kernels import KernelGradient, KernelSpec
from .passes import CG_MAX_ITER, CG_TOL, COUPLED, PRECISION_RATE, TrainingSites
from .posterior import AnyPrior, cholesky_and_inverse, freeze

# Distinct rows: with more, the five (n, n) matrices that are alive at a time take 16 GB, and each update 10^13 flops.
MAX_ROWS = 20_000
# Least lambda v = 1 - diag(B^{-1}) that gives v: below it rounding would cost v more than three digits.
LEAST_EXPLAINED = 1e-3


@dataclass(frozen=True, eq=False)
class FullPrior:
    """p(f) = N(0, K) at the distinct training rows, without a white kernel's noise.

    Attributes
    ----------
    spec : KernelSpec
    Z : (n, d) distinct training rows
    core : the compiled kernel at them
    K : (n, n) covariance matrix, without noise
    noise : (n,) variance of a white kernel at them, zeros without one
    n_jobs : int or None, threads to use
    """

    spec: KernelSpec
    Z: np.ndarray
    core: InducingKernel
    K: np.ndarray
    noise: np.ndarray
    n_jobs: int | None

    jitter = 0.0

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def build(cls, spec: KernelSpec, Z: np.ndarray, n_jobs: int | None = None) -> FullPrior:
        """O(n^2 d)."""
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
        return cls(spec, Z, core, K, noise, n_jobs)

    @property
    def groups(self) -> tuple[FullPrior, ...]:
        """The priors of the latent functions: one for all."""
        return (self,)

    @property
    def parts(self) -> list[tuple[FullPrior, slice]]:
        """Each prior with the latent functions that have it, as a slice of their axis."""
        return [(self, slice(None))]

    @property
    def n_inducing(self) -> int:
        return len(self.Z)

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> FullPrior:
        """The same with another kernel, the one of ``specs``, and other rows."""
        return FullPrior.build(specs[0], Z, self.n_jobs)

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
        with BlockMap(len(rest), n, self.Z.shape[1], self.n_jobs) as blocks:
            for _ in blocks(
                lambda start, stop, work: _full.variances_block(self.K, rest[start:stop], H, work, variance)
            ):
                pass
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
class Factor:
    """What the precisions of the sites make of a prior: M = H^T H - N^T N.

    Attributes
    ----------
    H : (n, n) lower triangular
    N : (r, n), a row for each negative precision
    variance : (n,) of the latent values
    half_log_det : log |I + K Lambda| / 2
    """

    H: np.ndarray
    N: np.ndarray
    variance: np.ndarray
    half_log_det: float

    def __post_init__(self) -> None:
        freeze(self)

    def times(self, x: np.ndarray) -> np.ndarray:
        """M x."""
        return self.H.T @ (self.H @ x) - self.N.T @ (self.N @ x)

    def matrix(self) -> np.ndarray:
        """M (n, n); O(n^3)."""
        product, _ = lapack.dlauum(self.H.T, lower=0)
        M = np.triu(product)
        M += np.triu(product, 1).T
        return M - self.N.T @ self.N if len(self.N) else M


@dataclass(frozen=True, eq=False)
class FullPosterior:
    """q(f) = N(K alpha, K - K M K) of one latent function, or of C independent ones, without noise.

    Attributes
    ----------
    prior : FullPrior, or SeparatePriors of them
    precision, linear : (n,), or (C, n), sites of the distinct rows: natural parameters beyond the prior's
    factors : tuple of one Factor for each latent function
    alpha : (n,) or (C, n), r - Lambda mean, so that K alpha is the mean
    mean, variance : (n,) or (C, n) at the distinct rows
    """

    prior: AnyPrior
    precision: np.ndarray
    linear: np.ndarray
    factors: tuple[Factor, ...] = field(repr=False)
    alpha: np.ndarray = field(repr=False)
    mean: np.ndarray = field(repr=False)
    variance: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def from_natural(cls, prior: AnyPrior, precision: np.ndarray, linear: np.ndarray) -> FullPosterior | None:
        """q from its sites, or None if they make none; O(C n^3)."""
        factors = []
        for group, values in zip(_each(prior, precision), _rows(precision), strict=True):
            factor = group.factor(values)
            if factor is None:
                return None
            factors.append(factor)
        return cls.of_factors(prior, precision, linear, factors)

    @classmethod
    def of_factors(
        cls, prior: AnyPrior, precision: np.ndarray, linear: np.ndarray, factors: Sequence[Factor]
    ) -> FullPosterior:
        """q from its sites and the factors that their precisions make; O(C n^2)."""
        alpha, mean = np.empty((2, len(factors), precision.shape[-1]))
        for c, (group, factor, r) in enumerate(zip(_each(prior, precision), factors, _rows(linear), strict=True)):
            alpha[c] = r - factor.times(group.K @ r)
            mean[c] = group.K @ alpha[c]
        variance = np.stack([factor.variance for factor in factors])
        shape = precision.shape
        return cls(
            prior, precision, linear, tuple(factors), alpha.reshape(shape), mean.reshape(shape), variance.reshape(shape)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """() for one latent function, else their number."""
        return self.alpha.shape[:-1]

    @property
    def n_latents(self) -> int | None:
        return len(self.alpha) if self.alpha.ndim == 2 else None

    @property
    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        return self.precision, self.linear

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        """The linear term that a precision, as in ``natural``, has at the mean."""
        return precision * self.mean

    def with_natural(self, precision: np.ndarray, linear: np.ndarray) -> FullPosterior | None:
        """The posterior of other sites under the same prior."""
        return FullPosterior.from_natural(self.prior, precision, linear)

    @property
    def squared_norm(self) -> float:
        """mean^T K^{-1} mean of all latent functions."""
        return float(np.sum(self.alpha * self.mean))

    @property
    def _half_log_det(self) -> float:
        return sum(factor.half_log_det for factor in self.factors)

    @property
    def kl(self) -> float:
        """KL(q || p) = (log |I + K Lambda| - sum_i lambda_i v_i + mean^T K^{-1} mean) / 2, in nats."""
        return self._half_log_det + 0.5 * (self.squared_norm - float(np.sum(self.precision * self.variance)))

    def kl_to(self, p: FullPosterior) -> float:
        """KL(q || p) of two posteriors under the same prior, in nats; O(n)."""
        difference = p.mean - self.mean
        distance = np.sum((p.alpha - self.alpha) * difference) + np.sum(p.precision * difference**2)
        trace = np.sum((p.precision - self.precision) * self.variance)
        return float(0.5 * (trace + distance) + self._half_log_det - p._half_log_det)

    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (r,) or (C, r) of the latent functions, with noise, at the rows of X (r, d); O(C r n^2)."""
        mean, variance = np.empty((2, len(self.factors), len(X)))
        n, d = self.prior.groups[0].Z.shape
        alphas = self.alpha.reshape(mean.shape[0], n)
        with BlockMap(len(X), n, d, n_jobs) as blocks:
            for c, (group, factor) in enumerate(zip(_each(self.prior, self.alpha), self.factors, strict=True)):

                def task(start, stop, work, group=group, factor=factor, c=c):
                    _full.marginals_block(
                        group.core, X, start, stop, factor.H, factor.N, alphas[c], work, mean[c], variance[c]
                    )

                for _ in blocks(task):
                    pass
        return mean.reshape(*self.shape, -1), variance.reshape(*self.shape, -1)

    def covariance_sums(self, X: np.ndarray, s: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums (r,) over the distinct rows i of C_i t_i and C_i^2 s_i, with the covariances C = k - K M k of one latent
        function at the rows of X (r, d) and at them; O(r n^2)."""
        k = self.prior.core.cross(X)
        (factor,) = self.factors
        C = k - factor.times(k.T).T @ self.prior.K
        return C @ t, C**2 @ s

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (r, r) or (C, r, r) of a latent function at the rows of X, each with noise of its own;
        O(C r n (n + r))."""
        covariance = []
        for group, factor in zip(_each(self.prior, self.alpha), self.factors, strict=True):
            K = group.core.cross(X)
            explained, added = K @ factor.H.T, K @ factor.N.T
            here = group.spec.at(np.asarray(X, dtype=np.float64)).cross(X)
            np.fill_diagonal(here, group.core.diagonals(X))
            joint = here - explained @ explained.T + added @ added.T
            joint = 0.5 * (joint + joint.T)
            np.fill_diagonal(joint, np.maximum(np.diag(joint), np.sum(added**2, axis=1)))
            covariance.append(joint)
        return np.reshape(covariance, (*self.shape, len(X), len(X)))


def _each(prior: AnyPrior, values: np.ndarray) -> Sequence[FullPrior]:
    """The prior of each latent function that ``values`` (n,) or (C, n) are of."""
    return prior.groups * len(_rows(values)) if len(prior.groups) == 1 else prior.groups


def _rows(values: np.ndarray) -> np.ndarray:
    """(n,) or (C, n) as (1, n) or (C, n)."""
    return values.reshape(-1, values.shape[-1])


class FullPasses(TrainingSites):
    """What inference and learning need of the training rows of a full Gaussian process.

    The sites of equal rows add up at their common latent value.

    Parameters
    ----------
    X, y, weight, n_jobs, n_latents : as for ``TrainingSites``
    Z : (n, d) rows of the prior, among which every row of X is
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None,
        n_jobs: int | None,
        n_latents: int | None,
        Z: np.ndarray,
    ):
        super().__init__(X, y, weight, n_jobs, n_latents)
        self.n_distinct = len(Z)
        number = np.unique(np.vstack([Z, X]), axis=0, return_inverse=True)[1].ravel()
        place = np.empty(len(number), dtype=np.intp)
        place[number[: len(Z)]] = np.arange(len(Z))
        # The row of Z that is equal to each row of X.
        self._place = place[number[len(Z) :]]

    def __enter__(self) -> FullPasses:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def at_prior(self, prior: AnyPrior) -> FullPosterior:
        zeros = np.zeros((*self._shape, self.n_distinct))
        q = FullPosterior.from_natural(prior, zeros, zeros)
        assert q is not None
        return q

    def _collect(self, values: np.ndarray) -> np.ndarray:
        """Sums (n_distinct,) or (C, n_distinct) of the rows' values at their latent values."""
        sums = [np.bincount(self._place, row, minlength=self.n_distinct) for row in _rows(values)]
        return np.reshape(sums, (*values.shape[:-1], self.n_distinct))

    def statistics(self, prior: AnyPrior) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters of the sites of the latest pass: they do not depend on the prior."""
        self.target = self._collect(self.precision), self._collect(self.linear)
        return self.target

    sums = statistics

    def posterior(self, prior: AnyPrior) -> FullPosterior | None:
        return FullPosterior.from_natural(prior, *self.statistics(prior))

    def update(self, q: FullPosterior, site: Site) -> tuple[float, np.ndarray, np.ndarray]:
        """Sites under q; returns sum of ell and the natural parameters (lambda, r) of the unit step; O(C n)."""
        noise = np.reshape([group.noise for group in _each(q.prior, q.variance)], q.variance.shape)
        self.mean[:], self.variance[:] = q.mean[..., self._place], (q.variance + noise)[..., self._place]
        total = self._evaluate(site)
        if site.learned:
            total, _ = self._refit(site, total)
        return total, *self.statistics(q.prior)

    def coupled_target(self, q: FullPosterior, site: Site) -> tuple[np.ndarray, np.ndarray]:
        """As ``Passes.coupled_target``, for mean = K alpha; O(C n^2) each conjugate gradient, after O(C n^3)."""
        if site.likelihood not in COUPLED:
            return self.target
        precision = q.precision + PRECISION_RATE * (self.target[0] - q.precision)
        priors = _each(q.prior, precision)
        factors = [group.factor(values) for group, values in zip(priors, precision, strict=True)]
        if any(factor is None for factor in factors):
            return self.target
        gradient, curvature = self._coupled_curvature(site)

        def precondition(residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """alpha, K alpha of the step that the sites' own precision makes of a residual."""
            alpha = np.array(
                [r - f.times(g.K @ r) for r, f, g in zip(residual, factors, priors, strict=True)]  # type: ignore[union-attr]
            )
            return alpha, np.array([g.K @ a for g, a in zip(priors, alpha, strict=True)])

        alpha, mean = q.alpha.copy(), q.mean.copy()
        residual = self._collect(gradient) - alpha
        step, K_step = precondition(residual)
        direction, K_direction, size = step, K_step, float(np.sum(residual * K_step))
        target = CG_TOL**2 * size
        for _ in range(CG_MAX_ITER):
            if not size > target:
                break
            product = direction + self._collect(curvature(K_direction[:, self._place], slice(None)))
            curved = float(np.sum(K_direction * product))
            # Round-off, of huge variances, may leave no curvature.
            if not curved > 0.0:
                break
            rate = size / curved
            alpha += rate * direction
            mean += rate * K_direction
            residual -= rate * product
            step, K_step = precondition(residual)
            before, size = size, float(np.sum(residual * K_step))
            direction, K_direction = step + (size / before) * direction, K_step + (size / before) * K_direction
        return precision, alpha + precision * mean

    def bound_gradient(self, q: FullPosterior, target: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of the bound by the kernels' ``theta`` at q's optimum.

        dF/dK = (alpha alpha^T - M) / 2, and by the noise of each distinct row -lambda / 2, of ``target``. The rows do
        not move: their gradient is given as zero. O(C n^3).
        """
        n, d = q.prior.groups[0].Z.shape
        alphas, precisions = _rows(q.alpha), _rows(target[0])
        gradients = []
        for group, part in q.prior.parts:
            G = sum(np.outer(alphas[c], alphas[c]) - q.factors[c].matrix() for c in range(len(alphas))[part])
            G *= 0.5
            by_noise = -0.5 * np.sum(precisions[part], axis=0)
            total = KernelGradient.empty(group.core)

            def task(start, stop, work, group=group, G=G, by_noise=by_noise):
                sums = KernelGradient.empty(group.core)
                _full.gradient_of_block(group.core, group.Z, start, stop, G, by_noise, work, *sums.arrays)
                return sums

            with BlockMap(n, n, d, self.n_jobs) as blocks:
                for sums in blocks(task):
                    total += sums
            gradients.append(group.spec.gradient(group.core, KernelGradient.empty(group.core), total)[0])
        return np.concatenate(gradients), np.zeros(q.prior.Z.shape)
