"""Scores of rows to be labelled, and the choice of a batch of them.

References
----------
.. [1] Houlsby, Huszar, Ghahramani, Lengyel. Bayesian active learning for classification and preference learning.
   2011, arXiv 1112.5745. Equation (2).
.. [2] Kirsch, van Amersfoort, Gal. BatchBALD: efficient and diverse batch acquisition for deep Bayesian active
   learning. NeurIPS 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, ndtr, xlogy
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .. import _sites
from ..config import Rule, is_integer, is_name
from ..likelihoods import LikelihoodBound
from ..likelihoods.logistic_softmax import normal_points
from ..metrics import check_classifier
from ..ranges import small_is_zero
from ..rows.block import dense
from ..rows.executor import on_threads

# (likelihood, latent means and variances, (n,) or (n, C) each) -> scores (n,)
Score = Callable[[LikelihoodBound, np.ndarray, np.ndarray], np.ndarray]
# From the same, the derivatives of the scores by means and variances.
Slopes = Callable[[LikelihoodBound, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# An array (n,), or with ``return_grad`` a pair of it and its gradient (n, d) by x. A union would make callers check.
Scores = Any
# This far from the boundary of two classes a label is certain: the entropy of a logistic label is 40 e^-40.
LINK_RANGE = 40.0
# A normal distribution has 1e-19 of its mass beyond this many standard deviations.
NORMAL_RANGE = 9.0
# Points of the trapezoidal rule over the intersection of both ranges; more if cut points make the link's range wider.
# They are at most a third of a unit of the link, or 7 % of a standard deviation, apart. The error is that of the
# predictive probabilities, 1e-8 (tests/test_acquisition.py).
POINTS = 256
# Distance of the latent values at which the entropy of a label is tabulated: interpolation has an error of 3e-8.
SPACING = 1e-3
# Quasi-random points for several classes where p(y | f) has a formula; where it is an integral, there are as few as for
# a prediction.
MANY_POINTS = 8192
# Least variance at which mutual information is differentiated: its slope is a difference divided by the variance.
LEAST_VARIANCE = 1e-8
# Elements of a large temporary array.
ELEMENTS = 2_000_000
# For each choice, ``select`` scores this many of the best rows again, then twice as many, and so on.
SCORED = 500


def likelihood_of(model: BaseEstimator) -> LikelihoodBound:
    """The likelihood of a fitted classifier with normal latent functions; ValueError for other models."""
    check_is_fitted(model)
    if not (hasattr(model, "_record") and hasattr(model, "classes_")):
        raise ValueError(
            "model must be a fitted GPClassifier or BayesianLinearClassifier, whose latent functions have normal "
            f"posteriors; got {type(model).__name__}. For a pipeline give the last step, and rows transformed by the "
            "other steps; predictive_entropy takes any classifier."
        )
    record: LikelihoodBound = model._record
    return record


def far_entropies(record: LikelihoodBound, n_classes: int = 2) -> tuple[float, float]:
    """Entropies, in nats, of labels far below and far above all ties: those of wrong labels."""
    q = np.broadcast_to(np.asarray(record.values if record.has_wrong_labels else 0.0), 2)
    low, high = entr(1.0 - q) - xlogy(q, q / (n_classes - 1))
    return float(low), float(high)


def expected_precision(record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Precision (n,) or (n, C) of the site that a label would add: the mean over the labels, at least 0."""
    probability = np.exp(record.log_probabilities(mean, variance)).T
    site, total = record.site(len(probability)), np.zeros(mean.T.shape)
    for label, p in zip(record.site_labels(np.arange(len(probability))), probability, strict=True):
        _, precision, *_ = _sites.sites(site, mean.T, variance.T, np.full(len(mean), label))
        total += p * precision
    return np.maximum(total, 0.0).T


def log_probabilities(model: BaseEstimator, X: ArrayLike) -> np.ndarray:
    """Log probabilities (n, C) of labels as they come at new rows, without class weights.

    The rows are new, also where a model knows a training row that equals one.
    """
    if hasattr(model, "_record"):
        mean, variance = model.predict_latent(X)
        return likelihood_of(model).log_probabilities(mean, variance, on_threads(model.n_jobs))
    check_classifier(model)
    logarithms = getattr(model, "predict_log_proba", lambda rows: np.log(model.predict_proba(rows)))
    # Probabilities of trees may be zero.
    with np.errstate(divide="ignore"):
        return np.asarray(logarithms(X))


def entropy(log_probability: np.ndarray) -> np.ndarray:
    """Entropy, in nats, of distributions along the last axis, from log probabilities."""
    p = np.exp(log_probability)
    return -np.sum(p * np.where(p > 0.0, log_probability, 0.0), axis=-1)


def refuse_no_joint(model: BaseEstimator) -> None:
    if not hasattr(model, "sample_latent"):
        raise ValueError(f"model must be a GPClassifier, which has joint covariances; got {type(model).__name__}.")


class Labelled:
    """Moments of latent values at rows, as labels are added whose values are not known.

    Whatever the label of a row will be, it adds a normal factor to the posterior. The expected precision of this factor
    lowers the variances of the other rows through their joint covariance; the means stay.
    """

    def __init__(self, model: BaseEstimator, *rows: ArrayLike, pending: ArrayLike | None = None) -> None:
        """The rows of some arrays, of which ``pending`` ones have a label and are then left out."""
        self._record = likelihood_of(model)
        refuse_no_joint(model)
        arrays = [dense(model._rows(part)) for part in (*rows, *(() if pending is None else (pending,)))]
        every_row = np.concatenate(arrays)
        self.mean, self.variance = (moment.T for moment in model._latent_at(every_row))
        self._columns = model.posterior_.covariance_columns(every_row, model.n_jobs)
        self._lowered: list[np.ndarray] = []
        self.sizes = [len(part) for part in arrays[: len(rows)]]
        n = sum(self.sizes)
        for i in range(n, len(every_row)):
            self.label(i)
        self.mean, self.variance = self.mean[:n], self.variance[:n]
        self._lowered = [column[:n] for column in self._lowered]

    def column(self, i: int) -> np.ndarray:
        """Covariances (n,) or (n, C) of all rows with row i."""
        column = self._columns(i)[:, : len(self.mean)].T.reshape(self.mean.shape)
        return column - sum((lowered * lowered[i] for lowered in self._lowered), start=np.zeros(1))

    def label(self, i: int) -> None:
        """Add a label of row i: one step of a Cholesky factorisation of covariance + 1 / precision."""
        precision = expected_precision(self._record, self.mean[i : i + 1], self.variance[i : i + 1])[0]
        self._lowered.append(self.column(i) * np.sqrt(precision / (1.0 + precision * self.variance[i])))
        self.variance = np.maximum(self.variance - self._lowered[-1] ** 2, 0.0)


def latent(
    model: BaseEstimator, X: ArrayLike, return_grad: bool = False, pending: ArrayLike | None = None
) -> tuple[np.ndarray, ...]:
    """``predict_latent``, once the labels of ``pending`` rows are known, whatever they will be."""
    if pending is None:
        return model.predict_latent(X, return_grad=return_grad)
    if return_grad:
        raise ValueError("Scores with pending rows have no gradient: leave return_grad=False, or pending=None.")
    rows = Labelled(model, X, pending=pending)
    return rows.mean, rows.variance


def of_deviation(mean: np.ndarray, variance: np.ndarray, *by_x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean and standard deviation (n,), and their gradients (n, ...) if those of mean and variance are given."""
    std = np.sqrt(variance)
    if not by_x:
        return mean, std
    by_mean, by_variance = by_x
    by_std = np.divide(0.5 * by_variance.T, std, out=np.zeros_like(by_variance.T), where=std > 0.0).T
    return mean, std, by_mean, by_std


def with_gradient(score: np.ndarray, slopes: Iterable[np.ndarray], by_x: Collection[np.ndarray]) -> Scores:
    """A score and its gradient, (n, d) or for pairs (n, 2, d), from slopes by moments, (n,) or (n, C), and gradients of
    these; the score alone without such gradients."""
    if not by_x:
        return score
    # The axes that a slope and a gradient have in common are the first ones, so that the transposed arrays broadcast.
    parts = ((slope.ndim, (slope.T * by.T).T) for slope, by in zip(slopes, by_x, strict=True))
    return score, sum(np.sum(part, axis=tuple(range(1, n_axes))) for n_axes, part in parts)


def score_of_latent(
    name: str, record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray, *by_x: np.ndarray
) -> Scores:
    """The score of this name for latent moments, (n,) or (n, C), and its gradient if those of the moments are given."""
    score, slopes = SCORES[name]
    value = score(record, mean, variance)
    return with_gradient(value, slopes(record, mean, variance), by_x) if by_x else value


@small_is_zero
def predictive_entropy(
    model: BaseEstimator, X: ArrayLike, return_grad: bool = False, pending: ArrayLike | None = None
) -> Scores:
    """Entropy (n,) of the label at each row of X (n, d), in nats, from 0 to log C.

    ``model`` is any fitted classifier with ``predict_proba``. Entropy stays high where classes overlap, even if
    many labels are known there; ``mutual_information`` does not. With ``return_grad`` the gradient (n, d) by X follows,
    of a GPClassifier or BayesianLinearClassifier. ``pending`` is as for ``mutual_information``.
    """
    if return_grad or pending is not None:
        return score_of_latent("predictive_entropy", likelihood_of(model), *latent(model, X, return_grad, pending))
    return entropy(log_probabilities(model, X))


@small_is_zero
def latent_variance(
    model: BaseEstimator, X: ArrayLike, return_grad: bool = False, pending: ArrayLike | None = None
) -> Scores:
    """Posterior variance (n,) of the latent function at the rows of X (n, d), summed over several functions.

    With ``return_grad`` the gradient (n, d) by X follows. ``pending`` is as for ``mutual_information``.
    """
    return score_of_latent("latent_variance", likelihood_of(model), *latent(model, X, return_grad, pending))


@small_is_zero
def mutual_information(
    model: BaseEstimator, X: ArrayLike, return_grad: bool = False, pending: ArrayLike | None = None
) -> Scores:
    """Mutual information (n,) of the label and the latent values at each row of X (n, d), in nats.

    Mutual information measures how much the label would teach about the latent function ([1]_: BALD). It is the entropy
    of the label minus the expected entropy given the latent values, H[E p(y | f)] - E H[p(y | f)], and lies between 0
    and ``predictive_entropy``. ``model`` is a fitted GPClassifier or BayesianLinearClassifier. With ``return_grad`` the
    gradient (n, d) by X follows; ValueError for likelihoods whose information is an average over points.

    ``pending`` (p, d) are rows whose labels were asked for, but are not known yet. A row near one of them scores lower,
    as in ``select``. This needs a GPClassifier, O(p) covariance columns, and no gradient.

    Notes
    -----
    The method and the largest measured error depend on the likelihood. One latent function: the trapezoidal rule with
    256 points, more where cut points are far apart, 1e-7 nats. "step" and "multinomial-step": the entropy of the label
    less that of label noise, as exact as the probabilities. Softmax, the default for more classes: the integrals of the
    bound and the predictions, O(n C) time, .001 nats for variances up to 1e6. Logistic-softmax: 8192 fixed quasi-random
    points, 1.6 ms per row and class, .001 for variances up to 100. Other multinomial likelihoods: 512 points, each with
    an integral, some tens of milliseconds per row; the error is .001 nats for 3 classes and .006 for 10 at variance 1,
    and .006 and .03 at variance 100.
    """
    return score_of_latent("mutual_information", likelihood_of(model), *latent(model, X, return_grad, pending))


def _information(record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Mutual information (n,) for normal latent values, (n,) or (n, C)."""
    if record.is_step:
        # Label noise has the same entropy at all latent values but ties, which only values without variance have.
        at_mean = ~np.any(variance.reshape(len(mean), -1), axis=1)
        conditional = np.full(len(mean), far_entropies(record, mean.shape[1] if mean.ndim == 2 else 2)[0])
        conditional[at_mean] = entropy(record.log_probabilities_given(mean[at_mean]))
    elif mean.ndim == 1:
        low, high = far_entropies(record)
        share = ndtr(mean / np.sqrt(1.0 + variance))
        conditional = _excess_moments(record, mean, variance, 1)[0] + low + (high - low) * share
    elif record.expected_entropy is not None:
        conditional = record.expected_entropy(mean, variance)
    else:
        return _average_information(record, mean, variance)
    return np.maximum(entropy(record.log_probabilities(mean, variance)) - conditional, 0.0)


def _excess_moments(record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray, count: int) -> np.ndarray:
    """E[z^k h(f)] (count, n), k = 0, 1, ..., of the excess entropy h, f ~ N(mean, variance), z = (f - mean) / sd."""
    moments = np.zeros((count, len(mean)))
    for grid, excesses in _excess_entropy(record):
        ends = grid[0], grid[-1]
        points = int(np.ceil(POINTS * (ends[1] - ends[0]) / (2.0 * LINK_RANGE)))
        for part in parts(len(mean), 4 * points):
            m, s = mean[part, None], np.sqrt(variance[part, None])
            low, high = np.clip(m - NORMAL_RANGE * s, *ends), np.clip(m + NORMAL_RANGE * s, *ends)
            f = low + (high - low) * np.linspace(0.0, 1.0, points)
            excess = np.interp(f, grid, excesses)
            with np.errstate(divide="ignore", invalid="ignore"):
                z = (f - m) / s
                term = np.exp(-0.5 * z**2) * ((high - low) / (np.sqrt(2.0 * np.pi) * s) / (points - 1))
                for k in range(count):
                    # Without variance the expectation is the value at the mean.
                    at_mean = excess[:, 0] if k == 0 else 0.0
                    moments[k, part] += np.where(s[:, 0] > 0.0, np.einsum("ij,ij->i", term, excess), at_mean)
                    term = term * z
    return moments


def parts(n_rows: int, n_values: int) -> list[slice]:
    """Parts of the rows, each of which has ``n_values``, that keep a temporary array small."""
    step = max(1, ELEMENTS // n_values)
    return [slice(first, first + step) for first in range(0, n_rows, step)]


@lru_cache(maxsize=8)
def _excess_entropy(record: LikelihoodBound) -> list[tuple[np.ndarray, np.ndarray]]:
    """Grids of latent values near cut points, and the entropy of the label at each less that of wrong labels.

    The entropy of wrong labels goes from its value far below to that far above in proportion to Phi(f). Cut points so
    far apart that labels are certain between them have grids of their own.
    """
    cuts = np.array(record.values) if record.is_ordinal else np.zeros(1)
    least, most = far_entropies(record)
    tables = []
    for close_cuts in np.split(cuts, np.flatnonzero(np.diff(cuts) > 2.0 * LINK_RANGE) + 1):
        low, high = close_cuts[0] - LINK_RANGE, close_cuts[-1] + LINK_RANGE
        f = np.linspace(low, high, 1 + int(np.ceil((high - low) / SPACING)))
        # In parts, because the probabilities of many classes take much memory.
        entropies = [entropy(record.log_probabilities_given(part)) for part in np.array_split(f, len(close_cuts))]
        tables.append((f, np.concatenate(entropies) - least - (most - least) * ndtr(f)))
    return tables


def _average_information(record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Mutual information of several classes by averages over points, the same for both entropies."""
    points = normal_points(mean.shape[1]) if record.given_latent is None else normal_points(mean.shape[1], MANY_POINTS)
    information = np.empty(len(mean))
    for part in parts(len(mean), points.size):
        f = mean[part, :, None] + np.sqrt(variance[part])[:, :, None] * points
        log_p = record.log_probabilities_given(np.moveaxis(f, 1, 2).reshape(-1, f.shape[1]))
        log_p = log_p.reshape(len(f), points.shape[1], -1)
        with np.errstate(divide="ignore"):
            average = np.log(np.mean(np.exp(log_p), axis=1))
        information[part] = entropy(average) - np.mean(entropy(log_p), axis=1)
    return np.maximum(information, 0.0)


def _entropy_slopes(record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    log_p = record.log_probabilities(mean, variance)
    # A probability of 0 or 1 has no slope, and its logarithm may be infinite.
    log_p = np.where(np.isfinite(log_p), log_p, 0.0)
    by_mean, by_variance = (
        -np.einsum("ny,nyc->nc", log_p, slopes) for slopes in record.probability_slopes(mean, variance)
    )
    return by_mean.reshape(mean.shape), by_variance.reshape(mean.shape)


def _information_slopes(
    record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For one function, the slopes of E h are E[z h] / sd and E[(z^2 - 1) h] / (2 variance)."""
    if record.is_step:
        conditional = np.zeros_like(mean), np.zeros_like(variance)
    elif mean.ndim == 1:
        spread = np.maximum(variance, LEAST_VARIANCE)
        h, zh, z2h = _excess_moments(record, mean, spread, 3)
        low, high = far_entropies(record)
        slope = (high - low) * np.exp(-0.5 * mean**2 / (1.0 + spread)) / np.sqrt(2.0 * np.pi * (1.0 + spread))
        conditional = zh / np.sqrt(spread) + slope, (z2h - h) / (2.0 * spread) - 0.5 * slope * mean / (1.0 + spread)
    elif record.expected_entropy_slopes is None:
        raise ValueError(
            f"mutual_information has no gradient for likelihood={record.likelihood!r}, for which it is an average "
            "over points; take predictive_entropy or latent_variance, or fit with likelihood='softmax'."
        )
    else:
        conditional = record.expected_entropy_slopes(mean, variance)
    total = _entropy_slopes(record, mean, variance)
    return total[0] - conditional[0], total[1] - conditional[1]


# A score, and its slopes by means and variances.
SCORES: dict[str, tuple[Score, Slopes]] = {
    "mutual_information": (_information, _information_slopes),
    "predictive_entropy": (
        lambda record, mean, variance: entropy(record.log_probabilities(mean, variance)),
        _entropy_slopes,
    ),
    "latent_variance": (
        lambda record, mean, variance: variance if variance.ndim == 1 else np.sum(variance, axis=1),
        lambda record, mean, variance: (np.zeros_like(mean), np.ones_like(variance)),
    ),
}


@small_is_zero
def select(
    model: BaseEstimator,
    X: ArrayLike,
    n: int,
    score: str = "mutual_information",
    pending: ArrayLike | None = None,
) -> np.ndarray:
    """Choose a batch of rows to be labelled, whose labels would not repeat each other.

    ``select`` takes the row with the highest score, one at a time. Whatever the label of this row will be, it adds a
    normal factor to the posterior. The expected precision of this factor lowers the latent variances of the other rows
    through their joint covariance. The next scores use the lower variances and the same means. With
    "mutual_information" the batch is greedy as in [2]_, with conditional variances in place of joint entropies of the
    labels, which have 2^n terms.

    Parameters
    ----------
    model : fitted GPClassifier
    X : (n_rows, d) array or data frame
        The candidates.
    n : int
        Number of rows to choose.
    score : {"mutual_information", "latent_variance", "predictive_entropy"}, default="mutual_information"
        The function of this name. "predictive_entropy" falls little near rows that are already chosen.
    pending : (p, d) array or data frame, default=None
        Rows whose labels were asked for, but are not known yet, such as those of an earlier batch: they count as chosen
        before the first choice.

    Returns
    -------
    (n,) array
        Row numbers of X, in the order of choice.

    Raises
    ------
    ValueError
        For another model or score, or n below 1 or above the number of rows.

    Notes
    -----
    Only the covariance columns of chosen rows are computed: time grows with n_rows, and memory with n_rows times n.
    Scores fall with the variances, so that only rows whose last score exceeds the best new one are scored again.
    "predictive_entropy" of several classes may rise; ``select`` notices this for the 500 rows with the highest scores
    only.
    """
    record, rows = likelihood_of(model), Labelled(model, X, pending=pending)
    Rule(lambda value: is_name(value, SCORES), f"one of {list(SCORES)}").check("score", score)
    if not (is_integer(n) and 1 <= n <= len(rows.mean)):
        raise ValueError(f"n must be an integer from 1 to the number of candidates, {len(rows.mean)}; got {n!r}.")
    function, _ = SCORES[score]
    scores = function(record, rows.mean, rows.variance)
    chosen = [int(np.argmax(scores))]
    while len(chosen) < n:
        rows.label(chosen[-1])
        scores[chosen] = -np.inf
        i, scores = _best(scores, function, record, rows.mean, rows.variance)
        chosen.append(i)
    return np.array(chosen)


def _best(
    old_scores: np.ndarray, function: Score, record: LikelihoodBound, mean: np.ndarray, variance: np.ndarray
) -> tuple[int, np.ndarray]:
    """The row with the highest new score, and all scores: new ones, and old ones of rows that cannot be the best.

    Scores fall, so that a row whose old score is not higher than the best new one need not be scored (Minoux 1978:
    accelerated greedy algorithm). Rows with the score minus infinity are not chosen.
    """
    scores, is_new, size = old_scores.copy(), np.isneginf(old_scores), SCORED
    while True:
        highest = np.max(scores[is_new], initial=-np.inf)
        others = np.flatnonzero(~is_new & (scores > highest))
        if not len(others):
            return int(np.argmax(np.where(is_new, scores, -np.inf))), scores
        rows = others[np.argsort(-scores[others], kind="stable")[:size]]
        scores[rows], is_new[rows] = function(record, mean[rows], variance[rows]), True
        size *= 2
