"""Mini-batches that learn: natural gradients of the posterior, each with a step of Adam on kernel parameters and
inducing points, X-GPC's way to learn (Wenzel et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Self

import numpy as np

from .._moving import FreeParameters, MovingPrior
from .._sites import Site
from .._svi import SCHEDULES
from ..approximations.base import KernelPosterior, KernelPrior, Training, grouped
from ..approximations.sparse import SparsePosterior
from ..config import FitConfig
from ..inference.ascent import best_parameter, update
from ..inference.mini_batch import MiniBatches, Window, batch_rows, learning_rate_schedule
from ..kernels.prior import LengthScalePrior
from ..kernels.spec import KernelSpec
from ..rows.source import permuted
from .optimizer import Coordinates, Optimizer, Options, Outcome
from .profile import Profile

# Rate of Adam's step t: RATE / sqrt(1 + t / delay), times the root of the batch's rows / RATE_BATCH, at most
# RATE_FACTOR; the delay is an epoch's steps, at least DELAY. Inducing points, whose many coordinates make noise, move
# at POINTS_SHARE of it: at equal rates electricity lost .01 to .05 nats a row.
RATE, DELAY, POINTS_SHARE, RATE_BATCH, RATE_FACTOR = 0.05, 300.0, 0.1, 100, 3.0
# The window rests below ``tol`` times the root of WINDOW_ROWS / n, for fewer rows n of each latent function: a relative
# change of the natural parameters costs about its square times n nats (the NLL of four small sets moved by .003).
WINDOW_ROWS = 10_000
# The fit goes on while the bound rises by this many nats a row as the steps double: the natural parameters may rest
# while inducing points, whose rate is low, still move (covtype ends within .01 of the profile's NLL).
RISE = 0.0075
# Least and most steps of an iteration, an epoch. Steps of all rows are each a pass.
MINI_BATCH_STEPS, FULL_BATCH_STEPS = (100, 1000), 20
# Rate of the posterior's steps on all rows, which have no noise.
FULL_BATCH_RATE = (SCHEDULES["constant"], 0.5, 0.0)


class Stochastic(Optimizer):
    """Natural-gradient steps, each followed by one of Adam, until the sliding window of X-GPC's section 5.2 is at rest.

    The window is over the relative changes of the averaged natural parameters. The run goes on where the bound rises
    by more than ``RISE`` a row while the number of steps doubles. The result is the average of posteriors, kernel
    parameters and inducing points over the steps, later ones weighted more. An iteration is an epoch.

    Parameters
    ----------
    batch_size : int, or None for all rows
    schedule : of the posterior's steps, from ``learning_rate_schedule``
    random_state : RandomState
    """

    def __init__(self, batch_size: int | None, schedule: tuple[int, float, float], random_state: np.random.RandomState):
        self.batch_size, self.schedule, self.random_state = batch_size, schedule, random_state

    @classmethod
    def of(cls, config: FitConfig, random_state: np.random.RandomState) -> Self:
        return cls(config.batch_size, learning_rate_schedule(config.learning_rate), random_state)

    def run(self, training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
        coordinates, resumed = Coordinates(start.prior, options.learn_inducing), self.state
        self.state = None
        if not coordinates.limits or not isinstance(start, SparsePosterior):
            return Outcome(update(training, start, site), 0)
        n, n_features, q = len(training), training.source.n_features, start
        takes_all = self.batch_size is None or self.batch_size >= n
        batch = n if takes_all else batch_rows(int(self.batch_size or n), n)
        rate = RATE * min(RATE_FACTOR, (batch / RATE_BATCH) ** 0.5)
        least, most = (FULL_BATCH_STEPS,) * 2 if takes_all else MINI_BATCH_STEPS
        steps = min(most, max(least, -(-n // batch)))
        units = resumed["units"] if resumed else None
        moving = moving_priors(coordinates, options.length_scale_prior, rate, max(DELAY, steps), units)
        loop = MiniBatches(q, batch, n, n_features, FULL_BATCH_RATE if takes_all else self.schedule, moving)
        feed = permuted(training.source, batch * min(steps, loop.steps_per_call(n_features)), self.random_state)
        # Steps of large batches have less noise, go further, and cost more.
        of_batch = max(1.0, batch / RATE_BATCH)
        window = Window(max(1.0, WINDOW_ROWS * loop.latents / n) ** 0.5 * of_batch * options.tol)
        rise, bounds = RISE * n * of_batch, list[float]()
        at_rest = is_level = False
        if resumed:
            loop.restore(resumed)
            bounds = resumed["bounds"].tolist()
            at_rest, is_level = window.rests(resumed["changes"]), _is_level(bounds, rise)
            q = loop.posterior(_at_average(coordinates, moving, q.prior), loop.average)
        while len(bounds) < options.max_iter and not (at_rest and is_level):
            estimates: list[float] = []
            while len(estimates) < steps and not (at_rest and is_level):
                # By the executor, which ends what takes too long.
                run = partial(loop.run, q, site=site, executor=training.executor)
                ((rates, change, log_likelihood),) = training.executor.each(run, [next(feed)])
                estimates += log_likelihood.tolist()
                at_rest = window.rests(change[rates > 0.0])
            q = loop.posterior(_at_average(coordinates, moving, q.prior), loop.average)
            estimate = float(np.mean(estimates))
            if site.learned:
                site = site.with_parameter(best_parameter(site, estimate, training.total_weight)[0])
            bounds.append(estimate - q.kl)
            is_level = _is_level(bounds, rise)
            options.record(bounds[-1], q.prior, evaluation=len(bounds))
            self.state = {**loop.state(), "changes": window.changes, "bounds": np.array(bounds)}
            self.state["units"] = np.stack([one.units for one in moving])
            options.reached(q, site)
        limit = f"max_iter={len(bounds)} was"
        problem = None if at_rest and is_level else options.too_few("the mini-batches", limit)
        return Outcome(update(training, q, site), len(bounds), problem)


class Adam(Stochastic):
    """``Stochastic``, and L-BFGS on all rows from where that ends, until nothing is gained."""

    def run(self, training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
        first = super().run(training, start, site, options)
        left = options.max_iter - first.n_iter
        if first.n_iter and left <= 0:
            return first
        self.state = None
        then = Profile().run(training, first.point.q, first.point.site, replace(options, max_iter=left))
        return replace(then, n_iter=first.n_iter + then.n_iter)


def moving_priors(
    coordinates: Coordinates,
    length_scale_prior: LengthScalePrior,
    rate: float,
    delay: float = DELAY,
    units: np.ndarray | None = None,
) -> list[MovingPrior]:
    """Each kernel with its inducing points where learning starts, ready to be moved at a rate.

    ``units`` (C, m d) of the points are those of an earlier fit.
    """
    moving, start = [], coordinates.start
    m, d = start.groups[0].Z.shape
    if units is None:
        units = np.broadcast_to(POINTS_SHARE * coordinates.unit, (len(start.groups), m, d)).reshape(-1, m * d)
    for group, unit in zip(start.groups, units, strict=True):
        points = np.array(unit) if coordinates.learn_inducing else np.empty(0)
        vector = np.concatenate([group.spec.theta, group.Z.ravel()[: len(points)] / points])
        limits = np.concatenate([group.spec.bounds, np.full((len(points), 2), [-np.inf, np.inf])])
        normal = _normal(length_scale_prior, group.spec)
        free = FreeParameters(vector, limits.T, points, group.spec.logarithms)
        moving.append(MovingPrior(group.core, group.jitter, free, normal, rate, delay))
    return moving


def _normal(length_scale_prior: LengthScalePrior, spec: KernelSpec) -> tuple[np.ndarray, np.ndarray]:
    """Precision and linear term of the length scales' prior, which is normal in the logarithms."""
    if length_scale_prior.is_flat:
        return np.empty((0, 0)), np.empty(0)
    size = len(spec.theta)
    linear = length_scale_prior.at(spec.with_theta(np.zeros(size)))[1]
    slopes = [length_scale_prior.at(spec.with_theta(one))[1] for one in np.eye(size)]
    return linear - np.array(slopes), linear


def _is_level(bounds: Sequence[float], least: float) -> bool:
    """Whether the mean over the latest half of the epochs is less than ``least`` above that over the quarter before."""
    half, quarter = len(bounds) // 2, len(bounds) // 4
    return quarter > 0 and float(np.mean(bounds[half:]) - np.mean(bounds[quarter:half])) < least


def _at_average(coordinates: Coordinates, moving: Sequence[MovingPrior], before: KernelPrior) -> KernelPrior:
    """The prior at the averages of the steps; the one before where that cannot be factorised."""
    groups = []
    for one, group in zip(moving, coordinates.start.groups, strict=True):
        theta, points = np.split(one.average, [len(group.spec.theta)])
        Z = points.reshape(group.Z.shape) * one.units.reshape(group.Z.shape) if len(points) else group.Z
        try:
            groups.append(group.rebuilt([group.spec.with_theta(theta)], Z))
        except ValueError:
            return before
    return grouped(groups)
