"""Calibration error, which scikit-learn lacks, and the usual scores of probabilistic predictions in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from .ranges import small_is_zero

# Probabilities of several classes must sum to one within this tolerance.
SUM_TOLERANCE = 1e-6


def check_outcomes(y_true: ArrayLike, probability: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes as booleans (n,) and probabilities as floats (n,).

    Raises ValueError for other outcomes than 0 and 1, probabilities outside [0, 1], and lengths that differ or are 0.
    """
    outcome, p = np.asarray(y_true), np.asarray(probability, dtype=np.float64)
    if outcome.ndim != 1 or outcome.shape != p.shape or not len(p):
        raise ValueError(
            "y_true and probability must be one-dimensional, not empty and of the same length; "
            f"got the shapes {outcome.shape} and {p.shape}."
        )
    if not np.all(np.isin(outcome, (0, 1))):
        raise ValueError("y_true must be 0 or 1 (or False and True); compare labels first: y == model.classes_[1].")
    if not np.all((p >= 0.0) & (p <= 1.0)):
        raise ValueError("probability must be between 0 and 1: P(y_true = 1), model.predict_proba(X)[:, 1].")
    return outcome.astype(bool), p


def check_codes(y_true: ArrayLike, probability: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Positions of classes as integers (n,) and probabilities of the classes as floats (n, C).

    Raises ValueError for positions outside 0 to C - 1, rows that are no probabilities, or lengths that differ or are 0.
    """
    code, p = np.asarray(y_true), np.asarray(probability, dtype=np.float64)
    if code.ndim != 1 or p.ndim != 2 or len(code) != len(p) or not p.size:
        raise ValueError(
            "y_true must be one-dimensional and probability two-dimensional, not empty and of the same length; "
            f"got the shapes {code.shape} and {p.shape}."
        )
    if not np.all(np.isin(code, np.arange(p.shape[1]))):
        raise ValueError(
            f"y_true must be 0 to {p.shape[1] - 1}, positions of the labels in model.classes_, such as "
            "[list(model.classes_).index(label) for label in y]."
        )
    if not (np.all(p >= 0.0) and np.all(np.abs(np.sum(p, axis=1) - 1.0) <= SUM_TOLERANCE)):
        raise ValueError("probability must be (n, C) with rows that sum to one: model.predict_proba(X).")
    return code.astype(np.intp), p


@small_is_zero
def expected_calibration_error(y_true: ArrayLike, probability: ArrayLike, n_bins: int = 10) -> float:
    """Expected calibration error of the predicted class.

    The confidence of a prediction is the probability of the predicted class. Bins divide the confidence in (0, 1] into
    equal widths. The error is the mean absolute difference between accuracy and mean confidence over the bins, weighted
    by the number of rows: equations (2) and (5) of [1]_.

    Parameters
    ----------
    y_true : (n,) array
        0 and 1, or booleans, or positions of the classes, 0 to C - 1.
    probability : (n,) or (n, C) array
        Probability p of the outcome 1, or of all classes, as ``GPClassifier.predict_proba`` returns them.
    n_bins : int, default=10

    Returns
    -------
    float
        In [0, 1]; 0 is perfect.

    Raises
    ------
    ValueError
        As ``check_outcomes`` and ``check_codes``, and for ``n_bins`` below one.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017.

    Examples
    --------
    >>> from xgpc.metrics import expected_calibration_error
    >>> round(expected_calibration_error([1, 1, 1, 0], [0.8, 0.8, 0.8, 0.8]), 3)
    0.05
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer; got {n_bins!r}.")
    if np.ndim(probability) == 2:
        code, p = check_codes(y_true, probability)
        # A probability that rounding has put above one would need another bin.
        confidence = np.minimum(np.max(p, axis=1), 1.0)
        correct = code == np.argmax(p, axis=1)
    else:
        outcome, p = check_outcomes(y_true, probability)
        confidence = np.maximum(p, 1.0 - p)
        correct = outcome == (p > 0.5)
    # Bins are closed on the right, as in the paper.
    bins = np.ceil(confidence * n_bins).astype(int) - 1
    gaps = np.bincount(bins, correct - confidence, minlength=n_bins)
    return float(np.sum(np.abs(gaps)) / len(p))


@small_is_zero
def scores(y_true: ArrayLike, log_probability: ArrayLike) -> dict[str, float]:
    """Scores of predictions for two or more classes.

    Parameters
    ----------
    y_true : (n,) array
        0 and 1, or booleans, or positions of the classes, 0 to C - 1.
    log_probability : (n, C) array
        As ``GPClassifier.predict_log_proba`` returns it.

    Returns
    -------
    dict
        "error": the share of wrong predictions. "nll": the mean negative log likelihood in nats. "brier": the mean
        squared error of the probability, from 0 to 1; for more than two classes, summed over the classes, from 0 to 2.
        "auc": the area under the ROC curve, averaged over each class against the rest for more than two classes; NaN if
        a class has no rows. "ece": the expected calibration error.
    """
    log_p = np.asarray(log_probability, dtype=np.float64)
    if log_p.ndim == 2 and log_p.shape[1] == 2:
        outcome, p = check_outcomes(y_true, np.exp(log_p[:, 1]))
        code = outcome.astype(int)
        brier = brier_score_loss(code, p, pos_label=1)
    else:
        code, p = check_codes(y_true, np.exp(log_p))
        brier = np.sum((p - np.eye(p.shape[1])[code]) ** 2) / len(p)
    return {
        "error": float(np.mean(np.argmax(log_p, axis=1) != code)),
        "nll": float(-np.mean(log_p[np.arange(len(code)), code])),
        "brier": float(brier),
        "auc": _area_under_curve(code, log_p),
        "ece": expected_calibration_error(code, p),
    }


def _area_under_curve(code: np.ndarray, log_p: np.ndarray) -> float:
    """Area under the ROC curve, averaged over each class against the rest; NaN if a class has no rows."""
    n_classes = log_p.shape[1]
    if not np.all(np.bincount(code, minlength=n_classes)):
        return float("nan")
    # Log odds order rows whose probabilities round to 0 or 1.
    areas = [
        roc_auc_score(code == c, log_p[:, c] - logsumexp(np.delete(log_p, c, axis=1), axis=1))
        for c in (range(n_classes) if n_classes > 2 else [1])
    ]
    return float(np.mean(areas))


def check_classifier(model: BaseEstimator, method: str = "predict_proba") -> None:
    """ValueError for a model that is not a classifier with this method; NotFittedError before a fit."""
    check_is_fitted(model)
    missing = [name for name in ("classes_", method) if not hasattr(model, name)]
    if missing:
        lacks = f"{type(model).__name__} has no {' and no '.join(missing)}"
        raise ValueError(f"model must be a fitted classifier with {method}; {lacks}.")
