"""Full-batch inference at given hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from .._engine import FALLBACK_AFTER, MAX_HALVINGS, ROUND_OFF, tolerance_unit
from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Natural, Training, is_same_prior
from ..likelihoods import other_site
from ..statistics import (
    AnySites,
    FirstSites,
    Products,
    Projection,
    Rescaling,
    SitesAtPosterior,
    curvature_product,
    mean_gradient,
    project_sites,
    update_sums,
)
from .history import History

# Range of the learned delta of additive noise: rounding limits it from below; above this share of the error rate of
# guessing, labels would carry hardly any information.
DELTA_RANGE = 1e-7, 0.9
# Most products of conjugate gradients for the mean of all classes, each a pass: what they leave, later steps find.
CG_MAX_ITER = 30
# Updates of another bound that give the first posterior if the bound itself has no good start at the prior: they only
# have to tell the classes apart.
START_UPDATES = 3
# Most updates from a cold start, more than the exact bound needs: for the posterior of the second start, and for inner
# solves of the optimizer. Polya-Gamma's ascent, which ends slowly, continues in later evaluations.
COLD_UPDATES = 30
# Gain that ends the updates for the second start.
OTHER_TOL = 1e-4
# Updates from each start before their bounds are compared. With logistic-softmax and 120 kernels either start alone
# ended more than 1 % below the better one in 4 or 5 cases, the comparison in none; ten updates were too few.
TRIAL_UPDATES = 40

Q = TypeVar("Q", bound=KernelPosterior)


class Steps(NamedTuple):
    """How long the steps of an ascent are.

    ``precision_rate`` is the share of a precision step for coupled variances (several classes, or additive noise),
    where a full step can overshoot. Conjugate gradients stop at the share ``cg_tol`` of the first residual; more
    accuracy saves no passes. ``first_rate`` is the length of the first step. If lengths are measured, the promised and
    the actual gain of a step determine the length of the next one, at most ``growth`` times as long: a nearly straight
    parabola does not determine a longer one.
    """

    precision_rate: float = 2.0 / 3.0
    first_rate: float = 1.0
    cg_tol: float = 0.1
    are_measured: bool = False
    growth: float = 2.0


DAMPED = Steps()
# Measured steps saved softmax up to half of the products of conjugate gradients. Likelihoods with label noise do
# without: better steps for the first delta led to a worse optimum.
MEASURED = Steps(0.5, 0.5, 0.2, True)


def steps_of(site: Site) -> Steps:
    return MEASURED if site.record.curvature is not None and not site.record.has_label_noise else DAMPED


@dataclass(frozen=True)
class Point(Generic[Q]):
    """A posterior and the result of a pass over the training rows."""

    q: Q
    site: Site  # with the best parameter for q if that is learned
    sites: SitesAtPosterior  # of ``site`` under q, rescaled if the parameter was learned
    log_likelihood: float  # sum of ell
    target: Natural  # natural parameters of the sites, reached from q by a unit step
    elbo: float
    value: float  # the objective of the updates: the bound, or for the Taylor expansion log p(y, f) at the mean


def update(training: Training, q: Q, site: Site) -> Point[Q]:
    """Make a pass: marginals and sites of all rows under q, and the sites' natural parameters."""
    sites = SitesAtPosterior(q, site)
    log_likelihood, curved, P, h = training.reduce(update_sums, sites)
    if site.learned:
        site, rescaling = at_best_parameter(site, log_likelihood, training.source.total_weight)
        sites, (factor, offset) = replace(sites, rescaling=rescaling), rescaling
        log_likelihood = factor * log_likelihood + offset * training.source.total_weight
        curved, P, h = factor * curved, factor * P, factor * h
    elbo = log_likelihood - q.kl
    value = elbo if site.record.is_bound else log_likelihood + 0.5 * curved - 0.5 * q.squared_norm
    return Point(q, site, sites, log_likelihood, q.prior.with_sites(P, h), elbo, value)


def at_best_parameter(site: Site, total: float, total_weight: float) -> tuple[Site, Rescaling]:
    """An additive-noise site with the best parameter delta given sum_i w_i ell_i, and the rescaling of the sites to it.

    ell_i = log(delta / (C - 1)) + g p_i with g = log((1 - delta) (C - 1) / delta) is linear in the probability p_i of
    the label, and the bound is highest where 1 - delta is the mean of p_i (Liu et al. 2019, equation (27)).
    """
    n_wrong = max(1, site.n_latents - 1)

    def levels(delta: float) -> tuple[float, float]:
        wrong = math.log(delta / n_wrong)
        return wrong, math.log1p(-delta) - wrong

    wrong, slope = levels(site.parameter)
    probabilities = (total - total_weight * wrong) / slope
    chance, (least, largest) = n_wrong / (n_wrong + 1.0), DELTA_RANGE
    parameter = min(max(1.0 - probabilities / total_weight, least), largest * chance)
    new_wrong, new_slope = levels(parameter)
    factor = new_slope / slope
    return site.with_parameter(parameter), Rescaling(factor, new_wrong - factor * wrong)


def is_small(gain: float, elbo: float, tol: float) -> bool:
    """Whether a gain of the bound, in nats, is below the tolerance."""
    return gain < tol * tolerance_unit(elbo)


def natural_step(q: Q, target: Natural, rate: float) -> Q | None:
    """The posterior with natural parameters (1 - rate) eta + rate target; None if its precision is not proper."""
    if rate == 1.0:
        return q.prior.posterior(target)
    (P, h), (target_P, target_h) = q.eta, target
    return q.prior.posterior((P + rate * (target_P - P), h + rate * (target_h - h)))


def mean_step(q: KernelPosterior, end: KernelPosterior, rate: float) -> KernelPosterior | None:
    """Move a share ``rate`` of the way from q to ``end``, in a straight line of both precision and mean.

    On this line the bound rises at first if ``end`` has a better mean and the sites' precision. On the line of natural
    parameters it may fall, because there the mean depends on the changing precision.
    """
    if rate == 1.0:
        return end
    (precision, linear), (end_precision, _) = q.eta, end.eta
    between = q.prior.posterior((precision + rate * (end_precision - precision), linear))
    mean, dual = (start + rate * (stop - start) for start, stop in zip(q.mean_pair, end.mean_pair, strict=True))
    return None if between is None else between.at_mean((mean, dual))


def steps_from(training: Training, point: Point[Q]) -> Callable[[float], Q | None]:
    """A function from a step length to the posterior after that step, None if it is not proper.

    With additive noise the variances depend strongly on the means and unit steps overshoot: the precision takes a part
    of the step, and the mean a Newton step with that precision.
    """
    q, site = point.q, point.site
    if site.record.curvature is not None and (end := coupled_end(training, point)) is not None:
        return partial(mean_step, q, end)  # type: ignore[return-value]
    if site.record.is_multi_class or not site.record.has_wrong_labels:
        return partial(natural_step, q, point.target)
    (q_precision, _), (precision, linear) = q.eta, point.target
    damped = q_precision + DAMPED.precision_rate * (precision - q_precision)
    return partial(natural_step, q, (damped, linear - q.times_mean(precision - damped)))


def coupled_end(training: Training, point: Point[Q]) -> KernelPosterior | None:
    """The end of a unit step for coupled classes: the sites' precision, and a Newton step of all classes' means.

    Separate unit steps of the classes cycle, and hardly move a common shift of all latent functions, where the
    likelihood has no curvature. The Newton step uses the coupled curvature of each row and conjugate gradients
    preconditioned by the sites' precision: O(n C m) for each product, or O(C n^2) in a full Gaussian process. None if
    the sites' precision gives no proper posterior.
    """
    q: KernelPosterior = point.q
    (q_precision, _), (precision, linear) = q.eta, point.target
    steps = steps_of(point.site)
    trial = q.prior.posterior((q_precision + steps.precision_rate * (precision - q_precision), linear))
    if trial is None:
        return None
    # Vectors are pairs: the coefficients, and their product with the prior's precision.
    mean, dual = (part.copy() for part in q.mean_pair)
    # At q the residual is the gradient of the bound by the mean, so it needs no product.
    if training.subsample is None:
        rows, residual = training, training.reduce(mean_gradient, point.sites) - dual
    else:
        # The pass has already summed this residual over all rows; a subsample approximates only the curvature.
        rows, residual = training.subsample, linear - q.times_mean(precision)
    direction, dual_direction = trial.solve(residual)
    size = float(np.sum(residual * direction))
    target = steps.cg_tol**2 * size
    for _ in range(CG_MAX_ITER):
        if not size > target:
            break
        product = dual_direction + rows.reduce(curvature_product, Products(point.sites, direction))
        curved = float(np.sum(direction * product))
        # With huge variances round-off can leave no curvature.
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


def projected(training: Training, sites: AnySites, prior: KernelPrior, clipped: bool = False) -> Natural:
    """The natural parameters that sites give under another prior."""
    return prior.with_sites(*training.reduce(project_sites, Projection(sites, prior, clipped=clipped)))


def proper_posterior(training: Training, sites: AnySites, prior: KernelPrior) -> KernelPosterior | None:
    """The posterior that sites give under another prior; None only if it is not finite.

    If it is not proper, negative precisions are set to zero; the gradients by the means stay the same.
    """
    q = prior.posterior(projected(training, sites, prior))
    return q or prior.posterior(projected(training, sites, prior, clipped=True))


class Ascent(NamedTuple, Generic[Q]):
    """The result of an ascent: the last posterior with its pass, iterations, and whether it reached the tolerance.

    For mini-batches an iteration is an epoch. ``first_rate`` is the best length of the first step if step lengths are
    measured; the given one if no step was made.
    """

    point: Point[Q]
    n_iter: int
    converged: bool
    first_rate: float = 1.0


def best_rate(rate: float, promised: float, gain: float) -> float:
    """The step length, at most 1, that maximises the parabola through a step of length ``rate``.

    ``promised`` is the first-order gain of that step, and ``gain`` its actual gain.
    """
    missing = promised - gain
    growth = 0.5 * promised / missing if 0.0 < promised < 2.0 * MEASURED.growth * missing else MEASURED.growth
    return min(1.0, growth * rate)


def coordinate_ascent(
    training: Training,
    q: Q,
    site: Site,
    *,
    tol: float,
    max_iter: int,
    history: History | None = None,
    first_rate: float = MEASURED.first_rate,
    leaves_prior: bool = False,
    first: Point[Q] | None = None,
) -> Ascent[Q]:
    """Full-batch natural-gradient ascent with unit or damped steps that are checked.

    If a step lowers the bound, it is halved (the sites are interpolated), and the next step starts at twice its length.
    After ``FALLBACK_AFTER`` failures a step of a bound that cannot fall is tried, if there is one. With softmax the
    first step has length ``first_rate``, and each later one the best length of the step before. The ascent ends when
    time is over, but not before it has left the prior. ``leaves_prior`` takes a step from the prior even if it promises
    less than ``tol``. ``first`` is the pass at q if it was already made. Without a history, the core makes the whole
    ascent if ``q.ascent`` has one for these rows and sites.
    """
    clock, key = training.executor.clock, site.record.fallback
    safe_site = None if key is None else partial(other_site, key, site)
    compiled = None if history is not None or leaves_prior else q.ascent(training, site, safe_site, tol, max_iter)
    if compiled is not None:
        q, log_likelihood, target, elbo, n_iter, converged = compiled
        point = Point(q, site, SitesAtPosterior(q, site), log_likelihood, target, elbo, elbo)
        return Ascent(point, n_iter, converged, first_rate)
    point = update(training, q, site) if first is None else first
    if history is not None:
        history.add(iteration=0, elbo=point.elbo, learning_rate=np.nan)
    measured, least = steps_of(site).are_measured, tol * tolerance_unit(point.elbo)
    steps: Callable[[float], Q | None] | None = None
    rate, failures, is_first = first_rate if measured else 1.0, 0, True
    for iteration in range(1, max_iter + 1):
        must_step = leaves_prior and point.q.squared_norm == 0.0
        if not must_step and clock.has_passed() and np.any(point.q.eta[1]):
            return Ascent(point, iteration - 1, False, first_rate)
        steps = steps or steps_from(training, point)
        if failures == FALLBACK_AFTER and safe_site is not None:
            trial = point.q.prior.posterior(update(training, point.q, safe_site()).target)
        else:
            trial = steps(rate)
        reached, gain, promised = point, -math.inf, math.nan
        if trial is not None:
            # The gain that a unit step can have: half of its first-order gain on a parabola, and KL(q, trial) of a
            # conjugate bound.
            if measured:
                promised = point.q.first_order_gain(point.target, trial)
                expected = 0.5 * promised / rate
            else:
                expected = point.q.kl_to(trial, least) if rate == 1.0 else math.inf
            # A gain below the tolerance is not worth a pass over the data.
            if not failures and not must_step and expected < least:
                return Ascent(point, iteration - 1, True, first_rate)
            reached = update(training, trial, point.site)
            gain = reached.value - point.value
        if not gain >= 0.0:
            is_round_off = gain >= -ROUND_OFF * max(1.0, abs(point.value))
            if is_round_off or failures == MAX_HALVINGS:
                # A measured step has promised more than the tolerance, so the ascent has not converged.
                return Ascent(point, iteration, is_round_off or (not measured and -gain < least), first_rate)
            failures, rate = failures + 1, 0.5 * rate
            continue
        point, least = reached, tol * tolerance_unit(reached.elbo)
        if history is not None:
            history.add(iteration=iteration, elbo=point.elbo, learning_rate=rate)
        next_rate = best_rate(rate, promised, gain) if measured else min(1.0, 2.0 * rate)
        first_rate, is_first = next_rate if is_first else first_rate, False
        if gain / rate < least:
            return Ascent(point, iteration, True, first_rate)
        steps, rate, failures = None, next_rate, 0
    return Ascent(point, max_iter, False, first_rate)


def starting_posterior(
    training: Training, q: KernelPosterior | None, prior: KernelPrior, site: Site
) -> KernelPosterior:
    """The start under ``prior``: from the sites at q if given, else from the better of the bound's starts.

    q may be the posterior of other rows. If it already has this prior, q itself is returned: the first update makes the
    same sites, and an unchecked step could overshoot.

    The bounds of augmented likelihoods have poor optima at which all classes are about equally likely, and no single
    start avoids them for all kernels. Under a prior of large variance the exact sites of one latent function know
    little, and the first step would overshoot: sites at standard normal latent values halve the number of steps. They
    take a pass over the rows or two, as the sites of q do; other starts take one or more for each update, and two
    starts up to some hundred. Once time is over only the first start is used.
    """
    if q is not None:
        if is_same_prior(q.prior, prior):
            return q
        sites = SitesAtPosterior(q.anywhere, site)
        return proper_posterior(training, sites, prior) or prior.at_prior(training.n_latents)
    first, other = site.record.start, site.record.other_start
    ascend = partial(coordinate_ascent, training)
    if first is None and site.record.is_exact and training.n_latents == 1:
        return proper_posterior(training, FirstSites(site), prior) or prior.at_prior()
    at_prior = start = prior.at_prior(training.n_latents)
    if first is not None:
        start = ascend(at_prior, other_site(first, site), tol=0.0, max_iter=START_UPDATES).point.q
    if other is None or training.executor.clock.has_passed():
        return start
    second = ascend(at_prior, other_site(other, site), tol=OTHER_TOL, max_iter=COLD_UPDATES).point.q
    trials = [ascend(each, site, tol=0.0, max_iter=TRIAL_UPDATES).point for each in (start, second)]
    return max(trials, key=lambda point: point.elbo).q
