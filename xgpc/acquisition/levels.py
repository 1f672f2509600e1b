"""Where a latent function crosses a level: scores of rows that would tell, and the share of a population beyond it.

References
----------
.. [1] Bryan, Nichol, Genovese, Schneider, Miller, Wasserman. Active learning for identifying function threshold
   boundaries. NIPS 2005. Section 3.
.. [2] Echard, Gayton, Lemaire. AK-MCS: an active learning reliability method combining Kriging and Monte Carlo
   simulation. Structural Safety 33, 2011. Equation (13) is the ratio ``|mean| / std``.
.. [3] Letham, Guan, Tymms, Bakshy, Shvartsman. Look-ahead acquisition functions for Bernoulli level set estimation.
   AISTATS 2022. Equations (5) to (8), there for the probit link.
.. [4] Plackett. A reduction formula for normal multivariate integrals. Biometrika 41, 1954. Equation (3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from sklearn.base import BaseEstimator

from ..approximations.draws import exact_draws
from ..config import PROBABILITY, integer, number
from ..data.checks import random_state_of
from ..names import RandomSeed, shown
from ..ranges import small_is_zero
from ..rows.blas import single_threaded_blas
from ..rows.block import dense
from .labels import (
    Labelled,
    Scores,
    latent,
    likelihood_of,
    log_probabilities,
    of_deviation,
    parts,
    refuse_no_joint,
    with_gradient,
)
from .trials import column_of_label

# Nodes and weights of Gauss and Legendre from 0 to 1, for the angle of Plackett's formula.
NODES, WEIGHTS = 0.5 * np.array(np.polynomial.legendre.leggauss(12)) + [[0.5], [0.0]]
# Rows of a population that are drawn jointly: their covariance is factorised in a tenth of a second.
JOINT_ROWS = 1000


class FailureProbability(NamedTuple):
    """What ``probability_of_failure`` returns.

    Attributes
    ----------
    probability : float
        Posterior mean of the share of the population that fails.
    low, high : float
        Ends of the credible interval of this share.
    draws : (n_draws,) array
        Draws of the share from its posterior.
    sampling_std : float
        Standard deviation of ``probability`` over populations of this size, if the rows were drawn independently from a
        distribution. The interval does not include it.
    """

    probability: float
    low: float
    high: float
    draws: np.ndarray
    sampling_std: float


def _check_level(model: BaseEstimator, level: float) -> None:
    number(np.isfinite, "a finite number, a value of the latent function").check("level", level)
    if likelihood_of(model).is_multi_class:
        raise ValueError(
            "A level is one of a single latent function; this model has a function for each of its classes. Fit to two "
            "classes with likelihood='logit', 'probit', 'step' or 'svm'."
        )


def _distances(
    model: BaseEstimator, X: ArrayLike, level: float, return_grad: bool = False, pending: ArrayLike | None = None
) -> tuple[np.ndarray, ...]:
    """The mean minus the level, and the standard deviation (n,), and with ``return_grad`` their gradients (n, d)."""
    _check_level(model, level)
    mean, *others = of_deviation(*latent(model, X, return_grad, pending))
    return mean - level, *others


def _ratio(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """mean / std; without a deviation infinity of the mean's sign, and 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mean == 0.0, 0.0, mean / std)


@small_is_zero
def straddle(
    model: BaseEstimator,
    X: ArrayLike,
    level: float = 0.0,
    width: float = 1.96,
    return_grad: bool = False,
    pending: ArrayLike | None = None,
) -> Scores:
    """Half the width of a credible interval of the latent function minus its mean's distance from a level, (n,) ([1]_).

    The score ``width * std - |mean - level|`` is positive where the interval contains the level. It is high for rows
    near the boundary, and for rows of which little is known.

    Parameters
    ----------
    model : fitted GPClassifier or BayesianLinearClassifier of two classes, or GPOrdinalClassifier
    X : (n, d) array or data frame
    level : float, default=0.0
        Value of the latent function at the boundary. At 0 both labels are equally probable; with likelihood "logit",
        ``classes_[1]`` has the probability p at log(p / (1 - p)), with "psychometric" at log((p - ``guess_rate_``) /
        (1 - ``lapse_rate_`` - p)). Ordered classes meet at ``cut_points_``.
    width : float, default=1.96
        Half the width of the interval in standard deviations, above 0.
    return_grad : bool, default=False
        Whether the gradient (n, d) by X follows. Where the mean is at the level, it is that of the standard deviation.
    pending : (p, d) array or data frame, default=None
        Rows whose labels were asked for, but are not known yet, as for ``mutual_information``.
    """
    number(lambda value: 0.0 < value < np.inf, "a number above 0").check("width", width)
    distance, std, *by_x = _distances(model, X, level, return_grad, pending)
    return with_gradient(width * std - np.abs(distance), (-np.sign(distance), np.full_like(std, width)), by_x)


@small_is_zero
def misclassification_probability(
    model: BaseEstimator,
    X: ArrayLike,
    level: float = 0.0,
    return_grad: bool = False,
    pending: ArrayLike | None = None,
) -> Scores:
    """Probability (n,) that the latent function is on the other side of a level than its posterior mean, 0 to 1/2.

    It is ``Phi(-|mean - level| / std)``: the order of rows is that of the learning function U of AK-MCS ([2]_), the
    least U first. For the probability that a label is not the predicted one, see ``predict_proba``.

    Parameters
    ----------
    model, X, level, return_grad, pending : as for ``straddle``
    """
    distance, std, *by_x = _distances(model, X, level, return_grad, pending)
    ratio, is_uncertain = np.abs(_ratio(distance, std)), std > 0.0
    slope = np.divide(np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi), std, out=np.zeros_like(std), where=is_uncertain)
    slopes = -np.sign(distance) * slope, np.where(is_uncertain, ratio, 0.0) * slope
    return with_gradient(ndtr(-ratio), slopes, by_x)


@small_is_zero
def expected_misclassification_reduction(
    model: BaseEstimator,
    X: ArrayLike,
    reference: ArrayLike,
    level: float = 0.0,
    pending: ArrayLike | None = None,
) -> np.ndarray:
    """Expected fall (n,) of the mean ``misclassification_probability`` of other rows, if a row of X were labelled.

    The label may have each value, with its predictive probability; the score averages over all. Near a boundary that
    is known well, or beside all other rows, a label would change little, so that its score is low. The covariances of
    rows decide how far a label reaches ([3]_: GlobalSUR).

    Parameters
    ----------
    model : fitted GPClassifier of two classes, or GPOrdinalClassifier
    X : (n, d) array or data frame
        The candidates.
    reference : (r, d) array or data frame
        Rows at which the boundary matters, such as a sample of the region of interest. Some hundred rows suffice. With
        few rows many scores are 0, because a label then moves the boundary past none of them.
    level, pending : as for ``straddle``

    Notes
    -----
    Given the present normal posterior, the score is exact but for an integral over an angle by 12 nodes. With s the
    standard deviation at a reference row, u = (mean - level) / s there, and m and v the mean and variance at a
    candidate, the probability of a label and a latent value above the level is ([4]_)

        p Phi(u) + phi(u) sqrt(v) * integral from 0 to arcsin(correlation) of
            p'(m - sqrt(v) u sin t, v cos^2 t) cos t dt

    with p the predictive probability of the label and p' its derivative by the mean. O(n r) after min(n, r) columns of
    the joint covariance of candidates and reference rows.
    """
    _check_level(model, level)
    record, rows = likelihood_of(model), Labelled(model, X, reference, pending=pending)
    n, r = rows.sizes
    if not r:
        raise ValueError("reference must have at least one row, at which the boundary matters; got none.")
    distance, deviation = rows.mean - level, np.sqrt(rows.variance)
    mean, std, spread, u = distance[:n], deviation[:n], deviation[n:], _ratio(distance, deviation)[n:]
    if r < n:
        covariance = np.stack([rows.column(n + j)[:n] for j in range(r)], axis=1)
    else:
        covariance = np.stack([rows.column(i)[n:] for i in range(n)]) if n else np.empty((0, r))
    reduction, above = np.empty(n), ndtr(u)
    present = np.mean(ndtr(-np.abs(u)))
    for part in parts(n, 4 * r * len(NODES) * len(model.classes_)):
        m, s = mean[part, None] + level, std[part, None]
        p = np.exp(record.log_probabilities(m[:, 0], s[:, 0] ** 2)).T[..., None]
        angle = np.arcsin(np.clip(_ratio(covariance[part], s * spread), -1.0, 1.0))
        at_angle = angle[..., None] * NODES
        means = m[..., None] - s[..., None] * u[:, None] * np.sin(at_angle)
        slopes = record.probability_slopes(means.ravel(), ((s[..., None] * np.cos(at_angle)) ** 2).ravel())[0][..., 0].T
        integral = angle * ((slopes.reshape(-1, *at_angle.shape) * np.cos(at_angle)) @ WEIGHTS)
        # Of each label (labels, candidates, reference rows).
        joint = p * above + np.exp(-0.5 * u**2) / np.sqrt(2.0 * np.pi) * s * integral
        reduction[part] = present - np.mean(np.sum(np.minimum(joint, p - joint), axis=0), axis=1)
    return np.maximum(reduction, 0.0)


@small_is_zero
def probability_of_failure(
    model: BaseEstimator,
    population: ArrayLike,
    failure: object,
    level: float | None = None,
    confidence: float = 0.95,
    n_draws: int = 1000,
    random_state: RandomSeed = None,
) -> FailureProbability:
    """The share of a population that fails, with a credible interval, from a classifier of failures.

    The model's uncertainty about the boundary makes the interval. It shrinks as more rows are labelled, and the
    posterior takes account of how near rows of the population fail together. The interval takes the kernel as known.
    If the fit learned it, the interval is too short, the more so from few rows: of 20 problems with 30 rows, intervals
    of 95 % held the share of 15 with ``level=None`` and of 17 with ``level=0``.

    Parameters
    ----------
    model : fitted GPClassifier
    population : (N, d) array or data frame
        Rows of the distribution of interest, such as 10^5 draws of uncertain inputs.
    failure : label
        The label in ``classes_`` that means failure.
    level : float or None, default=None
        None: the expected share of rows with the label ``failure``, where labels near the boundary are random. A
        number, as for ``straddle``: the share of rows whose latent function is on the side of ``failure``, for failures
        without noise (AK-MCS [2]_); only for two classes, and the first and last of ordered ones.
    confidence : float, default=0.95
        Probability of the interval, between 0 and 1.
    n_draws : int, default=1000
        Number of draws of the share, of which the interval has the quantiles.
    random_state : int, Generator, RandomState or None, default=None

    Returns
    -------
    FailureProbability
        ``probability``, ``low``, ``high``, ``draws`` and ``sampling_std``.

    Notes
    -----
    The mean is exact. Draws are those of up to 1000 rows jointly: all whose outcome is uncertain, or a sample, in which
    a row comes with a probability proportional to sqrt(p (1 - p)) and counts inversely to that (Horvitz and Thompson
    1952). The expected mean of the draws does not depend on the sample, which makes the interval a little wider.
    O(N m (m + d)) and O(1000^2 (m + n_draws)).
    """
    record, column = likelihood_of(model), column_of_label(model, "failure", failure)
    level_of_failure = int(record.levels(np.arange(len(model.classes_)))[column])
    refuse_no_joint(model)
    PROBABILITY.check("confidence", confidence)
    integer(1).check("n_draws", n_draws)
    if level is not None and 0 < level_of_failure < len(model.classes_) - 1:
        raise ValueError(
            f"failure={shown(failure)} is on both sides of a level; give the first or the last of the classes "
            f"{record.by_level(model.classes_).tolist()}, or leave level=None."
        )
    random = random_state_of(random_state)
    if level is None:
        p = np.exp(log_probabilities(model, population)[:, column])
    else:
        sign = 1.0 if level_of_failure else -1.0
        p = ndtr(sign * _ratio(*_distances(model, population, level)))
    if not len(p):
        raise ValueError("population must have at least one row; got none.")
    share = _inclusion(np.sqrt(p * (1.0 - p)), JOINT_ROWS)
    # A systematic sample: a step of the sum over all rows that passes a whole number takes its row.
    steps = np.floor(np.cumsum(share) + random.uniform())
    chosen = np.flatnonzero(np.diff(steps, prepend=0.0) > 0.5)
    rows = dense(model._rows(population))[chosen]
    with single_threaded_blas():
        drawn = exact_draws(model._latent_at(rows)[0], model._covariance(rows), n_draws, random)
    if level is None:
        values = drawn.reshape(*drawn.shape[:-2], -1).T
        fails = np.exp(record.log_probabilities_given(values)[:, column]).reshape(len(chosen), n_draws)
    else:
        fails = (drawn > level) == bool(level_of_failure)
    probability = float(np.mean(p))
    draws = np.clip(probability + (1.0 / share[chosen]) @ (fails - p[chosen, None]) / len(p), 0.0, 1.0)
    low, high = np.quantile(draws, [0.5 - 0.5 * confidence, 0.5 + 0.5 * confidence])
    # The rows are independent, and each counts with its probability, not with a random outcome.
    return FailureProbability(probability, float(low), float(high), draws, float(np.std(p) / np.sqrt(len(p))))


def _inclusion(size: np.ndarray, n: int) -> np.ndarray:
    """Probabilities with sum n in proportion to sizes, at most 1; 1 for all that have a size if they are n or fewer."""
    if np.count_nonzero(size) <= n:
        return (size > 0.0).astype(np.float64)
    certain = np.zeros(len(size), dtype=bool)
    while True:
        share = np.where(certain, 1.0, size * ((n - np.sum(certain)) / np.sum(size[~certain])))
        if np.max(share) <= 1.0:
            return share
        certain |= share >= 1.0
