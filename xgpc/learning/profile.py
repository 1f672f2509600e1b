"""Gradients of the bound by kernel parameters and inducing points, and L-BFGS on the profiled bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..inference.ascent import (
    ROUND_OFF,
    Ascent,
    Point,
    coordinate_ascent,
    is_small,
    proper_posterior,
    tolerance_unit,
)
from ..inference.history import History
from ..inference.progress import State
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from .inducing import mean_and_scale

# Inner solves stop at this share of the latest outer gain: the objective's noise then stays below what the line search
# looks at. Bounded so that first steps are not wasted on precision, and last ones not on what ``tol`` does not ask for.
INNER_SHARE = 0.02
INNER_RANGE = (1e-4, 1.0)
# A ``tol`` below PRECISE asks for more. Gradients that inner solves leave inexact tell L-BFGS so much wrong of the
# curvature that in the end no step gains anything. Solves then leave a smaller share (20 fits with additive noise,
# tol = 1e-9: 11 700 passes against 14 200), and the end counts only if a fresh start finds no more (two of the 20 went
# on). By default a fresh start costs a quarter of the passes, for what tells no hyperparameters apart.
PRECISE = 1e-5
PRECISE_SHARE = 0.005
# Slow ascents leave up to so many times their last gain: a bound that is lower than the best by less may be the higher
# one, and its inner solve goes on until that is settled.
UNSURE = 10.0
# The first inner solve leaves so many nats a row.
START_SHARE = 1e-3
# More than the exact bound needs from cold; Polya-Gamma's slow tail is left to the next evaluation's warm start.
INNER_MAX_ITER = 30
# Tenfold tighter and longer inner solves where the optimiser cannot go on, at most so often.
RESTARTS = 3
# Iterations of L-BFGS over which the gain of the bound is averaged before it counts as too small to go on.
PATIENCE = 5
# Tolerances are relative to the bound, or to this many nats if that is more: a twentieth of a nat, by default, tells no
# hyperparameters apart.
LEAST_BOUND = 500.0
# Or to so many nats a row, which by default is 5e-6 nats a row and iteration. (Shuttle, 52 200 rows, a bound of -650:
# half of the time went into 2e-4 nats a row.)
LEAST_OF_ROW = 0.05
# L-BFGS's own test looks at single iterations; it is left to the round-off of the bound.
FTOL = 1e-12
GTOL = 1e-6
# The bound bends with inducing points on the scale of the length scale, and they have their standard deviation to go.
# In units of the mean of both, bounds after 100 iterations were higher than in standard deviations on five of five data
# sets, by 9 to 1900 nats (electricity, covtype, magic, higgs, ringnorm; m = 100); 1 and 2 are alike.
UNIT = 2.0
# Pairs of steps and gradients kept: inducing points make many coordinates.
MEMORY = 20


class Coordinates:
    """Kernel parameters and, if they are learned, inducing points as one vector for an optimiser.

    Log kernel parameters as scikit-learn has them, kernel by kernel; inducing points in units of ``UNIT`` times the
    geometric mean of their standard deviation and the length scale at the start.
    """

    def __init__(self, start: KernelPrior, learn_inducing: bool):
        self.start, self.learn_inducing = start, learn_inducing
        self._ends = np.cumsum([len(prior.spec.theta) for prior in start.groups])
        self.n_theta = int(self._ends[-1])
        units = []
        for prior in start.groups:
            spread = mean_and_scale(prior.Z, np.ones(len(prior.Z)))[1]
            units.append(np.sqrt(spread) * np.sqrt(prior.spec.least_length_scales(spread)))
        # Broadcasts against (m, d), or (C, m, d) of several kernels.
        self.unit = UNIT * (units[0] if start.Z.ndim == 2 else np.array(units)[:, None])

    def pack(self, prior: KernelPrior) -> np.ndarray:
        Z = (prior.Z / self.unit).ravel() if self.learn_inducing else np.empty(0)
        return np.concatenate([thetas(prior), Z])

    def pack_gradient(self, d_theta: np.ndarray, d_Z: np.ndarray) -> np.ndarray:
        return np.concatenate([d_theta, (d_Z * self.unit).ravel() if self.learn_inducing else np.empty(0)])

    def prior(self, vector: np.ndarray) -> KernelPrior:
        """The prior at a vector; ValueError if its covariance matrix cannot be factorised."""
        Z = self.start.Z
        if self.learn_inducing:
            Z = vector[self.n_theta :].reshape(Z.shape) * self.unit
        values = np.split(vector[: self.n_theta], self._ends[:-1])
        specs = [prior.spec.with_theta(theta) for prior, theta in zip(self.start.groups, values, strict=True)]
        return self.start.rebuilt(specs, Z)

    @property
    def limits(self) -> list[tuple[float | None, float | None]]:
        bounds = np.concatenate([prior.spec.bounds for prior in self.start.groups])
        limits: list[tuple[float | None, float | None]] = [(float(low), float(high)) for low, high in bounds]
        return limits + [(None, None)] * (self.start.Z.size if self.learn_inducing else 0)


def thetas(prior: KernelPrior) -> np.ndarray:
    """Log-parameters of every kernel, one after the other."""
    return np.concatenate([group.spec.theta for group in prior.groups])


@dataclass(frozen=True)
class Outcome:
    """What a scheme returns: the best posterior with its pass, iterations, what went short, and mini-batches' state."""

    point: Point[KernelPosterior]
    n_iter: int
    problem: str | None = None
    state: State | None = None

    @property
    def q(self) -> KernelPosterior:
        return self.point.q

    @property
    def site(self) -> Site:
        return self.point.site


def unobserved(q: KernelPosterior, site: Site, state: State | None = None) -> None:
    """For what nobody goes on from."""


@dataclass(frozen=True)
class Options:
    """What every scheme is told; ``tol`` is relative to the bound, an average gain of an iteration.

    ``reached`` is told each posterior that is better than those before, with its site, and with the state that
    mini-batches go on from; ``state`` is such a one of an earlier fit. What is climbed is the bound plus the logarithm
    of the ``length_scale_prior``.
    """

    learn_inducing: bool
    tol: float
    max_iter: int
    history: History
    reached: Callable[..., None] = unobserved
    length_scale_prior: LengthScalePrior = NO_PRIOR
    state: State | None = None

    def log_prior(self, prior: KernelPrior) -> tuple[float, np.ndarray]:
        """Of the length scales of all kernels, and its gradient by their parameters, one kernel after the other."""
        return self.length_scale_prior.of(prior.groups)

    def record(self, elbo: float, prior: KernelPrior, log_prior: float, **columns: Any) -> None:
        """A row of the history for an evaluation: the bound, and beside it the log prior, where there is one."""
        if not self.length_scale_prior.is_flat:
            columns["log_prior"] = log_prior
        self.history.add(elbo=elbo, theta=thetas(prior)[None], **columns)


def least_bound(training: Training) -> float:
    """Nats that tolerances are relative to at least."""
    return max(LEAST_BOUND, LEAST_OF_ROW * training.total_weight)


def lbfgs(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    limits: list[tuple[float | None, float | None]],
    *,
    tol: float,
    max_iter: int,
    max_evaluations: int,
    least: float,
) -> tuple[int, str]:
    """Minimise by L-BFGS-B until ``PATIENCE`` iterations gain less than ``tol * max(least, |value|)`` on average.

    Returns
    -------
    n_iter : int
    status : {"converged", "flat", "max_iter", "line search"}
        "flat": the value no longer changes, though the gradient does not vanish.
    """
    recent: deque[float] = deque(maxlen=PATIENCE + 1)

    def look(*, intermediate_result: OptimizeResult) -> None:
        recent.append(float(intermediate_result.fun))
        gain = recent[0] - recent[-1]
        if len(recent) > PATIENCE and gain < PATIENCE * tol * max(least, abs(recent[-1])):
            raise StopIteration

    # L-BFGS-B's first step has length one, but is the whole gradient where every coordinate is bounded: into a corner
    # of the box, where gradients vanish. One coordinate that is free and without effect keeps it from that.
    def extended(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(vector[:-1])
        return value, np.append(gradient, 0.0)

    result = minimize(
        extended,
        np.append(start, 0.0),
        jac=True,
        method="L-BFGS-B",
        bounds=[*limits, (None, None)],
        callback=look,
        options={"maxiter": max_iter, "maxfun": max_evaluations, "ftol": FTOL, "gtol": GTOL, "maxcor": MEMORY},
    )
    if result.status == 0:
        # Its test of the value also passes after a line search that ended with a warning, even above where it began.
        low, high = np.array([*limits, (None, None)], dtype=float).T
        steepest = np.clip(result.x - result.jac, np.fmax(low, -np.inf), np.fmin(high, np.inf)) - result.x
        return result.nit, "converged" if np.max(np.abs(steepest)) <= GTOL else "flat"
    # A callback that stops is status 99, a limit 1.
    return result.nit, {1: "max_iter", 99: "converged"}.get(result.status, "line search")


class ProfiledBound:
    """theta, Z -> max_q F(theta, Z, q) + log p(theta) and its gradient; keeps the best evaluation.

    Parameters
    ----------
    training, site : the data and the bound
    start : posterior
        Gives kernel, inducing points and the first sites.
    options : Options

    Attributes
    ----------
    vector, point, value : the best evaluation; the next starts from its sites
    solved : whether its inner solve ended by the tolerance
    first_rate : how long the first step of the last inner solve had best been: where the next one starts
    """

    def __init__(self, training: Training, site: Site, start: KernelPosterior, options: Options):
        self.training, self.options, self.tol = training, options, options.tol
        self.share = INNER_SHARE if options.tol >= PRECISE else PRECISE_SHARE
        self.coordinates = Coordinates(start.prior, options.learn_inducing)
        # Nats that an inner solve may leave, and what the optimiser's failures have tightened them by.
        self.inner_gain, self.tightening = float(np.clip(START_SHARE * training.total_weight, *INNER_RANGE)), 1.0
        ascent = coordinate_ascent(
            training, start, site, tol=self.inner_gain, max_iter=INNER_MAX_ITER, history=History()
        )
        self.first_rate = ascent.first_rate
        self._keep(self.coordinates.pack(start.prior), ascent, options.log_prior(start.prior)[0])
        self.evaluations = 0
        # From no step at all there is more to be had: the gradient vanishes at the prior.
        self._has_stepped = ascent.n_iter > 0

    def _keep(self, vector: np.ndarray, ascent: Ascent[KernelPosterior], log_prior: float) -> None:
        self.vector, self.point, self.solved = vector.copy(), ascent.point, ascent.converged
        self.value = ascent.elbo + log_prior
        self.options.reached(ascent.q, ascent.point.site)

    @property
    def q(self) -> KernelPosterior:
        return self.point.q

    def tighten(self) -> None:
        """Tenfold more accurate inner solves from now on."""
        self.tightening *= 0.1

    def _least_gain(self) -> float:
        """Nats below which an inner solve need not go: a share of what ``tol`` asks for, or round-off."""
        return max(
            min(INNER_RANGE[0], self.share * self.tol * max(LEAST_BOUND, abs(self.value))) * self.tightening,
            ROUND_OFF * max(1.0, abs(self.value)),
        )

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative value in nats and its gradient, for a minimiser."""
        q: KernelPosterior | None = self.q
        is_known = np.array_equal(vector, self.vector)
        is_best = is_known and self._has_stepped
        if is_best and not self.evaluations:
            # Where the optimiser starts: all but the gradient is known.
            return self._evaluated(self.point, 0, *self.options.log_prior(self.q.prior))
        if not is_best:
            # A step so long that the kernel matrix fails is answered by a value the line search turns back from.
            refused = 1e3 + 3.0 * abs(self.value), np.zeros_like(vector)
            try:
                prior = self.coordinates.prior(vector)
            except ValueError:
                return refused
            q = proper_posterior(self.training, self.point.sites, prior)
            if q is None:
                return refused
        assert q is not None
        log_prior, by_theta = self.options.log_prior(q.prior)
        ascent, iterations = self._solve(q, log_prior)
        value = ascent.elbo + log_prior
        if value > self.value:
            if not is_known:
                gain = self.share * (value - self.value)
                self.inner_gain = float(np.clip(gain, self._least_gain(), INNER_RANGE[1]))
            self._keep(vector, ascent, log_prior)
            self._has_stepped = True
        return self._evaluated(ascent.point, iterations, log_prior, by_theta)

    def _solve(self, q: KernelPosterior, log_prior: float) -> tuple[Ascent[KernelPosterior], int]:
        """The posterior from q on, accurately enough to tell whether its value is above or below the best.

        Returns the last ascent and the iterations of all.
        """
        least, total, site = self._least_gain(), 0, self.point.site
        # As many iterations again for each digit more.
        max_iter = round(INNER_MAX_ITER * (1.0 + max(0.0, np.log10(INNER_RANGE[0] / least))))
        nats = max(least, self.inner_gain * self.tightening)
        while True:
            ascent = coordinate_ascent(
                self.training,
                q,
                site,
                tol=nats / tolerance_unit(self.value),
                max_iter=max_iter - total,
                history=History(),
                first_rate=self.first_rate,
            )
            self.first_rate = ascent.first_rate
            q, site = ascent.q, ascent.point.site
            total += ascent.n_iter
            missing = self.value - (ascent.elbo + log_prior)
            if not ascent.converged or nats <= least or not 0.0 < missing < UNSURE * nats:
                return ascent, total
            nats = max(least, min(0.1 * nats, missing / UNSURE))

    def _evaluated(
        self, point: Point[KernelPosterior], iterations: int, log_prior: float, by_theta: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Record an evaluation, with the log prior and its gradient, and form its gradient."""
        d_theta, d_Z = point.q.gradient(self.training, point.sites, point.target)
        self.evaluations += 1
        columns = {"evaluation": self.evaluations, "inner_iterations": iterations}
        self.options.record(point.elbo, point.q.prior, log_prior, **columns)
        return -(point.elbo + log_prior), -self.coordinates.pack_gradient(d_theta + by_theta, d_Z)


def profile(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """Maximise the profiled bound over kernel parameters and inducing points by L-BFGS.

    The inner tolerance follows the outer progress; a failed line search tightens it and restarts.
    """
    function = ProfiledBound(training, site, start, options)
    if not len(function.vector):
        return Outcome(function.point, 0)
    max_iter, n_iter, problem = options.max_iter, 0, None
    least = least_bound(training)
    for _ in range(RESTARTS + 1):
        before = function.value
        iterations, status = lbfgs(
            function,
            function.vector,
            function.coordinates.limits,
            tol=options.tol,
            max_iter=max_iter - n_iter,
            max_evaluations=2 * max_iter,
            least=least,
        )
        n_iter += iterations
        gain = function.value - before
        # Where the optimiser cannot go on, and there is nothing left to gain, it has arrived, too.
        if status in ("flat", "line search") and is_small(gain, before, options.tol):
            status = "converged"
        confirmed = options.tol >= PRECISE or gain < PATIENCE * options.tol * max(least, abs(before))
        if status == "converged" and function.solved and confirmed:
            return Outcome(function.point, n_iter)
        if n_iter >= max_iter or status == "max_iter":
            limit = f"max_iter={max_iter} was" if n_iter >= max_iter else "twice max_iter evaluations were"
            problem = f"{limit} reached before tol={options.tol:g} by the optimizer"
            break
        function.tighten()
        problem = f"the optimizer's line search failed after {n_iter} iterations"
        if status == "converged":
            problem = f"the optimizer could not make sure of tol={options.tol:g}: ascents of the posterior are too slow"
    return Outcome(function.point, n_iter, problem)
