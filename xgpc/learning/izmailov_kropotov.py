"""The learning algorithms of Izmailov & Kropotov 2016: vi-JJ, vi-JJ-full, vi-JJ-hybrid, and vi-Taylor."""

from __future__ import annotations

from collections import deque

import numpy as np

from .. import _sites
from .._sites import Site
from ..approximations.base import KernelPosterior, Training
from ..approximations.sparse import SparsePosterior
from ..inference.ascent import Point, carry_over, coordinate_ascent, projected, update
from ..inference.history import History
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..likelihoods import LIKELIHOODS
from ..rows.source import labels_and_weights
from ..statistics import FixedSites, PriorVariances, SitesAtPosterior, block_sites, prior_curvature, quadratic_constant
from .profile import PATIENCE, Coordinates, Options, Outcome, lbfgs, least_bound

POLYA_GAMMA = LIKELIHOODS["logit"].site("polya-gamma")
# Izmailov & Kropotov 2016, section 5: three updates of xi, mu and Sigma, then at most five evaluations of L-BFGS.
SITE_UPDATES = 3
EVALUATIONS = 5
# Halvings of a step of theta and Z that lowered the bound, which only Polya-Gamma's sites rule out.
MAX_HALVINGS = 6


class FixedSitesBound:
    """Bound with fixed quadratic sites, maximised over q, plus log p(theta), as a function of theta and Z.

    With Polya-Gamma's sites it is a lower bound of the evidence, equation (14) of Izmailov & Kropotov 2016; with
    Taylor's sites it is their equation (19), with all constants. The log prior of the length scales is added.

    Parameters
    ----------
    training : Training
    point : Point that gives the sites
    learn_inducing : bool
    length_scale_prior : LengthScalePrior
    """

    def __init__(
        self,
        training: Training,
        point: Point[KernelPosterior],
        learn_inducing: bool,
        length_scale_prior: LengthScalePrior = NO_PRIOR,
    ):
        self.training, self.point, self.length_scale_prior = training, point, length_scale_prior
        self.coordinates = Coordinates(point.q.prior, learn_inducing)
        self.start = self.vector = self.coordinates.pack(point.q.prior)
        self.value, self.q = -np.inf, point.q
        self.constant = point.log_likelihood + training.reduce(quadratic_constant, point.sites)

    @property
    def limits(self) -> list[tuple[float | None, float | None]]:
        return self.coordinates.limits

    def evaluate(
        self, vector: np.ndarray, sites: SitesAtPosterior | FixedSites, constant: float
    ) -> tuple[float, KernelPosterior, np.ndarray] | None:
        """Value, q, and gradient by theta and Z with the given sites; None if a factorisation fails."""
        training = self.training
        try:
            prior = self.coordinates.prior(vector)
        except ValueError:
            return None
        P, h = natural = projected(training, sites, prior)
        q = SparsePosterior.from_natural(prior, P, h)
        if q is None:
            return None
        residual = training.reduce(prior_curvature, PriorVariances(sites, q.basis)) - np.trace(P) + len(h)
        value = constant + 0.5 * float(h @ q.w) - float(np.sum(np.log(np.diag(q.R)))) - 0.5 * residual
        log_prior, by_theta = self.length_scale_prior.of(prior.groups)
        d_theta, d_Z = q.gradient(training, sites, natural)
        return value + log_prior, q, self.coordinates.pack_gradient(d_theta + by_theta, d_Z)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        found = self.evaluate(vector, self.point.sites, self.constant)
        if found is None:
            return 1e3 + 3.0 * abs(self.value), np.zeros_like(vector)
        value, q, gradient = found
        if value > self.value:
            self.value, self.q, self.vector = value, q, vector.copy()
        return -value, -gradient


class JointBound(FixedSitesBound):
    """Equation (14) of Izmailov & Kropotov 2016 in theta, Z and xi; the site parameters xi are the vector's last n."""

    def __init__(
        self,
        training: Training,
        point: Point[KernelPosterior],
        learn_inducing: bool,
        length_scale_prior: LengthScalePrior = NO_PRIOR,
    ):
        super().__init__(training, point, learn_inducing, length_scale_prior)
        self.n_rows = len(training)
        (self.prior_mean,) = point.site.prior_mean
        self.y, self.weight = labels_and_weights(training.source)
        xi = np.sqrt(self._second_moments(point.q))
        self.start = self.vector = np.concatenate([self.start, xi])

    @property
    def limits(self) -> list[tuple[float | None, float | None]]:
        return self.coordinates.limits + [(None, None)] * self.n_rows

    def _second_moments(self, q: KernelPosterior) -> np.ndarray:
        """E[f^2] (n,) at all rows."""
        sites = self.training.map(block_sites, SitesAtPosterior(q.marginalizer, POLYA_GAMMA))
        return np.concatenate([(block.mean[0] + self.prior_mean) ** 2 + block.variance[0] for block in sites])

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        xi, weight = vector[-self.n_rows :], self.weight
        # At m = xi, v = 0 and y = +1 the site's terms are log sigma(|xi|) and tanh(xi / 2) / (2 xi).
        log_sigma, precision, linear = np.empty((3, self.n_rows))
        at = np.abs(xi), np.zeros(self.n_rows), np.ones(self.n_rows)
        _sites.sites(POLYA_GAMMA, *at, weight, log_sigma, precision, linear)
        # The quadratics are in f; the sites are in f minus the prior mean.
        linear, mean = 0.5 * weight * self.y, self.prior_mean
        sites = FixedSites(precision[None], (linear - precision * mean)[None])
        at_mean = linear * mean - 0.5 * precision * mean**2
        constant = float(np.sum(log_sigma - 0.5 * weight * np.abs(xi) + 0.5 * precision * xi**2 + at_mean))
        found = self.evaluate(vector[: -self.n_rows], sites, constant)
        if found is None:
            return 1e3 + 3.0 * abs(self.value), np.zeros_like(vector)
        value, q, gradient = found
        by_xi = 0.5 * weight * _slope_of_precision(xi) * (xi**2 - self._second_moments(q))
        if value > self.value:
            self.value, self.q, self.vector = value, q, vector.copy()
        return -value, -np.concatenate([gradient, by_xi])


def _slope_of_precision(xi: np.ndarray) -> np.ndarray:
    """Derivative of tanh(xi / 2) / (2 xi), by its series near 0, where the closed form cancels."""
    small = np.abs(xi) < 0.05
    x = np.where(small, 1.0, xi)
    t = np.tanh(0.5 * x)
    return np.where(
        small, -xi / 24.0 + xi**3 / 120.0 - 17.0 * xi**5 / 13440.0, (0.5 * x * (1.0 - t**2) - t) / (2.0 * x**2)
    )


def _alternate(
    training: Training, start: KernelPosterior, site: Site, options: Options, kind: type[FixedSitesBound]
) -> Outcome:
    """Algorithm 1 of Izmailov & Kropotov 2016: alternate site updates with a few evaluations of L-BFGS."""

    def site_updates(q: KernelPosterior) -> Point[KernelPosterior]:
        # With tolerance 0 exactly this many updates are made, unless one gains nothing.
        return coordinate_ascent(training, q, site, tol=0.0, max_iter=SITE_UPDATES, history=History()).point

    def value(point: Point[KernelPosterior]) -> float:
        return point.elbo + options.log_prior(point.q.prior)[0]

    point = site_updates(start)
    recent = deque([value(point)], maxlen=PATIENCE + 1)
    problem = f"max_iter={options.max_iter} was reached before tol={options.tol:g} by the optimizer"
    n_iter = 0
    if not len(Coordinates(point.q.prior, options.learn_inducing).pack(point.q.prior)):
        return Outcome(point, n_iter)
    least = least_bound(training)
    for n_iter in range(1, options.max_iter + 1):
        function = kind(training, point, options.learn_inducing, options.length_scale_prior)
        lbfgs(
            function,
            function.start,
            function.limits,
            tol=0.0,
            max_iter=EVALUATIONS,
            max_evaluations=EVALUATIONS,
            least=least,
        )
        trial = site_updates(function.q)
        if not site.record.is_safe:
            # The Taylor sites' quadratics are not bounds: move back toward their expansion point until the bound rises.
            size = len(function.coordinates.pack(point.q.prior))
            here, there = function.start[:size], function.vector[:size]
            for _ in range(MAX_HALVINGS):
                if value(trial) >= value(point):
                    break
                there = 0.5 * (here + there)
                trial = site_updates(carry_over(training, point.q, function.coordinates.prior(there), site))
            if value(trial) < value(point):
                return Outcome(point, n_iter)
        point = trial
        options.record(point.elbo, point.q.prior, options.log_prior(point.q.prior)[0], evaluation=n_iter)
        options.reached(point.q, point.site)
        recent.append(value(point))
        gain = abs(recent[-1] - recent[0])
        if len(recent) > PATIENCE and gain < PATIENCE * options.tol * max(1.0, abs(recent[-1])):
            return Outcome(point, n_iter)
    return Outcome(point, n_iter, problem)


def alternate(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ; with the Taylor site vi-Taylor."""
    return _alternate(training, start, site, options, FixedSitesBound)


def hybrid(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ-hybrid: vi-JJ in which L-BFGS moves xi, too."""
    return _alternate(training, start, site, options, JointBound)


def joint(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ-full: L-BFGS on theta, Z and xi together."""
    point = update(training, start, site)
    function = JointBound(training, point, options.learn_inducing, options.length_scale_prior)
    evaluations = 0

    def recorded(vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal evaluations
        before = function.value
        value, gradient = function(vector)
        if function.value > before:
            options.reached(function.q, site)
        evaluations += 1
        log_prior, _ = options.log_prior(function.q.prior)
        options.record(function.value - log_prior, function.q.prior, log_prior, evaluation=evaluations)
        return value, gradient

    n_iter, status = lbfgs(
        recorded,
        function.start,
        function.limits,
        tol=options.tol,
        max_iter=options.max_iter,
        max_evaluations=2 * options.max_iter,
        least=least_bound(training),
    )
    problem = None
    if status == "max_iter":
        problem = f"max_iter={options.max_iter} was reached before tol={options.tol:g} by the optimizer"
    elif status == "line search":
        problem = f"the optimizer's line search failed after {n_iter} iterations"
    return Outcome(update(training, function.q, site), n_iter, problem)
