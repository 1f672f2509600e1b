from ._kernels cimport InducingKernel, KernelScratch, real


cdef extern from "softmax.h" nogil:
    ctypedef struct xg_hazard_table:
        Py_ssize_t rows
        const double* values


cdef class Site:
    cdef readonly object likelihood, bound, record
    cdef readonly str key
    cdef readonly int kind
    cdef readonly Py_ssize_t n_latents
    cdef readonly double parameter
    cdef readonly bint learned
    cdef const double[:, ::1] _table
    cdef xg_hazard_table _hazards


cdef class Workspace:
    cdef readonly Py_ssize_t rows, n_inducing, n_features, n_latents
    cdef double[::1] a, b, term, factor, rest, x, x2, row_sum, diagonal, residual
    cdef double[::1] mean, variance, ell, precision, linear, site
    cdef Py_ssize_t[::1] index
    cdef KernelScratch kernel


cdef extern from "vmath.h" nogil:
    void xg_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* mean)
    void xg_squared_norms(Py_ssize_t rows, Py_ssize_t m, const double* a, double* out)
    void xg_norms_and_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* copy,
                            double* norms, double* mean)
    void xg_scale_and_sum(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* s, const double* r,
                          bint accumulate, double* root, double* out, double* sum)


cdef void project(InducingKernel kernel, const double* Linv, const real[:, :] X, const Py_ssize_t* index,
                  Py_ssize_t start, Py_ssize_t rows, KernelScratch* scratch, double* a) noexcept nogil
cdef int evaluate(Site site, Py_ssize_t n, Py_ssize_t stride, const double* mean, const double* variance,
                  const double* y, const double* weight, double* scratch, double* ell, double* precision,
                  double* linear) except -1 nogil


cdef inline Py_ssize_t tiles(Py_ssize_t start, Py_ssize_t stop, Workspace work) noexcept nogil:
    return (stop - start + work.rows - 1) // work.rows
