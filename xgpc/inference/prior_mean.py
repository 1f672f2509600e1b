"""The prior mean of the latent functions: given, or chosen so that the prior predicts the base rate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, root
from scipy.special import xlogy

from .._sites import Site
from ..approximations.base import KernelPrior
from ..likelihoods import LikelihoodBound
from ..likelihoods.ordinal import apart

# Relative tolerance of the means, and largest error of the log probabilities.
TOLERANCE, LARGEST_ERROR = 1e-9, 1e-4
# Finite differences take relative steps of the root of this, because predictions of several classes have errors of
# 1e-8.
DIFFERENCE = 1e-6


@dataclass(frozen=True)
class PriorMean:
    """Gives the ``prior_mean`` of a site under a prior: given means (L,), or those that predict a base rate (C,).

    With a base rate the mean depends on the prior's variance, which learning changes. A stage, or a round with
    neighbours, keeps the mean of its first kernel; the posterior of all rows has that of the last kernel.
    """

    mean: np.ndarray | None = None
    base_rate: np.ndarray | None = None

    def site(self, site: Site, prior: KernelPrior, variance_scale: float = 1.0) -> Site:
        """The site with its mean under a prior; unchanged if there is neither a given mean nor a base rate.

        ``variance_scale`` multiplies the prior's variances in predictions.
        """
        if self.base_rate is None:
            return site if self.mean is None else site.with_prior_mean(self.mean)
        variance = variance_scale * np.broadcast_to(mean_variances(prior), site.n_latents)
        return site.with_prior_mean(base_rate_mean(site.record, self.base_rate, variance))


def mean_variances(prior: KernelPrior) -> np.ndarray:
    """k(x, x) of each kernel with white noise, averaged over the inducing points."""
    return np.array([np.mean(group.core.diagonals(np.ascontiguousarray(group.Z))) for group in prior.groups])


# Leaves the site's own mean unchanged.
OF_SITE = PriorMean()


def base_rates(totals: np.ndarray) -> np.ndarray:
    """Shares (C,) of the classes' weights (C,), with half a row more for each class if one has no rows."""
    totals = totals if np.all(totals > 0.0) else totals + 0.5
    return totals / np.sum(totals)


def log_likelihood_of_frequencies(totals: np.ndarray) -> float:
    """Log likelihood, in nats, of labels with these total weights (C,) under the frequencies of the classes."""
    return float(np.sum(xlogy(totals, totals / np.sum(totals))))


def base_rate_mean(record: LikelihoodBound, base_rate: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Means (L,) of latent functions with variances (L,) for which the predicted probabilities are the base rate.

    With several classes the means sum to zero, because a common shift hardly changes the likelihood.
    """
    wanted, spread = np.log(base_rate), np.sqrt(1.0 + variance)
    if not record.is_multi_class:

        def excess(mean: float) -> float:
            no, yes = record.log_probabilities(np.array([mean]), variance)[0] - wanted
            return float(yes - no)

        end = float(spread[0])
        while excess(-end) > 0.0 or excess(end) < 0.0:
            end *= 2.0
        return np.array([brentq(excess, -end, end, xtol=TOLERANCE * end)])

    def difference(mean: np.ndarray) -> np.ndarray:
        # Both sides sum to one, so the differences of the logarithms vanish together with the sum of the means.
        return np.asarray(record.log_probabilities(mean[None], variance[None])[0] - wanted + np.mean(mean))

    start = spread * (wanted - np.mean(wanted))
    solution = root(difference, start, method="hybr", tol=TOLERANCE, options={"eps": DIFFERENCE})
    if not np.all(np.isfinite(solution.x)) or np.max(np.abs(solution.fun)) > LARGEST_ERROR:
        raise ValueError(
            f"mean='base-rate': no prior mean predicts the class frequencies {base_rate.tolist()}; give the mean as a "
            "list with one number for each class."
        )
    return np.asarray(solution.x - np.mean(solution.x))


def first_cut_points(record: LikelihoodBound, base_rate: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Cut points (C - 1,) at which a latent function of prior variance (1,) predicts the base rate (C,)."""
    # Without cut points the record has two classes, on the two sides of 0.
    two_sides = replace(record, parameter=())
    shares = [np.array([below, 1.0 - below]) for below in np.cumsum(base_rate)[:-1]]
    cuts = [-base_rate_mean(two_sides, rates, variance)[0] for rates in shares]
    return apart(cuts[0], np.diff(cuts))
