"""Sites of the local posterior by expectation propagation, and the differentiation of a sweep."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from .._kernels import InducingKernel
from ..approximations.local import Coefficients, LocalRows, Neighbourhoods, Sites, coefficients, predicted
from ..rows.executor import Executor
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


@dataclass(frozen=True)
class Local:
    """Training rows, their neighbours among themselves, and how labels follow from latent values.

    Attributes
    ----------
    source : labels as the link takes them, weights
    core, rows : the kernel, and what it makes of them
    index : (n, k)
    link : Link
    """

    source: RowSource
    core: InducingKernel
    rows: LocalRows
    index: np.ndarray
    link: Link


@dataclass(frozen=True)
class Cavity:
    """What some rows are predicted to be by the others, and the sites that this makes.

    Attributes
    ----------
    at : Neighbourhoods
    mean, variance : (C, r)
    y, weight : (r,)
    own : (C, r) arrays, what of the rows' own sites counts where they are made anew
    link : Link
    """

    at: Neighbourhoods
    mean: np.ndarray
    variance: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    own: Sites
    link: Link

    @property
    def share(self) -> np.ndarray:
        """What the own sites leave of the variance."""
        return 1.0 / (1.0 + self.variance * self.own[0])

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return (self.mean + self.variance * self.own[1]) * self.share, self.variance * self.share

    def sites(self) -> Sites:
        precision, linear = self.link.sites(*self._moments(), self.y)
        return self.weight * precision, self.weight * linear

    def pull_back(self, by_sites: Sites) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (C, r) by mean and variance from those by the sites."""
        of_one = self.weight * by_sites[0], self.weight * by_sites[1]
        d_mean, d_variance = self.link.pull_back(*self._moments(), self.y, of_one)
        share, (precision, linear) = self.share, self.own
        by_variance = share**2 * (d_variance + d_mean * (linear - self.mean * precision))
        return share * d_mean, by_variance


def cavities(executor: Executor, local: Local, sites: Sites, q: Coefficients, seen: np.ndarray | slice) -> Cavity:
    """Of some rows, by their numbers or all of them: each is predicted from its neighbours and the other rows' q(z)."""
    precision, linear = sites[0][:, seen], sites[1][:, seen]
    in_q = np.ascontiguousarray(q.own_precision[:, seen]), np.ascontiguousarray(q.own_linear[:, seen])
    at = Neighbourhoods(local.core, local.rows, sites, q, local.rows.part(seen), local.index[seen], in_q)
    mean, variance = predicted(executor, at)
    y, weight = labels_and_weights(local.source)
    y, weight = np.ascontiguousarray(y[seen]), weight[seen]
    share = local.link.own_share(weight)
    return Cavity(at, mean, variance, y, weight, (share * precision, share * linear), local.link)


def start_sites(source: RowSource, link: Link) -> Sites:
    """Sites before anything is known of the rows."""
    y, weight = labels_and_weights(source)
    precision, linear = link.start(y)
    return weight * precision, weight * linear


@dataclass(frozen=True)
class Sweeps:
    """Sites, how many sweeps they took, and whether these ended by the tolerance."""

    sites: Sites
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
    plain, with more damping if the last was plain, too.
    """
    damping, before, point = DAMPING, np.inf, np.stack(sites)
    extrapolation = Extrapolation()
    for sweep in range(1, max_sweeps + 1):
        q = coefficients(executor, local.source, local.rows, (point[0], point[1]))
        target = cavities(executor, local, (point[0], point[1]), q, slice(None)).sites()
        step = np.stack(target) - point
        change = 2.0 * float(np.mean(np.abs(step)))
        if not np.isfinite(change):
            break
        if change > before:
            if not extrapolation.is_used:
                damping = max(LEAST_DAMPING, 0.5 * damping)
            extrapolation.forget()
        before = change
        is_near = change < EXTRAPOLATED_BELOW
        point = extrapolation.next(point, step, damping) if is_near else point + damping * step
        if change < tol:
            return Sweeps((point[0], point[1]), sweep, True)
    return Sweeps((point[0], point[1]), sweep, False)
