"""Search for the nearest rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import svd

from .._local import Tree
from ..ranges import LARGEST_TO_SQUARE
from .executor import Each, joined, on_threads, parts_of

# With more than EXACT_ROWS rows, about COMPARED_ROWS of them at most are compared with a point, those in the nearest
# boxes. At least 99 % of the 24 nearest rows were found on real sets; 96 % among 200 000 rows whose 10 features matter
# equally, and 56 % with 28 such features.
EXACT_ROWS, COMPARED_ROWS = 30_000, 8192
# Principal directions of DIRECTION_ROWS rows, along which rows are compared first. Where all rows are compared, this
# changes only the time: rows that are far along a few directions need no full comparison.
MOST_DIRECTIONS, DIRECTION_ROWS = 64, 512
# Rows with more features, of which many may be rare levels, are ordered by principal directions for sums of absolute
# differences, too: of 32 nearest ones of 85 000 rows with 54 features all were found, and two thirds in an order by the
# features. With fewer features, the order by features halves the comparisons.
FEW_FEATURES = 16


class Metric(NamedTuple):
    """Distances of rows whose features are multiplied by ``scale``: by squared differences, or absolute ones."""

    scale: np.ndarray | float = 1.0  # (d,)
    power: int = 2  # 1: the sum of absolute differences

    def scaled(self, rows: np.ndarray) -> np.ndarray:
        coordinates = np.ascontiguousarray(rows * self.scale, dtype=np.float64)
        return np.clip(coordinates, -LARGEST_TO_SQUARE, LARGEST_TO_SQUARE)

    def distances(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Distances (n,) of rows (n, d) from others (n, d) or (d,)."""
        return np.asarray(np.linalg.norm(self.scaled(rows) - self.scaled(others), ord=self.power, axis=1))


def principal_directions(deviations: np.ndarray) -> np.ndarray:
    """Right singular vectors of deviations (r, d) as rows, those of large singular values first."""
    try:
        return np.linalg.svd(deviations, full_matrices=False)[2]
    except np.linalg.LinAlgError:
        # LAPACK's fast routine fails on some tables of levels; its slow one does not.
        return svd(deviations, full_matrices=False, lapack_driver="gesvd")[2]


class Neighbours:
    """Rows (n, d) among which the nearest are searched; of equally near rows the first.

    Attributes
    ----------
    order : (n,) the rows' numbers in an order in which near rows are near each other
    """

    def __init__(self, rows: np.ndarray, metric: Metric):
        rows, self.metric = metric.scaled(rows), metric
        some = rows[:: 1 + (len(rows) - 1) // DIRECTION_ROWS]
        mean = np.mean(some, axis=0)
        directions, places = principal_directions(some - mean)[:MOST_DIRECTIONS].T, rows[:, :0]
        if metric.power == 1:
            if rows.shape[1] > FEW_FEATURES:
                places = (rows - mean) @ directions
                places /= max(float(np.max(np.abs(places))), np.finfo(float).tiny)
            # Differences along features bound the sum of all, those along other directions only their squares' sum.
            spread = np.mean(np.abs(some - mean), axis=0)
            directions = np.eye(len(spread))[:, np.argsort(-spread, kind="stable")[:MOST_DIRECTIONS]]
        most = len(rows) if len(rows) <= EXACT_ROWS else COMPARED_ROWS
        directions, places = np.ascontiguousarray(directions), places.astype(np.float32)
        self.tree = Tree(rows, mean, directions, metric.power, places, most)
        self.order: np.ndarray = self.tree.order

    def of(self, points: np.ndarray, k: int, n_threads: int = 1) -> np.ndarray:
        """Numbers (r, k) of the k nearest rows of each point (r, d), the nearest first."""
        points = self.metric.scaled(points)
        return joined(lambda part: self.tree.of(points[part], k), parts_of(len(points)), n_threads)

    def of_rows(self, k: int, n_threads: int = 1) -> np.ndarray:
        """Numbers (n, k) of the k nearest other rows of each row."""
        index = np.empty((len(self.order), k), dtype=np.int32)
        index[self.order] = self.by_place(k, on_threads(n_threads))
        return index

    def by_place(self, k: int, each: Each[slice, np.ndarray]) -> np.ndarray:
        """As ``of_rows``, of the rows in the order ``order``; ``each`` is that of an executor."""
        parts = parts_of(len(self.order))
        return np.concatenate(each(lambda part: self.tree.of_rows(part.start, part.stop, k), parts))
