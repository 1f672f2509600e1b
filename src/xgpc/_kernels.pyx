"""Covariance blocks k(X, Z) of sums of products, and the contractions of a gradient with their derivatives.

A kernel is a sum of terms variance_t * prod_f factor_f; a noise term is part of the diagonal of k(X, X) only. A
factor is a stationary profile p(r), r^2 = sum_j ((x_j - z_j) s_fj)^2, the dot product shape + x.z, or axis-aligned: a
product over features of functions of |x_j - z_j| s_fj. Adding a stationary family takes a function and a line of the
list in profiles.h, and its entries in xgpc/kernels/factors.py.
"""
import numpy as np

from cpython.exc cimport PyErr_SetInterrupt
from libc.math cimport NAN

from . cimport _blas

cdef extern from "profiles.h" nogil:
    enum:
        XG_MATERN_12
        XG_DOT_PRODUCT
        XG_AXIS_MATERN_12
        XG_AXIS_MATERN_32
        XG_FAMILY_COUNT
        XG_SET
        XG_ADD
        XG_MULTIPLY
    const char* xg_family_name(int i)
    bint xg_is_axis_aligned(int family)
    ctypedef struct xg_profile_tile:
        int family
        double shape
        Py_ssize_t n, m
        const double* x2
        const double* z2
        const double* cross
    void xg_profile_values(const xg_profile_tile* tile, int mode, double scale, double* out)
    void xg_profile_slopes(const xg_profile_tile* tile, double scale, const double* g, double* out, double* row_sum,
                           double* column_sum, double* sums)
    void xg_half_distances(Py_ssize_t rows, Py_ssize_t m, Py_ssize_t d, const double* x, const double* z, double* out)
    double xg_scale_rows(const Rows* rows, Py_ssize_t d, const double* centre, const double* scale, double* x,
                         double* x2)
    void xg_add_squares(Py_ssize_t n, Py_ssize_t d, const double* weight, const double* x, double* sum)
    void xg_multiply(Py_ssize_t size, const double* g, double* out)

cdef extern from "axis.h" nogil:
    ctypedef struct xg_axis_tile:
        bint is_smooth
        Py_ssize_t n, m, d
        const double* x
        const double* z
    void xg_axis_logarithms(const xg_axis_tile* tile, double* out)
    void xg_axis_slopes(const xg_axis_tile* tile, const double* weight, double* by_points, double* by_scales)
    void xg_axis_row_slopes(const xg_axis_tile* tile, const double* weight, double* out)

# |x|^2 + |z|^2 - 2 x.z loses eps (|x|^2 + |z|^2) of the squared distance. Above this squared norm (an error of
# about 1e-10) the differences are formed instead; Matern 1/2, which takes the root of what is lost, always needs them.
cdef double CANCELLATION_LIMIT = 1e6

# Squared scaled distance within which the slope of Matern 1/2, of size 1, has no direction for rounding.
cdef double KINK = 1e-14

# Rows of a tile of gradients by rows: with 64 points, its tiles stay in a second-level cache.
cdef enum:
    GRADIENT_ROWS = 128

# Name -> number in the list of profiles.h
FAMILIES = {xg_family_name(i).decode(): i for i in range(XG_FAMILY_COUNT)}


cdef class InducingKernel:
    """A kernel with values of its parameters, for evaluation between rows and inducing points.

    Parameters
    ----------
    variance : (n_terms,) float64, positive
    noise : (n_terms,) of bool, whether the term is part of the diagonal only
    term : (n_factors,) of int, ascending: the term of each factor
    family : (n_factors,) of int, values of ``FAMILIES``
    shape : (n_factors,) float64; alpha of the rational quadratic, sigma_0^2 of the dot product
    inverse_length_scale : (n_factors, d) float64; 1 for a dot product; 0 for a feature that a factor does not see
    inducing_points : (m, d) float64
    function : xgpc.kernels.called.CalledKernel of a kernel that is not compiled, which has no factors; else None
    """

    def __init__(self, variance, noise, term, family, shape, inverse_length_scale, inducing_points, function=None):
        Z = np.ascontiguousarray(inducing_points, dtype=np.float64)
        self.n_inducing, self.n_features = Z.shape
        self.variance = np.ascontiguousarray(variance, dtype=np.float64)
        self.noise = np.ascontiguousarray(noise, dtype=np.intc)
        self.term = np.ascontiguousarray(term, dtype=np.intp)
        self.family = np.ascontiguousarray(family, dtype=np.intc)
        self.shape = np.ascontiguousarray(shape, dtype=np.float64)
        self.inverse_length_scale = np.ascontiguousarray(inverse_length_scale, dtype=np.float64).reshape(
            -1, self.n_features)
        self.inducing_points, self.function, self._is_called = Z, function, function is not None
        self.n_terms, self.n_factors = len(self.variance), len(self.family)
        if not set(self.family.tolist()) <= set(FAMILIES.values()):
            raise ValueError(f"family must have values of {FAMILIES}; got {self.family.tolist()}.")
        self._variance, self._noise, self._family, self._shape = self.variance, self.noise, self.family, self.shape
        self._first = np.searchsorted(self.term, np.arange(self.n_terms + 1)).astype(np.intp)
        self._scale = self.inverse_length_scale
        self._stationary = XG_DOT_PRODUCT not in self.family
        self._points = Z
        self._centre = np.empty((self.n_factors, self.n_features))
        self._z = np.empty((self.n_factors, self.n_inducing, self.n_features))
        self._z2 = np.empty((self.n_factors, self.n_inducing))
        self._z2_max = np.empty(self.n_factors)
        self._zeros = np.zeros(self.n_inducing)
        place(self)

    def __reduce__(self):
        return InducingKernel, (self.variance, self.noise, self.term, self.family, self.shape,
                                self.inverse_length_scale, self.inducing_points, self.function)

    @property
    def scaled_inducing_points(self):
        """(n_factors, m, d): (z - centre) / length scale, the coordinates of the contractions."""
        return np.asarray(self._z)

    def cross(self, X):
        """k(X, Z), (n, m) float64, for X (n, d) float32 or float64."""
        if self._is_called:
            return self.function.values(self.variance, np.asarray(X, dtype=np.float64), self.inducing_points)
        cdef Rows rows = rows_of(X)
        cdef Py_ssize_t n = rows.n
        cdef double[:, ::1] x = np.empty((self.n_features, n))
        cdef double[::1] x2 = np.empty(n)
        cdef double[:, ::1] term = np.empty((self.n_inducing, n)), factor = np.empty((self.n_inducing, n))
        out = np.empty((self.n_inducing, n))
        cdef double[:, ::1] result = out
        cdef KernelScratch scratch
        if n:
            scratch.x, scratch.x2, scratch.term, scratch.factor = &x[0, 0], &x2[0], &term[0, 0], &factor[0, 0]
            with nogil:
                cross_block(self, &rows, &scratch, &result[0, 0])
        return np.ascontiguousarray(out.T)

    def diagonals(self, X):
        """k(x, x), noise included, (n,) float64, for X (n, d) float32 or float64."""
        if self._is_called:
            return self.function.variances(self.variance, np.asarray(X, dtype=np.float64))
        cdef Rows rows = rows_of(X)
        out = np.empty(rows.n)
        cdef double[::1] result = out
        if rows.n:
            with nogil:
                diagonal_block(self, &rows, &result[0])
        return out

    def diagonal_gradient(self, X):
        """Gradients (n, d) of k(x, x) by the rows of X (n, d), float64."""
        if self._is_called:
            return self.function.diagonal_gradient(self.variance, X, self.inducing_points)
        cdef Rows rows
        cdef const double[:, :] x = X
        cdef Py_ssize_t t, f, other, i, j
        cdef double product
        out = np.zeros((x.shape[0], self.n_features))
        cdef double[:, ::1] result = out
        if self._stationary or not len(X):
            return out
        rows = rows_of(X)
        for i in range(x.shape[0]):
            for t in range(self.n_terms):
                for f in range(self._first[t], self._first[t + 1]):
                    if self._family[f] != XG_DOT_PRODUCT:
                        continue
                    product = self._variance[t]
                    for other in range(self._first[t], self._first[t + 1]):
                        if other != f and self._family[other] == XG_DOT_PRODUCT:
                            product *= self._shape[other] + squared_norm(self, other, &rows, i)
                    for j in range(self.n_features):
                        result[i, j] += 2.0 * product * self._scale[f, j] * x[i, j]
        return out

    def row_gradients(self, X, const double[:, :, ::1] G):
        """Gradients (g, n, d) by the rows of X (n, d) of sums over i and k of G_ki k(x_i, z_k), for G (g, m, n).

        NaN where a kernel has a kink, see ``kinks``.
        """
        if self._is_called:
            return self.function.row_gradients(self.variance, X, self.inducing_points, np.asarray(G))
        cdef Rows rows = rows_of(X)
        cdef RowScratch work = RowScratch(rows.n, self.n_inducing, self.n_features)
        out = np.zeros((G.shape[0], rows.n, self.n_features))
        cdef double[:, :, ::1] result = out
        if rows.n:
            with nogil:
                row_gradients_block(self, &rows, G.shape[0], &G[0, 0, 0], work, rows.n, &result[0, 0, 0])
            out += kinks(self, np.asarray(X, dtype=np.float64), self.inducing_points[None])
        return out

    def quadratic_gradients(self, X, const double[:, ::1] alpha, const double[:, :, ::1] B):
        """Gradients (2, c, n, d) by the rows x of X (n, d) of alpha . k and k . B k / 2 + k(x, x), with k = k(Z, x).

        alpha is (c, m) and B (c, m, m), symmetric. NaN where a kernel has a kink, see ``kinks``.
        """
        if self._is_called:
            return self.function.quadratic_gradients(self.variance, X, self.inducing_points, np.asarray(alpha),
                                                     np.asarray(B))
        cdef Rows rows = rows_of(X), here
        cdef Py_ssize_t t, c, k, i, start, n, count = alpha.shape[0], m = self.n_inducing, d = self.n_features
        cdef Py_ssize_t tile = min(rows.n, GRADIENT_ROWS)
        cdef RowScratch work = RowScratch(tile, m, d)
        cdef double[::1] cross = np.empty(m * tile), cotangents = np.empty(2 * count * m * tile)
        cdef double* G
        out = np.zeros((2, count, rows.n, d))
        cdef double[:, :, :, ::1] result = out
        with nogil:
            for t in range((rows.n + GRADIENT_ROWS - 1) // GRADIENT_ROWS):
                start = t * GRADIENT_ROWS
                n = min(GRADIENT_ROWS, rows.n - start)
                here = rows_from(rows, start, n)
                cross_block(self, &here, &work.kernel, &cross[0])
                for c in range(count):
                    G = &cotangents[c * m * n]
                    for k in range(m):
                        for i in range(n):
                            G[k * n + i] = alpha[c, k]
                    _blas.gemm_tile(n, m, m, &cross[0], &B[c, 0, 0], False, G + count * m * n)
                row_gradients_block(self, &here, 2 * count, &cotangents[0], work, rows.n, &result[0, 0, start, 0])
        out[1] += self.diagonal_gradient(X)
        out += kinks(self, X, self.inducing_points[None])
        return out


def kinks(InducingKernel kernel, const double[:, :] X, const double[:, :, :] points):
    """0 or NaN (n, d): NaN for the features by which some k(x, y) has no derivative at a row x of X (n, d).

    y is one of ``points`` (k, d) of each row, (n, k, d), or of all rows, (1, k, d). The kernels with nu = 1/2 have a
    kink: along a feature in which x and y agree, or, if not axis-aligned, in all features where x is y.
    """
    cdef Py_ssize_t t, f, i, k, j, p, family
    cdef double r2
    out = np.zeros((X.shape[0], kernel.n_features))
    cdef double[:, ::1] mark = out
    with nogil:
        for t in range(kernel.n_terms):
            for f in range(kernel._first[t], kernel._first[t + 1]):
                family = kernel._family[f]
                if kernel._noise[t] or not (family == XG_MATERN_12 or family == XG_AXIS_MATERN_12):
                    continue
                for i in range(X.shape[0]):
                    p = i if points.shape[0] > 1 else 0
                    for k in range(points.shape[1]):
                        r2 = 0.0
                        if family == XG_MATERN_12:
                            for j in range(kernel.n_features):
                                r2 += ((X[i, j] - points[p, k, j]) * kernel._scale[f, j]) ** 2
                        for j in range(kernel.n_features if r2 < KINK else 0):
                            # A factor does not see the features of scale 0.
                            if kernel._scale[f, j] != 0.0 and (family == XG_MATERN_12 or X[i, j] == points[p, k, j]):
                                mark[i, j] = NAN
    return out


cdef class RowScratch:
    """Scratch for the gradients by the rows of a tile."""
    cdef double[::1] rows, sums, tiles
    cdef KernelScratch kernel
    cdef double* by_x      # tile (rows, n_features)
    cdef double* slope     # tile (rows, n_inducing)
    cdef double* weighted  # tile (rows, n_inducing)

    def __init__(self, Py_ssize_t n, Py_ssize_t m, Py_ssize_t d):
        self.rows, self.sums = np.empty(2 * n * (d + 1)), np.zeros(m)
        self.tiles = np.empty(5 * n * m)
        self.kernel.x = &self.rows[0]
        self.kernel.x2, self.kernel.row_sum = self.kernel.x + n * d, self.kernel.x + n * (d + 1)
        self.by_x = self.kernel.row_sum + n
        self.kernel.term, self.kernel.factor = &self.tiles[0], &self.tiles[n * m]
        self.kernel.rest, self.slope = &self.tiles[2 * n * m], &self.tiles[3 * n * m]
        self.weighted = &self.tiles[4 * n * m]


cdef class KernelGradient:
    """Contractions of a gradient dF/dk(X, Z) with every term and factor, additive over blocks of rows.

    Parameters
    ----------
    sizes : tuple of n_terms, n_factors, m and d
    values : float64, all contractions, concatenated; not copied; None: zeros

    Attributes
    ----------
    values : the array
    arrays : its views terms, shapes, sums, products and squares, see ``gradient_block``
    """

    def __init__(self, tuple sizes, values=None):
        cdef Py_ssize_t t, f, m, d
        cdef double* start
        t, f, m, d = sizes
        self.sizes = sizes
        self.values = self.flat = np.zeros(t + f * (1 + m + m * d + d)) if values is None else values
        start = &self.flat[0]
        self.parts = Contractions(start, start + t, start + t + f, start + t + f * (1 + m),
                                  start + t + f * (1 + m + m * d))

    @staticmethod
    def empty(InducingKernel core):
        """Zeros, to which contractions are added."""
        return KernelGradient((core.n_terms, core.n_factors, core.n_inducing, core.n_features))

    @property
    def arrays(self):
        cdef Py_ssize_t t, f, m, d, shapes, sums, products, squares
        t, f, m, d = self.sizes
        shapes, sums, products, squares = t, t + f, t + f + f * m, t + f + f * m * (1 + d)
        v = self.values
        return (v[:shapes], v[shapes:sums], v[sums:products].reshape(f, m), v[products:squares].reshape(f, m, d),
                v[squares:].reshape(f, d))

    def __iadd__(self, KernelGradient other):
        np.add(self.values, other.values, out=self.values)
        return self

    def __reduce__(self):
        return KernelGradient, (self.sizes, self.values)


cdef void place(InducingKernel kernel) noexcept nogil:
    # Prepare the present parameters and inducing points for the blocks. Distances do not depend on the
    # origin; near the data's middle they lose the fewest digits.
    cdef Py_ssize_t t, f, k, j
    cdef double centre, value
    kernel._diagonal = 0.0
    for t in range(kernel.n_terms):
        kernel._diagonal += kernel._variance[t]
    for f in range(kernel.n_factors):
        for j in range(kernel.n_features):
            centre = 0.0
            if kernel._family[f] != XG_DOT_PRODUCT:
                for k in range(kernel.n_inducing):
                    centre += kernel._points[k, j]
                centre /= kernel.n_inducing
            kernel._centre[f, j] = centre
        kernel._z2_max[f] = 0.0
        for k in range(kernel.n_inducing):
            value = 0.0
            for j in range(kernel.n_features):
                kernel._z[f, k, j] = (kernel._points[k, j] - kernel._centre[f, j]) * kernel._scale[f, j]
                value += kernel._z[f, k, j] * kernel._z[f, k, j]
            kernel._z2[f, k] = value
            kernel._z2_max[f] = max(kernel._z2_max[f], value)


cdef Rows rows_of(X) except *:
    # All rows of an array (n, d), float32 or float64, which must outlive them
    cdef const float[:, :] single
    cdef const double[:, :] wide
    if X.dtype == np.float32:
        single = X
        return Rows(<const char*>&single[0, 0], single.strides[0], single.strides[1], True, NULL, 0, len(X))
    wide = X
    return Rows(<const char*>&wide[0, 0], wide.strides[0], wide.strides[1], False, NULL, 0, len(X))


cdef Rows inducing_rows(InducingKernel kernel) noexcept nogil:
    return Rows(<const char*>&kernel._points[0, 0], kernel._points.strides[0], kernel._points.strides[1], False, NULL,
                0, kernel.n_inducing)


cdef void read_feature(const Rows* rows, Py_ssize_t j, double* out) noexcept nogil:
    # out (n,) = feature j of the rows
    cdef const char* feature = rows.X + j * rows.feature_stride
    cdef Py_ssize_t i, row
    for i in range(rows.n):
        row = rows.index[i] if rows.index != NULL else rows.start + i
        if rows.is_single:
            out[i] = (<const float*>(feature + row * rows.row_stride))[0]
        else:
            out[i] = (<const double*>(feature + row * rows.row_stride))[0]


cdef object array_of(InducingKernel kernel, const Rows* rows):
    # The rows (n, d), float64
    features = np.empty((kernel.n_features, rows.n))
    cdef double[:, ::1] feature = features
    cdef Py_ssize_t j
    for j in range(kernel.n_features):
        read_feature(rows, j, &feature[j, 0])
    return np.ascontiguousarray(features.T)


cdef void call_values(InducingKernel kernel, const Rows* rows, Py_ssize_t m, double* out) noexcept with gil:
    # Tile out (n, m) = k(X, Z), or out (n,) = k(x, x) if m is 0, of a kernel that is not compiled. After an exception,
    # which Python prints, values are NaN, and what needs them fails.
    cdef Py_ssize_t i, size = rows.n * max(m, 1)
    cdef const double[::1] found
    for i in range(size):
        out[i] = NAN
    try:
        X = array_of(kernel, rows)
        if m:
            found = kernel.function.values(kernel.variance, X, kernel.inducing_points).T.ravel()
        else:
            found = np.ascontiguousarray(kernel.function.variances(kernel.variance, X))
        for i in range(size):
            out[i] = found[i]
    except KeyboardInterrupt:
        # Raised again where Python can stop.
        PyErr_SetInterrupt()


cdef void call_gradient(InducingKernel kernel, const Rows* rows, Py_ssize_t m, const double* G, bint noise_alone,
                        double* terms) noexcept with gil:
    # Adds the derivatives by ``theta`` of the sum of a tile G (n, m) times k(X, Z), or of G (n,) times k(x, x) if m is
    # 0, to terms (n_terms,).
    cdef Py_ssize_t i
    cdef const double[::1] found
    try:
        X = array_of(kernel, rows)
        weights = np.array(<const double[:rows.n * max(m, 1)]> G)
        if m:
            weights = weights.reshape(m, rows.n).T
            found = kernel.function.gradient(kernel.variance, X, kernel.inducing_points, weights)
        else:
            found = kernel.function.variances_gradient(kernel.variance, X, weights, noise_alone)
        for i in range(len(found)):
            terms[i] += found[i]
    except BaseException as error:
        terms[0] = NAN
        if not isinstance(error, KeyboardInterrupt):
            raise
        PyErr_SetInterrupt()


cdef xg_axis_tile axis_tile(InducingKernel kernel, Py_ssize_t f, Py_ssize_t n, const double* x) noexcept nogil:
    # n scaled rows and the scaled inducing points, for an axis-aligned factor f
    return xg_axis_tile(kernel._family[f] == XG_AXIS_MATERN_32, n, kernel.n_inducing, kernel.n_features, x,
                        &kernel._z[f, 0, 0])


cdef xg_profile_tile profile_tile(InducingKernel kernel, Py_ssize_t f, const Rows* rows, KernelScratch* scratch,
                                  double* products) noexcept nogil:
    # The scaled rows and the tile products (n, m), as arguments of the profile of factor f
    cdef Py_ssize_t i, n = rows.n, m = kernel.n_inducing, d = kernel.n_features
    cdef double largest = xg_scale_rows(rows, d, &kernel._centre[f, 0], &kernel._scale[f, 0], scratch.x, scratch.x2)
    cdef int family = kernel._family[f]
    cdef xg_profile_tile tile = xg_profile_tile(family, kernel._shape[f], n, m, scratch.x2, &kernel._z2[f, 0], products)
    cdef xg_axis_tile axes
    if xg_is_axis_aligned(family):
        axes = axis_tile(kernel, f, n, scratch.x)
        xg_axis_logarithms(&axes, products)
    elif family == XG_MATERN_12 or (family != XG_DOT_PRODUCT and largest + kernel._z2_max[f] > CANCELLATION_LIMIT):
        xg_half_distances(n, m, d, scratch.x, &kernel._z[f, 0, 0], products)
        for i in range(n):
            scratch.x2[i] = 0.0
        tile.z2 = &kernel._zeros[0]
    else:
        _blas.gemm_tile(n, m, d, scratch.x, &kernel._z[f, 0, 0], True, products)
    return tile


cdef void factor_block(InducingKernel kernel, Py_ssize_t f, const Rows* rows, int mode, double scale,
                       KernelScratch* scratch, double* products, double* out) noexcept nogil:
    # tile out (n, m) =, += or *= scale * factor f. The tile products may be out itself to set it.
    cdef xg_profile_tile tile = profile_tile(kernel, f, rows, scratch, products)
    xg_profile_values(&tile, mode, scale, out)


cdef void cross_block(InducingKernel kernel, const Rows* rows, KernelScratch* scratch, double* out) noexcept nogil:
    # tile out (n, m) = k(X, Z)
    cdef Py_ssize_t t, f, i, first, last, size = rows.n * kernel.n_inducing
    cdef bint empty = True
    cdef double* term
    if kernel._is_called:
        call_values(kernel, rows, kernel.n_inducing, out)
        return
    for t in range(kernel.n_terms):
        if kernel._noise[t]:
            continue
        first, last = kernel._first[t], kernel._first[t + 1]
        if first == last:
            for i in range(size):
                out[i] = kernel._variance[t] + (0.0 if empty else out[i])
        elif last - first == 1:
            factor_block(kernel, first, rows, XG_SET if empty else XG_ADD, kernel._variance[t], scratch,
                         out if empty else scratch.factor, out)
        else:
            term = out if empty else scratch.term
            factor_block(kernel, first, rows, XG_SET, kernel._variance[t], scratch, term, term)
            for f in range(first + 1, last):
                factor_block(kernel, f, rows, XG_MULTIPLY, 1.0, scratch, scratch.factor, term)
            if not empty:
                for i in range(size):
                    out[i] += term[i]
        empty = False


cdef double squared_norm(InducingKernel kernel, Py_ssize_t f, const Rows* rows, Py_ssize_t i) noexcept nogil:
    # |x|^2 of row i in the features of the dot product f
    cdef Py_ssize_t j, row = rows.index[i] if rows.index != NULL else rows.start + i
    cdef const char* feature = rows.X + row * rows.row_stride
    cdef double value, total = 0.0
    for j in range(kernel.n_features):
        value = (<const float*>feature)[0] if rows.is_single else (<const double*>feature)[0]
        value *= kernel._scale[f, j]
        total += value * value
        feature += rows.feature_stride
    return total


cdef double term_diagonal(InducingKernel kernel, Py_ssize_t t, const Rows* rows, Py_ssize_t i) noexcept nogil:
    # Term t of k(x, x) for row i.
    cdef Py_ssize_t f
    cdef double value = kernel._variance[t]
    for f in range(kernel._first[t], kernel._first[t + 1]):
        if kernel._family[f] == XG_DOT_PRODUCT:
            value *= kernel._shape[f] + squared_norm(kernel, f, rows, i)
    return value


cdef void diagonal_block(InducingKernel kernel, const Rows* rows, double* out) noexcept nogil:
    # out (n,) = k(x, x), noise included
    cdef Py_ssize_t t, i
    if kernel._is_called:
        call_values(kernel, rows, 0, out)
        return
    for i in range(rows.n):
        out[i] = kernel._diagonal if kernel._stationary else 0.0
    if kernel._stationary:
        return
    for t in range(kernel.n_terms):
        for i in range(rows.n):
            out[i] += term_diagonal(kernel, t, rows, i)


cdef void gradient_block(InducingKernel kernel, const Rows* rows, const double* G, KernelScratch* scratch,
                         double* weighted, const Contractions* total) noexcept nogil:
    # Adds, for the tile G = dF / dk(X, Z) (n, m), elementwise with W = G * k_t / factor_f * d factor_f / dh:
    #   terms (n_terms,)           sum_ik G_ik k_t(x_i, z_k)
    #   shapes (n_factors,)        derivative by the logarithm of the factor's shape
    #   sums (n_factors, m)        sum_i W_ik
    #   products (n_factors, m, d) sum_i W_ik x_ij, x the scaled rows
    #   squares (n_factors, d)     sum_ik W_ik x_ij^2
    # h is -r^2 / 2 or x.z. Of an axis-aligned factor h is the logarithm; in the place of the last two there are
    #   products (n_factors, m, d) sum_i W_ik dh_ik / dz_kj, z the scaled inducing points
    #   squares (n_factors, d)     sum_ik W_ik dh_ik / dlog(length scale j)
    # The tile weighted is scratch.
    cdef Py_ssize_t t, f, other, i, first, last, n = rows.n, m = kernel.n_inducing, d = kernel.n_features
    cdef double sum_of_G
    cdef double[2] sums
    cdef xg_profile_tile tile
    cdef xg_axis_tile axes
    cdef const double* rest
    if kernel._is_called:
        call_gradient(kernel, rows, m, G, False, total.terms)
        return
    for t in range(kernel.n_terms):
        if kernel._noise[t]:
            continue
        first, last = kernel._first[t], kernel._first[t + 1]
        if first == last:
            sum_of_G = 0.0
            for i in range(n * m):
                sum_of_G += G[i]
            total.terms[t] += kernel._variance[t] * sum_of_G
        for f in range(first, last):
            rest = G
            if last - first > 1:
                for i in range(n * m):
                    scratch.rest[i] = G[i]
                for other in range(first, last):
                    if other != f:
                        factor_block(kernel, other, rows, XG_MULTIPLY, 1.0, scratch, scratch.factor, scratch.rest)
                rest = scratch.rest
            tile = profile_tile(kernel, f, rows, scratch, scratch.factor)
            sums[0] = sums[1] = 0.0
            xg_profile_slopes(&tile, kernel._variance[t], rest, weighted, scratch.row_sum, total.sums + f * m, sums)
            if f == first:
                total.terms[t] += sums[0]
            total.shapes[f] += sums[1]
            if xg_is_axis_aligned(kernel._family[f]):
                axes = axis_tile(kernel, f, n, scratch.x)
                xg_axis_slopes(&axes, weighted, total.products + f * m * d, total.squares + f * d)
                continue
            if kernel._family[f] != XG_DOT_PRODUCT:
                xg_add_squares(n, d, scratch.row_sum, scratch.x, total.squares + f * d)
            _blas.gemm_inner(n, m, d, weighted, scratch.x, total.products + f * m * d)


cdef void row_gradients_block(InducingKernel kernel, const Rows* rows, Py_ssize_t count, const double* G,
                              RowScratch work, Py_ssize_t stride, double* out) noexcept nogil:
    # Adds, for ``count`` tiles G (n, m), the gradients by the rows sum_k W_ik dh_ik / dx_ij, with W as in
    # ``gradient_block``, to out (n, d), those of the next tile ``stride`` rows further. They share the slopes W / G.
    cdef Py_ssize_t t, f, g, other, i, j, k, n = rows.n, m = kernel.n_inducing, d = kernel.n_features
    cdef double[2] sums
    cdef double* x = work.kernel.x
    cdef double* row_sum = work.kernel.row_sum
    cdef double* to
    cdef const double* weight
    cdef bint is_stationary
    cdef xg_profile_tile tile
    cdef xg_axis_tile axes
    for t in range(kernel.n_terms):
        if kernel._noise[t]:
            continue
        for f in range(kernel._first[t], kernel._first[t + 1]):
            for i in range(n * m):
                work.kernel.rest[i] = 1.0
            for other in range(kernel._first[t], kernel._first[t + 1]):
                if other != f:
                    factor_block(kernel, other, rows, XG_MULTIPLY, 1.0, &work.kernel, work.kernel.factor,
                                 work.kernel.rest)
            tile = profile_tile(kernel, f, rows, &work.kernel, work.kernel.factor)
            sums[0] = sums[1] = 0.0
            xg_profile_slopes(&tile, kernel._variance[t], work.kernel.rest, work.slope, row_sum, &work.sums[0], sums)
            is_stationary = not (kernel._family[f] == XG_DOT_PRODUCT or xg_is_axis_aligned(kernel._family[f]))
            for g in range(count):
                weight, to = G + g * n * m, out + g * stride * d
                for i in range(n):
                    row_sum[i] = 0.0
                for k in range(m):
                    for i in range(n):
                        work.weighted[k * n + i] = work.slope[k * n + i] * weight[k * n + i]
                        row_sum[i] += work.weighted[k * n + i]
                if xg_is_axis_aligned(kernel._family[f]):
                    axes = axis_tile(kernel, f, n, x)
                    xg_axis_row_slopes(&axes, work.weighted, work.by_x)
                else:
                    _blas.gemm_tile(n, d, m, work.weighted, &kernel._z[f, 0, 0], False, work.by_x)
                for j in range(d):
                    for i in range(n):
                        # Of h = -|x - z|^2 / 2; the gradients of x.z and of axis-aligned factors are known.
                        if is_stationary:
                            work.by_x[j * n + i] -= row_sum[i] * x[j * n + i]
                        to[i * d + j] += kernel._scale[f, j] * work.by_x[j * n + i]


cdef void diagonal_gradient_block(InducingKernel kernel, const Rows* rows, const double* g, bint noise_alone,
                                  const Contractions* total) noexcept nogil:
    # The same for the diagonal, g = dF / dk(x, x) (n,), or only for its noise: adds to terms and, for dot products, to
    # shapes.
    cdef Py_ssize_t t, f, i
    cdef double sum_of_g = 0.0, share
    if kernel._is_called:
        call_gradient(kernel, rows, 0, g, noise_alone, total.terms)
        return
    if kernel._stationary:
        for i in range(rows.n):
            sum_of_g += g[i]
        for t in range(kernel.n_terms):
            if kernel._noise[t] or not noise_alone:
                total.terms[t] += sum_of_g * kernel._variance[t]
        return
    for t in range(kernel.n_terms):
        if noise_alone and not kernel._noise[t]:
            continue
        for i in range(rows.n):
            share = g[i] * term_diagonal(kernel, t, rows, i)
            total.terms[t] += share
            for f in range(kernel._first[t], kernel._first[t + 1]):
                if kernel._family[f] == XG_DOT_PRODUCT and kernel._shape[f] > 0.0:
                    total.shapes[f] += share * kernel._shape[f] / (kernel._shape[f] + squared_norm(kernel, f, rows, i))
