from ._core cimport Rows
from ._kernels cimport InducingKernel, KernelScratch, rows_from


cdef class Workspace:
    cdef readonly Py_ssize_t rows, n_inducing, n_features, n_latents
    cdef double[::1] a, b, room, diagonal, residual, mean, variance, ell, precision, linear, site, triangle
    cdef float[::1] single_a, single_factors
    cdef KernelScratch kernel


cdef int project(InducingKernel kernel, const double* Linv, const Rows* rows, Workspace work,
                 double* a) except -1 nogil


cdef inline Py_ssize_t tiles(Py_ssize_t n, Workspace work) noexcept nogil:
    # Number of tiles of n rows
    return (n + work.rows - 1) // work.rows


cdef inline Rows rows_of_tile(const Rows* rows, Py_ssize_t t, Workspace work) noexcept nogil:
    return rows_from(rows[0], t * work.rows, min(work.rows, rows.n - t * work.rows))
