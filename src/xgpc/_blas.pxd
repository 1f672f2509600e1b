# The calls of BLAS and LAPACK of _blas.pyx, which alone reads SciPy's long lists of functions.
cdef void gemm(const char* of_a, const char* of_b, Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, const double* a,
               Py_ssize_t a_apart, const double* b, Py_ssize_t b_apart, double beta, double* c,
               Py_ssize_t c_apart) noexcept nogil
cdef void gemm_tile(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, const double* a, const double* b, bint transposed,
                    double* c) noexcept nogil
cdef void gemm_products(Py_ssize_t n, Py_ssize_t m, Py_ssize_t classes, const double* a, const double* w,
                        double* products, Py_ssize_t stride) noexcept nogil
cdef void gemm_sums(Py_ssize_t n, Py_ssize_t m, Py_ssize_t classes, const double* a, const double* values,
                    Py_ssize_t stride, double* sums) noexcept nogil
cdef void gemm_inner(Py_ssize_t n, Py_ssize_t m, Py_ssize_t d, const double* a, const double* x,
                     double* c) noexcept nogil
cdef void trmm_lower_t(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil
cdef void trmm_lower(Py_ssize_t n, Py_ssize_t m, const double* lower, double* b) noexcept nogil
cdef void trmm_lower_right(Py_ssize_t m, const double* lower, double* b) noexcept nogil
cdef void add_syrk_lower(Py_ssize_t n, Py_ssize_t m, double alpha, const double* a, double* c) noexcept nogil
cdef int potrf_lower(Py_ssize_t m, double* a) noexcept nogil
cdef int trtri_lower(Py_ssize_t m, double* a) noexcept nogil
cdef double dot(Py_ssize_t n, const double* x, const double* y) noexcept nogil
cdef void trmv(Py_ssize_t m, const double* lower, bint transposed, double* x) noexcept nogil
cdef int lauum_lower(Py_ssize_t m, double* a) noexcept nogil
