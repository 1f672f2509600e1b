"""From a block of rows to marginals, to the additive statistics of a natural step, and to gradients.

Notation: K_mm = L L^T, a_i = L^{-1} k_m(x_i) (whitened), q(z) = N(w, P^{-1}), P = R R^T. Blocks are worked through in
tiles of a workspace's rows, whose scratch is allocated once; the cache of whitened rows holds the same tiles. There
are C latent functions, one for two classes; those of one call share a kernel, and so the whitened rows. Nothing here
keeps state: a block's result depends on its rows alone, so that any number of threads adds up the same numbers in
the same order. Without a kernel (None) the cache holds the whitened rows, and they are all of the prior.

The type of the cache, even an empty one, is that of whitened rows. In single precision a_i is rounded once it is made,
and its products with R^{-1} and the sums of a tile's outer products are single, too; all else, and sums over tiles, is
double.
"""
import numpy as np

from libc.string cimport memcpy, memset

from . cimport _blas
from ._blas cimport number
from ._kernels cimport (
    InducingKernel, KernelScratch, cross_block, diagonal_block, diagonal_gradient_block, gradient_block, real,
)
from ._sites cimport Site, entry, evaluate, xg_multiclass_scratch
from ._tiles cimport (
    negative_rows, norms_and_means, scale_and_sum, squared_norms, widened, xg_add_lower, xg_gradient_tile, xg_narrow,
)

cdef class Workspace:
    """Scratch of one thread: tiles of ``rows`` rows for m inducing points, d features and C latent functions.

    Whitened rows have room for ``n_tiles`` tiles.
    """

    def __init__(self, Py_ssize_t rows, Py_ssize_t n_inducing, Py_ssize_t n_features, Py_ssize_t n_latents=1,
                 Py_ssize_t n_tiles=1):
        self.rows, self.n_inducing, self.n_features, self.n_latents = rows, n_inducing, n_features, n_latents
        # Pages of what is not used (products of a kernel's factors, one precision) are never touched, and so not taken.
        self.b, self.term, self.factor, self.rest = np.empty((4, rows * n_inducing))
        self.a = np.empty(n_tiles * rows * n_inducing)
        self.x = np.empty(rows * n_features)
        self.x2, self.row_sum, self.diagonal, self.residual, self.ell = np.empty((5, rows))
        self.mean, self.variance, self.precision, self.linear = np.empty((4, rows * n_latents))
        self.site = np.empty(xg_multiclass_scratch(n_latents))
        self.index = np.empty(rows, dtype=np.intp)
        self.single_a = np.empty(rows * n_inducing, dtype=np.float32)
        self.single_factors = np.empty(n_latents * n_inducing**2, dtype=np.float32)
        self.single_sum = np.empty(n_inducing**2, dtype=np.float32)
        self.kernel.x, self.kernel.x2, self.kernel.row_sum = &self.x[0], &self.x2[0], &self.row_sum[0]
        self.kernel.term, self.kernel.factor, self.kernel.rest = &self.term[0], &self.factor[0], &self.rest[0]


cdef void project(InducingKernel kernel, const double* Linv, const real[:, :] X, const Py_ssize_t* index,
                  Py_ssize_t start, Py_ssize_t rows, KernelScratch* scratch, double* a) noexcept nogil:
    # tile a (rows, m) = k(X, Z) L^{-T}
    cross_block(kernel, X, index, start, rows, scratch, a)
    _blas.trmm_lower_t(rows, kernel.n_inducing, Linv, a)


cdef const number* whitened(InducingKernel kernel, const double[:, ::1] Linv, const real[:, :] X, number[::1] cache,
                            bint cached, Py_ssize_t start, Py_ssize_t rows, Workspace work) noexcept nogil:
    # The tile's a: in the cache (filled on the first pass, read on later ones) if there is one, else in scratch.
    cdef number* a
    if number is double:
        a = &cache[start * work.n_inducing] if cache.shape[0] else &work.a[0]
        if not cached:
            project(kernel, &Linv[0, 0], X, NULL, start, rows, &work.kernel, a)
    else:
        a = &cache[start * work.n_inducing] if cache.shape[0] else &work.single_a[0]
        if not cached:
            project(kernel, &Linv[0, 0], X, NULL, start, rows, &work.kernel, &work.a[0])
            xg_narrow(rows * work.n_inducing, &work.a[0], a)
    return a


cdef const number* in_precision_of(number[::1] cache, const double[:, :, ::1] factors, Workspace work) noexcept nogil:
    # The factors in the cache's precision: themselves, or in scratch.
    if number is double:
        return &factors[0, 0, 0]
    else:
        xg_narrow(factors.shape[0] * factors.shape[1] * factors.shape[2], &factors[0, 0, 0], &work.single_factors[0])
        return &work.single_factors[0]


cdef void prior_variances(InducingKernel kernel, const real[:, :] X, Py_ssize_t start, Py_ssize_t rows,
                          Workspace work) noexcept nogil:
    # diagonal = k(x, x); without a kernel the whitened rows are all there is, and 0 is as good
    if kernel is None:
        memset(&work.diagonal[0], 0, rows * sizeof(double))
    else:
        diagonal_block(kernel, X, NULL, start, rows, &work.kernel, &work.diagonal[0])


cdef void tile_marginals(Py_ssize_t classes, Py_ssize_t m, Py_ssize_t rows, const number* a, const number* Rinv,
                         const double* w, Workspace work, Py_ssize_t stride, double* mean,
                         double* variance) noexcept nogil:
    # Of each class, ``stride`` apart: mean = a.w, variance = k_ii - |a|^2 clipped at 0, plus |R^{-1} a|^2, with k_ii in
    # work.diagonal. One class has its mean, norms and copy in one pass over the tile; of several the mean is a product
    # of matrices, and the norms are the same.
    cdef Py_ssize_t i, c
    cdef double* spread = variance
    cdef double* norms = &work.x2[0]
    cdef number* b = <number*>&work.b[0]
    if classes > 1:
        squared_norms(rows, m, a, norms)
        _blas.gemm_products(rows, m, classes, widened(rows * m, a, &work.a[0]), w, mean, stride)
    for c in range(classes):
        if classes > 1:
            memcpy(b, a, rows * m * sizeof(number))
        else:
            norms_and_means(rows, m, a, w, b, norms, mean)
        _blas.trmm_lower_t(rows, m, Rinv + c * m * m, b)
        spread = variance + c * stride
        squared_norms(rows, m, <const number*>b, spread)
        for i in range(rows):
            spread[i] += max(work.diagonal[i] - norms[i], 0.0)


cdef void tile_statistics(Py_ssize_t m, Py_ssize_t rows, const number* a, const double* precision,
                          const double* linear, bint first, Workspace work, double* P, double* h) noexcept nogil:
    # P (lower) (+)= sum_i precision_i a_i a_i^T, h (+)= sum_i linear_i a_i
    cdef Py_ssize_t negative
    cdef number* b = <number*>&work.b[0]
    cdef number* total
    cdef number before
    if number is double:
        total, before = P, 0.0 if first else 1.0
    else:
        total, before = &work.single_sum[0], 0.0
    scale_and_sum(rows, m, a, precision, linear, not first, &work.x2[0], b, h)
    _blas.syrk_lower(rows, m, <number>1.0, <const number*>b, before, total)
    negative = negative_rows(rows, m, a, precision, &work.index[0], b)
    if negative:
        _blas.syrk_lower(negative, m, <number>-1.0, <const number*>b, <number>1.0, total)
    if number is float:
        xg_add_lower(m, total, not first, P)


def marginals_block(InducingKernel kernel, const real[:, :] X, number[::1] cache, bint cached, Py_ssize_t start,
                    Py_ssize_t stop, const double[:, ::1] Linv, const double[:, :, ::1] Rinv, const double[:, ::1] w,
                    Workspace work, double[:, ::1] mean, double[:, ::1] variance):
    """Latent means and variances (C, n) of rows start..stop, written into ``mean`` and ``variance`` there."""
    cdef Py_ssize_t tile, i, rows, m = w.shape[1]
    cdef const number* a
    cdef const number* factors
    with nogil:
        factors = in_precision_of(cache, Rinv, work)
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            prior_variances(kernel, X, i, rows, work)
            tile_marginals(w.shape[0], m, rows, a, factors, &w[0, 0], work, mean.shape[1], &mean[0, i],
                           &variance[0, i])


def update_block(InducingKernel kernel, const real[:, :] X, number[::1] cache, bint cached,
                 Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, :, ::1] Rinv,
                 const double[:, ::1] w, Site site, const double[::1] y, const double[::1] weight, Workspace work,
                 double[:, ::1] mean, double[:, ::1] variance, double[:, ::1] precision, double[:, ::1] linear,
                 double[:, :, ::1] P, double[:, ::1] h):
    """Marginals and sites of rows start..stop under q, and the statistics of the step to the next q.

    Writes mean, variance, precision and linear (C, n) at those rows, P (C, m, m; lower triangles) and h (C, m) whole;
    returns the rows' part of the expected log-likelihood.
    """
    cdef Py_ssize_t tile, i, j, c, rows, m = w.shape[1]
    cdef const number* a
    cdef const number* factors
    cdef double total = 0.0
    with nogil:
        factors = in_precision_of(cache, Rinv, work)
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            prior_variances(kernel, X, i, rows, work)
            tile_marginals(w.shape[0], m, rows, a, factors, &w[0, 0], work, mean.shape[1], &mean[0, i],
                           &variance[0, i])
            evaluate(site, rows, mean.shape[1], &mean[0, i], &variance[0, i], &y[i], entry(weight, i), &work.site[0],
                     &work.ell[0], &precision[0, i], &linear[0, i])
            for j in range(rows):
                total += work.ell[j]
            for c in range(w.shape[0]):
                tile_statistics(m, rows, a, &precision[c, i], &linear[c, i], i == start, work, &P[c, 0, 0], &h[c, 0])
    return total


def sites_block(Site site, Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] mean,
                const double[:, ::1] variance, const double[::1] y, const double[::1] weight, Workspace work,
                double[:, ::1] precision, double[:, ::1] linear):
    """Sites of rows start..stop from their marginals; returns the rows' part of the expected log-likelihood."""
    cdef Py_ssize_t tile, i, j, rows
    cdef double total = 0.0
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            evaluate(site, rows, mean.shape[1], &mean[0, i], &variance[0, i], &y[i], entry(weight, i), &work.site[0],
                     &work.ell[0], &precision[0, i], &linear[0, i])
            for j in range(rows):
                total += work.ell[j]
    return total


def statistics_block(InducingKernel kernel, const real[:, :] X, number[::1] cache, bint cached,
                     Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] precision,
                     const double[:, ::1] linear, Workspace work, double[:, :, ::1] P, double[:, ::1] h):
    """Statistics of given sites: after a change of hyperparameters q follows from the sites kept."""
    cdef Py_ssize_t tile, i, c, rows
    cdef const number* a
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            for c in range(h.shape[0]):
                tile_statistics(h.shape[1], rows, a, &precision[c, i], &linear[c, i], i == start, work,
                                &P[c, 0, 0], &h[c, 0])


def products_block(InducingKernel kernel, const real[:, :] X, number[::1] cache, bint cached, Py_ssize_t start,
                   Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] w, Workspace work,
                   double[:, ::1] products):
    """Products w A^T of rows start..stop for w (C, m), written into ``products`` (C, stop - start)."""
    cdef Py_ssize_t tile, i, rows, m = w.shape[1]
    cdef const number* a
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            _blas.gemm_products(rows, m, w.shape[0], widened(rows * m, a, &work.a[0]), &w[0, 0],
                                &products[0, i - start], products.shape[1])


def sums_block(InducingKernel kernel, const real[:, :] X, number[::1] cache, bint cached, Py_ssize_t start,
               Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] values, Workspace work,
               double[:, ::1] sums):
    """Adds values A of rows start..stop, for ``values`` (C, stop - start), to ``sums`` (C, m)."""
    cdef Py_ssize_t tile, i, rows, m = sums.shape[1]
    cdef const number* a
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            _blas.gemm_sums(rows, m, sums.shape[0], widened(rows * m, a, &work.a[0]), &values[0, i - start],
                            values.shape[1], &sums[0, 0])


def gradient_of_block(InducingKernel kernel, const real[:, :] X, number[::1] cache, bint cached,
                      Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, :, ::1] M,
                      const double[:, ::1] alpha, const double[:, ::1] w, const double[:, ::1] precision,
                      const double[:, ::1] linear, Workspace work, double[::1] terms, double[::1] shapes,
                      double[:, ::1] sums, double[:, :, ::1] products, double[:, ::1] squares):
    """Contraction of dF / dK_nm = sum_c (r - lambda m) alpha^T + Lambda A M, M = (I - P^{-1}) L^{-1}, and of
    dF / dk_ii = -sum_c lambda / 2, for rows start..stop; m = A w.

    Adds to ``terms`` and the arrays after it, see ``_kernels.gradient_block``.
    """
    cdef Py_ssize_t tile, i, j, c, rows, m = kernel.n_inducing
    cdef const number* a
    cdef const double* wide
    cdef double* G = &work.b[0]
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            wide = widened(rows * m, a, &work.a[0])
            _blas.gemm_products(rows, m, w.shape[0], wide, &w[0, 0], &work.mean[0], rows)
            for c in range(w.shape[0]):
                _blas.gemm_tile(rows, m, m, wide, &M[c, 0, 0], False, &work.term[0])
                for j in range(rows):
                    work.linear[j] = linear[c, i + j] - precision[c, i + j] * work.mean[c * rows + j]
                    work.residual[j] = (0.0 if c == 0 else work.residual[j]) - 0.5 * precision[c, i + j]
                xg_gradient_tile(rows, m, &precision[c, i], &work.linear[0], &alpha[c, 0], &work.term[0], c > 0, G)
            gradient_block(kernel, X, NULL, i, rows, G, &work.kernel, &work.a[0], &terms[0], &shapes[0], &sums[0, 0],
                           &products[0, 0, 0], &squares[0, 0])
            diagonal_gradient_block(kernel, X, NULL, i, rows, &work.residual[0], False, &work.kernel, &terms[0],
                                    &shapes[0])


def gradient_of_gram(InducingKernel kernel, const double[:, :] Z, const double[:, ::1] G, double[::1] terms,
                     double[::1] shapes, double[:, ::1] sums, double[:, :, ::1] products, double[:, ::1] squares):
    """The same contraction of a symmetric G = dF / dK_mm (m, m) with k(Z, Z)."""
    cdef Py_ssize_t m = kernel.n_inducing
    work = Workspace(m, m, kernel.n_features)
    cdef Workspace scratch = work
    with nogil:
        gradient_block(kernel, Z, NULL, 0, m, &G[0, 0], &scratch.kernel, &scratch.a[0], &terms[0], &shapes[0],
                       &sums[0, 0], &products[0, 0, 0], &squares[0, 0])


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
