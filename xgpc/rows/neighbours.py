"""Search for the nearest rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import svd

from .._nearest import Tree
from .executor import Executor, on_threads, parts_of

# With more than EXACT_ROWS rows, about COMPARED_ROWS of them at most are compared with a point, those in the nearest
# boxes. At least 99 % of the 24 nearest rows were found on real sets; 96 % among 200 000 rows whose 10 features matter
# equally, and 56 % with 28 such features.
EXACT_ROWS, COMPARED_ROWS = 30_000, 8192
# Principal directions of DIRECTION_ROWS rows, along which rows are compared first.
MOST_DIRECTIONS, DIRECTION_ROWS = 64, 512
# Rows with more features, of which many may be rare levels, are ordered by principal directions for sums of absolute
# differences, too: of 32 nearest ones of 85 000 rows with 54 features all were found, and two thirds in an order by the
# features. With fewer features, the order by features halves the comparisons.
FEW_FEATURES = 16
# Coordinates are clipped here: larger ones make squared distances overflow.
LARGEST = 1e150


class Metric(NamedTuple):
    """Distances of rows whose features are multiplied by ``scale``: by squared differences, or absolute ones."""

    scale: np.ndarray | float = 1.0  # (d,)
    power: int = 2  # 1: the sum of absolute differences

    def scaled(self, rows: np.ndarray) -> np.ndarray:
        return np.clip(np.ascontiguousarray(rows * self.scale, dtype=np.float64), -LARGEST, LARGEST)

    def distances(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Distances (n,) of rows (n, d) from others (n, d) or (d,)."""
        return np.asarray(np.linalg.norm(self.scaled(rows) - self.scaled(others), ord=self.power, axis=1))


EUCLIDEAN = Metric()


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

    def __init__(self, rows: np.ndarray, metric: Metric = EUCLIDEAN):
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
        return np.concatenate(on_threads(n_threads)(lambda part: self.tree.of(points[part], k), parts_of(len(points))))

    def of_rows(self, k: int, n_threads: int = 1) -> np.ndarray:
        """Numbers (n, k) of the k nearest other rows of each row."""
        index = np.empty((len(self.order), k), dtype=np.int32)

        def part(places: slice) -> None:
            index[self.order[places]] = self.at_places(places, k)

        on_threads(n_threads)(part, parts_of(len(index)))
        return index

    def at_places(self, places: slice, k: int) -> np.ndarray:
        """Numbers (r, k) of the k nearest other rows of the rows ``order[places]``."""
        return self.tree.of_rows(places.start, places.stop, k)


class Searched:
    """The search among rows X on a worker of a cluster; a copy elsewhere builds a tree of its own."""

    def __init__(self, X: np.ndarray, metric: Metric):
        self.near, self._given = Neighbours(X, metric), (X, metric)

    def __reduce__(self) -> tuple[type, tuple[np.ndarray, Metric]]:
        return Searched, self._given

    def __sizeof__(self) -> int:
        """Bytes, by which dask counts the memory of a worker: X, and about two numbers for each of its own."""
        return int(self._given[0].nbytes) + 16 * self._given[0].size


def searched(given: tuple[np.ndarray, Metric]) -> Searched:
    """Task of a worker: prepare the search among rows X (n, d)."""
    return Searched(*given)


def nearest(batch: tuple[Searched], k: int, places: slice) -> tuple[np.ndarray, np.ndarray]:
    """Task of a worker: numbers (r,) of some rows in their order by place, and of their nearest other rows (r, k)."""
    near = batch[0].near
    return near.order[places], near.at_places(places, k)


class ByPlace(NamedTuple):
    """Rows in an order in which near rows are near each other, with their nearest other rows.

    Attributes
    ----------
    order : (n,) numbers of the rows
    others : (n, k) numbers of the k nearest other rows of each, in this order
    near : Neighbours, the search; None if the workers of a cluster have it
    """

    order: np.ndarray
    others: np.ndarray
    near: Neighbours | None

    @classmethod
    def of(cls, X: np.ndarray, metric: Metric, k: int, executor: Executor) -> ByPlace:
        """Search among the rows X (n, d): in this process, or many rows on the workers of a cluster."""
        workers, parts = executor.workers, executor.parts_for_workers(len(X))
        if workers is None or not parts:
            near = Neighbours(X, metric)
            others = executor.each(lambda places: near.at_places(places, k), parts_of(len(X)))
            return cls(near.order, np.concatenate(others), near)
        shared = workers.shared(searched, (X, metric), len(parts))
        order, others = zip(*executor.gathered(shared, nearest, k, parts), strict=True)
        return cls(np.concatenate(order), np.concatenate(others), None)
