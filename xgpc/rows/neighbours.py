"""The nearest rows."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.spatial import cKDTree
from sklearn import config_context
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import KDTree, NearestNeighbors
from threadpoolctl import ThreadpoolController

from .executor import on_threads

# A search goes through a tree where this share of the rows is looked at, at most. Comparing all takes a seventeenth of
# the time per row that is looked at (a9a): half of the share at which both are as fast. Counted for so many rows.
TREE_SHARE, PROBES = 0.03, 50
# With more rows than this, and where a tree does not help, some of the nearest are missed: clusters of the square root
# of n rows are searched until these many rows were compared. Of 24 nearest it found .5 to .7 in the worst case tried,
# 28 features of equal weight.
EXACT_ROWS, COMPARED_ROWS = 30_000, 4096
# Points of a call to a search: enough that the calls themselves cost nothing.
CALL_POINTS = 1024
# Coordinates beyond this are put there: with larger ones squared distances overflow, and a tree finds none.
LARGEST = 1e150
# Threads over points are ours: those of OpenMP would find other ones of equally near rows if they were another number.
ONE_THREAD = partial(ThreadpoolController().limit, limits=1, user_api="openmp")


class Neighbours:
    """Rows (n, d) to look for the nearest of, by Euclidean distance.

    By a k-d tree where few features matter; else by comparing all rows, O(n d) each, or, of many rows, those of near
    clusters, O(n^1/2 d): only then the nearest are found but for some.

    Attributes
    ----------
    method : "tree", "all" or "clusters"
    """

    def __init__(self, rows: np.ndarray):
        self.rows = _limited(rows)
        self.n_rows = len(rows)
        if self._is_low_dimensional():
            self.method = "tree"
            # Splits at midpoints: of equal rows, of which there may be many, no tree of medians can be made.
            self._tree = cKDTree(self.rows, balanced_tree=False, compact_nodes=False)
        elif self.n_rows <= EXACT_ROWS:
            self.method = "all"
        else:
            self.method = "clusters"
            self._centres = self.rows[:: int(np.sqrt(self.n_rows))]
            nearest = _nearest_centre(self.rows, self._centres)
            counts = np.bincount(nearest, minlength=len(self._centres))
            members = np.split(np.argsort(nearest, kind="stable"), np.cumsum(counts)[:-1])
            order = _nearest(self._centres, self._centres, len(self._centres))
            ends = np.argmax(np.cumsum(counts[order], axis=1) >= min(COMPARED_ROWS, self.n_rows), axis=1)
            # Rows to compare with a point whose nearest centre is that one.
            self._compared = [
                np.concatenate([members[other] for other in near[: end + 1]])
                for near, end in zip(order, ends, strict=True)
            ]

    def _is_low_dimensional(self) -> bool:
        if self.rows.shape[1] <= 3 or self.n_rows <= PROBES:
            return True
        tree = KDTree(self.rows)
        tree.reset_n_calls()
        tree.query(self.rows[:: self.n_rows // PROBES][:PROBES], k=min(8, self.n_rows))
        return bool(tree.get_n_calls() <= TREE_SHARE * PROBES * self.n_rows)

    def of(self, points: np.ndarray, k: int, n_threads: int = 1) -> np.ndarray:
        """Numbers (r, k) of the k nearest rows of each point (r, d), the nearest first."""
        points = _limited(points)
        if k == 0:
            return np.empty((len(points), 0), dtype=np.int64)
        if self.method == "clusters" and k <= COMPARED_ROWS // 4:
            return self._of_clusters(points, k, n_threads)

        def search(part: np.ndarray) -> np.ndarray:
            return self._of_tree(part, k) if self.method == "tree" else _nearest(self.rows, part, k)

        return np.concatenate(on_threads(n_threads)(search, _calls(points)))

    def _of_tree(self, points: np.ndarray, k: int) -> np.ndarray:
        # By one worker: an interrupt would leave threads of SciPy's at work, which write to memory that is freed.
        _, found = self._tree.query(points, np.arange(1, k + 1), workers=1)
        return np.ascontiguousarray(found, dtype=np.int64)

    def of_rows(self, k: int, n_threads: int = 1) -> np.ndarray:
        """Numbers (n, k) of the k nearest other rows of each row."""
        found = self.of(self.rows, k + 1, n_threads)
        is_self = found == np.arange(self.n_rows)[:, None]
        # Of more than k equal rows it need not be among those found.
        is_self[~np.any(is_self, axis=1), -1] = True
        return found[~is_self].reshape(self.n_rows, k)

    def _of_clusters(self, points: np.ndarray, k: int, n_threads: int) -> np.ndarray:
        found = np.empty((len(points), k), dtype=np.int64)
        each = on_threads(n_threads)
        nearest = np.concatenate(each(lambda part: _nearest_centre(part, self._centres), _calls(points)))

        def search(cluster: int) -> None:
            here = np.flatnonzero(nearest == cluster)
            rows = self._compared[cluster]
            found[here] = rows[_nearest(self.rows[rows], points[here], k)]

        each(search, np.unique(nearest).tolist())
        return found


def _limited(points: np.ndarray) -> np.ndarray:
    return np.clip(np.ascontiguousarray(points, dtype=np.float64), -LARGEST, LARGEST)


def _calls(points: np.ndarray) -> list[np.ndarray]:
    return np.array_split(points, max(1, len(points) // CALL_POINTS))


def _nearest_centre(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    with ONE_THREAD():
        return pairwise_distances_argmin(points, centres)


def _nearest(rows: np.ndarray, points: np.ndarray, k: int) -> np.ndarray:
    # What is checked already need not be checked for each cluster.
    with ONE_THREAD(), config_context(assume_finite=True, skip_parameter_validation=True):
        search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows)
        return np.ascontiguousarray(search.kneighbors(points, return_distance=False), dtype=np.int64)
