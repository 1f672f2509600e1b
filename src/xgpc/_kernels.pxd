from ._core cimport Rows, xg_local_kernel


cdef class InducingKernel:
    cdef readonly Py_ssize_t n_features, n_inducing, n_terms, n_factors
    cdef readonly object variance, noise, term, family, shape, inverse_length_scale, inducing_points, function
    cdef const double[::1] _variance
    cdef const int[::1] _noise, _family
    cdef const Py_ssize_t[::1] _first
    cdef const double[::1] _shape
    cdef const double[:, ::1] _scale
    cdef const double[:, ::1] _points
    cdef double[:, ::1] _centre, _z2
    cdef double[:, :, ::1] _z
    cdef double[::1] _z2_max, _zeros
    cdef bint _stationary, _is_called
    cdef xg_local_kernel _parameters  # the arrays above


cdef struct KernelScratch:
    double* x        # tile (rows, n_features): scaled rows
    double* x2       # (rows,): their squared norms
    double* row_sum  # (rows,): sums over the inducing points
    double* term     # tile (rows, n_inducing): one term's values
    double* factor   # tile (rows, n_inducing): cross products of one factor
    double* rest     # tile (rows, n_inducing): product of a term's other factors


cdef struct Contractions:
    # Sums over the elements of dF / dk(X, Z), see ``gradient_block``
    double* terms     # (n_terms,)
    double* shapes    # (n_factors,)
    double* sums      # (n_factors, m)
    double* products  # (n_factors, m, d)
    double* squares   # (n_factors, d)


cdef class KernelGradient:
    cdef readonly tuple sizes
    cdef readonly object values
    cdef double[::1] flat
    cdef Contractions parts


cdef inline KernelScratch kernel_scratch(double* room, Py_ssize_t n, Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    # Of n rows, m inducing points and d features, in n (d + 2 + 3 m) numbers
    cdef double* tiles = room + n * (d + 2)
    return KernelScratch(room, room + n * d, room + n * (d + 1), tiles, tiles + n * m, tiles + 2 * n * m)


cdef inline Rows rows_from(Rows rows, Py_ssize_t start, Py_ssize_t n) noexcept nogil:
    # n of the rows, from number start on
    rows.start += start
    rows.index = NULL if rows.index == NULL else rows.index + start
    rows.n = n
    return rows


cdef Rows rows_of(X) except *
cdef void read_feature(const Rows* rows, Py_ssize_t j, double* out) noexcept nogil
cdef int cross_block(InducingKernel kernel, const Rows* rows, KernelScratch* scratch, double* out) except -1 nogil
cdef int diagonal_block(InducingKernel kernel, const Rows* rows, double* out) except -1 nogil
cdef int gradient_block(InducingKernel kernel, const Rows* rows, const double* G, KernelScratch* scratch,
                        double* weighted, const Contractions* total) except -1 nogil
cdef int diagonal_gradient_block(InducingKernel kernel, const Rows* rows, const double* g, bint noise_alone,
                                 const Contractions* total) except -1 nogil
cdef void place(InducingKernel kernel) noexcept nogil
