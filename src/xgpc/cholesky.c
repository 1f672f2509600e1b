#include "cholesky.h"

#include "lanes.inc.h"

/* ROWS rows of the result are computed at a time, in strips of STRIP registers of columns. The matrices in scratch end
 * with rows and columns of an identity matrix. Their size is an odd multiple of EDGE, because columns would be in few
 * sets of a cache if it were a power of 2. */
enum { STRIP = 3, ROWS = 4, EDGE = 8 };

static ptrdiff_t padded(ptrdiff_t m) { return ((m + EDGE - 1) / EDGE | 1) * EDGE; }

ptrdiff_t xg_cholesky_scratch(ptrdiff_t m) { return 2 * padded(m) * padded(m); }

/* sum -= upper[first..last, ROWS columns]^T x[first..last, a strip] */
XG_INLINE void subtract(int width, ptrdiff_t size, ptrdiff_t first, ptrdiff_t last, const double *upper, const double *x,
                        lanes sum[ROWS][STRIP])
{
    for (ptrdiff_t k = first; k < last; ++k) {
        lanes y[STRIP];
        UNROLLED for (int v = 0; v < width; ++v)
            y[v] = *(const lanes *)(x + k * size + v * XG_WIDTH);
        UNROLLED for (int r = 0; r < ROWS; ++r)
            UNROLLED for (int v = 0; v < width; ++v)
                sum[r][v] -= upper[k * size + r] * y[v];
    }
}

/* A strip of rows of diagonal^{-T} (x - upper[first..last]^T x[first..last]), in the place of these rows of x */
XG_INLINE void solve_strip(int width, ptrdiff_t size, ptrdiff_t first, ptrdiff_t last, const double *upper,
                           const double diagonal[ROWS][ROWS], double *x)
{
    lanes sum[ROWS][STRIP];
    UNROLLED for (int r = 0; r < ROWS; ++r)
        UNROLLED for (int v = 0; v < width; ++v)
            sum[r][v] = *(const lanes *)(x + (last + r) * size + v * XG_WIDTH);
    subtract(width, size, first, last, upper, x, sum);
    UNROLLED for (int r = 0; r < ROWS; ++r)
        UNROLLED for (int v = 0; v < width; ++v) {
            UNROLLED for (int e = 0; e < r; ++e)
                sum[r][v] -= diagonal[e][r] * sum[e][v];
            sum[r][v] *= diagonal[r][r];
            *(lanes *)(x + (last + r) * size + v * XG_WIDTH) = sum[r][v];
        }
}

/* Columns begin..end of these rows, all that is left of a strip at once; sums begin at row ``begin`` if is_lower, else at
 * row 0 */
XG_INLINE void solve_rows(int is_lower, ptrdiff_t size, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t row,
                          const double *upper, const double diagonal[ROWS][ROWS], double *x)
{
    ptrdiff_t j = begin;
    for (; j + STRIP * XG_WIDTH <= end; j += STRIP * XG_WIDTH)
        solve_strip(STRIP, size, is_lower ? j : 0, row, upper, diagonal, x + j);
    for (; j < end; j += XG_WIDTH)
        solve_strip(1, size, is_lower ? j : 0, row, upper, diagonal, x + j);
}

/* The factor of ROWS rows and columns of the matrix that earlier rows leave, with reciprocals on the diagonal; returns
 * the number of rows before the first pivot that is not positive. */
static int factorise(ptrdiff_t size, ptrdiff_t row, const double *upper, double diagonal[ROWS][ROWS])
{
    const double *columns = upper + row;
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < ROWS; ++c)
            diagonal[r][c] = columns[(row + r) * size + c];
    for (ptrdiff_t k = 0; k < row; ++k)
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < ROWS; ++c)
                diagonal[r][c] -= columns[k * size + r] * columns[k * size + c];
    for (int r = 0; r < ROWS; ++r) {
        for (int e = 0; e < r; ++e)
            for (int c = r; c < ROWS; ++c)
                diagonal[r][c] -= diagonal[e][r] * diagonal[e][c];
        if (!(diagonal[r][r] > 0.0))
            return r;
        diagonal[r][r] = 1.0 / sqrt(diagonal[r][r]);
        for (int c = r + 1; c < ROWS; ++c)
            diagonal[r][c] *= diagonal[r][r];
    }
    return ROWS;
}

int xg_cholesky(ptrdiff_t m, const double *a, double *factor, double *inverse, double *scratch)
{
    ptrdiff_t size = padded(m), strip = STRIP * XG_WIDTH;
    double *upper = scratch, *x = scratch + size * size;
    /* What is below the diagonal is not read, nor are rows of x beyond the strip that ends with their diagonal. */
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            upper[j * size + i] = a[i * m + j];
    for (ptrdiff_t i = 0; i < size; ++i) {
        ptrdiff_t begin = i < m ? m : i, end = (i / strip + 1) * strip;
        memset(upper + i * size + begin, 0, (size_t)(size - begin) * sizeof *upper);
        memset(x + i * size, 0, (size_t)(end < size ? end : size) * sizeof *x);
        upper[i * size + i] = i < m ? upper[i * size + i] : 1.0;
        x[i * size + i] = 1.0;
    }
    for (ptrdiff_t row = 0; row < m; row += ROWS) {
        double diagonal[ROWS][ROWS];
        int rows = factorise(size, row, upper, diagonal);
        if (rows < ROWS)
            return (int)(row + rows + 1);
        /* The first strip begins before the diagonal: what is left of it has no meaning, and nothing reads it. */
        solve_rows(0, size, row / XG_WIDTH * XG_WIDTH, size, row, upper + row, diagonal, upper);
        solve_rows(1, size, 0, (row + ROWS + XG_WIDTH - 1) / XG_WIDTH * XG_WIDTH, row, upper + row, diagonal, x);
    }
    for (ptrdiff_t i = 0; i < m; ++i) {
        memcpy(inverse + i * m, x + i * size, (size_t)(i + 1) * sizeof *inverse);
        memset(inverse + i * m + i + 1, 0, (size_t)(m - i - 1) * sizeof *inverse);
        for (ptrdiff_t j = 0; j < m && factor; ++j)
            factor[i * m + j] = j <= i ? upper[j * size + i] : 0.0;
    }
    return 0;
}
