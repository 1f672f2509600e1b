"""Scores of settings to try in Bayesian optimisation, which may fail.

References
----------
.. [1] Jones, Schonlau, Welch. Efficient global optimization of expensive black-box functions. Journal of Global
   Optimization 13, 1998. Equation (15).
.. [2] Gardner, Kusner, Xu, Weinberger, Cunningham. Bayesian optimization with inequality constraints. ICML 2014.
   Equation (5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length

from ..config import Rule, is_number
from ..metrics import check_classifier
from ..ranges import small_is_zero
from .labels import Link, Scores


def column_of_label(model: BaseEstimator, name: str, label: object) -> int:
    """Position of a label, given as the argument ``name``, in ``classes_``; ValueError if the model lacks it."""
    check_classifier(model)
    classes = np.asarray(model.classes_).tolist()
    if label not in classes:
        raise ValueError(f"{name} must be one of the labels {classes}; got {label!r}.")
    return classes.index(label)


@small_is_zero
def probability_of_feasibility(
    model: BaseEstimator, X: ArrayLike, feasible: object, return_grad: bool = False
) -> Scores:
    """Probability (n,) that the label at each row of X (n, d) is ``feasible``; ValueError if ``model`` lacks it.

    With ``return_grad`` the gradient (n, d) by X follows, of models whose ``predict_proba`` has it.
    """
    column = column_of_label(model, "feasible", feasible)
    if not return_grad:
        return model.predict_proba(X)[:, column]
    Link.of(model)
    probability, gradient = model.predict_proba(X, return_grad=True)
    return probability[:, column], gradient[:, column]


@small_is_zero
def expected_improvement(
    mean: ArrayLike,
    std: ArrayLike,
    best: float,
    return_grad: bool = False,
    mean_grad: ArrayLike | None = None,
    std_grad: ArrayLike | None = None,
) -> Scores:
    """Expected improvement (n,) E[max(best - f, 0)], f ~ N(mean, std^2), of an objective to minimise ([1]_).

    Parameters
    ----------
    mean, std : (n,) arrays
        Predictions of the objective, for instance by scikit-learn's GaussianProcessRegressor. To maximise, give -mean
        and -best.
    best : float
        The least known value of the objective at a feasible setting.
    return_grad : bool, default=False
        Whether the gradient (n, d) by x follows, from those of the predictions.
    mean_grad, std_grad : (n, d) arrays
        Gradients of ``mean`` and ``std`` by x, with ``return_grad``.
    """
    Rule(is_number, "a number, the least value of the objective at a feasible setting").check("best", best)
    mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
    if mean.ndim != 1 or mean.shape != std.shape:
        raise ValueError(f"mean and std must be (n,), a number for each row; got {mean.shape} and {std.shape}.")
    if not (np.all(np.isfinite(mean)) and np.all(std >= 0.0) and np.isfinite(best)):
        raise ValueError(f"mean and best must be finite, and std 0 or more; got {mean}, {best} and {std}.")
    gain = best - mean
    z = np.divide(gain, std, out=np.where(gain > 0.0, np.inf, -np.inf), where=std > 0.0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    improvement = np.maximum(gain * ndtr(z) + std * density, 0.0)
    if not return_grad:
        return improvement
    if mean_grad is None or std_grad is None:
        raise ValueError("return_grad=True needs the gradients of the predictions by x: give mean_grad and std_grad.")
    by_mean, by_std = np.asarray(mean_grad, dtype=np.float64), np.asarray(std_grad, dtype=np.float64)
    if by_mean.ndim != 2 or by_mean.shape != by_std.shape or len(by_mean) != len(mean):
        raise ValueError(
            f"mean_grad and std_grad must be (n, d) with n = {len(mean)}; got {by_mean.shape} and {by_std.shape}."
        )
    return improvement, density[:, None] * by_std - ndtr(z)[:, None] * by_mean


@small_is_zero
def constrained_expected_improvement(
    model: BaseEstimator,
    X: ArrayLike,
    feasible: object,
    mean: ArrayLike,
    std: ArrayLike,
    best: float,
    return_grad: bool = False,
    mean_grad: ArrayLike | None = None,
    std_grad: ArrayLike | None = None,
) -> Scores:
    """Expected improvement (n,) times the probability that a setting is feasible ([2]_).

    Parameters
    ----------
    model, X, feasible : as for ``probability_of_feasibility``
    mean, std : as for ``expected_improvement``, at the rows of X
    best : float
        As for ``expected_improvement``, or infinity if no setting is known to be feasible. The function then returns
        the probability of feasibility, to which score / ``best`` tends for large ``best``.
    return_grad, mean_grad, std_grad : as for ``expected_improvement``; the last two are not needed for infinite best
    """
    words = "a number, the least value at a feasible setting, or infinity (math.inf) where none is known yet"
    Rule(is_number, words).check("best", best)
    probability = probability_of_feasibility(model, X, feasible, return_grad)
    nothing_feasible = best == np.inf
    is_improved = return_grad and not nothing_feasible
    improvement = expected_improvement(mean, std, 0.0 if nothing_feasible else best, is_improved, mean_grad, std_grad)
    check_consistent_length(mean, probability[0] if return_grad else probability)
    if nothing_feasible:
        return probability
    if not return_grad:
        return improvement * probability
    (p, by_p), (value, by_value) = probability, improvement
    return value * p, value[:, None] * by_p + p[:, None] * by_value
