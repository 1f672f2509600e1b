"""Scores of settings to try in Bayesian optimisation, which may fail.

References
----------
.. [1] Jones, Schonlau, Welch. Efficient global optimization of expensive black-box functions. Journal of Global
   Optimization 13, 1998. Equation (15).
.. [2] Gardner, Kusner, Xu, Weinberger, Cunningham. Bayesian optimization with inequality constraints. ICML 2014.
   Equation (5).
.. [3] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for Bayesian
   optimization. NeurIPS 2023. Section 4: why to take the logarithm.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, ndtr, ndtri
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length

from ..config import PROBABILITY, Rule, is_number
from ..data.checks import numbers_of
from ..metrics import check_classifier
from ..names import shown
from ..ranges import LARGEST_TO_SQUARE, small_is_zero
from .labels import Scores, latent, likelihood_of, log_probabilities, of_deviation, with_gradient

# Of mean and standard deviation by x, each (n, d).
Gradients = tuple[ArrayLike | None, ArrayLike | None]
# Improvements this many standard deviations away are sums of a series: rounding would cost a difference more digits.
FAR = 100.0


def column_of_label(model: BaseEstimator, name: str, label: object) -> int:
    """Position of a label, given as the argument ``name``, in ``classes_``; ValueError if the model lacks it."""
    check_classifier(model)
    classes = np.asarray(model.classes_).tolist()
    # An array cannot be compared.
    if getattr(label, "ndim", 0) or label not in classes:
        raise ValueError(f"{name} must be one of the labels {classes}; got {shown(label)}.")
    return classes.index(label)


@small_is_zero
def probability_of_feasibility(
    model: BaseEstimator, X: ArrayLike, feasible: object, return_grad: bool = False, quantile: float | None = None
) -> Scores:
    """Probability (n,) that the label at each row of X (n, d) is ``feasible``.

    Parameters
    ----------
    model : fitted classifier
        Any, but a GPClassifier or BayesianLinearClassifier with ``return_grad`` or ``quantile``.
    X : (n, d) array or data frame
    feasible : label
        One of ``classes_``.
    return_grad : bool, default=False
        Whether the gradient (n, d) by X follows, of models whose ``predict_proba`` has it.
    quantile : float or None, default=None
        None: the mean over the posterior of the latent function, which is the probability of the label. A number above
        0 and below 1: this quantile of the probability given the latent function; below 1/2 it is a cautious one, and
        falls where little is known. Only for two classes, and the first and last of ordered ones.

    Raises
    ------
    ValueError
        If ``model`` lacks the label, or what the parameters need.

    Notes
    -----
    An optimiser looks for rows where a score is too high. Those that it chooses therefore work less often than their
    mean probability says, the more so if the classifier learned its kernel from few rows.
    """
    return _exponential(log_probability_of_feasibility(model, X, feasible, return_grad, quantile))


def _exponential(score: Scores) -> Scores:
    """A score from its logarithm, with the gradient if that of the logarithm is given."""
    if not isinstance(score, tuple):
        return np.exp(score)
    value = np.exp(score[0])
    return value, value[:, None] * score[1]


@small_is_zero
def log_probability_of_feasibility(
    model: BaseEstimator, X: ArrayLike, feasible: object, return_grad: bool = False, quantile: float | None = None
) -> Scores:
    """Logarithm (n,) of ``probability_of_feasibility``, which stays accurate where that underflows.

    The parameters are the same. Where the probability underflows, its gradient counts as 0.
    """
    column = column_of_label(model, "feasible", feasible)
    if quantile is None and not return_grad:
        return log_probabilities(model, X)[:, column]
    record = likelihood_of(model)
    if quantile is None:
        mean, variance, *by_x = model.predict_latent(X, return_grad=True)
        gradient = record.probability_gradients(mean, variance, by_x)[:, column]
        return _of_logarithm(record.log_probabilities(mean, variance)[:, column], gradient)
    PROBABILITY.check("quantile", quantile)
    level = int(record.levels(np.array(column)))
    if record.is_multi_class or 0 < level < len(model.classes_) - 1:
        raise ValueError(
            "quantile is for two classes and the first and last of ordered ones, whose probabilities rise or fall with "
            f"one latent function; got feasible={shown(model.classes_[column])} of {model.classes_.tolist()} with "
            f"likelihood={record.likelihood!r}. Leave quantile=None, or fit to two classes."
        )
    mean, std, *by_x = of_deviation(*latent(model, X, return_grad))
    z = ndtri(quantile) if level else -ndtri(quantile)
    value = mean + z * std
    log_p = record.log_probabilities_given(value)[:, column]
    if not return_grad:
        return log_p
    slope = record.probability_slopes(value, np.zeros_like(value))[0][:, column]
    return _of_logarithm(log_p, slope * (by_x[0] + z * by_x[1]))


def _of_logarithm(log_p: np.ndarray, gradient: np.ndarray) -> Scores:
    """The logarithm of a probability and its gradient, from that of the probability."""
    p = np.exp(log_p)[:, None]
    return log_p, np.divide(gradient, p, out=np.zeros_like(gradient), where=p > 0.0)


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
    return _improvement(mean_gain, mean, std, best, (mean_grad, std_grad) if return_grad else None)


@small_is_zero
def log_expected_improvement(
    mean: ArrayLike,
    std: ArrayLike,
    best: float,
    return_grad: bool = False,
    mean_grad: ArrayLike | None = None,
    std_grad: ArrayLike | None = None,
) -> Scores:
    """Logarithm (n,) of ``expected_improvement``, with the same parameters.

    Where the mean is far above ``best``, expected improvement underflows together with its gradient, and an optimiser
    that starts there does not move; the logarithm has a slope ([3]_). It is minus infinity, with the gradient 0, where
    ``std`` is 0 and ``mean`` is not below ``best``.
    """
    return _improvement(_log_mean_gain, mean, std, best, (mean_grad, std_grad) if return_grad else None)


def _improvement(
    score: Callable[..., tuple[np.ndarray, ...]], mean: ArrayLike, std: ArrayLike, best: float, by_x: Gradients | None
) -> Scores:
    """A score (n,) of gain and deviation, which also returns its slopes by these. With ``by_x`` a gradient follows."""
    Rule(is_number, "a number, the least value of the objective at a feasible setting").check("best", best)
    mean, std = numbers_of(mean, "mean must be an array of numbers"), numbers_of(std, "std must be an array of numbers")
    if mean.ndim != 1 or mean.shape != std.shape:
        raise ValueError(f"mean and std must be (n,), a number for each row; got {mean.shape} and {std.shape}.")
    if not (np.all(np.isfinite(mean)) and np.all(std >= 0.0) and np.isfinite(best)):
        raise ValueError(f"mean and best must be finite, and std 0 or more; got {mean}, {best} and {std}.")
    value, *slopes = score(best - mean, std)
    if by_x is None:
        return value
    if by_x[0] is None or by_x[1] is None:
        raise ValueError("return_grad=True needs the gradients of the predictions by x: give mean_grad and std_grad.")
    words = "mean_grad and std_grad must be arrays of numbers"
    by_mean, by_std = numbers_of(by_x[0], words), numbers_of(by_x[1], words)
    if by_mean.ndim != 2 or by_mean.shape != by_std.shape or len(by_mean) != len(mean):
        shapes = f"{by_mean.shape} and {by_std.shape}"
        raise ValueError(f"mean_grad and std_grad must be (n, d) with n = {len(mean)}; got {shapes}.")
    return with_gradient(value, slopes, (-by_mean, by_std))


def mean_gain(gain: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, ...]:
    """E[max(g, 0)] (n,) for g ~ N(gain, std^2), which is expected improvement, and its slopes by gain and deviation."""
    z = np.divide(gain, std, out=np.where(gain > 0.0, np.inf, -np.inf), where=std > 0.0)
    density = np.exp(-0.5 * np.clip(z, -LARGEST_TO_SQUARE, LARGEST_TO_SQUARE) ** 2) / np.sqrt(2.0 * np.pi)
    return np.maximum(gain * ndtr(z) + std * density, 0.0), ndtr(z), density


def _log_mean_gain(gain: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, ...]:
    """The logarithm of ``mean_gain``, and its slopes by gain and deviation.

    The improvement for a standard deviation of 1 is h = phi + z Phi. Below 0, h = phi (1 - a M), with a = -z and the
    Mills ratio M = Phi / phi. The difference is the series 1 / a^2 - 3 / a^4 + 15 / a^6 - ... far below.
    """
    is_known = std == 0.0
    # What is known improves by its gain.
    z = np.maximum(np.divide(gain, std, out=np.zeros_like(std), where=~is_known), -LARGEST_TO_SQUARE)
    scale = np.where(is_known, np.maximum(gain, 0.0), std)
    a, is_low = np.maximum(-z, 0.0), z < 0.0
    mills, s = np.sqrt(0.5 * np.pi) * erfcx(a / np.sqrt(2.0)), np.maximum(a, FAR) ** -2.0
    difference = np.where(a < FAR, 1.0 - a * mills, s * (1.0 - 3.0 * s * (1.0 - 5.0 * s * (1.0 - 7.0 * s))))
    log_phi = -0.5 * np.minimum(z, LARGEST_TO_SQUARE) ** 2 - 0.5 * np.log(2.0 * np.pi)
    unit = np.where(is_low, difference, np.exp(log_phi) + z * ndtr(z))
    with np.errstate(divide="ignore"):
        value = np.log(scale) + np.where(is_known, 0.0, np.log(unit) + np.where(is_low, log_phi, 0.0))
    by_gain = np.where(is_known, 1.0, np.where(is_low, mills, ndtr(z)) / unit)
    by_std = np.where(is_known, 0.0, np.where(is_low, 1.0, np.exp(log_phi)) / unit)
    return value, *np.divide([by_gain, by_std], scale, out=np.zeros((2, len(std))), where=scale > 0.0)


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
    quantile: float | None = None,
) -> Scores:
    """Expected improvement (n,) times the probability that a setting is feasible ([2]_).

    Parameters
    ----------
    model, X, feasible, quantile : as for ``probability_of_feasibility``
    mean, std : as for ``expected_improvement``, at the rows of X
    best : float
        As for ``expected_improvement``, or infinity if no setting is known to be feasible. The function then returns
        the probability of feasibility, to which score / ``best`` tends for large ``best``.
    return_grad, mean_grad, std_grad : as for ``expected_improvement``; the last two are not needed for infinite best
    """
    arguments = model, X, feasible, mean, std, best, return_grad, mean_grad, std_grad, quantile
    return _exponential(log_constrained_expected_improvement(*arguments))


@small_is_zero
def log_constrained_expected_improvement(
    model: BaseEstimator,
    X: ArrayLike,
    feasible: object,
    mean: ArrayLike,
    std: ArrayLike,
    best: float,
    return_grad: bool = False,
    mean_grad: ArrayLike | None = None,
    std_grad: ArrayLike | None = None,
    quantile: float | None = None,
) -> Scores:
    """Logarithm (n,) of ``constrained_expected_improvement``, with the same parameters.

    It is the sum of ``log_expected_improvement`` and ``log_probability_of_feasibility``.
    """
    words = "a number, the least value at a feasible setting, or infinity (math.inf) where none is known yet"
    Rule(is_number, words).check("best", best)
    score = log_probability_of_feasibility(model, X, feasible, return_grad, quantile)
    nothing_feasible = best == np.inf
    limits = (0.0, False) if nothing_feasible else (best, return_grad)
    improvement = log_expected_improvement(mean, std, *limits, mean_grad, std_grad)
    check_consistent_length(mean, score[0] if return_grad else score)
    if nothing_feasible:
        return score
    if return_grad and improvement[1].shape != score[1].shape:
        raise ValueError(f"mean_grad and std_grad must be {score[1].shape}, as X is; got {improvement[1].shape}.")
    return tuple(a + b for a, b in zip(score, improvement, strict=True)) if return_grad else score + improvement
