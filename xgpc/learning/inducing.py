"""Inducing points: how they are chosen, and how many there may be."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from threadpoolctl import ThreadpoolController

from ..approximations.base import KernelPrior
from ..approximations.sparse import JITTER, SparsePrior
from ..data.checks import refuse_not_in_memory
from ..data.moments import Sample
from ..kernels.spec import KernelSpec
from ..kernels.wrappers import is_precomputed
from ..names import MatrixLike
from ..ranges import LARGEST_FEATURE, is_within, largest_size
from ..rows.block import dense
from ..rows.coinciding import by_first_row
from ..status import warn_user
from .hold_out import FEW_ROWS

# n_inducing="auto" starts with FIRST_INDUCING points, or with twice as many for fewer than FEW_ROWS rows, where fewer
# points miss relevant features, and doubles them up to MOST_GROWN. More cannot move with all rows in the time, and 256
# that do predict better than 512 that stay in place (NLL on magic .2789 for .2797, higgs .5259 for .5281).
# Up to MOST_ALL_ROWS rows, or MOST_GROWN if nothing is learned, are all inducing points: k-means and the choice of a
# number take longer than the products with larger matrices.
# MAX_INDUCING limits the points of a stream, each batch of which takes some 10^10 multiplications with so many.
FIRST_INDUCING, MOST_ALL_ROWS, MOST_GROWN, MAX_INDUCING = 32, 128, 256, 2048
# Lloyd iterations: the optimizer moves the points anyway, so k-means need not converge.
KMEANS_ITERATIONS = 30
# Standardised rows that agree to this many decimals count as one: k-means would warn that it finds too few clusters.
ALIKE = 6
# Rows sampled for start values and inducing points: this many in total, or this many for each point, which a centre of
# k-means averages.
SAMPLE_ROWS, SAMPLE_ROWS_PER_POINT = 5_000, 20
# This object is made once, because it takes milliseconds, after scikit-learn has loaded its thread pools.
OPENMP = ThreadpoolController()
METHODS = ("kmeans", "random", "greedy", "all")
# Candidates for the greedy choice: SAMPLE_ROWS in total, or this many for each point; they take memory for a matrix
# (points, candidates).
GREEDY_ROWS_PER_POINT = 5
# Measured bytes of a fit for each row and class (marginals and sites of two posteriors), and for each class and pair of
# inducing points with a shared kernel or with own kernels (matrices of two posteriors).
ROW_BYTES, PAIR_BYTES, OWN_PAIR_BYTES = 80, 200, 300
# A fit that needs more memory than this, half of that of a small machine, warns; defaults need less.
MOST_BYTES = 4e9
# Limits, for time, when points are added by default: on rows x classes x points with several classes, and on rows x
# points^2, the work of a pass, with two. The latter allows 256 points for 16 million rows.
MOST_VALUES, MOST_PRODUCTS = 2.5e7, 2**40


def sample_size(n_inducing: int | str) -> int:
    """Number of rows to sample for a number of inducing points."""
    m = FIRST_INDUCING if isinstance(n_inducing, str) else int(n_inducing)
    return max(SAMPLE_ROWS, SAMPLE_ROWS_PER_POINT * m)


def inducing_points(
    sample: Sample,
    method: str | ArrayLike,
    n_inducing: int | str,
    random_state: np.random.RandomState,
    spec: KernelSpec,
    most_all: int = MOST_ALL_ROWS,
) -> np.ndarray:
    """Inducing points (m, d): the user's, or by one of ``METHODS``, at most as many as the sample's distinct rows.

    With ``n_inducing="auto"`` up to ``most_all`` rows are all points.
    """
    rows, n_rows = sample.rows, len(sample.rows)
    if not isinstance(method, str):
        return given_points(method, rows.shape[1])
    if isinstance(n_inducing, str):
        first = 2 * FIRST_INDUCING if n_rows < FEW_ROWS else FIRST_INDUCING
        m = n_rows if n_rows <= most_all else first
    else:
        m = min(int(n_inducing), n_rows)
    if method == "all" or m == n_rows:
        return rows
    if method == "random":
        return rows[np.sort(random_state.choice(n_rows, m, replace=False))]
    if method == "greedy" or is_precomputed(spec.kernel):
        size = max(SAMPLE_ROWS, GREEDY_ROWS_PER_POINT * m)
        chosen = rows if n_rows <= size else rows[random_state.choice(n_rows, size, replace=False)]
        return greedy_conditional_variance(spec, chosen, m)
    standardised = (sample.within_limits - sample.mean) / sample.scale
    return centres_of(standardised, sample.counts, m, random_state) * sample.scale + sample.mean


def centres_of(rows: np.ndarray, counts: np.ndarray, m: int, random_state: np.random.RandomState) -> np.ndarray:
    """At most m centres of rows (n, d), by k-means; a row counts ``counts`` (n,) times."""
    # Rows that are nearly equal are merged: the first of each set, with the summed counts.
    first_rows, place = by_first_row(np.round(rows, ALIKE), axis=0)
    centres, counts = rows[first_rows], np.bincount(place, counts)
    if m < len(centres):
        first_centres = centres[_far_apart(centres, counts, m, random_state)]
        means = KMeans(m, init=first_centres, n_init=1, max_iter=KMEANS_ITERATIONS)
        # With several threads the order of the sums, and so the last bits, would vary between runs.
        with OPENMP.limit(limits=1, user_api="openmp"):
            centres = means.fit(centres, sample_weight=counts).cluster_centers_
    return centres


def _far_apart(rows: np.ndarray, counts: np.ndarray, n_centres: int, random_state: np.random.RandomState) -> np.ndarray:
    """Numbers (n_centres,) of the rows (n, d) where k-means begins; a row counts ``counts`` (n,) times.

    Each is the best of a few rows drawn in proportion to the squared distance from the nearest one before it: greedy
    k-means++ (Arthur & Vassilvitskii, SODA 2007). scikit-learn's takes .2 ms for each centre to check its arguments.
    """
    squares, n_drawn = np.einsum("ij,ij->i", rows, rows), 2 + int(math.log(n_centres))
    chosen, nearest = list[int](), np.full(len(rows), np.inf)
    drawn = random_state.choice(len(rows), 1, p=counts / np.sum(counts))
    for _ in range(n_centres):
        if chosen:
            mass = np.cumsum(counts * nearest)
            drawn = np.minimum(np.searchsorted(mass, mass[-1] * random_state.uniform(size=n_drawn)), len(rows) - 1)
        distances = squares + squares[drawn, None] - 2.0 * (rows[drawn] @ rows.T)
        trials = np.minimum(nearest, np.maximum(distances, 0.0))
        best = int(np.argmin(trials @ counts))
        chosen.append(drawn[best])
        nearest = trials[best]
    return np.array(chosen)


def greedy_conditional_variance(spec: KernelSpec, rows: np.ndarray, n_inducing: int) -> np.ndarray:
    """Choose rows (n, d) in turn by the largest variance given the rows chosen before, until only jitter is left.

    The pivoted Cholesky factorisation of Fine & Scheinberg (JMLR 2001, figure 1): O(n m^2) time and O(n m) memory.
    """
    variances, _ = spec.at(rows[:1]).parts_of_diagonal(rows)
    remaining = variances.copy()
    factor = np.empty((n_inducing, len(rows)))
    chosen: list[int] = []
    for j in range(n_inducing):
        pivot = int(np.argmax(remaining))
        if np.sum(remaining) <= JITTER * np.sum(variances):
            break
        column = spec.at(rows[pivot : pivot + 1]).cross(rows)[:, 0] - factor[:j].T @ factor[:j, pivot]
        factor[j] = column / np.sqrt(remaining[pivot])
        remaining = np.maximum(remaining - factor[j] ** 2, 0.0)
        remaining[pivot] = 0.0
        chosen.append(pivot)
    return rows[chosen]


def conditional_variance_sample(
    prior: SparsePrior, rows: MatrixLike, n_more: int, random_state: np.random.RandomState, n_before: int = 0
) -> np.ndarray:
    """Draw at most ``n_more`` distinct rows, with probabilities proportional to their variance given inducing points.

    ``rows`` (n, d) may be CSR. In total there are at most as many points as distinct rows, where ``n_before`` earlier
    rows count as distinct.
    """
    if n_more <= 0:
        return np.empty((0, rows.shape[1]))
    size = max(SAMPLE_ROWS, GREEDY_ROWS_PER_POINT * n_more)
    if rows.shape[0] > size:
        rows = rows[np.sort(random_state.choice(rows.shape[0], size, replace=False))]
    rows = np.unique(np.asarray(dense(rows), dtype=np.float64), axis=0)
    whitened = prior.core.cross(rows) @ prior.Linv.T
    (variance, _), (of_points, _) = (prior.core.parts_of_diagonal(X) for X in (rows, prior.Z))
    variance -= np.einsum("ij,ij->i", whitened, whitened)
    # Rows that the inducing points explain up to the jitter would add nothing.
    variance[variance <= 2.0 * prior.jitter * np.mean(of_points)] = 0.0
    n_more = min(n_more, n_before + len(rows) - len(prior.Z), int(np.count_nonzero(variance)))
    if n_more <= 0:
        return rows[:0]
    return rows[np.sort(random_state.choice(len(rows), n_more, replace=False, p=variance / variance.sum()))]


def with_more_points(
    prior: KernelPrior, rows: MatrixLike, n_more: int, random_state: np.random.RandomState, n_before: int = 0
) -> KernelPrior:
    """Add at most ``n_more`` inducing points to those of every kernel, by ``conditional_variance_sample``.

    If there would be as many points as distinct rows, the points become these rows: no other points explain more.
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
    if not n_before and rows.shape[0] <= SAMPLE_ROWS:
        distinct = np.unique(np.asarray(dense(rows), dtype=np.float64), axis=0)
        larger = [distinct] * len(larger) if len(larger[0]) == len(distinct) else larger
    Z = np.stack(larger)
    return prior.rebuilt([group.spec for group in prior.groups], Z.reshape(*prior.Z.shape[:-2], *Z.shape[1:]))


def given_points(points: ArrayLike, n_features: int) -> np.ndarray:
    """The user's inducing points as (m, d) float64; ValueError for anything but a numeric table."""
    allowed = f"inducing_points must be one of {list(METHODS)} or a numeric array, here of shape (m, {n_features})"
    refuse_not_in_memory(points)
    try:
        Z = np.array(points)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{allowed}; {error}.") from None
    if Z.dtype.kind not in "biuf" or Z.ndim != 2 or Z.shape[1] != n_features or not len(Z):
        raise ValueError(f"{allowed}; got {Z.shape} of type {Z.dtype}.")
    Z = np.ascontiguousarray(Z, dtype=np.float64)
    if not is_within(Z, LARGEST_FEATURE):
        raise ValueError(f"inducing_points has a value of size {largest_size(Z):.3g}; at most {LARGEST_FEATURE:g}.")
    return Z


def fit_bytes(n_rows: int, n_classes: int, n_inducing: int, own_kernels: bool) -> float:
    """Memory of a fit with several latent functions, without its rows and caches."""
    pairs = (OWN_PAIR_BYTES if own_kernels else PAIR_BYTES) * n_inducing**2
    return float(n_classes) * (ROW_BYTES * float(n_rows) + pairs)


def most_points(n_rows: int, n_classes: int, own_kernels: bool) -> int:
    """Largest number of inducing points by default: it fits half of the memory limit and the time limit."""
    if n_classes == 1:
        return min(MOST_GROWN, max(FIRST_INDUCING, math.isqrt(MOST_PRODUCTS // n_rows)))
    pair = OWN_PAIR_BYTES if own_kernels else PAIR_BYTES
    in_memory = math.isqrt(int(0.5 * MOST_BYTES / (pair * n_classes)))
    return min(MOST_GROWN, in_memory, max(FIRST_INDUCING, int(MOST_VALUES / (n_rows * n_classes))))


def warn_of_many_classes(n_rows: int, n_classes: int, n_inducing: int, own_kernels: bool) -> None:
    """Warn the user of a fit that needs much memory, and name settings that need less."""
    needed = fit_bytes(n_rows, n_classes, n_inducing, own_kernels)
    if needed > MOST_BYTES:
        one_kernel = "share='kernel', " if own_kernels else ""
        warn_user(
            f"A fit of {n_rows} rows to {n_classes} classes with {n_inducing} inducing points needs about "
            f"{1e-9 * needed:.2g} GB of memory. Use {one_kernel}fewer inducing points (n_inducing), fewer rows, or "
            "sklearn.multiclass.OneVsRestClassifier(GPClassifier(...)), which has one class in memory at a time."
        )
