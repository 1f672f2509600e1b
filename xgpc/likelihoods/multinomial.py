"""Multinomial likelihoods: predictive log probabilities, and the curvature of their sites across classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr

from .. import _vmath
from .largest import Family, largest_log_probabilities
from .row_sites import RowSites


def _normal_terms(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = u / scale
    cdf, density = (values.reshape(u.shape) for values in _vmath.normal(x.ravel()))
    density /= cdf
    density /= scale
    return np.log(cdf, out=cdf), density


def _normal_logs(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Of values farther out the square is infinite.
    x = np.clip(u / scale, -1e150, 1e150)
    square = 0.5 * x * x
    log_ratio = np.log(0.5 * erfcx(np.sqrt(0.5) * np.abs(x)))
    tail = log_ratio - square
    # Left of the mean x^2 / 2 cancels in the hazard.
    left = x < 0.0
    log_cdf = np.where(left, tail, np.log1p(-np.exp(tail)))
    return log_cdf, np.where(left, -log_ratio, -square - log_cdf) - np.log(scale * np.sqrt(2.0 * np.pi))


# What a latent value's variance with its noise counts as at least, in squares of the latent values' unit.
LEAST_VARIANCE = 1e-12
NORMAL = Family(_normal_terms, _normal_logs, lambda u, scale: log_ndtr(-u / scale))


def normal_reach(scale: Any) -> tuple[Any, Any]:
    """How far below and above the means normal values of these scales matter: an array's or a tensor's."""
    return 9.0 * scale, 7.0 * scale


def multinomial_log_probabilities(
    mean: np.ndarray, variance: np.ndarray, noise_variance: float, delta: float
) -> np.ndarray:
    """log p(y = c), (n, C), under additive normal noise and labels replaced by any other with probability delta.

    log[(1 - delta) p_y + delta / (C - 1) (1 - p_y)], p_y the probability that f_y + g_y is the largest.

    By quadrature; the largest errors measured, for 2 to 300 classes, are 1e-8 in p_y, 1e-5 in its logarithm above
    log 1e-6, below it 5 % of the logarithm. O(n C): up to .05, .4 and .9 ms a row of 10, 100 and 300 classes; .2, 1.9
    and 4.7 ms where most are impossible (bench/studies/links.py).

    Parameters
    ----------
    mean, variance : (n, C) of the latent values
    noise_variance : 0, 1 or 1.702^2 as for two classes; with the variance it counts as 1e-12 at least
    delta : in [0, 1)
    """
    scale = np.sqrt(np.maximum(variance + noise_variance, LEAST_VARIANCE))
    value = largest_log_probabilities(mean, scale, normal_reach(scale), NORMAL)
    with np.errstate(divide="ignore"):
        others = np.log(-np.expm1(np.minimum(value, 0.0))) - np.log(mean.shape[1] - 1.0)
        return np.logaddexp(np.log1p(-delta) + value, np.log(delta) + others)


def multinomial_curvature(y: np.ndarray, weight: np.ndarray, sites: RowSites) -> Callable[[np.ndarray], np.ndarray]:
    """Curvature of ell by the means, coupled across classes: values (C, rows) -> its product with them.

    The likelihood compares the label y with every other class: sum over c of lambda_c (e_y - e_c) (e_y - e_c)^T of
    each row, without negative precisions. What couples two other classes is left out.

    Parameters
    ----------
    y : (rows,) float64, 0, ..., C - 1
    weight : not read: precisions have it
    sites : marginals and sites of the rows, (C, rows) each
    """
    label, precision = (y.astype(np.intp), np.arange(len(y))), np.maximum(sites.precision, 0.0)

    def product(values: np.ndarray) -> np.ndarray:
        result = values - values[label]
        result *= precision
        # Of the label itself the difference is zero.
        result[label] -= np.sum(result, axis=0)
        return result

    return product
