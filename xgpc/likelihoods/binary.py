"""Predictive log probabilities of two classes, in the columns (-1, +1), for normal latent values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr

from .. import _sites


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
    logs, thin = _sites.logistic_normal_logs(mean, variance, SERIES_BELOW)
    if len(thin):
        root = np.sqrt(2.0 * variance[thin])
        x = np.abs(mean[thin]) / root
        steps = np.outer(np.arange(1.0, len(SERIES_WEIGHTS) + 1.0), variance[thin] / root)
        series = erfcx(x) + SERIES_WEIGHTS @ (erfcx(steps - x) - erfcx(steps + x))
        small = np.log(0.5 * series) - x * x
        positive = (mean[thin] > 0.0).astype(np.intp)
        logs[thin, 1 - positive], logs[thin, positive] = small, np.log1p(-np.exp(small))
    return logs


def normal_log_probabilities(mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> np.ndarray:
    """log Phi(-+ mean / sqrt(variance + noise_variance)), (n, 2), to round-off: a step of the latent value plus noise.

    For two zero variances the limit, a step at mean zero. The noise variance is 0, 1 or 1.702^2 for the step, probit or
    (nearly) logistic likelihood, and 1 for the svm's link.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(mean == 0.0, 0.0, mean / np.sqrt(variance + noise_variance))
    return np.column_stack([log_ndtr(-t), log_ndtr(t)])


def with_wrong_labels(log_p: np.ndarray, rates: ArrayLike) -> np.ndarray:
    """Log probabilities (n, C) of labels of which some are wrong: any of the other classes with probability ``rates``.

    With two classes ``rates`` may be the two probabilities (2,) that -1 became +1, and +1 became -1.
    """
    n_classes = log_p.shape[1]
    rates = np.broadcast_to(np.asarray(rates, dtype=np.float64), n_classes)
    with np.errstate(divide="ignore"):
        if n_classes == 2:
            others = log_p[:, ::-1]
        else:
            others = np.log(-np.expm1(np.minimum(log_p, 0.0))) - np.log(n_classes - 1.0)
        return np.logaddexp(np.log1p(-rates) + log_p, np.log(rates[::-1]) + others)


def unflipped_share(rates: ArrayLike, n_classes: int) -> float:
    """The share of the probabilities' derivatives that ``with_wrong_labels`` leaves."""
    return 1.0 - float(np.sum(np.broadcast_to(rates, n_classes))) / (n_classes - 1.0)


def logit_slopes(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Derivatives (2, n) of p(y = +1) under the logistic link by mean and variance.

    They are those of the less probable class's log probability, which keeps its digits, times the probability.
    """
    label = np.where(mean > 0.0, -1.0, 1.0)
    moments = np.ascontiguousarray(mean), np.ascontiguousarray(variance)
    log_p, *by_moments = _sites.cavity_scores(_sites.LINKS["logit"], *moments, label)
    return label * np.exp(log_p) * np.stack(by_moments)


def normal_slopes(mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> np.ndarray:
    """Derivatives (2, n) of p(y = +1) of ``normal_log_probabilities`` by mean and variance; a step has none."""
    total = variance + noise_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.exp(-0.5 * mean**2 / total) / np.sqrt(2.0 * np.pi * total)
        return np.where(total > 0.0, (density, -0.5 * mean / total * density), 0.0)
