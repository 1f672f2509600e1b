"""Covariance blocks k(X, Z) of sums of products, and the contractions of a gradient with their derivatives.

A kernel is a sum of terms variance_t * prod_f factor_f; a noise term is part of the diagonal of k(X, X) only. A
factor is a stationary profile p(r), r^2 = sum_j ((x_j - z_j) s_fj)^2, the dot product shape + x.z, or axis-aligned: a
product over features of functions of |x_j - z_j| s_fj. Adding a stationary family takes a function and a line of the
list in profiles.h, and its entries in xgpc/kernels/factors.py.
"""
import numpy as np

from libc.math cimport NAN

from . cimport _blas
from ._core cimport *

# |x|^2 + |z|^2 - 2 x.z loses eps (|x|^2 + |z|^2) of the squared distance. Above this squared norm (an error of
# about 1e-10) the differences are formed instead; Matern 1/2, which takes the root of what is lost, always needs them.
CANCELLATION_LIMIT = 1e6
cdef double cancellation_limit = CANCELLATION_LIMIT

# Squared scaled distance within which the slope of Matern 1/2, of size 1, has no direction for rounding.
cdef double KINK = 1e-14

# Rows of a tile of gradients by rows: with 64 points, its tiles stay in a second-level cache.
cdef enum:
    GRADIENT_ROWS = 128

# Name -> number in the list of profiles.h
FAMILIES = {xg_family_name(i).decode(): i for i in range(XG_FAMILY_COUNT)}


cdef class InducingKernel:
    """A kernel with values of its parameters, for evaluation between rows and inducing points (m, d).

    Terms have a ``variance``, and may be ``noise``, part of the diagonal only. Factors have the number of their
    ``term``, ascending; a ``family`` among ``FAMILIES``; a ``shape``, alpha of the rational quadratic or sigma_0^2 of
    the dot product; and ``inverse_length_scale`` (d,), 1 for a dot product, 0 for a feature that a factor does not see.
    A kernel that is not compiled has no factors but a ``function``, an xgpc.kernels.called.CalledKernel.
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
        self._variance, self._noise, self._family, self._shape = self.variance, self.noise, self.family, self.shape
        cdef const Py_ssize_t[::1] of_term = self.term
        cdef Py_ssize_t[::1] first = np.zeros(self.n_terms + 1, dtype=np.intp)
        cdef Py_ssize_t f, t
        self._first, self._stationary = first, True
        for f in range(self.n_factors):
            if not 0 <= self._family[f] < XG_FAMILY_COUNT:
                raise ValueError(f"family must have values of {FAMILIES}; got {self.family.tolist()}.")
            self._stationary = self._stationary and self._family[f] != XG_DOT_PRODUCT
            for t in range(of_term[f] + 1, self.n_terms + 1):
                first[t] += 1
        self._parameters = xg_local_kernel(
            self.n_terms, self.n_factors, self.n_features, &self._variance[0], &self._noise[0], &first[0],
            &self._family[0], &self._shape[0])
        self._scale = self.inverse_length_scale
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

    def cross(self, X):
        """k(X, Z), (n, m) float64, for X (n, d) float32 or float64."""
        cdef Rows rows = rows_of(X)
        cdef Py_ssize_t n = rows.n
        # ``cross_block`` does not use the last tile.
        cdef double[::1] room = np.empty(n * (self.n_features + 2 + 2 * self.n_inducing))
        out = np.empty((self.n_inducing, n))
        cdef double[:, ::1] result = out
        cdef KernelScratch scratch
        if n:
            scratch = kernel_scratch(&room[0], n, self.n_inducing, self.n_features)
            with nogil:
                cross_block(self, &rows, &scratch, &result[0, 0])
        return np.ascontiguousarray(out.T)

    def diagonals(self, X):
        """k(x, x), noise included, (n,) float64, for X (n, d) float32 or float64."""
        if self._is_called:
            return self.function.variances(self.variance, np.asarray(X, dtype=np.float64))
        return np.sum(self.parts_of_diagonal(X), axis=0)

    def parts_of_diagonal(self, X):
        """k(x, x) without noise, and the variance of the noise: (2, n) float64, for X (n, d) float32 or float64."""
        if self._is_called:
            return self.function.parts_of_variances(self.variance, np.asarray(X, dtype=np.float64))
        cdef Rows rows = rows_of(X)
        cdef Py_ssize_t t, i
        out = np.zeros((2, rows.n))
        cdef double[:, ::1] result = out
        for t in range(self.n_terms):
            for i in range(rows.n):
                result[self._noise[t], i] += term_diagonal(self, t, &rows, i)
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


cdef void place(InducingKernel kernel) noexcept nogil:
    # Prepare the present parameters and inducing points for the blocks. Distances do not depend on the
    # origin; near the data's middle they lose the fewest digits.
    cdef Py_ssize_t f, k, j
    cdef double centre, value
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


cdef int call_values(InducingKernel kernel, const Rows* rows, Py_ssize_t m, double* out) except -1 with gil:
    # Tile out (n, m) = k(X, Z), or out (n,) = k(x, x) if m is 0, of a kernel that is not compiled.
    cdef Py_ssize_t i
    cdef const double[::1] found
    X = array_of(kernel, rows)
    if m:
        found = kernel.function.values(kernel.variance, X, kernel.inducing_points).T.ravel()
    else:
        found = np.ascontiguousarray(kernel.function.variances(kernel.variance, X))
    for i in range(rows.n * max(m, 1)):
        out[i] = found[i]


cdef int call_gradient(InducingKernel kernel, const Rows* rows, Py_ssize_t m, const double* G, bint noise_alone,
                       double* terms) except -1 with gil:
    # Adds the derivatives by ``theta`` of the sum of a tile G (n, m) times k(X, Z), or of G (n,) times k(x, x) if m is
    # 0, to terms (n_terms,).
    cdef Py_ssize_t i
    cdef const double[::1] found
    X = array_of(kernel, rows)
    weights = np.array(<const double[:rows.n * max(m, 1)]> G)
    if m:
        weights = weights.reshape(m, rows.n).T
        found = kernel.function.gradient(kernel.variance, X, kernel.inducing_points, weights)
    else:
        found = kernel.function.variances_gradient(kernel.variance, X, weights, noise_alone)
    for i in range(len(found)):
        terms[i] += found[i]


cdef xg_profile_tile profile_tile(InducingKernel kernel, Py_ssize_t f, const Rows* rows, KernelScratch* scratch,
                                  double* products) noexcept nogil:
    # The scaled rows and points, and the tile products (n, m), as arguments of the profile of factor f
    cdef Py_ssize_t i, n = rows.n, m = kernel.n_inducing, d = kernel.n_features
    cdef double largest = xg_scale_rows(rows, d, &kernel._centre[f, 0], &kernel._scale[f, 0], scratch.x, scratch.x2)
    cdef int family = kernel._family[f]
    cdef xg_profile_tile tile = xg_profile_tile(family, kernel._shape[f], n, m, d, scratch.x, scratch.x2,
                                                &kernel._z[f, 0, 0], &kernel._z2[f, 0], products)
    if xg_is_axis_aligned(family):
        xg_axis_logarithms(&tile, products)
    elif family == XG_MATERN_12 or (family != XG_DOT_PRODUCT and largest + kernel._z2_max[f] > cancellation_limit):
        xg_half_distances(&tile, products)
        for i in range(n):
            scratch.x2[i] = 0.0
        tile.z2 = &kernel._zeros[0]
    else:
        _blas.gemm_tile(n, m, d, tile.x, tile.z, True, products)
    return tile


cdef void factor_block(InducingKernel kernel, Py_ssize_t f, const Rows* rows, int mode, double scale,
                       KernelScratch* scratch, double* products, double* out) noexcept nogil:
    # tile out (n, m) =, += or *= scale * factor f. The tile products may be out itself to set it.
    cdef xg_profile_tile tile = profile_tile(kernel, f, rows, scratch, products)
    xg_profile_values(&tile, mode, scale, out)


cdef int cross_block(InducingKernel kernel, const Rows* rows, KernelScratch* scratch, double* out) except -1 nogil:
    # tile out (n, m) = k(X, Z)
    cdef Py_ssize_t t, f, i, first, last, size = rows.n * kernel.n_inducing
    cdef bint empty = True
    cdef double* term
    if kernel._is_called:
        return call_values(kernel, rows, kernel.n_inducing, out)
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


cdef int diagonal_block(InducingKernel kernel, const Rows* rows, double* out) except -1 nogil:
    # out (n,) = k(x, x), noise included; without a kernel 0: whitened rows explain all variance, so that this gives the
    # same result
    cdef Py_ssize_t t, i
    if kernel is not None and kernel._is_called:
        return call_values(kernel, rows, 0, out)
    for i in range(rows.n):
        out[i] = 0.0
        for t in range(0 if kernel is None else kernel.n_terms):
            out[i] += term_diagonal(kernel, t, rows, i)


include "_kernel_gradients.pxi"
