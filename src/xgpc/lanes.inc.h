/* Linear algebra of XG_WIDTH small problems, 8, 4 or 2, side by side, one in each lane: element e of all of them stands
 * at [XG_WIDTH e ... XG_WIDTH e + XG_WIDTH - 1]. A lane's results do not depend on what the others hold. Triangles are
 * packed row by row. Compilers keep vectors that are wider than the registers in memory, up to ten times as slow: so the
 * width. */
#pragma once

#include "vmath.h"

/* In memory like so many doubles, and like four. */
typedef double lanes __attribute__((vector_size(8 * XG_WIDTH), aligned(8), may_alias));
typedef int64_t lane_bits __attribute__((vector_size(8 * XG_WIDTH), aligned(8), may_alias));
typedef double four_lanes __attribute__((vector_size(32), aligned(8), may_alias));

#define LINE 64 /* bytes of a cache line */
#define UNROLLED _Pragma("GCC unroll 8")
#define PACKED(i) ((i) * ((i) + 1) / 2)
#define LANES(p) ((lanes *)(p))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* Scratch from the next full cache line: vectors that span two lines take twice as long. */
XG_INLINE void *aligned(void *scratch)
{
    return (void *)(((uintptr_t)scratch + LINE - 1) / LINE * LINE);
}

/* out[l] = element l of each of four rows, of four */
XG_INLINE void transpose_four(const double *row0, const double *row1, const double *row2, const double *row3,
                              four_lanes *out, ptrdiff_t stride)
{
#define ROW(r) (*(const four_lanes *)(r))
    four_lanes even0 = __builtin_shufflevector(ROW(row0), ROW(row1), 0, 4, 2, 6);
    four_lanes odd0 = __builtin_shufflevector(ROW(row0), ROW(row1), 1, 5, 3, 7);
    four_lanes even1 = __builtin_shufflevector(ROW(row2), ROW(row3), 0, 4, 2, 6);
    four_lanes odd1 = __builtin_shufflevector(ROW(row2), ROW(row3), 1, 5, 3, 7);
    out[0] = __builtin_shufflevector(even0, even1, 0, 1, 4, 5);
    out[stride] = __builtin_shufflevector(odd0, odd1, 0, 1, 4, 5);
    out[2 * stride] = __builtin_shufflevector(even0, even1, 2, 3, 6, 7);
    out[3 * stride] = __builtin_shufflevector(odd0, odd1, 2, 3, 6, 7);
#undef ROW
}

/* XG_WIDTH columns of the rows that the lanes want, by shuffles: far faster than element by element. */
XG_INLINE void transpose(const double *values, const int64_t *index, ptrdiff_t width, lanes *out, ptrdiff_t stride)
{
#if XG_WIDTH == 2
    lanes row0 = *(const lanes *)(values + index[0] * width), row1 = *(const lanes *)(values + index[1] * width);
    out[0] = __builtin_shufflevector(row0, row1, 0, 2);
    out[stride] = __builtin_shufflevector(row0, row1, 1, 3);
#else
    const ptrdiff_t parts = XG_WIDTH / 4;
    for (ptrdiff_t part = 0; part < parts; ++part) {
        const double *row[4];
        for (int l = 0; l < 4; ++l)
            row[l] = values + index[4 * part + l] * width;
        for (ptrdiff_t column = 0; column < parts; ++column)
            transpose_four(row[0] + 4 * column, row[1] + 4 * column, row[2] + 4 * column, row[3] + 4 * column,
                           (four_lanes *)(out + 4 * column * stride) + part, parts * stride);
    }
#endif
}

/* Rows of a row-major (., width) that each lane wants: index (count, XG_WIDTH). */
typedef struct {
    ptrdiff_t count, width;
    const int64_t *index;
    const double *values;
} lane_rows;

/* out[j row_stride + q column_stride] = column first + q of each lane's row j, q < size */
XG_CALLED void gather(const lane_rows *rows, ptrdiff_t first, ptrdiff_t size, lanes *out, ptrdiff_t row_stride,
                      ptrdiff_t column_stride)
{
    const double *values = rows->values + first;
    for (ptrdiff_t j = 0; j < rows->count; ++j, out += row_stride) {
        const int64_t *index = rows->index + j * XG_WIDTH;
        ptrdiff_t q = 0;
        for (; q + XG_WIDTH <= size; q += XG_WIDTH)
            transpose(values + q, index, rows->width, out + q * column_stride, column_stride);
        if (q && q < size) { /* some columns once more */
            q = size - XG_WIDTH;
            transpose(values + q, index, rows->width, out + q * column_stride, column_stride);
            q = size;
        }
        for (; q < size; ++q)
            for (int l = 0; l < XG_WIDTH; ++l)
                ((double *)(out + q * column_stride))[l] = values[index[l] * rows->width + q];
    }
}

/* out[l width + q] = lane l of values[q], of the first lanes */
XG_CALLED void scatter(ptrdiff_t n_lanes, ptrdiff_t width, const lanes *values, double *out)
{
    const int64_t places[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    ptrdiff_t q = 0;
    for (; q + XG_WIDTH <= width; q += XG_WIDTH) {
        lanes part[XG_WIDTH];
        transpose((const double *)(values + q), places, XG_WIDTH, part, 1);
        for (ptrdiff_t l = 0; l < n_lanes; ++l)
            *LANES(out + l * width + q) = part[l];
    }
    for (; q < width; ++q)
        for (ptrdiff_t l = 0; l < n_lanes; ++l)
            out[l * width + q] = ((const double *)(values + q))[l];
}

/* out[l width ...] = lane l's row of start - sum_j (lane l of weights[j]) (lane l's row j), over its first counts[l] rows:
 * along the rows, which then need no transposing */
XG_CALLED void subtract_rows(ptrdiff_t n_lanes, const lane_rows *rows, const lane_rows *start, const lanes *weights,
                             lanes counts, double *out)
{
    ptrdiff_t width = rows->width;
    for (ptrdiff_t l = 0; l < n_lanes; ++l, out += width) {
        const int64_t *index = rows->index + l;
        const double *weight = (const double *)weights + l, *from = start->values + start->index[l] * width;
        ptrdiff_t count = (ptrdiff_t)counts[l], q = 0;
        for (; q + 4 * XG_WIDTH <= width; q += 4 * XG_WIDTH) {
            lanes s[4];
            UNROLLED for (int v = 0; v < 4; ++v)
                s[v] = ((const lanes *)(from + q))[v];
            for (ptrdiff_t j = 0; j < count; ++j)
                UNROLLED for (int v = 0; v < 4; ++v)
                    s[v] -= ((const lanes *)(rows->values + index[j * XG_WIDTH] * width + q))[v] * weight[j * XG_WIDTH];
            UNROLLED for (int v = 0; v < 4; ++v)
                LANES(out + q)[v] = s[v];
        }
        for (; q + XG_WIDTH <= width; q += XG_WIDTH) {
            lanes s = *(const lanes *)(from + q);
            for (ptrdiff_t j = 0; j < count; ++j)
                s -= *(const lanes *)(rows->values + index[j * XG_WIDTH] * width + q) * weight[j * XG_WIDTH];
            *LANES(out + q) = s;
        }
        for (; q < width; ++q) {
            double s = from[q];
            for (ptrdiff_t j = 0; j < count; ++j)
                s -= rows->values[index[j * XG_WIDTH] * width + q] * weight[j * XG_WIDTH];
            out[q] = s;
        }
    }
}

/* The sums of four registers' numbers */
XG_INLINE four_lanes sums_of(lanes a, lanes b, lanes c, lanes d)
{
#define SHUFFLED __builtin_shufflevector
#if XG_WIDTH == 8
    lanes ab = SHUFFLED(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLED(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    lanes cd = SHUFFLED(c, d, 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLED(c, d, 1, 9, 3, 11, 5, 13, 7, 15);
    lanes all = SHUFFLED(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLED(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
    four_lanes halves[2];
    memcpy(halves, &all, sizeof all);
    return halves[0] + halves[1];
#elif XG_WIDTH == 4
    lanes ab = SHUFFLED(a, b, 0, 4, 2, 6) + SHUFFLED(a, b, 1, 5, 3, 7);
    lanes cd = SHUFFLED(c, d, 0, 4, 2, 6) + SHUFFLED(c, d, 1, 5, 3, 7);
    return SHUFFLED(ab, cd, 0, 1, 4, 5) + SHUFFLED(ab, cd, 2, 3, 6, 7);
#else
    return (four_lanes){a[0] + a[1], b[0] + b[1], c[0] + c[1], d[0] + d[1]};
#endif
#undef SHUFFLED
}

/* out[j] = in lane l its row j . row l of x (XG_WIDTH, width): along the rows, too */
XG_CALLED void row_dots(const lane_rows *rows, const double *x, lanes *out)
{
    ptrdiff_t width = rows->width;
    for (ptrdiff_t j = 0; j < rows->count; ++j) {
        lanes part[8];
        for (int l = 0; l < XG_WIDTH; ++l) {
            const double *row = rows->values + rows->index[j * XG_WIDTH + l] * width, *to = x + l * width;
            lanes s = {0.0};
            ptrdiff_t q = 0;
            for (; q + XG_WIDTH <= width; q += XG_WIDTH)
                s += *(const lanes *)(row + q) * *(const lanes *)(to + q);
            for (; q < width; ++q)
                s[0] += row[q] * to[q];
            part[l] = s;
        }
        for (int l = 0; l < XG_WIDTH; l += 4) {
            four_lanes sums = sums_of(part[l], part[l + 1], part[(l + 2) % XG_WIDTH], part[(l + 3) % XG_WIDTH]);
            memcpy((double *)(out + j) + l, &sums, SMALLER(sizeof sums, sizeof(lanes)));
        }
    }
}

/* out[r][c] += factor sum_q x[r][q] y[c][q], r < R, c < C: constants, so that all sums stay in registers */
XG_INLINE void add_dots(const int R, const int C, ptrdiff_t size, double factor, const lanes *const *x,
                        const lanes *const *y, lanes *const *out)
{
    lanes s[4][4];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
            s[r][c] = (lanes){0.0};
    for (ptrdiff_t q = 0; q < size; ++q)
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                s[r][c] += x[r][q] * y[c][q];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
            out[r][c] += factor * s[r][c];
}

XG_INLINE double sum_of(lanes x)
{
    double total = 0.0;
    for (int l = 0; l < XG_WIDTH; ++l)
        total += x[l];
    return total;
}

/* sums[c] = x . y_c of vectors (width,) */
XG_INLINE void row_products(ptrdiff_t width, const double *x, const double *const *y, double *sums)
{
    lanes s[4] = {{0.0}, {0.0}, {0.0}, {0.0}};
    ptrdiff_t q = 0;
    for (; q + XG_WIDTH <= width; q += XG_WIDTH)
        for (int c = 0; c < 4; ++c)
            s[c] += *(const lanes *)(x + q) * *(const lanes *)(y[c] + q);
    for (; q < width; ++q)
        for (int c = 0; c < 4; ++c)
            s[c][0] += x[q] * y[c][q];
    for (int c = 0; c < 4; ++c)
        sums[c] = sum_of(s[c]);
}

/* Columns of rows that are multiplied at a time: of some 34 rows they stay in a first-level cache. Sums are read and
 * written once for so many, and of each row two lines of memory are read at once: with 8 columns a sweep of 32
 * neighbours takes 7 to 10 % longer, with 32 or 64 0 to 5 %. */
#define CHUNK 16

XG_INLINE lanes absolute(lanes x)
{
    return (lanes)((lane_bits)x & INT64_MAX);
}

/* Of axis-aligned kernels, see axis.c */
#define ROOT_3 1.73205080756887729353

/* 1 + sqrt(3) |difference|. If a product of CHUNK growths overflows, one of the differences is above 2^63, where the
 * kernel is 0, whatever finite logarithm ``xg_log1p`` has for infinity. */
XG_INLINE lanes growth_of(lanes difference)
{
    return 1.0 + ROOT_3 * absolute(difference);
}

/* slope[c] = weight[c] times the derivative of log kappa(|x - z|) by z, for the differences x - z, c < C: for nu = 1/2
 * its sign, for nu = 3/2, which is_smooth says, 3 (x - z) / (1 + sqrt(3) |x - z|). One division serves two of them, as a
 * division takes as long as all else. Where a product of two growths overflows, both differences are so large (features
 * are at most 1e140) that the kernels, and with them the weights, are 0. */
XG_INLINE void log_slopes(const int is_smooth, const int C, const lanes *weight, const lanes *difference, lanes *slope)
{
    int c = 0;
    for (; is_smooth && c + 2 <= C; c += 2) {
        lanes growth = growth_of(difference[c]), next = growth_of(difference[c + 1]), inverse = 3.0 / (growth * next);
        slope[c] = weight[c] * difference[c] * (inverse * next);
        slope[c + 1] = weight[c + 1] * difference[c + 1] * (inverse * growth);
    }
    for (; is_smooth && c < C; ++c)
        slope[c] = 3.0 * weight[c] * difference[c] / growth_of(difference[c]);
    for (; c < C; ++c)
        slope[c] = (lanes)(((lane_bits)weight[c] ^ ((lane_bits)difference[c] & INT64_MIN)) & (difference[c] != 0.0));
}

/* The same for one number */
XG_INLINE double log_slope(const int is_smooth, double weight, double difference)
{
    if (is_smooth)
        return 3.0 * weight * difference / (1.0 + ROOT_3 * fabs(difference));
    return difference == 0.0 ? 0.0 : copysign(weight, weight * difference);
}

/* What is summed over the columns of each two rows: their products, the squares or the absolute values of their
 * differences; or, in place of a sum, the product of ``growth_of`` their differences. */
enum { XG_PRODUCTS, XG_SQUARES, XG_DISTANCES, XG_GROWTHS };

XG_INLINE lanes pair_start(const int kind)
{
    return (lanes){0.0} + (kind == XG_GROWTHS ? 1.0 : 0.0);
}

/* The sum, or product, with two elements more */
XG_INLINE lanes pair_step(const int kind, lanes sum, lanes x, lanes y)
{
    lanes difference = x - y;
    if (kind == XG_SQUARES)
        return sum + difference * difference;
    if (kind == XG_DISTANCES)
        return sum + absolute(difference);
    if (kind == XG_GROWTHS)
        return sum * growth_of(difference);
    return sum + x * y;
}

XG_INLINE lanes pair_end(const int kind, lanes out, double factor, lanes sum)
{
    return kind == XG_GROWTHS ? out * sum : out + factor * sum;
}

/* out[r][c] += factor times the sum for x_r and y_c, or *= the product, r < R, c < C, over size columns; rows are CHUNK
 * apart, so that they need no pointers of their own: those of ``add_dots`` cost 5 % of a sweep. */
XG_INLINE void add_sums(const int kind, const int R, const int C, ptrdiff_t size, double factor, const lanes *x,
                        const lanes *y, lanes *const *out)
{
    lanes s[4][4];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
            s[r][c] = pair_start(kind);
    for (ptrdiff_t q = 0; q < size; ++q)
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                s[r][c] = pair_step(kind, s[r][c], x[r * CHUNK + q], y[c * CHUNK + q]);
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
            out[r][c] = pair_end(kind, out[r][c], factor, s[r][c]);
}

/* Rows i, ..., i + R - 1 of ``pair_sums``; R and kind are constants. */
XG_INLINE void pair_sums_rows(const int kind, const int R, ptrdiff_t i, const lanes *x, ptrdiff_t size, double factor,
                              lanes *out)
{
    const lanes *left = x + i * CHUNK;
    lanes *at[4], s[4][4];
    for (int r = 0; r < R; ++r)
        at[r] = out + PACKED(i + r);
    for (ptrdiff_t j = 0; j < i; j += 4) {
        add_sums(kind, R, 4, size, factor, left, x + j * CHUNK, at);
        for (int r = 0; r < R; ++r)
            at[r] += 4;
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < r; ++c)
            s[r][c] = pair_start(kind);
    for (ptrdiff_t q = 0; q < size; ++q)
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < r; ++c)
                s[r][c] = pair_step(kind, s[r][c], left[r * CHUNK + q], left[c * CHUNK + q]);
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < r; ++c)
            at[r][c] = pair_end(kind, at[r][c], factor, s[r][c]);
}

/* out, rows i, ..., count - 1 of a packed lower triangle without its diagonal, += factor times the sums for each two
 * rows, CHUNK apart, or *= the products; i is a multiple of 4 */
XG_CALLED void pair_sums(const int kind, ptrdiff_t i, ptrdiff_t count, const lanes *x, ptrdiff_t size, double factor,
                         lanes *out)
{
    for (; i + 4 <= count; i += 4)
        if (size == CHUNK) /* unrolled */
            pair_sums_rows(kind, 4, i, x, CHUNK, factor, out);
        else
            pair_sums_rows(kind, 4, i, x, size, factor, out);
    if (count - i == 3)
        pair_sums_rows(kind, 3, i, x, size, factor, out);
    else if (count - i == 2)
        pair_sums_rows(kind, 2, i, x, size, factor, out);
    else if (count - i == 1)
        pair_sums_rows(kind, 1, i, x, size, factor, out);
}

/* out = S x for the same row-major (n, n) matrix in all lanes, eight rows at a time: as many sums are under way as the
 * latency of multiply-adds needs. */
XG_CALLED void shared_times(ptrdiff_t n, const double *S, const lanes *x, lanes *out)
{
    for (ptrdiff_t i = 0; i < n; i += 8) {
        const double *row[8];
        lanes s[8];
        for (int r = 0; r < 8; ++r) {
            row[r] = S + SMALLER(i + r, n - 1) * n;
            s[r] = (lanes){0.0};
        }
        for (ptrdiff_t j = 0; j < n; ++j)
            for (int r = 0; r < 8; ++r)
                s[r] += row[r][j] * x[j];
        for (int r = 0; r < SMALLER(n - i, 8); ++r)
            out[i + r] = s[r];
    }
}

/* out = D x for a packed symmetric matrix */
XG_CALLED void symmetric_times(ptrdiff_t n, const lanes *D, const lanes *x, lanes *out)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        const lanes *row = D + PACKED(i);
        lanes value = x[i], s = row[i] * value;
        for (ptrdiff_t j = 0; j < i; ++j) {
            s += row[j] * x[j];
            out[j] += row[j] * value;
        }
        out[i] = s;
    }
}

XG_INLINE lanes dot(ptrdiff_t n, const lanes *x, const lanes *y)
{
    lanes s0 = {0.0}, s1 = {0.0};
    ptrdiff_t i = 0;
    for (; i + 1 < n; i += 2) {
        s0 += x[i] * y[i];
        s1 += x[i + 1] * y[i + 1];
    }
    if (i < n)
        s0 += x[i] * y[i];
    return s0 + s1;
}

XG_INLINE lanes root_of(lanes x)
{
    for (int l = 0; l < XG_WIDTH; ++l)
        x[l] = sqrt(x[l]);
    return x;
}

/* Columns j, ..., j + columns - 1 of a row of the factor, of which those to the left are done. */
XG_INLINE void cholesky_row(ptrdiff_t i, ptrdiff_t j, ptrdiff_t columns, lanes *B)
{
    lanes *row = B + PACKED(i) + j;
    for (ptrdiff_t c = 0; c < columns; ++c) {
        const lanes *pivot = B + PACKED(j + c) + j;
        lanes s = row[c];
        for (ptrdiff_t q = 0; q < c; ++q)
            s -= row[q] * pivot[q];
        row[c] = c == i - j ? 1.0 / root_of(s) : s * pivot[c];
    }
}

/* Packed B (n, n) <- its Cholesky factor L, with the reciprocals of its diagonal there; row n, of n elements, becomes
 * its product with L^-T. Four columns of two rows at a time. */
XG_CALLED void cholesky(ptrdiff_t n, lanes *B)
{
    for (ptrdiff_t j = 0; j < n; j += 4) {
        ptrdiff_t width = SMALLER(n - j, 4), step;
        const lanes *y[4];
        for (int c = 0; c < 4; ++c)
            y[c] = B + PACKED(j + c);
        for (ptrdiff_t i = j; i <= n; i += step) {
            ptrdiff_t columns = SMALLER(i - j + 1, width);
            const lanes *x[2] = {B + PACKED(i), B + PACKED(i + 1)};
            lanes *at[2] = {B + PACKED(i) + j, B + PACKED(i + 1) + j};
            step = i >= j + 4 && i < n ? 2 : 1;
            if (step == 2)
                add_dots(2, 4, j, -1.0, x, y, at);
            else if (columns == 4)
                add_dots(1, 4, j, -1.0, x, y, at);
            else
                for (ptrdiff_t c = 0; c < columns; ++c) {
                    lanes *one = at[0] + c;
                    add_dots(1, 1, j, -1.0, x, y + c, &one);
                }
            for (ptrdiff_t r = 0; r < step; ++r)
                cholesky_row(i + r, j, columns, B);
        }
    }
}

/* x <- L^-1 x by the factor of ``cholesky`` */
XG_CALLED void solve_lower(ptrdiff_t n, const lanes *B, lanes *x)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        const lanes *row = B + PACKED(i);
        x[i] = (x[i] - dot(i, row, x)) * row[i];
    }
}

/* x <- L^-T x by the factor of ``cholesky`` */
XG_CALLED void solve_upper(ptrdiff_t n, const lanes *B, lanes *x)
{
    for (ptrdiff_t i = n - 1; i >= 0; --i) {
        lanes s = x[i];
        for (ptrdiff_t j = n - 1; j > i; --j)
            s -= B[PACKED(j) + i] * x[j];
        x[i] = s * B[PACKED(i) + i];
    }
}
