# Part of _engine.pyx: a full Gaussian process, whose inducing points are all rows.

cdef void subtract_explained(Py_ssize_t n, Py_ssize_t rows, double* k, const double* H, const double[:, ::1] N,
                             double* scratch, double* norms, double* variance) noexcept nogil:
    # variance (rows,) holds k(x, x); tile k (rows, n) is overwritten, tile scratch and norms (rows,) are scratch
    cdef Py_ssize_t i, negative = N.shape[0]
    if negative:
        _blas.gemm_tile(rows, negative, n, k, &N[0, 0], True, scratch)
    _blas.trmm_lower_t(rows, n, H, k)
    xg_squared_norms(rows, n, k, norms)
    for i in range(rows):
        variance[i] = max(variance[i] - norms[i], 0.0)
    if negative:
        xg_squared_norms(rows, negative, scratch, norms)
        for i in range(rows):
            variance[i] += norms[i]


def full_factors(const double[:, ::1] K, const double[::1] precision):
    """H (n, n), lower, diag(I - B^{-1}) (n,) and log |B| / 2 for B = I + S K S and H^T H = S B^{-1} S, with the roots S
    of precisions (n,), of negative ones as of zeros; None if B is not finite. O(n^3)."""
    cdef Py_ssize_t i, j, n = K.shape[0]
    lower, parts, roots = np.empty((n, n)), np.empty(n), np.sqrt(np.maximum(precision, 0.0))
    cdef double[:, ::1] H = lower
    cdef double[::1] explained = parts, root = roots, room = kept_numbers("cholesky", cholesky_scratch(n))
    cdef double half_log_det = 0.0
    cdef bint is_definite
    with nogil:
        for i in range(n):
            explained[i] = 1.0
            for j in range(i + 1):
                H[i, j] = root[i] * K[i, j] * root[j]
            H[i, i] += 1.0
        is_definite = cholesky(n, &H[0, 0], NULL, &H[0, 0], &room[0]) == 0 and is_finite_factor(n, &H[0, 0])
        for i in range(n if is_definite else 0):
            half_log_det -= log(H[i, i])
            for j in range(i + 1):
                explained[j] -= H[i, j] * H[i, j]
                H[i, j] *= root[j]
    return (lower, parts, half_log_det) if is_definite else None


def full_marginals(InducingKernel kernel, X, const double[:, ::1] H, const double[:, ::1] N, const double[::1] alpha,
                   Workspace work):
    """Latent means k . alpha and variances (2, rows) of the rows of X, for the kernel at the training rows."""
    marginals = np.empty((2, len(X)))
    cdef double[::1] mean = marginals[0], variance = marginals[1]
    cdef Rows rows = rows_of(X), here
    cdef Py_ssize_t tile, i, n = kernel.n_inducing
    with nogil:
        for tile in range(tiles(0, rows.n, work)):
            i = tile * work.rows
            here = rows_from(rows, i, min(work.rows, rows.n - i))
            cross_block(kernel, &here, &work.kernel, &work.a[0])
            diagonal_block(kernel, &here, &variance[i])
            xg_means(here.n, n, &work.a[0], &alpha[0], &mean[i])
            subtract_explained(n, here.n, &work.a[0], &H[0, 0], N, &work.b[0], work.kernel.x2, &variance[i])
    return marginals


def full_gradient(InducingKernel kernel, Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] G,
                  const double[::1] by_noise, Workspace work, KernelGradient total):
    """Adds to ``total`` the contraction of rows start..stop of the symmetric dF / dK = G, and of the gradient (n,) by
    their noise, for the kernel at the training rows."""
    cdef Rows here
    cdef Py_ssize_t tile, i, j
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            here = rows_from(inducing_rows(kernel), i, min(work.rows, stop - i))
            # These rows of the symmetric G: a tile is column-major.
            for j in range(G.shape[0]):
                memcpy(&work.b[j * here.n], &G[j, i], here.n * sizeof(double))
            add_gradient(kernel, &here, &by_noise[i], True, work, total)
