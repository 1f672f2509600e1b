from ._engine cimport Workspace
from ._kernels cimport InducingKernel, real


cdef double weight_of_latest(Py_ssize_t steps) noexcept nogil


cdef class GradientSums:
    cdef double[:, ::1] gram
    cdef double[::1] terms, shapes, squares, sums, products

    cdef void clear(self) noexcept nogil
    cdef void add(self, GradientSums other) noexcept nogil


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

    cdef void add(self, GradientSums to, const real[:, :] X, const Py_ssize_t* index, Py_ssize_t rows,
                  Py_ssize_t classes, double scale, const double* a, const double* b, const double* factors,
                  const double* w, const double* mean, const double* precision, const double* linear,
                  Workspace work) noexcept nogil
    cdef void collect(self, double sides, GradientSums found) noexcept nogil
    cdef void pull(self, GradientSums found) noexcept nogil
    cdef void move(self, GradientSums found) noexcept nogil
    cdef int place_at(self) noexcept nogil
