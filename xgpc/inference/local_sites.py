"""Sites of the local posterior by expectation propagation, and the derivatives of a sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from .._kernels import InducingKernel
from ..approximations.local import Coefficients, moments, site_terms
from ..approximations.local_gradient import by_terms
from ..approximations.local_rows import Conditional, LocalRows, Neighbourhoods, Sites, conditionals
from ..likelihoods.registry import Curvature
from ..rows.executor import Executor, parts_of
from ..rows.source import RowSource, labels_and_weights
from .links import Link, centred

# Step length of a sweep over the sites of all rows, and its least value after sweeps that changed more than the one
# before.
DAMPING, LEAST_DAMPING = 0.7, 0.1
# With two classes, sweeps end when the mean change of precision plus linear term is below this; on electricity (18 000
# rows) log probabilities are then within .0004 nats of the limit on average.
TOLERANCE = 1e-3
MAX_SWEEPS = 50
# If sweeps do not converge, the sites with the least change are accepted within this many tolerances: log probabilities
# of other rows are then within .002 nats of the limit on average.
NEAR = 5.0
# Anderson's acceleration starts when a sweep changes less than this, and combines this many earlier sweeps.
EXTRAPOLATED_BELOW, MEMORY = 0.02, 4
# Ridge, relative to the steps' mean square, against nearly parallel steps; 0 to 1e-6 took the same number of sweeps. An
# extrapolated precision stays positive, within this factor of a plain step's; smaller factors took more sweeps
# (separable classes: 34 with 2, 19 with 1000).
RIDGE, MOST_FACTOR = 1e-10, 1e3
# Least share of q(z)'s precision along b without a row's own term. The chain rule is approximate with few neighbours,
# and rounding could leave none; the least share seen was .04.
LEAST_LEFT = 1e-3
# Least share of a row's precision when the whole site of a row of weight below 1 is removed. At convergence more
# remains, but the sites of an earlier sweep may be too large.
LEAST_WITHOUT = 1e-3
# With several classes, a sweep solves for the linear terms to this share of the first residual, by this many Newton
# steps of these lengths; each step uses GMRES with this tolerance and number of products. More accurate solves took as
# many sweeps and more time (pendigits: 1.17 and 1.59 s).
BALANCED, NEWTON_STEPS, NEWTON_RATES, GMRES_TOL, GMRES_ITER = 0.1, 2, (1.0, 0.5, 0.25), 0.3, 20
# Step length of the precisions: with full steps a few rows of pendigits oscillated for over fifty sweeps.
PRECISION_DAMPING = 0.7
# With several classes, sweeps end when no training row's expected probabilities change by more than this; other rows'
# probabilities are then within .003 of the limit (six data sets, 7 to 12 sweeps).
CLASSES_TOLERANCE = 3e-4


@dataclass(frozen=True)
class Local:
    """Training rows, their neighbours among themselves, and the link to the labels.

    Attributes
    ----------
    source : rows, labels in the form that the link needs, weights
    core, rows : the kernel, and its values at the rows
    index, n_earlier : (n, k) and (n,), as from ``in_order``
    link : Link
    """

    source: RowSource
    core: InducingKernel
    rows: LocalRows
    index: np.ndarray
    n_earlier: np.ndarray
    link: Link

    def neighbourhoods(self, sites: Sites) -> Neighbourhoods:
        """Neighbourhoods of the rows among themselves."""
        return Neighbourhoods(self.core, self.rows, sites, self.rows, self.index, self.n_earlier)


@dataclass(frozen=True)
class Conditioned:
    """Conditionals of the rows given their neighbours' sites, and the sites' contribution to q(z).

    Attributes
    ----------
    neighbours : Conditional given all neighbours of a row
    earlier : Conditional given only the neighbours that precede the row, or None
    natural : (C, m, m) and (C, m), contribution of the sites to the natural parameters of q(z)
    """

    neighbours: Conditional
    earlier: Conditional | None
    natural: Sites

    def q(self) -> Coefficients:
        """q(z); raises ValueError if it is not proper."""
        return Coefficients.of(*self.natural)


def conditioned(
    executor: Executor, at: Neighbourhoods, with_earlier: bool = False, with_slopes: bool = False
) -> Conditioned:
    """Condition all rows on their neighbours; O(n (k^2 (m + d) + C (k^3 + m^2))).

    By the chain rule of probabilities each row's site, given those of its earlier neighbours, adds s b b^T and g b to
    the natural parameters, with s and g its ``site_terms``. ``with_earlier`` keeps the conditionals given earlier
    neighbours, which gradients need (8 C n m bytes); ``with_slopes`` keeps the slopes of both (16 C n k bytes).
    """
    n = len(at.index)
    neighbours, earlier = at.empty(n, with_slopes), at.empty(n, with_slopes) if with_earlier else None

    def fill(rows: slice) -> Sites:
        found, before = conditionals(rows, at, with_slopes)
        neighbours.write(rows, found)
        if earlier is not None:
            earlier.write(rows, before)
        precision, linear = (part[:, rows] for part in at.sites)
        s, g = site_terms(before, (precision, linear))
        b = before.b
        return np.swapaxes(b * s[..., None], 1, 2) @ b, np.einsum("crm,cr->cm", b, g)

    P, h = zip(*executor.each(fill, parts_of(n)), strict=True)
    return Conditioned(neighbours, earlier, (np.sum(P, axis=0), np.sum(h, axis=0)))


@dataclass(frozen=True)
class Cavity:
    """Predictions of rows from all other rows (cavities), and the new sites that follow.

    With s and g the ``site_terms`` of a row in q(z), beta = b.V b and t = 1 - s beta, the other rows' sites predict b.z
    of the row as normal with mean (b.w - beta g) / t and variance beta / t. The conditional given the neighbours is
    added to this.

    Attributes
    ----------
    neighbours : Conditional
    terms : s and g (C, n)
    b_mean, b_variance : b.w and beta, (C, n)
    y, weight : (n,)
    own : (C, n) arrays, the part of the rows' own sites that counts as known; negative if more than the site is removed
    link : Link
    executor : Executor, computes the sites in parallel
    """

    neighbours: Conditional
    terms: Sites
    b_mean: np.ndarray
    b_variance: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    own: Sites
    link: Link
    executor: Executor

    @property
    def left(self) -> np.ndarray:
        """t, the share of the precision in direction b that the other rows leave."""
        return np.maximum(1.0 - self.terms[0] * self.b_variance, LEAST_LEFT)

    @property
    def mean(self) -> np.ndarray:
        return self.neighbours.mean + (self.b_mean - self.b_variance * self.terms[1]) / self.left

    @property
    def variance(self) -> np.ndarray:
        return self.neighbours.variance + self.b_variance / self.left

    @property
    def _kept(self) -> Sites:
        """``own``, limited so that removing sites leaves a positive variance."""
        most = 1.0 - LEAST_WITHOUT
        part = most / np.maximum(most, -self.variance * self.own[0])
        return part * self.own[0], part * self.own[1]

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means and variances with the own sites' part, and the share of the variance that this part leaves."""
        mean, variance, (precision, linear) = self.mean, self.variance, self._kept
        share = 1.0 / (1.0 + variance * precision)
        return (mean + variance * linear) * share, variance * share, share

    def _by_rows(self, function: Callable[..., Sites], *arrays: np.ndarray) -> Sites:
        """Apply a function of (C, n) and (n,) arrays to parts of the rows."""
        parts = self.executor.each(
            lambda rows: function(*(array[..., rows] for array in arrays)), parts_of(len(self.y))
        )
        first, second = zip(*parts, strict=True)
        return np.concatenate(first, axis=1), np.concatenate(second, axis=1)

    def _link_vjp(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, *by_sites: np.ndarray) -> Sites:
        return self.link.vjp(mean, variance, y, (by_sites[0], by_sites[1]))

    def sites(self) -> Sites:
        mean, variance, _ = self._moments()
        precision, linear = self._by_rows(self.link.sites, mean, variance, self.y)
        return self.weight * precision, self.weight * linear

    def vjp(self, by_sites: Sites) -> ByCavity:
        """Gradient by the cavity's inputs, given the gradient by the new sites; the old sites are constants."""
        of_one = self.weight * by_sites[0], self.weight * by_sites[1]
        mean, variance, share = self._moments()
        d_mean, d_variance = self._by_rows(self._link_vjp, mean, variance, self.y, *of_one)
        precision, linear = self._kept
        d_variance = share**2 * (d_variance + d_mean * (linear - self.mean * precision))
        d_mean = share * d_mean
        s, g = self.terms
        left = self.left
        by_mean, by_variance = d_mean / left, d_variance / left
        d_left = -(by_mean * (self.b_mean - self.b_variance * g) + by_variance * self.b_variance) / left
        d_left[left == LEAST_LEFT] = 0.0
        of_variance, of_mean = by_terms(self.terms, -self.b_variance * d_left, -self.b_variance * by_mean)
        return ByCavity(by_mean, by_variance - g * by_mean - s * d_left, d_variance + of_variance, d_mean + of_mean)

    def marginals(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (C, n) with the own sites' part."""
        mean, variance, _ = self._moments()
        return mean, variance


@dataclass(frozen=True)
class ByCavity:
    """Gradients (C, n) by b.w and b.V b, and by variance and mean given the neighbours."""

    b_mean: np.ndarray
    b_variance: np.ndarray
    variance: np.ndarray
    mean: np.ndarray


def cavities(executor: Executor, local: Local, sites: Sites, found: Conditional, q: Coefficients) -> Cavity:
    """Cavities of all rows, given all their neighbours; O(C n m^2)."""
    y, weight = labels_and_weights(local.source)
    share = local.link.own_share(weight)
    own = share * sites[0], share * sites[1]
    return Cavity(found, site_terms(found, sites), *moments(executor, found, q), y, weight, own, local.link, executor)


@dataclass(frozen=True)
class Marginal:
    """Marginals of the rows under sites of given precisions and linear terms, and the new sites that follow.

    Attributes
    ----------
    given : (C, n), the linear terms
    w : (C, m), mean of q(z)
    mean, variance : (C, n), of the rows' latent values; the mean is centred
    precision, linear : (C, n), the new sites
    gradient : (C, n), of each row's expected log likelihood by the mean
    missing : (C, n), residual of the linear terms: gradient + (given precision) mean - given, zero where sites agree
    """

    given: np.ndarray
    w: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    gradient: np.ndarray
    missing: np.ndarray


@dataclass(frozen=True)
class GivenPrecisions:
    """Marginals as a function of the sites' linear terms at fixed precisions; the means are linear in these terms.

    Attributes
    ----------
    executor : Executor
    local : Local
    found : Conditioned, with earlier neighbours and slopes
    V : (C, m, m), covariance of q(z)
    cavity : Cavity, whose linear terms are replaced
    precision : (C, n)
    """

    executor: Executor
    local: Local
    found: Conditioned
    V: np.ndarray
    cavity: Cavity
    precision: np.ndarray

    @classmethod
    def of(cls, executor: Executor, local: Local, sites: Sites) -> GivenPrecisions:
        """Compute what does not depend on the linear terms; O(n (k^2 (m + d) + C (k^3 + m^2)))."""
        found = conditioned(executor, local.neighbourhoods(sites), with_earlier=True, with_slopes=True)
        q = found.q()
        return cls(executor, local, found, q.V, cavities(executor, local, sites, found.neighbours, q), sites[0])

    def _cavity(self, mean: np.ndarray, b_mean: np.ndarray, linear: np.ndarray) -> Cavity:
        """The cavities for given means given neighbours, means of b.z, and linear terms, (C, n) each."""
        found = replace(self.found.neighbours, mean=mean)
        own = self.cavity.own[0], self.local.link.own_share(self.cavity.weight) * linear
        terms = site_terms(found, (self.precision, linear))
        return replace(self.cavity, neighbours=found, terms=terms, b_mean=b_mean, own=own)

    @cached_property
    def _responses(self) -> list[np.ndarray]:
        """Derivatives of the rows' means by the means given neighbours, the means of b.z, and the linear terms, (C, n)
        each.
        """
        none, one = np.zeros_like(self.precision), np.ones_like(self.precision)
        units = (one, none, none), (none, one, none), (none, none, one)
        return [self._cavity(*unit).marginals()[0] for unit in units]

    def _means(self, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means given neighbours, mean of q(z), and means of b.z for linear terms (C, n); O(C n (k + m))."""
        neighbours, earlier, index = self.found.neighbours, self.found.earlier, self.local.index
        assert earlier is not None
        parts, (mean, b_mean) = parts_of(linear.shape[1]), np.empty((2, *linear.shape))

        def look(rows: slice) -> np.ndarray:
            mean[:, rows] = neighbours.part(rows).mean_of(linear, index[rows])
            before = earlier.part(rows)
            before = replace(before, mean=before.mean_of(linear, index[rows]))
            _, g = site_terms(before, (self.precision[:, rows], linear[:, rows]))
            return (g[:, None] @ before.b)[:, 0]

        w = np.einsum("cij,cj->ci", self.V, np.sum(self.executor.each(look, parts), axis=0))

        def project(rows: slice) -> None:
            b_mean[:, rows] = (neighbours.b[:, rows] @ w[..., None])[..., 0]

        self.executor.each(project, parts)
        return mean, w, b_mean

    def mean(self, linear: np.ndarray) -> np.ndarray:
        """Centred means (C, n) of the rows' latent values."""
        mean, _, b_mean = self._means(linear)
        by_mean, by_b_mean, by_linear = self._responses
        return centred(by_mean * mean + by_b_mean * b_mean + by_linear * linear)

    def marginal(self, given: np.ndarray) -> Marginal:
        mean, w, b_mean = self._means(given)
        cavity = self._cavity(mean, b_mean, given)
        (mean, variance), (precision, linear) = cavity.marginals(), cavity.sites()
        mean = centred(mean)
        gradient = linear - precision * mean
        missing = gradient + self.precision * mean - given
        return Marginal(given, w, mean, variance, precision, linear, gradient, missing)

    def balanced(self, given: np.ndarray, curvature: Curvature) -> Marginal:
        """Solve for consistent linear terms by Newton steps with the curvature that couples the classes."""
        here = self.marginal(given)
        least = BALANCED * np.linalg.norm(here.missing)
        for _ in range(NEWTON_STEPS):
            step = self._newton_step(here, curvature(self.cavity.y, self.cavity.weight, here))
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
            moved = self.mean(step.reshape(self.precision.shape))
            return step - (self.precision * moved - bend(moved)).ravel()

        n = self.precision.size
        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
        step, _ = gmres(operator, here.missing.ravel(), rtol=GMRES_TOL, restart=GMRES_ITER, maxiter=1)
        return step.reshape(self.precision.shape)


def start_sites(source: RowSource, link: Link) -> Sites:
    """Initial sites, before any sweep."""
    y, weight = labels_and_weights(source)
    precision, linear = link.start(y)
    return weight * precision, weight * linear


@dataclass(frozen=True)
class Sweeps:
    """Sites, the q(z) that they give, the number of sweeps, and whether these converged at least nearly."""

    sites: Sites
    q: Coefficients
    n_sweeps: int
    converged: bool


class Extrapolation:
    """Anderson's acceleration of x <- x + damping f(x), where f(x) is the step of a sweep.

    It extrapolates to the combination of the last iterates whose combined step is smallest.
    """

    def __init__(self) -> None:
        self._points: deque[np.ndarray] = deque(maxlen=MEMORY)
        self._steps: deque[np.ndarray] = deque(maxlen=MEMORY)

    @property
    def is_used(self) -> bool:
        """Whether the last step was extrapolated."""
        return len(self._points) > 1

    def forget(self) -> None:
        self._points.clear()
        self._steps.clear()

    def next(self, point: np.ndarray, step: np.ndarray, damping: float) -> np.ndarray:
        """The next precisions and linear terms (2, C, n), with precisions near those of a plain step."""
        plain = point + damping * step
        changes = [
            ((step - before).ravel(), (point - other).ravel())
            for before, other in zip(self._steps, self._points, strict=True)
        ]
        self._points.append(point)
        self._steps.append(step)
        if not changes:
            return plain
        by_step, by_point = (np.array(part) for part in zip(*changes, strict=True))
        products = by_step @ by_step.T
        products[np.diag_indices_from(products)] += RIDGE * np.trace(products)
        share = np.linalg.solve(products, by_step @ step.ravel())
        found = plain - (share @ (by_point + damping * by_step)).reshape(point.shape)
        np.clip(found[0], plain[0] / MOST_FACTOR, plain[0] * MOST_FACTOR, out=found[0])
        return found


def converged_sites(
    executor: Executor, local: Local, sites: Sites, tol: float | None = None, max_sweeps: int = MAX_SWEEPS
) -> Sweeps:
    """Sweep over all rows at once until the sites no longer change.

    ``tol`` is the change of sites, or of expected probabilities with several classes. Without convergence in
    ``max_sweeps``, the sites that changed least are returned.
    """
    curvature = local.link.curvature
    if curvature is None:
        return _extrapolated(executor, local, sites, TOLERANCE if tol is None else tol, max_sweeps)
    return _balanced(executor, local, sites, curvature, CLASSES_TOLERANCE if tol is None else tol, max_sweeps)


def _balanced(
    executor: Executor, local: Local, sites: Sites, curvature: Curvature, tol: float, max_sweeps: int
) -> Sweeps:
    """Each sweep solves for the linear terms that are consistent with its precisions, then updates the sites.

    Plain sweeps would take hundreds: the labels do not determine a common shift of all classes, so it decays slowly.
    """
    # No row's gradient is larger than this start value.
    before, least, nearest = np.full_like(sites[0], 2.0), np.inf, None
    for sweep in range(1, max_sweeps + 1):
        given = GivenPrecisions.of(executor, local, sites)
        here = given.balanced(sites[1], curvature)
        gradient, missing = here.gradient / given.cavity.weight, here.missing / given.cavity.weight
        change = float(np.max(np.maximum(np.abs(gradient - before), np.abs(missing))))
        if nearest is None or change < least:
            least, nearest = change, ((sites[0], here.given), Coefficients(here.w, given.V))
        if change < tol or sweep == max_sweeps or not np.isfinite(change):
            break
        precision = sites[0] + PRECISION_DAMPING * (here.precision - sites[0])
        before, sites = gradient, (precision, here.gradient + precision * here.mean)
    assert nearest is not None
    return Sweeps(*nearest, sweep, least < tol)


def _extrapolated(executor: Executor, local: Local, sites: Sites, tol: float, max_sweeps: int) -> Sweeps:
    """Damped sweeps, with extrapolation once they change little.

    If a sweep changes more than the one before, the next step is plain, with more damping if the last one was plain
    too.
    """
    damping, before, point = DAMPING, np.inf, np.stack(sites)
    least, nearest = np.inf, None
    extrapolation = Extrapolation()
    for sweep in range(1, max_sweeps + 1):
        sites = point[0], point[1]
        found = conditioned(executor, local.neighbourhoods(sites))
        q = found.q()
        step = np.stack(cavities(executor, local, sites, found.neighbours, q).sites()) - point
        change = 2.0 * float(np.mean(np.abs(step)))
        if nearest is None or change < least:
            least, nearest = change, (sites, q)
        if change < tol or sweep == max_sweeps or not np.isfinite(change):
            break
        if change > before:
            if not extrapolation.is_used:
                damping = max(LEAST_DAMPING, 0.5 * damping)
            extrapolation.forget()
        before = change
        is_near = change < EXTRAPOLATED_BELOW
        point = extrapolation.next(point, step, damping) if is_near else point + damping * step
    assert nearest is not None
    return Sweeps(*nearest, sweep, least < NEAR * tol)
