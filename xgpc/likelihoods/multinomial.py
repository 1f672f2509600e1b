"""Multinomial likelihoods: predictive log probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._sites import Values
from .largest import Family, largest_of

# Least variance of a latent value plus noise: without any variance the quadrature has no scale.
LEAST_VARIANCE = 1e-12
NORMAL = Family(lambda: np.empty((0, 0, 0)), (0.0, 0.0), lambda scale: scale)


def normal_reach(scale: Any) -> tuple[Any, Any]:
    """Distances below and above the means that the integral covers, for arrays or ONNX tensors of scales."""
    return 9.0 * scale, 7.0 * scale


def _largest(mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> Values:
    scale = np.sqrt(np.maximum(variance + noise_variance, LEAST_VARIANCE))
    return largest_of(mean, scale, normal_reach(scale), NORMAL)


def multinomial_log_probabilities(mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> np.ndarray:
    """log p_y (n, C): the probabilities that f_y + g_y is the largest, g normal with a variance of 0, 1 or 1.702^2.

    For 2 to 300 classes, the largest measured errors are 1e-8 in p_y, 1e-5 in a logarithm above log 1e-6, and .3 % of a
    smaller logarithm. O(n C): a row takes .005, .05 and .2 ms for 10, 100 and 300 classes.
    """
    return _largest(mean, variance, noise_variance).log_probabilities()


def multinomial_slopes(mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> np.ndarray:
    """Derivatives (2, n, C, C) of the probabilities of ``multinomial_log_probabilities`` by means and variances."""
    return _largest(mean, variance, noise_variance).slopes()
