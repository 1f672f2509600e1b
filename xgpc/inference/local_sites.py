"""Sites of the local posterior by expectation propagation, and the differentiation of a sweep."""

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

# Share of the way that a sweep takes the sites of all rows at once; less after a sweep that changed them more than the
# one before.
DAMPING, LEAST_DAMPING = 0.7, 0.1
# Of two classes, sweeps end when they change precision and linear term by less than this, together and on average over
# rows. On electricity, 18 000 rows, that is after 14 sweeps: log probabilities are .0004 nats on average and .05 at
# most from the limit. 35 sweeps would take the change to 1e-7.
TOLERANCE = 1e-3
MAX_SWEEPS = 50
# Where they go on, those sites are taken that one changed least, if by less than so many tolerances. At five tolerances
# log probabilities of other rows are .002 and .001 nats on average from the limit, and their mean .0001 and .00002
# (electricity, magic; 4500 rows).
NEAR = 5.0
# Anderson's acceleration begins where a sweep changes less than this, and looks at so many sweeps before.
EXTRAPOLATED_BELOW, MEMORY = 0.02, 4
# Share of the steps' mean square that is added to their products: nearly parallel steps make these singular. Anything
# from 0 to 1e-6 takes the same number of sweeps (electricity, pendigits, synthetic rows); .1 up to 15 more.
# Precisions must stay positive: an extrapolated one is so many times a plain step's at most, and a share of it at
# least. Sweeps with 1.1, 2, 4 and 1000 times: electricity, 6000 rows: 15, 16, 14, 12; pendigits, 2000: 18, 13, 12, 14;
# two noisy classes: 28, 15, 14, 14; separable ones over 60, 34, 21, 19.
RIDGE, MOST_FACTOR = 1e-10, 1e3
# Least share of the precision of q(z) along b that is left without a row's own term. With few neighbours the chain rule
# is approximate, and rounding could leave none. The least met was .04 (electricity, magic, banana, 4000 rows).
LEAST_LEFT = 1e-3
# Least share of a row's precision that is left where a whole site of a row of weight below 1 is taken out. Where sweeps
# have converged more is: precision 1 / v and the site S(v) of a cavity of variance v make 1 / v + (1 - weight) S(v),
# which takes every positive value. Sites of an earlier sweep may be too large. (Variances 1 to 1e5, weights .02 to 1,
# a tenth of the labels wrong: two sweeps more, or less, than with the row's own site taken out.)
LEAST_WITHOUT = 1e-3
# Of several classes a sweep finds linear terms that lack this share of what those before it did, by so many Newton
# steps at most, of the lengths that are tried; each by GMRES, until a share of the residual is left or after so many
# products. (Sweeps, products and processor seconds, 2700 rows with the kernels that fits had learned: landsat 9, 84,
# .58; pendigits 11, 112, 1.17; page-blocks 9, 88, .48; letter 10, 92, 2.7; with five steps 8, 83, .56; 10, 204, 1.59;
# 9, 98, .51; 10, 117, 3.4; with a share of .3: 12, 44, .55; 14, 90, 1.21; 13, 56, .51; 15, 81, 3.1.)
BALANCED, NEWTON_STEPS, NEWTON_RATES, GMRES_TOL, GMRES_ITER = 0.1, 2, (1.0, 0.5, 0.25), 0.3, 20
# Share of the way that the precisions then go: on the whole way a few rows of pendigits went back and forth for fifty
# sweeps, and more.
PRECISION_DAMPING = 0.7
# Sweeps of several classes end when they change no training row's expected probabilities by more than this. The largest
# error of other rows' probabilities is then 2e-5 to .0008 with variances of 4 to 300, and .001 to .003 with 1000 and
# 5000 (landsat, pendigits, wine, waveform, page-blocks, letter; 800 rows; all in 7 to 12 sweeps).
CLASSES_TOLERANCE = 3e-4


@dataclass(frozen=True)
class Local:
    """Training rows, their neighbours among themselves, and how labels follow from latent values.

    Attributes
    ----------
    source : labels as the link takes them, weights
    core, rows : the kernel, and what it makes of them
    index, n_earlier : (n, k) and (n,), as ``in_order`` has them
    link : Link
    """

    source: RowSource
    core: InducingKernel
    rows: LocalRows
    index: np.ndarray
    n_earlier: np.ndarray
    link: Link

    def neighbourhoods(self, sites: Sites) -> Neighbourhoods:
        """Of the rows among themselves."""
        return Neighbourhoods(self.core, self.rows, sites, self.rows, self.index, self.n_earlier)


@dataclass(frozen=True)
class Conditioned:
    """Rows given the sites of their neighbours, and what the sites add to q(z).

    Attributes
    ----------
    neighbours : Conditional, what all of a row's neighbours say of it
    earlier : Conditional or None, what those say that come before it
    natural : (C, m, m) and (C, m), what the sites add to the natural parameters of q(z)
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
    """Of all rows; O(n (k^2 (m + d) + C (k^3 + m^2))).

    By the chain rule of probabilities each row's site, given those of its earlier neighbours, adds s b b^T and g b to
    the natural parameters, with s and g its ``site_terms``. ``with_earlier``: keep what earlier neighbours say, too,
    which gradients need and which takes 8 C n m bytes; ``with_slopes``: the slopes of both, 16 C n k bytes.
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
    """What rows are predicted to be by the others, and the sites that this makes.

    With s and g the ``site_terms`` of a row in q(z), beta = b.V b and t = 1 - s beta, its value is predicted from the
    other rows' sites as normal with mean (b.w - beta g) / t, and variance beta / t, besides what neighbours say.

    Attributes
    ----------
    neighbours : Conditional
    terms : s and g (C, n)
    b_mean, b_variance : b.w and beta, (C, n)
    y, weight : (n,)
    own : (C, n) arrays, what of the rows' own sites counts where they are made anew, negative where more is taken out
    link : Link
    executor : Executor, which makes sites
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
        """t, what is left of the precision in direction b."""
        return np.maximum(1.0 - self.terms[0] * self.b_variance, LEAST_LEFT)

    @property
    def mean(self) -> np.ndarray:
        return self.neighbours.mean + (self.b_mean - self.b_variance * self.terms[1]) / self.left

    @property
    def variance(self) -> np.ndarray:
        return self.neighbours.variance + self.b_variance / self.left

    @property
    def _kept(self) -> Sites:
        """``own``, of what is taken out no more than leaves a positive variance."""
        most = 1.0 - LEAST_WITHOUT
        part = most / np.maximum(most, -self.variance * self.own[0])
        return part * self.own[0], part * self.own[1]

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """With what of the own sites counts; last what these leave of the variance."""
        mean, variance, (precision, linear) = self.mean, self.variance, self._kept
        share = 1.0 / (1.0 + variance * precision)
        return (mean + variance * linear) * share, variance * share, share

    def _by_rows(self, function: Callable[..., Sites], *arrays: np.ndarray) -> Sites:
        """A function of (C, n) and (n,) arrays, on parts of the rows."""
        parts = self.executor.each(
            lambda rows: function(*(array[..., rows] for array in arrays)), parts_of(len(self.y))
        )
        first, second = zip(*parts, strict=True)
        return np.concatenate(first, axis=1), np.concatenate(second, axis=1)

    def _link_pull_back(self, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, *by_sites: np.ndarray) -> Sites:
        return self.link.pull_back(mean, variance, y, (by_sites[0], by_sites[1]))

    def sites(self) -> Sites:
        mean, variance, _ = self._moments()
        precision, linear = self._by_rows(self.link.sites, mean, variance, self.y)
        return self.weight * precision, self.weight * linear

    def pull_back(self, by_sites: Sites) -> ByCavity:
        """Gradient by what the cavity is made of from one by its sites; those that made it are constants."""
        of_one = self.weight * by_sites[0], self.weight * by_sites[1]
        mean, variance, share = self._moments()
        d_mean, d_variance = self._by_rows(self._link_pull_back, mean, variance, self.y, *of_one)
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
        """Means and variances (C, n) with what of the own sites counts."""
        mean, variance, _ = self._moments()
        return mean, variance


@dataclass(frozen=True)
class ByCavity:
    """Gradients (C, n) by b.w, b.V b, and by variance and mean of what neighbours say."""

    b_mean: np.ndarray
    b_variance: np.ndarray
    variance: np.ndarray
    mean: np.ndarray


def cavities(executor: Executor, local: Local, sites: Sites, found: Conditional, q: Coefficients) -> Cavity:
    """Of all rows, from what all neighbours say of them; O(C n m^2)."""
    y, weight = labels_and_weights(local.source)
    share = local.link.own_share(weight)
    own = share * sites[0], share * sites[1]
    return Cavity(found, site_terms(found, sites), *moments(executor, found, q), y, weight, own, local.link, executor)


@dataclass(frozen=True)
class Marginal:
    """What sites of some precisions and linear terms make of the rows, and the sites that follow.

    Attributes
    ----------
    given : (C, n), the linear terms
    w : (C, m), mean of q(z)
    mean, variance : (C, n), of the rows' latent values, the former centred
    precision, linear : (C, n), the sites that follow
    gradient : (C, n), of each row's expected log likelihood by the mean
    missing : (C, n), what the linear terms lack: given - (their precision) mean is the gradient where sites agree
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
    """Marginals as a function of the sites' linear terms, in which their means are linear, at given precisions.

    Attributes
    ----------
    executor : Executor
    local : Local
    found : Conditioned, with earlier neighbours and slopes
    V : (C, m, m), covariance of q(z)
    cavity : Cavity, of any linear terms
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
        """O(n (k^2 (m + d) + C (k^3 + m^2)))."""
        found = conditioned(executor, local.neighbourhoods(sites), with_earlier=True, with_slopes=True)
        q = found.q()
        return cls(executor, local, found, q.V, cavities(executor, local, sites, found.neighbours, q), sites[0])

    def _cavity(self, mean: np.ndarray, b_mean: np.ndarray, linear: np.ndarray) -> Cavity:
        """Of what neighbours say, the means of b.z, and linear terms, (C, n) each."""
        found = replace(self.found.neighbours, mean=mean)
        own = self.cavity.own[0], self.local.link.own_share(self.cavity.weight) * linear
        terms = site_terms(found, (self.precision, linear))
        return replace(self.cavity, neighbours=found, terms=terms, b_mean=b_mean, own=own)

    @cached_property
    def _responses(self) -> list[np.ndarray]:
        """Of the rows' means to what neighbours say, the means of b.z, and linear terms, (C, n) each."""
        none, one = np.zeros_like(self.precision), np.ones_like(self.precision)
        units = (one, none, none), (none, one, none), (none, none, one)
        return [self._cavity(*unit).marginals()[0] for unit in units]

    def _means(self, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What neighbours say with linear terms (C, n), the mean of q(z), and of b.z; O(C n (k + m))."""
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
        """Of the rows' latent values, centred, (C, n)."""
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
        """Of linear terms that lack little, by Newton steps from given ones; the curvature couples the classes."""
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
        """By GMRES: where the mean moves by M step, what is missing changes by (precision - bend) M step - step."""

        def product(step: np.ndarray) -> np.ndarray:
            moved = self.mean(step.reshape(self.precision.shape))
            return step - (self.precision * moved - bend(moved)).ravel()

        n = self.precision.size
        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
        step, _ = gmres(operator, here.missing.ravel(), rtol=GMRES_TOL, restart=GMRES_ITER, maxiter=1)
        return step.reshape(self.precision.shape)


def start_sites(source: RowSource, link: Link) -> Sites:
    """Sites before anything is known of the rows."""
    y, weight = labels_and_weights(source)
    precision, linear = link.start(y)
    return weight * precision, weight * linear


@dataclass(frozen=True)
class Sweeps:
    """Sites, what they make of q(z), how many sweeps they took, and whether these came to the tolerance, or near it."""

    sites: Sites
    q: Coefficients
    n_sweeps: int
    converged: bool


class Extrapolation:
    """Anderson's acceleration of an iteration x <- x + damping f(x), f the step that sites ask for.

    The combination of the last iterates whose steps come nearest to vanishing is what the next one starts from.
    """

    def __init__(self) -> None:
        self._points: deque[np.ndarray] = deque(maxlen=MEMORY)
        self._steps: deque[np.ndarray] = deque(maxlen=MEMORY)

    @property
    def is_used(self) -> bool:
        """Whether the last step was no plain one."""
        return len(self._points) > 1

    def forget(self) -> None:
        self._points.clear()
        self._steps.clear()

    def next(self, point: np.ndarray, step: np.ndarray, damping: float) -> np.ndarray:
        """Precisions and linear terms (2, C, n), the precisions near those of a plain step."""
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
    """Sites at which sweeps over all rows at once change nothing, from given ones.

    ``tol`` is of changes of sites, and of probabilities with several classes. After ``max_sweeps`` those sites that a
    sweep changed least.
    """
    curvature = local.link.curvature
    if curvature is None:
        return _extrapolated(executor, local, sites, TOLERANCE if tol is None else tol, max_sweeps)
    return _balanced(executor, local, sites, curvature, CLASSES_TOLERANCE if tol is None else tol, max_sweeps)


def _balanced(
    executor: Executor, local: Local, sites: Sites, curvature: Curvature, tol: float, max_sweeps: int
) -> Sweeps:
    """Each sweep finds the linear terms that agree with its precisions, and takes the sites that follow.

    Plain sweeps would go on for hundreds: what adds to all classes alike, on which no label acts, hardly changes.
    """
    # No gradient of a row is as large.
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
    """Sweeps are damped, and extrapolated once they change little.

    Where one changes more than the last, the next step is plain, with more damping if the last was plain, too.
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
