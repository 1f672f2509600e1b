"""From a block of rows to marginals, to the additive statistics of a natural step, and to gradients.

Notation: K_mm = L L^T, a_i = L^{-1} k_m(x_i) (whitened), q(z) = N(w, P^{-1}), P = R R^T. Blocks are worked through in
tiles of a workspace's rows, whose scratch is allocated once; the cache of whitened rows holds the same tiles. There
are C latent functions, one for two classes; those of one call share a kernel, and so the whitened rows. Nothing here
keeps state: a block's result depends on its rows alone, so that any number of threads adds up the same numbers in
the same order. Without a kernel (None) the cache holds the whitened rows, and they are all of the prior.
"""
from uuid import uuid4

import numpy as np

from libc.math cimport log, log1p
from libc.string cimport memcpy, memset

from . cimport _blas
from ._kernels cimport (
    InducingKernel, KernelScratch, cross_block, diagonal_block, diagonal_gradient_block, gradient_block, real,
)

cdef extern from "vmath.h" nogil:
    Py_ssize_t xg_negative_rows(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* s, Py_ssize_t* index,
                                double* out)
    void xg_gradient_tile(Py_ssize_t rows, Py_ssize_t m, const double* precision, const double* residual,
                          const double* alpha, const double* product, bint accumulate, double* g)
    void xg_scale(Py_ssize_t n, const double* factor, double* x)

cdef extern from "site_list.h" nogil:
    int xg_site_count()
    const char* xg_site_likelihood(int i)
    const char* xg_site_bound(int i)
    bint xg_site_is_multi_class(int i)

cdef extern from "sites.h" nogil:
    int xg_sites(int kind, Py_ssize_t n, const double* m, const double* v, const double* y, double log_right,
                 double log_wrong, double* ell, double* precision, double* linear)

cdef extern from "softmax.h" nogil:
    Py_ssize_t XG_HAZARD_COLUMNS, XG_HAZARD_DEGREE
    void xg_softmax_scores(Py_ssize_t classes, Py_ssize_t n, const double* m, const double* v, const double* y,
                           const xg_hazard_table* table, double* scratch, double* value, double* by_mean,
                           double* by_variance)
    void xg_softmax_pull_back(Py_ssize_t classes, Py_ssize_t n, const double* m, const double* v,
                              const double* by_lambda, const double* by_r, const xg_hazard_table* table,
                              double* scratch, double* by_mean, double* by_variance)

cdef extern from "multiclass.h" nogil:
    Py_ssize_t xg_multiclass_scratch(Py_ssize_t classes)
    int xg_multiclass_sites(int kind, Py_ssize_t classes, Py_ssize_t n, Py_ssize_t stride, const double* m,
                            const double* v, const double* y, double delta, const xg_hazard_table* table,
                            double* scratch, double* ell, double* precision, double* linear)

# (likelihood, bound) -> number in the list of site_list.h
KINDS = {(xg_site_likelihood(i).decode(), xg_site_bound(i).decode()): i for i in range(xg_site_count())}
# Of the polynomials in the table of exact softmax.
HAZARD_DEGREE = XG_HAZARD_DEGREE
# Those with a latent function for each class.
MULTI_CLASS = frozenset(key for key, i in KINDS.items() if xg_site_is_multi_class(i))


cdef class Site:
    """A likelihood's bound: the site function of its points. A value: it can be pickled and kept, and never changes.

    Parameters
    ----------
    likelihood, bound : str, a key of ``KINDS``
    n_latents : int, latent functions: 1, or of the keys in ``MULTI_CLASS`` the number of classes, at least 2
    parameter : float, delta of additive-noise bounds: the probability that a label is not that of the largest latent
        value
    learned : bool, whether a fit looks for the best parameter
    table : (rows + 2, HAZARD_DEGREE + 5) float64, of exact softmax, see softmax.h; not copied
    record : what the registry of likelihoods knows of the bound

    Attributes
    ----------
    key : str
        Of this very site: another one's differs, that of a copy or of an unpickled one does not. Sites of rows that
        were made by it can be told by it.

    Raises
    ------
    ValueError
        For names that are not in ``KINDS``, another number of latent functions than the likelihood has, or a table
        of another shape.
    """

    def __cinit__(self, likelihood, bound, Py_ssize_t n_latents=1, double parameter=0.01, bint learned=False,
                  table=None, record=None):
        key = likelihood, bound
        if key not in KINDS:
            raise ValueError(f"(likelihood, bound) must be one of {list(KINDS)}; got {key}.")
        if n_latents < 1 or (n_latents > 1) != (key in MULTI_CLASS):
            allowed = "the number of classes, at least 2" if key in MULTI_CLASS else "1"
            raise ValueError(f"n_latents of the site {key} must be {allowed}; got {n_latents}.")
        values = np.zeros((2, XG_HAZARD_COLUMNS)) if table is None else table
        if np.ndim(values) != 2 or len(values) < (2 if table is None else 4) or values.shape[1] != XG_HAZARD_COLUMNS:
            raise ValueError(f"table must be (rows + 2, {XG_HAZARD_COLUMNS}) with at least two rows; "
                             f"got {np.shape(values)}.")
        self.likelihood, self.bound, self.kind = likelihood, bound, KINDS[key]
        self.n_latents, self.parameter, self.learned, self.record = n_latents, parameter, learned, record
        self._table = values
        self._hazards.rows, self._hazards.values = self._table.shape[0] - 2, &self._table[0, 0]
        self.key = uuid4().hex

    def with_parameter(self, double delta):
        """The same site with another parameter, and a key of its own."""
        return Site(self.likelihood, self.bound, self.n_latents, delta, self.learned, self._given_table(), self.record)

    def _given_table(self):
        return np.asarray(self._table) if self._hazards.rows else None

    def __reduce__(self):
        arguments = (self.likelihood, self.bound, self.n_latents, self.parameter, self.learned,
                     self._given_table(), self.record)
        return _site_of_key, (self.key, *arguments)


def _site_of_key(str key, *arguments):
    # The site that was pickled.
    cdef Site site = Site(*arguments)
    site.key = key
    return site


cdef int evaluate(Site site, Py_ssize_t n, Py_ssize_t stride, const double* mean, const double* variance,
                  const double* y, const double* weight, double* scratch, double* ell, double* precision,
                  double* linear) except -1 nogil:
    # Sites of n points; latent function c has its mean, variance, precision and linear term at [c * stride]. weight may
    # be NULL.
    cdef Py_ssize_t c
    cdef int status
    if site.n_latents == 1:
        status = xg_sites(site.kind, n, mean, variance, y, log1p(-site.parameter), log(site.parameter), ell, precision,
                          linear)
    else:
        status = xg_multiclass_sites(site.kind, site.n_latents, n, stride, mean, variance, y, site.parameter,
                                     &site._hazards, scratch, ell, precision, linear)
    if status:
        with gil:
            raise ValueError(f"Site {site.kind} of {site.n_latents} latent functions is not one of "
                             f"{KINDS}, or is without its table.")
    if weight:
        xg_scale(n, weight, ell)
        for c in range(site.n_latents):
            xg_scale(n, weight, precision + c * stride)
            xg_scale(n, weight, linear + c * stride)
    return 0


cdef class Workspace:
    """Scratch of one thread: tiles of ``rows`` rows for m inducing points, d features and C latent functions.

    Whitened rows have room for ``n_tiles`` tiles.
    """

    def __init__(self, Py_ssize_t rows, Py_ssize_t n_inducing, Py_ssize_t n_features, Py_ssize_t n_latents=1,
                 Py_ssize_t n_tiles=1):
        self.rows, self.n_inducing, self.n_features, self.n_latents = rows, n_inducing, n_features, n_latents
        # Pages that a kernel has no use for (products of factors) are never touched, and so never taken.
        self.b, self.term, self.factor, self.rest = np.empty((4, rows * n_inducing))
        self.a = np.empty(n_tiles * rows * n_inducing)
        self.x = np.empty(rows * n_features)
        self.x2, self.row_sum, self.diagonal, self.residual, self.ell = np.empty((5, rows))
        self.mean, self.variance, self.precision, self.linear = np.empty((4, rows * n_latents))
        self.site = np.empty(xg_multiclass_scratch(n_latents))
        self.index = np.empty(rows, dtype=np.intp)
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
    cdef double* a = &cache[start * work.n_inducing] if cache.shape[0] else &work.a[0]
    if not cached:
        project(kernel, &Linv[0, 0], X, NULL, start, rows, &work.kernel, a)
    return a


cdef void prior_variances(InducingKernel kernel, const real[:, :] X, Py_ssize_t start, Py_ssize_t rows,
                          Workspace work) noexcept nogil:
    # diagonal = k(x, x); without a kernel the whitened rows are all there is, and 0 is as good
    if kernel is None:
        memset(&work.diagonal[0], 0, rows * sizeof(double))
    else:
        diagonal_block(kernel, X, NULL, start, rows, &work.kernel, &work.diagonal[0])


cdef void tile_marginals(const double* diagonal, Py_ssize_t classes, Py_ssize_t m, Py_ssize_t rows, const double* a,
                         const double* Rinv, const double* w, double* b, double* norms, Py_ssize_t stride,
                         double* mean, double* variance) noexcept nogil:
    # Of each class, ``stride`` apart: mean = a.w, variance = k_ii - |a|^2 clipped at 0, plus |R^{-1} a|^2; tile b and
    # norms (rows,) are scratch. One class has its mean, norms and copy in one pass over the tile; of several the mean
    # is a product of matrices, and the norms are the same.
    cdef Py_ssize_t i, c
    cdef double* spread = variance
    if classes > 1:
        xg_squared_norms(rows, m, a, norms)
        _blas.gemm_products(rows, m, classes, a, w, mean, stride)
    for c in range(classes):
        if classes > 1:
            memcpy(b, a, rows * m * sizeof(double))
        else:
            xg_norms_and_means(rows, m, a, w, b, norms, mean)
        _blas.trmm_lower_t(rows, m, Rinv + c * m * m, b)
        spread = variance + c * stride
        xg_squared_norms(rows, m, b, spread)
        for i in range(rows):
            spread[i] += max(diagonal[i] - norms[i], 0.0)


cdef void tile_statistics(Py_ssize_t m, Py_ssize_t rows, const double* a, const double* precision,
                          const double* linear, bint first, Workspace work, double* P, double* h) noexcept nogil:
    # P (lower) (+)= sum_i precision_i a_i a_i^T, h (+)= sum_i linear_i a_i
    cdef Py_ssize_t negative
    cdef double* b = &work.b[0]
    xg_scale_and_sum(rows, m, a, precision, linear, not first, &work.x2[0], b, h)
    _blas.syrk_lower(rows, m, 1.0, b, 0.0 if first else 1.0, P)
    negative = xg_negative_rows(rows, m, a, precision, &work.index[0], b)
    if negative:
        _blas.syrk_lower(negative, m, -1.0, b, 1.0, P)


cdef inline const double* entry(const double[::1] values, Py_ssize_t i) noexcept nogil:
    # Address of element i, NULL of an empty array.
    return &values[i] if values.shape[0] else NULL


def marginals_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached, Py_ssize_t start,
                    Py_ssize_t stop, const double[:, ::1] Linv, const double[:, :, ::1] Rinv, const double[:, ::1] w,
                    Workspace work, double[:, ::1] mean, double[:, ::1] variance):
    """Latent means and variances (C, n) of rows start..stop, written into ``mean`` and ``variance`` there."""
    cdef Py_ssize_t tile, i, rows, m = w.shape[1]
    cdef double* a = NULL
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            prior_variances(kernel, X, i, rows, work)
            tile_marginals(&work.diagonal[0], w.shape[0], m, rows, a, &Rinv[0, 0, 0], &w[0, 0], &work.b[0],
                           &work.x2[0], mean.shape[1], &mean[0, i], &variance[0, i])


def update_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached,
                 Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, :, ::1] Rinv,
                 const double[:, ::1] w, Site site, const double[::1] y, const double[::1] weight, Workspace work,
                 double[:, ::1] mean, double[:, ::1] variance, double[:, ::1] precision, double[:, ::1] linear,
                 double[:, :, ::1] P, double[:, ::1] h):
    """Marginals and sites of rows start..stop under q, and the statistics of the step to the next q.

    Writes mean, variance, precision and linear (C, n) at those rows, P (C, m, m; lower triangles) and h (C, m) whole;
    returns the rows' part of the expected log-likelihood.
    """
    cdef Py_ssize_t tile, i, j, c, rows, m = w.shape[1]
    cdef double* a = NULL
    cdef double total = 0.0
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            prior_variances(kernel, X, i, rows, work)
            tile_marginals(&work.diagonal[0], w.shape[0], m, rows, a, &Rinv[0, 0, 0], &w[0, 0], &work.b[0],
                           &work.x2[0], mean.shape[1], &mean[0, i], &variance[0, i])
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


def statistics_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached,
                     Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] precision,
                     const double[:, ::1] linear, Workspace work, double[:, :, ::1] P, double[:, ::1] h):
    """Statistics of given sites: after a change of hyperparameters q follows from the sites kept."""
    cdef Py_ssize_t tile, i, c, rows
    cdef double* a = NULL
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            for c in range(h.shape[0]):
                tile_statistics(h.shape[1], rows, a, &precision[c, i], &linear[c, i], i == start, work,
                                &P[c, 0, 0], &h[c, 0])


def products_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached, Py_ssize_t start,
                   Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] w, Workspace work,
                   double[:, ::1] products):
    """Products w A^T of rows start..stop for w (C, m), written into ``products`` (C, stop - start)."""
    cdef Py_ssize_t tile, i, rows, m = w.shape[1]
    cdef double* a = NULL
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            _blas.gemm_products(rows, m, w.shape[0], a, &w[0, 0], &products[0, i - start], products.shape[1])


def sums_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached, Py_ssize_t start,
               Py_ssize_t stop, const double[:, ::1] Linv, const double[:, ::1] values, Workspace work,
               double[:, ::1] sums):
    """Adds values A of rows start..stop, for ``values`` (C, stop - start), to ``sums`` (C, m)."""
    cdef Py_ssize_t tile, i, rows, m = sums.shape[1]
    cdef double* a = NULL
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            _blas.gemm_sums(rows, m, sums.shape[0], a, &values[0, i - start], values.shape[1], &sums[0, 0])


def gradient_of_block(InducingKernel kernel, const real[:, :] X, double[::1] cache, bint cached,
                      Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] Linv, const double[:, :, ::1] M,
                      const double[:, ::1] alpha, const double[:, ::1] w, const double[:, ::1] precision,
                      const double[:, ::1] linear, Workspace work, double[::1] terms, double[::1] shapes,
                      double[:, ::1] sums, double[:, :, ::1] products, double[:, ::1] squares):
    """Contraction of dF / dK_nm = sum_c (r - lambda m) alpha^T + Lambda A M, M = (I - P^{-1}) L^{-1}, and of
    dF / dk_ii = -sum_c lambda / 2, for rows start..stop; m = A w.

    Adds to ``terms`` and the arrays after it, see ``_kernels.gradient_block``.
    """
    cdef Py_ssize_t tile, i, j, c, rows, m = kernel.n_inducing
    cdef double* a = NULL
    cdef double* G = &work.b[0]
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            rows = min(work.rows, stop - i)
            a = whitened(kernel, Linv, X, cache, cached, i, rows, work)
            _blas.gemm_products(rows, m, w.shape[0], a, &w[0, 0], &work.mean[0], rows)
            for c in range(w.shape[0]):
                _blas.gemm_tile(rows, m, m, a, &M[c, 0, 0], False, &work.term[0])
                for j in range(rows):
                    work.linear[j] = linear[c, i + j] - precision[c, i + j] * work.mean[c * rows + j]
                    work.residual[j] = (0.0 if c == 0 else work.residual[j]) - 0.5 * precision[c, i + j]
                xg_gradient_tile(rows, m, &precision[c, i], &work.linear[0], &alpha[c, 0], &work.term[0], c > 0, G)
            gradient_block(kernel, X, i, rows, G, &work.kernel, &work.a[0], &terms[0], &shapes[0], &sums[0, 0],
                           &products[0, 0, 0], &squares[0, 0])
            diagonal_gradient_block(kernel, X, i, rows, &work.residual[0], False, &work.kernel, &terms[0],
                                    &shapes[0])


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


def sites(Site site, mean, variance, const double[::1] y, const double[::1] weight, double[::1] ell, precision, linear):
    """Site function of n points: ell (n,), precision and linear term (n,) or (C, n); weight may be
    empty. Returns the sum of ell, added up in the order of the points, as the functions of blocks do."""
    cdef Py_ssize_t n = y.shape[0]
    cdef const double[:, ::1] means = np.reshape(mean, (site.n_latents, n))
    cdef const double[:, ::1] variances = np.reshape(variance, (site.n_latents, n))
    cdef double[:, ::1] precisions = precision.reshape(site.n_latents, n)
    cdef double[:, ::1] linears = linear.reshape(site.n_latents, n)
    cdef double[::1] scratch = np.empty(xg_multiclass_scratch(site.n_latents))
    cdef double total = 0.0
    cdef Py_ssize_t i
    if n:
        with nogil:
            evaluate(site, n, n, &means[0, 0], &variances[0, 0], &y[0], entry(weight, 0), &scratch[0], &ell[0],
                     &precisions[0, 0], &linears[0, 0])
            for i in range(n):
                total += ell[i]
    return total


def softmax_scores(Site site, const double[:, ::1] mean, const double[:, ::1] variance, const double[::1] y):
    """log E[softmax_y(f)] (n,) of exact softmax, and its derivatives by means and variances (C, n)."""
    cdef Py_ssize_t classes = mean.shape[0], n = mean.shape[1]
    values, d_mean, d_variance = np.empty(n), np.empty((classes, n)), np.empty((classes, n))
    cdef double[::1] out = values, scratch = np.empty(xg_multiclass_scratch(classes))
    cdef double[:, ::1] by_mean = d_mean, by_variance = d_variance
    if n:
        with nogil:
            xg_softmax_scores(classes, n, &mean[0, 0], &variance[0, 0], &y[0], &site._hazards, &scratch[0], &out[0],
                              &by_mean[0, 0], &by_variance[0, 0])
    return values, d_mean, d_variance


def softmax_pull_back(Site site, const double[:, ::1] mean, const double[:, ::1] variance,
                      const double[:, ::1] by_precision, const double[:, ::1] by_linear):
    """Derivatives by means and variances (C, n) from those by the precisions and linear terms of exact softmax."""
    cdef Py_ssize_t classes = mean.shape[0], n = mean.shape[1]
    d_mean, d_variance = np.empty((classes, n)), np.empty((classes, n))
    cdef double[::1] scratch = np.empty(xg_multiclass_scratch(classes))
    cdef double[:, ::1] by_mean = d_mean, by_variance = d_variance
    if n:
        with nogil:
            xg_softmax_pull_back(classes, n, &mean[0, 0], &variance[0, 0], &by_precision[0, 0], &by_linear[0, 0],
                                 &site._hazards, &scratch[0], &by_mean[0, 0], &by_variance[0, 0])
    return d_mean, d_variance
