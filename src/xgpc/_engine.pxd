from ._core cimport Rows
from ._kernels cimport InducingKernel, KernelScratch


cdef class Workspace:
    cdef readonly Py_ssize_t rows, n_inducing, n_features, n_latents
    cdef double[::1] a, b, room, diagonal, residual, mean, variance, ell, precision, linear, site, triangle
    cdef float[::1] single_a, single_factors
    cdef KernelScratch kernel


cdef int project(InducingKernel kernel, const double* Linv, const Rows* rows, Workspace work,
                 double* a) except -1 nogil


cdef inline Py_ssize_t tiles(Py_ssize_t start, Py_ssize_t stop, Workspace work) noexcept nogil:
    return (stop - start + work.rows - 1) // work.rows
