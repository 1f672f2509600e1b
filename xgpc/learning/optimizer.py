"""What all optimizers share (results, the parameters as a vector), and L-BFGS on the profiled bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._engine import ROUND_OFF, tolerance_unit
from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..data.moments import scale_of
from ..inference.ascent import (
    COLD_UPDATES,
    Ascent,
    Point,
    coordinate_ascent,
    is_small,
    proper_posterior,
)
from ..inference.options import Options
from ..inference.prior_mean import log_likelihood_of_frequencies
from ..likelihoods.coordinates import Limits
from ..statistics import gradient_by_parameter
from .minimise import PATIENCE, minimise

# Tolerances are relative to the bound, but to at least this many nats in total and for each row: long searches for
# 2e-4 nats a row do not pay.
LEAST_BOUND, LEAST_OF_ROW = 500.0, 0.05
# Inducing points are scaled by this times the geometric mean of length scale and standard deviation, which led to
# higher bounds than standard deviations alone.
UNIT = 2.0
# Each evaluation finds the posterior by an inner solve. Its error in nats is at most this share of the optimizer's
# latest gain, so that it does not disturb the line search. INNER_RANGE limits this error, because too much precision
# would be wasted in the first steps and the last.
INNER_SHARE, INNER_RANGE = 0.02, (1e-4, 1.0)
# Below this ``tol``, inexact gradients would spoil L-BFGS's curvature estimates: inner solves use a smaller share, and
# a fresh start must confirm convergence.
PRECISE, PRECISE_SHARE = 1e-5, 0.005
# A slow ascent may still gain up to this many times its last gain. An inner solve goes on while that could raise it
# above the best bound.
UNSURE = 10.0
# From so many nats above the log likelihood of the class frequencies on, a bound shows that something is learned. (With
# 0, a fit of 100 rows that starts at length scales of 30 deviations ends at NLL .688, not .110. With 10, a fit of 30
# rows takes a tenth longer.)
SHOWN = 2.0
# The first inner solve may end this many nats for each row below its maximum.
START_SHARE = 1e-3
# If the optimizer fails, it restarts with tenfold tighter and longer inner solves, at most this many times: the last
# are a thousand times as accurate.
RESTARTS = 3


class Coordinates:
    """Kernel parameters and, if they are learned, inducing points as one vector for an optimizer.

    Kernel parameters are logarithms, as in scikit-learn, kernel by kernel. Inducing points are divided by ``unit``;
    they stay in place if the gradient by them would jump wherever a point and a row agree in a feature. The last
    coordinate is free and has no effect: if all were bounded, L-BFGS-B's first step would be the whole gradient instead
    of one of length one, and may end in a corner of the box where gradients vanish.
    """

    def __init__(self, start: KernelPrior, options: Options, site: Site | None = None):
        self.start = start
        # The likelihood's parameter follows, if it is learned here.
        self._parameter = None if site is None else site.record.coordinates(site.parameter, options.learned_rates)
        parameter_limits = [] if self._parameter is None else self._parameter.limits
        self.learn_inducing = options.learn_inducing and all(group.spec.has_slopes for group in start.groups)
        sizes = [len(group.spec.theta) for group in start.groups]
        self._ends = np.cumsum([*sizes, start.Z.size if self.learn_inducing else 0, len(parameter_limits)])
        units = []
        for group in start.groups:
            spread = scale_of(group.Z, np.ones(len(group.Z)))
            units.append(np.sqrt(spread) * np.sqrt(group.spec.least_length_scales(spread)))
        # Broadcasts against Z (m, d), or (C, m, d) for several kernels.
        self.unit = UNIT * (units[0] if start.Z.ndim == 2 else np.array(units)[:, None])
        bounds = np.concatenate([group.spec.bounds for group in start.groups])
        self.limits: Limits = [(float(low), float(high)) for low, high in bounds]
        self.limits += [(None, None)] * (int(self._ends[-2]) - len(bounds)) + parameter_limits + [(None, None)]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is learned."""
        return len(self.limits) == 1

    def pack(self, prior: KernelPrior, site: Site | None = None) -> np.ndarray:
        points = (prior.Z / self.unit).ravel() if self.learn_inducing else []
        parameter = [] if site is None or self._parameter is None else [self._parameter.pack(site.parameter)]
        return np.concatenate([*(group.spec.theta for group in prior.groups), points, *parameter, [0.0]])

    def pack_gradient(self, d_theta: np.ndarray, d_Z: np.ndarray, d_parameter: ArrayLike = ()) -> np.ndarray:
        """The gradient by the vector, from those by its parts; ``d_parameter`` is by the parameter's coordinates."""
        return np.concatenate([d_theta, (d_Z * self.unit).ravel() if self.learn_inducing else [], d_parameter, [0.0]])

    def site(self, vector: np.ndarray, site: Site) -> Site:
        """``site`` with the likelihood's parameter that a vector holds; ``site`` itself if the vector holds none."""
        if self._parameter is None:
            return site
        coordinates = vector[self._ends[-2] : self._ends[-1]]
        return site.with_parameter(self._parameter.unpack(coordinates, site.parameter))

    def parameter_gradient(self, training: Training, point: Point[KernelPosterior]) -> np.ndarray:
        """Gradient of the bound by the coordinates of the likelihood's parameter; (0,) if there are none."""
        if self._parameter is None:
            return np.empty(0)
        return self._parameter.gradient(point.site.parameter, training.reduce(gradient_by_parameter, point.sites))

    def prior(self, vector: np.ndarray) -> KernelPrior:
        """The prior at a vector; ValueError if its covariance matrix cannot be factorised."""
        places = list(map(slice, [0, *self._ends], self._ends))
        Z = vector[places[-2]].reshape(self.start.Z.shape) * self.unit if self.learn_inducing else self.start.Z
        specs = [group.spec.with_theta(vector[place]) for group, place in zip(self.start.groups, places, strict=False)]
        return self.start.rebuilt(specs, Z)


@dataclass(frozen=True)
class Outcome:
    """The result of an optimizer: the point of the highest bound, the iterations, and a problem if there was one."""

    point: Point[KernelPosterior]
    n_iter: int
    problem: str | None = None


def least_bound(training: Training) -> float:
    """Tolerances are relative to the bound, or to this number of nats if the bound is smaller."""
    return max(LEAST_BOUND, LEAST_OF_ROW * training.source.total_weight)


def of_frequencies(training: Training) -> float:
    """Log likelihood, in nats, of all labels under the frequencies of the classes."""
    y, weight = map(np.concatenate, zip(*((block.y, block.weight) for block in training.source.blocks()), strict=True))
    return log_likelihood_of_frequencies(np.bincount(np.unique(y, return_inverse=True)[1], weight))


def refused(best: float, vector: np.ndarray) -> tuple[float, np.ndarray]:
    """A value and gradient that make the line search step back from where a covariance matrix cannot be factorised."""
    return 1e3 + 3.0 * abs(best), np.zeros_like(vector)


class ProfiledBound:
    """The profiled bound max_q F(theta, Z, q) + log p(theta) and its gradient, from kernel and points of ``start``.

    ``vector``, ``point``, ``log_prior`` and ``value`` are those of the best evaluation, and ``solved`` says whether its
    inner solve converged. The next evaluation starts from its sites.
    """

    def __init__(self, training: Training, site: Site, start: KernelPosterior, options: Options):
        self.training, self.options = training, options
        self.share = INNER_SHARE if options.tol >= PRECISE else PRECISE_SHARE
        self.coordinates = Coordinates(start.prior, options, site)
        # An inner solve may end ``inner_gain * tightening`` nats below its maximum; failures of the optimizer lower the
        # factor.
        least, most = INNER_RANGE
        self.inner_gain, self.tightening = min(max(START_SHARE * training.source.total_weight, least), most), 1.0
        ascent = coordinate_ascent(training, start, site, tol=self.inner_gain, max_iter=COLD_UPDATES)
        # An inner solve begins with the best length of the first step of the one before.
        self.first_rate, self.evaluations = ascent.first_rate, 0
        self._keep(self.coordinates.pack(start.prior, site), ascent, options.log_prior(start.prior))
        # At the prior the gradient vanishes, so a start without any step is solved again.
        self._has_stepped = ascent.n_iter > 0

    def _keep(self, vector: np.ndarray, ascent: Ascent[KernelPosterior], log_prior: tuple[float, np.ndarray]) -> None:
        self.vector, self.point, self.solved = vector.copy(), ascent.point, ascent.converged
        self.log_prior, self.value = log_prior, ascent.point.elbo + log_prior[0]
        self.options.reached(ascent.point.q, ascent.point.site)

    def _least_gain(self) -> float:
        """Smallest useful accuracy of an inner solve, in nats: a share of what ``tol`` requires, or round-off."""
        wanted = min(INNER_RANGE[0], self.share * self.options.tol * max(LEAST_BOUND, abs(self.value)))
        return max(wanted * self.tightening, ROUND_OFF * max(1.0, abs(self.value)))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative value in nats and its gradient, for a minimiser.

        The inner solve is accurate enough to show whether this value exceeds the best one.
        """
        is_best, q, site = np.array_equal(vector, self.vector), self.point.q, self.point.site
        is_known = is_best and self._has_stepped
        point, iterations = self.point, 0
        log_prior, by_theta = self.log_prior
        # At the optimizer's start everything but the gradient is known.
        if self.evaluations or not is_known:
            if not is_known:
                try:
                    prior = self.coordinates.prior(vector)
                except ValueError:
                    return refused(self.value, vector)
                # The sites of a full process are its natural parameters under any kernel.
                carried = prior.posterior(self.point.target) if prior.is_full else None
                carried = carried or proper_posterior(self.training, self.point.sites, prior)
                if carried is None:
                    return refused(self.value, vector)
                q, site = carried, self.coordinates.site(vector, site)
                log_prior, by_theta = self.options.log_prior(prior)
            least = self._least_gain()
            # Each further digit of accuracy allows as many iterations again.
            most = round(COLD_UPDATES * (1.0 + max(0.0, np.log10(INNER_RANGE[0] / least))))
            nats = max(least, self.inner_gain * self.tightening)
            while True:
                tol, n_left = nats / tolerance_unit(self.value), most - iterations
                ascent = coordinate_ascent(self.training, q, site, tol=tol, max_iter=n_left, first_rate=self.first_rate)
                self.first_rate, point = ascent.first_rate, ascent.point
                q, site, value = point.q, point.site, point.elbo + log_prior
                iterations += ascent.n_iter
                missing = self.value - value
                if not ascent.converged or nats <= least or not 0.0 < missing < UNSURE * nats:
                    break
                nats = max(least, min(0.1 * nats, missing / UNSURE))
            if value > self.value:
                if not is_best:
                    self.inner_gain = min(max(self.share * (value - self.value), self._least_gain()), INNER_RANGE[1])
                self._keep(vector, ascent, (log_prior, by_theta))
                self._has_stepped = True
        self.evaluations += 1
        columns = {"evaluation": self.evaluations, "inner_iterations": iterations}
        self.options.record(point.elbo, log_prior, point.q.prior, **columns)
        d_theta, d_Z = point.q.gradient(self.training, point.sites, point.target)
        d_parameter = self.coordinates.parameter_gradient(self.training, point)
        return -(point.elbo + log_prior), -self.coordinates.pack_gradient(d_theta + by_theta, d_Z, d_parameter)


def profile(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """Maximise the profiled bound over kernel parameters and inducing points by L-BFGS.

    The inner tolerance follows the outer gain; a failed line search tightens it and restarts.
    """
    function = ProfiledBound(training, site, start, options)
    if function.coordinates.is_empty:
        return Outcome(function.point, 0)
    max_iter, n_iter, least, problem = options.max_iter, 0, least_bound(training), None
    # Where inducing points move, gains may be small for long.
    good = -np.inf if function.coordinates.learn_inducing else -of_frequencies(training) - SHOWN
    for _ in range(RESTARTS + 1):
        start_value = function.value
        limits, at_most = function.coordinates.limits, (max_iter - n_iter, 2 * max_iter)
        end, status = minimise(function, function.vector, limits, options.tol, *at_most, least, good)
        n_iter, gain = n_iter + end.nit, function.value - start_value
        # An optimizer that is stuck with nothing left to gain has converged.
        if status in ("flat", "line search") and is_small(gain, start_value, options.tol):
            status = "converged"
        confirmed = options.tol >= PRECISE or gain < PATIENCE * options.tol * max(least, abs(start_value))
        if status == "converged" and function.solved and confirmed:
            return Outcome(function.point, n_iter)
        if n_iter >= max_iter or status == "max_iter":
            limit = "" if n_iter >= max_iter else "twice max_iter evaluations were"
            return Outcome(function.point, n_iter, options.too_few("the optimizer", limit))
        function.tightening *= 0.1
        problem = f"the optimizer's line search failed after {n_iter} iterations"
        if status == "converged":
            problem = f"the optimizer could not confirm tol={options.tol:g}: ascents of the posterior are too slow"
    return Outcome(function.point, n_iter, problem)
