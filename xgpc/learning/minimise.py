"""L-BFGS, ended by what its latest iterations have gained together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from ..likelihoods.coordinates import Limits

# Iterations over which the test of convergence averages the gain: after one that gains little, others may gain more. A
# value below ``good`` needs fewer. (With five there, NLL of 20 sets of 30, 60 and 100 rows is the same to .0005, and
# fits take a tenth longer. With three at any value, some fits end at the class frequencies. With two, learning with
# neighbours ended too early: NLL of magic, three splits, was .2859, and .2850 with three.)
PATIENCE, SHORT_PATIENCE = 5, 3
# L-BFGS's own test looks at single iterations, so it is set to round-off.
FTOL, GTOL = 1e-12, 1e-6
# Pairs of steps and gradients that L-BFGS keeps; inducing points make many coordinates.
MEMORY = 20


def minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    limits: Limits | np.ndarray,
    tol: float,
    max_iter: int,
    max_evaluations: int,
    least: float = 0.0,
    good: float = -np.inf,
) -> tuple[OptimizeResult, str]:
    """Minimise a function until some iterations gain less than ``tol * max(least, |value|)`` on average:
    ``SHORT_PATIENCE`` if the value is below ``good``, else ``PATIENCE``.

    Returns SciPy's result, and how it ended: "converged", "max_iter", "line search" (it failed), or "flat" if the value
    no longer changes but the gradient is not zero.
    """
    recent: deque[float] = deque(maxlen=PATIENCE + 1)

    def look(*, intermediate_result: OptimizeResult) -> None:
        recent.append(value := float(intermediate_result.fun))
        n = SHORT_PATIENCE if value < good else PATIENCE
        if len(recent) > n and recent[-n - 1] - value < n * tol * max(least, abs(value)):
            raise StopIteration

    options = {"maxiter": max_iter, "maxfun": max_evaluations, "ftol": FTOL, "gtol": GTOL, "maxcor": MEMORY}
    result = minimize(function, start, jac=True, method="L-BFGS-B", bounds=limits, callback=look, options=options)
    # Status 99 is a callback that stopped, status 1 a limit.
    status = {1: "max_iter", 99: "converged"}.get(result.status, "line search")
    if result.status == 0:
        # Status 0 also follows a failed line search, even at a value above the start: so the gradient is tested here.
        low, high = np.array(limits, dtype=float).T
        steepest = np.clip(result.x - result.jac, np.fmax(low, -np.inf), np.fmin(high, np.inf)) - result.x
        status = "converged" if np.max(np.abs(steepest)) <= GTOL else "flat"
    return result, status
