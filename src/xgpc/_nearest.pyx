"""The nearest rows of points, see nearest.h."""
import numpy as np

from libc.stdint cimport int32_t, int64_t

cdef class Tree:
    """Rows in an order by place, among which the nearest are searched.

    Building takes O(n d p + n log n) time and O(n (d + p)) memory. A search raises ValueError if there are fewer rows
    than are asked for.

    Parameters
    ----------
    rows : (n, d)
    mean : (d,), a point in their middle
    directions : (d, p), orthonormal columns, along which the rows are spread most; with power 1 unit vectors
    power : of the differences, 2 for Euclidean distances, 1 for sums of absolute differences
    places : (n, q) float32, by which the rows are ordered; with q = 0 by lengths along the directions
    most : about so many rows are compared with a point at most, before others are left out

    Attributes
    ----------
    order : (n,) int64, the numbers of the rows in an order in which near rows are near each other
    """

    def __init__(self, const double[:, ::1] rows, const double[::1] mean, const double[:, ::1] directions,
                 int power, const float[:, ::1] places, Py_ssize_t most):
        cdef xg_nearest* tree = &self.tree
        cdef Py_ssize_t n = rows.shape[0], d = rows.shape[1], p = directions.shape[1]
        cdef Py_ssize_t n_groups = xg_panels(xg_leaves(n))
        tree.n, tree.d, tree.p, tree.most, tree.power = n, d, p, most, power
        tree.mean, tree.directions = &mean[0], &directions[0, 0]
        cdef Py_ssize_t c = xg_coordinates(tree), box = 2 * c * XG_PANEL
        self.order = np.empty(n, dtype=np.int64)
        cdef int64_t[::1] order = self.order
        cdef float[::1] panels = np.empty(xg_panels(n) * c * XG_PANEL, dtype=np.float32)
        cdef float[::1] boxes = np.empty((n_groups + xg_panels(n_groups)) * box, dtype=np.float32)
        cdef float[:, ::1] coordinates = np.empty((n, c), dtype=np.float32)
        cdef double[::1] along = np.empty(p)
        cdef xg_keyed[::1] items = np.empty(n, dtype=[("key", "f8"), ("number", "i8")])
        cdef xg_nearest_arrays arrays = xg_nearest_arrays(
            &order[0], &panels[0], &boxes[0], &boxes[n_groups * box], &coordinates[0, 0], &along[0], &items[0],
            NULL, places.shape[1])
        if places.shape[1]:
            arrays.places = &places[0, 0]
        with nogil:
            xg_nearest_build(tree, &rows[0, 0], &arrays)
        cdef const double[:, ::1] in_order = np.asarray(rows)[self.order]
        tree.rows = &in_order[0, 0]
        self._alive = mean, directions, in_order, panels, boxes

    def of(self, const double[:, ::1] points, Py_ssize_t k):
        """Numbers (r, k) of the k nearest rows of each point (r, d), the nearest first."""
        cdef Py_ssize_t r = points.shape[0]
        if k > self.tree.n:
            raise ValueError(f"There are {self.tree.n} rows, so {k} nearest ones cannot be found.")
        index = np.empty((r, k), dtype=np.int32)
        cdef int32_t[:, ::1] out = index
        cdef char[::1] scratch = np.empty(xg_nearest_scratch(&self.tree, k), dtype=np.int8)
        if r and k:
            with nogil:
                xg_nearest_of(&self.tree, &points[0, 0], 0, r, k, &scratch[0], &out[0, 0])
        return index

    def of_rows(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k):
        """Numbers (last - first, k) of the k nearest other rows of each of the rows ``order[first:last]``."""
        if k >= self.tree.n:
            raise ValueError(f"A row has {self.tree.n - 1} other rows, so {k} cannot be found.")
        index = np.empty((last - first, k), dtype=np.int32)
        cdef int32_t[:, ::1] out = index
        cdef char[::1] scratch = np.empty(xg_nearest_scratch(&self.tree, k), dtype=np.int8)
        if k and first < last:
            with nogil:
                xg_nearest_of(&self.tree, NULL, first, last - first, k, &scratch[0], &out[0, 0])
        return index
