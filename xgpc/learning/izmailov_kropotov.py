"""The learning algorithms of Izmailov & Kropotov 2016: vi-JJ, vi-JJ-full, vi-JJ-hybrid, and vi-Taylor."""

from __future__ import annotations

from collections import deque

import numpy as np

from .. import _sites
from .._sites import Site
from ..approximations.base import KernelPosterior, Training
from ..inference.ascent import Point, coordinate_ascent, projected, starting_posterior, update
from ..inference.correction import polya_gamma_variance
from ..inference.options import Options
from ..likelihoods import record_of
from ..statistics import AnySites, FixedSites, Projection, SitesAtPosterior, prior_curvature, quadratic_constant
from .minimise import PATIENCE, minimise
from .optimizer import Coordinates, Outcome, least_bound, refused

# A value, q, and the gradient by theta, Z and the last, free coordinate.
Evaluated = tuple[float, KernelPosterior, np.ndarray]
POLYA_GAMMA = record_of("logit", "polya-gamma").site()
# Izmailov & Kropotov 2016, section 5: three updates of xi, mu and Sigma, then at most five evaluations of L-BFGS.
SITE_UPDATES, EVALUATIONS = 3, 5
# Halvings of a step of theta and Z that lowered the bound, as a step of a bound that is not safe may. Each costs three
# updates; a step that is still too long at a 64th of its length ends learning.
STEP_HALVINGS = 6


class FixedSitesBound:
    """Bound with fixed quadratic sites, maximised over q, plus log p(theta), as a function of theta and Z.

    With Polya-Gamma's sites it is a lower bound of the evidence, equation (14) of Izmailov & Kropotov 2016; with
    Taylor's sites it is their equation (19), with all constants. ``point`` gives the sites.
    """

    def __init__(self, training: Training, point: Point[KernelPosterior], options: Options):
        self.training, self.point, self.options = training, point, options
        self.coordinates = Coordinates(point.q.prior, options)
        self.limits = self.coordinates.limits
        self.start = self.vector = self.coordinates.pack(point.q.prior)
        self.value, self.q = -np.inf, point.q
        self.constant = point.log_likelihood + training.reduce(quadratic_constant, point.sites)

    def _at_sites(self, vector: np.ndarray, sites: AnySites, constant: float) -> Evaluated:
        """Value, q, and gradient by theta and Z with given sites; ValueError if a factorisation fails."""
        training, prior = self.training, self.coordinates.prior(vector)
        (P,), (h,) = natural = projected(training, sites, prior)
        q = prior.proper_posterior(natural)
        residual = training.reduce(prior_curvature, Projection(sites, prior)) - np.trace(P) + len(h)
        value = constant + 0.5 * float(h @ q.w[0]) + float(np.sum(np.log(np.diag(q.Rinv[0])))) - 0.5 * residual
        log_prior, by_theta = self.options.log_prior(prior)
        d_theta, d_Z = q.gradient(training, sites, natural)
        return value + log_prior, q, self.coordinates.pack_gradient(d_theta + by_theta, d_Z)

    def evaluate(self, vector: np.ndarray) -> Evaluated:
        """Value, q and gradient; ValueError if a factorisation fails."""
        return self._at_sites(vector, self.point.sites, self.constant)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative value and gradient, for a minimiser; keeps the best."""
        try:
            value, q, gradient = self.evaluate(vector)
        except ValueError:
            return refused(self.value, vector)
        if value > self.value:
            self.value, self.q, self.vector = value, q, vector.copy()
        return -value, -gradient


class JointBound(FixedSitesBound):
    """Equation (14) of Izmailov & Kropotov 2016 in theta, Z and xi, which precedes the last, free coordinate."""

    def __init__(self, training: Training, point: Point[KernelPosterior], options: Options):
        super().__init__(training, point, options)
        (self.prior_mean,) = point.site.prior_mean
        self.blocks = list(training.source.blocks())
        self.y = np.concatenate([block.y for block in self.blocks])
        self.weight = np.concatenate([block.weight for block in self.blocks])
        self.limits = [*self.limits, *[(None, None)] * len(self.y)]
        self.start = self.vector = np.insert(self.start, -1, np.sqrt(self._second_moments(point.q)))

    def _second_moments(self, q: KernelPosterior) -> np.ndarray:
        """E[f^2] (n,) at all rows."""
        sites = self.training.executor.each(SitesAtPosterior(q, POLYA_GAMMA).of, self.blocks)
        return np.concatenate([(block.mean[0] + self.prior_mean) ** 2 + block.variance[0] for block in sites])

    def evaluate(self, vector: np.ndarray) -> Evaluated:
        n, weight, mean = len(self.y), self.weight, self.prior_mean
        others, xi, free = np.split(vector, [-n - 1, -1])
        # At m = xi, v = 0 and y = +1 the site's terms are log sigma(|xi|) and tanh(xi / 2) / (2 xi).
        log_sigma, precision, *_ = _sites.sites(POLYA_GAMMA, np.abs(xi), np.zeros(n), np.ones(n), weight)
        # The quadratics are in f; the sites are in f minus the prior mean.
        linear = 0.5 * weight * self.y
        sites = FixedSites(precision[None], (linear - precision * mean)[None])
        at_mean = linear * mean - 0.5 * precision * mean**2
        constant = float(np.sum(log_sigma - 0.5 * weight * np.abs(xi) + 0.5 * precision * xi**2 + at_mean))
        value, q, gradient = self._at_sites(np.append(others, free), sites, constant)
        # The slope of the precision is -xi times the variance of PG(1, xi).
        slope = -xi * polya_gamma_variance(np.abs(xi))
        return value, q, np.insert(gradient, -1, 0.5 * weight * slope * (xi**2 - self._second_moments(q)))


def hybrid(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ-hybrid: vi-JJ in which L-BFGS moves xi, too."""
    return alternate(training, start, site, options, is_hybrid=True)


def alternate(
    training: Training, start: KernelPosterior, site: Site, options: Options, is_hybrid: bool = False
) -> Outcome:
    """vi-JJ, algorithm 1: site updates alternate with a few evaluations of L-BFGS; with the Taylor site vi-Taylor."""

    def site_updates(q: KernelPosterior) -> Point[KernelPosterior]:
        # With tolerance 0 exactly this many updates are made, unless one gains nothing.
        return coordinate_ascent(training, q, site, tol=0.0, max_iter=SITE_UPDATES).point

    point, value = site_updates(start), options.value
    kind = JointBound if is_hybrid else FixedSitesBound
    recent = deque([value(point)], maxlen=PATIENCE + 1)
    if Coordinates(point.q.prior, options).is_empty:
        return Outcome(point, 0)
    for n_iter in range(1, options.max_iter + 1):
        function = kind(training, point, options)
        minimise(function, function.start, function.limits, 0.0, EVALUATIONS, EVALUATIONS)
        trial = site_updates(function.q)
        if not site.record.is_safe:
            # Quadratics that may exceed the bound: move back toward the last kernel until the bound rises.
            start_vector, vector = function.start, function.vector
            for _ in range(STEP_HALVINGS):
                if value(trial) >= value(point):
                    break
                vector = 0.5 * (start_vector + vector)
                trial = site_updates(starting_posterior(training, point.q, function.coordinates.prior(vector), site))
            if value(trial) < value(point):
                return Outcome(point, n_iter)
        point = trial
        options.record(point.elbo, options.log_prior(point.q.prior)[0], point.q.prior, evaluation=n_iter)
        options.reached(point.q, point.site)
        recent.append(value(point))
        gain = abs(recent[-1] - recent[0])
        if len(recent) > PATIENCE and gain < PATIENCE * options.tol * max(1.0, abs(recent[-1])):
            return Outcome(point, n_iter)
    return Outcome(point, options.max_iter, options.too_few("the optimizer"))


def joint(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ-full: L-BFGS on theta, Z and xi together."""
    function, evaluations = JointBound(training, update(training, start, site), options), 0

    def recorded(vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal evaluations
        best_value, evaluations = function.value, evaluations + 1
        value, gradient = function(vector)
        if function.value > best_value:
            options.reached(function.q, site)
        log_prior = options.log_prior(function.q.prior)[0]
        options.record(function.value - log_prior, log_prior, function.q.prior, evaluation=evaluations)
        return value, gradient

    max_iter, least = options.max_iter, least_bound(training)
    end, status = minimise(recorded, function.start, function.limits, options.tol, max_iter, 2 * max_iter, least)
    failed = f"the optimizer's line search failed after {end.nit} iterations"
    problem = {"max_iter": options.too_few("the optimizer"), "line search": failed}.get(status)
    return Outcome(update(training, function.q, site), end.nit, problem)
