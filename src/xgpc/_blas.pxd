# Row-major views of the BLAS and LAPACK routines that the core uses. Every matrix is C-contiguous and full
# (its row stride is its number of columns); "lower" refers to the row-major matrix.
cdef void gemm_nt(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double alpha, const double* a, const double* b,
                  double beta, double* c) noexcept nogil
cdef void gemm_nn(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double alpha, const double* a, const double* b,
                  double beta, double* c) noexcept nogil
cdef void gemm_tn(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double alpha, const double* a, const double* b,
                  double beta, double* c) noexcept nogil
cdef void trmm_lower_t(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil
cdef void trsm_lower_t(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil
cdef void syrk_lower_t(Py_ssize_t m, Py_ssize_t n, const double* a, double beta, double* c) noexcept nogil
cdef void gemv(Py_ssize_t n, Py_ssize_t m, const double* a, const double* x, double* y) noexcept nogil
cdef void gemv_t(Py_ssize_t n, Py_ssize_t m, const double* a, const double* x, double beta, double* y) noexcept nogil
cdef void trsv_lower(Py_ssize_t m, bint transposed, const double* lower, double* x) noexcept nogil
cdef int potrf_lower(Py_ssize_t m, double* a) noexcept nogil
