"""Search for the nearest rows."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.spatial import cKDTree
from sklearn import config_context
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import KDTree, NearestNeighbors
from threadpoolctl import ThreadpoolController

from .executor import on_threads

# A search uses a tree if it looks at no more than this share of the rows, counted for PROBES of them. Comparing all
# takes a seventeenth of the time for each row (a9a); this is half of the share at which both are as fast.
TREE_SHARE, PROBES = 0.03, 50
# With more rows than this, and if a tree does not help, some of the nearest are missed: of clusters of the square root
# of n rows, the nearest are searched until COMPARED_ROWS rows were compared. In the worst case tried, 28 features of
# equal weight, it found .5 to .7 of 24 nearest.
EXACT_ROWS, COMPARED_ROWS = 30_000, 4096
# Points of one call to a search: enough that calls cost nothing.
CALL_POINTS = 1024
# Coordinates are clipped here: larger ones make squared distances overflow, and a tree finds none.
LARGEST = 1e150
# The threads over points are ours: another number of OpenMP's threads would find other ones of equally near rows.
ONE_THREAD = partial(ThreadpoolController().limit, limits=1, user_api="openmp")


class Neighbours:
    """Rows (n, d) among which the nearest are searched, by Euclidean distance.

    ``method`` is "tree" (a k-d tree, if few features matter), "all" (compares all rows, O(n d) for each point), or
    "clusters" (of many rows, compares those of near clusters, O(n^1/2 d)); only "clusters" misses some of the nearest.
    """

    def __init__(self, rows: np.ndarray):
        self.rows = _limited(rows)
        self.n_rows = len(rows)
        if self._is_low_dimensional():
            self.method = "tree"
            # Splits at midpoints, because medians do not divide equal rows.
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
            # For each centre, the rows to compare with the points nearest to it.
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
        points, each = _limited(points), on_threads(n_threads)
        parts = np.array_split(points, max(1, len(points) // CALL_POINTS))
        if k == 0:
            return np.empty((len(points), 0), dtype=np.int64)
        if self.method == "clusters" and k <= COMPARED_ROWS // 4:
            found = np.empty((len(points), k), dtype=np.int64)
            nearest = np.concatenate(each(lambda part: _nearest_centre(part, self._centres), parts))

            def compare(cluster: int) -> None:
                here, rows = np.flatnonzero(nearest == cluster), self._compared[cluster]
                found[here] = rows[_nearest(self.rows[rows], points[here], k)]

            each(compare, np.unique(nearest).tolist())
            return found

        def search(part: np.ndarray) -> np.ndarray:
            if self.method != "tree":
                return _nearest(self.rows, part, k)
            # One worker: after an interrupt, threads of SciPy's would still write to memory that is freed.
            _, index = self._tree.query(part, np.arange(1, k + 1), workers=1)
            return np.ascontiguousarray(index, dtype=np.int64)

        return np.concatenate(each(search, parts))

    def of_rows(self, k: int, n_threads: int = 1) -> np.ndarray:
        """Numbers (n, k) of the k nearest other rows of each row."""
        found = self.of(self.rows, k + 1, n_threads)
        is_self = found == np.arange(self.n_rows)[:, None]
        # Among more than k equal rows, the row itself need not be found.
        is_self[~np.any(is_self, axis=1), -1] = True
        return found[~is_self].reshape(self.n_rows, k)


def _limited(points: np.ndarray) -> np.ndarray:
    return np.clip(np.ascontiguousarray(points, dtype=np.float64), -LARGEST, LARGEST)


def _nearest_centre(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    with ONE_THREAD():
        return pairwise_distances_argmin(points, centres)


def _nearest(rows: np.ndarray, points: np.ndarray, k: int) -> np.ndarray:
    # Rows are checked already.
    with ONE_THREAD(), config_context(assume_finite=True, skip_parameter_validation=True):
        search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows)
        return np.ascontiguousarray(search.kneighbors(points, return_distance=False), dtype=np.int64)
