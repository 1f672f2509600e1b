"""Sites of the local posterior by expectation propagation, and the derivatives of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from .. import _local
from .._sites import Site
from ..approximations.local_rows import (
    LEAST_PRECISION,
    Coefficients,
    Conditional,
    LocalRows,
    Neighbourhoods,
    blocks_for,
    by_coefficients,
    by_parts,
    moments,
    site_terms,
    site_terms_vjp,
)
from ..approximations.sparse import SparsePrior
from ..likelihoods.cavity import centred
from ..likelihoods.curvature import Curvature
from ..rows.coinciding import Sites
from ..rows.executor import Executor, parts_for

# Least share of q(z)'s precision along b without a row's own term, against rounding; the least share seen was .04.
LEAST_LEFT = 1e-3
# Least share of a row's precision when the whole site of a row of weight below 1 is removed, for sites of early sweeps.
LEAST_WITHOUT = 1e-3
# With several classes, a sweep solves for the linear terms to this share of the first residual, by this many Newton
# steps of these lengths; each step uses GMRES with this tolerance and number of products. More accurate solves took as
# many sweeps and more time (pendigits: 1.17 and 1.59 s).
BALANCED, NEWTON_STEPS, NEWTON_RATES, GMRES_TOL, GMRES_ITER = 0.1, 2, (1.0, 0.5, 0.25), 0.3, 20
# Classes whose means a thread computes at a time: products with the whitened rows read these once for so many.
GROUP = 8


@dataclass(frozen=True)
class Local:
    """Training rows, their neighbours among themselves, and the likelihood of the labels."""

    executor: Executor
    labels: tuple[np.ndarray, np.ndarray]  # (n,) each, in the form that the site needs, and weights
    prior: SparsePrior
    rows: LocalRows
    index: np.ndarray  # (n, k), with ``n_earlier`` as from ``in_order``
    n_earlier: np.ndarray  # (n,)
    site: Site
    blocks: np.ndarray | None = None  # covariances of the neighbourhoods' residuals, which sweeps share

    def with_blocks(self) -> Local:
        """Keep what sweeps have in common, if that takes little memory."""
        return self if self.blocks is not None else replace(self, blocks=blocks_for(*self.index.shape))

    def neighbourhoods(self, sites: Sites) -> Neighbourhoods:
        """Neighbourhoods of the rows under given sites."""
        return Neighbourhoods(self.prior.core, self.rows, sites, self.rows, self.index, self.n_earlier, self.blocks)

    def sites_at(self, mean: np.ndarray, variance: np.ndarray) -> Sites:
        """The sites that predictions (C, n) of the rows make."""
        (y, weight), cavity = self.labels, self.site.record.cavity
        precision, linear = by_parts(
            self.executor, lambda rows: cavity.sites(self.site, mean[:, rows], variance[:, rows], y[rows]), len(y)
        )
        return weight * precision, weight * linear

    def sites_vjp(self, mean: np.ndarray, variance: np.ndarray, by_sites: Sites) -> tuple[np.ndarray, ...]:
        """Gradients (C, n) by the predictions, from those by the sites."""
        y, weight = self.labels
        by_precision, by_linear = weight * by_sites[0], weight * by_sites[1]

        def part(rows: slice) -> Sites:
            here = by_precision[:, rows], by_linear[:, rows]
            return self.site.record.cavity.vjp(self.site, mean[:, rows], variance[:, rows], y[rows], here)

        return by_parts(self.executor, part, len(y))


class GivenNeighbours(NamedTuple):
    """The first half of a sweep: rows given z and their neighbours' sites, and the sums that determine q(z)."""

    given: Sites  # the rows' own
    neighbours: Conditional  # given all neighbours of a row
    earlier: Conditional | None  # given only the neighbours that precede the row; without b
    natural: Coefficients  # h and P, sums over the rows of what their sites add to the natural parameters of q(z)

    @classmethod
    def of(cls, local: Local, sites: Sites, keep_weights: bool = False) -> GivenNeighbours:
        """O(n k^2 (m + d) + C n (k^3 + k m + m^2)), under the sites (C, n) of all rows.

        By the chain rule of probabilities each row's site, given those of its earlier neighbours, adds s b b^T and g b
        to the natural parameters of q(z). ``keep_weights`` keeps gamma, and variance, mean and gamma given earlier
        neighbours.
        """
        at, n = local.neighbourhoods(sites), len(local.index)
        neighbours, all_earlier = at.empty(n, keep_weights), at.empty(n, with_gamma=True) if keep_weights else None
        natural = Coefficients.zeros(len(sites[0]), local.rows.a.shape[1])

        def part(rows: slice) -> Coefficients:
            out = given = at.empty(rows.stop - rows.start)
            if all_earlier:
                out = all_earlier._replace(b=given.b)
                given = Conditional(given.b, *(array[:, rows] for array in out[1:]))
            at.compiled.condition(rows.start, rows.stop, [neighbours, out])
            s, g = site_terms(given.variance, given.mean, (sites[0][:, rows], sites[1][:, rows]))
            return by_coefficients(given.b, g, s)

        local.executor.fold(part, parts_for(n, len(sites[0])), natural.add)
        return cls(sites, neighbours, all_earlier, natural)


@dataclass(frozen=True)
class Sweep:
    """Predictions of rows from all other rows (cavities) under given sites, and the new sites that follow.

    With s and g the ``site_terms`` of a row in q(z), beta = b.V b and t = 1 - s beta, the other rows' sites predict b.z
    of the row as normal with mean (b.w - beta g) / t and variance beta / t. The conditional given the neighbours is
    added to this. Of a row's own site the share ``own_share`` counts as known; if it is negative, more than the site is
    removed.
    """

    local: Local
    given: Sites
    neighbours: Conditional  # given all neighbours of a row; its b has no rows unless it was to be kept
    earlier: Conditional | None  # as in ``GivenNeighbours``
    q: Coefficients  # q(z), which the given sites determine
    terms: Sites  # s and g (C, n)
    b_mean: np.ndarray  # b.w (C, n)
    b_variance: np.ndarray  # beta (C, n)
    own_share: np.ndarray  # (n,)

    @classmethod
    def of(cls, local: Local, sites: Sites, keep_b: bool = False, keep_weights: bool = False) -> Sweep:
        """Predict all rows: O(n (k^2 (m + d) + C (k^3 + m^2))).

        ``keep_b`` keeps b given all neighbours, which is as large as the whitened rows; ``keep_weights`` is as in
        ``GivenNeighbours``. ValueError if q(z) is not proper.
        """
        first = GivenNeighbours.of(local, sites, keep_weights)
        return cls.second(local, first, first.natural.from_natural(), keep_b)

    @classmethod
    def second(cls, local: Local, first: GivenNeighbours, q: Coefficients, keep_b: bool = False) -> Sweep:
        """The second half of a sweep, with q(z) from the sums over all rows; O(C n m^2)."""
        neighbours = first.neighbours
        terms = site_terms(neighbours.variance, neighbours.mean, first.given)
        own_share = local.site.record.cavity.own_share(local.labels[1])
        b_mean, b_variance = moments(local.executor, neighbours.b, q)
        if not keep_b:
            neighbours = neighbours._replace(b=np.empty((len(b_mean), 0, q.w.shape[1])))
        return cls(local, first.given, neighbours, first.earlier, q, terms, b_mean, b_variance, own_share)

    @cached_property
    def left(self) -> np.ndarray:
        """t, the share of the precision in direction b that the other rows leave."""
        return np.maximum(1.0 - self.terms[0] * self.b_variance, LEAST_LEFT)

    @property
    def mean(self) -> np.ndarray:
        return self.neighbours.mean + (self.b_mean - self.b_variance * self.terms[1]) / self.left

    @property
    def variance(self) -> np.ndarray:
        return self.neighbours.variance + self.b_variance / self.left

    @cached_property
    def kept(self) -> tuple[np.ndarray, np.ndarray]:
        """Part of ``own_share`` that leaves a positive variance, and the share of the variance that is left by it."""
        most, own = 1.0 - LEAST_WITHOUT, self.variance * (self.own_share * self.given[0])
        part = most / np.maximum(most, -own)
        return part, 1.0 / (1.0 + part * own)

    def marginals(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (C, n) with the own sites' part."""
        part, share = self.kept
        linear = part * self.own_share * self.given[1]
        return (self.mean + self.variance * linear) * share, self.variance * share

    def predicted(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (C, n) with the whole own sites."""
        precision, linear = self.given
        share = 1.0 / (1.0 + precision * self.variance)
        return (self.mean + self.variance * linear) * share, self.variance * share

    def sites(self) -> Sites:
        return self.local.sites_at(*self.marginals())

    def vjp(self, by_sites: Sites) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Gradients by b.w, b.V b, and variance and mean given the neighbours, from those by the new sites.

        The old sites are constants.
        """
        part, share = self.kept
        precision, linear = (part * self.own_share * term for term in self.given)
        d_mean, d_variance = self.local.sites_vjp(*self.marginals(), by_sites)
        d_variance = share**2 * (d_variance + d_mean * (linear - self.mean * precision))
        d_mean = share * d_mean
        (s, g), left = self.terms, self.left
        by_mean, by_variance = d_mean / left, d_variance / left
        d_left = -(by_mean * (self.b_mean - self.b_variance * g) + by_variance * self.b_variance) / left
        d_left[left == LEAST_LEFT] = 0.0
        of_variance, of_mean = site_terms_vjp(self.terms, -self.b_variance * d_left, -self.b_variance * by_mean)
        return by_mean, by_variance - g * by_mean - s * d_left, d_variance + of_variance, d_mean + of_mean


class Marginal(NamedTuple):
    """Marginals (C, n) of the rows under sites of given precisions and linear terms, and the new sites that follow."""

    given: np.ndarray  # the linear terms
    w: np.ndarray  # (C, m), mean of q(z)
    mean: np.ndarray  # of the latent values, centred
    variance: np.ndarray
    precision: np.ndarray  # of the new sites
    linear: np.ndarray
    gradient: np.ndarray  # of each row's expected log likelihood by the mean
    missing: np.ndarray  # gradient + (given precision) mean - given, zero where sites agree


@dataclass(frozen=True)
class GivenPrecisions:
    """Marginals as a function of the sites' linear terms at given precisions; the means are linear in these terms."""

    local: Local
    precision: np.ndarray  # (C, n)
    q: Coefficients  # its V does not depend on the linear terms
    earlier_variance: np.ndarray  # (C, n), given z and the earlier neighbours
    variance: np.ndarray  # (C, n), of the marginals
    # (C, n) each, of the marginals' means by those given the neighbours, by those of b.z, and by the linear terms.
    slopes: tuple[np.ndarray, np.ndarray, np.ndarray]
    gamma: np.ndarray  # (C, n, k), given all neighbours
    earlier_gamma: np.ndarray  # given earlier ones

    @classmethod
    def of(cls, local: Local, sites: Sites) -> GivenPrecisions:
        """Compute what does not depend on the linear terms; O(n (k^2 (m + d) + C (k^3 + m^2)))."""
        sweep = Sweep.of(local, sites, keep_weights=True)
        neighbours, earlier, (part, share) = sweep.neighbours, sweep.earlier, sweep.kept
        assert earlier is not None
        (s, _), b_variance = sweep.terms, sweep.b_variance / sweep.left
        by_linear = sweep.variance * part * sweep.own_share - b_variance / (1.0 + sites[0] * neighbours.variance)
        slopes = share * (1.0 + b_variance * s), share / sweep.left, share * by_linear
        weights = neighbours.gamma, earlier.gamma
        return cls(local, sites[0], sweep.q, earlier.variance, sweep.variance * share, slopes, *weights)

    def _means(self, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of q(z), and marginal means (C, n) for linear terms (C, n); O(C n (k + m))."""
        A, index = self.local.rows.a, self.local.index

        def of_classes(here: slice) -> tuple[np.ndarray, np.ndarray]:
            precision, given, gamma = self.precision[here], linear[here], self.gamma[here]
            by_mean, by_b_mean, by_linear = (slope[here] for slope in self.slopes)
            targets = given / np.maximum(precision, LEAST_PRECISION)
            earlier = self.earlier_gamma[here], self.earlier_variance[here]
            # The matrix of all b is A - gamma A.
            by_a = _local.chain_terms(index, self.local.n_earlier, *earlier, precision, given, targets)
            w = (self.q.V[here] @ (by_a @ A)[..., None])[..., 0]
            a_mean = w @ A.T
            near_mean, near_a_mean = _local.neighbour_sums(index, gamma, targets, a_mean)
            return w, by_mean * near_mean + by_b_mean * (a_mean - near_a_mean) + by_linear * given

        groups = [slice(c, c + GROUP) for c in range(0, len(linear), GROUP)]
        w, mean = zip(*self.local.executor.each(of_classes, groups), strict=True)
        return np.concatenate(w), np.concatenate(mean)

    def marginal(self, given: np.ndarray) -> Marginal:
        w, mean = self._means(given)
        precision, linear = self.local.sites_at(mean, self.variance)
        mean = centred(mean)
        gradient = linear - precision * mean
        missing = gradient + self.precision * mean - given
        return Marginal(given, w, mean, self.variance, precision, linear, gradient, missing)

    def balanced(self, given: np.ndarray, curvature: Curvature) -> Marginal:
        """Solve for consistent linear terms by Newton steps with the curvature that couples the classes."""
        here = self.marginal(given)
        least = BALANCED * np.linalg.norm(here.missing)
        for _ in range(NEWTON_STEPS):
            step = self._newton_step(here, curvature(*self.local.labels, here))
            trials = (self.marginal(here.given + rate * step) for rate in NEWTON_RATES)
            size = np.linalg.norm(here.missing)
            better = next((trial for trial in trials if np.linalg.norm(trial.missing) < size), None)
            if better is None:
                break
            here = better
            if np.linalg.norm(here.missing) < least:
                break
        return here

    def _newton_step(self, here: Marginal, bend: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Newton step by GMRES: if a step changes the mean by M step, the residual changes by (precision - bend) M step
        - step.
        """

        def product(step: np.ndarray) -> np.ndarray:
            moved = centred(self._means(step.reshape(self.precision.shape))[1])
            return step - (self.precision * moved - bend(moved)).ravel()

        n = self.precision.size
        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
        step, _ = gmres(operator, here.missing.ravel(), rtol=GMRES_TOL, restart=GMRES_ITER, maxiter=1)
        return step.reshape(self.precision.shape)
