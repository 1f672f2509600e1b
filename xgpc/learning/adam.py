"""Mini-batches that learn: natural gradients of the posterior, each with a step of Adam on kernel parameters and
inducing points, as X-GPC learns (Wenzel et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from .._natural_gradient import SCHEDULES, FreeParameters, MovingPrior
from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training, grouped
from ..inference.ascent import at_best_parameter, update
from ..inference.mini_batch import MiniBatches, batch_rows, learning_rate_schedule
from ..inference.options import Options
from ..kernels.prior import LengthScalePrior
from ..rows.source import permuted
from .optimizer import Coordinates, Outcome, profile

# Rate of Adam's step t: RATE / sqrt(1 + t / delay), where the delay is an epoch's steps, at least DELAY; times
# sqrt(a batch's rows / RATE_BATCH), a factor of at most RATE_FACTOR. Inducing points, whose many coordinates make
# noise, move at POINTS_SHARE of this rate.
RATE, DELAY, POINTS_SHARE, RATE_BATCH, RATE_FACTOR = 0.05, 300.0, 0.1, 100, 3.0
# If n, the rows divided by the latent functions, is below WINDOW_ROWS, the window's tolerance is sqrt(WINDOW_ROWS / n)
# times ``tol``: a relative change of the natural parameters costs about its square times n nats.
WINDOW_ROWS = 10_000
# The fit goes on while the bound rises by this many nats a row as the steps double: the natural parameters may rest
# while inducing points, whose rate is low, still move.
RISE = 0.0075
# An iteration is an epoch, within these limits of its steps: the epochs of small data are too short for an estimate of
# the bound, those of large data too long to wait for it. It has FULL_BATCH_STEPS if each step is a pass over all rows.
MINI_BATCH_STEPS, FULL_BATCH_STEPS = (100, 1000), 20
# Rate of the posterior's steps on all rows, which have no noise.
FULL_BATCH_RATE = (SCHEDULES["constant"], 0.5, 0.0)


def stochastic(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """Natural-gradient steps, each followed by one of Adam, until the sliding window of X-GPC's section 5.2 is at rest.

    The window is over the relative changes of the averaged natural parameters. At rest or not, steps go on while the
    bound rises by more than ``RISE`` a row as their number doubles. The result is the average of posteriors, kernel
    parameters and inducing points over the steps, later ones weighted more.
    """
    coordinates, q = Coordinates(start.prior, options), start
    if coordinates.is_empty:
        return Outcome(update(training, start, site), 0)
    n = training.source.n_rows
    some = batch_rows(options.batch_size, n)
    batch, takes_all = some or n, some is None
    schedule = FULL_BATCH_RATE if takes_all else learning_rate_schedule(options.learning_rate)
    steps = FULL_BATCH_STEPS if takes_all else int(np.clip(-(-n // batch), *MINI_BATCH_STEPS))
    rate = RATE * min(RATE_FACTOR, (batch / RATE_BATCH) ** 0.5)
    moving = moving_priors(coordinates, options.length_scale_prior, rate, max(DELAY, steps))
    loop = MiniBatches(q, batch, training.source, schedule, moving)
    feed = permuted(training.source, batch * min(steps, loop.steps_per_call), options.random_state)
    # Steps of large batches have less noise, go further, and cost more.
    batch_factor = max(1.0, batch / RATE_BATCH)
    tol = max(1.0, WINDOW_ROWS * loop.latents / n) ** 0.5 * batch_factor * options.tol
    rise, bounds, at_rest, is_level = RISE * n * batch_factor, list[float](), False, False
    while len(bounds) < options.max_iter and not (at_rest and is_level):
        estimates: list[float] = []
        while len(estimates) < steps and not (at_rest and is_level):
            # The executor makes these steps, because it ends what takes too long.
            run = partial(loop.run, q, site=site, executor=training.executor)
            ((rates, change, log_likelihood),) = training.executor.each(run, [next(feed)])
            estimates += log_likelihood.tolist()
            at_rest = loop.rests(change[rates > 0.0], tol)
        q = loop.posterior(_at_average(coordinates, moving, q.prior), loop.average)
        if not options.length_scale_prior.is_flat:
            for moved, group in zip(moving, q.prior.groups, strict=True):
                moved.prior_precision, moved.prior_linear = options.length_scale_prior.normal_at(group.spec)
        estimate = float(np.mean(estimates))
        if site.learned:
            site, _ = at_best_parameter(site, estimate, training.source.total_weight)
        bounds.append(estimate - q.kl)
        is_level = _is_level(bounds, rise)
        options.record(bounds[-1], options.log_prior(q.prior)[0], q.prior, evaluation=len(bounds))
        options.reached(q, site)
    problem = None if at_rest and is_level else options.too_few("the mini-batches")
    return Outcome(update(training, q, site), len(bounds), problem)


def adam(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """``stochastic``, then from its result L-BFGS on all rows, with the iterations that are left."""
    first = stochastic(training, start, site, options)
    iterations_left = options.max_iter - first.n_iter
    if not iterations_left:
        return first
    profiled = profile(training, first.point.q, first.point.site, replace(options, max_iter=iterations_left))
    return replace(profiled, n_iter=first.n_iter + profiled.n_iter)


def moving_priors(
    coordinates: Coordinates, length_scale_prior: LengthScalePrior, rate: float, delay: float = DELAY
) -> list[MovingPrior]:
    """The prior of each kernel where learning starts, for Adam to move at this rate."""
    moving, start = [], coordinates.start
    m, d = start.groups[0].Z.shape
    units = np.broadcast_to(POINTS_SHARE * coordinates.unit, (len(start.groups), m, d)).reshape(-1, m * d)
    for group, unit in zip(start.groups, units, strict=True):
        spec = group.spec
        points = np.array(unit) if coordinates.learn_inducing else np.empty(0)
        vector = np.concatenate([spec.theta, group.Z.ravel()[: len(points)] / points])
        limits = np.concatenate([spec.bounds, np.full((len(points), 2), [-np.inf, np.inf])])
        normal = (np.empty((0, 0)), np.empty(0)) if length_scale_prior.is_flat else length_scale_prior.normal_at(spec)
        free = FreeParameters(vector, limits.T, points, spec.logarithms)
        moving.append(MovingPrior(group.core, group.jitter, free, normal, rate, delay))
    return moving


def _is_level(bounds: Sequence[float], least: float) -> bool:
    """Whether the mean over the latest half of the epochs is less than ``least`` above that over the quarter before."""
    half, quarter = len(bounds) // 2, len(bounds) // 4
    return quarter > 0 and float(np.mean(bounds[half:]) - np.mean(bounds[quarter:half])) < least


def _at_average(coordinates: Coordinates, moving: Sequence[MovingPrior], previous: KernelPrior) -> KernelPrior:
    """The prior at the averages of the steps; ``previous`` where that cannot be factorised."""
    groups = []
    for moved, group in zip(moving, coordinates.start.groups, strict=True):
        theta, points = np.split(moved.average, [len(group.spec.theta)])
        Z = points.reshape(group.Z.shape) * moved.units.reshape(group.Z.shape) if len(points) else group.Z
        try:
            groups.append(group.rebuilt([group.spec.with_theta(theta)], Z))
        except ValueError:
            return previous
    return grouped(groups)
