# BLAS and LAPACK for two kinds of matrices. A tile (n, m) is column-major with leading dimension n: its n rows are data
# points, and products with small matrices from the right run fastest that way. A square or small matrix is row-major;
# "lower" refers to its row-major triangle.

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
cdef void add_syrk_lower(Py_ssize_t n, Py_ssize_t m, double alpha, const double* a, double* c) noexcept nogil
cdef void trsv_lower(Py_ssize_t m, bint transposed, const double* lower, double* x) noexcept nogil
cdef int potrf_lower(Py_ssize_t m, double* a) noexcept nogil
cdef int trtri_lower(Py_ssize_t m, double* a) noexcept nogil
cdef void symm(Py_ssize_t m, const double* a, const double* b, double* c) noexcept nogil
cdef void trmm_upper_left(Py_ssize_t m, const double* lower, double* b) noexcept nogil
cdef void trmm_lower_right(Py_ssize_t m, const double* lower, double* b) noexcept nogil
cdef void trmv_upper(Py_ssize_t m, const double* lower, double* x) noexcept nogil
cdef int lauum_lower(Py_ssize_t m, double* a) noexcept nogil
