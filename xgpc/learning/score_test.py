"""A test whether the labels of near rows contain information that a sparse posterior misses."""

from __future__ import annotations

import numpy as np

from ..rows.neighbours import Metric, Neighbours
from ..rows.source import ArraySource, class_codes, labels_and_weights

# Rows whose neighbours are searched.
TESTED_ROWS = 4000


def score_test(
    metric: Metric, probabilities: np.ndarray, source: ArraySource, n_neighbors: int, n_threads: int
) -> float:
    """Score test for a residual process: are the labels of near rows more alike than the probabilities explain?

    With e_i = 1(label) - p_i, T is the sum of R_ij e_i.e_j over tested rows i and their k nearest rows j, where R_ij =
    w_i w_j exp(-distance / s), and s is the median distance of the k-th nearest row. Returns T divided by an upper
    bound of its standard deviation: about standard normal, or narrower, if there is no residual. O(r k (d + C)) and a
    search. It is the test of a variance component of X. Lin (Biometrika 84, 1997), without the terms i = j.

    Parameters
    ----------
    metric : of the distances between rows
    probabilities : (r, C), of the classes of the source's rows
    source : ArraySource with r rows, labels -1 or +1, or 0, ..., C - 1
    """
    X, n_classes = source.X, probabilities.shape[1]
    tested = np.linspace(0, len(X) - 1, min(len(X), TESTED_ROWS)).astype(np.intp)
    near = Neighbours(X, metric).of(X[tested], min(n_neighbors + 1, len(X)), n_threads)
    y, weight = labels_and_weights(source)
    e = (class_codes(y)[:, None] == np.arange(n_classes)) - probabilities
    distance = np.stack([metric.distances(X[rows], X[tested]) for rows in near.T], axis=1)
    scale = max(float(np.median(distance[:, -1])), np.finfo(float).tiny)
    R = (near != tested[:, None]) * np.exp(-distance / scale) * weight[tested][:, None] * weight[near]
    p, p_near = probabilities[tested][:, None], probabilities[near]
    both = p * p_near
    traces = np.sum(both * (1.0 - p - p_near), axis=2) + np.sum(both, axis=2) ** 2
    T = np.sum(R * np.einsum("rc,rkc->rk", e[tested], e[near]))
    return float(T / np.sqrt(max(2.0 * np.sum(R**2 * traces), np.finfo(float).tiny)))
