# Part of _natural_gradient.pyx: a kernel and its inducing points that move while mini-batches fit the posterior, by
# Adam on stochastic gradients.
#
# When the kernel moves, the whitened posterior q(z) = N(w, P^{-1}) stays, and therefore KL(q || p), too. So only the
# expected log likelihood has a gradient, with respect to a_i = L^{-1} k_m(x_i) and k_ii; the chain rule takes it
# through the Cholesky factorisation of K_mm = L L^T (Murray 2016, equation 9).

# Kingma & Ba 2015.
cdef double BETA_1 = 0.9, BETA_2 = 0.999, EPSILON = 1e-8
# Weight of iterate t in the average that is returned: proportional to t^3 (Shamir & Zhang 2013, section 3.2; averaging,
# Polyak & Juditsky 1992). 3 forgets the start without giving away much of the averaging.
cdef double AVERAGE_POWER = 3.0


cdef double weight_of_latest(Py_ssize_t steps) noexcept nogil:
    # Weight of the latest of this many steps in the average.
    return (1.0 + AVERAGE_POWER) / (steps + AVERAGE_POWER)


cdef class GradientSums:
    """Sums over rows for the gradient with respect to one kernel and its inducing points."""
    cdef tuple arrays
    cdef double[::1] gram  # (m, m)
    cdef KernelGradient cross

    def __init__(self, InducingKernel kernel):
        self.cross = KernelGradient.empty(kernel)
        self.arrays = np.zeros(kernel.n_inducing**2), self.cross.values
        self.gram = self.arrays[0]


FreeParameters = namedtuple("FreeParameters", "vector limits unit logarithms", module=__name__)
FreeParameters.__doc__ = """What moves of a kernel and its inducing points.

``vector`` (n,) has logarithms of n_theta free kernel parameters, then inducing points in units of ``unit`` (n -
n_theta,), or none if they stay; ``limits`` (2, n) its least and largest values. ``logarithms`` are arrays offset
(n_terms + n_factors (1 + d),), row, column and power (n_entries,): logarithms of variances, shapes and length scales,
concatenated, are ``offset``, plus ``power`` times parameter ``column`` at position ``row``.
"""


cdef class MovingPrior:
    """A kernel and inducing points, moved by Adam along stochastic gradients, and the average over the steps.

    The jitter is relative to the mean diagonal of k(Z, Z); ``prior`` has the precision and the linear term of a normal
    prior of the logarithms, which may change between steps, or empty arrays; step t = 0, 1, ... has the rate ``rate`` /
    sqrt(1 + t / delay). ``vector``, with inducing points in ``units``, and ``kernel`` are the latest, ``average`` is
    over the steps; ``failures`` counts steps that were refused.
    """
    cdef readonly InducingKernel kernel
    cdef readonly object vector, average, units
    cdef readonly Py_ssize_t steps, failures
    cdef double[::1] at, before, mean_at, first, second, slope, unit, low, high, value, by_value, offset, power
    cdef Py_ssize_t[::1] row, column
    cdef public double[:, ::1] prior_precision
    cdef public double[::1] prior_linear
    cdef double[::1] variance, shape, room
    cdef double[:, ::1] inverse_length_scale, points, by_points, inverse
    cdef Rows inducing
    cdef Workspace small
    cdef KernelGradient of_gram
    cdef double jitter, rate, delay
    cdef Py_ssize_t n_theta

    def __init__(self, InducingKernel kernel, double jitter, free, prior, double rate, double delay):
        cdef Py_ssize_t m = kernel.n_inducing, d = kernel.n_features, n = len(free.vector)
        self.vector, self.average = np.array(free.vector), np.array(free.vector)
        self.at, self.mean_at, self.before = self.vector, self.average, np.array(free.vector)
        self.low, self.high = np.array(free.limits, dtype=np.float64, order="C")
        self.first, self.second, self.slope = np.zeros((3, n))
        self.unit = self.units = free.unit
        self.n_theta = n - len(free.unit)
        self.offset, self.row, self.column, self.power = free.logarithms
        self.prior_precision, self.prior_linear = prior
        self.value = np.zeros(len(self.offset))
        # This object owns the kernel, because ``place_at`` writes its arrays.
        variance, shape, points = np.array(kernel.variance), np.array(kernel.shape), np.array(kernel.inducing_points)
        scale = np.array(kernel.inverse_length_scale)
        self.kernel = InducingKernel(variance, kernel.noise, kernel.term, kernel.family, shape, scale, points,
                                     kernel.function)
        self.variance, self.shape, self.inverse_length_scale, self.points = variance, shape, scale, points
        self.inducing, self.of_gram = rows_of(points), KernelGradient.empty(kernel)
        self.inverse = np.zeros((m, m))
        self.small, self.room = Workspace(m, m, d), np.empty(max(1, cholesky_scratch(m)))
        self.jitter, self.rate, self.delay = jitter, rate, delay
        self.steps = self.failures = 0
        if self.place_at():
            raise ValueError("The covariance matrix of the inducing points is not positive definite.")

    @property
    def Linv(self):
        """(m, m) inverse of the Cholesky factor of K_mm, a lower triangle."""
        return np.tril(self.inverse)

    @property
    def gradient(self):
        """The latest gradient with respect to the vector."""
        return np.array(self.slope)

    cdef int place_at(self) except -1 nogil:
        # The kernel at the vector, and L^{-1}; returns the row where the factorisation fails, or 0.
        cdef Py_ssize_t e, t, f, k, j, m = self.kernel.n_inducing, d = self.kernel.n_features
        cdef Py_ssize_t n_terms = self.kernel.n_terms, n_factors = self.kernel.n_factors
        cdef double total = 0.0
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
        cross_block(self.kernel, &self.inducing, &self.small.kernel, &self.inverse[0, 0])
        for k in range(m):
            total += self.inverse[k, k]
        if not isfinite(total):
            return 1
        for k in range(m):
            self.inverse[k, k] += self.jitter * total / m
        return cholesky(m, &self.inverse[0, 0], NULL, &self.inverse[0, 0], &self.room[0])

    cdef int add(self, GradientSums to, const Rows* rows, Py_ssize_t first, Py_ssize_t last, const double* spread,
                 const double* Rinv, const double* w, double scale, Workspace work) except -1 nogil:
        # Adds to the sums what the rows contribute, times ``scale``, by latent functions first, ..., last - 1 with this
        # prior. The arrays, and whitened rows, means and sites in ``work``, are of all functions; ``spread`` are tiles
        # a R^{-T}.
        # dF/da_i = (r - lambda m) w + lambda (I - P^{-1}) a_i, dF/dk_ii = -lambda / 2.
        cdef Py_ssize_t c, e, i, n = rows.n, m = self.kernel.n_inducing, tile = work.rows * m
        cdef double* G = &work.b[0]
        cdef double* U = work.kernel.term
        cdef const double* a = &work.a[first * tile]
        for c in range(first, last):
            memcpy(U, spread + c * tile, n * m * sizeof(double))
            _blas.trmm_lower(n, m, Rinv + c * m * m, U)
            for e in range(n * m):
                U[e] = a[e] - U[e]
            for i in range(n):
                work.ell[i] = scale * work.precision[c * n + i]
                work.kernel.row_sum[i] = scale * work.linear[c * n + i] - work.ell[i] * work.mean[c * n + i]
                work.residual[i] = (0.0 if c == first else work.residual[i]) - 0.5 * work.ell[i]
            xg_gradient_tile(n, m, &work.ell[0], work.kernel.row_sum, w + c * m, U, c > first, G)
        _blas.gemm_inner(n, m, m, G, a, &to.gram[0])
        _blas.trmm_lower(n, m, &self.inverse[0, 0], G)
        gradient_block(self.kernel, rows, G, &work.kernel, U, &to.cross.parts)
        diagonal_gradient_block(self.kernel, rows, &work.residual[0], False, &to.cross.parts)

    cdef int pull(self, GradientSums found) except -1 nogil:
        # slope = the gradient with respect to the vector, from the sums.
        # With B = sum_i dF/da_i a_i^T, dF/dK_mm = -L^{-T} [tril(B) + tril(B)^T - diag(B)] L^{-1} / 2.
        cdef Py_ssize_t e, i, j, m = self.kernel.n_inducing
        cdef double trace = 0.0
        cdef double* gram = &self.small.b[0]
        memcpy(gram, &found.gram[0], m * m * sizeof(double))
        for i in range(m):
            for j in range(i + 1):
                gram[i * m + j] *= -0.5
                gram[j * m + i] = gram[i * m + j]
        _blas.trmm_lower(m, m, &self.inverse[0, 0], gram)
        _blas.trmm_lower_right(m, &self.inverse[0, 0], gram)
        for i in range(m):
            trace += gram[i * m + i]
        for i in range(m):
            gram[i * m + i] += self.jitter * trace / m
        self.of_gram.flat[:] = 0.0
        gradient_block(self.kernel, &self.inducing, gram, &self.small.kernel, &self.small.a[0], &self.of_gram.parts)
        with gil:
            self.by_value, self.by_points = vjp(self.kernel, found.cross, self.of_gram)
        self.slope[:self.n_theta] = 0.0
        for e in range(self.row.shape[0]):
            self.slope[self.column[e]] += self.power[e] * self.by_value[self.row[e]]
        for i in range(self.prior_linear.shape[0]):
            self.slope[i] += self.prior_linear[i]
            for j in range(self.n_theta):
                self.slope[i] -= self.prior_precision[i, j] * self.at[j]
        for e in range(self.unit.shape[0]):
            self.slope[self.n_theta + e] = (&self.by_points[0, 0])[e] * self.unit[e]

    cdef int move(self, GradientSums found) except -1 nogil:
        # A step along the gradient; the vector stays if the new kernel matrix cannot be factorised.
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
