"""What all learning algorithms share: options, results, the parameters as a vector, and L-BFGS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..config import FitConfig
from ..inference.ascent import Point
from ..inference.history import History
from ..inference.run import State
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..likelihoods.registry import LikelihoodBound
from .inducing import mean_and_scale

# L-BFGS iterations over which the gain is averaged for the convergence test.
PATIENCE = 5
# Tolerances are relative to the bound, but to at least this many nats, in total and for each row: shuttle (52 200 rows,
# bound -650) spent half of its time on 2e-4 nats a row.
LEAST_BOUND, LEAST_OF_ROW = 500.0, 0.05
# L-BFGS's own test looks at single iterations, so it is set to round-off.
FTOL, GTOL = 1e-12, 1e-6
# Inducing points are scaled by the geometric mean of length scale and standard deviation times this; bounds after 100
# iterations were higher than in units of standard deviations on five of five data sets.
UNIT = 2.0
# Pairs of steps and gradients that L-BFGS keeps; inducing points make many coordinates.
MEMORY = 20

Limits = list[tuple[float | None, float | None]]


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
        bounds = np.concatenate([prior.spec.bounds for prior in start.groups])
        self.limits: Limits = [(float(low), float(high)) for low, high in bounds]
        self.limits += [(None, None)] * (start.Z.size if learn_inducing else 0)

    def pack(self, prior: KernelPrior) -> np.ndarray:
        return np.concatenate([thetas(prior), (prior.Z / self.unit).ravel() if self.learn_inducing else []])

    def pack_gradient(self, d_theta: np.ndarray, d_Z: np.ndarray) -> np.ndarray:
        return np.concatenate([d_theta, (d_Z * self.unit).ravel() if self.learn_inducing else []])

    def prior(self, vector: np.ndarray) -> KernelPrior:
        """The prior at a vector; ValueError if its covariance matrix cannot be factorised."""
        Z = self.start.Z
        if self.learn_inducing:
            Z = vector[self.n_theta :].reshape(Z.shape) * self.unit
        values = np.split(vector[: self.n_theta], self._ends[:-1])
        specs = [prior.spec.with_theta(theta) for prior, theta in zip(self.start.groups, values, strict=True)]
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
    """The result of an optimizer: the best posterior with its pass, the iterations, and a problem if there was one."""

    point: Point[KernelPosterior]
    n_iter: int
    problem: str | None = None

    @property
    def model(self) -> Model:
        return Model(self.point.q.prior, self.point.q, self.point.site)


@dataclass(frozen=True)
class Options:
    """Options of a run; ``tol`` is the average relative gain of an iteration below which it stops.

    Optimizers maximise the bound plus the log ``length_scale_prior``. They call ``reached`` with each posterior that
    improves on the earlier ones, and its site.
    """

    learn_inducing: bool
    tol: float
    max_iter: int
    history: History
    reached: Callable[[KernelPosterior, Site], None] = lambda q, site: None
    length_scale_prior: LengthScalePrior = NO_PRIOR

    def log_prior(self, prior: KernelPrior) -> tuple[float, np.ndarray]:
        """Log prior of all kernels' length scales, and its gradient by their parameters, kernel by kernel."""
        return self.length_scale_prior.of(prior.groups)

    def value(self, point: Point[KernelPosterior]) -> float:
        """What is maximised: the bound plus the log prior."""
        return point.elbo + self.log_prior(point.q.prior)[0]

    def record(self, elbo: float, prior: KernelPrior, **columns: Any) -> None:
        """Add an evaluation to the history: the bound and, if the length scales have a prior, the log prior."""
        if not self.length_scale_prior.is_flat:
            columns["log_prior"] = self.log_prior(prior)[0]
        self.history.add(elbo=elbo, theta=thetas(prior)[None], **columns)

    def too_few(self, whose: str, limit: str = "") -> str:
        """The problem that the iterations ended before ``tol`` was reached."""
        return f"{limit or f'max_iter={self.max_iter} was'} reached before tol={self.tol:g} by {whose}"


class Optimizer(ABC):
    """Learns kernel parameters and inducing points.

    Attributes
    ----------
    needs : what an error message says of the likelihoods and bounds that it is for
    state : arrays by name from which the next run continues and which the present run has reached; None if a run always
        starts at the given posterior
    """

    needs = "a bound other than 'taylor'"
    state: State | None = None

    @classmethod
    def of(cls, config: FitConfig, random_state: np.random.RandomState) -> Self:
        """The optimizer of a fit."""
        return cls()

    @staticmethod
    def allows(record: LikelihoodBound) -> bool:
        """Whether it supports a likelihood's bound."""
        return record.is_bound

    @abstractmethod
    def run(self, training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
        """Learn from the training rows, starting at a posterior."""


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
