"""The only door to scipy.linalg.cython_blas and cython_lapack, in row-major terms.

A row-major (n, m) matrix is a column-major (m, n) one, so each wrapper passes the transposed problem. Sizes are
Py_ssize_t outside and become the library's integer here; blocks of rows keep them far below its limit.
"""
from scipy.linalg cimport cython_blas, cython_lapack


cdef void gemm_nt(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double alpha, const double* a, const double* b,
                  double beta, double* c) noexcept nogil:
    # c (n, m) = alpha a (n, k) b (m, k)^T + beta c
    cdef int rows = <int>n, columns = <int>m, inner = <int>k
    cython_blas.dgemm(b"T", b"N", &columns, &rows, &inner, &alpha, <double*>b, &inner, <double*>a, &inner,
                      &beta, c, &columns)


cdef void gemm_nn(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double alpha, const double* a, const double* b,
                  double beta, double* c) noexcept nogil:
    # c (n, m) = alpha a (n, k) b (k, m) + beta c
    cdef int rows = <int>n, columns = <int>m, inner = <int>k
    cython_blas.dgemm(b"N", b"N", &columns, &rows, &inner, &alpha, <double*>b, &columns, <double*>a, &inner,
                      &beta, c, &columns)


cdef void gemm_tn(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double alpha, const double* a, const double* b,
                  double beta, double* c) noexcept nogil:
    # c (n, m) = alpha a (k, n)^T b (k, m) + beta c
    cdef int rows = <int>n, columns = <int>m, inner = <int>k
    cython_blas.dgemm(b"N", b"T", &columns, &rows, &inner, &alpha, <double*>b, &columns, <double*>a, &rows,
                      &beta, c, &columns)


cdef void trmm_lower_t(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil:
    # b (n, m) <- b lower^T
    cdef int rows = <int>n, columns = <int>m
    cdef double one = 1.0
    cython_blas.dtrmm(b"L", b"U", b"T", b"N", &columns, &rows, &one, <double*>lower, &columns, b, &columns)


cdef void trsm_lower_t(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil:
    # b (n, m) <- b lower^{-T}
    cdef int rows = <int>n, columns = <int>m
    cdef double one = 1.0
    cython_blas.dtrsm(b"L", b"U", b"T", b"N", &columns, &rows, &one, <double*>lower, &columns, b, &columns)


cdef void syrk_lower_t(Py_ssize_t m, Py_ssize_t n, const double* a, double beta, double* c) noexcept nogil:
    # lower triangle of c (m, m) = a (n, m)^T a + beta c
    cdef int rows = <int>n, columns = <int>m
    cdef double one = 1.0
    cython_blas.dsyrk(b"U", b"N", &columns, &rows, &one, <double*>a, &columns, &beta, c, &columns)


cdef void gemv(Py_ssize_t n, Py_ssize_t m, const double* a, const double* x, double* y) noexcept nogil:
    # y (n,) = a (n, m) x
    cdef int rows = <int>n, columns = <int>m, step = 1
    cdef double one = 1.0, zero = 0.0
    cython_blas.dgemv(b"T", &columns, &rows, &one, <double*>a, &columns, <double*>x, &step, &zero, y, &step)


cdef void gemv_t(Py_ssize_t n, Py_ssize_t m, const double* a, const double* x, double beta, double* y) noexcept nogil:
    # y (m,) = a (n, m)^T x + beta y
    cdef int rows = <int>n, columns = <int>m, step = 1
    cdef double one = 1.0
    cython_blas.dgemv(b"N", &columns, &rows, &one, <double*>a, &columns, <double*>x, &step, &beta, y, &step)


cdef void trsv_lower(Py_ssize_t m, bint transposed, const double* lower, double* x) noexcept nogil:
    # x <- lower^{-1} x, or lower^{-T} x
    cdef int size = <int>m, step = 1
    cython_blas.dtrsv(b"U", b"N" if transposed else b"T", b"N", &size, <double*>lower, &size, x, &step)


cdef int potrf_lower(Py_ssize_t m, double* a) noexcept nogil:
    # lower triangle of a <- its Cholesky factor; returns LAPACK's info
    cdef int size = <int>m, info = 0
    cython_lapack.dpotrf(b"U", &size, a, &size, &info)
    return info
