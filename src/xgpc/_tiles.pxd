# Of tiles.h, with the precision of the tile chosen by its type.
from libc.math cimport sqrt
from libc.string cimport memcpy

from . cimport _blas
from ._core cimport *

# Type of whitened rows and their products.
ctypedef fused number:
    float
    double


# In double precision, BLAS stands in where the functions of tiles.h lack wide registers.

cdef inline void times_lower_t(Py_ssize_t rows, Py_ssize_t m, const double* lower, double* a,
                               double* scratch) noexcept nogil:
    if xg_is_wide():
        xg_times_lower_t(rows, m, lower, a, scratch)
    else:
        _blas.trmm_lower_t(rows, m, lower, a)


cdef inline void row_marginals(Py_ssize_t rows, Py_ssize_t m, const number* a, const double* w, const number* lower,
                               const double* prior, number* b, double* mean, double* norms, double* variance,
                               double* scratch) noexcept nogil:
    # mean = a.w and variance = prior - |a|^2, not negative, plus |b|^2, with norms = |a|^2 and b = a lower^T, which may
    # be NULL
    cdef Py_ssize_t i
    if number is float:
        xg_marginals_single(rows, m, a, w, lower, b, mean, norms, variance, scratch)
    elif xg_is_wide():
        xg_marginals(rows, m, a, w, lower, b, mean, norms, variance, scratch)
    else:
        b = scratch if b == NULL else b
        memcpy(b, a, rows * m * sizeof(double))
        _blas.trmm_lower_t(rows, m, lower, b)
        xg_means(rows, m, a, w, mean)
        xg_squared_norms(rows, m, a, norms)
        xg_squared_norms(rows, m, b, variance)
    for i in range(rows):
        variance[i] += max(prior[i] - norms[i], 0.0)


cdef inline void add_outer(Py_ssize_t rows, Py_ssize_t m, const number* a, const double* s, const double* r, double* P,
                           double* h, double* scratch) noexcept nogil:
    cdef Py_ssize_t i, k
    cdef double sign
    cdef double* root = scratch + rows * m
    cdef bint is_found
    if number is float:
        xg_add_outer_single(rows, m, a, s, r, P, h, scratch)
    elif xg_is_wide():
        xg_add_outer(rows, m, a, s, r, P, h, scratch)
    else:
        _blas.gemm_sums(rows, m, 1, a, r, rows, h)
        for sign in (1.0, -1.0):
            is_found = False
            for i in range(rows):
                is_found |= sign * s[i] > 0.0
                root[i] = sqrt(max(sign * s[i], 0.0))
            if is_found:
                for k in range(m):
                    for i in range(rows):
                        scratch[k * rows + i] = root[i] * a[k * rows + i]
                _blas.add_syrk_lower(rows, m, sign, scratch, P)


cdef inline Py_ssize_t cholesky_scratch(Py_ssize_t m) noexcept nogil:
    # Numbers of scratch for ``cholesky``
    return xg_cholesky_scratch(m) if xg_is_wide() and m <= XG_CHOLESKY_MOST else 0


cdef inline int cholesky(Py_ssize_t m, const double* a, double* factor, double* inverse,
                         double* scratch) noexcept nogil:
    # As xg_cholesky, with LAPACK for large matrices.
    cdef Py_ssize_t i, j
    cdef int info
    if xg_is_wide() and m <= XG_CHOLESKY_MOST:
        return xg_cholesky(m, a, factor, inverse, scratch)
    for i in range(m):
        for j in range(m):
            inverse[i * m + j] = a[i * m + j] if j <= i else 0.0
    info = _blas.potrf_lower(m, inverse)
    if factor != NULL:
        memcpy(factor, inverse, m * m * sizeof(double))
    return info if info else _blas.trtri_lower(m, inverse)
