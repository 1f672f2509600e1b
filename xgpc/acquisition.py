"""Which row to ask for next: scores of candidate rows by a fitted classifier, and batches of them.

For active learning: ``predictive_entropy``, ``mutual_information`` and ``latent_variance`` score rows whose labels can
be asked for, and ``select`` takes a batch of them. For Bayesian optimisation where some settings fail:
``probability_of_feasibility`` and ``constrained_expected_improvement``. All are pure functions.

References
----------
.. [1] Houlsby, Huszar, Ghahramani, Lengyel. Bayesian active learning for classification and preference learning.
   2011, arXiv 1112.5745. Equation (2).
.. [2] Kirsch, van Amersfoort, Gal. BatchBALD: efficient and diverse batch acquisition for deep Bayesian active
   learning. NeurIPS 2019.
.. [3] Jones, Schonlau, Welch. Efficient global optimization of expensive black-box functions. Journal of Global
   Optimization 13, 1998. Equation (15).
.. [4] Gardner, Kusner, Xu, Weinberger, Cunningham. Bayesian optimization with inequality constraints. ICML 2014.
   Equation (5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from . import _sites
from .config import is_integer, is_name, is_number
from .data.checks import site_labels
from .likelihoods import LikelihoodBound, record_of
from .likelihoods.logistic_softmax import normal_points
from .metrics import check_classifier

# Of a link, and latent means and variances, (n,) or (n, C) each: (n,).
Score = Callable[["Link", np.ndarray, np.ndarray], np.ndarray]
# Where links have come to their limits: the entropy of a logistic label is 40 e^-40 there.
LINK_RANGE = 40.0
# A normal distribution farther out than so many standard deviations has 1e-19.
NORMAL_RANGE = 9.0
# Points of the trapezoidal rule over what is left of both: at most a third of a unit of the link, or 7 % of a standard
# deviation, apart; its errors are those of the predictive probabilities, 1e-8 (tests/test_acquisition.py).
POINTS = 256
# Latent values, a thousandth apart, at which the entropy of a label is known.
TABLE = 80_001
# Quasi-random points of latent functions of several classes, where a label given them is a formula or an integral.
MANY_POINTS, FEW_POINTS = 8192, 512
# Elements of the largest temporaries.
ELEMENTS = 2_000_000
# Rows that ``select`` scores anew for each choice, those of the highest scores before: so many first, and then twice as
# many, and so on.
SCORED = 500


@dataclass(frozen=True)
class Link:
    """What makes labels of latent values.

    Attributes
    ----------
    record : LikelihoodBound
    delta : float or None, label noise
    n_classes : int
    """

    record: LikelihoodBound
    delta: float | None
    n_classes: int

    @classmethod
    def of(cls, model: Any) -> Link:
        """That of a fitted classifier whose latent functions are normal; ValueError for others."""
        check_is_fitted(model)
        if not hasattr(model, "_resolved"):
            raise ValueError(
                "model must be a fitted GPClassifier or BayesianLinearClassifier, whose latent functions have normal "
                f"posteriors; got {type(model).__name__}. Of a pipeline give the last step, and rows as the steps "
                "before make them; predictive_entropy takes any classifier."
            )
        return cls(record_of(*model._resolved), getattr(model, "label_noise_", None), len(model.classes_))

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Log probabilities (n, classes), latent values integrated out."""
        return self.record.log_probabilities(mean, variance, self.delta)

    def given(self, latent: np.ndarray) -> np.ndarray:
        """Log probabilities (n, classes) given latent values (n,) or (n, C)."""
        return self.record.log_probabilities_given(latent, self.delta)

    def expected_precision(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Precision that a label would add, (n,) or (n, C): that of its site, expected over labels, 0 at least."""
        site = self.record.site(self.n_classes, self.delta)
        probability = np.exp(self.predictive(mean, variance))
        labels = site_labels(np.arange(self.n_classes), self.n_classes if self.record.is_multi_class else None)
        m, v = (np.ascontiguousarray(values.T) for values in (mean, variance))
        total, precision, linear, ell = np.zeros_like(m), np.empty_like(m), np.empty_like(m), np.empty(len(mean))
        for label, p in zip(labels, probability.T, strict=True):
            _sites.sites(site, m, v, np.full(len(mean), label), np.empty(0), ell, precision, linear)
            total += p * precision
        return np.maximum(total, 0.0).T


def entropy(log_probability: np.ndarray) -> np.ndarray:
    """Entropy, in nats, of distributions along the last axis, from log probabilities."""
    p = np.exp(log_probability)
    return -np.sum(p * np.where(p > 0.0, log_probability, 0.0), axis=-1)


def predictive_entropy(model: Any, X: ArrayLike) -> np.ndarray:
    """Entropy (n,) of the label at each row of X (n, d), in nats: 0 to log C.

    Of any fitted classifier with ``predict_log_proba``. It is high where classes overlap, however many labels are known
    there; ``mutual_information`` is not.
    """
    check_classifier(model, "predict_log_proba")
    return entropy(np.asarray(model.predict_log_proba(X)))


def latent_variance(model: Any, X: ArrayLike) -> np.ndarray:
    """Posterior variance (n,) of the latent function at the rows of X (n, d); of several, its sum."""
    return _total_variance(Link.of(model), *model.predict_latent(X))


def mutual_information(model: Any, X: ArrayLike) -> np.ndarray:
    """Mutual information (n,) of the label and the latent values at each row of X (n, d), in nats.

    What the label would tell of the latent function: the entropy of the label less what is left of it once the latent
    values are known ([1]_: BALD), H[E p(y | f)] - E H[p(y | f)], 0 to ``predictive_entropy``.

    Parameters
    ----------
    model : fitted GPClassifier or BayesianLinearClassifier
    X : (n, d) array

    Returns
    -------
    (n,) array

    Notes
    -----
    Two classes by one latent function: by the trapezoidal rule with 256 points, to 1e-7. Softmax, which is what more
    than two classes have by default: in closed form but for what its bound and its predictions have in integrals, to
    .001 nats for variances up to 1e6, O(n C). Logistic-softmax: by 8192 fixed quasi-random points, 1.6 ms a row and
    class, to .001 for variances up to 100. The multinomial likelihoods take an integral for each point, some tens of
    milliseconds a row, and have 512 points: of 3 and 10 classes the largest errors are .001 and .006 nats for variances
    of 1, .006 and .03 for 100. All are the largest ones measured, of 3 and 10 classes, against 1e5 quasi-random points
    (4096 of the multinomial likelihoods).
    """
    return _information(Link.of(model), *model.predict_latent(X))


def _information(link: Link, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Of normal latent values, (n,) or (n, C)."""
    if mean.ndim == 2:
        return _information_of_several(link, mean, variance)
    left, (known, excesses, certain) = np.empty(len(mean)), _excess_entropy(link)
    step = max(1, ELEMENTS // (4 * POINTS))
    for start in range(0, len(mean), step):
        m, s = mean[start : start + step, None], np.sqrt(variance[start : start + step, None])
        low = np.clip(m - NORMAL_RANGE * s, -LINK_RANGE, LINK_RANGE)
        high = np.clip(m + NORMAL_RANGE * s, -LINK_RANGE, LINK_RANGE)
        f = low + (high - low) * np.linspace(0.0, 1.0, POINTS)
        excess = np.interp(f, known, excesses)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.exp(-0.5 * ((f - m) / s) ** 2)
            integral = np.einsum("ij,ij->i", density, excess)[:, None] * (high - low) / (np.sqrt(2.0 * np.pi) * s)
        # Without variance all of it is at the mean.
        value = np.where(s > 0.0, integral / (POINTS - 1), excess[:, :1])
        left[start : start + step] = certain + value[:, 0]
    return np.maximum(entropy(link.predictive(mean, variance)) - left, 0.0)


@lru_cache(maxsize=8)
def _excess_entropy(link: Link) -> tuple[np.ndarray, np.ndarray, float]:
    """Entropy of the label given a latent value, in nats, beyond that of where it is as certain as it gets, and that.

    At values so near to each other that lines between them have errors of 3e-8, a quarter of their squared distance
    over 8. It is made once, and halves the time.
    """
    f = np.linspace(-LINK_RANGE, LINK_RANGE, TABLE)
    certain = float(entropy(link.given(np.array([1e3 * LINK_RANGE])))[0])
    return f, entropy(link.given(f)) - certain, certain


def _information_of_several(link: Link, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """In closed form, or both entropies from the same points: their difference is positive, as entropy is concave."""
    if link.record.expected_entropy is not None:
        total = entropy(link.predictive(mean, variance))
        return np.maximum(total - link.record.expected_entropy(mean, variance), 0.0)
    points = normal_points(mean.shape[1], FEW_POINTS if link.record.given_latent is None else MANY_POINTS)
    found = np.empty(len(mean))
    step = max(1, ELEMENTS // points.size)
    for start in range(0, len(mean), step):
        m, v = mean[start : start + step], variance[start : start + step]
        f = m[:, :, None] + np.sqrt(v)[:, :, None] * points
        values = np.moveaxis(f, 1, 2).reshape(-1, m.shape[1])
        log_p = link.given(values).reshape(len(m), points.shape[1], -1)
        with np.errstate(divide="ignore"):
            average = np.log(np.mean(np.exp(log_p), axis=1))
        found[start : start + step] = entropy(average) - np.mean(entropy(log_p), axis=1)
    return np.maximum(found, 0.0)


def _entropy_of(link: Link, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return entropy(link.predictive(mean, variance))


def _total_variance(link: Link, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return variance if variance.ndim == 1 else np.sum(variance, axis=1)


SCORES: dict[str, Score] = {
    "mutual_information": _information,
    "predictive_entropy": _entropy_of,
    "latent_variance": _total_variance,
}


def select(model: Any, X: ArrayLike, n: int, score: str = "mutual_information") -> np.ndarray:
    """Rows to ask for together: not only each of a high score, but none that tells what another one does.

    One by one the row of the highest score is taken. Its label is not known, but what it will do to the variances is,
    nearly: it adds a site, of the precision that is expected over the labels, by which the latent variances of all
    other rows fall through their joint covariance. The scores that follow are of these variances and the means as they
    are. With "mutual_information" it is a greedy batch in the manner of [2]_, by conditional variances in place of
    joint entropies of labels, whose number grows as 2^n.

    Parameters
    ----------
    model : fitted GPClassifier
    X : (n_rows, d) array or data frame, the candidates
    n : int, rows to take
    score : {"mutual_information", "latent_variance", "predictive_entropy"}, default="mutual_information"
        What the functions of these names give; "predictive_entropy" falls little where a batch has rows already.

    Returns
    -------
    (n,) array of row numbers of X, as they were chosen

    Raises
    ------
    ValueError
        For another model or score, or n below 1 or above the number of rows.

    Notes
    -----
    All rows are candidates for each choice, and none of their joint covariance but the columns of the chosen ones is
    made: time grows with n_rows, memory with n_rows times n. Rows are scored anew where they had scores that could be
    the highest still, as these fall with the variances. "predictive_entropy" of several classes may rise, which is seen
    of the 500 rows that had the highest scores.
    """
    link = Link.of(model)
    if not hasattr(model, "_covariance_columns"):
        raise ValueError(f"model must be a GPClassifier, which has joint covariances; got {type(model).__name__}.")
    mean, variance = model.predict_latent(X)
    if not is_name(score, SCORES):
        raise ValueError(f"score must be one of {list(SCORES)}; got {score!r}.")
    if not (is_integer(n) and 1 <= n <= len(mean)):
        raise ValueError(f"n must be an integer from 1 to the number of candidates, {len(mean)}; got {n!r}.")
    function, column_of = SCORES[score], model._covariance_columns(X)
    scores = function(link, mean, variance)
    known: list[np.ndarray] = []
    chosen = [int(np.argmax(scores))]
    while len(chosen) < n:
        i = chosen[-1]
        # A step of a Cholesky factorisation of covariance + 1 / precision.
        column = column_of(i).T.reshape(mean.shape) - sum((v * v[i] for v in known), start=np.zeros(1))
        precision = link.expected_precision(mean[i : i + 1], variance[i : i + 1])[0]
        column = column * np.sqrt(precision / (1.0 + precision * variance[i]))
        known.append(column)
        variance = np.maximum(variance - column**2, 0.0)
        scores[chosen] = -np.inf
        i, scores = _best(scores, partial(_scored, function, link, mean, variance))
        chosen.append(i)
    return np.array(chosen)


def _scored(function: Score, link: Link, mean: np.ndarray, variance: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return function(link, mean[rows], variance[rows])


def _best(before: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> tuple[int, np.ndarray]:
    """The row whose score is highest now, and all scores, of which those that were not looked at are of before.

    Scores fall: rows whose scores of before are no higher need not be looked at (Minoux 1978: accelerated greedy
    algorithm). Minus infinity: not to be chosen.
    """
    scores, is_new, size = before.copy(), np.isneginf(before), SCORED
    while True:
        highest = np.max(scores[is_new], initial=-np.inf)
        others = np.flatnonzero(~is_new & (scores > highest))
        if not len(others):
            return int(np.argmax(np.where(is_new, scores, -np.inf))), scores
        rows = others[np.argsort(-scores[others], kind="stable")[:size]]
        scores[rows], is_new[rows] = function(rows), True
        size *= 2


def probability_of_feasibility(model: Any, X: ArrayLike, feasible: Any) -> np.ndarray:
    """Probability (n,) that the label at each row of X (n, d) is ``feasible``, one of the classifier's labels.

    Raises
    ------
    ValueError
        For a label that the model does not know.
    """
    check_classifier(model)
    classes = np.asarray(model.classes_).tolist()
    if feasible not in classes:
        raise ValueError(f"feasible must be one of the labels {classes}; got {feasible!r}.")
    return model.predict_proba(X)[:, classes.index(feasible)]


def expected_improvement(mean: ArrayLike, std: ArrayLike, best: float) -> np.ndarray:
    """Expected improvement (n,) E[max(best - f, 0)], f ~ N(mean, std^2), of what is minimised ([3]_).

    Parameters
    ----------
    mean, std : (n,) arrays
        Predictions of the objective, of scikit-learn's GaussianProcessRegressor for instance. To maximise give -mean
        and -best.
    best : float
        The least value of the objective that is known to be feasible.
    """
    _check_best(best, "the least value of the objective that is known to be feasible")
    mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
    if mean.ndim != 1 or mean.shape != std.shape:
        raise ValueError(f"mean and std must be (n,), a number for each row; got {mean.shape} and {std.shape}.")
    if not (np.all(np.isfinite(mean)) and np.all(std >= 0.0) and np.isfinite(best)):
        raise ValueError(f"mean and best must be finite, and std 0 or more; got {mean}, {best} and {std}.")
    gain = best - mean
    z = np.divide(gain, std, out=np.where(gain > 0.0, np.inf, -np.inf), where=std > 0.0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return np.maximum(gain * ndtr(z) + std * density, 0.0)


def _check_best(best: Any, what: str) -> None:
    if not is_number(best):
        raise ValueError(f"best must be a number, {what}; got {best!r}.")


def constrained_expected_improvement(
    model: Any, X: ArrayLike, feasible: Any, mean: ArrayLike, std: ArrayLike, best: float
) -> np.ndarray:
    """Expected improvement (n,) times the probability of feasibility ([4]_): of constraints that a label tells of.

    Parameters
    ----------
    model, X, feasible : as for ``probability_of_feasibility``
    mean, std : as for ``expected_improvement``, at the rows of X
    best : float
        As for ``expected_improvement``; or infinity, where nothing is known to be feasible yet. What is returned is
        then the probability of feasibility alone: the limit of the scores divided by ``best``, which has their order.
    """
    _check_best(best, "the least value that is known to be feasible, or infinity (math.inf) where none is known yet")
    probability = probability_of_feasibility(model, X, feasible)
    nothing_feasible = best == np.inf
    improvement = expected_improvement(mean, std, 0.0 if nothing_feasible else best)
    check_consistent_length(improvement, probability)
    return probability if nothing_feasible else improvement * probability
