"""A test of whether near rows know more of a row's label than a sparse posterior does, before anything is learned."""

from __future__ import annotations

import numpy as np

from ..approximations.base import KernelPosterior
from ..approximations.local_rows import metric
from ..rows.neighbours import Neighbours
from ..rows.source import ArraySource, labels_and_weights

# Rows whose neighbours are searched, and the rows to search among.
TESTED_ROWS, SEARCHED_ROWS = 4000, 16_000


def score_test(q: KernelPosterior, probabilities: np.ndarray, source: ArraySource, k: int, n_threads: int) -> float:
    """The score test of a variance component: of a residual with covariances R between a row and its k nearest.

    With e = 1(label) - p, T = sum R_ij e_i.e_j over rows i and their neighbours j. Without a residual, z = T / sqrt(Var
    T) is about standard normal; R falls exponentially with the distance, by its median at the k-th neighbour.

    Parameters
    ----------
    q : posterior whose metric the distances have
    probabilities : (r, C), of the classes of the source's rows
    source : ArraySource with r rows
    """
    X = source.X * metric(q.prior.groups[0].core)
    tested = np.linspace(0, len(X) - 1, min(len(X), TESTED_ROWS)).astype(np.intp)
    near = Neighbours(X).of(X[tested], k + 1, n_threads)
    is_other, (y, weight) = near != tested[:, None], labels_and_weights(source)
    labels = np.searchsorted(np.unique(y), y)
    e = (labels[:, None] == np.arange(probabilities.shape[1])) - probabilities
    distance = np.sqrt(np.sum((X[near] - X[tested][:, None]) ** 2, axis=2))
    scale = np.median(distance[:, -1])
    R = (
        np.where(is_other, np.exp(-distance / (scale if scale > 0.0 else 1.0)), 0.0)
        * weight[tested][:, None]
        * weight[near]
    )
    p, p_near = probabilities[tested][:, None], probabilities[near]
    both = p * p_near
    traces = np.sum(both * (1.0 - p - p_near), axis=2) + np.sum(both, axis=2) ** 2
    T = np.sum(R * np.einsum("rc,rkc->rk", e[tested], e[near]))
    return float(T / np.sqrt(max(2.0 * np.sum(R**2 * traces), np.finfo(float).tiny)))
