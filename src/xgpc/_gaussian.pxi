# Part of _engine.pyx: functions of (m, m) matrices, which read no rows: the normal distribution q(z) = N(w, P^{-1}),
# its divergence from another one, and the factors and gradients of K_mm.

def matrix_gradients(groups, const double[:, :, ::1] Rinv, const double[:, :, ::1] P, const double[:, ::1] h,
                     const double[:, ::1] w):
    """What does not depend on single rows in the gradient of the bound at fixed q(u), for sites with the sums P (lower)
    and h: M_c = D L^{-1} (C, m, m) with D = I - P_q^{-1}, and alpha_c = L^{-T} w_c (C, m) of each latent function, and
    for each kernel the ``gradient_of_gram`` of G = dF/dK_mm.

    ``groups`` has a prior for all latent functions, or one for each. With S = P - I and e = h - S w, G = -L^{-T} [e w^T
    + w e^T - w w^T + S D + D S - S + D] L^{-1} / 2, summed over the functions of the kernel. The jitter of each kernel,
    relative to the mean diagonal, is included in G. O(C m^3).
    """
    cdef Py_ssize_t c, g, i, j, C = w.shape[0], m = w.shape[1], size = C if len(groups) == 1 else 1
    rows, vectors, gradients = np.array(Rinv), np.array(w), []
    cdef double[:, :, ::1] M = rows
    cdef double[:, ::1] alpha = vectors, e = np.empty((C, m)), S = np.empty((m, m)), T = np.empty((m, m))
    cdef double[:, ::1] total = np.empty((m, m))
    cdef const double[:, ::1] Linv
    cdef double trace, jitter
    for g in range(len(groups)):
        Linv, jitter = groups[g].Linv, groups[g].jitter
        with nogil:
            trace = 0.0
            for c in range(g, g + size):
                square(m, &M[c, 0, 0])
                for i in range(m):
                    for j in range(m):
                        M[c, i, j] = -M[c, i, j]
                    M[c, i, i] += 1.0
                    for j in range(i + 1):
                        S[i, j] = S[j, i] = P[c, i, j] - (1.0 if i == j else 0.0)
                _blas.trmm_lower_right(m, &Linv[0, 0], &M[c, 0, 0])
                # L^{-T} [S (2 M - L^{-1}) + M] has the symmetric part L^{-T} [S D + D S - S + D] L^{-1}.
                for i in range(m):
                    for j in range(m):
                        T[i, j] = 2.0 * M[c, i, j] - Linv[i, j]
                _blas.gemm(b"N", b"T", m, m, m, &T[0, 0], m, &S[0, 0], m, 0.0 if c == g else 1.0, &total[0, 0], m)
                xg_means(m, m, &S[0, 0], &w[c, 0], &e[c, 0])
                for i in range(m):
                    e[c, i] = h[c, i] - e[c, i]
                    for j in range(m):
                        total[i, j] += M[c, i, j]
                _blas.trmv(m, &Linv[0, 0], True, &alpha[c, 0])
                _blas.trmv(m, &Linv[0, 0], True, &e[c, 0])
            _blas.trmm_lower(m, m, &Linv[0, 0], &total[0, 0])
            for c in range(g, g + size):
                for i in range(m):
                    for j in range(m):
                        total[i, j] += (e[c, i] - alpha[c, i]) * alpha[c, j] + alpha[c, i] * e[c, j]
            for i in range(m):
                trace += total[i, i]
                for j in range(i + 1):
                    total[i, j] = total[j, i] = -0.25 * (total[i, j] + total[j, i])
            for i in range(m):
                total[i, i] -= 0.5 * jitter * trace / m
        gradient = KernelGradient.empty(groups[g].core)
        gradient_of_gram(groups[g].core, total, gradient)
        gradients.append(gradient)
    return rows, vectors, gradients


cdef void square(Py_ssize_t m, double* lower) noexcept nogil:
    # a lower triangular matrix A <- A^T A
    cdef Py_ssize_t i, j
    _blas.lauum_lower(m, lower)
    for i in range(m):
        for j in range(i):
            lower[j * m + i] = lower[i * m + j]


cdef bint is_finite_factor(Py_ssize_t m, const double* inverse) noexcept nogil:
    # LAPACK does not report all NaN and infinities: NaN reach the last row, and infinities are on the diagonal.
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(m):
        total += 0.0 * inverse[(m - 1) * m + i] + 0.0 / inverse[i * m + i]
    return total == 0.0


def means(const double[:, :, ::1] Rinv, h):
    """Rinv^T Rinv h (C, m) of lower triangles (C, m, m)."""
    cdef const double[:, ::1] linear = np.ascontiguousarray(h)
    cdef Py_ssize_t c, i, j
    cdef double product
    products = np.zeros((linear.shape[0], linear.shape[1]))
    cdef double[:, ::1] w = products
    with nogil:
        for c in range(linear.shape[0]):
            for i in range(linear.shape[1]):
                product = _blas.dot(i + 1, &Rinv[c, i, 0], &linear[c, 0])
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


def divergence(const double[:, :, ::1] Rinv, const double[:, ::1] w, other, double enough=INFINITY):
    """KL(q || other) in nats, and the sum of (w_c - v_c)^T P_c (w_c - v_c), for q = N(w_c, Rinv_c^T Rinv_c) of C latent
    functions and other = N(v_c, P_c^{-1}), a posterior with P, Rinv and w; None means N(0, I). O(C m^3), or O(C m^2)
    for N(0, I), and where half of that sum is at least ``enough``: it is then in the place of KL, which is no less."""
    cdef const double[:, :, ::1] P, inverse
    cdef const double[:, ::1] v
    cdef double* covariance
    cdef double[::1] room
    cdef Py_ssize_t c, i, C = w.shape[0], m = w.shape[1]
    cdef double trace = 0.0, distance = 0.0, log_det = 0.0
    if other is None:
        with nogil:
            for c in range(C):
                distance += _blas.dot(m, &w[c, 0], &w[c, 0])
                for i in range(m):
                    log_det += log(Rinv[c, i, i])
                    trace += _blas.dot(i + 1, &Rinv[c, i, 0], &Rinv[c, i, 0])
        return 0.5 * (trace - C * m + distance) - log_det, distance
    P, inverse, v = other.P, other.Rinv, other.w
    room = kept_numbers("covariance", m * m + m)
    covariance = &room[m]
    with nogil:
        for c in range(C):
            for i in range(m):
                room[i] = v[c, i] - w[c, i]
                distance += room[i] * (2.0 * _blas.dot(i, &P[c, i, 0], &room[0]) + P[c, i, i] * room[i])
        for c in range(C if 0.5 * distance < enough else 0):
            memcpy(covariance, &Rinv[c, 0, 0], m * m * sizeof(double))
            _blas.lauum_lower(m, covariance)
            for i in range(m):
                log_det += log(Rinv[c, i, i] / inverse[c, i, i])
                trace += 2.0 * _blas.dot(i, &P[c, i, 0], covariance + i * m) + P[c, i, i] * covariance[i * m + i]
    if not 0.5 * distance < enough:
        return 0.5 * distance, distance
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
