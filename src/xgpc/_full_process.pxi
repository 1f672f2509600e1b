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


cdef inline void symmetric_tile(const double[:, ::1] S, Py_ssize_t start, Py_ssize_t rows, double* tile) noexcept nogil:
    # tile (rows, n) = rows start.. of the symmetric S: a tile is column-major
    cdef Py_ssize_t j
    for j in range(S.shape[0]):
        memcpy(tile + j * rows, &S[j, start], rows * sizeof(double))


def full_variances(const double[:, ::1] K, const Py_ssize_t[::1] index, const double[:, ::1] H, Workspace work):
    """Latent variances K_ii - |H k_i|^2 of some training rows, in their order, from the covariance matrix K (n, n)."""
    variances = np.empty(index.shape[0])
    cdef double[::1] variance = variances
    cdef Py_ssize_t tile, i, j, k, rows, n = K.shape[0]
    cdef double* tile_k = &work.a[0]
    with nogil:
        for tile in range(tiles(0, index.shape[0], work)):
            i = tile * work.rows
            rows = min(work.rows, index.shape[0] - i)
            for k in range(n):
                for j in range(rows):
                    tile_k[k * rows + j] = K[k, index[i + j]]
            _blas.trmm_lower_t(rows, n, &H[0, 0], tile_k)
            xg_squared_norms(rows, n, tile_k, &work.x2[0])
            for j in range(rows):
                variance[i + j] = max(K[index[i + j], index[i + j]] - work.x2[j], 0.0)
    return variances


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
            subtract_explained(n, here.n, &work.a[0], &H[0, 0], N, &work.b[0], &work.x2[0], &variance[i])
    return marginals


def full_gradient(InducingKernel kernel, Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] G,
                  const double[::1] by_noise, Workspace work, KernelGradient total):
    """Adds to ``total`` the contraction of rows start..stop of the symmetric dF / dK = G, and of the gradient (n,) by
    their noise, for the kernel at the training rows."""
    cdef Rows here
    cdef Py_ssize_t tile, i
    with nogil:
        for tile in range(tiles(start, stop, work)):
            i = start + tile * work.rows
            here = rows_from(inducing_rows(kernel), i, min(work.rows, stop - i))
            symmetric_tile(G, i, here.n, &work.b[0])
            add_gradient(kernel, &here, &by_noise[i], True, work, total)
