"""The ways to learn hyperparameters, and those of Izmailov & Kropotov 2016: vi-JJ, vi-JJ-full, vi-JJ-hybrid."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from . import _engine
from ._engine import Site
from .adam import adam
from .hyperparameters import PATIENCE, Coordinates, Options, Outcome, lbfgs, profile, thetas
from .inference import History, coordinate_ascent
from .likelihoods import LIKELIHOODS, record_of
from .passes import Passes
from .posterior import SparsePosterior

POLYA_GAMMA = LIKELIHOODS["logit"].site("polya-gamma")
# Izmailov & Kropotov 2016, section 5: three updates of xi, mu and Sigma, then at most five evaluations of L-BFGS.
SITE_UPDATES = 3
EVALUATIONS = 5
# Halvings of a step of theta and Z that lowered the bound: only Polya-Gamma's sites promise that none does.
MAX_HALVINGS = 6


class FixedSites:
    """theta, Z -> max_q of the bound with every point's term the quadratic that its site makes.

    With Polya-Gamma's sites a lower bound of the evidence, equation (14) of Izmailov & Kropotov 2016; with Taylor's,
    their equation (19), all constants included. ``passes`` must hold the marginals and sites of q.

    Parameters
    ----------
    passes : Passes
    q : SparsePosterior
    log_likelihood : float, sum of the points' terms under q
    learn_inducing : bool
    """

    def __init__(self, passes: Passes, q: SparsePosterior, log_likelihood: float, learn_inducing: bool):
        self.passes = passes
        self.coordinates = Coordinates(q.prior, learn_inducing)
        self.start = self.vector = self.coordinates.pack(q.prior)
        self.value, self.q = -np.inf, q
        second_moment = passes.mean**2 + passes.variance
        self.constant = log_likelihood - float(passes.linear @ passes.mean - 0.5 * passes.precision @ second_moment)

    limits = property(lambda self: self.coordinates.limits)

    def evaluate(self, vector: np.ndarray, constant: float) -> tuple[float, SparsePosterior, np.ndarray] | None:
        """Value, q and the gradient by theta and Z with the sites in ``passes``; None where a factorisation fails."""
        try:
            prior = self.coordinates.prior(vector)
        except ValueError:
            return None
        P, h = self.passes.statistics(prior)
        q = SparsePosterior.from_natural(prior, P, h)
        if q is None:
            return None
        (one,) = prior.groups
        residual_variance = float(self.passes.precision @ one.core.diagonals(self.passes.X)) - np.trace(P) + len(h)
        value = constant + 0.5 * float(h @ q.w) - float(np.sum(np.log(np.diag(q.R)))) - 0.5 * residual_variance
        return value, q, self.coordinates.pack_gradient(*self.passes.bound_gradient(q, (P, h)))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        found = self.evaluate(vector, self.constant)
        if found is None:
            return 1e3 + 3.0 * abs(self.value), np.zeros_like(vector)
        value, q, gradient = found
        if value > self.value:
            self.value, self.q, self.vector = value, q, vector.copy()
        return -value, -gradient


class JointBound(FixedSites):
    """theta, Z, xi -> equation (14) of Izmailov & Kropotov 2016; the sites' parameters xi are the vector's last n."""

    def __init__(self, passes: Passes, q: SparsePosterior, log_likelihood: float, learn_inducing: bool):
        super().__init__(passes, q, log_likelihood, learn_inducing)
        self.n_rows = len(passes.y)
        xi = np.sqrt(passes.mean**2 + passes.variance)
        self.start = self.vector = np.concatenate([self.start, xi])

    @property
    def limits(self) -> list[tuple[float | None, float | None]]:
        return self.coordinates.limits + [(None, None)] * self.n_rows

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        passes, xi = self.passes, vector[-self.n_rows :]
        weight = passes.weight if len(passes.weight) else np.ones(self.n_rows)
        # At m = xi, v = 0 and y = +1 the site's terms are log sigma(|xi|) and tanh(xi / 2) / (2 xi).
        log_sigma, linear = np.empty((2, self.n_rows))
        at = np.abs(xi), np.zeros(self.n_rows), np.ones(self.n_rows)
        _engine.sites(POLYA_GAMMA, *at, passes.weight, log_sigma, passes.precision, linear)
        passes.linear[:] = 0.5 * weight * passes.y
        precision, linear = passes.precision.copy(), passes.linear.copy()
        constant = float(np.sum(log_sigma - 0.5 * weight * np.abs(xi) + 0.5 * precision * xi**2))
        found = self.evaluate(vector[: -self.n_rows], constant)
        if found is None:
            return 1e3 + 3.0 * abs(self.value), np.zeros_like(vector)
        value, q, gradient = found
        passes.update(q, POLYA_GAMMA)
        by_xi = 0.5 * weight * _slope_of_precision(xi) * (xi**2 - passes.mean**2 - passes.variance)
        passes.precision[:], passes.linear[:] = precision, linear
        if value > self.value:
            self.value, self.q, self.vector = value, q, vector.copy()
        return -value, -np.concatenate([gradient, by_xi])


def _slope_of_precision(xi: np.ndarray) -> np.ndarray:
    """Derivative of tanh(xi / 2) / (2 xi); its series near 0, where the closed form cancels."""
    small = np.abs(xi) < 0.05
    x = np.where(small, 1.0, xi)
    t = np.tanh(0.5 * x)
    return np.where(
        small, -xi / 24.0 + xi**3 / 120.0 - 17.0 * xi**5 / 13440.0, (0.5 * x * (1.0 - t**2) - t) / (2.0 * x**2)
    )


def _alternate(passes: Passes, start: SparsePosterior, site: Site, options: Options, kind: type[FixedSites]) -> Outcome:
    """Algorithm 1 of Izmailov & Kropotov 2016: site updates, then a few evaluations of L-BFGS, in turn."""

    def site_updates(q: SparsePosterior) -> tuple[SparsePosterior, float]:
        # Tolerance 0: exactly so many updates, unless one gains nothing.
        q, elbo, *_ = coordinate_ascent(passes, q, site, tol=0.0, max_iter=SITE_UPDATES, history=History())
        return q, elbo

    q, elbo = site_updates(start)
    recent = deque([elbo], maxlen=PATIENCE + 1)
    problem = f"max_iter={options.max_iter} was reached before tol={options.tol:g} by the optimizer"
    n_iter = 0
    if not len(Coordinates(q.prior, options.learn_inducing).pack(q.prior)):
        return Outcome(q, elbo, n_iter)
    for n_iter in range(1, options.max_iter + 1):
        log_likelihood = passes.update(q, site)[0]
        function = kind(passes, q, log_likelihood, options.learn_inducing)
        lbfgs(function, function.start, function.limits, tol=0.0, max_iter=EVALUATIONS, max_evaluations=EVALUATIONS)
        trial, trial_elbo = site_updates(function.q)
        if not site.record.is_safe:
            # Its sites' quadratics are no bounds: go back toward where they were made until the bound has risen.
            size = len(function.coordinates.pack(q.prior))
            here, there = function.start[:size], function.vector[:size]
            for _ in range(MAX_HALVINGS):
                if trial_elbo >= elbo:
                    break
                there = 0.5 * (here + there)
                prior = function.coordinates.prior(there)
                trial, trial_elbo = site_updates(passes.carry_over(q, prior, site))
            if trial_elbo < elbo:
                return Outcome(q, elbo, n_iter)
        q, elbo = trial, trial_elbo
        options.history.add(evaluation=n_iter, elbo=elbo, theta=thetas(q.prior)[None])
        recent.append(elbo)
        gain = abs(recent[-1] - recent[0])
        if len(recent) > PATIENCE and gain < PATIENCE * options.tol * max(1.0, abs(elbo)):
            return Outcome(q, elbo, n_iter)
    return Outcome(q, elbo, n_iter, problem)


def alternate(passes: Passes, start: SparsePosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ; with the Taylor site vi-Taylor."""
    return _alternate(passes, start, site, options, FixedSites)


def hybrid(passes: Passes, start: SparsePosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ-hybrid: as vi-JJ, but L-BFGS moves xi, too."""
    return _alternate(passes, start, site, options, JointBound)


def joint(passes: Passes, start: SparsePosterior, site: Site, options: Options) -> Outcome:
    """vi-JJ-full: L-BFGS on theta, Z and xi together."""
    function = JointBound(passes, start, passes.update(start, site)[0], options.learn_inducing)
    evaluations = 0

    def recorded(vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal evaluations
        value, gradient = function(vector)
        evaluations += 1
        options.history.add(
            evaluation=evaluations, elbo=function.value, theta=vector[: function.coordinates.n_theta][None]
        )
        return value, gradient

    n_iter, status = lbfgs(
        recorded,
        function.start,
        function.limits,
        tol=options.tol,
        max_iter=options.max_iter,
        max_evaluations=2 * options.max_iter,
    )
    problem = None
    if status == "max_iter":
        problem = f"max_iter={options.max_iter} was reached before tol={options.tol:g} by the optimizer"
    elif status == "line search":
        problem = f"the optimizer's line search failed after {n_iter} iterations"
    return Outcome(function.q, function.value, n_iter, problem)


@dataclass(frozen=True)
class Scheme:
    """A way to learn.

    Attributes
    ----------
    function : of passes, start, site, options; Adam's also takes mini-batches
    allows : of a likelihood's name and a bound's
    needs : what the others are told to take
    """

    function: Callable[..., Outcome]
    allows: Callable[[str, str], bool]
    needs: str
    takes_batches: bool = False

    def bind(
        self, batch_size: int | None, schedule: tuple[int, float, float], random_state: np.random.RandomState
    ) -> Callable[..., Outcome]:
        """The function of (passes, start, site, options); ``schedule`` is that of the mini-batches' learning rates."""
        if not self.takes_batches:
            return self.function
        return partial(self.function, batch_size=batch_size, schedule=schedule, random_state=random_state)


def _is_bound(likelihood: str, bound: str) -> bool:
    return record_of(likelihood, bound).is_bound


def _has_quadratics(likelihood: str, bound: str) -> bool:
    return record_of(likelihood, bound).has_quadratics


def _is_jaakkola_jordan(likelihood: str, bound: str) -> bool:
    return record_of(likelihood, bound).is_jaakkola_jordan


SCHEMES = {
    "profile": Scheme(profile, _is_bound, "another bound than 'taylor'"),
    "alternate": Scheme(alternate, _has_quadratics, "likelihood 'logit', 'probit' or 'svm' without additive noise"),
    "joint": Scheme(joint, _is_jaakkola_jordan, "likelihood='logit' with bound='polya-gamma'"),
    "hybrid": Scheme(hybrid, _is_jaakkola_jordan, "likelihood='logit' with bound='polya-gamma'"),
    "adam": Scheme(adam, _is_bound, "another bound than 'taylor'", takes_batches=True),
}
