"""The perturbative correction of Polya-Gamma posteriors, and the gap between augmented and exact bound.

To second order in the difference between the posterior p(f, omega | y) and its factorised approximation q(f) q(omega),
with C_i = Cov_q(f_*, f_i), mu_i and v_i the marginals at training row i and c_i^2 = mu_i^2 + v_i,

    mean     = mean_q + sum_i C_i t_i,                       t_i = mu_i v_i Var(omega_i),
    variance = variance_q - (mean - mean_q)^2 + sum_i C_i^2 s_i,  s_i = (mu_i^2 + v_i) Var(omega_i),

and omega_i ~ PG(1, c_i) (Wenzel et al. 2019, appendix A.6; the variance printed there is wrong). With inducing points,
C_i is the covariance through the inducing values, a_*^T P^{-1} a_i: rows count as independent given these values, and
no training row is needed to predict.
"""

from __future__ import annotations

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, Natural, Training
from ..approximations.local import LocalPosterior
from ..likelihoods import other_site
from ..ranges import check_latent
from ..rows.blas import single_threaded_blas
from ..rows.block import BLOCK_ROWS, Block
from ..rows.executor import Executor, parts_of
from ..rows.source import ArraySource
from ..statistics import SitesAtPosterior, Sums, log_likelihood
from ..status import warn_user
from .ascent import Point, coordinate_ascent, starting_posterior
from .fitting import Evidence

# Below this the closed form loses more digits to cancellation than the truncated series (1e-12).
SMALL_TILT = 0.03


def polya_gamma_variance(c: np.ndarray) -> np.ndarray:
    """Variance of PG(1, c), (tanh(c/2) / c - sech(c/2)^2 / 2) / (2 c^2), for c >= 0; relative error below 1e-11."""
    small = c < SMALL_TILT
    x = np.where(small, 1.0, c)
    # cosh overflows; this form of sech does not.
    decay = np.exp(-x)
    closed = (np.tanh(0.5 * x) / x - 2.0 * decay / (1.0 + decay) ** 2) / (2.0 * x**2)
    c2 = np.minimum(c, SMALL_TILT) ** 2
    return np.where(small, 1.0 / 24.0 - c2 / 120.0 + 17.0 * c2**2 / 13440.0, closed)


def exact_sites(augmented: SitesAtPosterior) -> SitesAtPosterior:
    """The sites of the exact bound at the same posterior."""
    return SitesAtPosterior(augmented.q, other_site(augmented.site.record.exact, augmented.site))


def correction(block: Block, state: SitesAtPosterior) -> Sums:
    """Sums with s and t in place of precisions and linear terms, and the exact expected log likelihood."""
    log_likelihood, sites = exact_sites(state).of(block).log_likelihood, state.of(block)
    mean = sites.mean + state.site.prior_mean[:, None]
    second_moment = mean**2 + sites.variance
    spread = polya_gamma_variance(np.sqrt(second_moment)) * block.weight
    terms = state.q.prior.moments(block, second_moment * spread, mean * sites.variance * spread)
    return Sums([log_likelihood, *terms])


def evidence_of(training: Training, point: Point[KernelPosterior]) -> Evidence:
    """The bound, the sums over training rows that the correction needs, and ``bound_gap``; a pass, O(n m^2) or O(n).

    With inducing points the sums are s_i a_i a_i^T (m, m), lower triangle, and t_i a_i (m,); else s and t at the
    distinct rows (n,). The gap is E_q(f)[KL(q(omega) || p(omega | f, y))] (Wenzel et al. 2019, section 4.2): the nats
    by which the exact bound exceeds the augmented one. It is 0 for exact bounds, and None for bounds that are not
    augmented or have no exact counterpart.
    """
    record = point.site.record
    if record.exact is None:
        return Evidence(point.elbo, None, 0.0 if record.is_exact else None)
    if not record.is_jaakkola_jordan:
        gap = training.reduce(log_likelihood, exact_sites(point.sites)) - point.log_likelihood
        return Evidence(point.elbo, None, gap)
    exact_sum, P, h = training.reduce(correction, point.sites)
    return Evidence(point.elbo, (P, h), exact_sum - point.log_likelihood)


def fit_without_neighbors(
    q: LocalPosterior, site: Site, tol: float, max_iter: int, n_jobs: int | None
) -> tuple[KernelPosterior, Evidence]:
    """The sparse posterior of the rows of a model with neighbours, under its kernel, and the evidence."""
    with single_threaded_blas(), Executor(n_jobs) as executor:
        training = Training(ArraySource(q.X, q.y, q.weight), executor, q.n_latents)
        start = starting_posterior(training, None, q.prior, site)
        point: Point[KernelPosterior] = coordinate_ascent(training, start, site, tol=tol, max_iter=max_iter).point
        return point.q, evidence_of(training, point)


def corrected_marginals(
    q: KernelPosterior, terms: Natural, X: np.ndarray, n_jobs: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Corrected mean and variance (r,) at the rows of X (r, d); O(r m^2), or O(r n^2) without inducing points.

    Variances that the correction makes negative are returned as 0, with a warning.
    """
    mean, variance = q.marginals(X, n_jobs)
    check_latent(mean, variance, X)
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        # The covariances of a part with all training rows are in memory at the same time.
        for part in parts_of(len(X), BLOCK_ROWS):
            shift, added = q.covariance_sums(X[part], *terms)
            mean[part] += shift
            variance[part] += added - shift**2
    check_latent(mean, variance, X)
    negative = int(np.count_nonzero(variance < 0.0))
    if negative:
        warn_user(
            f"The perturbative correction makes {negative} of {len(variance)} latent variances negative; they are "
            "returned as 0. It is inaccurate at these rows; bound='exact' needs no correction."
        )
    return mean, np.maximum(variance, 0.0)
