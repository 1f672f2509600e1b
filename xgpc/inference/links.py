"""Links between normal predictions of latent values and labels: scores, sites, and their derivatives.

Arrays are (C, r): latent functions (one for two classes) by rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from .. import _local, _sites
from .._sites import Site
from ..likelihoods import record_of
from ..likelihoods.curvature import LEAST_WEIGHT, Curvature
from ..rows.coinciding import Sites

# Initial precision of a site, near that of the logistic function at zero.
START_PRECISION = 0.2
# Means and variances, or the gradient by these.
Moments = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Link(ABC):
    """The likelihood of labels y (r,) given C latent values, as a function of these values minus their prior mean.

    Attributes
    ----------
    prior_mean : (C,), or None for zero
    """

    prior_mean: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def curvature(self) -> Curvature | None:
        """As in ``LikelihoodBound``: a function if the labels couple the latent functions.

        It depends on r - lambda m, which a shift of the latent values leaves unchanged.
        """
        return None

    def shifted(self, prior_mean: np.ndarray) -> Self:
        """The same link with a prior mean (C,)."""
        return replace(self, prior_mean=prior_mean)

    def _latent(self, mean: np.ndarray) -> np.ndarray:
        return mean if self.prior_mean is None else mean + self.prior_mean[:, None]

    def _of_distance(self, sites: Sites) -> Sites:
        precision, linear = sites
        return sites if self.prior_mean is None else (precision, linear - precision * self.prior_mean[:, None])

    def start(self, y: np.ndarray) -> Sites:
        """Initial sites."""
        return self._of_distance(self._start(y))

    def scores(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Moments]:
        """log p(y) (r,) in nats, and its gradient by means and variances."""
        return self._scores(self._latent(mean), variance, y)

    def sites(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Sites:
        """Precisions and linear terms."""
        return self._of_distance(self._sites(self._latent(mean), variance, y))

    def vjp(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, by_sites: Sites) -> Moments:
        """Gradient by means and variances, given the gradient by the sites."""
        by_precision, by_linear = by_sites
        if self.prior_mean is not None:
            by_precision = by_precision - by_linear * self.prior_mean[:, None]
        return self._vjp(self._latent(mean), variance, y, by_precision, by_linear)

    @abstractmethod
    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """Share (r,) of a row's own site that counts as known when the site is recomputed."""

    @abstractmethod
    def _start(self, y: np.ndarray) -> Sites: ...

    @abstractmethod
    def _scores(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Moments]: ...

    @abstractmethod
    def _sites(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Sites: ...

    @abstractmethod
    def _vjp(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, *by_sites: np.ndarray) -> Moments: ...


@dataclass(frozen=True)
class TwoClasses(Link):
    """Expectation propagation for y = -1 or +1: sites match moments of the tilted distribution in closed form.

    Attributes
    ----------
    number : int, of ``_local.LINKS``
    """

    number: int

    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """A row of weight w counts as w rows, so its cavity includes the sites of w - 1 rows.

        For a weight below 1 the share is negative: a whole site is removed, more than the row has. Therefore the parts
        of a divided row, whose cavities contain the sites of the other parts, give the same result as the whole row.
        Rows of equal features and different labels have separate sites and are ordinary neighbours.
        """
        # The site of a row of weight zero is zero, whatever the share.
        return np.where(weight > 0.0, (weight - 1.0) / np.maximum(weight, LEAST_WEIGHT), 0.0)

    def _start(self, y: np.ndarray) -> Sites:
        return np.full((1, len(y)), START_PRECISION), 0.5 * y[None]

    def _scores(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Moments]:
        values, d_mean, d_variance = _local.cavity_scores(self.number, mean[0], variance[0], y)
        return values, (d_mean[None], d_variance[None])

    def _sites(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Sites:
        precision, linear = _local.cavity_sites(self.number, mean[0], variance[0], y)
        return precision[None], linear[None]

    def _vjp(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, *by_sites: np.ndarray) -> Moments:
        found = _local.cavity_vjp(self.number, mean[0], variance[0], y, by_sites[0][0], by_sites[1][0])
        return found[0][None], found[1][None]


def centred(mean: np.ndarray) -> np.ndarray:
    """Subtract the average over the classes from means (C,) or (C, r)."""
    return mean - np.mean(mean, axis=0)


def _contiguous(*arrays: np.ndarray) -> Iterator[np.ndarray]:
    return (np.ascontiguousarray(a, dtype=np.float64) for a in arrays)


@dataclass(frozen=True)
class Softmax(Link):
    """Variational sites for y = 0, ..., C - 1 at the marginals: lambda_c = E[p_c (1 - p_c)], r_c = E[1(y = c) - p_c] +
    lambda_c (m_c - mean over the classes of m).

    The labels do not determine the mean over the classes; it is zero in the full posterior of classes with a shared
    kernel. Sites that contained it would pass it on between neighbours for hundreds of sweeps at large variances.

    Attributes
    ----------
    site : compiled site of exact softmax
    """

    site: Site

    @classmethod
    def of(cls, n_classes: int) -> Softmax:
        return cls(record_of("softmax", "exact").site(n_classes))

    @property
    def curvature(self) -> Curvature | None:
        return self.site.record.curvature

    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """The sites are taken at the marginals, which include the row's whole own site."""
        return np.ones_like(weight)

    def _start(self, y: np.ndarray) -> Sites:
        C = self.site.n_latents
        is_label = y == np.arange(C)[:, None]
        return np.full(is_label.shape, (1.0 - 1.0 / C) / C), is_label - 1.0 / C

    def _scores(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Moments]:
        """For 3 to 100 classes the errors of log probabilities against ``softmax_log_probabilities`` are at most 6e-5
        nats for probabilities above 1e-6, and 3e-3 down to exp(-60).
        """
        values, d_mean, d_variance = _sites.softmax_scores(self.site, *_contiguous(mean, variance, y))
        return values, (d_mean, d_variance)

    def _sites(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Sites:
        mean, variance, y = _contiguous(mean, variance, y)
        precision, linear = np.empty_like(mean), np.empty_like(mean)
        _sites.sites(self.site, mean, variance, y, np.empty(0), np.empty(len(y)), precision, linear)
        return precision, linear - precision * np.mean(mean, axis=0)

    def _vjp(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, *by_sites: np.ndarray) -> Moments:
        by_precision, by_linear = by_sites
        by_precision = by_precision - by_linear * np.mean(mean, axis=0)
        d_mean, d_variance = _sites.softmax_vjp(self.site, *_contiguous(mean, variance, by_precision, by_linear))
        precision, _ = self._sites(mean, variance, y)
        return d_mean - np.mean(precision * by_linear, axis=0), d_variance


# Links that support neighbours: (likelihood, bound) -> function from number of classes to link.
LINKS: dict[tuple[str, str], Callable[[int], Link]] = {
    ("logit", "exact"): lambda n_classes: TwoClasses(_local.LINKS["logit"]),
    ("probit", "exact"): lambda n_classes: TwoClasses(_local.LINKS["probit"]),
    ("softmax", "exact"): Softmax.of,
}
