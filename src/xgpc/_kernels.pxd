cdef enum Family:
    CONSTANT = 0
    RBF = 1


cdef class InducingKernel:
    cdef readonly Py_ssize_t n_features, n_inducing, n_terms
    cdef readonly double diagonal, white
    cdef readonly object family, variance, inverse_length_scale, inducing_points
    cdef const int[::1] _family
    cdef const double[::1] _variance
    cdef const double[:, ::1] _scale
    cdef double[::1] _centre
    cdef double[:, :, ::1] _z
    cdef double[:, ::1] _z2
    cdef double[::1] _z2_max


cdef struct KernelScratch:
    double* x       # tile (rows, n_features): scaled rows
    double* x2      # (rows,): their squared norms
    double* term    # tile (rows, n_inducing): products, or one term's values


ctypedef fused real:
    float
    double


cdef void cross_block(InducingKernel kernel, const real[:, :] X, const Py_ssize_t* index, Py_ssize_t start,
                      Py_ssize_t rows, KernelScratch* scratch, double* out) noexcept nogil
cdef void gradient_block(InducingKernel kernel, const real[:, :] X, Py_ssize_t start, Py_ssize_t rows,
                         const double* G, KernelScratch* scratch, double* weighted, double* sums, double* products,
                         double* squares) noexcept nogil
