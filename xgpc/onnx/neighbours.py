"""Means and variances of latent functions given the sites of the nearest training rows, as a graph."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from ..approximations.local import LocalPosterior
from ..ranges import LEAST_DIVISOR
from ..rows.neighbours import EXACT_ROWS
from .graph import Tensor, absolute, concatenated, maximum, where
from .latent import ToPoints, among, covariances, variances


def _solved(matrix: Tensor, right: Tensor, k: int) -> Tensor:
    """matrix^-1 right (C, rows, k, 1), of positive definite matrices (C, rows, k, k): k^3 / 2 operations each."""
    augmented = concatenated([matrix, right], 3)
    for j, unit in enumerate(np.eye(k)[..., None]):
        column, later = augmented.slice(3, 0, 1), augmented.slice(3, 1, k + 1 - j)
        row = later.slice(2, j, j + 1) / column.slice(2, j, j + 1)
        # Row j itself becomes this row.
        augmented = later - (column - unit) * row
    return augmented


def marginals_by_neighbours(q: LocalPosterior, X: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances (rows, C) by the formulas at the head of ``xgpc.approximations.local_rows``.

    They go through I + lambda^1/2 D lambda^1/2, which exists for lambda = 0, too.
    """
    n, k = len(q.X), q.n_neighbors
    if n > EXACT_ROWS:
        raise ValueError(
            f"The model predicts with the nearest of {n} training rows, and an ONNX model, which compares a row with "
            f"all of them, may have {EXACT_ROWS} at most: fit to fewer rows, or with n_neighbors=0."
        )
    core, whitened, constant, metric = q.prior.core, q.whitened_rows, X.graph.constant, q.neighbours.metric
    # By differences, so that equal training rows are equally near; of these the first are taken.
    differences = ToPoints(X, q.X.astype(np.float64)).differences(np.full(q.X.shape[1], metric.scale))
    distances = reduce(add, [absolute(gap) if metric.power == 1 else gap * gap for gap in differences])
    index = distances.apply("TopK", [k], axis=1, largest=0, n_outputs=2)

    def of_nearest(values: np.ndarray, axis: int = 0) -> Tensor:
        return constant(values).apply("Gather", index, axis=axis)

    a, a_near = covariances(core, ToPoints(X, core.inducing_points)) @ q.prior.Linv.T.copy(), of_nearest(whitened.a)
    # The row comes after its neighbours.
    a_all = concatenated([a_near, a.with_axis(1)], 1)
    K = covariances(core, among(concatenated([of_nearest(q.X.astype(np.float64)), X.with_axis(1)], 1)))
    D = (K - a_all @ a_all.transposed(0, 2, 1)).slice(1, 0, k)
    D_near = where(constant(np.eye(k) > 0.0), of_nearest(whitened.residual).with_axis(2), D.slice(2, 0, k))
    own = maximum(variances(core, X) - (a * a).sum(1), 0.0)
    # Of all latent functions: (C, rows, k, 1).
    roots = np.sqrt(np.maximum(q.precision, LEAST_DIVISOR))
    root, target = (of_nearest(values, 1).with_axis(3) for values in (roots, q.linear / roots))
    s = root * D.slice(2, k, k + 1)
    t = _solved(root * D_near * root.transposed(0, 1, 3, 2) + np.eye(k), s, k)
    b = a - ((root * t).transposed(0, 1, 3, 2) @ a_near).apply("Squeeze", [2])
    shift, explained = ((values * t).sum(2).apply("Squeeze", [3]) for values in (target, s))
    mean, variance = b @ q.w[..., None] + shift, maximum(own - explained, 0.0) + ((b @ q.V) * b).sum(2)
    # From (C, rows, 1) to (rows, C).
    mean, variance = (values.apply("Squeeze", [2]).transposed(1, 0) for values in (mean, variance))
    return mean, q.variance_scale * variance
