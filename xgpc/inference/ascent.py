"""Full-batch inference at given hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Natural, Posterior, Training, is_same_prior
from ..likelihoods import other_site
from ..rows.block import Rescaling
from ..rows.deadline import Deadline
from ..statistics import (
    GivenSites,
    Moments,
    Products,
    Restatement,
    StatedSites,
    curvature_product,
    mean_gradient,
    restate,
)
from ..statistics import update as statistics_of_update
from .history import History

# A fall of the bound below this share of it is round-off, not a step too long.
ROUND_OFF = 1e-11
# Halvings of a step before there is nothing more to try: the natural gradient, an ascent direction, then vanishes to
# working precision, or else the bound is not what it seems.
MAX_HALVINGS = 12
# Failed steps after which one of another site is tried, whose own bound cannot fall by its unit step.
FALLBACK_AFTER = 3
# Range of the learned delta of additive noise: below it rounding makes the logarithm, and at that share of what
# guessing would give no label tells anything any more, whatever the latent functions.
LEAST_DELTA, LARGEST_DELTA = 1e-7, 0.9
# Steps of several latent functions. Conjugate gradients for the mean of all classes: until the residual is this share
# of the first, or so many. (18 ascents, multinomial and softmax: as many passes at .1 as at .02 with half of the
# products, up to a fifth more at .3.)
CG_TOL, CG_MAX_ITER = 0.1, 30
# Where variances are coupled, by the classes or, with additive noise, through the means, the precision goes this share
# of the way: a full step of all at once can overshoot by as much as was missing. (Passes to within .01 nats of the
# optimum, landsat, m = 100, variance 30, full steps against rates of .5 to .7: exact softmax 27 against 25 to 28, GPCsm
# 75 against 38 to 60. Seven ascents for two classes with additive noise, tol = 1e-11: 765 passes against 441 at 2/3 and
# 446 at .8.)
PRECISION_RATE = 2.0 / 3.0
# Softmax, of either bound: half of the way for the precision, and half of that step for a start; after it each step
# tells how long the next is to be. (Passes, products and processor seconds of fits of 3000 rows, m = 100, one kernel,
# exact softmax, against precisions and first steps of 2/3 with CG_TOL: page-blocks 141, 746, 5 and 141, 1192, 6;
# landsat 151, 1131, 9 and 159, 1604, 11; pendigits 142, 898, 8 and 147, 1449, 11; shuttle 300, 964, 9 and 427, 1981,
# 12; with unit ones 157, 169, 166 and 558 passes.)
# Not with label noise: what a better delta adds to a gain was not promised, and steps that are better for the first
# delta led to a worse optimum (landsat, multinomial-logit, 800 rows).
SOFTMAX_PRECISION_RATE, SOFTMAX_FIRST_RATE, SOFTMAX_CG_TOL = 0.5, 0.5, 0.2
# What a step's parabola may multiply its length by; where it is nearly a line, doubling is as far as it tells.
LONGEST_GROWTH = 2.0

Q = TypeVar("Q", bound=Posterior)


@dataclass(frozen=True)
class Point(Generic[Q]):
    """A posterior, and what a pass over the training rows found of it.

    Attributes
    ----------
    q : posterior
    site : Site, with the best parameter for q if that is learned
    sites : StatedSites, what ``site`` makes of q; with a new parameter by rescaling what the old one made
    log_likelihood, curved : float, sums of ell and of lambda v, as in ``Moments``
    target : natural parameters of the unit step from q: what its sites make
    """

    q: Q
    site: Site
    sites: StatedSites
    log_likelihood: float
    curved: float
    target: Natural

    @cached_property
    def elbo(self) -> float:
        return self.log_likelihood - self.q.kl

    @cached_property
    def value(self) -> float:
        """What the updates of the site ascend: the bound, but for the Taylor expansion.

        That is no bound: its updates are Newton steps on the log joint density at the mean.
        """
        if self.site.record.is_bound:
            return self.elbo
        return self.log_likelihood + 0.5 * self.curved - 0.5 * self.q.squared_norm


def update(training: Training, q: Q, site: Site) -> Point[Q]:
    """A pass: marginals and sites of all rows under q, and their natural parameters."""
    sites = StatedSites(q.belief, site)
    sums = training.reduce(statistics_of_update, sites)
    P, h = of_latents(training.n_latents, sums)
    log_likelihood, curved = sums.log_likelihood, sums.curved
    if site.learned:
        parameter, rescaling = best_parameter(site, log_likelihood, training.total_weight)
        site, sites, (factor, offset) = site.with_parameter(parameter), replace(sites, rescaling=rescaling), rescaling
        log_likelihood = factor * log_likelihood + offset * training.total_weight
        curved, P, h = factor * curved, factor * P, factor * h
    return Point(q, site, sites, log_likelihood, curved, q.prior.with_sites(P, h))


def of_latents(n_latents: int | None, sums: Moments) -> Natural:
    """P and h of C latent functions; without that axis if their number is None."""
    return (sums.P[0], sums.h[0]) if n_latents is None else (sums.P, sums.h)


def best_parameter(site: Site, total: float, total_weight: float) -> tuple[float, Rescaling]:
    """The best parameter delta of an additive-noise site, given sum_i w_i ell_i at the present one.

    ell_i = log(delta / (C - 1)) + g p_i with g = log((1 - delta) (C - 1) / delta) is linear in the probability p_i of
    the label, and the bound is highest where 1 - delta is the mean of p_i (Liu et al. 2019, equation (27)).

    Returns
    -------
    The parameter, and what it makes of the present sites.
    """
    n_wrong = max(1, site.n_latents - 1)

    def levels(delta: float) -> tuple[float, float]:
        wrong = math.log(delta / n_wrong)
        return wrong, math.log1p(-delta) - wrong

    wrong, slope = levels(site.parameter)
    probabilities = (total - total_weight * wrong) / slope
    chance = n_wrong / (n_wrong + 1.0)
    parameter = min(max(1.0 - probabilities / total_weight, LEAST_DELTA), LARGEST_DELTA * chance)
    new_wrong, new_slope = levels(parameter)
    factor = new_slope / slope
    return parameter, Rescaling(factor, new_wrong - factor * wrong)


def tolerance_unit(elbo: float) -> float:
    """What a tolerance of one means: a nat, or a thousandth of the bound if that is more."""
    return max(1.0, 1e-3 * abs(elbo))


def is_small(gain: float, elbo: float, tol: float) -> bool:
    """Whether a gain of the bound, in nats, counts as none."""
    return gain < tol * tolerance_unit(elbo)


def natural_step(q: Q, target: Natural, rate: float) -> Q | None:
    """q with natural parameters (1 - rate) eta + rate target: an interpolation of the sites.

    None if that is not proper: its precision is not positive definite.
    """
    (P, h), (target_P, target_h) = q.natural, target
    if rate == 1.0:
        return q.prior.posterior(target)  # type: ignore[return-value]
    return q.prior.posterior((P + rate * (target_P - P), h + rate * (target_h - h)))  # type: ignore[return-value]


def mean_step(q: KernelPosterior, end: KernelPosterior, rate: float) -> KernelPosterior | None:
    """The posterior at a share ``rate`` of the way from q to another one, its precision and its mean each in a line.

    The bound rises at first on the way to a better mean and to the sites' precision, however far that is. On the line
    of natural parameters it may not: there the mean turns to what the precision leaves of the linear term.
    """
    if rate == 1.0:
        return end
    (before, linear), (after, _) = q.natural, end.natural
    between = q.prior.posterior((before + rate * (after - before), linear))
    mean, dual = (start + rate * (stop - start) for start, stop in zip(q.mean_pair, end.mean_pair, strict=True))
    return None if between is None else between.at_mean((mean, dual))


def steps_from(training: Training, point: Point[Q]) -> Callable[[float], Q | None]:
    """Where steps from a point lead, by their length; None where that is no proper posterior.

    Additive noise's variances depend on its means so much that unit steps overshoot: the precision goes a part of the
    way, and the mean makes the Newton step that it makes with that precision.
    """
    q, site = point.q, point.site
    end = coupled_end(training, point) if site.n_latents > 1 else None
    if end is not None:
        return partial(mean_step, q, end)  # type: ignore[arg-type, return-value]
    if not site.record.is_damped:
        return partial(natural_step, q, point.target)
    (before, _), (precision, linear) = q.natural, point.target
    damped = before + PRECISION_RATE * (precision - before)
    return partial(natural_step, q, (damped, linear - q.times_mean(precision - damped)))


def coupled_end(training: Training, point: Point[Any]) -> KernelPosterior | None:
    """Where a unit step from a point leads: the sites' precision, and a mean for all classes.

    Each class has a site of its own, but what the likelihood gains for one it takes from the others: unit steps go
    round in circles, and what adds to all latent functions alike hardly moves, as their likelihood has no curvature
    there. The mean is a Newton step with the coupled curvature of each point: conjugate gradients, preconditioned by
    the sites' precision. O(n C m) each, or O(C n^2) of a full Gaussian process. None for augmented sites, whose steps
    are their own, and where the sites' precision makes no proper posterior.
    """
    q: KernelPosterior = point.q
    if point.site.record.curvature is None:
        return None
    (before, _), (precision, linear) = q.natural, point.target
    measured = has_measured_steps(point.site)
    rate, tol = (SOFTMAX_PRECISION_RATE, SOFTMAX_CG_TOL) if measured else (PRECISION_RATE, CG_TOL)
    trial = q.prior.posterior((before + rate * (precision - before), linear))
    if trial is None:
        return None
    # Vectors are pairs: coefficients, and what the prior's precision makes of them.
    mean, dual = (part.copy() for part in q.mean_pair)
    # At q the residual needs no product: it is the gradient of the bound by the mean.
    if training.subsample is None:
        rows, residual = training, training.reduce(mean_gradient, point.sites) - dual
    else:
        # The same of what the pass has summed up already. The curvature of some rows is about that of all.
        rows, residual = training.subsample, linear - q.times_mean(precision)
    step, dual_step = trial.solve(residual)
    direction, dual_direction, size = step, dual_step, float(np.sum(residual * step))
    target = tol**2 * size
    for _ in range(CG_MAX_ITER):
        if not size > target:
            break
        product = dual_direction + rows.reduce(curvature_product, Products(point.sites, direction))
        curved = float(np.sum(direction * product))
        # Round-off, of huge variances, may leave no curvature.
        if not curved > 0.0:
            break
        rate = size / curved
        mean += rate * direction
        dual += rate * dual_direction
        residual -= rate * product
        step, dual_step = trial.solve(residual)
        before_size, size = size, float(np.sum(residual * step))
        direction = step + (size / before_size) * direction
        dual_direction = dual_step + (size / before_size) * dual_direction
    return trial.at_mean((mean, dual))


def restated(training: Training, sites: StatedSites | GivenSites, prior: KernelPrior, clipped: bool = False) -> Natural:
    """Natural parameters that sites make under a prior."""
    sums = training.reduce(restate, Restatement(sites, prior.basis(training.n_latents), clipped))
    return prior.with_sites(*of_latents(training.n_latents, sums))


def proper_posterior(training: Training, sites: StatedSites, prior: KernelPrior) -> KernelPosterior | None:
    """What the sites of a posterior make of a new prior; None only for what is not finite.

    Where it is not proper, negative precisions count as zero: the gradients by the means stay.
    """
    q = prior.posterior(restated(training, sites, prior))
    return q or prior.posterior(restated(training, sites, prior, clipped=True))


def carry_over(training: Training, q: KernelPosterior, prior: KernelPrior, site: Site) -> KernelPosterior:
    """Where to start under ``prior`` from q, of whatever rows: the posterior that the sites under q make here.

    q itself if it has that prior: the first update makes the same sites of it, and a step not looked at, as this is,
    can overshoot.
    """
    if is_same_prior(q.prior, prior):
        return q
    return proper_posterior(training, StatedSites(q.belief_anywhere, site), prior) or prior.at_prior(training.n_latents)


@dataclass(frozen=True)
class Ascent(Generic[Q]):
    """Where an ascent ended.

    Attributes
    ----------
    point : the last posterior, with its pass
    n_iter : int
    converged : bool, whether it ended by the tolerance
    first_rate : float
        How long the first step had best been, where steps are measured; what it was told if it made none.
    """

    point: Point[Q]
    n_iter: int
    converged: bool
    first_rate: float

    @property
    def q(self) -> Q:
        return self.point.q

    @property
    def elbo(self) -> float:
        return self.point.elbo


def has_measured_steps(site: Site) -> bool:
    """Whether each step of an ascent tells the length of the next, by what it has gained and promised."""
    return site.record.curvature is not None and not site.record.has_label_noise


def promised_gain(point: Point[Any], trial: Any) -> float:
    """What the bound gains by a step, to first order."""
    return point.q.first_order_gain(point.target, trial)


def expected_gain(point: Point[Any], trial: Any, rate: float, promised: float) -> float:
    """What a unit step is expected to gain: half of what is promised at the top of a parabola, or what a conjugate
    bound gains; that is known of whole steps alone."""
    if has_measured_steps(point.site):
        return 0.5 * promised / rate
    return point.q.kl_to(trial) if rate == 1.0 else math.inf


def best_rate(rate: float, promised: float, gain: float) -> float:
    """Length of a step where the parabola through its length ``rate`` is highest, at most one.

    The bound gains as much as promised to first order, and ``gain`` in the end.
    """
    missing = promised - gain
    growth = 0.5 * promised / missing if 0.0 < promised < 2.0 * LONGEST_GROWTH * missing else LONGEST_GROWTH
    return min(1.0, growth * rate)


def step_or_fallback(
    training: Training, point: Point[Q], steps: Callable[[float], Q | None], rate: float, failures: int
) -> Q | None:
    """The next posterior to try; after so many failures that of a bound that cannot fail, if there is one."""
    fallback = point.site.record.fallback
    if failures != FALLBACK_AFTER or fallback is None:
        return steps(rate)
    safe = update(training, point.q, other_site(fallback, point.site))
    return natural_step(point.q, safe.target, 1.0)


def coordinate_ascent(
    training: Training,
    q: Q,
    site: Site,
    *,
    tol: float,
    max_iter: int,
    history: History,
    first_rate: float = SOFTMAX_FIRST_RATE,
    deadline: Deadline | None = None,
    leaves_prior: bool = False,
    first: Point[Q] | None = None,
) -> Ascent[Q]:
    """Full-batch natural-gradient ascent with unit or damped steps, safeguarded.

    A step that lowers the bound is halved (the sites interpolated between old and new), the next one starts at twice
    its rate; after ``FALLBACK_AFTER`` failures one step of a bound that cannot fail is tried in its place, if there is
    one. Of softmax, the first one has length ``first_rate``, the next is as long as had been best for the one before.
    It ends where the ``deadline`` leaves no time for another step, but not at the prior. With ``leaves_prior`` a
    promise of less than ``tol`` does not end it there either. ``first`` is what a pass finds of q, if one was made.
    """
    began = 0.0 if deadline is None else deadline.now()
    point = update(training, q, site) if first is None else first
    elbo, value = point.elbo, point.value
    steps: Callable[[float], Q | None] | None = None
    history.add(iteration=0, elbo=elbo, learning_rate=np.nan)
    measured = has_measured_steps(site)
    rate, failures, is_first = first_rate if measured else 1.0, 0, True
    for iteration in range(1, max_iter + 1):
        must_step = leaves_prior and point.q.squared_norm == 0.0
        if deadline is not None:
            if not must_step and np.any(point.q.natural[1]) and not deadline.allows_again(began):
                return Ascent(point, iteration - 1, False, first_rate)
            began = deadline.now()
        steps = steps_from(training, point) if steps is None else steps
        trial = step_or_fallback(training, point, steps, rate, failures)
        promised = promised_gain(point, trial) if measured and trial is not None else math.nan
        # No pass over the data for less than the tolerance.
        may_end = trial is not None and not failures and not must_step
        if may_end and is_small(expected_gain(point, trial, rate, promised), elbo, tol):
            return Ascent(point, iteration - 1, True, first_rate)
        gain, reached = -np.inf, point
        if trial is not None:
            reached = update(training, trial, point.site)
            gain = reached.value - value
        if trial is None or not gain >= 0.0:
            is_round_off = gain >= -ROUND_OFF * max(1.0, abs(value))
            if is_round_off or failures == MAX_HALVINGS:
                # A measured step has promised more than the tolerance.
                is_end = is_round_off or (not measured and is_small(-gain, elbo, tol))
                return Ascent(point, iteration, is_end, first_rate)
            failures += 1
            rate *= 0.5
            continue
        point, elbo, value = reached, reached.elbo, reached.value
        history.add(iteration=iteration, elbo=elbo, learning_rate=rate)
        next_rate = best_rate(rate, promised, gain) if measured else min(1.0, 2.0 * rate)
        first_rate, is_first = next_rate if is_first else first_rate, False
        if is_small(gain / rate, elbo, tol):
            return Ascent(point, iteration, True, first_rate)
        steps, rate, failures = None, next_rate, 0
    return Ascent(point, max_iter, False, first_rate)
