"""From a block of rows to marginals, to the additive statistics of a natural step, and to gradients.

Notation: K_mm = L L^T, a_i = L^{-1} k_m(x_i) (whitened), q(z) = N(w, P^{-1}), P = R R^T. Blocks are worked through in
tiles of a workspace's rows, whose scratch is allocated once; the cache of whitened rows holds the same tiles. Nothing
here keeps state: a block's result depends on its rows alone, so that any number of threads adds up the same numbers in
the same order.
"""
import numpy as np

from . cimport _blas
from ._kernels cimport (
    InducingKernel, KernelScratch, cross_block, diagonal_block, diagonal_gradient_block, gradient_block, real,
)

cdef extern from "vmath.h" nogil:
    void xg_exp_array(Py_ssize_t n, const double* x, double* out)
    void xg_normal_array(Py_ssize_t n, const double* x, double* cdf, double* pdf)
    void xg_gradient_tile(Py_ssize_t rows, Py_ssize_t m, const double* precision, const double* residual,
                          const double* alpha, double* g)

SITES = {("logit", "polya-gamma"): XG_LOGIT_POLYA_GAMMA, ("logit", "exact"): XG_LOGIT_EXACT,
         ("logit", "taylor"): XG_LOGIT_TAYLOR}


cdef class Workspace:
    """Scratch of one thread: tiles of ``rows`` rows for m inducing points and d features."""

    def __init__(self, Py_ssize_t rows, Py_ssize_t n_inducing, Py_ssize_t n_features):
        self.rows, self.n_inducing, self.n_features = rows, n_inducing, n_features
        # Pages that a kernel has no use for (products of factors) are never touched, and so never taken.
        self.a, self.b, self.term, self.factor, self.rest = np.empty((5, rows * n_inducing))
        self.x = np.empty(rows * n_features)
        self.x2, self.row_sum, self.diagonal, self.mean, self.variance = np.empty((5, rows))
        self.ell, self.precision, self.linear = np.empty((3, rows))
        self.kernel.x, self.kernel.x2, self.kernel.row_sum = &self.x[0], &self.x2[0], &self.row_sum[0]
        self.kernel.term, self.kernel.factor, self.kernel.rest = &self.term[0], &self.factor[0], &self.rest[0]


cdef void project(InducingKernel kernel, const double* Linv, const real[:, :] X, const Py_ssize_t* index,
                  Py_ssize_t start, Py_ssize_t rows, KernelScratch* scratch, double* a) noexcept nogil:
    # tile a (rows, m) = k(X, Z) L^{-T}
    cross_block(kernel, X, index, start, rows, scratch, a)
    _blas.trmm_lower_t(rows, kernel.n_inducing, Linv, a)


cdef double* whitened(InducingKernel kernel, const double[:, ::1] Linv, const real[:, :] X, double[::1] cache,
                      bint cached, Py_ssize_t start, Py_ssize_t rows, Workspace work) noexcept nogil:
    # The tile's a: in the cache (filled on the first pass, read on later ones) if there is one, else in scratch.
    cdef double* a = &cache[start * kernel.n_inducing] if cache.shape[0] else &work.a[0]
    if not cached:
        project(kernel, &Linv[0, 0], X, NULL, start, rows, &work.kernel, a)
    return a


cdef void tile_marginals(const double* diagonal, Py_ssize_t m, Py_ssize_t rows, const double* a, const double* Rinv,
                         const double* w, double* b, double* norms, double* mean, double* variance) noexcept nogil:
    # mean = a.w, variance = k_ii - |a|^2 clipped at 0, plus |R^{-1} a|^2; tile b and norms (rows,) are scratch.
    cdef Py_ssize_t i
    xg_norms_and_means(rows, m, a, w, b, norms, mean)
    _blas.trmm_lower_t(rows, m, Rinv, b)
    xg_squared_norms(rows, m, b, variance)
    for i in range(rows):
        variance[i] += max(diagonal[i] - norms[i], 0.0)


cdef void tile_statistics(Py_ssize_t m, Py_ssize_t rows, const double* a, const double* precision,
                          const double* linear, bint first, double* root, double* b, double* P,
                          double* h) noexcept nogil:
    # P (lower) (+)= sum_i precision_i a_i a_i^T, h (+)= sum_i linear_i a_i
    xg_scale_and_sum(rows, m, a, precision, linear, not first, root, b, h)
    _blas.syrk_lower(rows, m, b, 0.0 if first else 1.0, P)


cdef inline Py_ssize_t tiles(Py_ssize_t start, Py_ssize_t stop, Workspace work) noexcept nogil:
    return (stop - start + work.rows - 1) // work.rows


def marginals_block(InducingKernel kernel, const real[:, :] X, Py_ssize_t start, Py_ssize_t stop,
                    const double[:, ::1] Linv, const double[:, ::1] Rinv, const double[::1] w, Workspace work,
                    double[::1] mean, double[::1] variance):
    """Latent means and variances of rows start..stop, written into ``mean`` and ``variance`` there."""
    cdef Py_ssize_t tile, i, rows
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            project(kernel, &Linv[0, 0], X, NULL, i, rows, &work.kernel, &work.a[0])
            diagonal_block(kernel, X, NULL, i, rows, &work.kernel, &work.diagonal[0])
            tile_marginals(&work.diagonal[0], kernel.n_inducing, rows, &work.a[0], &Rinv[0, 0], &w[0],
                           &work.b[0], &work.x2[0], &mean[i], &variance[i])


def update_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached,
                 Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] Rinv,
                 const double[::1] w, int site, const double[::1] y, const double[::1] weight, Workspace work,
                 double[::1] mean, double[::1] variance, double[::1] precision, double[::1] linear,
                 double[:, ::1] P, double[::1] h):
    """Marginals and sites of rows start..stop under q, and the statistics of the step to the next q.

    Writes mean, variance, precision and linear at those rows, P (lower triangle) and h whole; returns the rows' part of
    the expected log-likelihood.
    """
    cdef Py_ssize_t tile, i, j, rows, m = kernel.n_inducing
    cdef double* a = NULL
    cdef double total = 0.0
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            diagonal_block(kernel, X, NULL, i, rows, &work.kernel, &work.diagonal[0])
            tile_marginals(&work.diagonal[0], m, rows, a, &Rinv[0, 0], &w[0], &work.b[0], &work.x2[0],
                           &mean[i], &variance[i])
            xg_sites(site, rows, &mean[i], &variance[i], &y[i], &weight[i] if weight.shape[0] else NULL,
                     &work.ell[0], &precision[i], &linear[i])
            for j in range(rows):
                total += work.ell[j]
            tile_statistics(m, rows, a, &precision[i], &linear[i], i == start, &work.x2[0], &work.b[0],
                            &P[0, 0], &h[0])
    return total


def statistics_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached,
                     Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[::1] precision,
                     const double[::1] linear, Workspace work, double[:, ::1] P, double[::1] h):
    """Statistics of given sites: after a change of hyperparameters q follows from the sites kept."""
    cdef Py_ssize_t tile, i, rows
    cdef double* a = NULL
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            tile_statistics(kernel.n_inducing, rows, a, &precision[i], &linear[i], i == start, &work.x2[0],
                            &work.b[0], &P[0, 0], &h[0])


def gradient_of_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached,
                      Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] M,
                      const double[::1] alpha, const double[::1] w, const double[::1] precision,
                      const double[::1] linear, Workspace work, double[::1] terms, double[::1] shapes,
                      double[:, ::1] sums, double[:, :, ::1] products, double[:, ::1] squares):
    """Contraction of dF / dK_nm = (r - lambda m) alpha^T + Lambda A M, M = (I - P^{-1}) L^{-1}, and of
    dF / dk_ii = -lambda / 2, for rows start..stop; m = A w.

    Adds to ``terms`` and the arrays after it, see ``_kernels.gradient_block``.
    """
    cdef Py_ssize_t tile, i, j, rows, m = kernel.n_inducing
    cdef double* a = NULL
    cdef double* G = &work.b[0]
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            _blas.gemm_tile(rows, m, m, a, &M[0, 0], False, G)
            xg_means(rows, m, a, &w[0], &work.mean[0])
            for j in range(rows):
                work.linear[j] = linear[i + j] - precision[i + j] * work.mean[j]
                work.ell[j] = -0.5 * precision[i + j]
            xg_gradient_tile(rows, m, &precision[i], &work.linear[0], &alpha[0], G)
            gradient_block(kernel, X, i, rows, G, &work.kernel, &work.a[0], &terms[0], &shapes[0], &sums[0, 0],
                           &products[0, 0, 0], &squares[0, 0])
            diagonal_gradient_block(kernel, X, i, rows, &work.ell[0], &work.kernel, &terms[0], &shapes[0])


def gradient_of_gram(InducingKernel kernel, const double[:, :] Z, const double[:, ::1] G, double[::1] terms,
                     double[::1] shapes, double[:, ::1] sums, double[:, :, ::1] products, double[:, ::1] squares):
    """The same contraction of a symmetric G = dF / dK_mm (m, m) with k(Z, Z)."""
    cdef Py_ssize_t m = kernel.n_inducing
    work = Workspace(m, m, kernel.n_features)
    cdef Workspace scratch = work
    with nogil:
        gradient_block(kernel, Z, 0, m, &G[0, 0], &scratch.kernel, &scratch.a[0], &terms[0], &shapes[0], &sums[0, 0],
                       &products[0, 0, 0], &squares[0, 0])


def matrix_gradients(const double[:, ::1] Linv, const double[:, ::1] Rinv, const double[:, ::1] P,
                     const double[::1] h, const double[::1] w, double jitter):
    """What the gradient of the bound at fixed q(u) needs of small matrices, for sites that make P (lower) and h.

    Returns G = dF/dK_mm, M = (I - P_q^{-1}) L^{-1} and alpha = L^{-T} w. With S = P - I and e = h - S w,
    G = -L^{-T} [e w^T + w e^T - w w^T + S - P_q^{-1} S - S P_q^{-1} - P_q^{-1} + I] L^{-1} / 2. The jitter, relative to
    the mean diagonal, is in G. O(m^3).
    """
    cdef Py_ssize_t i, j, m = w.shape[0]
    gram, rows, vector = np.empty((m, m)), np.empty((m, m)), np.array(w)
    cdef double[:, ::1] G = gram, M = rows, S = np.empty((m, m)), product = np.empty((m, m))
    cdef double[::1] alpha = vector, e = np.array(h)
    cdef double trace = 0.0
    with nogil:
        for i in range(m):
            for j in range(i + 1):
                S[i, j] = S[j, i] = P[i, j] - (1.0 if i == j else 0.0)
                M[i, j] = Rinv[i, j]
                M[j, i] = 0.0 if i != j else M[j, i]
        _blas.lauum_lower(m, &M[0, 0])
        _blas.symm(m, &M[0, 0], &S[0, 0], &product[0, 0])
        for i in range(m):
            for j in range(m):
                e[i] -= S[i, j] * w[j]
        for i in range(m):
            for j in range(i + 1):
                G[i, j] = -0.5 * (e[i] * w[j] + w[i] * e[j] - w[i] * w[j] + S[i, j] - product[i, j] - product[j, i]
                                  - M[i, j] + (1.0 if i == j else 0.0))
                G[j, i] = G[i, j]
                M[i, j] = (1.0 if i == j else 0.0) - M[i, j]
                M[j, i] = M[i, j]
        _blas.trmm_upper_left(m, &Linv[0, 0], &G[0, 0])
        _blas.trmm_lower_right(m, &Linv[0, 0], &G[0, 0])
        _blas.trmm_lower_right(m, &Linv[0, 0], &M[0, 0])
        _blas.trmv_upper(m, &Linv[0, 0], &alpha[0])
        for i in range(m):
            trace += G[i, i]
        for i in range(m):
            G[i, i] += jitter * trace / m
    return gram, rows, vector


def sites(int site, const double[::1] mean, const double[::1] variance, const double[::1] y,
          const double[::1] weight, double[::1] ell, double[::1] precision, double[::1] linear):
    """Site function of n points: ell, precision and linear term (see sites.h); weight may be empty."""
    cdef Py_ssize_t n = mean.shape[0]
    if n:
        with nogil:
            xg_sites(site, n, &mean[0], &variance[0], &y[0], &weight[0] if weight.shape[0] else NULL,
                     &ell[0], &precision[0], &linear[0])


def logistic_normal_mean(const double[::1] mean, const double[::1] variance):
    """E[sigma(f)], f ~ N(mean, variance), elementwise."""
    cdef Py_ssize_t n = mean.shape[0]
    out = np.empty(n)
    cdef double[::1] result = out
    if n:
        with nogil:
            xg_logistic_normal_mean_array(n, &mean[0], &variance[0], &result[0])
    return out


def exp(const double[::1] x):
    """exp(x) for x <= 0, elementwise."""
    cdef Py_ssize_t n = x.shape[0]
    out = np.empty(n)
    cdef double[::1] result = out
    if n:
        with nogil:
            xg_exp_array(n, &x[0], &result[0])
    return out


def normal(const double[::1] x):
    """Standard normal distribution function and density, elementwise."""
    cdef Py_ssize_t n = x.shape[0]
    out = np.empty((2, n))
    cdef double[:, ::1] result = out
    if n:
        with nogil:
            xg_normal_array(n, &x[0], &result[0, 0], &result[1, 0])
    return out[0], out[1]
