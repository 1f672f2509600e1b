cdef class InducingKernel:
    cdef readonly Py_ssize_t n_features, n_inducing, n_terms, n_factors
    cdef readonly object variance, noise, term, family, shape, inverse_length_scale, inducing_points
    cdef const double[::1] _variance
    cdef const int[::1] _noise, _family
    cdef const Py_ssize_t[::1] _first
    cdef const double[::1] _shape
    cdef const double[:, ::1] _scale
    cdef const double[:, ::1] _points
    cdef double[:, ::1] _centre, _z2
    cdef double[:, :, ::1] _z
    cdef double[::1] _z2_max, _zeros
    cdef bint _stationary
    cdef double _diagonal


cdef struct KernelScratch:
    double* x        # tile (rows, n_features): scaled rows
    double* x2       # (rows,): their squared norms
    double* row_sum  # (rows,): sums over the inducing points
    double* term     # tile (rows, n_inducing): one term's values
    double* factor   # tile (rows, n_inducing): cross products of one factor
    double* rest     # tile (rows, n_inducing): product of a term's other factors


cdef class KernelGradient:
    cdef readonly tuple sizes
    cdef readonly object values
    cdef double* terms
    cdef double* shapes
    cdef double* sums
    cdef double* products
    cdef double* squares


ctypedef fused real:
    float
    double


cdef void cross_block(InducingKernel kernel, const real[:, :] X, const Py_ssize_t* index, Py_ssize_t start,
                      Py_ssize_t rows, KernelScratch* scratch, double* out) noexcept nogil
cdef void diagonal_block(InducingKernel kernel, const real[:, :] X, const Py_ssize_t* index, Py_ssize_t start,
                         Py_ssize_t rows, KernelScratch* scratch, double* out) noexcept nogil
cdef void gradient_block(InducingKernel kernel, const real[:, :] X, const Py_ssize_t* index, Py_ssize_t start,
                         Py_ssize_t rows, const double* G, KernelScratch* scratch, double* weighted, double* terms,
                         double* shapes, double* sums, double* products, double* squares) noexcept nogil
cdef void diagonal_gradient_block(InducingKernel kernel, const real[:, :] X, const Py_ssize_t* index,
                                  Py_ssize_t start, Py_ssize_t rows, const double* g, bint noise_alone,
                                  KernelScratch* scratch, double* terms, double* shapes) noexcept nogil
cdef void place(InducingKernel kernel) noexcept nogil
