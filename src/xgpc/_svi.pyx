"""Stochastic natural-gradient steps on mini-batches (Wenzel et al. 2018, equation 12), without the GIL.

The natural parameters are one vector eta, with (P, h) of m^2 + m numbers for each latent function, P as a lower
triangle with zeros above, so that a step, an average or a norm is one loop. Negative site precisions count as zero; the
gradient in the mean stays. P therefore stays >= I for every rate in [0, 1].
"""
import numpy as np

from libc.math cimport pow, sqrt
from libc.string cimport memcpy, memset

from . cimport _blas
from ._engine cimport Workspace, project
from ._kernels cimport InducingKernel, diagonal_block, real
from ._moving cimport GradientSums, MovingPrior, weight_of_latest
from ._sites cimport Site, evaluate, xg_moments, xg_site_arrays
from ._tiles cimport xg_norms_and_means, xg_scale_and_sum, xg_squared_norms

cdef extern from "vmath.h" nogil:
    double xg_natural_gradient(Py_ssize_t n, double scale, const double* target, const double* current, double* g)
    double xg_move_average(Py_ssize_t n, double weight, const double* g, double* mean)
    double xg_distance(Py_ssize_t n, const double* x, const double* y)
    void xg_clip_precision(Py_ssize_t n, const double* mean, double* precision, double* linear)
    void xg_step(Py_ssize_t n, double rate, const double* g, double* current)

cdef enum Schedule:
    ADAPTIVE = 0
    CONSTANT = 1
    DECAY = 2

SCHEDULES = {"adaptive": ADAPTIVE, "constant": CONSTANT, "decay": DECAY}


# A slow fixed point, Polya-Gamma's where classes separate, hides under the mini-batches' noise: the adaptive rate,
# greedy, then falls so fast that the iteration stops short (cod-rna: 5 % off after two epochs). It is kept above
# t^-0.6, a Robbins-Monro sequence, whose noise the average below removes (then .03 %).
RATE_FLOOR = 0.6
cdef double FLOOR = RATE_FLOOR


cdef void pack(const real[:, :] X, const Py_ssize_t* index, Py_ssize_t rows, double* a) noexcept nogil:
    # tile a (rows, m) = rows of X
    cdef Py_ssize_t i, j
    for j in range(X.shape[1]):
        for i in range(rows):
            a[j * rows + i] = X[index[i], j]


cdef class BatchPart:
    """Scratch for rows of a mini-batch that are processed together, and their sums for a step.

    Parameters
    ----------
    n_inducing, n_latents : int
    tile : int, rows that are processed at a time
    n_features : int
    moving : sequence of MovingPrior, whose gradients get terms of the rows
    n_kernels : int
    """
    cdef Workspace work
    cdef double[::1] target, spread, labels, weights
    cdef list sums
    cdef double log_likelihood

    def __init__(self, Py_ssize_t n_inducing, Py_ssize_t n_latents, Py_ssize_t tile, Py_ssize_t n_features, moving=(),
                 Py_ssize_t n_kernels=1):
        self.work = Workspace(tile, n_inducing, n_features, n_latents, n_kernels)
        self.target = np.zeros(n_latents * n_inducing * (n_inducing + 1))
        self.spread = np.empty(n_latents * tile * n_inducing)
        self.labels, self.weights = np.empty((2, tile))
        self.sums = [GradientSums((<MovingPrior?>prior).kernel) for prior in moving]
        self.log_likelihood = 0.0

    cdef void add(self, BatchPart other) noexcept:
        # Add the sums of the other part.
        cdef Py_ssize_t i, g
        self.log_likelihood += other.log_likelihood
        for i in range(self.target.shape[0]):
            self.target[i] += other.target[i]
        for g in range(len(self.sums)):
            (<GradientSums>self.sums[g]).add(<GradientSums>other.sums[g])


cdef class NaturalGradient:
    """State of the mini-batch loop.

    Parameters
    ----------
    n_inducing : int, m
    n_latents : int, C
    eta : (C (m * m + m),) float64, natural parameters at the start; updated in place
    schedule : value of ``SCHEDULES``
    a, b : float
        adaptive: ``a`` batches are averaged, at the starting point, into the running averages of the gradient and of
        its squared norm and into the first step (Ranganath et al. 2013); constant: rate ``a``;
        decay: rate (t + a)^-b at iteration t = 0, 1, ...

    Attributes
    ----------
    average : (C (m * m + m),) float64, average of the iterates: the estimate
    mean_direction : as large, running average of the gradient
    """
    cdef readonly Py_ssize_t n_inducing, n_latents, iteration, steps
    cdef readonly object average, mean_direction
    cdef readonly double squared_norm, memory
    cdef double[::1] eta, mean_eta, gradient, mean_gradient, factor, w
    cdef double a, b
    cdef int schedule

    def __init__(self, Py_ssize_t n_inducing, Py_ssize_t n_latents, eta, int schedule, double a, double b):
        cdef Py_ssize_t size = n_latents * n_inducing * (n_inducing + 1)
        self.n_inducing, self.n_latents, self.schedule, self.a, self.b = n_inducing, n_latents, schedule, a, b
        self.eta = eta
        self.average = self.mean_eta = np.zeros(size)
        self.mean_direction = self.mean_gradient = np.zeros(size)
        self.gradient = np.empty(size)
        self.factor, self.w = np.empty(n_latents * n_inducing * n_inducing), np.empty(n_latents * n_inducing)
        self.squared_norm = self.memory = 0.0
        self.iteration = self.steps = 0

    def state(self):
        """The state of the steps besides ``eta``: two vectors of its size, and four numbers."""
        return np.array(self.average), np.array(self.mean_direction), np.array(
            [self.squared_norm, self.memory, self.iteration, self.steps])

    def restore(self, average, mean_direction, numbers):
        """Continue from a ``state``."""
        self.average[:], self.mean_direction[:] = average, mean_direction
        self.squared_norm, self.memory = numbers[:2]
        self.iteration, self.steps = int(numbers[2]), int(numbers[3])

    cdef double next_rate(self, Py_ssize_t size, double squared) noexcept nogil:
        # squared: |gradient|^2. Ranganath et al. 2013: |mean gradient|^2 / mean |gradient|^2, over a memory that
        # shrinks as the rate grows. The batches averaged first make one large one: no step, then one along their mean.
        cdef double weight, ratio
        cdef bint starting = self.iteration < self.a
        if self.schedule == CONSTANT:
            return self.a
        if self.schedule == DECAY:
            return pow(self.iteration + self.a, -self.b)
        weight = 1.0 / (self.iteration + 1) if starting else 1.0 / self.memory
        ratio = xg_move_average(size, weight, &self.gradient[0], &self.mean_gradient[0])
        self.squared_norm += weight * (squared - self.squared_norm)
        if starting:
            if self.iteration + 1 < self.a:
                return 0.0
            memcpy(&self.gradient[0], &self.mean_gradient[0], size * sizeof(double))
            self.memory = self.a
        ratio = ratio / self.squared_norm if self.squared_norm > 0.0 else 1.0
        ratio = min(1.0, max(ratio, pow(self.steps + 2.0, -FLOOR)))
        self.memory = self.memory * (1.0 - ratio) + 1.0
        return ratio

    cdef int factorise(self) noexcept nogil:
        # R^{-1} and w of every latent function; LAPACK's info of the factorisation that failed.
        cdef Py_ssize_t c, m = self.n_inducing, part = m * (m + 1)
        cdef double* R
        cdef double* w
        cdef int info
        for c in range(self.n_latents):
            R, w = &self.factor[c * m * m], &self.w[c * m]
            memcpy(R, &self.eta[c * part], m * m * sizeof(double))
            info = _blas.potrf_lower(m, R)
            if info:
                return info
            memcpy(w, &self.eta[c * part + m * m], m * sizeof(double))
            _blas.trsv_lower(m, False, R, w)
            _blas.trsv_lower(m, True, R, w)
            info = _blas.trtri_lower(m, R)
            if info:
                return info
        return 0

    cdef void marginals(self, Py_ssize_t c, Py_ssize_t rows, const double* a, Workspace work,
                        double* spread) noexcept nogil:
        # Of latent function c, for the tile a (rows, m) of its whitened rows; the tile a R^{-T} is kept in ``spread``.
        cdef Py_ssize_t i, m = self.n_inducing
        cdef double* b = spread + c * work.rows * m
        cdef double* variance = &work.variance[c * rows]
        xg_norms_and_means(rows, m, a, &self.w[c * m], b, &work.x2[0], &work.mean[c * rows])
        _blas.trmm_lower_t(rows, m, &self.factor[c * m * m], b)
        xg_squared_norms(rows, m, b, variance)
        for i in range(rows):
            variance[i] += max(work.diagonal[i] - work.x2[i], 0.0)

    cdef void advance(self, double[::1] target, double scale, double* rate, double* change) noexcept nogil:
        # The step towards the target of all rows of the mini-batch.
        cdef Py_ssize_t c, j, m = self.n_inducing, part = m * (m + 1), size = self.n_latents * part
        cdef double rho, total, distance, weight
        for c in range(self.n_latents):
            for j in range(m):
                target[c * part + j * m + j] += 1.0 / scale
        rho = self.next_rate(size, xg_natural_gradient(size, scale, &target[0], &self.eta[0], &self.gradient[0]))
        rate[0], change[0] = rho, 0.0
        if rho > 0.0:
            xg_step(size, rho, &self.gradient[0], &self.eta[0])
            weight = weight_of_latest(self.steps + 1)
            distance = xg_distance(size, &self.eta[0], &self.mean_eta[0])
            total = xg_move_average(size, weight, &self.eta[0], &self.mean_eta[0])
            change[0] = weight * sqrt(distance / total)
            self.steps += 1
        self.iteration += 1

    cdef void collect(self, kernels, const real[:, :] X, const Py_ssize_t* order, Py_ssize_t n_rows,
                      const double[:, :, ::1] Linv, Site site, const double[::1] y, const double[::1] weight,
                      double scale, BatchPart part, moving, bint is_moved):
        # Add the terms of the rows at ``order`` to the sums of a step.
        cdef Workspace work = part.work
        cdef xg_moments at
        cdef xg_site_arrays out = xg_site_arrays(&work.ell[0], &work.precision[0], &work.linear[0])
        cdef Py_ssize_t piece, rows, i, c, g, m = self.n_inducing, size = m * (m + 1), tile = work.rows
        cdef Py_ssize_t n_groups = len(kernels)
        cdef bint moves = len(moving) > 0, is_first = True
        cdef double* a = NULL
        cdef const double* inverse = NULL
        cdef const Py_ssize_t* index = NULL
        cdef InducingKernel kernel = kernels[0]
        cdef MovingPrior prior = moving[0] if moves else None
        cdef GradientSums sums = part.sums[0] if moves else None
        for found in part.sums:
            (<GradientSums>found).clear()
        with nogil:
            part.log_likelihood = 0.0
            for piece in range((n_rows + tile - 1) // tile):
                is_first = piece == 0
                index, rows = order + piece * tile, min(tile, n_rows - piece * tile)
                for c in range(self.n_latents):
                    if c < n_groups:
                        if n_groups > 1:
                            with gil:
                                kernel = kernels[c]
                                prior = moving[c] if moves else None
                        inverse = &prior.inverse[0, 0] if moves else &Linv[c, 0, 0]
                        a = &work.a[c * work.rows * m]
                        if kernel is None:
                            pack(X, index, rows, a)
                            memset(&work.diagonal[0], 0, rows * sizeof(double))
                        else:
                            project(kernel, inverse, X, index, 0, rows, &work.kernel, a)
                            diagonal_block(kernel, X, index, 0, rows, &work.kernel, &work.diagonal[0])
                    self.marginals(c, rows, a, work, &part.spread[0])
                for i in range(rows):
                    part.labels[i] = y[index[i]]
                    if weight.shape[0]:
                        part.weights[i] = weight[index[i]]
                at = xg_moments(self.n_latents, rows, rows, rows, &work.mean[0], &work.variance[0], &part.labels[0])
                evaluate(site, &at, &part.weights[0] if weight.shape[0] else NULL, &work.site[0], &out)
                for i in range(rows):
                    part.log_likelihood += work.ell[i]
                if is_moved:
                    for g in range(n_groups):
                        if n_groups > 1:
                            with gil:
                                prior, sums = moving[g], part.sums[g]
                        prior.add(sums, X, index, rows, 1 if n_groups > 1 else self.n_latents, scale,
                                  &work.a[g * work.rows * m], &part.spread[g * work.rows * m],
                                  &self.factor[g * m * m], &self.w[g * m], &work.mean[g * rows],
                                  &work.precision[g * rows], &work.linear[g * rows], work)
                xg_clip_precision(self.n_latents * rows, &work.mean[0], &work.precision[0], &work.linear[0])
                for c in range(self.n_latents):
                    g = c if n_groups > 1 else 0
                    xg_scale_and_sum(rows, m, &work.a[g * work.rows * m], &work.precision[c * rows],
                                     &work.linear[c * rows], not is_first, &work.x2[0], &work.b[0],
                                     &part.target[c * size + m * m])
                    _blas.syrk_lower(rows, m, 1.0, &work.b[0], 0.0 if is_first else 1.0, &part.target[c * size])

    cdef finish(self, BatchPart part, double scale, double* record, Py_ssize_t stride, moving):
        # The step of the posterior and of the moving priors, from the sums over all rows of the mini-batch.
        cdef MovingPrior prior
        cdef GradientSums sums
        cdef Py_ssize_t g
        record[2 * stride] = scale * part.log_likelihood
        with nogil:
            self.advance(part.target, scale, record, record + stride)
        for g in range(len(moving)):
            prior, sums = moving[g], part.sums[g]
            with nogil:
                prior.move(sums)

    def run(self, kernels, const real[:, :] X, const Py_ssize_t[::1] order, Py_ssize_t batch,
            const double[:, :, ::1] Linv, Site site, const double[::1] y, const double[::1] weight, double n_total,
            BatchPart part, double[:, ::1] records, moving=(), Py_ssize_t every=1):
        """Take one step for each ``batch`` consecutive entries of ``order``.

        ``kernels`` and ``Linv`` hold one kernel for all latent functions, or one per function; ``part`` has as many
        tiles. A kernel that is None means that the rows are whitened already and explain all of the prior variance. The
        ``moving`` kernels take a step of Adam after every ``every`` steps, along the gradient at the posterior before
        the last of these steps, which does not depend on its rows.

        Writes into ``records`` (3, steps) the rate of each step, the relative change of the averaged natural parameters
        and the estimated expected log likelihood. Returns 0, or LAPACK's info if a Cholesky factorisation failed.
        """
        cdef Py_ssize_t step, stride = records.shape[1]
        cdef double scale = n_total / batch
        cdef bint is_moved
        cdef int info
        for step in range(records.shape[1]):
            with nogil:
                info = self.factorise()
            if info:
                return info
            is_moved = len(moving) > 0 and (self.iteration + 1) % every == 0
            self.collect(kernels, X, &order[step * batch], batch, Linv, site, y, weight, scale, part, moving, is_moved)
            self.finish(part, scale, &records[0, step], stride, moving if is_moved else ())
        return 0

    def begin_step(self):
        """Start a step in parts: ``collect_part`` follows for each part, in any thread, and then ``end_step``.

        Returns 0, or LAPACK's info if a Cholesky factorisation failed.
        """
        cdef int info
        with nogil:
            info = self.factorise()
        return info

    def collect_part(self, kernels, const real[:, :] X, const Py_ssize_t[::1] order, const double[:, :, ::1] Linv,
                     Site site, const double[::1] y, const double[::1] weight, double scale, BatchPart part, moving=()):
        """Add the terms of the rows at ``order``, each counted ``scale`` times, to the sums in ``part``."""
        self.collect(kernels, X, &order[0], order.shape[0], Linv, site, y, weight, scale, part, moving, len(moving) > 0)

    def end_step(self, parts, double scale, double[:, ::1] record, moving=()):
        """Take the step with the sums over the parts, which the first part then holds; ``record`` (3, 1) as ``run``."""
        cdef BatchPart total = parts[0]
        for part in parts[1:]:
            total.add(part)
        self.finish(total, scale, &record[0, 0], 1, moving)
