"""L-BFGS on the profiled bound, with gradients by kernel parameters and inducing points."""

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

# An inner solve stops at this share of the latest outer gain, so that its error does not disturb the line search; the
# range avoids wasted precision in the first steps and the last.
INNER_SHARE = 0.02
INNER_RANGE = (1e-4, 1.0)
# Below this ``tol``, inexact gradients would spoil L-BFGS's curvature estimates. Inner solves then use a smaller share
# (11 700 passes instead of 14 200 in 20 fits), and a fresh start must confirm convergence.
PRECISE = 1e-5
PRECISE_SHARE = 0.005
# Slow ascents can still gain up to this many times their last gain, so an inner solve continues while its bound is
# below the best by less than that.
UNSURE = 10.0
# Nats for each row that the first inner solve may leave.
START_SHARE = 1e-3
# More iterations than the exact bound needs from a cold start; later evaluations continue Polya-Gamma's slow tail.
INNER_MAX_ITER = 30
# If the optimizer fails, it restarts with tenfold tighter and longer inner solves, at most this many times.
RESTARTS = 3
# L-BFGS iterations over which the gain is averaged for the convergence test.
PATIENCE = 5
# Tolerances are relative to the bound, but to at least this many nats: a smaller gain does not matter for
# hyperparameters.
LEAST_BOUND = 500.0
# Tolerances are also relative to at least this many nats for each row. Without it, shuttle (52 200 rows, bound -650)
# spent half of its time on 2e-4 nats a row.
LEAST_OF_ROW = 0.05
# L-BFGS's own test looks at single iterations, so it is set to round-off.
FTOL = 1e-12
GTOL = 1e-6
# Inducing points are scaled by the geometric mean of length scale and standard deviation times this; bounds after 100
# iterations were higher than in units of standard deviations on five of five data sets.
UNIT = 2.0
# Pairs of steps and gradients that L-BFGS keeps; inducing points make many coordinates.
MEMORY = 20


class Coordinates:
    """Kernel parameters and, if they are learned, inducing points as one vector for an optimizer.

    Kernel parameters are logarithms, as in scikit-learn, kernel by kernel. Inducing points are in units of ``UNIT``
    times the geometric mean of their standard deviation and the initial length scale.
    """

    def __init__(self, start: KernelPrior, learn_inducing: bool):
        self.start, self.learn_inducing = start, learn_inducing
        self._ends = np.cumsum([len(prior.spec.theta) for prior in start.groups])
        self.n_theta = int(self._ends[-1])
        units = []
        for prior in start.groups:
            spread = mean_and_scale(prior.Z, np.ones(len(prior.Z)))[1]
            units.append(np.sqrt(spread) * np.sqrt(prior.spec.least_length_scales(spread)))
        # Broadcasts against Z (m, d), or (C, m, d) for several kernels.
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
    """Log parameters of all kernels, concatenated."""
    return np.concatenate([group.spec.theta for group in prior.groups])


@dataclass(frozen=True)
class Outcome:
    """The result of a scheme: best posterior with its pass, iterations, a problem if any, and mini-batches' state."""

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
    """Ignore an improved posterior."""


@dataclass(frozen=True)
class Options:
    """Options of every scheme; ``tol`` is the average relative gain of an iteration below which a scheme stops.

    Schemes maximise the bound plus the log ``length_scale_prior``. They call ``reached`` with each posterior that
    improves on the earlier ones, its site, and the mini-batches' state; ``state`` is such a state of an earlier fit.
    """

    learn_inducing: bool
    tol: float
    max_iter: int
    history: History
    reached: Callable[..., None] = unobserved
    length_scale_prior: LengthScalePrior = NO_PRIOR
    state: State | None = None

    def log_prior(self, prior: KernelPrior) -> tuple[float, np.ndarray]:
        """Log prior of all kernels' length scales, and its gradient by their parameters, kernel by kernel."""
        return self.length_scale_prior.of(prior.groups)

    def record(self, elbo: float, prior: KernelPrior, log_prior: float, **columns: Any) -> None:
        """Add an evaluation to the history: the bound and, if the length scales have a prior, the log prior."""
        if not self.length_scale_prior.is_flat:
            columns["log_prior"] = log_prior
        self.history.add(elbo=elbo, theta=thetas(prior)[None], **columns)


def least_bound(training: Training) -> float:
    """Least number of nats that tolerances are relative to."""
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
        "flat": the value no longer changes, but the gradient is not zero.
    """
    recent: deque[float] = deque(maxlen=PATIENCE + 1)

    def look(*, intermediate_result: OptimizeResult) -> None:
        recent.append(float(intermediate_result.fun))
        gain = recent[0] - recent[-1]
        if len(recent) > PATIENCE and gain < PATIENCE * tol * max(least, abs(recent[-1])):
            raise StopIteration

    # If every coordinate is bounded, L-BFGS-B's first step is the whole gradient, which may end in a corner of the box
    # where gradients vanish. An extra free coordinate without effect gives the first step length one.
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
        # Status 0 also follows a failed line search, even at a value above the start, so the gradient is tested here.
        low, high = np.array([*limits, (None, None)], dtype=float).T
        steepest = np.clip(result.x - result.jac, np.fmax(low, -np.inf), np.fmin(high, np.inf)) - result.x
        return result.nit, "converged" if np.max(np.abs(steepest)) <= GTOL else "flat"
    # Status 99 is a callback that stopped, status 1 a limit.
    return result.nit, {1: "max_iter", 99: "converged"}.get(result.status, "line search")


class ProfiledBound:
    """The profiled bound max_q F(theta, Z, q) + log p(theta) and its gradient; keeps the best evaluation.

    Parameters
    ----------
    training, site : the data and the bound
    start : posterior
        Gives kernel, inducing points and the first sites.
    options : Options

    Attributes
    ----------
    vector, point, value : the best evaluation; the next one starts from its sites
    solved : whether its inner solve converged
    first_rate : best length of the first step of the last inner solve; the next inner solve starts with it
    """

    def __init__(self, training: Training, site: Site, start: KernelPosterior, options: Options):
        self.training, self.options, self.tol = training, options, options.tol
        self.share = INNER_SHARE if options.tol >= PRECISE else PRECISE_SHARE
        self.coordinates = Coordinates(start.prior, options.learn_inducing)
        # Nats that an inner solve may leave, and the factor by which failures of the optimizer have tightened them.
        self.inner_gain, self.tightening = float(np.clip(START_SHARE * training.total_weight, *INNER_RANGE)), 1.0
        ascent = coordinate_ascent(
            training, start, site, tol=self.inner_gain, max_iter=INNER_MAX_ITER, history=History()
        )
        self.first_rate = ascent.first_rate
        self._keep(self.coordinates.pack(start.prior), ascent, options.log_prior(start.prior)[0])
        self.evaluations = 0
        # At the prior the gradient vanishes, so a start without any step is solved again.
        self._has_stepped = ascent.n_iter > 0

    def _keep(self, vector: np.ndarray, ascent: Ascent[KernelPosterior], log_prior: float) -> None:
        self.vector, self.point, self.solved = vector.copy(), ascent.point, ascent.converged
        self.value = ascent.elbo + log_prior
        self.options.reached(ascent.q, ascent.point.site)

    @property
    def q(self) -> KernelPosterior:
        return self.point.q

    def tighten(self) -> None:
        """Make inner solves ten times more accurate from now on."""
        self.tightening *= 0.1

    def _least_gain(self) -> float:
        """Smallest useful accuracy of an inner solve, in nats: a share of what ``tol`` requires, or round-off."""
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
            # At the optimizer's start everything but the gradient is known.
            return self._evaluated(self.point, 0, *self.options.log_prior(self.q.prior))
        if not is_best:
            # If the kernel matrix cannot be factorised, this value makes the line search step back.
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
        """Find the posterior, starting from q, accurately enough to tell whether its value exceeds the best.

        Returns the last ascent and the total number of iterations.
        """
        least, total, site = self._least_gain(), 0, self.point.site
        # Each further digit of accuracy allows as many iterations again.
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
        """Record an evaluation and return its negative value and gradient."""
        d_theta, d_Z = point.q.gradient(self.training, point.sites, point.target)
        self.evaluations += 1
        columns = {"evaluation": self.evaluations, "inner_iterations": iterations}
        self.options.record(point.elbo, point.q.prior, log_prior, **columns)
        return -(point.elbo + log_prior), -self.coordinates.pack_gradient(d_theta + by_theta, d_Z)


def profile(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """Maximise the profiled bound over kernel parameters and inducing points by L-BFGS.

    The inner tolerance follows the outer gain; a failed line search tightens it and restarts.
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
        # An optimizer that is stuck with nothing left to gain has converged.
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
            problem = f"the optimizer could not confirm tol={options.tol:g}: ascents of the posterior are too slow"
    return Outcome(function.point, n_iter, problem)
