"""Inducing points: k-means, random rows, greedy conditional variance, all rows, or given ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
from threadpoolctl import ThreadpoolController

from ..approximations.base import KernelPrior
from ..approximations.sparse import SparsePrior
from ..data.far_values import limits_of, within
from ..kernels.spec import Groups, KernelSpec
from ..ranges import LARGEST_FEATURE, largest_size, refuse_masked
from ..rows.source import RowSource, dense

# n_inducing="auto" starts with FIRST_INDUCING, or FIRST_OF_FEW of fewer than FEW_ROWS rows, and doubles them to
# MAX_INDUCING at most. (Of 700 rows of ten features, 32 points missed a feature in seven of sixteen samples, and more
# points, judged by the kernel that was learned with these, then seemed to gain nothing; 64 missed none. From 1500 rows
# on 32 missed none. Rows that neighbours are tried for take 32, as each sweep takes longer with more.)
FIRST_INDUCING, FIRST_OF_FEW, FEW_ROWS, MAX_INDUCING = 32, 64, 2000, 2048
# Lloyd iterations: the optimizer moves the points on, the last changes of k-means are not worth waiting for.
KMEANS_ITERATIONS = 30
# Standardised rows that agree to so many decimals are one for it. Of nearer ones its rounded distances make fewer
# clusters than were asked for, of which it warns; of 6000 random samples, a sixth of near pairs, no other did.
ALIKE = 6
# Rows looked at for start values and inducing points: this many, or so many for each inducing point.
SAMPLE_ROWS = 5_000
SAMPLE_ROWS_PER_POINT = 20
# Looking for the process's thread pools takes milliseconds: once. scikit-learn has loaded its own by now.
OPENMP = ThreadpoolController()
METHODS = ("kmeans", "random", "greedy", "all")
# Candidates of a choice by conditional variances: at most this many rows, or so many for each point to choose. It takes
# memory for (m, candidates) matrices.
GREEDY_ROWS = 5000
GREEDY_ROWS_PER_POINT = 5
# It stops early once the conditional variances of all candidates have fallen to this share of their variances: what is
# left is the jitter.
GREEDY_TRACE = 1e-6


class Sample:
    """Distinct rows of a random sample of the data, with multiplicities.

    A row of weight w counts as w rows, so that weights and repeated rows lead to the same start.

    Attributes
    ----------
    rows : (r, d) float64, distinct, sorted
    counts : (r,) float64
    within_limits : (r, d) float64, rows with what stands for values far from all others in their places
    mean : (d,) float64
    scale : (d,) float64
        Standard deviation within limits; half the difference for a feature of two values, of which a rare one would
        else be very far from the other; 1 for a constant feature. Of features of one group, levels of a column: what
        these would have if each were as frequent, the root of half of the mean squared distance.
    """

    def __init__(self, source: RowSource, size: int, random_state: np.random.RandomState, groups: Groups | None = None):
        n = source.n_rows
        part = source.sample(np.arange(n) if n <= size else random_state.choice(n, size, replace=False))
        rows = np.asarray(part.X, dtype=np.float64)
        counts = part.weight if len(part.weight) else np.ones(len(rows))
        self.rows, inverse = np.unique(rows, axis=0, return_inverse=True)
        self.counts = np.bincount(inverse.ravel(), counts, minlength=len(self.rows))
        self.within_limits = within(self.rows, limits_of(self.rows, self.counts))
        self.mean, self.scale = mean_and_scale(self.within_limits, self.counts)
        low, high = np.min(self.rows, axis=0), np.max(self.rows, axis=0)
        two_valued = (low < high) & np.all((self.rows == low) | (self.rows == high), axis=0)
        self.scale[two_valued] = 0.5 * (high - low)[two_valued]
        if groups is not None:
            n_levels = np.maximum(groups.sums(low < high), 1.0)[groups.index]
            of_levels = np.where(n_levels > 1.0, np.sqrt(0.5 - 0.5 / n_levels), 1.0)
            self.scale = np.where(groups.are_shared, of_levels, self.scale)


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


def mean_and_spread(source: RowSource) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation (d,) of all rows, block by block; the latter is 0 for a constant feature."""
    scaler = StandardScaler()
    for block in source.blocks():
        scaler.partial_fit(block.X, sample_weight=block.weight if len(block.weight) else None)
    return np.asarray(scaler.mean_), np.sqrt(scaler.var_)


def sample_size(n_inducing: int | str) -> int:
    """Rows to sample for a number of inducing points."""
    m = FIRST_INDUCING if isinstance(n_inducing, str) else int(n_inducing)
    return max(SAMPLE_ROWS, SAMPLE_ROWS_PER_POINT * m)


def first_inducing(n_rows: int) -> int:
    """Number of inducing points that n_inducing="auto" starts with, of so many distinct rows of a sample."""
    return FIRST_OF_FEW if n_rows < FEW_ROWS else FIRST_INDUCING


def inducing_points(
    sample: Sample,
    method: str | ArrayLike,
    n_inducing: int | str,
    random_state: np.random.RandomState,
    spec: KernelSpec,
) -> np.ndarray:
    """Inducing points (m, d) for a sample of the data; never more than its distinct rows.

    The greedy choice depends on the kernel ``spec``, at its values.

    Raises
    ------
    ValueError
        For an unknown method, a wrong number or an array of the wrong shape.
    """
    if not isinstance(method, str):
        return given_points(method, sample.rows.shape[1])
    if method not in METHODS:
        raise ValueError(f"inducing_points must be one of {list(METHODS)} or an array (m, d); got {method!r}.")
    if isinstance(n_inducing, str):
        if n_inducing != "auto":
            raise ValueError(f"n_inducing must be a positive integer or 'auto'; got {n_inducing!r}.")
        n_inducing = first_inducing(len(sample.rows))
    m = min(int(n_inducing), len(sample.rows))
    if method == "all" or m == len(sample.rows):
        return sample.rows
    if method == "random":
        return sample.rows[np.sort(random_state.choice(len(sample.rows), m, replace=False))]
    if method == "greedy":
        size = max(GREEDY_ROWS, GREEDY_ROWS_PER_POINT * m)
        chosen = slice(None) if len(sample.rows) <= size else random_state.choice(len(sample.rows), size, replace=False)
        return greedy_conditional_variance(spec, sample.rows[chosen], m)
    standardised, counts = _told_apart((sample.within_limits - sample.mean) / sample.scale, sample.counts)
    if m >= len(standardised):
        return standardised * sample.scale + sample.mean
    # One thread: with more, the order of its sums, and so the last bits, would vary from run to run.
    with OPENMP.limit(limits=1, user_api="openmp"):
        centres = (
            KMeans(m, n_init=1, max_iter=KMEANS_ITERATIONS, random_state=random_state)
            .fit(standardised, sample_weight=counts)
            .cluster_centers_
        )
    return centres * sample.scale + sample.mean


def _told_apart(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of standardised rows that are alike the first one, with the counts of all, in their order."""
    _, first, inverse = np.unique(np.round(rows, ALIKE), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return rows[first[order]], np.bincount(inverse.ravel(), counts)[order]


def greedy_conditional_variance(spec: KernelSpec, rows: np.ndarray, n_inducing: int) -> np.ndarray:
    """The rows (n, d) of largest variance given those chosen before: a pivoted Cholesky factorisation.

    At most ``n_inducing`` of them; fewer once the conditional variances sum to ``GREEDY_TRACE`` of the variances.
    O(n m^2) time and O(n m) memory.

    References
    ----------
    Fine, Scheinberg. Efficient SVM training using low-rank kernel representations. JMLR 2001, figure 1.
    """
    spec = spec.without_noise()
    variances = spec.at(rows[:1]).diagonals(rows)
    remaining = variances.copy()
    factor = np.empty((n_inducing, len(rows)))
    chosen: list[int] = []
    for j in range(n_inducing):
        pivot = int(np.argmax(remaining))
        if np.sum(remaining) <= GREEDY_TRACE * np.sum(variances):
            break
        column = spec.at(rows[pivot : pivot + 1]).cross(rows)[:, 0] - factor[:j].T @ factor[:j, pivot]
        factor[j] = column / np.sqrt(remaining[pivot])
        remaining = np.maximum(remaining - factor[j] ** 2, 0.0)
        remaining[pivot] = 0.0
        chosen.append(pivot)
    return rows[chosen]


def conditional_variance_sample(
    prior: SparsePrior, rows: Any, n_more: int, random_state: np.random.RandomState, n_before: int = 0
) -> np.ndarray:
    """At most ``n_more`` distinct rows drawn in proportion to their variance given the inducing points of ``prior``.

    ``rows`` (n, d) may be CSR, of which few become dense.

    There are then no more points than distinct rows, with the ``n_before`` that the points so far may be of.
    """
    if n_more <= 0:
        return np.empty((0, rows.shape[1]))
    size = max(GREEDY_ROWS, GREEDY_ROWS_PER_POINT * n_more)
    if rows.shape[0] > size:
        rows = rows[np.sort(random_state.choice(rows.shape[0], size, replace=False))]
    rows = np.unique(np.asarray(dense(rows), dtype=np.float64), axis=0)
    whitened = prior.core.cross(rows) @ prior.Linv.T
    core = prior.spec.without_noise().at(prior.Z)
    variance = core.diagonals(rows) - np.einsum("ij,ij->i", whitened, whitened)
    # Rows that the inducing points explain up to the jitter would add nothing.
    variance[variance <= 2.0 * prior.jitter * np.mean(core.diagonals(prior.Z))] = 0.0
    n_more = min(n_more, n_before + len(rows) - len(prior.Z), int(np.count_nonzero(variance)))
    if n_more <= 0:
        return rows[:0]
    return rows[np.sort(random_state.choice(len(rows), n_more, replace=False, p=variance / variance.sum()))]


def with_more_points(
    prior: KernelPrior, rows: Any, n_more: int, random_state: np.random.RandomState, n_before: int = 0
) -> KernelPrior:
    """The prior with at most ``n_more`` inducing points added to those of every kernel, drawn as above.

    As many points as there are distinct rows are these rows, and none of the centres before: no others tell more.
    """
    while True:
        points = [conditional_variance_sample(group, rows, n_more, random_state, n_before) for group in prior.groups]
        least = min(len(more) for more in points)
        if all(len(more) == least for more in points):
            break
        n_more = least
    if not least:
        return prior
    larger = [np.vstack([group.Z, more]) for group, more in zip(prior.groups, points, strict=True)]
    if not n_before and rows.shape[0] <= GREEDY_ROWS:
        distinct = np.unique(np.asarray(dense(rows), dtype=np.float64), axis=0)
        larger = [distinct] * len(larger) if len(larger[0]) == len(distinct) else larger
    Z = np.stack(larger)
    return prior.rebuilt([group.spec for group in prior.groups], Z.reshape(*prior.Z.shape[:-2], *Z.shape[1:]))


def given_points(points: ArrayLike, n_features: int) -> np.ndarray:
    """Inducing points that the user gives, as (m, d) float64; ValueError for anything but a table of numbers."""
    allowed = f"inducing_points must be one of {list(METHODS)} or a numeric array (m, d)"
    refuse_masked(points)
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
    if largest_size(Z) > LARGEST_FEATURE:
        raise ValueError(f"inducing_points has a value of size {largest_size(Z):.3g}; at most {LARGEST_FEATURE:g}.")
    return Z
