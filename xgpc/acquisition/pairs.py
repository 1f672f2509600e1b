"""Scores of pairs whose preference could be asked for.

References
----------
.. [1] Houlsby, Huszar, Ghahramani, Lengyel. Bayesian active learning for classification and preference learning.
   2011, arXiv 1112.5745.
.. [2] Astudillo, Lin, Bakshy, Frazier. qEUBO: a decision-theoretic acquisition function for preferential Bayesian
   optimization. AISTATS 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from ..preference import GPPreference
from .labels import Scores, of_deviation, score_of_latent
from .trials import expected_improvement


def pair_information(model: GPPreference, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> Scores:
    """Mutual information (n,), in nats, of the latent function and which row of each pair is preferred ([1]_).

    Row i of A (n, d) is compared with row i of B (n, d). High scores are for pairs whose comparison teaches most about
    the latent function anywhere. With ``return_grad`` the gradient (n, 2, d) by the rows of A and of B follows.
    """
    _check(model)
    score = partial(score_of_latent, "mutual_information", model._record)
    return _of_difference(score, *model.predict_difference(A, B, return_grad))


def expected_best(model: GPPreference, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> Scores:
    """Expected value (n,) of the latent function at the better row of each pair, E[max(f(a), f(b))] ([2]_).

    High scores are for pairs of two good rows, of which one may be much better: to compare these finds the best row.
    The parameters are those of ``pair_information``.
    """
    _check(model)

    # E[max(f(a) - f(b), 0)] is an expected improvement.
    def improvement(*difference: np.ndarray) -> Scores:
        mean, std, *by_x = of_deviation(*difference)
        return expected_improvement(-mean, std, 0.0, bool(by_x), *([-by_x[0], by_x[1]] if by_x else ()))

    score = _of_difference(improvement, *model.predict_difference(A, B, return_grad))
    if not return_grad:
        return model.predict_latent(B)[0] + score
    at_b, _, by_b, _ = model.predict_latent(B, return_grad=True)
    score[1][:, 1] += by_b
    return at_b + score[0], score[1]


def _of_difference(score: Callable[..., Scores], mean: np.ndarray, variance: np.ndarray, *by_x: np.ndarray) -> Scores:
    """A score of the moments of f(a) - f(b), whose gradients are (n, 2, d)."""
    if not by_x:
        return score(mean, variance)
    value, gradient = score(mean, variance, *(by.reshape(len(mean), -1) for by in by_x))
    return value, gradient.reshape(by_x[0].shape)


def _check(model: object) -> None:
    if not isinstance(model, GPPreference):
        raise ValueError(f"model must be a fitted GPPreference; got {type(model).__name__}.")
