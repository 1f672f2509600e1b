"""Scores of pairs whose preference could be asked for.

References
----------
.. [1] Houlsby, Huszar, Ghahramani, Lengyel. Bayesian active learning for classification and preference learning.
   2011, arXiv 1112.5745.
.. [2] Astudillo, Lin, Bakshy, Frazier. qEUBO: a decision-theoretic acquisition function for preferential Bayesian
   optimization. AISTATS 2023.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..preference import GPPreference
from .labels import SCORES, SLOPES, Link, Scores
from .trials import expected_improvement


def pair_information(model: GPPreference, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> Scores:
    """Mutual information (n,), in nats, of the latent function and which row of each pair is preferred ([1]_).

    Row i of A (n, d) is compared with row i of B (n, d). High scores are for pairs whose comparison teaches most about
    the latent function anywhere. With ``return_grad`` the gradient (n, 2, d) by the rows of A and of B follows.
    """
    _check(model)
    mean, variance, *by_x = model.predict_difference(A, B, return_grad)
    link, name = Link(model._record, None, 2), "mutual_information"
    score = SCORES[name](link, mean, variance)
    if not return_grad:
        return score
    slopes = zip(SLOPES[name](link, mean, variance), by_x, strict=True)
    return score, sum(slope[:, None, None] * one for slope, one in slopes)


def expected_best(model: GPPreference, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> Scores:
    """Expected value (n,) of the latent function at the better row of each pair, E[max(f(a), f(b))] ([2]_).

    High scores are for pairs of two good rows, of which one may be much better: to compare these finds the best row.
    The parameters are those of ``pair_information``.
    """
    _check(model)
    mean, variance, *by_x = model.predict_difference(A, B, return_grad)
    std = np.sqrt(variance)
    # E[max(f(a) - f(b), 0)] is an expected improvement.
    if not return_grad:
        return model.predict_latent(B)[0] + expected_improvement(-mean, std, 0.0)
    shape = by_x[0].shape
    by_mean, by_variance = (one.reshape(len(mean), -1) for one in by_x)
    by_std = np.divide(0.5 * by_variance, std[:, None], out=np.zeros_like(by_variance), where=std[:, None] > 0.0)
    more, gradient = expected_improvement(-mean, std, 0.0, True, -by_mean, by_std)
    at_b, _, by_b, _ = model.predict_latent(B, return_grad=True)
    gradient = gradient.reshape(shape)
    gradient[:, 1] += by_b
    return at_b + more, gradient


def _check(model: object) -> None:
    if not isinstance(model, GPPreference):
        raise ValueError(f"model must be a fitted GPPreference; got {type(model).__name__}.")
