"""Mini-batches that learn: natural gradients of the posterior, each with a step of Adam on kernel parameters and
inducing points, X-GPC's way to learn (Wenzel et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from .._moving import MovingPrior
from .._sites import Site
from .._svi import SCHEDULES
from ..approximations.base import KernelPosterior, KernelPrior, Training, grouped
from ..approximations.sparse import SparsePosterior
from ..inference.ascent import best_parameter, update
from ..inference.mini_batch import MiniBatches, Window, batch_rows
from ..kernels.prior import LengthScalePrior
from ..kernels.spec import KernelSpec
from ..rows.source import permuted
from .profile import Coordinates, Options, Outcome, profile

# Rate of Adam's step t: RATE / sqrt(1 + t / delay), with a delay of an epoch's steps, at least DELAY, times the root of
# the batch's rows / RATE_BATCH, at most RATE_FACTOR. Inducing points move at POINTS_SHARE of it, in the units of
# ``Coordinates``: the noise of their many coordinates is what keeps the bound low. (Bounds after 2000, 4000 and 6000
# steps of 100 rows on electricity, magic, higgs, covtype, bank-marketing and cod-rna; at equal rates of .01 to .05
# electricity was .01 to .05 nats a row lower, and with one step of Adam for two or ten of the posterior it was not
# quicker by the clock. With batches of 1024, two and four classes, 200 steps at twice the rate were worth 800. After
# 17 000 steps on covtype, whose epochs have 840, a delay of 1000 was .003 above one of 300; on electricity, with 408,
# after 8 000 .001 below.)
RATE, DELAY, POINTS_SHARE, RATE_BATCH, RATE_FACTOR = 0.05, 300.0, 0.1, 100, 3.0
# The sliding window is at rest below ``tol`` times the root of WINDOW_ROWS / n, of fewer rows n for each latent
# function, and times the batch's rows / RATE_BATCH, of larger batches. A relative change of the natural parameters
# costs about its square times n nats, and tolerances are in nats where rows are few. (Held-out NLL, means of four
# splits, at 1, 2, 4 and 8 times tol: diabetes .4543 .4539 .4534 .4529, german .5044 .5042 .5034 .5036, svmguide1 .0819
# .0828 .0836 .0845; seconds fall as the root or faster. Rows for each latent function rather than rows: landsat,
# waveform and page-blocks lost .0001 to .004, in two thirds of the time.) Steps of large batches have less noise, go
# further, and cost as much more as they have rows.
WINDOW_ROWS = 10_000
# Nats a row by which the bound may still rise, while steps double, when the window ends the fit: the noise of
# mini-batches brings the natural parameters to rest while inducing points, whose rate is low, still move. (covtype,
# three splits: NLL within .01 of the profile's in 25 s; other sets wait for one or two epochs more at most.) Steps of
# larger batches cost more: the same for each row that they take. (GPC-II-mc, batches of 1024: .362 in 19 s, .367 in 3.)
RISE = 0.0075
# Steps that an iteration, an epoch, has at least and at most. Of all rows, each is a pass.
MINI_BATCH_STEPS, FULL_BATCH_STEPS = (100, 1000), 20
# Rate of the posterior's steps on all rows, which have no noise.
FULL_BATCH_RATE = (SCHEDULES["constant"], 0.5, 0.0)


def stochastic(
    training: Training,
    start: KernelPosterior,
    site: Site,
    options: Options,
    batch_size: int | None,
    schedule: tuple[int, float, float],
    random_state: np.random.RandomState,
) -> Outcome:
    """Natural-gradient steps, each followed by one of Adam, until the sliding window of X-GPC's section 5.2 is at rest.

    The window is over the relative changes of the averaged natural parameters. The fit goes on where the bound rises
    by more than ``RISE`` a row while the number of steps doubles. What is returned is the average of
    posteriors, kernel parameters and inducing points over the steps, the later the more. An iteration is an epoch, of
    ``MINI_BATCH_STEPS``.
    """
    coordinates = Coordinates(start.prior, options.learn_inducing)
    if not coordinates.limits or not isinstance(start, SparsePosterior):
        return Outcome(update(training, start, site), 0)
    n, n_features, q = len(training), training.source.n_features, start
    takes_all = batch_size is None or batch_size >= n
    batch = n if takes_all else batch_rows(int(batch_size or n), n)
    rate = RATE * min(RATE_FACTOR, (batch / RATE_BATCH) ** 0.5)
    least, most = (FULL_BATCH_STEPS,) * 2 if takes_all else MINI_BATCH_STEPS
    steps = min(most, max(least, -(-n // batch)))
    moving = moving_priors(
        coordinates,
        options.length_scale_prior,
        rate,
        max(DELAY, steps),
        options.state["units"] if options.state else None,
    )
    loop = MiniBatches(q, batch, n, n_features, FULL_BATCH_RATE if takes_all else schedule, moving)
    size = batch * min(steps, loop.steps_per_call(n_features))
    feed = permuted(training.source, size, random_state)
    looser = max(1.0, WINDOW_ROWS * loop.latents / n) ** 0.5 * max(1.0, batch / RATE_BATCH)
    rise = RISE * n * max(1.0, batch / RATE_BATCH)
    window, bounds, state = Window(looser * options.tol), list[float](), options.state
    at_rest = is_level = False
    if state:
        loop.restore(state)
        bounds = state["bounds"].tolist()
        at_rest, is_level = window.rests(state["changes"]), _is_level(bounds, rise)
        q = loop.posterior(_at_average(coordinates, moving, q.prior), loop.average)
    while len(bounds) < options.max_iter and not (at_rest and is_level):
        estimates: list[float] = []
        while len(estimates) < steps and not (at_rest and is_level):
            # By the executor, who ends what takes too long.
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
        options.record(bounds[-1], q.prior, options.log_prior(q.prior)[0], evaluation=len(bounds))
        state = {**loop.state(), "changes": window.changes, "bounds": np.array(bounds)}
        state["units"] = np.stack([one.units for one in moving])
        options.reached(q, site, state)
    n_iter, done = len(bounds), at_rest and is_level
    problem = None if done else f"max_iter={n_iter} was reached before tol={options.tol:g} by the mini-batches"
    return Outcome(update(training, q, site), n_iter, problem, state)


def adam(
    training: Training,
    start: KernelPosterior,
    site: Site,
    options: Options,
    batch_size: int | None,
    schedule: tuple[int, float, float],
    random_state: np.random.RandomState,
) -> Outcome:
    """``stochastic``, and L-BFGS on all rows from where that ends, until nothing is gained."""
    first = stochastic(training, start, site, options, batch_size, schedule, random_state)
    left = options.max_iter - first.n_iter
    if first.n_iter and left <= 0:
        return first
    then = profile(training, first.q, first.site, replace(options, max_iter=left))
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
        moving.append(
            MovingPrior(group.core, group.jitter, vector, limits.T, points, group.spec.logarithms, normal, rate, delay)
        )
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
