"""Calibration error, which scikit-learn lacks, and the usual scores of probabilistic predictions in one call."""

from __future__ import annotations

from reprlib import repr as short
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from scipy.stats import binomtest, rankdata
from sklearn.base import BaseEstimator
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted

from .config import integer
from .names import TwoArrays
from .ranges import small_is_zero

# Probabilities of several classes must sum to one within this tolerance.
SUM_TOLERANCE = 1e-6
# Decimals of log odds: further ones are rounding errors, which would order rows of equal probability.
TIED_DECIMALS = 9


def check_outcomes(y_true: ArrayLike, probability: ArrayLike, pos_label: object = None) -> TwoArrays:
    """Outcomes as booleans (n,) and probabilities as floats (n,).

    The outcome 1 is the label ``pos_label`` of two labels; None stands for 0 and 1, or booleans. Raises ValueError for
    other outcomes, probabilities outside [0, 1], and lengths that differ or are 0.
    """
    outcome, p = np.asarray(y_true), np.asarray(probability, dtype=np.float64)
    if pos_label is not None:
        labels = {*np.unique(outcome).tolist(), pos_label}
        if len(labels) > 2:
            raise ValueError(f"y_true and pos_label must be two labels; got {sorted(labels, key=str)}, {pos_label!r}.")
        outcome = outcome == pos_label
    if outcome.ndim != 1 or outcome.shape != p.shape or not len(p):
        raise ValueError(
            "y_true and probability must be one-dimensional, not empty and of the same length; "
            f"got the shapes {outcome.shape} and {p.shape}."
        )
    if not np.all(np.isin(outcome, (0, 1))):
        raise ValueError(
            "y_true must be 0 or 1 (or False and True), or labels of which pos_label is one, such as model.classes_[1]."
        )
    if not np.all((p >= 0.0) & (p <= 1.0)):
        raise ValueError("probability must be between 0 and 1: P(y_true = 1), model.predict_proba(X)[:, 1].")
    return outcome.astype(bool), p


def class_positions(y: ArrayLike, classes: ArrayLike) -> np.ndarray:
    """Positions (n,) of labels (n,) in classes (C,), in any order; ValueError for labels that are none of them."""
    classes = np.asarray(classes)
    distinct = set(classes.tolist())
    if unknown := [label for label in dict.fromkeys(np.ravel(y).tolist()) if label not in distinct]:
        raise ValueError(
            f"y has labels {short(unknown)} that are not among the model's classes {classes.tolist()}. Leave out rows "
            "of other or missing labels."
        )
    order = np.argsort(classes)
    return order[np.searchsorted(classes, np.asarray(y), sorter=order)]


def check_codes(y_true: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None) -> TwoArrays:
    """Positions of classes as integers (n,) and probabilities of the classes as floats (n, C).

    y_true has labels of ``classes`` (C,) or, with None, positions, 0 to C - 1. Raises ValueError for others, classes
    that are not one for each column, rows that are no probabilities, and lengths that differ or are 0.
    """
    code, p = np.asarray(y_true), np.asarray(probability, dtype=np.float64)
    if code.ndim != 1 or p.ndim != 2 or len(code) != len(p) or not p.size:
        raise ValueError(
            "y_true must be one-dimensional and probability two-dimensional, not empty and of the same length; "
            f"got the shapes {code.shape} and {p.shape}."
        )
    if classes is not None:
        if np.shape(classes) != p.shape[1:] or len(set(np.asarray(classes).tolist())) < p.shape[1]:
            raise ValueError(f"classes must have a label for each of {p.shape[1]} columns, none twice: model.classes_.")
        code = class_positions(code, classes)
    if not np.all(np.isin(code, np.arange(p.shape[1]))):
        raise ValueError(
            f"y_true must be 0 to {p.shape[1] - 1}, positions of the classes; of labels give classes=model.classes_."
        )
    if not (np.all(p >= 0.0) and np.all(np.abs(np.sum(p, axis=1) - 1.0) <= SUM_TOLERANCE)):
        raise ValueError("probability must be between 0 and 1, with rows that sum to one: model.predict_proba(X).")
    return code.astype(np.intp), p


class Bins(NamedTuple):
    """Mean probability, observed frequency, 95 % interval (Wilson) and number of rows of each bin."""

    mean: np.ndarray
    frequency: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, y_true: ArrayLike, probability: ArrayLike, n_bins: int, pos_label: object = None) -> Self:
        """Bins with equal numbers of rows, by their probability; rows of equal probability share a bin."""
        outcome, p = check_outcomes(y_true, probability, pos_label)
        integer(1).check("n_bins", n_bins)
        edges = np.unique(np.quantile(p, np.linspace(0.0, 1.0, n_bins + 1)[1:-1], method="inverted_cdf"))
        _, bins, rows = np.unique(np.searchsorted(edges, p, side="left"), return_inverse=True, return_counts=True)
        positives = np.bincount(bins, outcome).astype(int)
        trials = zip(positives.tolist(), rows.tolist(), strict=True)
        low, high = np.array([binomtest(k, n).proportion_ci(method="wilson") for k, n in trials]).T
        return cls(np.bincount(bins, p) / rows, positives / rows, low, high, rows)


class Gaps(NamedTuple):
    """Sums over the rows of each bin of a probability: outcomes minus it, and the variance of an outcome."""

    hits: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, outcome: np.ndarray, p: np.ndarray, n_bins: int = 10) -> Self:
        # A probability that rounding has put above one would need another bin.
        p = np.minimum(p, 1.0)
        # Bins are closed on the right, as in the paper of ``expected_calibration_error``; the first has 0, too.
        bins = np.maximum(np.ceil(p * n_bins).astype(int) - 1, 0)
        hits = np.bincount(bins, outcome - p, minlength=n_bins)
        return cls(hits, np.bincount(bins, p * (1.0 - p), minlength=n_bins))

    def by_chance(self) -> tuple[float, float]:
        """Mean and standard deviation of the sum of absolute gaps of a calibrated model, which are nearly normal."""
        means, variance = np.sqrt(2 / np.pi * self.variance), (1 - 2 / np.pi) * np.sum(self.variance)
        return float(np.sum(means)), float(np.sqrt(variance))


@small_is_zero
def expected_calibration_error(
    y_true: ArrayLike, probability: ArrayLike, n_bins: int = 10, classes: ArrayLike | None = None
) -> float:
    """Expected calibration error of the predicted class.

    The confidence of a prediction is the probability of the predicted class. Bins divide the confidence in (0, 1] into
    equal widths. The error is the mean absolute difference between accuracy and mean confidence over the bins, weighted
    by the number of rows: equations (2) and (5) of [1]_.

    Parameters
    ----------
    y_true : (n,) array
        0 and 1, or booleans, or positions of the classes, 0 to C - 1, or labels of ``classes``.
    probability : (n,) or (n, C) array
        Probability p of the outcome 1, or of all classes, as ``GPClassifier.predict_proba`` returns them.
    n_bins : int, default=10
    classes : (C,) array, default=None
        The labels of the classes, ``model.classes_``; the second of two is the outcome 1.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect.

    Raises
    ------
    ValueError
        As ``check_codes``, and unless ``n_bins`` is a positive integer.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017.

    Examples
    --------
    >>> from xgpc.metrics import expected_calibration_error
    >>> round(expected_calibration_error([1, 1, 1, 0], [0.8, 0.8, 0.8, 0.8]), 3)
    0.05
    """
    integer(1).check("n_bins", n_bins)
    p = np.asarray(probability, dtype=np.float64)
    code, p = check_codes(y_true, np.column_stack([1.0 - p, p]) if p.ndim == 1 else p, classes)
    return float(np.sum(np.abs(Gaps.of(code == np.argmax(p, axis=1), np.max(p, axis=1), n_bins).hits)) / len(p))


@small_is_zero
def scores(y_true: ArrayLike, log_probability: ArrayLike, classes: ArrayLike | None = None) -> dict[str, float]:
    """Scores of predictions for two or more classes.

    Parameters
    ----------
    y_true : (n,) array
        0 and 1, or booleans, or positions of the classes, 0 to C - 1, or labels of ``classes``.
    log_probability : (n, C) array
        As ``predict_log_proba`` or ``predict_proba`` returns it: whatever is nowhere negative is probabilities. They
        may be 0, of trees for instance; of probabilities that round to 0 or 1 the logarithms tell more.
    classes : (C,) array, default=None
        The labels of the columns, ``model.classes_``.

    Returns
    -------
    dict
        "error": the share of wrong predictions. "nll": the mean negative log likelihood in nats, infinite if a row has
        a class of probability 0. "brier": the mean
        squared error of the probability, from 0 to 1; for more than two classes, summed over the classes, from 0 to 2.
        "auc": the area under the ROC curve, averaged over each class against the rest for more than two classes; NaN if
        a class has no rows. "ece": the expected calibration error.
    """
    log_p = np.asarray(log_probability, dtype=np.float64)
    if np.all(log_p >= 0.0):
        with np.errstate(divide="ignore"):
            log_p = np.log(log_p)
    code, p = check_codes(y_true, np.exp(log_p), classes)
    # Of two classes both have the same error.
    brier = np.sum((p - np.eye(p.shape[1])[code]) ** 2) / len(p) / (2.0 if p.shape[1] == 2 else 1.0)
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
    areas = []
    for c in range(n_classes) if n_classes > 2 else [1]:
        # Log odds order rows whose probabilities round to 0 or 1. Those of 0 and 1 are infinite, but have ranks.
        log_odds = log_p[:, c] - logsumexp(np.delete(log_p, c, axis=1), axis=1)
        areas.append(roc_auc_score(code == c, rankdata(np.round(log_odds, TIED_DECIMALS))))
    return float(np.mean(areas))


def check_classifier(model: BaseEstimator) -> None:
    """ValueError for a model that is no classifier with ``predict_proba``; NotFittedError before a fit."""
    check_is_fitted(model)
    if missing := [name for name in ("classes_", "predict_proba") if not hasattr(model, name)]:
        lacks = f"{type(model).__name__} has no {' and no '.join(missing)}"
        raise ValueError(f"model must be a fitted classifier with predict_proba; {lacks}.")
