"""Predictive log probabilities of two classes, in the columns (-1, +1), for normal latent values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr

from .. import _local, _vmath


def _alternating_weights(terms: int) -> np.ndarray:
    """Weights of the first terms that sum an alternating series (Cohen, Rodriguez Villegas & Zagier 2000, alg. 1)."""
    d = (3.0 + np.sqrt(8.0)) ** terms
    d = 0.5 * (d + 1.0 / d)
    b, c, weights = -1.0, -d, []
    for k in range(terms):
        c = b - c
        weights.append(c / d)
        b *= (k + terms) * (k - terms) / ((k + 0.5) * (k + 1.0))
    return np.array(weights)


# The relative error is 5.8^-terms: 14 terms stay below the error of the normal scale mixture, 4e-9.
SERIES_WEIGHTS = _alternating_weights(14)
# The mixture has an absolute error, so that smaller probabilities lose digits there and are summed as a series.
SERIES_BELOW = 0.05


def logit_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log p(y = -1) and log p(y = +1), (n, 2), for latent values N(mean, variance) under the logistic link.

    Absolute error below 1e-8, in either tail (tests/test_sites.py).

    Notes
    -----
    The less probable class has p = E[sigma(f)], f ~ N(-a, v), a = |mean|. The normal scale mixture's tail is too thin:
    for a > v, E[sigma(f)] = exp(v/2 - a) E[sigma(g)] with g ~ N(a - v, v), whose second factor is above one half. Other
    small values are the geometric series of sigma on each side of zero: with x = a / sqrt(2 v) and t = sqrt(v / 2),

        E[sigma(f)] = exp(-x^2) / 2 * (erfcx(x) + sum_{j >= 1} (-1)^(j-1) (erfcx(j t - x) - erfcx(j t + x))).
    """
    mean, variance = np.ascontiguousarray(mean), np.ascontiguousarray(variance)
    logs, thin = _vmath.logistic_normal_logs(mean, variance, SERIES_BELOW)
    if len(thin):
        root = np.sqrt(2.0 * variance[thin])
        x = np.abs(mean[thin]) / root
        steps = np.outer(np.arange(1.0, len(SERIES_WEIGHTS) + 1.0), variance[thin] / root)
        series = erfcx(x) + SERIES_WEIGHTS @ (erfcx(steps - x) - erfcx(steps + x))
        small = np.log(0.5 * series) - x * x
        positive = (mean[thin] > 0.0).astype(np.intp)
        logs[thin, 1 - positive], logs[thin, positive] = small, np.log1p(-np.exp(small))
    return logs


def probit_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log Phi(-+ mean / sqrt(1 + variance)), (n, 2), to round-off: the link of the probit and svm likelihoods."""
    t = mean / np.sqrt(1.0 + variance)
    return np.column_stack([log_ndtr(-t), log_ndtr(t)])


def noisy_log_probabilities(mean: np.ndarray, variance: np.ndarray, noise_variance: float, delta: float) -> np.ndarray:
    """log p(y = -1) and log p(y = +1), (n, 2), under additive noise and labels flipped with probability delta.

    log[(1 - delta) Phi(t) + delta Phi(-t)], t = -+ mean / sqrt(variance + noise_variance), to round-off; for two zero
    variances the limit, a step at mean zero. The noise variance is 0, 1 or 1.702^2 for the step, probit or (nearly)
    logistic likelihood, and delta is in [0, 1).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(mean == 0.0, 0.0, mean / np.sqrt(variance + noise_variance))
    return _with_wrong_labels(np.column_stack([log_ndtr(-t), log_ndtr(t)]), delta)


def rates_log_probabilities(mean: np.ndarray, variance: np.ndarray, rates: ArrayLike) -> np.ndarray:
    """log p(y = -1) and log p(y = +1), (n, 2), for p(y = +1 | f) = guess + (1 - guess - lapse) sigma(f).

    ``rates`` are guess and lapse rate, or one number for both. The error is that of ``logit_log_probabilities``.
    """
    return _with_wrong_labels(logit_log_probabilities(mean, variance), rates)


def _with_wrong_labels(log_p: np.ndarray, rates: ArrayLike) -> np.ndarray:
    """Log probabilities (n, 2) of labels after -1 became +1 with the first rate, and +1 became -1 with the second."""
    rates = np.broadcast_to(np.asarray(rates, dtype=np.float64), 2)
    with np.errstate(divide="ignore"):
        wrong = np.log(rates[::-1])
    return np.logaddexp(np.log1p(-rates) + log_p, wrong + log_p[:, ::-1])


def logit_slopes(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives (n,) of p(y = +1) under the logistic link by mean and variance.

    They are those of the logarithm of the less probable class, which keeps its digits, times its probability.
    """
    label = np.where(mean > 0.0, -1.0, 1.0)
    given = np.ascontiguousarray(mean), np.ascontiguousarray(variance)
    log_p, by_mean, by_variance = _local.cavity_scores(_local.LINKS["logit"], *given, label)
    p = label * np.exp(log_p)
    return p * by_mean, p * by_variance


def rates_slopes(mean: np.ndarray, variance: np.ndarray, rates: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives (n,) of p(y = +1) of ``rates_log_probabilities`` by mean and variance."""
    factor = 1.0 - float(np.sum(np.broadcast_to(rates, 2)))
    by_mean, by_variance = logit_slopes(mean, variance)
    return factor * by_mean, factor * by_variance


def noisy_slopes(
    mean: np.ndarray, variance: np.ndarray, noise_variance: float, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives (n,) of p(y = +1) of ``noisy_log_probabilities`` by mean and variance; 0 for a step at the mean."""
    total = variance + noise_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        density = (1.0 - 2.0 * delta) * np.exp(-0.5 * mean**2 / total) / np.sqrt(2.0 * np.pi * total)
        slopes = np.where(total > 0.0, (density, -0.5 * mean / total * density), 0.0)
    return slopes[0], slopes[1]
