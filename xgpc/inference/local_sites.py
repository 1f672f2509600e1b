"""Sites of the local posterior by expectation propagation, and the derivatives of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from .. import _local
from .._sites import Site
from ..approximations.local_rows import (
    Coefficients,
    Conditional,
    LocalRows,
    Neighbourhoods,
    blocks_for,
    local_rows,
    row_sums,
)
from ..approximations.sparse import SparsePrior
from ..likelihoods.cavity import Pair, centred
from ..likelihoods.curvature import Curvature
from ..ranges import LEAST_DIVISOR
from ..rows.coinciding import Sites
from ..rows.executor import Executor, parts_for, parts_of
from ..rows.source import ArraySource
from ..statistics import Sums

# Without a row's own term, at least this share of q(z)'s precision in direction b is left, against rounding errors; the
# least share seen was .04. If a row weighs less than 1, its whole site is removed, and at least this share of the row's
# precision is left: sites of early sweeps need this limit.
LEAST_LEFT = 1e-3
# With several classes, a sweep solves for the linear terms to the share BALANCED of the first residual, by NEWTON_STEPS
# Newton steps at most, of the first length in NEWTON_RATES that reduces it. GMRES finds a step to the share GMRES_TOL
# by at most GMRES_ITER products. More accurate solves took as many sweeps and more time (pendigits: 1.17 and 1.59 s).
BALANCED, NEWTON_STEPS, NEWTON_RATES, GMRES_TOL, GMRES_ITER = 0.1, 2, (1.0, 0.5, 0.25), 0.3, 20
# About so many classes, or half of them, are computed together: one product reads the whitened rows for all of them.
GROUP = 8


@dataclass(frozen=True)
class Local:
    """Training rows, their neighbours among themselves, and the likelihood of the labels."""

    executor: Executor
    labels: Pair  # (n,) each, in the form that the site needs, and weights
    prior: SparsePrior
    rows: LocalRows
    index: np.ndarray  # (n, k), with ``n_earlier`` as from ``in_order``
    n_earlier: np.ndarray  # (n,)
    site: Site
    blocks: np.ndarray | None  # covariances of the neighbourhoods' residuals, which sweeps share; None: not shared

    @classmethod
    def of(cls, executor: Executor, source: ArraySource, prior: SparsePrior, ordered_index: Pair, site: Site) -> Local:
        """Transform the rows; ``ordered_index`` is as from ``in_order``."""
        rows, labels = local_rows(executor, prior, source.X), (source.y, source.weight)
        return cls(executor, labels, prior, rows, *ordered_index, site, blocks_for(*ordered_index[0].shape))

    def neighbourhoods(self, sites: Sites) -> Neighbourhoods:
        return Neighbourhoods(self.prior.core, self.rows, self.rows, sites, self.index, self.n_earlier, self.blocks)

    def of_labels(self, function: Callable[..., Pair | np.ndarray], *arrays: np.ndarray) -> np.ndarray:
        """A function of the record's ``cavity`` at ``arrays``, whose last axis is that of the rows, part by part."""

        def part(rows: slice) -> Pair | np.ndarray:
            return function(self.site, *[array[..., rows] for array in arrays])

        return np.concatenate(self.executor.each(part, parts_of(len(self.index))), axis=-1)

    def sites_at(self, mean: np.ndarray, variance: np.ndarray) -> Sites:
        """The sites that predictions (C, n) of the rows make."""
        y, weight = self.labels
        return weight * self.of_labels(self.site.record.cavity.sites, mean, variance, y)


def site_terms(conditional: Conditional, sites: Sites, rows: slice) -> Pair:
    """Precisions s and linear terms g that the sites of some rows have for b.z, given their neighbours' sites.

    They are 1 / (1 / lambda + variance), and its product with r / lambda - mean.
    """
    precision, linear = sites[:, :, rows]
    share = 1.0 / (1.0 + precision * conditional.variance[:, rows])
    return share * precision, share * (linear - precision * conditional.mean[:, rows])


class Marginal(NamedTuple):
    """Marginals (C, n) of the rows under sites of given precisions and linear terms, and the new sites that follow."""

    given_linear: np.ndarray  # the given linear terms
    w: np.ndarray  # (C, m), mean of q(z)
    mean: np.ndarray  # of the latent values, centred
    precision: np.ndarray  # of the new sites
    gradient: np.ndarray  # of each row's expected log likelihood by the mean
    missing: np.ndarray  # gradient + (given precision) mean - given_linear, zero where sites agree


class Sweep:
    """Predictions of rows from all other rows (cavities) under given sites, and the new sites that follow.

    With s and g the ``site_terms`` of a row in q(z), beta = b.V b and t = 1 - s beta, the other rows' sites predict b.z
    of the row as normal with mean (b.w - beta g) / t and variance beta / t. The conditional given the neighbours is
    added to this. Of a row's own site the share ``own_share`` counts as known; if it is negative, more than the site is
    removed. Arrays are (C, n).

    By the chain rule of probabilities each row's site, given those of its earlier neighbours, adds s b b^T and g b to
    the natural parameters of q(z). O(n (k^2 (m + d) + C (k^3 + m^2))); ValueError if q(z) is not proper.

    Parameters
    ----------
    keep_b : whether to keep b given all neighbours, which is as large as the whitened rows
    keep_gamma : whether to keep the neighbours' weights
    """

    def __init__(self, local: Local, sites: Sites, keep_b: bool = False, keep_gamma: bool = False):
        self.local, self.given_sites = local, sites
        at, (C, n), m = local.neighbourhoods(sites), sites[0].shape, local.rows.a.shape[1]
        neighbours, earlier = [at.empty(n, keep_gamma)._replace(b=np.empty((C, m, 0))) for _ in range(2)]
        sums, all_b, parts = Sums([np.zeros((C, m)), np.zeros((C, m, m))]), dict[int, np.ndarray](), parts_for(n, C)

        def part(rows: slice) -> Sums:
            all_b[rows.start], b = [np.empty((C, m, rows.stop - rows.start)) for _ in range(2)]
            at.condition(rows.start, rows.stop, [neighbours._replace(b=all_b[rows.start]), earlier._replace(b=b)])
            s, g = site_terms(earlier, sites, rows)
            return row_sums(b, g, s)

        local.executor.fold(part, parts, sums.__iadd__)
        q, (s, g) = Coefficients.given(*sums), site_terms(neighbours, sites, slice(None))
        b_mean, beta = np.concatenate(local.executor.each(lambda rows: q.moments(all_b[rows.start]), parts), axis=2)
        self.q, self.terms, self.b_mean, self.b_variance = q, (s, g), b_mean, beta
        # Given all neighbours of a row, and given only those that precede it, without b; b where a part begins.
        self.neighbours, self.earlier, self.b = neighbours, earlier, all_b if keep_b else {}
        # The share t of the precision in direction b that the other rows leave.
        self.left_share = np.maximum(1.0 - s * beta, LEAST_LEFT)
        # Of the cavity.
        self.mean = neighbours.mean + (b_mean - beta * g) / self.left_share
        self.variance = neighbours.variance + beta / self.left_share
        own_share, most = local.site.record.cavity.own_share(local.labels[1]), 1.0 - LEAST_LEFT
        own_ratio = self.variance * (own_share * sites[0])
        part_left = most / np.maximum(most, -own_ratio)
        # Limited so that the variance stays positive; and the share of it that the known part of the own site leaves.
        self.own_share, self.share = part_left * own_share, 1.0 / (1.0 + part_left * own_ratio)

    @cached_property
    def marginals(self) -> Pair:
        """Means and variances with the known part of the own sites."""
        return (self.mean + self.variance * (self.own_share * self.given_sites[1])) * self.share, self.marginal_variance

    @cached_property
    def marginal_variance(self) -> np.ndarray:
        return self.variance * self.share

    def predicted(self) -> np.ndarray:
        """Means and variances (2, C, n) with the whole own sites."""
        precision, linear = self.given_sites
        share = 1.0 / (1.0 + precision * self.variance)
        return share * np.array([self.mean + self.variance * linear, self.variance])

    def sites(self) -> Sites:
        return self.local.sites_at(*self.marginals)

    def scores(self) -> np.ndarray:
        """log p(y) (n,) of the rows at their marginals; of two classes."""
        local, cavity = self.local, self.local.site.record.cavity
        return local.of_labels(lambda *args: cavity.scores(*args)[0], *self.marginals, local.labels[0])

    def vjp(self, by_sites: Sites) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Gradients by b.w, b.V b, and variance and mean given the neighbours, from those by the new sites.

        The old sites are constants.
        """
        local, (y, weight) = self.local, self.local.labels
        d_mean, d_variance = local.of_labels(local.site.record.cavity.vjp, *self.marginals, y, weight * by_sites)
        precision, linear = self.own_share * self.given_sites
        d_variance = self.share**2 * (d_variance + d_mean * (linear - self.mean * precision))
        d_mean = self.share * d_mean
        (s, g), left_share = self.terms, self.left_share
        by_mean, by_variance = d_mean / left_share, d_variance / left_share
        d_left = -(by_mean * (self.b_mean - self.b_variance * g) + by_variance * self.b_variance) / left_share
        d_left[left_share == LEAST_LEFT] = 0.0
        d_s, d_g = -self.b_variance * d_left, -self.b_variance * by_mean
        # s and g, too, depend on variance and mean given the neighbours.
        return by_mean, by_variance - g * by_mean - s * d_left, d_variance - s * (s * d_s + g * d_g), d_mean - s * d_g

    # What follows needs ``keep_gamma``. It has the marginals as functions of the sites' linear terms: the means are
    # linear in these, and the variances do not depend on them.
    @cached_property
    def slopes(self) -> Pair:
        """(C, n) each, of the means by those given the neighbours or of b.z, and by the linear terms.

        The first two are equal, 1 + s beta / t = 1 / t, where t has not reached its limit.
        """
        b_variance, share = self.b_variance / self.left_share, self.share
        by_linear = self.variance * self.own_share - b_variance / (1.0 + self.given_sites[0] * self.neighbours.variance)
        return share / self.left_share, share * by_linear

    def _means(self, linear: np.ndarray) -> Pair:
        """Mean of q(z), and marginal means (C, n) for linear terms (C, n); O(C n (k + m))."""
        local, slopes = self.local, self.slopes
        A, index = local.rows.a, local.index

        def of_classes(classes: slice) -> Pair:
            precision, terms = self.given_sites[0][classes], linear[classes]
            by_mean, by_linear = (slope[classes] for slope in slopes)
            targets = terms / np.maximum(precision, LEAST_DIVISOR)
            earlier = self.earlier.gamma[classes], self.earlier.variance[classes]
            # The matrix of all b is A - gamma A.
            by_a = _local.chain_terms(index, local.n_earlier, *earlier, precision, terms, targets)
            w = (self.q.V[classes] @ (by_a @ A)[..., None])[..., 0]
            a_mean = w @ A.T
            near = _local.neighbour_sums(index, self.neighbours.gamma[classes], targets - a_mean)
            return w, by_mean * (a_mean + near) + by_linear * terms

        # At least two parts, or few classes would take a single thread.
        ends = np.linspace(0, len(linear), max(2, len(linear) // GROUP) + 1).astype(int)
        w, mean = zip(*local.executor.each(of_classes, list(map(slice, ends, ends[1:]))), strict=True)
        return np.concatenate(w), np.concatenate(mean)

    def with_linear(self, terms: np.ndarray) -> Marginal:
        w, mean = self._means(terms)
        precision, linear = self.local.sites_at(mean, self.marginal_variance)
        mean = centred(mean)
        gradient = linear - precision * mean
        return Marginal(terms, w, mean, precision, gradient, gradient + self.given_sites[0] * mean - terms)

    def balanced(self, curvature: Curvature) -> Marginal:
        """Solve for consistent linear terms by Newton steps with the curvature that couples the classes."""
        marginal = self.with_linear(self.given_sites[1])
        least = BALANCED * np.linalg.norm(marginal.missing)
        for _ in range(NEWTON_STEPS):
            step = self._newton_step(marginal, curvature(*self.local.labels, marginal.gradient, marginal.precision))
            trials = (self.with_linear(marginal.given_linear + rate * step) for rate in NEWTON_RATES)
            size = np.linalg.norm(marginal.missing)
            better = next((trial for trial in trials if np.linalg.norm(trial.missing) < size), None)
            if better is None:
                break
            marginal = better
            if np.linalg.norm(marginal.missing) < least:
                break
        return marginal

    def _newton_step(self, marginal: Marginal, curvature: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Newton step by GMRES: a step s of the linear terms changes the mean by M s, and the residual by (precision -
        curvature) M s - s.
        """
        precision = self.given_sites[0]

        def product(step: np.ndarray) -> np.ndarray:
            moved = centred(self._means(step.reshape(precision.shape))[1])
            return step - (precision * moved - curvature(moved)).ravel()

        operator = LinearOperator((precision.size, precision.size), matvec=product, dtype=np.float64)
        step, _ = gmres(operator, marginal.missing.ravel(), rtol=GMRES_TOL, restart=GMRES_ITER, maxiter=1)
        return step.reshape(precision.shape)
