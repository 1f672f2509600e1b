# All calls of BLAS and LAPACK, for two kinds of matrices. A tile (n, m) is column-major with leading dimension n: its n
# rows are data points, and products with small matrices from the right run fastest that way. A square or small matrix
# is row-major; "lower" refers to its row-major triangle; to the libraries, which are column-major, it is its transpose.
# Sizes are Py_ssize_t, and are converted here to the integer type of the library; tiles keep them far below its limit.
from scipy.linalg cimport cython_blas, cython_lapack


cdef void gemm(const char* of_a, const char* of_b, Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, const double* a,
               Py_ssize_t a_apart, const double* b, Py_ssize_t b_apart, double beta, double* c,
               Py_ssize_t c_apart) noexcept nogil:
    # column-major c (n, m) = a b + beta c, either transposed by "T"; columns are so many numbers apart
    cdef int rows = <int>n, columns = <int>m, inner = <int>k
    cdef int lda = <int>a_apart, ldb = <int>b_apart, ldc = <int>c_apart
    cdef double one = 1.0
    cython_blas.dgemm(<char*>of_a, <char*>of_b, &rows, &columns, &inner, &one, <double*>a, &lda, <double*>b, &ldb,
                      &beta, c, &ldc)

cdef void gemm_tile(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, const double* a, const double* b, bint transposed,
                    double* c) noexcept nogil:
    # tile c (n, m) = tile a (n, k) times b (k, m), or b^T with b (m, k) if transposed
    gemm(b"N", b"N" if transposed else b"T", n, m, k, a, n, b, k if transposed else m, 0.0, c, n)

cdef void gemm_products(Py_ssize_t n, Py_ssize_t m, Py_ssize_t classes, const double* a, const double* w,
                        double* products, Py_ssize_t stride) noexcept nogil:
    # products (classes, n), rows ``stride`` apart, = w (classes, m) times tile a (n, m)^T
    gemm(b"N", b"N", n, classes, m, a, n, w, m, 0.0, products, stride)

cdef void gemm_sums(Py_ssize_t n, Py_ssize_t m, Py_ssize_t classes, const double* a, const double* values,
                    Py_ssize_t stride, double* sums) noexcept nogil:
    # sums (classes, m) += values (classes, n), rows ``stride`` apart, times tile a (n, m)
    gemm(b"T", b"N", m, classes, n, a, n, values, stride, 1.0, sums, m)

cdef void gemm_inner(Py_ssize_t n, Py_ssize_t m, Py_ssize_t d, const double* a, const double* x,
                     double* c) noexcept nogil:
    # c (m, d) += tile a (n, m)^T tile x (n, d)
    gemm(b"T", b"N", d, m, n, x, n, a, n, 1.0, c, d)

cdef void trmm(const char* side, const char* of_lower, Py_ssize_t n, Py_ssize_t m, const double* lower,
               double* b) noexcept nogil:
    cdef int rows = <int>n, columns = <int>m
    cdef double one = 1.0
    cython_blas.dtrmm(<char*>side, b"U", <char*>of_lower, b"N", &rows, &columns, &one, <double*>lower, &columns, b,
                      &rows)

cdef void trmm_lower_t(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil:
    # tile b (n, m) <- b lower^T
    trmm(b"R", b"N", n, m, lower, b)

cdef void trmm_lower(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil:
    # tile b (n, m) <- b lower; as a row-major (m, n) it is lower^T b
    trmm(b"R", b"T", n, m, lower, b)

cdef void trmm_lower_right(Py_ssize_t m, const double* lower, double* b) noexcept nogil:
    # b (m, m) <- b lower
    trmm(b"L", b"N", m, m, lower, b)

cdef void add_syrk_lower(Py_ssize_t n, Py_ssize_t m, double alpha, const double* a, double* c) noexcept nogil:
    # lower triangle of c (m, m) += alpha a^T a, tile a (n, m)
    cdef int rows = <int>n, columns = <int>m
    cdef double one = 1.0
    cython_blas.dsyrk(b"U", b"T", &columns, &rows, &alpha, <double*>a, &rows, &one, c, &columns)

cdef int potrf_lower(Py_ssize_t m, double* a) noexcept nogil:
    # lower triangle of a <- its Cholesky factor; returns LAPACK's info
    cdef int size = <int>m, info = 0
    cython_lapack.dpotrf(b"U", &size, a, &size, &info)
    return info

cdef int trtri_lower(Py_ssize_t m, double* a) noexcept nogil:
    # lower triangle of a <- its inverse; returns LAPACK's info
    cdef int size = <int>m, info = 0
    cython_lapack.dtrtri(b"U", b"N", &size, a, &size, &info)
    return info

cdef double dot(Py_ssize_t n, const double* x, const double* y) noexcept nogil:
    cdef int size = <int>n, step = 1
    return cython_blas.ddot(&size, <double*>x, &step, <double*>y, &step)

cdef void trmv(Py_ssize_t m, const double* lower, bint transposed, double* x) noexcept nogil:
    # x <- lower x, or lower^T x if transposed
    cdef int size = <int>m, step = 1
    cython_blas.dtrmv(b"U", b"N" if transposed else b"T", b"N", &size, <double*>lower, &size, x, &step)

cdef int lauum_lower(Py_ssize_t m, double* a) noexcept nogil:
    # lower triangle of a <- a^T a for a lower triangular a; returns LAPACK's info
    cdef int size = <int>m, info = 0
    cython_lapack.dlauum(b"U", &size, a, &size, &info)
    return info
