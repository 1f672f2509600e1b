"""Sites of the local posterior by expectation propagation, and the differentiation of a sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._kernels import InducingKernel
from ..approximations.local import Coefficients, moments, site_terms
from ..approximations.local_gradient import by_terms
from ..approximations.local_rows import Conditional, LocalRows, Neighbourhoods, Sites, conditionals
from ..rows.executor import Executor, parts_of
from ..rows.source import RowSource, labels_and_weights
from .links import Link

# Share of the way that a sweep takes the sites of all rows at once; less after a sweep that changed them more than the
# one before.
DAMPING, LEAST_DAMPING = 0.7, 0.1
# Sweeps end when they change precision and linear term by less than this, together and on average over rows. On
# electricity, 18 000 rows, that is after 14 sweeps: log probabilities are .0004 nats on average and .05 at most from
# the limit. 35 sweeps would take the change to 1e-7.
TOLERANCE = 1e-3
MAX_SWEEPS = 50
# Where sweeps go on, those sites are taken that one changed least, if by less than so many tolerances. With kernels of
# very large variance extrapolation can lose what it was near (letter, 26 classes: .0053 after 4 sweeps, .0012 after 26,
# .07 after 29, .012 after 50). At five tolerances log probabilities of other rows are .002, .001 and .008 nats on
# average from the limit, and their mean .0001, .00002 and .004 (electricity, magic, pendigits; 4500 rows).
NEAR = 5.0
# Anderson's acceleration begins where a sweep changes less than this, and looks at so many sweeps before. With several
# classes what adds to all alike hardly changes by itself: pendigits, 4000 rows, was at .014 and rose after 36 sweeps,
# and is below .001 after 13.
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


def conditioned(executor: Executor, at: Neighbourhoods, with_earlier: bool = False) -> Conditioned:
    """Of all rows; O(n (k^2 (m + d) + C (k^3 + m^2))).

    By the chain rule of probabilities each row's site, given those of its earlier neighbours, adds s b b^T and g b to
    the natural parameters, with s and g its ``site_terms``. ``with_earlier``: keep what earlier neighbours say, too,
    which gradients need and which takes 8 C n m bytes.
    """
    n = len(at.index)
    neighbours, earlier = at.empty(n), at.empty(n) if with_earlier else None

    def fill(rows: slice) -> Sites:
        found, before = conditionals(rows, at)
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
    executor: Executor, local: Local, sites: Sites, tol: float = TOLERANCE, max_sweeps: int = MAX_SWEEPS
) -> Sweeps:
    """Sites at which sweeps over all rows at once change nothing, from given ones.

    Sweeps are damped, and extrapolated once they change little. Where one changes more than the last, the next step is
    plain, with more damping if the last was plain, too. After ``max_sweeps`` those sites that a sweep changed least.
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
