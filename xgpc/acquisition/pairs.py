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
from sklearn.utils.validation import check_is_fitted

from ..preference import GPPreference
from ..ranges import small_is_zero
from .labels import Scores, of_deviation, score_of_latent, with_gradient
from .trials import mean_gain


@small_is_zero
def pair_information(model: GPPreference, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> Scores:
    """Mutual information (n,), in nats, of the latent function and which row of each pair is preferred ([1]_).

    Row i of A (n, d) is compared with row i of B (n, d). High scores are for pairs whose comparison teaches most about
    the latent function anywhere. With ``return_grad`` the gradient (n, 2, d) by the rows of A and of B follows.
    """
    _check(model)
    return score_of_latent("mutual_information", model._record, *model.predict_difference(A, B, return_grad))


@small_is_zero
def expected_best(model: GPPreference, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> Scores:
    """Expected value (n,) of the latent function at the better row of each pair, E[max(f(a), f(b))] ([2]_).

    High scores are for pairs of two good rows, of which one may be much better: to compare these finds the best row.
    The parameters are those of ``pair_information``. The gradient is NaN for two equal rows, where there is a kink.
    """
    _check(model)
    # The better of two values is that at b plus max(f(a) - f(b), 0).
    mean, std, *by_x = of_deviation(*model.predict_difference(A, B, return_grad))
    gain, *slopes = mean_gain(mean, std)
    at_b, _, *by_b = model.predict_latent(B, return_grad=return_grad)
    score = with_gradient(at_b + gain, slopes, by_x)
    if return_grad:
        score[1][:, 1] += by_b[0]
        # Equal rows have a kink, even if rounding leaves a variance.
        score[1][np.all(np.equal(*np.hsplit(model._pairs(A=A, B=B), 2)), axis=1)] = np.nan
    return score


def _check(model: object) -> None:
    if not isinstance(model, GPPreference):
        raise ValueError(f"model must be a fitted GPPreference; got {type(model).__name__}.")
    check_is_fitted(model)
