"""Learning kernel parameters and inducing points: L-BFGS on the profiled bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from . import _engine
from .inducing import mean_and_scale
from .inference import History, Passes, coordinate_ascent, is_small, tolerance_unit
from .kernels import KernelGradient
from .posterior import Prior, SparsePosterior

# Inner solves stop at this share of the latest outer gain: the objective's noise then stays below what the line search
# looks at. Bounded so that first steps are not wasted on precision and last ones not on round-off.
INNER_SHARE = 0.02
INNER_RANGE = (1e-4, 1.0)
# More than the exact bound needs from cold; Polya-Gamma's slow tail is left to the next evaluation's warm start.
INNER_MAX_ITER = 30
# Tenfold tighter inner solves after a line search that failed, at most so often.
RESTARTS = 3
# L-BFGS stops at a relative gain of the bound per row of ``tol`` times this (1e-6 by default: some hundredths of a nat
# for ten thousand rows), or at a gradient that is round-off; twenty pairs serve the many inducing coordinates.
FTOL_SHARE = 1e-2
GTOL = 1e-8
MEMORY = 20


def bound_gradient(
    passes: Passes, q: SparsePosterior, target: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the bound at fixed q(u), which at q's optimum is that of the profiled bound.

    Parameters
    ----------
    passes : holds the marginals and sites under q
    target : natural parameters (P, h) of the unit step from q

    Returns
    -------
    (n_theta,) and (m, d) arrays, the gradients by the kernel's ``theta`` and by the inducing points

    Notes
    -----
    With S = P_target - I, e = h_target - S w and everything in whitened coordinates,
    dF/dK_nm = (r - lambda m) alpha^T + Lambda A (I - P^-1) L^-1 and
    dF/dK_mm = -L^-T [e w^T + w e^T - w w^T + S - P^-1 S - S P^-1 - P^-1 + I] L^-1 / 2;
    at the optimum, where e = w and S = P - I, the textbook form. O(n m^2 + n m d + m^3).
    """
    prior, w = q.prior, q.w
    P_inverse = q.Rinv.T @ q.Rinv
    lower = np.tril(target[0])
    S = lower + np.tril(lower, -1).T
    S[np.diag_indices_from(S)] -= 1.0
    e = target[1] - S @ w
    PS = P_inverse @ S
    identity = np.eye(len(w))
    inner = np.outer(e, w) + np.outer(w, e) - np.outer(w, w) + S - PS - PS.T - P_inverse + identity
    G = np.ascontiguousarray(-0.5 * prior.Linv.T @ inner @ prior.Linv)
    M = np.ascontiguousarray((identity - P_inverse) @ prior.Linv)
    cross = passes.gradient(q, M, prior.Linv.T @ w)
    gram = KernelGradient.empty(prior.core)
    _engine.gradient_of_gram(prior.core, prior.Z, G, gram.sums, gram.products, gram.squares)
    diagonal = -0.5 * float(np.sum(passes.precision))
    return prior.spec.gradient(prior.core, prior.Z, cross, gram, diagonal, prior.jitter * float(np.trace(G)))


@dataclass
class Evaluation:
    """One value of the profiled bound and what the next evaluation starts from."""

    parameters: np.ndarray
    elbo: float
    q: SparsePosterior
    precision: np.ndarray
    linear: np.ndarray


class ProfiledBound:
    """theta, Z -> max_q F(theta, Z, q) and its gradient; keeps the best evaluation.

    Parameters
    ----------
    passes, site : the data and the bound
    start : SparsePosterior
        Gives kernel, inducing points and the first sites.
    learn_inducing : bool
    history : History

    Notes
    -----
    Parameters are log kernel parameters and, if learned, the inducing points in units of their standard deviation.
    """

    def __init__(self, passes: Passes, site: int, start: SparsePosterior, learn_inducing: bool, history: History):
        self.passes, self.site, self.history = passes, site, history
        self.spec, self.Z = start.prior.spec, start.prior.Z
        self.n_theta = self.spec.kernel.n_dims
        self.unit = mean_and_scale(self.Z, np.ones(len(self.Z)))[1]
        self.learn_inducing = learn_inducing
        self.total_weight = float(np.sum(passes.weight)) if len(passes.weight) else float(len(passes.y))
        # Nats that an inner solve may leave, and what failed line searches have tightened them by.
        self.inner_gain, self.tightening = INNER_RANGE[1], 1.0
        q, elbo, *_ = coordinate_ascent(
            passes, start, site, tol=self.inner_gain, max_iter=INNER_MAX_ITER, history=History()
        )
        self.best = Evaluation(self.pack(start.prior), elbo, q, passes.precision.copy(), passes.linear.copy())
        self.evaluations = 0

    def pack(self, prior: Prior) -> np.ndarray:
        Z = (prior.Z / self.unit).ravel() if self.learn_inducing else np.empty(0)
        return np.concatenate([prior.spec.kernel.theta, Z])

    def bounds(self) -> list[tuple[float | None, float | None]]:
        limits = [(float(low), float(high)) for low, high in self.spec.kernel.bounds] if self.n_theta else []
        return limits + [(None, None)] * (len(self.best.parameters) - self.n_theta)

    def __call__(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative bound per unit of weight and its gradient, for a minimiser."""
        passes, best, n = self.passes, self.best, self.total_weight
        Z = parameters[self.n_theta :].reshape(self.Z.shape) * self.unit if self.learn_inducing else self.Z
        # A step so long that the kernel matrix fails is answered by a value the line search turns back from.
        refused = 10.0 + abs(2.0 * best.elbo / n), np.zeros_like(parameters)
        try:
            prior = Prior.build(self.spec.with_theta(parameters[: self.n_theta]), Z)
        except ValueError:
            return refused
        passes.precision[:], passes.linear[:] = best.precision, best.linear
        q = SparsePosterior.from_natural(prior, *passes.statistics(prior))
        if q is None:
            return refused
        inner_tol = self.inner_gain * self.tightening / tolerance_unit(best.elbo)
        q, elbo, iterations, _ = coordinate_ascent(
            passes, q, self.site, tol=inner_tol, max_iter=INNER_MAX_ITER, history=History()
        )
        d_theta, d_Z = bound_gradient(passes, q, passes.target)
        self.evaluations += 1
        if elbo > best.elbo:
            if not np.array_equal(parameters, best.parameters):
                self.inner_gain = float(np.clip(INNER_SHARE * (elbo - best.elbo), *INNER_RANGE))
            self.best = Evaluation(parameters.copy(), elbo, q, passes.precision.copy(), passes.linear.copy())
        self.history.add(evaluation=self.evaluations, elbo=elbo, inner_iterations=iterations)
        gradient = np.concatenate([d_theta, (d_Z * self.unit).ravel() if self.learn_inducing else np.empty(0)])
        return -elbo / n, -gradient / n


def profile(
    passes: Passes,
    start: SparsePosterior,
    site: int,
    *,
    learn_inducing: bool,
    tol: float,
    max_iter: int,
    history: History,
) -> tuple[SparsePosterior, int, str | None]:
    """Maximise the profiled bound over kernel parameters and inducing points by L-BFGS.

    The inner tolerance follows the outer progress; a failed line search tightens it and restarts.

    Returns
    -------
    q, n_iter, problem
        q at the best parameters found; ``n_iter`` counts L-BFGS iterations; None, or why it stopped short.
    """
    objective = ProfiledBound(passes, site, start, learn_inducing, history)
    if not len(objective.best.parameters):
        return objective.best.q, 0, None
    n_iter = 0
    for _ in range(RESTARTS + 1):
        before = objective.best.elbo
        result = minimize(
            objective,
            objective.best.parameters,
            jac=True,
            method="L-BFGS-B",
            bounds=objective.bounds(),
            options={
                "maxiter": max_iter - n_iter,
                "maxfun": 2 * max_iter,
                "ftol": FTOL_SHARE * tol,
                "gtol": GTOL,
                "maxcor": MEMORY,
            },
        )
        n_iter += result.nit
        # A line search that fails where there is nothing left to gain has arrived, too.
        arrived = is_small(objective.best.elbo - before, before, tol)
        if result.status == 0 or (result.status == 2 and arrived):
            return objective.best.q, n_iter, None
        if n_iter >= max_iter or result.status == 1:
            limit = f"max_iter={max_iter} was" if n_iter >= max_iter else "twice max_iter evaluations were"
            return objective.best.q, n_iter, f"{limit} reached before tol={tol:g} by the optimizer"
        objective.tightening *= 0.1
    return objective.best.q, n_iter, f"the optimizer's line search failed after {n_iter} iterations"
