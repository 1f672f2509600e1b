"""Stochastic natural-gradient steps on mini-batches (Wenzel et al. 2018, equation 12), without the GIL.

The natural parameters are one vector eta, with (P, h) of m^2 + m numbers for each latent function, P as a lower
triangle with zeros above, so that a step, an average or a norm is one loop. Negative site precisions count as zero; the
gradient in the mean stays. P therefore stays >= I for every rate in [0, 1].
"""
from collections import namedtuple

import numpy as np

from ._kernels import vjp

from libc.math cimport exp, fmax, fmin, isfinite, pow, sqrt
from libc.string cimport memcpy

from . cimport _blas
from ._core cimport *
from ._engine cimport Workspace, project
from ._kernels cimport (
    InducingKernel, KernelGradient, cross_block, diagonal_block, diagonal_gradient_block, gradient_block, place,
    read_feature, rows_of,
)
from ._sites cimport Site, evaluate
from ._tiles cimport add_outer, cholesky, cholesky_scratch, row_marginals

include "_adam.pxi"

cdef enum:
    ADAPTIVE, CONSTANT, DECAY

SCHEDULES = {"adaptive": ADAPTIVE, "constant": CONSTANT, "decay": DECAY}


# Where steps converge slowly, as Polya-Gamma's do if classes separate, the noise of mini-batches hides their progress:
# the adaptive rate then falls so fast that the iteration stops short (cod-rna: 5 % off after two epochs). The rate is
# therefore kept above t^-0.6, a Robbins-Monro sequence, and the average below removes the noise of these steps (then
# .03 % off).
cdef double RATE_FLOOR = 0.6


cdef class BatchRows:
    """Rows that the steps of a call use, and the kernels that whiten them.

    There is a kernel for all latent functions, or one per function, each with ``Linv`` (m, m), a lower triangle; moving
    priors replace them. With None for the one kernel, the rows are whitened already and explain all of the prior
    variance. X (n, d) is float32 or float64; y (n,) labels; weight (n,) or empty.
    """
    cdef list kernels
    cdef const double[:, :, ::1] Linv
    cdef object X
    cdef Rows rows
    cdef const double[::1] y, weight

    def __init__(self, list kernels, Linv, X, y, weight):
        self.kernels, self.Linv, self.X, self.y, self.weight = kernels, Linv, X, y, weight
        self.rows = rows_of(X)


cdef class BatchPart:
    """Scratch for rows of a mini-batch that are processed together, ``tile`` at a time, and their sums for a step,
    among them the gradients of moving priors."""
    cdef Workspace work
    cdef double[::1] target, spread, labels, weights
    cdef list sums, arrays  # of moving priors; all arrays of sums
    cdef double log_likelihood

    def __init__(self, Py_ssize_t n_inducing, Py_ssize_t n_latents, Py_ssize_t tile, Py_ssize_t n_features, moving=(),
                 Py_ssize_t n_kernels=1):
        self.work = Workspace(tile, n_inducing, n_features, n_latents, n_kernels)
        self.target = target = np.zeros(n_latents * n_inducing * (n_inducing + 1))
        self.spread = np.empty(n_latents * tile * n_inducing)
        self.labels, self.weights = np.empty((2, tile))
        self.sums = [GradientSums((<MovingPrior?>prior).kernel) for prior in moving]
        self.arrays = [target, *(array for sums in self.sums for array in (<GradientSums>sums).arrays)]
        self.log_likelihood = 0.0


cdef class NaturalGradient:
    """State of the mini-batch loop.

    ``eta`` (C (m * m + m),), natural parameters at the start, is updated in place; ``average`` of the iterates is the
    estimate, ``mean_direction`` a running average of the gradient. A row of a mini-batch stands for ``scale`` rows.
    Moving priors, one for each kernel or none, take a step of Adam after every step, along the gradient at the
    posterior before.

    ``schedule`` is a value of ``SCHEDULES`` and floats a and b. Adaptive: ``a`` batches are averaged, at the starting
    point, into the running averages of the gradient and of its squared norm and into the first step (Ranganath et al.
    2013); constant: rate ``a``; decay: rate (t + a)^-b at iteration t = 0, 1, ...
    """
    cdef readonly Py_ssize_t n_inducing, n_latents, iteration, steps
    cdef readonly object average, mean_direction
    cdef readonly double squared_norm, memory
    cdef double[::1] eta, mean_eta, gradient, mean_gradient, factor, w, room
    cdef double a, b, scale
    cdef int schedule
    cdef list moving

    def __init__(self, Py_ssize_t n_inducing, Py_ssize_t n_latents, eta, schedule, double scale, list moving):
        cdef Py_ssize_t size = n_latents * n_inducing * (n_inducing + 1)
        self.n_inducing, self.n_latents, self.scale, self.moving = n_inducing, n_latents, scale, moving
        self.schedule, self.a, self.b = schedule
        self.eta = eta
        self.average = self.mean_eta = np.zeros(size)
        self.mean_direction = self.mean_gradient = np.zeros(size)
        self.gradient = np.empty(size)
        self.factor, self.w = np.empty(n_latents * n_inducing * n_inducing), np.empty(n_latents * n_inducing)
        self.room = np.empty(max(1, cholesky_scratch(n_inducing)))
        self.squared_norm = self.memory = 0.0
        self.iteration = self.steps = 0

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
        ratio = min(1.0, max(ratio, pow(self.steps + 2.0, -RATE_FLOOR)))
        self.memory = self.memory * (1.0 - ratio) + 1.0
        return ratio

    def collect(self, BatchRows batch, const Py_ssize_t[::1] order, Site site, BatchPart part):
        """Set the sums in ``part``, which has as many tiles as there are kernels, to those over the rows at ``order``.
        """
        cdef Workspace work = part.work
        cdef Py_ssize_t piece, n, i, c, g, m = self.n_inducing, size = m * (m + 1), tile = work.rows
        cdef Py_ssize_t n_groups = len(batch.kernels)
        cdef bint moves = len(self.moving) > 0
        cdef double* a = NULL
        cdef const double* inverse = NULL
        cdef Rows rows = batch.rows
        cdef xg_moments moments
        cdef xg_site_arrays sites = xg_site_arrays(&work.ell[0], &work.precision[0], &work.linear[0])
        cdef MovingPrior prior = self.moving[0] if moves else None
        cdef InducingKernel kernel = prior.kernel if moves else batch.kernels[0]
        cdef GradientSums sums = part.sums[0] if moves else None
        for array in part.arrays:
            array[:] = 0.0
        with nogil:
            part.log_likelihood = 0.0
            for piece in range((order.shape[0] + tile - 1) // tile):
                rows.index = &order[piece * tile]
                rows.n = n = min(tile, order.shape[0] - piece * tile)
                for c in range(self.n_latents):
                    if c < n_groups:
                        if n_groups > 1:
                            with gil:
                                prior = self.moving[c] if moves else None
                                kernel = prior.kernel if moves else batch.kernels[c]
                        inverse = &prior.inverse[0, 0] if moves else &batch.Linv[c, 0, 0]
                        a = &work.a[c * tile * m]
                        if kernel is None:
                            for i in range(m):
                                read_feature(&rows, i, a + i * n)
                        else:
                            project(kernel, inverse, &rows, work, a)
                        diagonal_block(kernel, &rows, &work.diagonal[0])
                    row_marginals(n, m, <const double*>a, &self.w[c * m], <const double*>&self.factor[c * m * m],
                                  &work.diagonal[0], &part.spread[c * tile * m], &work.mean[c * n], work.kernel.x2,
                                  &work.variance[c * n], &work.triangle[0])
                for i in range(n):
                    part.labels[i] = batch.y[rows.index[i]]
                    if batch.weight.shape[0]:
                        part.weights[i] = batch.weight[rows.index[i]]
                moments = xg_moments(self.n_latents, n, n, n, &work.mean[0], &work.variance[0], &part.labels[0])
                evaluate(site, &moments, &part.weights[0] if batch.weight.shape[0] else NULL, &work.site[0], &sites)
                for i in range(n):
                    part.log_likelihood += work.ell[i]
                if moves:
                    for g in range(n_groups):
                        if n_groups > 1:
                            with gil:
                                prior, sums = self.moving[g], part.sums[g]
                        prior.add(sums, &rows, g, self.n_latents if n_groups == 1 else g + 1, &part.spread[0],
                                  &self.factor[0], &self.w[0], self.scale, work)
                xg_clip_precision(self.n_latents * n, &work.mean[0], &work.precision[0], &work.linear[0])
                for c in range(self.n_latents):
                    g = c if n_groups > 1 else 0
                    add_outer(n, m, <const double*>&work.a[g * tile * m], &work.precision[c * n], &work.linear[c * n],
                              &part.target[c * size], &part.target[c * size + m * m], &work.triangle[0])

    def begin_step(self):
        """Start a step: ``collect`` follows for each part of its mini-batch, in any thread, and then ``end_step``.

        Returns 0, or the row where a Cholesky factorisation failed.
        """
        cdef Py_ssize_t c, m = self.n_inducing, part = m * (m + 1)
        cdef double* Rinv
        cdef double* w
        cdef int info
        with nogil:
            for c in range(self.n_latents):
                Rinv, w = &self.factor[c * m * m], &self.w[c * m]
                info = cholesky(m, &self.eta[c * part], NULL, Rinv, &self.room[0])
                if info:
                    break
                memcpy(w, &self.eta[c * part + m * m], m * sizeof(double))
                _blas.trmv(m, Rinv, False, w)
                _blas.trmv(m, Rinv, True, w)
        return info

    def end_step(self, list parts, double[:, ::1] records, Py_ssize_t step):
        """Take the step of the posterior and of the moving priors with the sums over the parts, which the first part
        then holds.

        Writes into ``records`` (3, steps) the rate of the step, the relative change of the averaged natural parameters
        and the estimated expected log likelihood.
        """
        cdef BatchPart total = parts[0], part
        cdef MovingPrior prior
        cdef GradientSums sums
        cdef Py_ssize_t g, c, j, m = self.n_inducing, size = m * (m + 1)
        cdef double rate, squared, distance, weight
        for part in parts[1:]:
            total.log_likelihood += part.log_likelihood
            for array, addend in zip(total.arrays, part.arrays):
                array += addend
        records[1, step], records[2, step] = 0.0, self.scale * total.log_likelihood
        with nogil:
            for c in range(self.n_latents):
                for j in range(m):
                    total.target[c * size + j * m + j] += 1.0 / self.scale
            size *= self.n_latents
            squared = xg_natural_gradient(size, self.scale, &total.target[0], &self.eta[0], &self.gradient[0])
            records[0, step] = rate = self.next_rate(size, squared)
            if rate > 0.0:
                xg_step(size, rate, &self.gradient[0], &self.eta[0])
                weight = weight_of_latest(self.steps + 1)
                distance = xg_distance(size, &self.eta[0], &self.mean_eta[0])
                squared = xg_move_average(size, weight, &self.eta[0], &self.mean_eta[0])
                records[1, step] = weight * sqrt(distance / squared)
                self.steps += 1
            self.iteration += 1
        for g in range(len(self.moving)):
            prior, sums = self.moving[g], total.sums[g]
            with nogil:
                prior.move(sums)
