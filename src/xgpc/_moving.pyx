"""A kernel and its inducing points that move while mini-batches fit the posterior: Adam on stochastic gradients.

The whitened posterior q(z) = N(w, P^{-1}) stays as it is when the kernel moves, and with it KL(q || p): the gradient is
that of the expected log-likelihood by a_i = L^{-1} k_m(x_i) and k_ii alone, pulled back through the Cholesky
factorisation of K_mm = L L^T (Murray 2016, equation 9).
"""
import numpy as np

from libc.math cimport exp, fmax, fmin, isfinite, pow, sqrt
from libc.string cimport memcpy, memset

from . cimport _blas
from ._engine cimport Workspace
from ._kernels cimport InducingKernel, cross_block, diagonal_gradient_block, gradient_block, place, real
from ._tiles cimport xg_gradient_tile

cdef extern from "profiles.h" nogil:
    enum:
        XG_DOT_PRODUCT

# Kingma & Ba 2015.
cdef double BETA_1 = 0.9, BETA_2 = 0.999, EPSILON = 1e-8
# Weight of iterate t in the average that is returned: proportional to t^3 (Shamir & Zhang 2013, section 3.2; averaging,
# Polyak & Juditsky 1992). 3 forgets the start without giving away much of the averaging.
AVERAGE_POWER = 3.0
cdef double POWER = AVERAGE_POWER


cdef double weight_of_latest(Py_ssize_t steps) noexcept nogil:
    # Of the latest of so many steps in their average.
    return (1.0 + POWER) / (steps + POWER)


cdef void by_parameters(InducingKernel kernel, double sides, const double* terms, const double* shapes,
                        const double* sums, const double* products, const double* squares, double* by_value,
                        double* by_points) noexcept nogil:
    # Adds the derivatives by the logarithms of variances (n_terms,), shapes (n_factors,) and length scales
    # (n_factors, d), and by the inducing points (m, d), from the contractions of ``gradient_block``. ``sides`` of
    # k(Z, Z) are both.
    cdef Py_ssize_t t, f, k, j, e, m = kernel.n_inducing, d = kernel.n_features
    cdef double toward, z
    cdef bint is_dot
    cdef double* by_scale = by_value + kernel.n_terms + kernel.n_factors
    for t in range(kernel.n_terms):
        by_value[t] += terms[t]
        for f in range(kernel._first[t], kernel._first[t + 1]):
            by_value[kernel.n_terms + f] += shapes[f]
            if kernel._noise[t]:
                continue
            is_dot = kernel._family[f] == XG_DOT_PRODUCT
            for j in range(d):
                if not is_dot:
                    by_scale[f * d + j] += squares[f * d + j]
            for k in range(m):
                for j in range(d):
                    e = (f * m + k) * d + j
                    # By z of h = x.z, or of h = -|x - z|^2 / 2.
                    toward = products[e]
                    if not is_dot:
                        z = kernel._z[f, k, j]
                        toward -= sums[f * m + k] * z
                        by_scale[f * d + j] -= z * (products[e] + toward)
                    by_points[k * d + j] += sides * toward * kernel._scale[f, j]


def vjp(InducingKernel kernel, cross, gram):
    """Gradients by the logarithms of a kernel's values, and by its inducing points.

    Parameters
    ----------
    kernel : InducingKernel
    cross, gram : tuples of arrays
        Contractions of dF / dk(X, Z) with dF / dk_ii, and of dF / dk(Z, Z): terms, shapes, sums, products, squares.

    Returns
    -------
    (n_terms + n_factors + n_factors d,) and (m, d) arrays
    """
    by_value = np.zeros(kernel.n_terms + kernel.n_factors * (1 + kernel.n_features))
    by_points = np.zeros((kernel.n_inducing, kernel.n_features))
    cdef double[::1] values = by_value, terms, shapes
    cdef double[:, ::1] points = by_points, sums, squares
    cdef double[:, :, ::1] products
    for sides, part in ((1.0, cross), (2.0, gram)):
        terms, shapes, sums, products, squares = part
        by_parameters(kernel, sides, &terms[0], &shapes[0], &sums[0, 0], &products[0, 0, 0], &squares[0, 0],
                      &values[0], &points[0, 0])
    return by_value, by_points


cdef void plus(double[::1] here, double[::1] other) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(here.shape[0]):
        here[i] += other[i]


cdef class GradientSums:
    """Sums over rows from which the gradient by one kernel and its inducing points follows."""

    def __init__(self, InducingKernel kernel):
        cdef Py_ssize_t m = kernel.n_inducing, d = kernel.n_features, f = kernel.n_factors
        self.gram = np.zeros((m, m))
        self.terms, self.shapes, self.squares = np.zeros(kernel.n_terms), np.zeros(f), np.zeros(f * d)
        self.sums, self.products = np.zeros(f * m), np.zeros(f * m * d)

    cdef void clear(self) noexcept nogil:
        self.gram[:] = 0.0
        self.terms[:] = 0.0
        self.shapes[:] = 0.0
        self.sums[:] = 0.0
        self.products[:] = 0.0
        self.squares[:] = 0.0

    cdef void add(self, GradientSums other) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.gram.shape[0]):
            plus(self.gram[k], other.gram[k])
        plus(self.terms, other.terms)
        plus(self.shapes, other.shapes)
        plus(self.sums, other.sums)
        plus(self.products, other.products)
        plus(self.squares, other.squares)


cdef class MovingPrior:
    """A kernel and inducing points, moved by Adam along stochastic gradients, and the average of where they were.

    Parameters
    ----------
    kernel : InducingKernel, where to start
    jitter : float, relative to the mean diagonal of k(Z, Z)
    vector : (n,) float64
        Logarithms of free kernel parameters, then inducing points in units of ``unit``, or none if they stay.
    limits : (2, n) least and largest values
    unit : (n - n_theta,)
    logarithms : tuple of arrays offset (n_terms + n_factors (1 + d),), row, column and power (n_entries,)
        Of variances, shapes and length scales, one after the other: the logarithms are ``offset``, and number ``row``
        has ``power`` times parameter ``column`` added.
    prior : pair of (n_theta, n_theta) and (n_theta,) arrays, or of empty ones
        Precision and linear term of a normal distribution of the logarithms.
    rate, delay : float
        Step t = 0, 1, ... has the rate ``rate`` / sqrt(1 + t / delay).

    Attributes
    ----------
    vector, average : the latest and the average of the steps
    units : ``unit``
    kernel : at the latest vector
    steps, failures : int, steps that were taken, and those that had to be refused
    """

    def __init__(self, InducingKernel kernel, double jitter, vector, limits, unit, logarithms, prior, double rate,
                 double delay):
        cdef Py_ssize_t m = kernel.n_inducing, d = kernel.n_features, n = len(vector)
        self.vector, self.average = np.array(vector), np.array(vector)
        self.at, self.mean_at, self.before = self.vector, self.average, np.array(vector)
        self.low, self.high = np.array(limits, dtype=np.float64, order="C")
        self.first, self.second, self.slope = np.zeros((3, n))
        self.unit = self.units = unit
        self.n_theta = n - len(unit)
        self.offset, self.row, self.column, self.power = logarithms
        self.prior_precision, self.prior_linear = prior
        self.value, self.by_value = np.zeros((2, len(logarithms[0])))
        # The kernel is this one's own: its arrays are the ones that ``place_at`` writes.
        variance, shape, points = np.array(kernel.variance), np.array(kernel.shape), np.array(kernel.inducing_points)
        scale = np.array(kernel.inverse_length_scale)
        self.kernel = InducingKernel(variance, kernel.noise, kernel.term, kernel.family, shape, scale, points)
        self.variance, self.shape, self.inverse_length_scale, self.points = variance, shape, scale, points
        self.by_points = np.zeros((m, d))
        self.inverse = np.zeros((m, m))
        self.small = Workspace(m, m, d)
        self.jitter, self.rate, self.delay = jitter, rate, delay
        self.steps = self.failures = 0
        if self.place_at():
            raise ValueError("The covariance matrix of the inducing points is not positive definite.")

    @property
    def Linv(self):
        """(m, m) inverse of the Cholesky factor of K_mm, a lower triangle."""
        return np.tril(self.inverse)

    def state(self):
        """What steps go on from: (4, n), the vector, its average and Adam's moments; and two numbers."""
        return np.array([self.at, self.mean_at, self.first, self.second]), np.array([self.steps, self.failures])

    def restore(self, vectors, numbers):
        """Go on from a ``state``; ValueError if the kernel's matrix cannot be factorised there."""
        self.vector[:], self.average[:] = vectors[:2]
        self.first, self.second = np.array(vectors[2]), np.array(vectors[3])
        self.steps, self.failures = int(numbers[0]), int(numbers[1])
        if self.place_at():
            raise ValueError("The covariance matrix of the inducing points is not positive definite.")

    @property
    def gradient(self):
        """The latest gradient by the vector."""
        return np.array(self.slope)

    cdef int place_at(self) noexcept nogil:
        # The kernel at the vector, and L^{-1}; LAPACK's info if there is none.
        cdef Py_ssize_t e, t, f, k, j, m = self.kernel.n_inducing, d = self.kernel.n_features
        cdef Py_ssize_t n_terms = self.kernel.n_terms, n_factors = self.kernel.n_factors
        cdef double total = 0.0
        cdef int info
        memcpy(&self.value[0], &self.offset[0], self.offset.shape[0] * sizeof(double))
        for e in range(self.row.shape[0]):
            self.value[self.row[e]] += self.power[e] * self.at[self.column[e]]
        for t in range(n_terms):
            self.variance[t] = exp(self.value[t])
        for f in range(n_factors):
            self.shape[f] = exp(self.value[n_terms + f])
            for j in range(d):
                self.inverse_length_scale[f, j] = exp(-self.value[n_terms + n_factors + f * d + j])
        for e in range(self.unit.shape[0]):
            self.points[e // d, e % d] = self.at[self.n_theta + e] * self.unit[e]
        place(self.kernel)
        cross_block[double](self.kernel, self.kernel._points, NULL, 0, m, &self.small.kernel, &self.inverse[0, 0])
        for k in range(m):
            total += self.inverse[k, k]
        if not isfinite(total):
            return 1
        for k in range(m):
            self.inverse[k, k] += self.jitter * total / m
        info = _blas.potrf_lower(m, &self.inverse[0, 0])
        return info if info else _blas.trtri_lower(m, &self.inverse[0, 0])

    cdef void add(self, GradientSums to, const real[:, :] X, const Py_ssize_t* index, Py_ssize_t rows,
                  Py_ssize_t classes, double scale, const double* a, const double* b, const double* factors,
                  const double* w, const double* mean, const double* precision, const double* linear,
                  Workspace work) noexcept nogil:
        # Adds to the sums what ``rows`` rows of the tile a (rows, m) contribute. Of each of ``classes`` latent
        # functions: the tile b = a R^{-T} (tiles lie work.rows rows apart), R^{-1} (m, m), w (m,), and mean, precision
        # and linear (rows,), q and its sites at these rows. All is multiplied by ``scale``.
        # dF/da_i = (r - lambda m) w + lambda (I - P^{-1}) a_i, dF/dk_ii = -lambda / 2.
        cdef Py_ssize_t c, e, i, m = self.kernel.n_inducing, size = rows * m
        cdef double* G = &work.b[0]
        cdef double* U = &work.term[0]
        for c in range(classes):
            memcpy(U, b + c * work.rows * m, size * sizeof(double))
            _blas.trmm_lower(rows, m, factors + c * m * m, U)
            for e in range(size):
                U[e] = a[e] - U[e]
            for i in range(rows):
                work.ell[i] = scale * precision[c * rows + i]
                work.row_sum[i] = scale * linear[c * rows + i] - work.ell[i] * mean[c * rows + i]
                work.residual[i] = (0.0 if c == 0 else work.residual[i]) - 0.5 * work.ell[i]
            xg_gradient_tile(rows, m, &work.ell[0], &work.row_sum[0], w + c * m, U, c > 0, G)
        _blas.gemm_inner(rows, m, m, G, a, &to.gram[0, 0])
        _blas.trmm_lower(rows, m, &self.inverse[0, 0], G)
        gradient_block(self.kernel, X, index, 0, rows, G, &work.kernel, U, &to.terms[0], &to.shapes[0],
                       &to.sums[0], &to.products[0], &to.squares[0])
        diagonal_gradient_block(self.kernel, X, index, 0, rows, &work.residual[0], False, &work.kernel,
                                &to.terms[0], &to.shapes[0])

    cdef void collect(self, double sides, GradientSums found) noexcept nogil:
        by_parameters(self.kernel, sides, &found.terms[0], &found.shapes[0], &found.sums[0], &found.products[0],
                      &found.squares[0], &self.by_value[0], &self.by_points[0, 0])

    cdef void pull(self, GradientSums found) noexcept nogil:
        # slope = the gradient by the vector, from the sums, which are used up.
        # With B = sum_i dF/da_i a_i^T, dF/dK_mm = -L^{-T} [tril(B) + tril(B)^T - diag(B)] L^{-1} / 2.
        cdef Py_ssize_t e, i, j, m = self.kernel.n_inducing
        cdef double trace = 0.0
        cdef double* gram = &self.small.b[0]
        memcpy(gram, &found.gram[0, 0], m * m * sizeof(double))
        memset(&self.by_value[0], 0, self.by_value.shape[0] * sizeof(double))
        memset(&self.by_points[0, 0], 0, self.by_points.shape[0] * self.by_points.shape[1] * sizeof(double))
        self.collect(1.0, found)
        found.clear()
        for i in range(m):
            for j in range(i + 1):
                gram[i * m + j] *= -0.5
                gram[j * m + i] = gram[i * m + j]
        _blas.trmm_upper_left(m, &self.inverse[0, 0], gram)
        _blas.trmm_lower_right(m, &self.inverse[0, 0], gram)
        for i in range(m):
            trace += gram[i * m + i]
        for i in range(m):
            gram[i * m + i] += self.jitter * trace / m
        gradient_block[double](self.kernel, self.kernel._points, NULL, 0, m, gram, &self.small.kernel,
                               &self.small.a[0], &found.terms[0], &found.shapes[0], &found.sums[0],
                               &found.products[0], &found.squares[0])
        self.collect(2.0, found)
        memset(&self.slope[0], 0, self.n_theta * sizeof(double))
        for e in range(self.row.shape[0]):
            self.slope[self.column[e]] += self.power[e] * self.by_value[self.row[e]]
        for i in range(self.prior_linear.shape[0]):
            self.slope[i] += self.prior_linear[i]
            for j in range(self.n_theta):
                self.slope[i] -= self.prior_precision[i, j] * self.at[j]
        for e in range(self.unit.shape[0]):
            self.slope[self.n_theta + e] = (&self.by_points[0, 0])[e] * self.unit[e]

    cdef void move(self, GradientSums found) noexcept nogil:
        # A step along the gradient; where that kernel's matrix cannot be factorised the vector stays.
        cdef Py_ssize_t i, n = self.at.shape[0]
        cdef double correction_1, correction_2, rate, weight
        self.pull(found)
        rate = self.rate * pow(1.0 + self.steps / self.delay, -0.5)
        self.steps += 1
        correction_1, correction_2 = 1.0 - pow(BETA_1, self.steps), 1.0 - pow(BETA_2, self.steps)
        memcpy(&self.before[0], &self.at[0], n * sizeof(double))
        for i in range(n):
            self.first[i] += (1.0 - BETA_1) * (self.slope[i] - self.first[i])
            self.second[i] += (1.0 - BETA_2) * (self.slope[i] * self.slope[i] - self.second[i])
            self.at[i] += rate * self.first[i] / correction_1 / (sqrt(self.second[i] / correction_2) + EPSILON)
            self.at[i] = fmin(fmax(self.at[i], self.low[i]), self.high[i])
        if self.place_at():
            memcpy(&self.at[0], &self.before[0], n * sizeof(double))
            self.place_at()
            self.failures += 1
        weight = weight_of_latest(self.steps)
        for i in range(n):
            self.mean_at[i] += weight * (self.at[i] - self.mean_at[i])
