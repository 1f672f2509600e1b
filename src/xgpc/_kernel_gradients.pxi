# Part of _kernels.pyx: gradients with respect to parameters, inducing points and rows.

cdef class KernelGradient:
    """Contractions of a gradient dF/dk(X, Z) with every term and factor, additive over blocks of rows: ``values``, all
    of them, concatenated, for ``sizes`` n_terms, n_factors, m and d; and ``arrays``, their views terms, shapes, sums,
    products and squares, see ``gradient_block``."""

    def __init__(self, tuple sizes, values=None):
        cdef Py_ssize_t t, f, m, d
        cdef double* start
        t, f, m, d = sizes
        self.sizes = sizes
        self.values = self.flat = np.zeros(t + f * (1 + m + m * d + d)) if values is None else values
        start = &self.flat[0]
        self.parts = Contractions(start, start + t, start + t + f, start + t + f * (1 + m),
                                  start + t + f * (1 + m + m * d))

    @staticmethod
    def empty(InducingKernel core):
        """Zeros, to which contractions are added."""
        return KernelGradient((core.n_terms, core.n_factors, core.n_inducing, core.n_features))

    @property
    def arrays(self):
        t, f, m, d = self.sizes
        terms, shapes, sums, products, squares = np.split(self.values, np.cumsum([t, f, f * m, f * m * d]))
        return terms, shapes, sums.reshape(f, m), products.reshape(f, m, d), squares.reshape(f, d)

    def __iadd__(self, KernelGradient other):
        np.add(self.values, other.values, out=self.values)
        return self

    def __reduce__(self):
        return KernelGradient, (self.sizes, self.values)


cdef int gradient_block(InducingKernel kernel, const Rows* rows, const double* G, KernelScratch* scratch,
                        double* weighted, const Contractions* total) except -1 nogil:
    # Adds, for the tile G = dF / dk(X, Z) (n, m), elementwise with W = G * k_t / factor_f * d factor_f / dh:
    #   terms (n_terms,)           sum_ik G_ik k_t(x_i, z_k)
    #   shapes (n_factors,)        derivative by the logarithm of the factor's shape
    #   sums (n_factors, m)        sum_i W_ik
    #   products (n_factors, m, d) sum_i W_ik x_ij, x the scaled rows
    #   squares (n_factors, d)     sum_ik W_ik x_ij^2
    # h is -r^2 / 2 or x.z. Of an axis-aligned factor h is the logarithm; in the place of the last two there are
    #   products (n_factors, m, d) sum_i W_ik dh_ik / dz_kj, z the scaled inducing points
    #   squares (n_factors, d)     sum_ik W_ik dh_ik / dlog(length scale j)
    # The tile weighted is scratch.
    cdef Py_ssize_t t, f, other, i, first, last, n = rows.n, m = kernel.n_inducing, d = kernel.n_features
    cdef double sum_of_G
    cdef double[2] sums
    cdef xg_profile_tile tile
    cdef const double* rest
    if kernel._is_called:
        return call_gradient(kernel, rows, m, G, False, total.terms)
    for t in range(kernel.n_terms):
        if kernel._noise[t]:
            continue
        first, last = kernel._first[t], kernel._first[t + 1]
        if first == last:
            sum_of_G = 0.0
            for i in range(n * m):
                sum_of_G += G[i]
            total.terms[t] += kernel._variance[t] * sum_of_G
        for f in range(first, last):
            rest = G
            if last - first > 1:
                for i in range(n * m):
                    scratch.rest[i] = G[i]
                for other in range(first, last):
                    if other != f:
                        factor_block(kernel, other, rows, XG_MULTIPLY, 1.0, scratch, scratch.factor, scratch.rest)
                rest = scratch.rest
            tile = profile_tile(kernel, f, rows, scratch, scratch.factor)
            sums[0] = sums[1] = 0.0
            xg_profile_slopes(&tile, kernel._variance[t], rest, weighted, scratch.row_sum, total.sums + f * m, sums)
            if f == first:
                total.terms[t] += sums[0]
            total.shapes[f] += sums[1]
            if xg_is_axis_aligned(kernel._family[f]):
                xg_axis_slopes(&tile, weighted, total.products + f * m * d, total.squares + f * d)
                continue
            if kernel._family[f] != XG_DOT_PRODUCT:
                xg_add_squares(n, d, scratch.row_sum, scratch.x, total.squares + f * d)
            _blas.gemm_inner(n, m, d, weighted, scratch.x, total.products + f * m * d)


cdef int diagonal_gradient_block(InducingKernel kernel, const Rows* rows, const double* g, bint noise_alone,
                                 const Contractions* total) except -1 nogil:
    # The same for the diagonal, g = dF / dk(x, x) (n,), or only for its noise: adds to terms and, for dot products, to
    # shapes.
    cdef Py_ssize_t t, f, i
    cdef double sum_of_g = 0.0, share
    if kernel._is_called:
        return call_gradient(kernel, rows, 0, g, noise_alone, total.terms)
    if kernel._stationary:
        for i in range(rows.n):
            sum_of_g += g[i]
        for t in range(kernel.n_terms):
            if kernel._noise[t] or not noise_alone:
                total.terms[t] += sum_of_g * kernel._variance[t]
        return 0
    for t in range(kernel.n_terms):
        if noise_alone and not kernel._noise[t]:
            continue
        for i in range(rows.n):
            share = g[i] * term_diagonal(kernel, t, rows, i)
            total.terms[t] += share
            for f in range(kernel._first[t], kernel._first[t + 1]):
                if kernel._family[f] == XG_DOT_PRODUCT and kernel._shape[f] > 0.0:
                    total.shapes[f] += share * kernel._shape[f] / (kernel._shape[f] + squared_norm(kernel, f, rows, i))


def vjp(InducingKernel kernel, KernelGradient cross, KernelGradient gram):
    """Gradients (n_terms + n_factors + n_factors d,) by the logarithms of a kernel's values, and (m, d) by its inducing
    points, from contractions of dF / dk(X, Z) with dF / dk_ii, and of dF / dk(Z, Z)."""
    cdef Py_ssize_t t, f, k, j, e, m = kernel.n_inducing, d = kernel.n_features
    cdef double sides, toward, z
    cdef bint is_dot, is_axis_aligned
    cdef Contractions sums
    by_value, by_points = np.zeros(kernel.n_terms + kernel.n_factors * (1 + d)), np.zeros((m, d))
    cdef double[::1] values = by_value, by_scale = by_value[kernel.n_terms + kernel.n_factors:]
    cdef double[:, ::1] points = by_points
    # Both sides of k(Z, Z) depend on the points.
    for sides, gradient in ((1.0, cross), (2.0, gram)):
        sums = (<KernelGradient>gradient).parts
        for t in range(kernel.n_terms):
            values[t] += sums.terms[t]
            for f in range(kernel._first[t], kernel._first[t + 1]):
                values[kernel.n_terms + f] += sums.shapes[f]
                if kernel._noise[t]:
                    continue
                is_dot = kernel._family[f] == XG_DOT_PRODUCT
                is_axis_aligned = xg_is_axis_aligned(kernel._family[f])
                for j in range(d):
                    if not is_dot:
                        by_scale[f * d + j] += sums.squares[f * d + j]
                for k in range(m):
                    for j in range(d):
                        e = (f * m + k) * d + j
                        # By z of h = x.z, or of h = -|x - z|^2 / 2; of an axis-aligned factor it is known.
                        toward = sums.products[e]
                        if not (is_dot or is_axis_aligned):
                            z = kernel._z[f, k, j]
                            toward -= sums.sums[f * m + k] * z
                            by_scale[f * d + j] -= z * (sums.products[e] + toward)
                        points[k, j] += sides * toward * kernel._scale[f, j]
    return by_value, by_points


cdef object kinks(InducingKernel kernel, const double[:, :] X, const double[:, :, :] points):
    """0 or NaN (n, d): NaN for the features by which some k(x, y) has no derivative at a row x of X (n, d).

    y is one of ``points`` (k, d) of each row, (n, k, d), or of all rows, (1, k, d). The kernels with nu = 1/2 have a
    kink: along a feature in which x and y agree, or, if not axis-aligned, in all features where x is y.
    """
    cdef Py_ssize_t t, f, i, k, j, p, family
    cdef double r2
    out = np.zeros((X.shape[0], kernel.n_features))
    cdef double[:, ::1] mark = out
    with nogil:
        for t in range(kernel.n_terms):
            for f in range(kernel._first[t], kernel._first[t + 1]):
                family = kernel._family[f]
                if kernel._noise[t] or not (family == XG_MATERN_12 or family == XG_AXIS_MATERN_12):
                    continue
                for i in range(X.shape[0]):
                    p = i if points.shape[0] > 1 else 0
                    for k in range(points.shape[1]):
                        r2 = 0.0
                        if family == XG_MATERN_12:
                            for j in range(kernel.n_features):
                                r2 += ((X[i, j] - points[p, k, j]) * kernel._scale[f, j]) ** 2
                        for j in range(kernel.n_features if r2 < KINK else 0):
                            # A factor does not see the features of scale 0.
                            if kernel._scale[f, j] != 0.0 and (family == XG_MATERN_12 or X[i, j] == points[p, k, j]):
                                mark[i, j] = NAN
    return out


cdef class RowScratch:
    """Scratch for the gradients by the rows of a tile."""
    cdef double[::1] room, sums
    cdef KernelScratch kernel
    cdef double* by_x      # tile (rows, n_features)
    cdef double* slope     # tile (rows, n_inducing)
    cdef double* weighted  # tile (rows, n_inducing)

    def __init__(self, Py_ssize_t n, Py_ssize_t m, Py_ssize_t d):
        self.room, self.sums = np.empty(n * (2 * d + 2 + 5 * m)), np.zeros(m)
        self.kernel = kernel_scratch(&self.room[0], n, m, d)
        self.slope = self.kernel.rest + n * m
        self.weighted = self.slope + n * m
        self.by_x = self.weighted + n * m


cdef void row_gradients_block(InducingKernel kernel, const Rows* rows, Py_ssize_t count, const double* G,
                              RowScratch work, Py_ssize_t stride, double* out) noexcept nogil:
    # Adds, for ``count`` tiles G (n, m), the gradients by the rows sum_k W_ik dh_ik / dx_ij, with W as in
    # ``gradient_block``, to out (n, d), those of the next tile ``stride`` rows further. They share the slopes W / G.
    cdef Py_ssize_t t, f, g, other, i, j, k, n = rows.n, m = kernel.n_inducing, d = kernel.n_features
    cdef double[2] sums
    cdef double* x = work.kernel.x
    cdef double* row_sum = work.kernel.row_sum
    cdef double* to
    cdef const double* weight
    cdef bint is_stationary
    cdef xg_profile_tile tile
    for t in range(kernel.n_terms):
        if kernel._noise[t]:
            continue
        for f in range(kernel._first[t], kernel._first[t + 1]):
            for i in range(n * m):
                work.kernel.rest[i] = 1.0
            for other in range(kernel._first[t], kernel._first[t + 1]):
                if other != f:
                    factor_block(kernel, other, rows, XG_MULTIPLY, 1.0, &work.kernel, work.kernel.factor,
                                 work.kernel.rest)
            tile = profile_tile(kernel, f, rows, &work.kernel, work.kernel.factor)
            sums[0] = sums[1] = 0.0
            xg_profile_slopes(&tile, kernel._variance[t], work.kernel.rest, work.slope, row_sum, &work.sums[0], sums)
            is_stationary = not (kernel._family[f] == XG_DOT_PRODUCT or xg_is_axis_aligned(kernel._family[f]))
            for g in range(count):
                weight, to = G + g * n * m, out + g * stride * d
                for i in range(n):
                    row_sum[i] = 0.0
                for k in range(m):
                    for i in range(n):
                        work.weighted[k * n + i] = work.slope[k * n + i] * weight[k * n + i]
                        row_sum[i] += work.weighted[k * n + i]
                if xg_is_axis_aligned(kernel._family[f]):
                    xg_axis_row_slopes(&tile, work.weighted, work.by_x)
                else:
                    _blas.gemm_tile(n, d, m, work.weighted, tile.z, False, work.by_x)
                for j in range(d):
                    for i in range(n):
                        # Of h = -|x - z|^2 / 2; the gradients of x.z and of axis-aligned factors are known.
                        if is_stationary:
                            work.by_x[j * n + i] -= row_sum[i] * x[j * n + i]
                        to[i * d + j] += kernel._scale[f, j] * work.by_x[j * n + i]


def neighbour_gradients(InducingKernel kernel, near, index, const double[:, ::1] X, const double[:, :, ::1] G):
    """Gradients (g, r, d) by the rows x_i of X (r, d) of sums over j of G_ij k(x_i, y_ij), for each of G (g, r, k).

    y_ij are the rows ``index`` (r, k) of ``near`` (n, d). For one row x_i is the kernel's only inducing point. NaN
    where a kernel has a kink, see ``kinks``.
    """
    cdef const Py_ssize_t[:, ::1] places = np.ascontiguousarray(index, dtype=np.intp)
    cdef Py_ssize_t i, g, f, j, k = places.shape[1], d = kernel.n_features
    # ``place`` reads this array.
    x = np.zeros((1, d))
    cdef double[:, ::1] point = x
    cdef InducingKernel here = InducingKernel(kernel.variance, kernel.noise, kernel.term, kernel.family, kernel.shape,
                                              kernel.inverse_length_scale, x)
    cdef KernelGradient total = KernelGradient.empty(here)
    cdef RowScratch work = RowScratch(max(k, 1), 1, d)
    cdef Rows rows = rows_of(near)
    out = np.zeros((G.shape[0], X.shape[0], d))
    cdef double[:, :, ::1] result = out
    rows.n = k
    with nogil:
        for i in range(X.shape[0] if k else 0):
            point[0] = X[i]
            place(here)
            rows.index = &places[i, 0]
            for g in range(G.shape[0]):
                total.flat[:] = 0.0
                gradient_block(here, &rows, &G[g, i, 0], &work.kernel, work.weighted, &total.parts)
                for f in range(here.n_factors):
                    for j in range(d):
                        # Rows are centred at the only point, so that their products with W are those of x - z.
                        result[g, i, j] += total.parts.products[f * d + j] * here._scale[f, j]
    return out + kinks(kernel, X, np.asarray(near[index], dtype=np.float64))
