from ._engine cimport Workspace
from ._kernels cimport InducingKernel, KernelGradient, Rows


cdef double weight_of_latest(Py_ssize_t steps) noexcept nogil


cdef class GradientSums:
    cdef double[:, ::1] gram
    cdef KernelGradient cross

    cdef void clear(self) noexcept nogil
    cdef void add(self, GradientSums other) noexcept nogil


cdef struct LatentRows:
    # n whitened rows, with the posteriors of some latent functions and these functions' sites at the rows
    Py_ssize_t n_latents
    const double* a          # tile (n, m)
    const double* spread     # tiles (n, m): a R^{-T} of each function, as far apart as tiles of the scratch
    const double* Rinv       # (n_latents, m, m)
    const double* w          # (n_latents, m)
    const double* mean       # (n_latents, n)
    const double* precision  # (n_latents, n)
    const double* linear     # (n_latents, n)


cdef class MovingPrior:
    cdef readonly InducingKernel kernel
    cdef readonly object vector, average, units
    cdef readonly Py_ssize_t steps, failures
    cdef double[::1] at, before, mean_at, first, second, slope, unit, low, high, value, by_value, offset, power
    cdef Py_ssize_t[::1] row, column
    cdef double[:, ::1] prior_precision
    cdef double[::1] prior_linear
    cdef double[::1] variance, shape
    cdef double[:, ::1] inverse_length_scale, points, by_points, inverse
    cdef Workspace small
    cdef double jitter, rate, delay
    cdef Py_ssize_t n_theta

    cdef void add(self, GradientSums to, const Rows* rows, const LatentRows* at, double scale,
                  Workspace work) noexcept nogil
    cdef void collect(self, double sides, GradientSums found) noexcept nogil
    cdef void pull(self, GradientSums found) noexcept nogil
    cdef void move(self, GradientSums found) noexcept nogil
    cdef int place_at(self) noexcept nogil
