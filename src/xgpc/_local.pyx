"""The search for the nearest rows, and conditionals given their sites; see nearest.h and local.h.

Each function works on a range of rows and writes to these rows alone, so that threads can share the arrays.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t

from . cimport _blas
from ._core cimport *
from ._engine cimport Workspace, project, rows_of_tile, tiles
from ._kernels cimport InducingKernel, diagonal_block, read_feature, rows_of


cdef class Tree:
    """Rows in spatial order, among which the nearest rows of a point are searched.

    Rows (n, d) have a point ``mean`` in their middle and are spread most along the orthonormal columns ``directions``
    (d, p), with power 1 unit vectors; ``power`` of the differences is 2 for Euclidean distances and 1 for sums of
    absolute differences. The rows are ordered by ``places`` (n, q) float32, or with q = 0 by lengths along the
    directions: ``order`` (n,) has their numbers. About ``most`` rows are compared with a point at most. O(n d p + n log
    n) time.
    """
    cdef xg_nearest tree
    cdef readonly object order
    cdef object _alive

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
        cdef char[::1] scratch = np.empty(xg_nearest_build_scratch(tree), dtype=np.int8)
        tree.order, tree.panels = &order[0], &panels[0]
        tree.leaves, tree.groups = &boxes[0], &boxes[n_groups * box]
        with nogil:
            xg_nearest_build(tree, &rows[0, 0], &places[0, 0], places.shape[1], &scratch[0])
        cdef const double[:, ::1] in_order = np.asarray(rows)[self.order]
        tree.rows = &in_order[0, 0]
        self._alive = mean, directions, in_order, panels, boxes

    cdef object search(self, const double* points, Py_ssize_t first, Py_ssize_t r, Py_ssize_t k):
        cdef Py_ssize_t n_candidates = self.tree.n - (points == NULL)
        if k > n_candidates:
            raise ValueError(f"There are {n_candidates} rows, so {k} nearest ones cannot be found.")
        index = np.empty((r, k), dtype=np.int32)
        cdef int32_t[:, ::1] out = index
        cdef char[::1] scratch = np.empty(xg_nearest_scratch(&self.tree, k), dtype=np.int8)
        if k:
            with nogil:
                xg_nearest_of(&self.tree, points, first, r, k, &scratch[0], &out[0, 0])
        return index

    def of(self, const double[:, ::1] points, Py_ssize_t k):
        """Numbers (r, k) of the k nearest rows of each point (r, d), the nearest first."""
        return self.search(&points[0, 0], 0, points.shape[0], k)

    def of_rows(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k):
        """Numbers (last - first, k) of the k nearest other rows of each of the rows ``order[first:last]``."""
        return self.search(NULL, first, last - first, k)


# Nothing reads or writes beyond an array without elements, so that the address of its first one needs no condition.

cdef double* start_of(double[:, ::1] values) noexcept nogil:
    return &values[0, 0]


cdef double* start_of_all(double[:, :, ::1] values) noexcept nogil:
    return &values[0, 0, 0]


cdef xg_local_pulled outputs_of(arrays):
    cdef xg_local_pulled out
    gamma, chi, b, u = arrays
    out.gamma, out.chi, out.b, out.u = start_of_all(gamma), start_of_all(chi), start_of_all(b), start_of_all(u)
    return out


cdef xg_local_support local_support(support, sites):
    # Training rows and their sites, which must outlive them
    cdef const double[:, :, ::1] x = support[0]
    cdef const double[:, ::1] a = support[1], precision = sites[0], linear = sites[1]
    cdef const double[::1] residual = support[2]
    return xg_local_support(a.shape[0], a.shape[1], precision.shape[0], &x[0, 0, 0], &a[0, 0], &residual[0],
                            &precision[0, 0], &linear[0, 0])


cdef int transform(InducingKernel kernel, const double* Linv, Rows rows, Py_ssize_t n, Workspace work, double* x,
                   double* a, double* residual) except -1 nogil:
    # The rows, which are some of n, as ``Neighbourhoods`` take them; x, a and residual are addresses of the first
    cdef Py_ssize_t m = kernel.n_inducing, d = kernel.n_features, p, t, i, j, f
    cdef double* tile = &work.a[0]
    cdef double* feature = work.kernel.x2
    cdef Rows here
    for p in range(tiles(rows.n, work)):
        t, here = p * work.rows, rows_of_tile(&rows, p, work)
        project(kernel, Linv, &here, work, tile)
        diagonal_block(kernel, &here, residual + t)
        xg_squared_norms(here.n, m, tile, feature)
        for i in range(here.n):
            residual[t + i] = max(residual[t + i] - feature[i], 0.0)
            for j in range(m):
                a[(t + i) * m + j] = tile[j * here.n + i]
        for j in range(d):
            read_feature(&here, j, feature)
            for i in range(here.n):
                for f in range(kernel.n_factors):
                    x[(f * n + t + i) * d + j] = feature[i] * kernel._scale[f, j]


def transform_rows(InducingKernel kernel, const double[:, ::1] Linv, X, Py_ssize_t first, Workspace work, out):
    """Write those of X (r, d) to x, a and residual of rows, as in ``Neighbourhoods``, from number ``first`` on."""
    cdef Rows rows = rows_of(X)
    cdef double[:, :, ::1] x = out[0]
    cdef double[:, ::1] a = out[1]
    cdef double[::1] residual = out[2]
    with nogil:
        transform(kernel, &Linv[0, 0], rows, residual.shape[0], work, &x[0, first, 0], &a[first, 0], &residual[first])


cdef class Neighbourhoods:
    """Rows, and the training rows near them with their sites: precision and linear term (C, n).

    ``support`` and ``rows``, the training rows and those to predict, are each x (n_factors, n, d), features divided by
    each factor's length scales; whitened rows a (n, m); and residual (n,), k(x, x) - |a|^2, not negative. ``index`` (r,
    k) int32 are the neighbours of each row. With ``n_earlier`` (r,) int32 there are two sets of them: all, and the
    first so many. For ``blocks`` (r + 8, (k + 1) (k + 2) / 2) see local.h.
    """
    cdef InducingKernel kernel
    cdef readonly object support, rows, sites, index
    cdef xg_local_support _support
    cdef xg_local_rows _rows
    cdef object _alive

    def __init__(self, InducingKernel kernel, support, rows, sites, index, n_earlier=None,
                 double[:, ::1] blocks=None):
        (n, m), (r, k), C = np.shape(support[1]), np.shape(index), len(sites[0])
        F, d = kernel.n_factors, kernel.n_features
        arrays = [*support, *sites, *rows, index, *([] if n_earlier is None else [n_earlier])]
        shapes = [np.shape(array) for array in arrays]
        expected = [(F, n, d), (n, m), (n,), (C, n), (C, n), (F, r, d), (r, m), (r,), (r, k), (r,)][:len(arrays)]
        if shapes != expected:
            raise ValueError(f"The shapes of x, a, residual, precision, linear of the training rows, x, a, residual of "
                             f"the rows, index and n_earlier must be {expected}; got {shapes}.")
        if blocks is not None and (blocks.shape[0] != r + 8 or 2 * blocks.shape[1] != (k + 1) * (k + 2)):
            raise ValueError(f"blocks must be {(r + 8, (k + 1) * (k + 2) // 2)}.")
        self.support, self.rows, self.sites, self.index = support, rows, sites, index
        self._alive, self.kernel, self._support = (arrays, blocks), kernel, local_support(support, sites)
        cdef const double[:, :, ::1] row_x = rows[0]
        cdef const double[:, ::1] row_a = rows[1]
        cdef const double[::1] row_residual = rows[2]
        cdef const int32_t[:, ::1] near = index
        cdef const int32_t[::1] earlier
        self._rows = xg_local_rows(r, k, NULL, &row_x[0, 0, 0], &row_a[0, 0], &row_residual[0], &near[0, 0], NULL)
        if blocks is not None:
            self._rows.blocks = &blocks[0, 0]
        if n_earlier is not None:
            earlier = n_earlier
            self._rows.n_earlier = &earlier[0]

    def condition(self, Py_ssize_t first, Py_ssize_t last, out):
        """Write the conditionals of the rows first, ..., last - 1 given each set of neighbours; see local.h.

        ``out`` has for each set arrays b (C, m, s), variance and mean (C, s), and gamma (C, s, k) or (C, s, 0): b, and
        the others, for all rows or for these rows alone.
        """
        cdef double[::1] scratch = np.empty(xg_local_scratch(&self.kernel._parameters, &self._support, self._rows.k))
        cdef xg_local_conditional sets[2]
        cdef xg_local_rows rows = self._rows
        if len(out) == 1:
            rows.n_earlier = NULL
        for i, (b, variance, mean, gamma) in enumerate(out):
            sets[i].first, sets[i].n = self.first_row(first, last, np.shape(mean)[1]), np.shape(mean)[1]
            sets[i].b_first, sets[i].b_n = self.first_row(first, last, np.shape(b)[2]), np.shape(b)[2]
            sets[i].b, sets[i].gamma = start_of_all(b), start_of_all(gamma) if np.shape(gamma)[2] else NULL
            sets[i].variance, sets[i].mean = start_of(variance), start_of(mean)
        with nogil:
            xg_local_condition(&self.kernel._parameters, &self._support, &rows, first, last, &scratch[0], sets, NULL)

    cdef Py_ssize_t first_row(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t n) except -1:
        # The row that arrays of n rows begin with.
        if n not in (self._rows.n, last - first) or not 0 <= first <= last <= self._rows.n:
            raise ValueError(f"Arrays must have all {self._rows.n} rows or {last - first}; got {n}.")
        return 0 if n == self._rows.n else first

    def vjp(self, Py_ssize_t first, Py_ssize_t last, given, out, double[:, ::1] d_a, double[::1] d_diagonal,
            double[:, :, ::1] by_near):
        """Gradients by the inputs, from those by conditionals of the rows first, ..., last - 1; see local.h.

        ``given`` are for each set S (C, m, m), v (C, m), and gradients by b.S b, b.v, variance and mean (C, r) of all
        rows; or only S and v. For each set ``out`` has arrays gamma, chi (C, s, k), b and u (C, s, m) of these rows to
        be written, as are ``d_a`` (s, m), ``d_diagonal`` (s,) and ``by_near`` (s, k, 1 + 2 C). Returns the sums over
        these rows by the kernel's terms, shapes and scales.
        """
        cdef double[::1] scratch = np.empty(xg_local_scratch(&self.kernel._parameters, &self._support, self._rows.k))
        cdef xg_local_gradient gradient
        cdef xg_local_rows rows = self._rows
        cdef InducingKernel kernel = self.kernel
        sums = np.zeros(kernel.n_terms), np.zeros(kernel.n_factors), np.zeros((kernel.n_factors, kernel.n_features))
        cdef double[::1] terms = sums[0], shapes = sums[1]
        cdef double[:, ::1] scales = sums[2]
        if len(out) == 1:
            rows.n_earlier = NULL
        for i, ((S, v, *by), arrays) in enumerate(zip(given, out)):
            gradient.set[i] = outputs_of(arrays)
            gradient.set[i].S, gradient.set[i].v, gradient.set[i].d_form = start_of_all(S), start_of(v), NULL
            if by:
                gradient.set[i].d_form, gradient.set[i].d_dot = start_of(by[0]), start_of(by[1])
                gradient.set[i].d_variance, gradient.set[i].d_mean = start_of(by[2]), start_of(by[3])
        gradient.d_a, gradient.d_diagonal, gradient.by_near = start_of(d_a), &d_diagonal[0], start_of_all(by_near)
        gradient.terms, gradient.shapes, gradient.scales = &terms[0], &shapes[0], &scales[0, 0]
        with nogil:
            xg_local_condition(&self.kernel._parameters, &self._support, &rows, first, last, &scratch[0], NULL,
                               &gradient)
        return sums

    def spread(self, Py_ssize_t first, Py_ssize_t last, pulled, double[:, :, ::1] by_near, double[:, ::1] d_a,
               double[:, ::1] d_near):
        """Add what ``vjp`` has written for the rows first, ..., last - 1 to gradients by the training rows.

        These are the ones by whitened rows (n, m); and by k(x, x), precisions and linear terms, (n, 1 + 2 C).
        """
        cdef xg_local_pulled sets[2]
        cdef xg_scatter_rows rows = xg_scatter_rows(
            last - first, self._rows.k, self._support.m, self._support.n_classes, len(pulled),
            self._rows.index + first * self._rows.k, self._rows.n_earlier + first, start_of_all(by_near), &sets[0])
        for i, arrays in enumerate(pulled):
            sets[i] = outputs_of(arrays)
        with nogil:
            xg_scatter_add(&rows, start_of(d_a), start_of(d_near))


cdef class Predictor:
    """Latent values at any rows, given training rows with their sites and the posterior of the coefficients.

    The tree has the training rows with features times ``scale`` (d,), clipped at +-``largest``; support and sites are
    as of ``Neighbourhoods``; w (C, m) and V (C, m, m) are mean and covariance of the coefficients, k counts the
    neighbours.
    """
    cdef InducingKernel kernel
    cdef Tree tree
    cdef const double[::1] scale
    cdef const double[:, ::1] Linv, w
    cdef const double[:, :, ::1] V
    cdef xg_local_support support
    cdef double largest
    cdef Py_ssize_t k
    cdef object _alive

    def __init__(self, InducingKernel kernel, const double[:, ::1] Linv, Tree tree, const double[::1] scale,
                 double largest, support, sites, const double[:, ::1] w, const double[:, :, ::1] V,
                 Py_ssize_t k):
        if k > tree.tree.n:
            raise ValueError(f"There are {tree.tree.n} rows, so {k} nearest ones cannot be found.")
        self.kernel, self.Linv, self.tree, self.scale, self.largest = kernel, Linv, tree, scale, largest
        self.w, self.V, self.k, self.support, self._alive = w, V, k, local_support(support, sites), (support, sites)

    def moments(self, X, Workspace work):
        """Means and variances (2, C, r) at rows X (r, d), float32 or float64: the search, and O(k^2 (m + d) + C (k^3 +
        m^2)) for each row."""
        cdef Rows rows = rows_of(X)
        cdef Py_ssize_t n = rows.n, m = self.support.m, C = self.support.n_classes, F = self.kernel.n_factors
        cdef Py_ssize_t d = self.kernel.n_features, k = self.k, i, j, c
        if X.shape[1] != d:
            raise ValueError(f"Rows must have {d} features; got {X.shape[1]}.")
        result, index = np.empty((2, C, n)), np.empty(n * k, dtype=np.int32)
        cdef double[:, :, ::1] out = result
        cdef int32_t[::1] near = index
        # Of all rows: features as the tree and the kernel take them, a, residual variances and b; then scratch.
        cdef Py_ssize_t size = n * (d + F * d + 1 + m * (C + 2))
        cdef double[::1] memory = np.empty(size + xg_local_scratch(&self.kernel._parameters, &self.support, k))
        cdef double *points = &memory[0]
        cdef double *x = points + n * d
        cdef double *a = x + F * n * d
        cdef double *residual = a + n * m
        cdef double *b = residual + n
        cdef double *products = b + C * n * m
        cdef double *scratch = products + n * m
        cdef char[::1] space = np.empty(xg_nearest_scratch(&self.tree.tree, k), dtype=np.int8)
        cdef xg_local_rows local = xg_local_rows(n, k, NULL, x, a, residual, &near[0], NULL)
        cdef xg_local_conditional given = xg_local_conditional(0, n, 0, n, b, &out[1, 0, 0], &out[0, 0, 0], NULL)
        with nogil:
            transform(self.kernel, &self.Linv[0, 0], rows, n, work, x, a, residual)
            for j in range(d):
                read_feature(&rows, j, products)
                for i in range(n):
                    points[i * d + j] = min(max(products[i] * self.scale[j], -self.largest), self.largest)
            xg_nearest_of(&self.tree.tree, points, 0, n, k, &space[0], &near[0])
            xg_local_condition(&self.kernel._parameters, &self.support, &local, 0, n, scratch, &given, NULL)
            for c in range(C):
                _blas.gemm_tile(n, m, m, b + c * n * m, &self.V[c, 0, 0], False, products)
                for j in range(m):
                    for i in range(n):
                        out[0, c, i] += b[(c * m + j) * n + i] * self.w[c, j]
                        out[1, c, i] += b[(c * m + j) * n + i] * products[j * n + i]
        return result


def chain_terms(const int32_t[:, ::1] index, const int32_t[::1] n_earlier, const double[:, :, ::1] gamma,
                const double[:, ::1] variance, const double[:, ::1] precision, const double[:, ::1] linear,
                const double[:, ::1] targets):
    """Weights (C, n) of the whitened rows in h = sum g b, b given the earlier neighbours, g as in ``site_terms``.

    ``gamma`` (C, n, k) and ``variance`` (C, n) are those given the earlier neighbours; of the sites ``targets`` are
    linear / precision.
    """
    cdef Py_ssize_t c, i, j
    cdef double mean, g
    out = np.zeros((gamma.shape[0], gamma.shape[1]))
    cdef double[:, ::1] o = out
    with nogil:
        for c in range(gamma.shape[0]):
            for i in range(gamma.shape[1]):
                mean = 0.0
                for j in range(n_earlier[i]):
                    mean += gamma[c, i, j] * targets[c, index[i, j]]
                g = (linear[c, i] - precision[c, i] * mean) / (1.0 + precision[c, i] * variance[c, i])
                o[c, i] += g
                for j in range(n_earlier[i]):
                    o[c, index[i, j]] -= gamma[c, i, j] * g
    return out


def neighbour_sums(const int32_t[:, ::1] index, const double[:, :, ::1] gamma, const double[:, ::1] x):
    """Sums (C, n) over j of gamma[c, i, j] x[c, index[i, j]]."""
    cdef Py_ssize_t c, i, j
    cdef double total
    out = np.empty((gamma.shape[0], gamma.shape[1]))
    cdef double[:, ::1] o = out
    with nogil:
        for c in range(gamma.shape[0]):
            for i in range(gamma.shape[1]):
                total = 0.0
                for j in range(gamma.shape[2]):
                    total += gamma[c, i, j] * x[c, index[i, j]]
                o[c, i] = total
    return out
