"""Passes over a block of rows: marginals, the additive statistics of a natural-gradient step, and gradients.

Notation: K_mm = L L^T, a_i = L^{-1} k_m(x_i) (whitened), q(z) = N(w, P^{-1}), P = R R^T. A block is processed in tiles
of rows, whose scratch is allocated once; the cache of whitened rows holds the same tiles. There are C latent functions,
one for two classes; the functions of one call share a kernel, and therefore the whitened rows. The functions keep no
state: the result of a block depends on its rows only, so that any number of threads adds the same numbers in the same
order. Without a kernel (None), the cache holds the whitened rows, which explain all of the prior variance.

Whitened rows have the type of the cache, even of an empty one. In single precision a_i is rounded after its
computation, and its products with R^{-1} and the sums of outer products within a tile are single, too; everything else,
including sums over tiles, is double.
"""
import numpy as np

from ._threads import scratch as kept_by_thread

from libc.math cimport INFINITY, fabs, log, sqrt
from libc.string cimport memcpy

from . cimport _blas
from ._core cimport *
from ._kernels cimport (
    InducingKernel, KernelGradient, KernelScratch, cross_block, diagonal_block, diagonal_gradient_block,
    gradient_block, kernel_scratch, rows_of,
)
from ._sites cimport Site, entry, evaluate
from ._tiles cimport add_outer, cholesky, cholesky_scratch, number, row_marginals, times_lower_t

# A thread works on a tile of this many rows at a time: scratch of TILE_ROWS x 100 numbers stays in a second-level cache
# of 1 MB. It is a multiple of 8, 16 and 24, the rows that BLAS kernels take at once.
TILE_ROWS = 384
# A fall of the bound by less than this share is round-off, not a step that is too long.
ROUND_OFF = 1e-11
# Halvings of a step before an ascent gives up: the natural gradient then vanishes to working precision.
MAX_HALVINGS = 12
# After this many failed steps, each of which took a pass, try a step of another bound, which unit steps cannot lower.
FALLBACK_AFTER = 3


cdef struct Tile:
    Rows rows              # of the block's rows, without features if there is no kernel
    const double* a        # (rows, m) whitened rows, or NULL where they are single
    const float* single_a  # the same in single precision, or NULL


cdef class Workspace:
    """Scratch of one thread: tiles of ``rows`` rows for m inducing points, d features and C latent functions.

    Whitened rows have room for ``n_tiles`` tiles.
    """

    def __init__(self, Py_ssize_t rows, Py_ssize_t n_inducing, Py_ssize_t n_features, Py_ssize_t n_latents=1,
                 Py_ssize_t n_tiles=1):
        self.rows, self.n_inducing, self.n_features, self.n_latents = rows, n_inducing, n_features, n_latents
        # The system allocates no pages for unused arrays (products of factors, one of the precisions).
        self.a, self.b = np.empty(n_tiles * rows * n_inducing), np.empty(rows * n_inducing)
        self.room = np.empty(rows * (n_features + 2 + 3 * n_inducing))
        self.kernel = kernel_scratch(&self.room[0], rows, n_inducing, n_features)
        self.diagonal, self.residual, self.ell = np.empty((3, rows))
        self.mean, self.variance, self.precision, self.linear = np.empty((4, rows * n_latents))
        self.site = np.empty(xg_multiclass_scratch(n_latents))
        self.triangle = np.empty(xg_triangle_scratch(rows, n_inducing))
        self.single_a = np.empty(rows * n_inducing, dtype=np.float32)
        self.single_factors = np.empty(n_latents * n_inducing**2, dtype=np.float32)


def workspace(Py_ssize_t rows, Py_ssize_t n_inducing, Py_ssize_t n_features, Py_ssize_t n_latents=1):
    """Scratch of the present thread for blocks of at most ``rows`` rows; it is reused while its shape suffices."""
    cdef dict kept = kept_by_thread()
    cdef Workspace work = kept.get("work")
    cdef Py_ssize_t tile = min(TILE_ROWS, max(1, rows))
    if (work is None or work.rows < tile or work.n_inducing != n_inducing or work.n_features != n_features
            or work.n_latents != n_latents):
        # Release the old one first: memory may not suffice for both.
        kept["work"] = work = None
        kept["work"] = work = Workspace(tile, n_inducing, n_features, n_latents)
    return work


cdef kept_numbers(str name, Py_ssize_t size):
    # Scratch of this thread for at least so many numbers: of fresh pages the system would first have to write zeros
    cdef dict kept = kept_by_thread()
    if name not in kept or len(kept[name]) < size:
        kept[name] = np.empty(max(1, size))
    return kept[name]


cdef class RowCache:
    """Memory that keeps the whitened rows of a block between calls: ``values`` (n m,) float64 or float32, which is also
    the type of the whitened rows, or (0,) to keep none; filled, in tiles, once a function has processed all rows."""
    cdef readonly object values
    cdef readonly bint is_filled
    cdef bint is_single, is_kept
    cdef double* wide
    cdef float* single

    def __init__(self, values, bint is_filled=False):
        cdef double[::1] wide
        cdef float[::1] single
        self.values, self.is_filled = values, is_filled
        self.is_single, self.is_kept = values.dtype == np.float32, len(values) > 0
        if self.is_kept and self.is_single:
            single = values
            self.single = &single[0]
        elif self.is_kept:
            wide = values
            self.wide = &wide[0]


cdef class WhitenedRows:
    """Rows a_i = L^{-1} k_m(x_i) of a block, computed tile by tile or read from their cache.

    X (n, d) is float32 or float64, with any strides; Linv (m, m) a lower triangle. Kernel, X and Linv are None if the
    cache is filled and the whitened rows explain all of the prior variance.
    """
    cdef InducingKernel kernel
    cdef const double[:, ::1] Linv
    cdef object X
    cdef Rows rows  # of X
    cdef RowCache cache
    cdef Workspace work

    def __init__(self, InducingKernel kernel, X, const double[:, ::1] Linv, RowCache cache, Workspace work):
        self.kernel, self.Linv, self.cache, self.work = kernel, Linv, cache, work
        if kernel is None:
            self.rows.n = len(cache.values) // work.n_inducing
        else:
            self.X, self.rows = X, rows_of(X)


def kept_rows(cache, str key, Py_ssize_t n_latents):
    """The whitened rows that a block's cache has for this key, if their scratch is that of the present thread."""
    cdef object known = cache.get("whitened")
    cdef WhitenedRows block
    if known is None or known[0] != key:
        return None
    block = known[1][0]
    return known[1] if block.work is kept_by_thread().get("work") and block.work.n_latents == n_latents else None


cdef int project(InducingKernel kernel, const double* Linv, const Rows* rows, Workspace work,
                 double* a) except -1 nogil:
    # tile a (n, m) = k(X, Z) L^{-T}
    cross_block(kernel, rows, &work.kernel, a)
    times_lower_t(rows.n, kernel.n_inducing, Linv, a, &work.triangle[0])


cdef int whitened(WhitenedRows block, Py_ssize_t t, Tile* tile) except -1 nogil:
    # Sets a tile of whitened rows: in the cache, which the first pass fills, or in scratch if there is no cache.
    cdef Py_ssize_t m = block.work.n_inducing
    cdef Rows here = rows_of_tile(&block.rows, t, block.work)
    cdef double* wide = &block.work.a[0] if block.cache.wide == NULL else block.cache.wide + here.start * m
    cdef float* single = NULL
    tile[0] = Tile(here, NULL, NULL)
    if block.cache.is_single:
        single = &block.work.single_a[0] if block.cache.single == NULL else block.cache.single + here.start * m
    if not block.cache.is_filled:
        project(block.kernel, &block.Linv[0, 0], &here, block.work, wide)
        if single != NULL:
            xg_narrow(here.n * m, wide, single)
        # Tiles come in order, so that the last one completes the cache.
        block.cache.is_filled = here.start + here.n == block.rows.n and block.cache.is_kept
    if single != NULL:
        tile.single_a = single
    else:
        tile.a = wide
    return 0


cdef const double* in_double(Tile tile, Workspace work) noexcept nogil:
    # The tile in double precision: itself, or in scratch.
    if tile.a != NULL:
        return tile.a
    xg_widen(tile.rows.n * work.n_inducing, tile.single_a, &work.a[0])
    return &work.a[0]


cdef void marginals_of(WhitenedRows block, Tile tile, const number* a, const number* Rinv, const double[:, ::1] w,
                       double[:, ::1] mean, double[:, ::1] variance) noexcept nogil:
    # For each class, of the tile's rows a
    cdef Py_ssize_t c, i = tile.rows.start, m = w.shape[1]
    for c in range(w.shape[0]):
        row_marginals(tile.rows.n, m, a, &w[c, 0], Rinv + c * m * m, &block.work.diagonal[0], NULL, &mean[c, i],
                      block.work.kernel.x2, &variance[c, i], &block.work.triangle[0])


cdef void narrow_factors(WhitenedRows block, const double[:, :, ::1] Rinv) noexcept nogil:
    # R^{-1} of all classes, into scratch, if whitened rows are single
    if block.cache.is_single:
        xg_narrow(Rinv.shape[0] * Rinv.shape[1] * Rinv.shape[2], &Rinv[0, 0, 0], &block.work.single_factors[0])


cdef int tile_marginals(WhitenedRows block, Tile tile, const double[:, :, ::1] Rinv, const double[:, ::1] w,
                        double[:, ::1] mean, double[:, ::1] variance) except -1 nogil:
    # Latent means and variances (C, n) of the tile's rows; single factors are those of ``narrow_factors``
    diagonal_block(block.kernel, &tile.rows, &block.work.diagonal[0])
    if tile.a != NULL:
        marginals_of(block, tile, tile.a, &Rinv[0, 0, 0], w, mean, variance)
    else:
        marginals_of(block, tile, tile.single_a, <const float*>&block.work.single_factors[0], w, mean, variance)


cdef void tile_statistics(WhitenedRows block, Tile tile, const double[:, ::1] precision, const double[:, ::1] linear,
                          double[:, :, ::1] P, double[:, ::1] h) noexcept nogil:
    # Adds the statistics of the sites of a tile, for each class: P (lower) += sum_i precision_i a_i a_i^T and
    # h += sum_i linear_i a_i
    cdef Py_ssize_t c, i = tile.rows.start, m = h.shape[1]
    cdef double* scratch = &block.work.triangle[0]
    for c in range(h.shape[0]):
        if tile.a != NULL:
            add_outer(tile.rows.n, m, tile.a, &precision[c, i], &linear[c, i], &P[c, 0, 0], &h[c, 0], scratch)
        else:
            add_outer(tile.rows.n, m, tile.single_a, &precision[c, i], &linear[c, i], &P[c, 0, 0], &h[c, 0], scratch)


# In the functions below ``groups`` has the rows whitened by each kernel: by the one of all latent functions, or by that
# of each. Group g has the functions g..g + ``per_group``.

cdef inline Py_ssize_t per_group(list groups, Py_ssize_t n_latents):
    return n_latents if len(groups) == 1 else 1


def marginals_block(list groups, const double[:, :, ::1] Rinv, const double[:, ::1] w):
    """Latent means and variances (2, C, n) under coefficients N(w_c, Rinv_c^T Rinv_c), Rinv (C, m, m) and w (C, m)."""
    cdef WhitenedRows block = groups[0]
    marginals = np.empty((2, w.shape[0], block.rows.n))
    cdef double[:, ::1] mean = marginals[0], variance = marginals[1]
    cdef Tile tile
    cdef Py_ssize_t t, g, size = per_group(groups, w.shape[0])
    for g in range(len(groups)):
        block = groups[g]
        with nogil:
            narrow_factors(block, Rinv[g:g + size])
            for t in range(tiles(block.rows.n, block.work)):
                whitened(block, t, &tile)
                tile_marginals(block, tile, Rinv[g:g + size], w[g:g + size], mean[g:g + size], variance[g:g + size])
    return marginals


cdef void add_sites(Site site, Py_ssize_t i, Py_ssize_t rows, const double[::1] y, const double[::1] weight,
                    double[:, :, ::1] values, Workspace work, double* total) noexcept nogil:
    # The sites of some rows from number i on, at their marginals in ``values``, as in ``update_block``
    cdef Py_ssize_t j, c, n = y.shape[0]
    cdef xg_moments at = xg_moments(site.n_latents, rows, n, n, &values[0, 0, i], &values[1, 0, i], &y[i])
    cdef xg_site_arrays out = xg_site_arrays(&work.ell[0], &values[2, 0, i], &values[3, 0, i])
    evaluate(site, &at, entry(weight, i), &work.site[0], &out)
    for j in range(rows):
        total[0] += work.ell[j]
    for c in range(site.n_latents):
        for j in range(i, i + rows):
            total[1] += values[2, c, j] * values[1, c, j]


def update_block(list groups, const double[:, :, ::1] Rinv, const double[:, ::1] w, Site site, const double[::1] y,
                 const double[::1] weight):
    """Marginals and sites of rows under coefficients as in ``marginals_block``, and the statistics of the next step.

    Returns means, variances, precisions and linear terms (4, C, n), the expected log likelihood of the rows, the sum of
    precisions times variances, and as ``statistics_block`` P and h.
    """
    cdef WhitenedRows block = groups[0]
    cdef Workspace work = block.work
    cdef Tile tile
    cdef Py_ssize_t t
    cdef double[2] total
    C, m = w.shape[0], w.shape[1]
    sites, P, h = np.empty((4, C, block.rows.n)), np.zeros((C, m, m)), np.zeros((C, m))
    cdef double[:, :, ::1] values = sites, sums = P
    cdef double[:, ::1] linear_sums = h
    total[0] = total[1] = 0.0
    if len(groups) == 1:
        with nogil:
            # While a tile is in a cache, all is done with it.
            narrow_factors(block, Rinv)
            for t in range(tiles(block.rows.n, work)):
                whitened(block, t, &tile)
                tile_marginals(block, tile, Rinv, w, values[0], values[1])
                add_sites(site, tile.rows.start, tile.rows.n, y, weight, values, work, total)
                tile_statistics(block, tile, values[2], values[3], sums, linear_sums)
        return sites, total[0], total[1], P, h
    sites[:2] = marginals_block(groups, Rinv, w)
    with nogil:
        for t in range(tiles(block.rows.n, work)):
            add_sites(site, t * work.rows, min(work.rows, block.rows.n - t * work.rows), y, weight, values, work, total)
    return sites, total[0], total[1], *statistics_block(groups, sites[2], sites[3])


def statistics_block(list groups, const double[:, ::1] precision, const double[:, ::1] linear):
    """The statistics of sites (C, n): P (C, m, m), lower triangles, and h (C, m)."""
    cdef WhitenedRows block = groups[0]
    cdef Py_ssize_t t, g, C = linear.shape[0], m = block.work.n_inducing, size = per_group(groups, C)
    P, h = np.zeros((C, m, m)), np.zeros((C, m))
    cdef double[:, :, ::1] sums = P
    cdef double[:, ::1] linear_sums = h
    cdef Tile tile
    for g in range(len(groups)):
        block = groups[g]
        with nogil:
            for t in range(tiles(block.rows.n, block.work)):
                whitened(block, t, &tile)
                tile_statistics(block, tile, precision[g:g + size], linear[g:g + size], sums[g:g + size],
                                linear_sums[g:g + size])
    return P, h


def products_block(list groups, const double[:, ::1] w):
    """Products w A^T (C, n) for w (C, m)."""
    cdef WhitenedRows block = groups[0]
    result = np.empty((w.shape[0], block.rows.n))
    cdef double[:, ::1] products = result
    cdef Tile tile
    cdef Py_ssize_t t, g, size = per_group(groups, w.shape[0])
    for g in range(len(groups)):
        block = groups[g]
        with nogil:
            for t in range(tiles(block.rows.n, block.work)):
                whitened(block, t, &tile)
                _blas.gemm_products(tile.rows.n, w.shape[1], size, in_double(tile, block.work), &w[g, 0],
                                    &products[g, tile.rows.start], block.rows.n)
    return result


def sums_block(list groups, const double[:, ::1] values):
    """Sums values A (C, m) for ``values`` (C, n)."""
    cdef WhitenedRows block = groups[0]
    result = np.zeros((values.shape[0], block.work.n_inducing))
    cdef double[:, ::1] sums = result
    cdef Tile tile
    cdef Py_ssize_t t, g, size = per_group(groups, values.shape[0])
    for g in range(len(groups)):
        block = groups[g]
        with nogil:
            for t in range(tiles(block.rows.n, block.work)):
                whitened(block, t, &tile)
                _blas.gemm_sums(tile.rows.n, sums.shape[1], size, in_double(tile, block.work),
                                &values[g, tile.rows.start], block.rows.n, &sums[g, 0])
    return result


def outer_sums(const double[:, :, ::1] b, const double[:, ::1] t, const double[:, ::1] s):
    """Sums over rows b (C, m, n) of C latent functions: of t b (C, m), and of s b b^T (C, m, m), lower triangles."""
    cdef Py_ssize_t c, C = b.shape[0], m = b.shape[1], n = b.shape[2]
    h, P = np.zeros((C, m)), np.zeros((C, m, m))
    cdef double[:, ::1] linear = h
    cdef double[:, :, ::1] quadratic = P
    cdef double[::1] room = kept_numbers("triangle", xg_triangle_scratch(n, m))
    with nogil:
        for c in range(C):
            add_outer(n, m, &b[c, 0, 0], &s[c, 0], &t[c, 0], &quadratic[c, 0, 0], &linear[c, 0], &room[0])
    return h, P


def moments_of_rows(const double[:, :, ::1] b, const double[:, ::1] w, const double[:, :, ::1] Rinv):
    """Means and variances (2, C, n) of b.z for rows b (C, m, n), z ~ N(w, Rinv^T Rinv)."""
    cdef Py_ssize_t c, C = b.shape[0], m = b.shape[1], n = b.shape[2]
    moments, zeros = np.empty((2, C, n)), np.zeros((2, n))
    cdef double[:, :, ::1] out = moments
    cdef double[:, ::1] rest = zeros
    cdef double[::1] room = kept_numbers("triangle", xg_triangle_scratch(n, m))
    with nogil:
        for c in range(C):
            row_marginals(n, m, &b[c, 0, 0], &w[c, 0], &Rinv[c, 0, 0], &rest[0, 0], NULL, &out[0, c, 0], &rest[1, 0],
                          &out[1, c, 0], &room[0])
    return moments


cdef int add_gradient(InducingKernel kernel, const Rows* rows, const double* by_diagonal, bint is_noise,
                      Workspace work, KernelGradient total) except -1 nogil:
    # Adds the contractions of work.b (n, m), a tile of dF / dk(X, Z), and of dF / dk(x, x) (n,), or only those with
    # respect to the noise.
    gradient_block(kernel, rows, &work.b[0], &work.kernel, &work.a[0], &total.parts)
    diagonal_gradient_block(kernel, rows, by_diagonal, is_noise, &total.parts)


def gradient_of_block(list groups, const double[:, :, ::1] M, const double[:, ::1] alpha, const double[:, ::1] w,
                      const double[:, ::1] precision, const double[:, ::1] linear):
    """A ``KernelGradient`` for each kernel: the contraction of dF / dK_nm = sum_c (r - lambda m) alpha^T + Lambda A M,
    M = (I - P^{-1}) L^{-1}, and of dF / dk_ii = -sum_c lambda / 2; m = A w. Except for the sites (C, n), the arguments
    are results of ``matrix_gradients``.
    """
    cdef WhitenedRows block = groups[0]
    cdef Workspace work = block.work
    cdef KernelGradient total
    cdef Tile tile
    cdef const double* a
    cdef Py_ssize_t t, g, i, j, c, rows, m = work.n_inducing, size = per_group(groups, w.shape[0])
    totals = []
    for g in range(len(groups)):
        block = groups[g]
        work, total = block.work, KernelGradient.empty(block.kernel)
        with nogil:
            for t in range(tiles(block.rows.n, work)):
                whitened(block, t, &tile)
                i, rows, a = tile.rows.start, tile.rows.n, in_double(tile, work)
                for c in range(g, g + size):
                    xg_means(rows, m, a, &w[c, 0], &work.mean[0])
                    _blas.gemm_tile(rows, m, m, a, &M[c, 0, 0], False, work.kernel.term)
                    for j in range(rows):
                        work.linear[j] = linear[c, i + j] - precision[c, i + j] * work.mean[j]
                        work.residual[j] = (0.0 if c == g else work.residual[j]) - 0.5 * precision[c, i + j]
                    xg_gradient_tile(rows, m, &precision[c, i], &work.linear[0], &alpha[c, 0], work.kernel.term, c > g,
                                     &work.b[0])
                add_gradient(block.kernel, &tile.rows, &work.residual[0], False, work, total)
        totals.append(total)
    return totals


def gradient_of_gram(InducingKernel kernel, const double[:, ::1] G, KernelGradient total):
    """Adds the same contraction of a symmetric G = dF / dK_mm (m, m) with k(Z, Z)."""
    cdef Py_ssize_t m = kernel.n_inducing, d = kernel.n_features
    cdef double[::1] room = kept_numbers("gram", m * (d + 2 + 4 * m))
    cdef Rows rows = rows_of(kernel.inducing_points)
    cdef KernelScratch scratch = kernel_scratch(&room[0], m, m, d)
    with nogil:
        gradient_block(kernel, &rows, &G[0, 0], &scratch, scratch.rest + m * m, &total.parts)


def kernel_gradient(InducingKernel kernel, X, const double[:, ::1] G, const double[::1] g, Workspace work,
                    KernelGradient total, bint is_noise=False):
    """Adds to ``total`` the contractions of G = dF/dk(X, Z) (n, m), and of g (n,) = dF/dk(x, x), or with ``is_noise``
    of the gradient by the noise alone."""
    cdef Rows rows = rows_of(X), here
    cdef Py_ssize_t tile, i, j, q, m = kernel.n_inducing
    with nogil:
        for tile in range(tiles(rows.n, work)):
            i, here = tile * work.rows, rows_of_tile(&rows, tile, work)
            for q in range(m):
                for j in range(here.n):
                    work.b[q * here.n + j] = G[i + j, q]
            add_gradient(kernel, &here, &g[i], is_noise, work, total)


cpdef double tolerance_unit(double bound) noexcept nogil:
    """The unit of tolerances: one nat, or a thousandth of the bound if that is more."""
    return max(1.0, 1e-3 * fabs(bound))


include "_full_process.pxi"
include "_gaussian.pxi"
