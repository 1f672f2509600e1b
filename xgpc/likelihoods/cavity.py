"""What neighbours need of a likelihood: scores and sites of labels from predictions of their rows, with derivatives.

Arrays are (C, r): latent functions (one for two classes) by rows. Predictions and sites are of the latent function's
distance from the site's prior mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .. import _sites
from .._sites import Site
from ..ranges import LEAST_DIVISOR

# Precisions and linear terms; means and variances, or the gradient by these.
Pair = tuple[np.ndarray, np.ndarray]


def centred(mean: np.ndarray) -> np.ndarray:
    """Subtract the average over the classes from means (C,) or (C, r)."""
    return mean - np.mean(mean, axis=0)


def _contiguous(*arrays: np.ndarray) -> Iterator[np.ndarray]:
    return (np.ascontiguousarray(a, dtype=np.float64) for a in arrays)


@dataclass(frozen=True)
class TwoClasses:
    """Expectation propagation for y = -1 or +1: sites match moments of the tilted distribution in closed form.

    Attributes
    ----------
    number : int, of ``_sites.LINKS``
    """

    number: int

    def start(self, site: Site, y: np.ndarray) -> Pair:
        """Initial sites."""
        # Near 1/4, the curvature of the logistic log likelihood at zero.
        precision = np.full((1, len(y)), 0.2)
        return precision, 0.5 * y[None] - precision * site.prior_mean

    def scores(self, site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Pair]:
        """log p(y) (r,) in nats, and its gradient by means and variances."""
        values, by_mean, by_variance = _sites.cavity_scores(self.number, mean[0] + site.prior_mean, variance[0], y)
        return values, (by_mean[None], by_variance[None])

    def sites(self, site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Pair:
        """Precisions and linear terms."""
        precision, linear = _sites.cavity_sites(self.number, mean[0] + site.prior_mean, variance[0], y)
        return precision[None], (linear - precision * site.prior_mean)[None]

    def vjp(self, site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, by_sites: Pair) -> Pair:
        """Gradient by means and variances, given the gradient by the sites."""
        (by_linear,) = by_sites[1]
        by_precision = by_sites[0][0] - by_linear * site.prior_mean
        moments = mean[0] + site.prior_mean, variance[0], y
        by_mean, by_variance = _sites.cavity_vjp(self.number, *moments, by_precision, by_linear)
        return by_mean[None], by_variance[None]

    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """Share (r,) of a row's own site that counts as known when the site is recomputed.

        A row of weight w counts as w rows, so its cavity includes the sites of w - 1 rows.

        For a weight below 1 the share is negative: a whole site is removed, more than the row has. Therefore the parts
        of a divided row, whose cavities contain the sites of the other parts, give the same result as the whole row.
        Rows of equal features and different labels have separate sites and are ordinary neighbours.
        """
        # The site of a row of weight zero is zero, whatever the share.
        return np.where(weight > 0.0, (weight - 1.0) / np.maximum(weight, LEAST_DIVISOR), 0.0)


class Softmax:
    """Variational sites for y = 0, ..., C - 1 at the marginals: lambda_c = E[p_c (1 - p_c)], r_c = E[1(y = c) - p_c] +
    lambda_c (m_c - mean over the classes of m).

    The labels do not determine the mean over the classes; it is zero in the full posterior of classes with a shared
    kernel. Sites that contained it would pass it on between neighbours for hundreds of sweeps at large variances.
    """

    def start(self, site: Site, y: np.ndarray) -> Pair:
        C = site.n_latents
        is_label = y == np.arange(C)[:, None]
        precision = np.full(is_label.shape, (1.0 - 1.0 / C) / C)
        return precision, is_label - 1.0 / C - precision * site.prior_mean[:, None]

    def scores(self, site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Pair]:
        """For 3 to 100 classes the errors of log probabilities against ``softmax_log_probabilities`` are at most 6e-5
        nats for probabilities above 1e-6, and 3e-3 down to exp(-60).
        """
        latent = mean + site.prior_mean[:, None]
        values, by_mean, by_variance = _sites.softmax_scores(site, *_contiguous(latent, variance, y))
        return values, (by_mean, by_variance)

    def sites(self, site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Pair:
        _, precision, linear, _ = _sites.sites(site, mean, variance, y)
        return precision, linear - precision * np.mean(mean + site.prior_mean[:, None], axis=0)

    def vjp(self, site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, by_sites: Pair) -> Pair:
        (by_precision, by_linear), latent = by_sites, mean + site.prior_mean[:, None]
        by_precision = by_precision - by_linear * site.prior_mean[:, None] - by_linear * np.mean(latent, axis=0)
        by_mean, by_variance = _sites.softmax_vjp(site, *_contiguous(latent, variance, by_precision, by_linear))
        precision, _ = self.sites(site, mean, variance, y)
        return by_mean - np.mean(precision * by_linear, axis=0), by_variance

    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """The sites are taken at the marginals, which include the row's whole own site."""
        return np.ones_like(weight)


Cavity = TwoClasses | Softmax
