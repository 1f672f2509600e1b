"""Covariance blocks k(X, Z) of sums of terms, and the contractions of a gradient with their derivatives.

A kernel is a list of terms variance_t * profile_t(r_t), r_t^2 = sum_j ((x_j - z_j) s_tj)^2, plus a white variance
on the diagonal. A family is one profile: adding one means a value here, its gradient weight, and a parser entry
in xgpc/kernels.py.
"""
import numpy as np

from . cimport _blas

cdef extern from "vmath.h" nogil:
    void xg_rbf_from_products(Py_ssize_t rows, Py_ssize_t m, const double* x2, const double* z2, double variance,
                              const double* cross, bint accumulate, double* out)
    void xg_rbf_from_differences(Py_ssize_t rows, Py_ssize_t m, Py_ssize_t d, const double* x, const double* z,
                                 double variance, bint accumulate, double* out)
    void xg_weight_tile(Py_ssize_t rows, Py_ssize_t m, const double* g, double* w, double* row_sum,
                        double* column_sum)

# |x|^2 + |z|^2 - 2 x.z loses eps (|x|^2 + |z|^2) of the squared distance. Above this squared norm (an error of
# about 1e-10) the differences are formed instead.
cdef double CANCELLATION_LIMIT = 1e6

FAMILIES = {"constant": CONSTANT, "rbf": RBF}


cdef class InducingKernel:
    """A kernel with its parameters' values, ready to be evaluated against inducing points.

    Parameters
    ----------
    family : (n_terms,) int32, values of ``FAMILIES``
    variance : (n_terms,) float64, positive
    inverse_length_scale : (n_terms, d) float64; ignored for constant terms
    white : float, variance of the white noise, on the diagonal of k(X, X) only
    inducing_points : (m, d) float64
    """

    def __init__(self, family, variance, inverse_length_scale, double white, inducing_points):
        self.family = np.ascontiguousarray(family, dtype=np.int32)
        self.variance = np.ascontiguousarray(variance, dtype=np.float64)
        self.inverse_length_scale = np.ascontiguousarray(inverse_length_scale, dtype=np.float64)
        Z = np.ascontiguousarray(inducing_points, dtype=np.float64)
        self._family, self._variance, self._scale = self.family, self.variance, self.inverse_length_scale
        self.n_terms = self._family.shape[0]
        self.n_inducing, self.n_features = Z.shape
        self.inducing_points = Z
        self.white = white
        self.diagonal = float(self.variance.sum()) + white
        # Distances do not depend on the origin; near the data's middle they lose the fewest digits.
        centre = Z.mean(axis=0)
        scaled = (Z - centre) * self.inverse_length_scale[:, None, :]
        self._centre = centre
        self._z = scaled
        self._z2 = np.einsum("tkj,tkj->tk", scaled, scaled)
        self._z2_max = np.max(self._z2, axis=1)

    def __reduce__(self):
        return InducingKernel, (self.family, self.variance, self.inverse_length_scale, self.white,
                                self.inducing_points)

    def cross(self, X):
        """k(X, Z), (n, m) float64, for X (n, d) float32 or float64."""
        if X.dtype == np.float32:
            return _cross[float](self, X)
        return _cross[double](self, X)


cdef _cross(InducingKernel kernel, const real[:, :] X):
    cdef Py_ssize_t n = X.shape[0]
    cdef double[:, ::1] x = np.empty((kernel.n_features, n))
    cdef double[::1] x2 = np.empty(n)
    cdef double[:, ::1] term = np.empty((kernel.n_inducing, n))
    out = np.empty((kernel.n_inducing, n))
    cdef double[:, ::1] result = out
    cdef KernelScratch scratch
    if n:
        scratch.x, scratch.x2, scratch.term = &x[0, 0], &x2[0], &term[0, 0]
        with nogil:
            cross_block(kernel, X, NULL, 0, n, &scratch, &result[0, 0])
    return np.ascontiguousarray(out.T)


cdef double scale_rows(InducingKernel kernel, Py_ssize_t t, const real[:, :] X, const Py_ssize_t* index,
                       Py_ssize_t start, Py_ssize_t rows, double* x, double* x2) noexcept nogil:
    # tile x (rows, d) = (X - centre) / length scale, x2 (rows,) its squared norms; returns the largest of them.
    cdef Py_ssize_t i, j
    cdef double value, centre, scale, largest = 0.0
    for i in range(rows):
        x2[i] = 0.0
    for j in range(kernel.n_features):
        centre = kernel._centre[j]
        scale = kernel._scale[t, j]
        for i in range(rows):
            value = (X[index[i] if index != NULL else start + i, j] - centre) * scale
            x[j * rows + i] = value
            x2[i] += value * value
    for i in range(rows):
        largest = max(largest, x2[i])
    return largest


cdef void term_block(InducingKernel kernel, Py_ssize_t t, const real[:, :] X, const Py_ssize_t* index,
                     Py_ssize_t start, Py_ssize_t rows, bint accumulate, KernelScratch* scratch,
                     double* products, double* out) noexcept nogil:
    # tile out (rows, m) (+)= term t; leaves the scaled rows in scratch. The tile products may be out itself.
    cdef Py_ssize_t i, m = kernel.n_inducing, d = kernel.n_features
    cdef double largest
    if kernel._family[t] == CONSTANT:
        for i in range(rows * m):
            out[i] = (out[i] if accumulate else 0.0) + kernel._variance[t]
        return
    largest = scale_rows(kernel, t, X, index, start, rows, scratch.x, scratch.x2)
    if largest + kernel._z2_max[t] > CANCELLATION_LIMIT:
        xg_rbf_from_differences(rows, m, d, scratch.x, &kernel._z[t, 0, 0], kernel._variance[t], accumulate, out)
        return
    _blas.gemm_tile(rows, m, d, scratch.x, &kernel._z[t, 0, 0], True, products)
    xg_rbf_from_products(rows, m, scratch.x2, &kernel._z2[t, 0], kernel._variance[t], products, accumulate, out)


cdef void cross_block(InducingKernel kernel, const real[:, :] X, const Py_ssize_t* index, Py_ssize_t start,
                      Py_ssize_t rows, KernelScratch* scratch, double* out) noexcept nogil:
    # tile out (rows, m) = k(X[index], Z), or k(X[start:start + rows], Z) without an index.
    cdef Py_ssize_t t
    for t in range(kernel.n_terms):
        term_block(kernel, t, X, index, start, rows, t > 0, scratch, out if t == 0 else scratch.term, out)


cdef void gradient_block(InducingKernel kernel, const real[:, :] X, Py_ssize_t start, Py_ssize_t rows,
                         const double* G, KernelScratch* scratch, double* weighted, double* sums, double* products,
                         double* squares) noexcept nogil:
    # Adds, for the tile G = dF / dk(X, Z) (rows, m) and each term t with W = G * k_t (elementwise):
    #   sums (n_terms, m)        sum_i W_ik
    #   products (n_terms, m, d) sum_i W_ik x_ij, x the scaled rows
    #   squares (n_terms, d)     sum_ik W_ik x_ij^2
    # The tile weighted is scratch. For the RBF, -2 d k / d r^2 = k, so that W serves variance and distances alike.
    cdef Py_ssize_t t, i, j, m = kernel.n_inducing, d = kernel.n_features
    for t in range(kernel.n_terms):
        term_block(kernel, t, X, NULL, start, rows, False, scratch, weighted, weighted)
        # The squared norms of the rows have served; their room takes the row sums of W.
        xg_weight_tile(rows, m, G, weighted, scratch.x2, sums + t * m)
        if kernel._family[t] != CONSTANT:
            for j in range(d):
                for i in range(rows):
                    squares[t * d + j] += scratch.x2[i] * scratch.x[j * rows + i] * scratch.x[j * rows + i]
            _blas.gemm_inner(rows, m, d, weighted, scratch.x, products + t * m * d)
