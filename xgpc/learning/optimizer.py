"""What all learning algorithms share: options, results, the parameters as a vector, and L-BFGS."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult, minimize

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..inference.ascent import Point
from ..inference.history import History
from ..inference.progress import State
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from .inducing import mean_and_scale

# L-BFGS iterations over which the gain is averaged for the convergence test.
PATIENCE = 5
# Tolerances are relative to the bound, but to at least this many nats in total and for each row: long searches for
# 2e-4 nats a row do not pay.
LEAST_BOUND, LEAST_OF_ROW = 500.0, 0.05
# L-BFGS's own test looks at single iterations, so it is set to round-off.
FTOL, GTOL = 1e-12, 1e-6
# Inducing points are scaled by this times the geometric mean of length scale and standard deviation, which led to
# higher bounds than standard deviations alone.
UNIT = 2.0
# Pairs of steps and gradients that L-BFGS keeps; inducing points make many coordinates.
MEMORY = 20

Limits = list[tuple[float | None, float | None]]


class Coordinates:
    """Kernel parameters and, if they are learned, inducing points as one vector for an optimizer.

    Kernel parameters are logarithms, as in scikit-learn, kernel by kernel. Inducing points are divided by ``unit``.
    """

    def __init__(self, start: KernelPrior, learn_inducing: bool):
        self.start, self.learn_inducing = start, learn_inducing
        self._ends = np.cumsum([len(group.spec.theta) for group in start.groups])
        units = []
        for group in start.groups:
            spread = mean_and_scale(group.Z, np.ones(len(group.Z)))[1]
            units.append(np.sqrt(spread) * np.sqrt(group.spec.least_length_scales(spread)))
        # Broadcasts against Z (m, d), or (C, m, d) for several kernels.
        self.unit = UNIT * (units[0] if start.Z.ndim == 2 else np.array(units)[:, None])
        bounds = np.concatenate([group.spec.bounds for group in start.groups])
        self.limits: Limits = [(float(low), float(high)) for low, high in bounds]
        self.limits += [(None, None)] * (start.Z.size if learn_inducing else 0)

    def pack(self, prior: KernelPrior) -> np.ndarray:
        return np.concatenate([thetas(prior), (prior.Z / self.unit).ravel() if self.learn_inducing else []])

    def pack_gradient(self, d_theta: np.ndarray, d_Z: np.ndarray) -> np.ndarray:
        return np.concatenate([d_theta, (d_Z * self.unit).ravel() if self.learn_inducing else []])

    def prior(self, vector: np.ndarray) -> KernelPrior:
        """The prior at a vector; ValueError if its covariance matrix cannot be factorised."""
        *values, rest = np.split(vector, self._ends)
        Z = rest.reshape(self.start.Z.shape) * self.unit if self.learn_inducing else self.start.Z
        specs = [group.spec.with_theta(theta) for group, theta in zip(self.start.groups, values, strict=True)]
        return self.start.rebuilt(specs, Z)


def thetas(prior: KernelPrior) -> np.ndarray:
    """Log parameters of all kernels, concatenated."""
    return np.concatenate([group.spec.theta for group in prior.groups])


class Model(NamedTuple):
    """Hyperparameters, a posterior to start from (None: none), and the site."""

    prior: KernelPrior
    q: KernelPosterior | None
    site: Site


@dataclass(frozen=True)
class Outcome:
    """The result of an optimizer: the best posterior with its pass, the iterations, and a problem if there was one.

    ``state`` has the arrays from which mini-batches continue.
    """

    point: Point[KernelPosterior]
    n_iter: int
    problem: str | None = None
    state: State | None = None

    @property
    def model(self) -> Model:
        return Model(self.point.q.prior, self.point.q, self.point.site)


@dataclass(frozen=True)
class Options:
    """Options of an optimizer, which maximises the bound plus the log ``length_scale_prior``.

    Attributes
    ----------
    tol : average relative gain of an iteration below which the optimizer stops
    reached : function that receives each better posterior, its site, and the state of mini-batches
    batch_size, learning_rate, random_state : for mini-batches
    state : arrays from which mini-batches continue, or None
    """

    learn_inducing: bool
    tol: float
    max_iter: int
    history: History
    reached: Callable[[KernelPosterior, Site, State | None], None] = lambda q, site, state: None
    length_scale_prior: LengthScalePrior = NO_PRIOR
    batch_size: int | None = None
    learning_rate: str | float | Sequence[float] = "adaptive"
    random_state: np.random.RandomState | None = None
    state: State | None = None

    def log_prior(self, prior: KernelPrior) -> tuple[float, np.ndarray]:
        """Log prior of all kernels' length scales, and its gradient by their parameters, kernel by kernel."""
        return self.length_scale_prior.of(prior.groups)

    def value(self, point: Point[KernelPosterior]) -> float:
        """What is maximised: the bound plus the log prior."""
        return point.elbo + self.log_prior(point.q.prior)[0]

    def record(self, elbo: float, prior: KernelPrior, **columns: ArrayLike) -> None:
        """Add an evaluation to the history: the bound and, if the length scales have a prior, the log prior."""
        if not self.length_scale_prior.is_flat:
            columns["log_prior"] = self.log_prior(prior)[0]
        self.history.add(elbo=elbo, theta=thetas(prior)[None], **columns)

    def too_few(self, whose: str, limit: str = "") -> str:
        """The problem that the iterations ended before ``tol`` was reached."""
        return f"{limit or f'max_iter={self.max_iter} was'} reached before tol={self.tol:g} by {whose}"


def least_bound(training: Training) -> float:
    """Least number of nats that tolerances are relative to."""
    return max(LEAST_BOUND, LEAST_OF_ROW * training.total_weight)


def refused(best: float, vector: np.ndarray) -> tuple[float, np.ndarray]:
    """A value and gradient that make the line search step back, where nothing can be factorised."""
    return 1e3 + 3.0 * abs(best), np.zeros_like(vector)


def lbfgs(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    limits: Limits,
    *,
    tol: float,
    max_iter: int,
    max_evaluations: int,
    least: float,
) -> tuple[int, str]:
    """Minimise by L-BFGS-B until ``PATIENCE`` iterations gain less than ``tol * max(least, |value|)`` on average.

    Returns the number of iterations and a status: "converged", "max_iter", "line search" (it failed), or "flat" if the
    value no longer changes but the gradient is not zero.
    """
    recent: deque[float] = deque(maxlen=PATIENCE + 1)

    def look(*, intermediate_result: OptimizeResult) -> None:
        recent.append(float(intermediate_result.fun))
        if len(recent) > PATIENCE and recent[0] - recent[-1] < PATIENCE * tol * max(least, abs(recent[-1])):
            raise StopIteration

    # If every coordinate is bounded, L-BFGS-B's first step is the whole gradient, which may end in a corner of the box
    # where gradients vanish. An extra free coordinate without effect gives the first step length one.
    def extended(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(vector[:-1])
        return value, np.append(gradient, 0.0)

    bounds = [*limits, (None, None)]
    options = {"maxiter": max_iter, "maxfun": max_evaluations, "ftol": FTOL, "gtol": GTOL, "maxcor": MEMORY}
    result = minimize(
        extended, np.append(start, 0.0), jac=True, method="L-BFGS-B", bounds=bounds, callback=look, options=options
    )
    if result.status == 0:
        # Status 0 also follows a failed line search, even at a value above the start, so the gradient is tested here.
        low, high = np.array(bounds, dtype=float).T
        steepest = np.clip(result.x - result.jac, np.fmax(low, -np.inf), np.fmin(high, np.inf)) - result.x
        return result.nit, "converged" if np.max(np.abs(steepest)) <= GTOL else "flat"
    # Status 99 is a callback that stopped, status 1 a limit.
    return result.nit, {1: "max_iter", 99: "converged"}.get(result.status, "line search")
