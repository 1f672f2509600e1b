"""Ordered classes: predictive log probabilities between cut points of one latent function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

# Cut points stay this far apart: the likelihood of a class without rows is highest where its interval is empty.
LEAST_GAP = 1e-3
# The smallest relative difference of two neighbouring cumulative probabilities that rounding errors leave.
LEAST_SHARE = 1e-12

Link = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ordinal_log_probabilities(mean: np.ndarray, variance: np.ndarray, cut_points: np.ndarray, link: Link) -> np.ndarray:
    """log p(y = c) (n, C), c = 0..C-1, that f plus noise is between cut points c and c + 1, for f ~ N(mean, variance).

    ``link`` gives the logarithms of P(y <= c) and P(y > c) at the distance of the mean from a cut point. A class is the
    difference of two of one kind, the smaller ones, so that its error is the link's relative to the interval's width.
    """
    n, inner = len(mean), len(cut_points)
    distance = (mean[:, None] - cut_points).ravel()
    sides = link(distance, np.repeat(variance, inner)).reshape(n, inner, 2)
    below = np.column_stack([np.full(n, -np.inf), sides[..., 0], np.zeros(n)])
    above = np.column_stack([np.zeros(n), sides[..., 1], np.full(n, -np.inf)])
    is_low = below[:, 1:] < above[:, :-1]
    larger = np.where(is_low, below[:, 1:], above[:, :-1])
    smaller = np.where(is_low, below[:, :-1], above[:, 1:])
    value = larger + np.log(np.maximum(-np.expm1(smaller - larger), LEAST_SHARE))
    return np.asarray(value - logsumexp(value, axis=1, keepdims=True))


def ordinal_slopes(mean: np.ndarray, variance: np.ndarray, cut_points: np.ndarray, slopes: Link) -> np.ndarray:
    """Derivatives (2, n, C) of the probabilities by mean and variance; ``slopes`` are those of P(y > c)."""
    n, inner = len(mean), len(cut_points)
    above = slopes((mean[:, None] - cut_points).ravel(), np.repeat(variance, inner)).reshape(2, n, inner)
    return -np.diff(above, axis=2, prepend=0.0, append=0.0)


def apart(first: float, gaps: np.ndarray) -> np.ndarray:
    """Cut points (C - 1,) from the first one and their distances, which are at least ``LEAST_GAP``."""
    return first + np.append(0.0, np.cumsum(np.maximum(gaps, LEAST_GAP)))
