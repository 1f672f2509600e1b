"""Sweeps over all rows until their predictions rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._sites import Site
from ..approximations.local_rows import Coefficients
from ..likelihoods.curvature import Curvature
from ..ranges import LEAST_DIVISOR
from ..rows.coinciding import Sites
from ..rows.source import ArraySource
from .local_sites import Local, Sweep

# Least length of steps, after sweeps that changed more than the one before. The first steps are full: with .7, eight
# data sets took a third more sweeps.
LEAST_STEP = 0.1
# With two classes, sweeps end after two consecutive ones that change the labels' log probabilities, each given all
# other rows, by less than this on average. (A single small change is no sign: bank-marketing has one before the NLL
# rises from .184 to its limit, .185. Nor are small changes of the sites beside a large variance: sweeps on electricity
# ended at an NLL of .086 in place of .080.) With several classes, they end when no training row's expected
# probabilities change by more than this; log probabilities of other rows are then within .0002, .0001 and .0006 nats of
# the limit on average (letter, pendigits, wine: 10 or 11 sweeps; with 3e-4, 11 to 13).
TOLERANCE, MAX_SWEEPS = 1e-3, 50
# With two classes and without convergence, the sites with the least change are accepted if this is below so many
# tolerances, .005 nats.
NEAR = 5.0
# Anderson's acceleration starts when a sweep changes the sites by less than this, and combines this many earlier
# sweeps. (With .3 bank-marketing takes 15 sweeps, not 8; with six earlier sweeps none takes fewer.)
EXTRAPOLATED_BELOW, MEMORY = 0.1, 4
# If the sweep after an extrapolated step changes the sites more than this many times as much as the sweep before, the
# plain step replaces the extrapolated one. (With 2, cod-rna takes 22 sweeps and not 11; without this rule skin_nonskin
# did not converge in 50.)
TAKEN_BACK = 1.2
# Ridge, relative to the steps' mean square, against nearly parallel steps; 0 to 1e-6 took the same number of sweeps. An
# extrapolated precision stays within this factor of a plain step's; without this limit two separable classes took 34
# sweeps, not 19 (with first steps of .7).
RIDGE, MOST_FACTOR = 1e-10, 1e3
# With several classes, the length of the precisions' steps: with full steps a few rows of pendigits oscillated for over
# fifty sweeps.
PRECISION_STEP = 0.7


def start_sites(source: ArraySource, site: Site) -> Sites:
    """Initial sites, before any sweep."""
    return source.weight * np.array(site.record.cavity.start(site, source.y))


class Swept(NamedTuple):
    """Sites before the last of some sweeps, and what follows from them.

    Attributes
    ----------
    q : Coefficients, q(z)
    predicted : means and variances (2, C, n) of the rows, each from all sites and its own
    change : the larger one of the last two sweeps; with several classes that of the last
    n_sweeps, converged : number of the sweeps, and whether they converged at least nearly
    """

    sites: Sites
    q: Coefficients
    predicted: np.ndarray
    change: float
    n_sweeps: int = 0
    converged: bool = False


def extrapolated(points: Sequence[Sites], steps: Sequence[Sites], length: float, unit: Sites) -> Sites:
    """Anderson's acceleration of x <- x + length f(x): the next x from the last ones (2, C, n) and their steps f(x).

    It is the combination of the last iterates whose combined step is smallest; precisions stay near a plain step's.
    Steps are multiplied by ``unit`` (2, C, n): the rows' variances v for precisions, and sqrt(v) for linear terms, so
    that each row counts as its latent value moves. (Without it electricity takes 28 sweeps, not 16.)
    """
    point, step = points[-1], steps[-1]
    plain = point + length * step
    if len(points) == 1:
        return plain
    by_point, by_step = [np.array([(xs[-1] - x).ravel() for x in xs][:-1]) for xs in (points, steps)]
    squares = unit.ravel() ** 2
    products = (by_step * squares) @ by_step.T
    # Where nothing has changed, the smallest number keeps the matrix regular.
    products[np.diag_indices_from(products)] += RIDGE * np.trace(products) + np.finfo(float).tiny
    share = np.linalg.solve(products, by_step @ (squares * step.ravel()))
    combined = plain - (share @ (by_point + length * by_step)).reshape(point.shape)
    np.clip(combined[0], plain[0] / MOST_FACTOR, plain[0] * MOST_FACTOR, out=combined[0])
    return combined


def converged_sites(local: Local, sites: Sites, tol: float | None) -> Swept:
    """Sweep over all rows at once until their predictions no longer change.

    ``tol`` is the change of log probabilities, or of expected probabilities with several classes. Without convergence
    in ``MAX_SWEEPS``, the sites with the least change are returned.
    """
    tol, curvature = TOLERANCE if tol is None else tol, local.site.record.curvature
    sweeps = _extrapolated(local, sites) if curvature is None else _balanced(local, sites, curvature)
    nearest = swept = next(sweeps)
    n_sweeps = 1
    # Sweeps also end if a change is not finite.
    while tol <= swept.change < np.inf and n_sweeps < MAX_SWEEPS:
        swept, n_sweeps = next(sweeps), n_sweeps + 1
        nearest = swept if swept.change < nearest.change else nearest
    nearly = NEAR if curvature is None else 1.0
    return nearest._replace(n_sweeps=n_sweeps, converged=nearest.change < nearly * tol)


def _balanced(local: Local, sites: Sites, curvature: Curvature) -> Iterator[Swept]:
    """Sweeps that solve for the linear terms that are consistent with their precisions, then update the sites.

    Plain sweeps would take hundreds: the labels do not determine a common shift of all classes, so it decays slowly.
    """
    # No row's gradient comes near this start value, so the first change is never small.
    last_gradient, weight = np.full_like(sites[0], 2.0), np.maximum(local.labels[1], LEAST_DIVISOR)
    while True:
        sweep = Sweep(local, sites, keep_gamma=True)
        marginal = sweep.balanced(curvature)
        gradient = marginal.gradient / weight
        change = float(np.max(np.maximum(np.abs(gradient - last_gradient), np.abs(marginal.missing / weight))))
        q = replace(sweep.q, w=marginal.w)
        predicted = np.array([marginal.mean, sweep.marginal_variance])
        yield Swept(np.array([sites[0], marginal.given_linear]), q, predicted, change)
        precision = sites[0] + PRECISION_STEP * (marginal.precision - sites[0])
        last_gradient, sites = gradient, np.array([precision, marginal.gradient + precision * marginal.mean])


def _extrapolated(local: Local, sites: Sites) -> Iterator[Swept]:
    """Sweeps with full steps, and with extrapolation once they change little.

    If a sweep changes more than the one before, the next step is plain: half as long if the last one was plain, too. An
    extrapolated step after which the change is much larger is replaced by the plain step.
    """
    length, last_moved, point = 1.0, np.inf, sites
    # Log probabilities are below 0, so the first change is at least 1, and the first two sweeps never end.
    last_scores, last_change = np.ones(sites.shape[2]), 1.0
    points, steps = deque[np.ndarray](maxlen=MEMORY + 1), deque[np.ndarray](maxlen=MEMORY + 1)
    while True:
        sweep = Sweep(local, point)
        scores, step = sweep.scores(), sweep.sites() - point
        change = float(np.mean(np.abs(scores - last_scores)))
        yield Swept(point, sweep.q, sweep.predicted(), max(change, last_change))
        last_scores, last_change = scores, change
        moved = 2.0 * float(np.mean(np.abs(step)))
        if moved > last_moved:
            if len(points) < 2:
                length = max(LEAST_STEP, 0.5 * length)
            elif moved > TAKEN_BACK * last_moved:
                point, step, moved = points[-1], steps[-1], last_moved
            points.clear()
            steps.clear()
        last_moved = moved
        if moved < EXTRAPOLATED_BELOW:
            points.append(point)
            steps.append(step)
            unit = np.array([sweep.marginal_variance, np.sqrt(sweep.marginal_variance)])
            point = extrapolated(points, steps, length, unit)
        else:
            point = point + length * step
