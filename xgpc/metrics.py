"""Scores of probabilistic predictions that scikit-learn does not have, and the usual ones together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import brier_score_loss, roc_auc_score


def check_outcomes(y_true: ArrayLike, probability: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes as booleans (n,) and probabilities as floats (n,).

    Raises
    ------
    ValueError
        For other outcomes than 0 and 1, probabilities outside [0, 1], or lengths that differ or are zero.
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
        raise ValueError("probability must be between 0 and 1: that of y_true = 1, model.predict_proba(X)[:, 1].")
    return outcome.astype(bool), p


def expected_calibration_error(y_true: ArrayLike, probability: ArrayLike, n_bins: int = 10) -> float:
    """Expected calibration error of binary predictions.

    The confidence of a prediction is the probability max(p, 1 - p) of the predicted class. Over bins of the confidence,
    of equal width in (0, 1], the error is the average of |accuracy - mean confidence|, weighted by the number of rows:
    equations (2) and (5) of [1]_. Two classes never fill the bins below one half.

    Parameters
    ----------
    y_true : (n,) array of 0 and 1, or of booleans
    probability : (n,) array
        Probability p of the outcome 1.
    n_bins : int, default=10

    Returns
    -------
    float in [0, 1]; 0 is perfect.

    Raises
    ------
    ValueError
        For other outcomes or probabilities, arrays that do not match, or ``n_bins`` below one.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017.

    Examples
    --------
    >>> from xgpc.metrics import expected_calibration_error
    >>> round(expected_calibration_error([1, 1, 1, 0], [0.8, 0.8, 0.8, 0.8]), 3)
    0.05
    """
    outcome, p = check_outcomes(y_true, probability)
    if n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer; got {n_bins!r}.")
    confidence = np.maximum(p, 1.0 - p)
    correct = outcome == (p > 0.5)
    # Bins are closed on the right, as in the paper.
    bins = np.ceil(confidence * n_bins).astype(int) - 1
    gaps = np.bincount(bins, correct - confidence, minlength=n_bins)
    return float(np.sum(np.abs(gaps)) / len(p))


def scores(y_true: ArrayLike, log_probability: ArrayLike) -> dict[str, float]:
    """Scores of binary predictions.

    Parameters
    ----------
    y_true : (n,) array of 0 and 1, or of booleans
    log_probability : (n, 2) array
        As ``GPClassifier.predict_log_proba`` returns it.

    Returns
    -------
    dict
        "error" (share of wrong predictions), "nll" (mean negative log likelihood, nats), "brier" (mean squared error
        of the probability), "auc" (area under the ROC curve, NaN if ``y_true`` has one class) and "ece".
    """
    log_p = np.asarray(log_probability, dtype=np.float64)
    outcome, p = check_outcomes(y_true, np.exp(log_p[:, 1]))
    code = outcome.astype(int)
    # Log odds order the rows where probabilities have rounded to 0 or 1.
    auc = roc_auc_score(code, log_p[:, 1] - log_p[:, 0]) if 0 < np.sum(code) < len(code) else np.nan
    return {
        "error": float(np.mean(np.argmax(log_p, axis=1) != code)),
        "nll": float(-np.mean(log_p[np.arange(len(code)), code])),
        "brier": float(brier_score_loss(code, p, pos_label=1)),
        "auc": float(auc),
        "ece": expected_calibration_error(code, p),
    }
