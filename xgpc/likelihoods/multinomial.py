"""Multinomial likelihoods: predictive log probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr

from .. import _sites
from .largest import Family, largest_log_probabilities, largest_slopes


def _normal_terms(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = u / scale
    cdf, density = (values.reshape(u.shape) for values in _sites.normal(x.ravel()))
    density /= cdf
    density /= scale
    x /= -scale
    return np.log(cdf, out=cdf), density, x


def _normal_logs(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Beyond this the square overflows.
    x = np.clip(u / scale, -1e150, 1e150)
    square = 0.5 * x * x
    log_ratio = np.log(0.5 * erfcx(np.sqrt(0.5) * np.abs(x)))
    tail = log_ratio - square
    # Left of the mean, x^2 / 2 cancels between density and distribution function.
    is_left = x < 0.0
    log_cdf = np.where(is_left, tail, np.log1p(-np.exp(tail)))
    return log_cdf, np.where(is_left, -log_ratio, -square - log_cdf) - np.log(scale * np.sqrt(2.0 * np.pi))


# Least variance of a latent value plus noise: without any variance the quadrature has no scale.
LEAST_VARIANCE = 1e-12
NORMAL = Family(_normal_logs, lambda u, scale: log_ndtr(-u / scale), _normal_terms)


def normal_reach(scale: Any) -> tuple[Any, Any]:
    """Distances below and above the means that the integral covers, for arrays or ONNX tensors of scales."""
    return 9.0 * scale, 7.0 * scale


def multinomial_log_probabilities(mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> np.ndarray:
    """log p_y (n, C): the probabilities that f_y + g_y is the largest, g normal with a variance of 0, 1 or 1.702^2.

    For 2 to 300 classes, the largest measured errors of the quadrature are 1e-8 in p_y, 1e-5 in a logarithm above
    log 1e-6, and 5 % of a smaller logarithm. O(n C): a row takes up to .05, .4 and .9 ms for 10, 100 and 300 classes,
    and .2, 1.9 and 4.7 ms if most classes are impossible.
    """
    scale = np.sqrt(np.maximum(variance + noise_variance, LEAST_VARIANCE))
    return largest_log_probabilities(mean, scale, normal_reach(scale), NORMAL)


def multinomial_slopes(mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> np.ndarray:
    """Derivatives (2, n, C, C) of the probabilities of ``multinomial_log_probabilities`` by means and variances."""
    scale = np.sqrt(np.maximum(variance + noise_variance, LEAST_VARIANCE))
    return largest_slopes(mean, scale, normal_reach(scale), NORMAL)
