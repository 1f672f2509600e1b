"""L-BFGS on the profiled bound, with gradients by kernel parameters and inducing points."""

from __future__ import annotations

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, Training
from ..inference.ascent import ROUND_OFF, Ascent, coordinate_ascent, is_small, proper_posterior, tolerance_unit
from ..inference.history import History
from .optimizer import LEAST_BOUND, PATIENCE, Coordinates, Options, Outcome, lbfgs, least_bound, refused

# An inner solve stops at this share of the latest outer gain, so that its error does not disturb the line search; the
# range avoids wasted precision in the first steps and the last.
INNER_SHARE, INNER_RANGE = 0.02, (1e-4, 1.0)
# Below this ``tol``, inexact gradients would spoil L-BFGS's curvature estimates: inner solves use a smaller share, and
# a fresh start must confirm convergence.
PRECISE, PRECISE_SHARE = 1e-5, 0.005
# Slow ascents can still gain up to this many times their last gain, so an inner solve continues while its bound is
# below the best by less than that.
UNSURE = 10.0
# Nats for each row that the first inner solve may leave.
START_SHARE = 1e-3
# More iterations than the exact bound needs from a cold start; later evaluations continue Polya-Gamma's slow tail.
INNER_MAX_ITER = 30
# If the optimizer fails, it restarts with tenfold tighter and longer inner solves, at most this many times.
RESTARTS = 3


class ProfiledBound:
    """The profiled bound max_q F(theta, Z, q) + log p(theta) and its gradient; keeps the best evaluation.

    ``start`` gives kernel, inducing points and the first sites.

    Attributes
    ----------
    vector, point, value : the best evaluation; the next one starts from its sites
    solved : whether its inner solve converged
    first_rate : best length of the first step of the last inner solve; the next inner solve starts with it
    """

    def __init__(self, training: Training, site: Site, start: KernelPosterior, options: Options):
        self.training, self.options = training, options
        self.share = INNER_SHARE if options.tol >= PRECISE else PRECISE_SHARE
        self.coordinates = Coordinates(start.prior, options.learn_inducing)
        # Nats that an inner solve may leave, and the factor by which failures of the optimizer have tightened them.
        self.inner_gain, self.tightening = float(np.clip(START_SHARE * training.total_weight, *INNER_RANGE)), 1.0
        ascent = coordinate_ascent(
            training, start, site, tol=self.inner_gain, max_iter=INNER_MAX_ITER, history=History()
        )
        self.first_rate, self.evaluations = ascent.first_rate, 0
        self._keep(self.coordinates.pack(start.prior), ascent)
        # At the prior the gradient vanishes, so a start without any step is solved again.
        self._has_stepped = ascent.n_iter > 0

    def _keep(self, vector: np.ndarray, ascent: Ascent[KernelPosterior]) -> None:
        self.vector, self.point, self.solved = vector.copy(), ascent.point, ascent.converged
        self.value = self.options.value(ascent.point)
        self.options.reached(ascent.q, ascent.point.site, None)

    @property
    def q(self) -> KernelPosterior:
        return self.point.q

    def tighten(self) -> None:
        """Make inner solves ten times more accurate from now on."""
        self.tightening *= 0.1

    def _least_gain(self) -> float:
        """Smallest useful accuracy of an inner solve, in nats: a share of what ``tol`` requires, or round-off."""
        wanted = min(INNER_RANGE[0], self.share * self.options.tol * max(LEAST_BOUND, abs(self.value)))
        return max(wanted * self.tightening, ROUND_OFF * max(1.0, abs(self.value)))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative value in nats and its gradient, for a minimiser.

        The posterior is found accurately enough to tell whether its value exceeds the best.
        """
        is_best, q, site = np.array_equal(vector, self.vector), self.q, self.point.site
        is_known = is_best and self._has_stepped
        point, iterations = self.point, 0
        # At the optimizer's start everything but the gradient is known.
        if self.evaluations or not is_known:
            if not is_known:
                try:
                    prior = self.coordinates.prior(vector)
                except ValueError:
                    return refused(self.value, vector)
                carried = proper_posterior(self.training, self.point.sites, prior)
                if carried is None:
                    return refused(self.value, vector)
                q = carried
            least = self._least_gain()
            # Each further digit of accuracy allows as many iterations again.
            most = round(INNER_MAX_ITER * (1.0 + max(0.0, np.log10(INNER_RANGE[0] / least))))
            nats = max(least, self.inner_gain * self.tightening)
            while True:
                tol, left = nats / tolerance_unit(self.value), most - iterations
                ascent = coordinate_ascent(
                    self.training, q, site, tol=tol, max_iter=left, history=History(), first_rate=self.first_rate
                )
                self.first_rate, point = ascent.first_rate, ascent.point
                q, site, value = point.q, point.site, self.options.value(point)
                iterations += ascent.n_iter
                missing = self.value - value
                if not ascent.converged or nats <= least or not 0.0 < missing < UNSURE * nats:
                    break
                nats = max(least, min(0.1 * nats, missing / UNSURE))
            if value > self.value:
                if not is_best:
                    gain = self.share * (value - self.value)
                    self.inner_gain = float(np.clip(gain, self._least_gain(), INNER_RANGE[1]))
                self._keep(vector, ascent)
                self._has_stepped = True
        self.evaluations += 1
        self.options.record(point.elbo, point.q.prior, evaluation=self.evaluations, inner_iterations=iterations)
        d_theta, d_Z = point.q.gradient(self.training, point.sites, point.target)
        log_prior, by_theta = self.options.log_prior(point.q.prior)
        return -(point.elbo + log_prior), -self.coordinates.pack_gradient(d_theta + by_theta, d_Z)


def profile(training: Training, start: KernelPosterior, site: Site, options: Options) -> Outcome:
    """Maximise the profiled bound over kernel parameters and inducing points by L-BFGS.

    The inner tolerance follows the outer gain; a failed line search tightens it and restarts.
    """
    function = ProfiledBound(training, site, start, options)
    if not len(function.vector):
        return Outcome(function.point, 0)
    max_iter, n_iter, least, problem = options.max_iter, 0, least_bound(training), None
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
            limit = "" if n_iter >= max_iter else "twice max_iter evaluations were"
            return Outcome(function.point, n_iter, options.too_few("the optimizer", limit))
        function.tighten()
        problem = f"the optimizer's line search failed after {n_iter} iterations"
        if status == "converged":
            problem = f"the optimizer could not confirm tol={options.tol:g}: ascents of the posterior are too slow"
    return Outcome(function.point, n_iter, problem)
