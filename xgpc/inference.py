"""Full-batch inference at given hyperparameters, and the record of a fit."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from . import _engine
from ._engine import Site
from .passes import PRECISION_RATE, TrainingSites
from .posterior import AnyPosterior, AnyPrior

# A fall of the bound below this share of it is round-off, not a step too long.
ROUND_OFF = 1e-11
# Halvings of a step before there is nothing more to try: the natural gradient, an ascent direction, then vanishes to
# working precision, or else the bound is not what it seems.
MAX_HALVINGS = 12
# Failed steps after which one of another site is tried, whose own bound cannot fall by its unit step.
FALLBACK_AFTER = 3
FALLBACK = {
    ("logit", "exact"): _engine.SITES["logit", "polya-gamma"],
    ("svm", "exact"): _engine.SITES["svm", "augmented"],
}
# Bounds whose first posterior is made by so many updates of a concave one. Additive noise has no curvature where
# nothing is known, and its delta then ends at what guessing gives. Logistic-softmax has optima at which every class is
# as likely, and finds them from the prior of a large variance: of 108 kernels on six data sets (variances .3 to 3000,
# length scales .4 to 2.5 sqrt(d)), this start ended more than 2 nats above the prior's in 28, by up to 590, and below
# in 3; test likelihoods were better in 35 and worse in none. It began higher in all 108, so the two are not compared.
START = {
    ("step", "additive-noise"): ("probit", "exact"),
    ("probit", "additive-noise"): ("probit", "exact"),
    ("logit", "additive-noise"): ("probit", "exact"),
    ("multinomial-step", "additive-noise"): ("softmax", "additive-noise"),
    ("multinomial-probit", "additive-noise"): ("softmax", "additive-noise"),
    ("multinomial-logit", "additive-noise"): ("softmax", "additive-noise"),
    ("logistic-softmax", "polya-gamma"): ("softmax", "additive-noise"),
}
START_UPDATES = 3


class History:
    """Rows of named values, collected during a fit and handed out as a dict of arrays.

    Attributes
    ----------
    context : dict
        Values that every row gets until they are changed.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._parts: list[dict[str, Any]] = []
        self.context: dict[str, Any] = {}

    def add(self, **columns: Any) -> None:
        """One row, or several at once: arrays with a row for each, other values repeated."""
        self._parts.append({"seconds": time.perf_counter() - self._start, **self.context, **columns})

    def arrays(self) -> dict[str, np.ndarray]:
        """One array a column, its first axis the rows; NaN, or an empty string, where a row lacks it."""
        example = {name: np.asarray(value) for part in self._parts for name, value in part.items()}
        lengths = [max(len(np.atleast_1d(value)) for value in part.values()) for part in self._parts]
        columns = {}
        for name, value in example.items():
            missing = np.full(value.shape[1:], "" if value.dtype.kind == "U" else np.nan)
            columns[name] = np.concatenate(
                [
                    np.broadcast_to(part.get(name, missing), (length, *missing.shape))
                    for part, length in zip(self._parts, lengths, strict=True)
                ]
            )
        return columns


def tolerance_unit(elbo: float) -> float:
    """What a tolerance of one means: a nat, or a thousandth of the bound if that is more."""
    return max(1.0, 1e-3 * abs(elbo))


def is_small(gain: float, elbo: float, tol: float) -> bool:
    """Whether a gain of the bound, in nats, counts as none."""
    return gain < tol * tolerance_unit(elbo)


def objective(passes: TrainingSites, q: AnyPosterior, site: Site, log_likelihood: float) -> tuple[float, float]:
    """The bound, and what the updates of the site ascend, under q after a pass that summed ``log_likelihood``.

    Both are the same but for the Taylor expansion, which is no bound: its updates are Newton steps on the log joint
    density at the mean.
    """
    elbo = log_likelihood - q.kl
    if site.bound != "taylor":
        return elbo, elbo
    return elbo, log_likelihood + 0.5 * float(passes.precision @ passes.variance) - 0.5 * q.squared_norm


def natural_step(q: AnyPosterior, target: tuple[np.ndarray, np.ndarray], rate: float) -> AnyPosterior | None:
    """q with natural parameters (1 - rate) eta + rate target: an interpolation of the sites.

    None if that is not proper: its precision is not positive definite.
    """
    if rate != 1.0:
        target = tuple(old + rate * (new - old) for old, new in zip(q.natural, target, strict=True))
    return q.with_natural(*target)


def next_target(passes: TrainingSites, q: AnyPosterior, site: Site) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the step from q after its pass.

    Additive noise's variances depend on its means so much that unit steps overshoot: the precision goes a part of the
    way, and the mean makes the Newton step that it makes with that precision.
    """
    if site.n_latents > 1:
        return passes.coupled_target(q, site)
    if site.bound != "additive-noise":
        return passes.target
    (before, _), (precision, linear) = q.natural, passes.target
    damped = before + PRECISION_RATE * (precision - before)
    return damped, linear - q.times_mean(precision - damped)


def start_site(site: Site) -> Site | None:
    """The site that makes the first posterior for another one; None if that needs none."""
    first = START.get((site.likelihood, site.bound))
    return None if first is None else Site(*first, n_latents=site.n_latents)


def starting_posterior(passes: TrainingSites, q: AnyPosterior | None, prior: AnyPrior, site: Site) -> AnyPosterior:
    """Where to start under ``prior``: from the sites of q, if there is one."""
    if q is not None:
        return passes.carry_over(q, prior, site)
    first = start_site(site)
    q = passes.at_prior(prior)
    if first is not None:
        q, *_ = coordinate_ascent(passes, q, first, tol=0.0, max_iter=START_UPDATES, history=History())
    return q


def coordinate_ascent(
    passes: TrainingSites,
    q: AnyPosterior,
    site: Site,
    *,
    tol: float,
    max_iter: int,
    history: History,
) -> tuple[AnyPosterior, float, int, bool]:
    """Full-batch natural-gradient ascent with unit or damped steps, safeguarded.

    A step that lowers the bound is halved (the sites interpolated between old and new), the next one starts at twice
    its rate; after ``FALLBACK_AFTER`` failures one step of a bound that cannot fail is tried in its place, if there is
    one.

    Returns
    -------
    q, elbo, n_iter, converged
        ``passes`` holds the marginals and sites of the returned q.
    """
    elbo, value = objective(passes, q, site, passes.update(q, site)[0])
    target = next_target(passes, q, site)
    history.add(iteration=0, elbo=elbo, learning_rate=np.nan)
    rate, failures = 1.0, 0
    for iteration in range(1, max_iter + 1):
        fallback = FALLBACK.get((site.likelihood, site.bound))
        if failures == FALLBACK_AFTER and fallback is not None:
            passes.update(q, fallback)
            trial = natural_step(q, passes.target, 1.0)
        else:
            trial = natural_step(q, target, rate)
        # What a conjugate bound would gain by the step; no pass over the data for less than the tolerance.
        if rate == 1.0 and trial is not None and is_small(q.kl_to(trial), elbo, tol):
            return q, elbo, iteration - 1, True
        gain = -np.inf
        if trial is not None:
            trial_elbo, trial_value = objective(passes, trial, site, passes.update(trial, site)[0])
            gain = trial_value - value
        if trial is None or not gain >= 0.0:
            is_round_off = gain >= -ROUND_OFF * max(1.0, abs(value))
            if is_round_off or failures == MAX_HALVINGS:
                passes.update(q, site)
                return q, elbo, iteration, is_round_off or is_small(-gain, elbo, tol)
            failures += 1
            rate *= 0.5
            continue
        q, elbo, value = trial, trial_elbo, trial_value
        history.add(iteration=iteration, elbo=elbo, learning_rate=rate)
        if is_small(gain / rate, elbo, tol):
            return q, elbo, iteration, True
        target = next_target(passes, q, site)
        rate, failures = min(1.0, 2.0 * rate), 0
    if failures:
        passes.update(q, site)
    return q, elbo, max_iter, False
