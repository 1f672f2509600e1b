/* The functions of tiles.h for one type; tiles.c includes this file for each type, with REAL, SIZE, PARTS and
 * NAME defined. */

typedef REAL NAME(vector) __attribute__((vector_size(sizeof(REAL) * SIZE), aligned(sizeof(REAL)), may_alias));
#define VECTOR NAME(vector)
#define AT(p) (*(VECTOR *)(p))
#define READ(p) (*(const VECTOR *)(p))

/* The numbers of a register in double precision */
XG_INLINE void NAME(in_double)(VECTOR x, lanes *out)
{
#if PARTS == 1
    out[0] = x;
#else
    half_single halves[2];
    memcpy(halves, &x, sizeof x);
    out[0] = __builtin_convertvector(halves[0], lanes);
    out[1] = __builtin_convertvector(halves[1], lanes);
#endif
}

/* Blocks on the diagonal of a triangle, COLUMNS x COLUMNS each, transposed, with zeros beyond the triangle. The last
 * block ends with the triangle, so that it may overlap the one before. */
static void NAME(read_diagonal)(ptrdiff_t m, const REAL *lower, REAL *out)
{
    for (ptrdiff_t block = 0; block * COLUMNS < m; ++block) {
        ptrdiff_t first = m < COLUMNS ? 0 : block * COLUMNS < m - COLUMNS ? block * COLUMNS : m - COLUMNS;
        for (ptrdiff_t k = 0; k < COLUMNS; ++k)
            for (ptrdiff_t c = 0; c < COLUMNS; ++c, ++out)
                *out = k <= c && first + c < m ? lower[(first + c) * m + first + k] : 0;
    }
}

/* x (vectors SIZE, m) = the first rows of a (n, m), zeros if there are fewer */
XG_INLINE void NAME(pack)(int vectors, ptrdiff_t rows, ptrdiff_t n, ptrdiff_t m, const REAL *a, REAL *x)
{
    ptrdiff_t size = vectors * SIZE;
    for (ptrdiff_t k = 0; k < m; ++k)
        if (rows == size)
            UNROLLED for (int v = 0; v < vectors; ++v)
                AT(x + k * size + v * SIZE) = READ(a + k * n + v * SIZE);
        else
            for (ptrdiff_t i = 0; i < size; ++i)
                x[k * size + i] = i < rows ? a[k * n + i] : 0;
}

/* sum[c] += sum_k x[k] b[c down + k along] for COLUMNS numbers c: x (vectors SIZE, inner) times a part of a matrix */
XG_INLINE void NAME(add_columns)(int vectors, ptrdiff_t inner, const REAL *x, const REAL *b, ptrdiff_t down,
                                 ptrdiff_t along, VECTOR sum[COLUMNS][VECTORS])
{
    for (ptrdiff_t k = 0; k < inner; ++k, x += vectors * SIZE, b += along) {
        VECTOR y[VECTORS];
        UNROLLED for (int v = 0; v < vectors; ++v)
            y[v] = READ(x + v * SIZE);
        UNROLLED for (int c = 0; c < COLUMNS; ++c)
            UNROLLED for (int v = 0; v < vectors; ++v)
                sum[c][v] += y[v] * b[c * down];
    }
}

XG_INLINE void NAME(store)(int vectors, ptrdiff_t rows, const VECTOR *values, REAL *out)
{
    if (rows == vectors * SIZE)
        UNROLLED for (int v = 0; v < vectors; ++v)
            AT(out + v * SIZE) = values[v];
    else
        memcpy(out, values, (size_t)rows * sizeof(REAL));
}

/* Columns from ``first`` on of b = x lower^T, and their squares added to sums; either may be NULL. The columns before
 * ``begin`` and those from ``end`` on are left out. */
XG_INLINE void NAME(columns)(int vectors, ptrdiff_t rows, ptrdiff_t n, ptrdiff_t m, ptrdiff_t first, ptrdiff_t begin,
                             ptrdiff_t end, const REAL *x, const REAL *lower, const REAL *diagonal, REAL *b,
                             lanes *sums)
{
    VECTOR found[COLUMNS][VECTORS] = {{{0}}};
    NAME(add_columns)(vectors, first, x, lower + first * m, m, 1, found);
    NAME(add_columns)(vectors, m - first < COLUMNS ? m - first : COLUMNS, x + first * vectors * SIZE, diagonal, 1,
                      COLUMNS, found);
    UNROLLED for (ptrdiff_t c = begin; c < end; ++c) {
        if (sums)
            UNROLLED for (int v = 0; v < vectors; ++v) {
                lanes value[PARTS];
                NAME(in_double)(found[c][v], value);
                UNROLLED for (int p = 0; p < PARTS; ++p)
                    sums[PARTS * v + p] += value[p] * value[p];
            }
        if (b)
            NAME(store)(vectors, rows, found[c], b + (first + c) * n);
    }
}

/* The rows of a strip, at most vectors SIZE: those of b, and the sums of their squares. */
XG_INLINE void NAME(strip)(int vectors, ptrdiff_t rows, ptrdiff_t n, ptrdiff_t m, const REAL *x, const REAL *lower,
                           const REAL *diagonal, REAL *b, double *squares)
{
    lanes sums[PARTS * VECTORS] = {{0.0}};
    ptrdiff_t first = 0, left = m;
    for (; left >= COLUMNS; first += COLUMNS, left -= COLUMNS, diagonal += COLUMNS * COLUMNS)
        NAME(columns)(vectors, rows, n, m, first, 0, COLUMNS, x, lower, diagonal, b, squares ? sums : NULL);
    if (left && m > COLUMNS)
        NAME(columns)(vectors, rows, n, m, m - COLUMNS, COLUMNS - left, COLUMNS, x, lower, diagonal, b,
                      squares ? sums : NULL);
    else if (left)
        NAME(columns)(vectors, rows, n, m, 0, 0, left, x, lower, diagonal, b, squares ? sums : NULL);
    if (squares)
        memcpy(squares, sums, (size_t)rows * sizeof(double));
}

/* mean[i] = sum_k x[i, k] w[k], norms[i] = sum_k x[i, k]^2 of the rows of a strip */
XG_INLINE void NAME(sums_of_strip)(int vectors, ptrdiff_t rows, ptrdiff_t m, const REAL *x, const double *w,
                                   double *mean, double *norms)
{
    lanes by_w[PARTS * VECTORS] = {{0.0}}, squares[PARTS * VECTORS] = {{0.0}};
    for (ptrdiff_t k = 0; k < m; ++k)
        UNROLLED for (int v = 0; v < vectors; ++v) {
            lanes value[PARTS];
            NAME(in_double)(READ(x + (k * vectors + v) * SIZE), value);
            UNROLLED for (int p = 0; p < PARTS; ++p) {
                by_w[PARTS * v + p] += value[p] * w[k];
                squares[PARTS * v + p] += value[p] * value[p];
            }
        }
    memcpy(mean, by_w, (size_t)rows * sizeof(double));
    memcpy(norms, squares, (size_t)rows * sizeof(double));
}

/* Applies OF_STRIP(vectors, rows) to strips of all rows i..., and to narrower ones at the end. */
#define STRIPS(OF_STRIP)                                                                                             \
    for (ptrdiff_t i = 0; i < n;) {                                                                                  \
        ptrdiff_t left = n - i;                                                                                      \
        if (left >= VECTORS * SIZE) {                                                                                \
            OF_STRIP(VECTORS, VECTORS * SIZE)                                                                        \
            i += VECTORS * SIZE;                                                                                     \
        } else if (left >= SIZE) {                                                                                   \
            OF_STRIP(1, SIZE)                                                                                        \
            i += SIZE;                                                                                               \
        } else {                                                                                                     \
            OF_STRIP(1, left)                                                                                        \
            i += left;                                                                                               \
        }                                                                                                            \
    }

#if PARTS == 1
void xg_times_lower_t(ptrdiff_t n, ptrdiff_t m, const REAL *lower, REAL *a, double *scratch)
{
    REAL *x = aligned(scratch), *diagonal = aligned(x + VECTORS * SIZE * m);
    NAME(read_diagonal)(m, lower, diagonal);
#define OF_STRIP(vectors, rows)                                                                                      \
    NAME(pack)(vectors, rows, n, m, a + i, x);                                                                       \
    NAME(strip)(vectors, rows, n, m, x, lower, diagonal, a + i, NULL);
    STRIPS(OF_STRIP)
#undef OF_STRIP
}
#endif

void NAME(xg_marginals)(ptrdiff_t n, ptrdiff_t m, const REAL *a, const double *w, const REAL *lower, REAL *b,
                        double *mean, double *norms, double *spread, double *scratch)
{
    REAL *x = aligned(scratch), *diagonal = aligned(x + VECTORS * SIZE * m);
    NAME(read_diagonal)(m, lower, diagonal);
#define OF_STRIP(vectors, rows)                                                                                      \
    NAME(pack)(vectors, rows, n, m, a + i, x);                                                                       \
    NAME(sums_of_strip)(vectors, rows, m, x, w, mean + i, norms + i);                                                \
    NAME(strip)(vectors, rows, n, m, x, lower, diagonal, b ? b + i : NULL, spread + i);
    STRIPS(OF_STRIP)
#undef OF_STRIP
}

/* scaled = s a for one column a (n,); returns sum_i r[i] a[i] */
XG_INLINE double NAME(scale_and_sum)(ptrdiff_t n, const REAL *restrict a, const double *restrict s,
                                     const double *restrict r, REAL *restrict scaled)
{
    double lane[XG_LANES] = {0.0}, total = 0.0;
    ptrdiff_t i = 0;
    for (; i + XG_LANES <= n; i += XG_LANES)
        for (int l = 0; l < XG_LANES; ++l) {
            scaled[i + l] = (REAL)(s[i + l] * a[i + l]);
            lane[l] += r[i + l] * a[i + l];
        }
    for (; i < n; ++i) {
        scaled[i] = (REAL)(s[i] * a[i]);
        total += r[i] * a[i];
    }
    for (int l = 0; l < XG_LANES; ++l)
        total += lane[l];
    return total;
}

/* Adds inner products of HIGH columns of b and 4 of a, n numbers each, to rows of P. Columns of b are whole registers, with
 * zeros at their ends; ``tails`` has the last, incomplete registers of a in the same way. Of row p, the first ``wanted`` +
 * p are added; fewer rows or columns than there might be are repeated, and not added. */
XG_INLINE void NAME(add_products)(ptrdiff_t n, ptrdiff_t m, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t wanted,
                                  const REAL *b, const REAL *a, const REAL *tails, double *P)
{
    const REAL *left[HIGH], *right[4], *last[4];
    ptrdiff_t stride = (n + SIZE - 1) / SIZE * SIZE;
    VECTOR sum[HIGH][4];
    UNROLLED for (int q = 0; q < 4; ++q) {
        right[q] = a + (q < columns ? q : 0) * n;
        last[q] = tails + (q < columns ? q : 0) * SIZE;
    }
    UNROLLED for (int p = 0; p < HIGH; ++p) {
        left[p] = b + (p < rows ? p : 0) * stride;
        UNROLLED for (int q = 0; q < 4; ++q)
            sum[p][q] = (VECTOR){0};
    }
    ptrdiff_t i = 0;
    for (; i + SIZE <= n; i += SIZE) {
        VECTOR x[4];
        UNROLLED for (int q = 0; q < 4; ++q)
            x[q] = READ(right[q] + i);
        UNROLLED for (int p = 0; p < HIGH; ++p)
            UNROLLED for (int q = 0; q < 4; ++q)
                sum[p][q] += READ(left[p] + i) * x[q];
    }
    if (i < n)
        UNROLLED for (int p = 0; p < HIGH; ++p)
            UNROLLED for (int q = 0; q < 4; ++q)
                sum[p][q] += READ(left[p] + i) * READ(last[q]);
    UNROLLED for (int p = 0; p < HIGH; ++p) {
        lanes part[4][PARTS];
        UNROLLED for (int q = 0; q < 4; ++q) {
            NAME(in_double)(sum[p][q], part[q]);
            part[q][0] += PARTS > 1 ? part[q][PARTS - 1] : (lanes){0.0};
        }
        four_lanes total = sums_of(part[0][0], part[1][0], part[2][0], part[3][0]);
        ptrdiff_t most = wanted + p < columns ? wanted + p : columns;
        if (p < rows && most == 4)
            *(four_lanes *)(P + p * m) += total;
        else if (p < rows)
            for (ptrdiff_t q = 0; q < most; ++q)
                P[p * m + q] += total[q];
    }
}

void NAME(xg_add_outer)(ptrdiff_t n, ptrdiff_t m, const REAL *a, const double *s, const double *r, double *P,
                        double *h, double *scratch)
{
    ptrdiff_t whole = n / SIZE * SIZE, stride = (n + SIZE - 1) / SIZE * SIZE;
    REAL *scaled = aligned(scratch), *tails = scaled + HIGH * stride;
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < SIZE; ++i)
            tails[k * SIZE + i] = whole + i < n ? a[k * n + whole + i] : 0;
    for (ptrdiff_t j = 0; j < m; j += HIGH) {
        ptrdiff_t rows = m - j < HIGH ? m - j : HIGH;
        for (ptrdiff_t p = 0; p < rows; ++p) {
            h[j + p] += NAME(scale_and_sum)(n, a + (j + p) * n, s, r, scaled + p * stride);
            for (ptrdiff_t i = n; i < stride; ++i)
                scaled[p * stride + i] = 0;
        }
        for (ptrdiff_t k = 0; k < j + rows; k += 4)
            NAME(add_products)(n, m, rows, m - k < 4 ? m - k : 4, j - k + 1, scaled, a + k * n, tails + k * SIZE,
                               P + j * m + k);
    }
}

#undef STRIPS
#undef VECTOR
#undef AT
#undef READ
