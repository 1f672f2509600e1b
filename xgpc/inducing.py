"""Inducing points: k-means, random rows, all rows, or given ones."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

# n_inducing="auto" stands for this many, or the number of distinct rows if that is smaller: a compromise, as the cost
# of a pass grows with its square.
DEFAULT_INDUCING = 256
# Lloyd iterations: the optimizer moves the points on, the last changes of k-means are not worth waiting for.
KMEANS_ITERATIONS = 30
# Rows looked at for start values and inducing points: this many, or so many for each inducing point.
SAMPLE_ROWS = 10_000
SAMPLE_ROWS_PER_POINT = 20
METHODS = ("kmeans", "random", "all")


class Sample:
    """Distinct rows of a random sample of the data, with multiplicities.

    A row of weight w counts as w rows, so that weights and repeated rows lead to the same start.

    Attributes
    ----------
    rows : (r, d) float64, distinct, sorted
    counts : (r,) float64
    mean, scale : (d,) float64, of the sample; a constant feature has scale 1
    """

    def __init__(self, X: np.ndarray, weight: np.ndarray | None, size: int, random_state: np.random.RandomState):
        chosen = slice(None) if len(X) <= size else random_state.choice(len(X), size, replace=False)
        rows = np.asarray(X[chosen], dtype=np.float64)
        counts = np.ones(len(rows)) if weight is None else weight[chosen]
        self.rows, inverse = np.unique(rows, axis=0, return_inverse=True)
        self.counts = np.bincount(inverse.ravel(), counts, minlength=len(self.rows))
        self.mean, self.scale = mean_and_scale(self.rows, self.counts)


def mean_and_scale(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation (d,) of rows (r, d); 1 for a constant feature."""
    mean = np.average(rows, axis=0, weights=counts)
    deviation = rows - mean
    # Divided by the largest before squaring: neither huge nor tiny features leave the range of a double.
    largest = np.max(np.abs(deviation), axis=0)
    double = np.finfo(np.float64)
    # A constant feature has equal values, though the rounding of the mean may leave it deviations.
    varies = np.ptp(rows, axis=0) > np.maximum(double.eps * np.abs(mean), double.tiny / double.eps)
    relative = np.divide(deviation, largest, out=np.zeros_like(deviation), where=varies)
    scale = largest * np.sqrt(np.average(relative**2, axis=0, weights=counts))
    return mean, np.where(varies, scale, 1.0)


def sample_size(n_inducing: int | str) -> int:
    """Rows to sample for a number of inducing points."""
    m = DEFAULT_INDUCING if isinstance(n_inducing, str) else int(n_inducing)
    return max(SAMPLE_ROWS, SAMPLE_ROWS_PER_POINT * m)


def inducing_points(
    sample: Sample,
    method: str | ArrayLike,
    n_inducing: int | str,
    random_state: np.random.RandomState,
) -> np.ndarray:
    """Inducing points (m, d) for a sample of the data; never more than its distinct rows.

    Raises
    ------
    ValueError
        For an unknown method, a wrong number or an array of the wrong shape.
    """
    if not isinstance(method, str):
        return _given(method, sample.rows.shape[1])
    if method not in METHODS:
        raise ValueError(f"inducing_points must be one of {list(METHODS)} or an array (m, d); got {method!r}.")
    if isinstance(n_inducing, str):
        if n_inducing != "auto":
            raise ValueError(f"n_inducing must be a positive integer or 'auto'; got {n_inducing!r}.")
        n_inducing = DEFAULT_INDUCING
    m = min(int(n_inducing), len(sample.rows))
    if method == "all" or m == len(sample.rows):
        return sample.rows
    if method == "random":
        return sample.rows[np.sort(random_state.choice(len(sample.rows), m, replace=False))]
    standardised = (sample.rows - sample.mean) / sample.scale
    # One thread: with more, the order of its sums, and so the last bits, would vary from run to run. A warning that
    # rows coincide once standardised is none of the user's business: coinciding inducing points do no harm.
    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        centres = (
            KMeans(m, n_init=1, max_iter=KMEANS_ITERATIONS, random_state=random_state)
            .fit(standardised, sample_weight=sample.counts)
            .cluster_centers_
        )
    return centres * sample.scale + sample.mean


def _given(points: ArrayLike, n_features: int) -> np.ndarray:
    allowed = f"inducing_points must be one of {list(METHODS)} or a numeric array (m, d)"
    try:
        Z = np.array(points)
        if Z.dtype.kind not in "biuf":
            raise ValueError(f"got an array of {Z.dtype}")
        Z = np.ascontiguousarray(Z, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{allowed}; {error}.") from None
    if Z.ndim != 2 or Z.shape[1] != n_features or not len(Z):
        raise ValueError(
            f"{allowed}, here of shape (m, {n_features}) for data with {n_features} features; got {Z.shape}."
        )
    return Z
