# Part of _engine.pyx: functions of (m, m) matrices, which read no rows: the normal distribution q(z) = N(w, P^{-1}),
# its divergence from another one, and the factors and gradients of K_mm.

def matrix_gradients(list kernels, list inverses, const double[::1] jitter, const double[:, :, ::1] Rinv,
                     const double[:, :, ::1] P, const double[:, ::1] h, const double[:, ::1] w):
    """What does not depend on single rows in the gradient of the bound at fixed q(u), for sites with the sums P (lower)
    and h: M_c = (I - P_q^{-1}) L^{-1} (C, m, m) and alpha_c = L^{-T} w_c (C, m) of each latent function, and for each
    kernel the ``gradient_of_gram`` of G = dF/dK_mm.

    There is one kernel, or one for each latent function, with L^{-1} in ``inverses``. With S = P - I and e = h - S w,
    G = -L^{-T} [e w^T + w e^T - w w^T + S - P_q^{-1} S - S P_q^{-1} - P_q^{-1} + I] L^{-1} / 2, summed over the
    functions of the kernel. The jitter of each kernel, relative to the mean diagonal, is included in G. O(C m^3).
    """
    cdef Py_ssize_t c, g, i, j, C = w.shape[0], m = w.shape[1], size = per_group(kernels, C)
    rows, vectors, totals = np.array(Rinv), np.array(w), []
    cdef double[:, :, ::1] M = rows
    cdef double[:, ::1] alpha = vectors, G = np.empty((m, m)), S = np.empty((m, m)), product = np.empty((m, m))
    cdef const double[:, ::1] Linv
    cdef double[::1] e = np.empty(m)
    cdef double trace, value
    for g in range(len(kernels)):
        Linv = inverses[g]
        with nogil:
            G[:] = 0.0
            trace = 0.0
            for c in range(g, g + size):
                for i in range(m):
                    for j in range(i + 1):
                        S[i, j] = S[j, i] = P[c, i, j] - (1.0 if i == j else 0.0)
                square(m, &M[c, 0, 0])
                _blas.gemm_tile(m, m, m, &S[0, 0], &M[c, 0, 0], False, &product[0, 0])
                for i in range(m):
                    e[i] = h[c, i]
                    for j in range(m):
                        e[i] -= S[i, j] * w[c, j]
                for i in range(m):
                    for j in range(i + 1):
                        value = M[c, i, j] - (1.0 if i == j else 0.0)
                        G[i, j] -= 0.5 * (e[i] * w[c, j] + w[c, i] * e[j] - w[c, i] * w[c, j] + S[i, j]
                                          - product[i, j] - product[j, i] - value)
                        M[c, i, j] = M[c, j, i] = -value
                _blas.trmm_lower_right(m, &Linv[0, 0], &M[c, 0, 0])
                _blas.trmv_upper(m, &Linv[0, 0], &alpha[c, 0])
            for i in range(m):
                for j in range(i):
                    G[j, i] = G[i, j]
            _blas.trmm_lower(m, m, &Linv[0, 0], &G[0, 0])
            _blas.trmm_lower_right(m, &Linv[0, 0], &G[0, 0])
            for i in range(m):
                trace += G[i, i]
            for i in range(m):
                G[i, i] += jitter[g] * trace / m
        total = KernelGradient.empty(kernels[g])
        gradient_of_gram(kernels[g], G, total)
        totals.append(total)
    return rows, vectors, totals


cdef void square(Py_ssize_t m, double* lower) noexcept nogil:
    # a lower triangular matrix A <- A^T A
    cdef Py_ssize_t i, j
    _blas.lauum_lower(m, lower)
    for i in range(m):
        for j in range(i):
            lower[j * m + i] = lower[i * m + j]


def squared(lower):
    """A^T A of a lower triangular matrix A (m, m)."""
    matrix = np.array(lower)
    cdef double[:, ::1] A = matrix
    with nogil:
        square(A.shape[0], &A[0, 0])
    return matrix


cdef bint is_finite_factor(Py_ssize_t m, const double* inverse) noexcept nogil:
    # LAPACK does not report all NaN and infinities: NaN reach the last row, and infinities are on the diagonal.
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(m):
        total += 0.0 * inverse[(m - 1) * m + i] + 0.0 / inverse[i * m + i]
    return total == 0.0


def means(const double[:, :, ::1] Rinv, const double[:, :] h):
    """Rinv^T Rinv h (C, m) of lower triangles (C, m, m)."""
    cdef Py_ssize_t c, i, j
    cdef double product
    products = np.zeros((h.shape[0], h.shape[1]))
    cdef double[:, ::1] w = products
    with nogil:
        for c in range(h.shape[0]):
            for i in range(h.shape[1]):
                product = 0.0
                for j in range(i + 1):
                    product += Rinv[c, i, j] * h[c, j]
                for j in range(i + 1):
                    w[c, j] += Rinv[c, i, j] * product
    return products


def gaussian(natural_P, natural_h, before):
    """q = N(w_c, P_c^{-1}) with natural parameters P (C, m, m), of which the lower triangles are read, and h (C, m).

    Returns P with zeros above the diagonals, R^{-1} with P = R R^T, w, and the ``divergence`` from ``before``; None if
    a matrix is not positive definite. O(C m^3)."""
    cdef Py_ssize_t c, i, j, m = natural_P.shape[1]
    lower, inverses = np.zeros(natural_P.shape), np.empty(natural_P.shape)
    cdef const double[:, :, :] P = natural_P
    cdef double[:, :, ::1] copied = lower, Rinv = inverses
    cdef double[::1] room = kept_numbers("cholesky", cholesky_scratch(m))
    cdef bint is_definite = True
    with nogil:
        for c in range(P.shape[0]):
            for i in range(m):
                for j in range(i + 1):
                    copied[c, i, j] = P[c, i, j]
            is_definite = (is_definite and cholesky(m, &copied[c, 0, 0], NULL, &Rinv[c, 0, 0], &room[0]) == 0
                           and is_finite_factor(m, &Rinv[c, 0, 0]))
    if not is_definite:
        return None
    mean = means(inverses, natural_h)
    return lower, inverses, mean, *divergence(inverses, mean, before)


def divergence(const double[:, :, ::1] Rinv, const double[:, ::1] w, other):
    """KL(q || other) in nats, and the sum of (w_c - v_c)^T P_c (w_c - v_c), for q = N(w_c, Rinv_c^T Rinv_c) of C latent
    functions and other = N(v_c, P_c^{-1}), given as (P, its ``Rinv``, v); None means N(0, I). O(C m^3), or O(C m^2) for
    N(0, I)."""
    cdef const double[:, :, ::1] P, inverse
    cdef const double[:, ::1] v
    cdef double* covariance
    cdef double[::1] room
    cdef Py_ssize_t c, i, j, C = w.shape[0], m = w.shape[1]
    cdef double trace = 0.0, distance = 0.0, log_det = 0.0, of_row, difference
    if other is None:
        with nogil:
            for c in range(C):
                for i in range(m):
                    distance += w[c, i] * w[c, i]
                    log_det += log(Rinv[c, i, i])
                    for j in range(i + 1):
                        trace += Rinv[c, i, j] * Rinv[c, i, j]
        return 0.5 * (trace - C * m + distance) - log_det, distance
    P, inverse, v = other
    room = kept_numbers("covariance", m * m)
    covariance = &room[0]
    with nogil:
        for c in range(C):
            memcpy(covariance, &Rinv[c, 0, 0], m * m * sizeof(double))
            _blas.lauum_lower(m, covariance)
            for i in range(m):
                difference, of_row = v[c, i] - w[c, i], 0.0
                log_det += log(Rinv[c, i, i] / inverse[c, i, i])
                for j in range(i):
                    of_row += P[c, i, j] * (v[c, j] - w[c, j])
                    trace += 2.0 * P[c, i, j] * covariance[i * m + j]
                trace += P[c, i, i] * covariance[i * m + i]
                distance += difference * (2.0 * of_row + P[c, i, i] * difference)
    return 0.5 * (trace - C * m + distance) - log_det, distance


def first_order_gain(const double[:, :, ::1] P, const double[:, ::1] h, const double[:, :, ::1] Rinv,
                     const double[:, ::1] w, const double[:, :, :] target_P, const double[:, :] target_h,
                     const double[:, :, ::1] other_Rinv, const double[:, ::1] other_w):
    """See ``PosteriorOperations.first_order_gain``, for q with natural parameters P and h and sites that make those of
    ``target``: lower triangles (C, m, m) and (C, m). O(C m^3)."""
    cdef Py_ssize_t c, i, j, m = w.shape[1]
    cdef double[::1] room = kept_numbers("covariance", 2 * m * m)
    cdef double* covariance = &room[0]
    cdef double* other = covariance + m * m
    cdef double gain = 0.0, missing, step
    with nogil:
        for c in range(w.shape[0]):
            memcpy(covariance, &Rinv[c, 0, 0], m * m * sizeof(double))
            memcpy(other, &other_Rinv[c, 0, 0], m * m * sizeof(double))
            _blas.lauum_lower(m, covariance)
            _blas.lauum_lower(m, other)
            for i in range(m):
                step = other_w[c, i] - w[c, i]
                gain += (target_h[c, i] - h[c, i]) * step
                for j in range(i + 1):
                    missing = (0.5 if i == j else 1.0) * (target_P[c, i, j] - P[c, i, j])
                    gain -= missing * (w[c, j] * step + w[c, i] * (other_w[c, j] - w[c, j])
                                       + other[i * m + j] - covariance[i * m + j])
    return gain


def inducing_factors(InducingKernel kernel, double least, Py_ssize_t n_jitters):
    """(L, L^{-1}, jitter) with L L^T = k(Z, Z) + jitter times its mean diagonal, and the first of ``least``, ten times
    ``least``, ... with which the matrix is positive definite; None if none of so many is enough. O(m^3)."""
    cdef Py_ssize_t i, j, m = kernel.n_inducing
    cdef const double[:, ::1] gram = kernel.cross(kernel.inducing_points)
    symmetric = np.empty((m, m))
    cdef double[:, ::1] lower = symmetric
    cdef double mean = 0.0
    for i in range(m):
        mean += gram[i, i] / m
        for j in range(i):
            lower[i, j] = 0.5 * (gram[i, j] + gram[j, i])
    for _ in range(n_jitters):
        for i in range(m):
            lower[i, i] = gram[i, i] + least * mean
        factors = cholesky_and_inverse(symmetric)
        if factors is not None:
            return *factors, least
        least *= 10.0
    return None


def cholesky_and_inverse(matrices):
    """Lower Cholesky factors of symmetric matrices (m, m) or (C, m, m), of which only the lower triangles are read, and
    the factors' inverses; None if a matrix is not positive definite. O(C m^3).
    """
    cdef Py_ssize_t c, m = matrices.shape[matrices.ndim - 1]
    cdef const double[:, :, ::1] matrix = np.ascontiguousarray(matrices).reshape(-1, m, m)
    factors, inverses = np.empty((2, *matrices.shape))
    cdef double[:, :, ::1] factor = factors.reshape(-1, m, m), inverse = inverses.reshape(-1, m, m)
    cdef double[::1] room = kept_numbers("cholesky", cholesky_scratch(m))
    cdef bint is_definite = True
    with nogil:
        for c in range(matrix.shape[0] if m else 0):
            if cholesky(m, &matrix[c, 0, 0], &factor[c, 0, 0], &inverse[c, 0, 0], &room[0]):
                is_definite = False
                break
            is_definite = is_definite and is_finite_factor(m, &inverse[c, 0, 0])
    return (factors, inverses) if is_definite else None
