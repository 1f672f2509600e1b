"""Sites of the local posterior by expectation propagation, and the derivatives of a sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from .. import _local
from .._kernels import InducingKernel
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
from ..likelihoods.curvature import LEAST_WEIGHT, Curvature
from ..rows.coinciding import Sites
from ..rows.executor import Executor, parts_for
from ..rows.source import ArraySource, labels_and_weights
from .links import Link, centred

# Length of the first steps, and the least length after sweeps that changed more than the one before. (With first steps
# of .7, eight data sets took a third more sweeps.)
FIRST_STEP, LEAST_STEP = 1.0, 0.1
# With two classes, sweeps end when the mean change of precision plus linear term is below this; log probabilities are
# then within .0004 nats of the limit on average (electricity, 18 000 rows).
TOLERANCE, MAX_SWEEPS = 1e-3, 50
# Without convergence, the sites with the least change are accepted within this many tolerances (.002 nats on average).
NEAR = 5.0
# Anderson's acceleration starts when a sweep changes less than this, and combines this many earlier sweeps. (With .3
# bank-marketing takes 15 sweeps, not 8; with six earlier sweeps none takes fewer.)
EXTRAPOLATED_BELOW, MEMORY = 0.1, 4
# The plain step replaces an extrapolated one after which a sweep changes more than so many times as much as before.
# (With 2, cod-rna takes 22 sweeps and not 11; without this rule skin_nonskin did not converge in 50.)
TAKEN_BACK = 1.2
# Ridge, relative to the steps' mean square, against nearly parallel steps; 0 to 1e-6 took the same number of sweeps. An
# extrapolated precision stays within this factor of a plain step's; without this limit two separable classes took 34
# sweeps, not 19 (with first steps of .7).
RIDGE, MOST_FACTOR = 1e-10, 1e3
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
# Length of the precisions' steps: with full steps a few rows of pendigits oscillated for over fifty sweeps.
PRECISION_STEP = 0.7
# With several classes, sweeps end when no training row's expected probabilities change by more than this; log
# probabilities of other rows are then within .0002, .0001 and .0006 nats of the limit on average (letter, pendigits,
# wine: 10 or 11 sweeps; with 3e-4, 11 to 13).
CLASSES_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Local:
    """Training rows, their neighbours among themselves, and the link to the labels."""

    executor: Executor
    source: ArraySource  # labels in the form that the link needs
    core: InducingKernel
    rows: LocalRows
    index: np.ndarray  # (n, k), with ``n_earlier`` as from ``in_order``
    n_earlier: np.ndarray  # (n,)
    link: Link
    blocks: np.ndarray | None = None  # covariances of the neighbourhoods' residuals, which sweeps share

    def with_blocks(self) -> Local:
        """Keep what sweeps have in common, if that takes little memory."""
        return self if self.blocks is not None else replace(self, blocks=blocks_for(*self.index.shape))

    @cached_property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and weights (n,)."""
        return labels_and_weights(self.source)

    def neighbourhoods(self, sites: Sites) -> Neighbourhoods:
        """Neighbourhoods of the rows among themselves."""
        return Neighbourhoods(self.core, self.rows, sites, self.rows, self.index, self.n_earlier, self.blocks)

    def sites_at(self, mean: np.ndarray, variance: np.ndarray) -> Sites:
        """The sites that predictions (C, n) of the rows make."""
        y, weight = self.labels
        precision, linear = by_parts(
            self.executor, lambda rows: self.link.sites(mean[:, rows], variance[:, rows], y[rows]), len(y)
        )
        return weight * precision, weight * linear

    def sites_vjp(self, mean: np.ndarray, variance: np.ndarray, by_sites: Sites) -> tuple[np.ndarray, ...]:
        """Gradients (C, n) by the predictions, from those by the sites."""
        y, weight = self.labels
        by_precision, by_linear = weight * by_sites[0], weight * by_sites[1]

        def part(rows: slice) -> Sites:
            here = by_precision[:, rows], by_linear[:, rows]
            return self.link.vjp(mean[:, rows], variance[:, rows], y[rows], here)

        return by_parts(self.executor, part, len(y))


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
    earlier: Conditional | None  # given only the neighbours that precede the row; without b
    q: Coefficients  # q(z), which the given sites determine
    terms: Sites  # s and g (C, n)
    b_mean: np.ndarray  # b.w (C, n)
    b_variance: np.ndarray  # beta (C, n)
    own_share: np.ndarray  # (n,)

    @classmethod
    def of(cls, local: Local, sites: Sites, keep_b: bool = False, keep_weights: bool = False) -> Sweep:
        """Predict all rows: O(n (k^2 (m + d) + C (k^3 + m^2))).

        By the chain rule of probabilities each row's site, given those of its earlier neighbours, adds s b b^T and g b
        to the natural parameters of q(z). ``keep_b`` keeps b given all neighbours, which is as large as the whitened
        rows; ``keep_weights`` keeps gamma, and variance, mean and gamma given earlier neighbours. ValueError if q(z) is
        not proper.
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
        q = Coefficients.of(natural.V, natural.w)
        terms = site_terms(neighbours.variance, neighbours.mean, sites)
        own_share = local.link.own_share(local.labels[1])
        b_mean, b_variance = moments(local.executor, neighbours.b, q)
        if not keep_b:
            neighbours = neighbours._replace(b=at.empty(0).b)
        return cls(local, sites, neighbours, all_earlier, q, terms, b_mean, b_variance, own_share)

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


def start_sites(source: ArraySource, link: Link) -> Sites:
    """Initial sites, before any sweep."""
    y, weight = labels_and_weights(source)
    precision, linear = link.start(y)
    return weight * precision, weight * linear


@dataclass(frozen=True)
class Sweeps:
    """Sites, what follows from them, the number of sweeps, and whether these converged at least nearly.

    Attributes
    ----------
    q : Coefficients, q(z)
    predicted : means and variances (C, n) of the rows, each from all sites and its own
    """

    sites: Sites
    q: Coefficients
    predicted: tuple[np.ndarray, np.ndarray]
    n_sweeps: int
    converged: bool


def extrapolated(points: Sequence[np.ndarray], steps: Sequence[np.ndarray], length: float) -> np.ndarray:
    """Anderson's acceleration of x <- x + length f(x): the next x from the last ones (2, C, n) and their steps f(x).

    It is the combination of the last iterates whose combined step is smallest; precisions stay near a plain step's.
    """
    point, step = points[-1], steps[-1]
    plain = point + length * step
    if len(points) == 1:
        return plain
    by_point, by_step = (np.array([(all_[-1] - one).ravel() for one in all_][:-1]) for all_ in (points, steps))
    products = by_step @ by_step.T
    products[np.diag_indices_from(products)] += RIDGE * np.trace(products)
    share = np.linalg.solve(products, by_step @ step.ravel())
    found = plain - (share @ (by_point + length * by_step)).reshape(point.shape)
    np.clip(found[0], plain[0] / MOST_FACTOR, plain[0] * MOST_FACTOR, out=found[0])
    return found


def converged_sites(local: Local, sites: Sites, tol: float | None = None, max_sweeps: int = MAX_SWEEPS) -> Sweeps:
    """Sweep over all rows at once until the sites no longer change.

    ``tol`` is the change of sites, or of expected probabilities with several classes. Without convergence in
    ``max_sweeps``, the sites that changed least are returned.
    """
    curvature, local = local.link.curvature, local.with_blocks()
    sweeps = _extrapolated(local, sites) if curvature is None else _balanced(local, sites, curvature)
    usual, near = (TOLERANCE, NEAR) if curvature is None else (CLASSES_TOLERANCE, 1.0)
    tol, least = usual if tol is None else tol, np.inf
    for n_sweeps, swept in enumerate(islice(sweeps, max_sweeps), 1):
        if n_sweeps == 1 or swept.change < least:
            least, nearest = swept.change, swept
        if swept.change < tol or not np.isfinite(swept.change):
            break
    return Sweeps(nearest.sites, nearest.q, nearest.predicted, n_sweeps, least < near * tol)


class Swept(NamedTuple):
    """Sites before a sweep, their change by it, and what follows from them; ``predicted`` is as in ``Sweeps``."""

    change: float
    sites: Sites
    q: Coefficients
    predicted: tuple[np.ndarray, np.ndarray]


def _balanced(local: Local, sites: Sites, curvature: Curvature) -> Iterator[Swept]:
    """Sweeps that solve for the linear terms that are consistent with their precisions, then update the sites.

    Plain sweeps would take hundreds: the labels do not determine a common shift of all classes, so it decays slowly.
    """
    # No row's gradient is larger than this start value.
    before, weight = np.full_like(sites[0], 2.0), np.maximum(local.labels[1], LEAST_WEIGHT)
    while True:
        given = GivenPrecisions.of(local, sites)
        here = given.balanced(sites[1], curvature)
        gradient = here.gradient / weight
        change = float(np.max(np.maximum(np.abs(gradient - before), np.abs(here.missing / weight))))
        yield Swept(change, (sites[0], here.given), Coefficients(here.w, given.q.V), (here.mean, here.variance))
        precision = sites[0] + PRECISION_STEP * (here.precision - sites[0])
        before, sites = gradient, (precision, here.gradient + precision * here.mean)


def _extrapolated(local: Local, sites: Sites) -> Iterator[Swept]:
    """Sweeps with full steps, and with extrapolation once they change little.

    If a sweep changes more than the one before, the next step is plain: half as long if the last one was plain, too. An
    extrapolated step after which the change is much larger is replaced by the plain step.
    """
    length, before, point = FIRST_STEP, np.inf, np.stack(sites)
    points, steps = deque[np.ndarray](maxlen=MEMORY + 1), deque[np.ndarray](maxlen=MEMORY + 1)
    while True:
        sweep = Sweep.of(local, (point[0], point[1]))
        step = np.stack(sweep.sites()) - point
        change, swept = 2.0 * float(np.mean(np.abs(step))), (sweep.given, sweep.q, sweep.predicted())
        # A sweep has ten numbers for each row, which the next one need not wait for.
        del sweep
        yield Swept(change, *swept)
        if change > before:
            if len(points) < 2:
                length = max(LEAST_STEP, 0.5 * length)
            elif change > TAKEN_BACK * before:
                point, step, change = points[-1], steps[-1], before
            points.clear()
            steps.clear()
        before = change
        if change < EXTRAPOLATED_BELOW:
            points.append(point)
            steps.append(step)
            point = extrapolated(points, steps, length)
        else:
            point = point + length * step
