# Part of _engine.pyx: a full Gaussian process, whose inducing points are all rows.

cdef enum:
    # Variances that sites reduce little are computed from K, for so many rows at a time.
    HARDLY_ROWS = 64
# v = (1 - diag(B^{-1})) / lambda is used where lambda v is above this; below, rounding would cost v more than three
# digits.
cdef double LEAST_EXPLAINED = 1e-3


cdef double[::1] room_for_factor(Py_ssize_t n):
    # Scratch of ``full_factor``: that of ``cholesky``, the roots, and HARDLY_ROWS columns of K.
    return kept_numbers("full factor", cholesky_scratch(n) + (1 + HARDLY_ROWS) * n)


cdef bint full_factor(const double[:, ::1] K, const double* precision, double* H, double* variance,
                      double* half_log_det, double* room) noexcept nogil:
    # Computes H (n, n), lower, the variances (n,) of q, and log |B| / 2 for B = I + S K S and H^T H = S B^{-1} S, with
    # the roots S of precisions (n,), of negative ones as of zeros; False if B is not finite. O(n^3)
    cdef Py_ssize_t i, j, rows = 0, n = K.shape[0]
    cdef double* root = room + cholesky_scratch(n)
    cdef double* k = root + n
    cdef double[HARDLY_ROWS] norms
    cdef Py_ssize_t[HARDLY_ROWS] hardly
    for i in range(n):
        root[i], variance[i] = sqrt(max(precision[i], 0.0)), 1.0
        for j in range(i + 1):
            H[i * n + j] = root[i] * K[i, j] * root[j]
        H[i * n + i] += 1.0
    if cholesky(n, H, NULL, H, room) or not is_finite_factor(n, H):
        return False
    half_log_det[0] = 0.0
    for i in range(n):
        half_log_det[0] -= log(H[i * n + i])
        for j in range(i + 1):
            variance[j] -= H[i * n + j] * H[i * n + j]
            H[i * n + j] *= root[j]
    for i in range(n):
        if variance[i] > LEAST_EXPLAINED:
            variance[i] /= precision[i]
        else:
            hardly[rows] = i
            rows += 1
        if rows == HARDLY_ROWS or (rows and i == n - 1):
            for j in range(n * rows):
                k[j] = K[hardly[j % rows], j // rows]
            _blas.trmm_lower_t(rows, n, H, k)
            xg_squared_norms(rows, n, k, norms)
            for j in range(rows):
                variance[hardly[j]] = max(K[hardly[j], hardly[j]] - norms[j], 0.0)
            rows = 0
    return True


cdef struct FullState:
    # A posterior q: its sites, variance, mean and alpha at the distinct rows (n,), and H; ``next_...`` are the sites at
    # its marginals; ``total`` is the sum of ell.
    double* precision
    double* linear
    double* variance
    double* mean
    double* alpha
    double* next_precision
    double* next_linear
    double* H
    double half_log_det, total, bound


cdef FullState full_state(double[:, ::1] vectors, double[:, ::1] H) noexcept:
    return FullState(&vectors[0, 0], &vectors[1, 0], &vectors[2, 0], &vectors[3, 0], &vectors[4, 0], &vectors[5, 0],
                     &vectors[6, 0], &H[0, 0], 0.0, 0.0, 0.0)


cdef bint solve(const double[:, ::1] K, FullState* q, double* room) noexcept nogil:
    # Computes q from its sites; False if B is not finite.
    cdef Py_ssize_t i, n = K.shape[0]
    if not full_factor(K, q.precision, q.H, q.variance, &q.half_log_det, room):
        return False
    for i in range(n):
        q.alpha[i] = _blas.dot(n, &K[i, 0], q.linear)
    _blas.trmv(n, q.H, False, q.alpha)
    _blas.trmv(n, q.H, True, q.alpha)
    for i in range(n):
        q.alpha[i] = q.linear[i] - q.alpha[i]
    for i in range(n):
        q.mean[i] = _blas.dot(n, &K[i, 0], q.alpha)
    return True


def full_posterior(const double[:, ::1] K, precision, linear):
    """q from sites (n,) of the distinct rows, negative precisions as zeros: H (n, n), lower, with H^T H = M; variance,
    mean and alpha, (3, n); and log |B| / 2. None if B is not finite. O(n^3)."""
    cdef Py_ssize_t n = K.shape[0]
    vectors, factor = np.empty((7, n)), np.empty((n, n))
    cdef FullState q = full_state(vectors, factor)
    cdef double[::1] room = room_for_factor(n)
    cdef bint is_finite
    vectors[0], vectors[1] = precision, linear
    with nogil:
        is_finite = solve(K, &q, &room[0])
    return (factor, vectors[2:5], q.half_log_det) if is_finite else None


cdef void evaluate_full(const double[::1] noise, const Py_ssize_t[::1] places, Site site, const double[::1] y,
                        const double[::1] weight, double[:, ::1] room, FullState* q) noexcept nogil:
    # The sites at q's marginals, and the bound; ``room`` (5, rows) is scratch.
    cdef Py_ssize_t i, n_rows = y.shape[0]
    cdef xg_moments at = xg_moments(1, n_rows, n_rows, n_rows, &room[0, 0], &room[1, 0], &y[0])
    cdef xg_site_arrays out = xg_site_arrays(&room[2, 0], &room[3, 0], &room[4, 0])
    for i in range(n_rows):
        room[0, i], room[1, i] = q.mean[places[i]], q.variance[places[i]] + noise[places[i]]
    evaluate(site, &at, entry(weight, 0), NULL, &out)
    q.total, q.bound = 0.0, -q.half_log_det
    for i in range(noise.shape[0]):
        q.next_precision[i] = q.next_linear[i] = 0.0
        q.bound -= 0.5 * (q.alpha[i] * q.mean[i] - q.precision[i] * q.variance[i])
    for i in range(n_rows):
        q.total += room[2, i]
        q.next_precision[places[i]] += room[3, i]
        q.next_linear[places[i]] += room[4, i]
    q.bound += q.total


cdef double full_divergence(Py_ssize_t n, const FullState* q, const FullState* other) noexcept nogil:
    # KL(q || other) of two posteriors under one prior.
    cdef Py_ssize_t i
    cdef double total = 2.0 * (q.half_log_det - other.half_log_det), step
    for i in range(n):
        step = other.mean[i] - q.mean[i]
        total += (other.precision[i] - q.precision[i]) * q.variance[i]
        total += (other.alpha[i] - q.alpha[i] + other.precision[i] * step) * step
    return 0.5 * total


cdef void towards(Py_ssize_t n, double rate, const double* start, const double* end, double* between) noexcept nogil:
    # ``end`` itself if the rate is 1
    cdef Py_ssize_t i
    for i in range(n):
        between[i] = end[i] if rate == 1.0 else start[i] + rate * (end[i] - start[i])


def full_ascent(const double[:, ::1] K, const double[::1] noise, const Py_ssize_t[::1] places, Site site, safe_site,
                const double[::1] y, const double[::1] weight, start, start_H, double start_half_log_det, double tol,
                Py_ssize_t max_iter, has_passed):
    """``coordinate_ascent`` for one latent function and sites of positive precision.

    ``start`` (5, 1, n) has precision, linear term, variance, mean and alpha of q at the distinct rows; row i equals the
    distinct row ``places[i]``. ``safe_site`` makes the site of a bound that unit steps cannot lower, or is None.
    Returns those of the last q, precision and linear term of its sites, (7, 1, n), its H, log |B| / 2, the sum of ell,
    the bound, the number of steps, and whether the ascent has converged. O(n^3) for each step.
    """
    cdef Py_ssize_t s, n = K.shape[0], n_steps = 0, failures = 0
    vectors, factors, scratch = np.empty((2, 7, 1, n)), [np.array(start_H), np.empty((n, n))], np.empty((5, len(y)))
    cdef double[:, :, ::1] v = vectors[:, :, 0]
    cdef double[:, ::1] rows = scratch
    cdef double[::1] room = room_for_factor(n)
    cdef FullState q, trial
    cdef Site fallback = None
    cdef double gain, least, rate = 1.0
    cdef bint is_proper, is_safe, is_round_off, is_end = False, converged = False
    vectors[0, :5] = start
    q, trial = full_state(v[0], factors[0]), full_state(v[1], factors[1])
    q.half_log_det = start_half_log_det
    evaluate_full(noise, places, site, y, weight, rows, &q)
    while not is_end and n_steps < max_iter and not (has_passed() and _blas.dot(n, q.linear, q.linear) > 0.0):
        least, gain = tol * tolerance_unit(q.bound), -INFINITY
        is_safe = failures == FALLBACK_AFTER and safe_site is not None
        if is_safe:
            fallback = safe_site()
        with nogil:
            if is_safe:
                # For this step alone q has the sites of the other bound.
                evaluate_full(noise, places, fallback, y, weight, rows, &q)
            towards(n, 1.0 if is_safe else rate, q.precision, q.next_precision, trial.precision)
            towards(n, 1.0 if is_safe else rate, q.linear, q.next_linear, trial.linear)
            if is_safe:
                evaluate_full(noise, places, site, y, weight, rows, &q)
            is_proper = solve(K, &trial, &room[0])
            # KL(q, trial) is the gain of a unit step of a conjugate bound.
            if is_proper and not failures and rate == 1.0 and full_divergence(n, &q, &trial) < least:
                converged = True
                break
            if is_proper:
                evaluate_full(noise, places, site, y, weight, rows, &trial)
                gain = trial.bound - q.bound
        n_steps += 1
        if gain >= 0.0:
            q, trial = trial, q
            is_end = converged = gain / rate < tol * tolerance_unit(q.bound)
            rate, failures = min(1.0, 2.0 * rate), 0
        else:
            is_round_off = gain >= -ROUND_OFF * max(1.0, fabs(q.bound))
            is_end = is_round_off or failures == MAX_HALVINGS
            converged = is_round_off or (is_end and -gain < least)
            rate, failures = 0.5 * rate, failures + 1
    s = q.mean == &v[1, 3, 0]
    return vectors[s], factors[s], q.half_log_det, q.total, q.bound, n_steps, converged


def full_marginals(InducingKernel kernel, X, const double[:, ::1] H, const double[:, ::1] N, const double[::1] alpha,
                   Workspace work):
    """Means k.alpha and variances k(x, x) - |H k|^2 + |N k|^2, (2, rows), of the rows of X; the kernel is that at the
    training rows."""
    marginals = np.empty((2, len(X)))
    cdef double[::1] mean = marginals[0], variance = marginals[1]
    cdef Rows rows = rows_of(X), here
    cdef double* k = &work.a[0]
    cdef double* norms = work.kernel.x2
    cdef Py_ssize_t tile, i, j, n = kernel.n_inducing, negative = N.shape[0]
    with nogil:
        for tile in range(tiles(rows.n, work)):
            i, here = tile * work.rows, rows_of_tile(&rows, tile, work)
            cross_block(kernel, &here, &work.kernel, k)
            diagonal_block(kernel, &here, &variance[i])
            xg_means(here.n, n, k, &alpha[0], &mean[i])
            if negative:
                _blas.gemm_tile(here.n, negative, n, k, &N[0, 0], True, &work.b[0])
            _blas.trmm_lower_t(here.n, n, &H[0, 0], k)
            xg_squared_norms(here.n, n, k, norms)
            for j in range(here.n):
                variance[i + j] = max(variance[i + j] - norms[j], 0.0)
            if negative:
                xg_squared_norms(here.n, negative, &work.b[0], norms)
                for j in range(here.n):
                    variance[i + j] += norms[j]
    return marginals


def full_covariance(InducingKernel kernel):
    """k(Z, Z) (n, n) without noise, and the noise (n,) at the rows Z; None if they are not finite. O(n^2 d)."""
    matrix = kernel.cross(kernel.inducing_points)
    latent, noise = kernel.parts_of_diagonal(kernel.inducing_points)
    cdef double[:, ::1] K = matrix
    cdef const double[::1] diagonal = latent, variance = noise
    cdef Py_ssize_t i, j
    cdef double total = 0.0
    with nogil:
        for i in range(K.shape[0]):
            K[i, i] = diagonal[i]
            total += 0.0 * diagonal[i] + 0.0 * variance[i]
            for j in range(i):
                K[i, j] = K[j, i] = 0.5 * (K[i, j] + K[j, i])
                total += 0.0 * K[i, j]
    return (matrix, noise) if total == 0.0 else None


def gradient_by_covariance(const double[:, ::1] alpha, factors):
    """dF/dK (n, n) of latent functions that share K: half the sum of alpha alpha^T - H^T H; O(C n^3)."""
    cdef Py_ssize_t c, i, j, n = alpha.shape[1]
    gradient, squares = np.zeros((n, n)), np.empty((n, n))
    cdef double[:, ::1] G = gradient, M = squares
    for c in range(alpha.shape[0]):
        squares[:] = factors[c]
        with nogil:
            square(n, &M[0, 0])
            for i in range(n):
                for j in range(n):
                    G[i, j] += 0.5 * (alpha[c, i] * alpha[c, j] - M[i, j])
    return gradient
