"""What expectations of a likelihood make of normal predictions: scores, sites, and how these change.

Arrays are (C, r): latent functions, one for two classes, by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .. import _local
from ..approximations.local_rows import Sites
from ..likelihoods.quasi_random import normal_nodes

# Values of a chunk of rows by nodes and classes that are worked on at a time.
CHUNK_VALUES = 2**18
# A site's precision to start from, of the logistic function near the middle.
START_PRECISION = 0.2
# A variance counts as so much at least where its root is divided by.
LEAST_VARIANCE = 1e-12

# Means and variances, or a gradient by them.
Moments = tuple[np.ndarray, np.ndarray]


class Link(Protocol):
    """How labels y (r,) follow from C latent values."""

    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """How much of its own site (r,) counts where the site of a row of that weight is made."""

    def start(self, y: np.ndarray) -> Sites:
        """Sites to start from."""

    def scores(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Moments]:
        """log p(y) (r,) in nats, and its gradient by means and variances."""

    def sites(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Sites:
        """Precisions and linear terms."""

    def pull_back(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, by_sites: Sites) -> Moments:
        """Gradient by means and variances from one by the sites."""


@dataclass(frozen=True)
class TwoClasses:
    """Expectation propagation for y = -1 or +1: the sites match moments of the tilted distribution, in closed form.

    Attributes
    ----------
    number : int, of ``_local.LINKS``
    """

    number: int

    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """A row of weight w is w rows: the others' sites are part of the cavity of one."""
        return np.maximum(weight - 1.0, 0.0) / weight

    def start(self, y: np.ndarray) -> Sites:
        return np.full((1, len(y)), START_PRECISION), 0.5 * y[None]

    def scores(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Moments]:
        values, d_mean, d_variance = _local.cavity_scores(self.number, mean[0], variance[0], y)
        return values, (d_mean[None], d_variance[None])

    def sites(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Sites:
        precision, linear = _local.cavity_sites(self.number, mean[0], variance[0], y)
        return precision[None], linear[None]

    def pull_back(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, by_sites: Sites) -> Moments:
        found = _local.cavity_pull_back(self.number, mean[0], variance[0], y, by_sites[0][0], by_sites[1][0])
        return found[0][None], found[1][None]


@dataclass(frozen=True)
class Softmax:
    """Variational sites for y = 0, ..., C - 1, at the marginals: lambda_c = E[p_c (1 - p_c)], r_c = E[1(y = c) - p_c] +
    lambda_c m_c; expectations by nodes.

    Attributes
    ----------
    nodes : (C, s), equal weights
    """

    nodes: np.ndarray

    @classmethod
    def of(cls, n_classes: int) -> Softmax:
        half = normal_nodes(n_classes).T
        return cls(np.ascontiguousarray(np.concatenate([half, -half], axis=1)))

    def own_share(self, weight: np.ndarray) -> np.ndarray:
        """The marginal is the cavity with all of the row's own site."""
        return np.ones_like(weight)

    def start(self, y: np.ndarray) -> Sites:
        C = len(self.nodes)
        is_label = y == np.arange(C)[:, None]
        return np.full(is_label.shape, (1.0 - 1.0 / C) / C), is_label - 1.0 / C

    def _chunks(
        self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, their probabilities (C, rows, s), which is the label (C, rows), and half the inverse deviations."""
        size = max(1, CHUNK_VALUES // self.nodes.size)
        for first in range(0, len(y), size):
            rows = slice(first, first + size)
            deviation = np.sqrt(np.maximum(variance[:, rows], LEAST_VARIANCE))
            values = mean[:, rows, None] + deviation[..., None] * self.nodes[:, None, :]
            values -= np.max(values, axis=0)
            np.exp(values, out=values)
            values /= np.sum(values, axis=0)
            yield rows, values, y[rows] == np.arange(len(self.nodes))[:, None], 0.5 / deviation

    def scores(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Moments]:
        values, d_mean, d_variance = np.empty(len(y)), np.empty_like(mean), np.empty_like(mean)
        for rows, p, is_label, half in self._chunks(mean, variance, y):
            of_label = np.maximum(np.sum(np.where(is_label[..., None], p, 0.0), axis=0), np.finfo(float).tiny)
            total = np.sum(of_label, axis=1)
            values[rows] = np.log(total / self.nodes.shape[1])
            share = of_label / total[:, None]
            slopes = share * (is_label[..., None] - p)
            d_mean[:, rows] = np.sum(slopes, axis=2)
            d_variance[:, rows] = half * np.einsum("crs,cs->cr", slopes, self.nodes)
        return values, (d_mean, d_variance)

    def sites(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Sites:
        precision, linear = np.empty_like(mean), np.empty_like(mean)
        for rows, p, is_label, _ in self._chunks(mean, variance, y):
            expected = np.mean(p, axis=2)
            precision[:, rows] = expected - np.mean(p * p, axis=2)
            linear[:, rows] = is_label - expected + precision[:, rows] * mean[:, rows]
        return precision, linear

    def pull_back(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, by_sites: Sites) -> Moments:
        """Of sum_c a_c p_c (1 - p_c) - d_c p_c on average over nodes, a = d lambda + d r m, d = d r."""
        d_mean, d_variance = np.empty_like(mean), np.empty_like(mean)
        for rows, p, _, half in self._chunks(mean, variance, y):
            d_precision, d_linear = by_sites[0][:, rows], by_sites[1][:, rows]
            curved = (d_precision + d_linear * mean[:, rows])[..., None]
            by_p = curved * (1.0 - 2.0 * p) - d_linear[..., None]
            by_value = p * (by_p - np.sum(by_p * p, axis=0))
            precision = np.mean(p, axis=2) - np.mean(p * p, axis=2)
            d_mean[:, rows] = np.mean(by_value, axis=2) + d_linear * precision
            d_variance[:, rows] = half * np.einsum("crs,cs->cr", by_value, self.nodes) / self.nodes.shape[1]
        return d_mean, d_variance


# (likelihood, bound) -> number of classes -> link, of those that can have neighbours
LINKS: dict[tuple[str, str], Callable[[int], Any]] = {
    ("logit", "exact"): lambda n_classes: TwoClasses(_local.LINKS["logit"]),
    ("probit", "exact"): lambda n_classes: TwoClasses(_local.LINKS["probit"]),
    ("softmax", "exact"): Softmax.of,
}
