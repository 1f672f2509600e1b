#include "tiles.h"

#include "lanes.inc.h"

void xg_squared_norms(ptrdiff_t n, ptrdiff_t m, const double *restrict a, double *restrict out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i)
            out[i] += a[k * n + i] * a[k * n + i];
}

void xg_means(ptrdiff_t n, ptrdiff_t m, const double *restrict a, const double *restrict w, double *restrict mean)
{
    memset(mean, 0, (size_t)n * sizeof *mean);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i)
            mean[i] += a[k * n + i] * w[k];
}

void xg_gradient_tile(ptrdiff_t n, ptrdiff_t m, const double *restrict precision, const double *restrict residual,
                      const double *restrict alpha, const double *restrict product, int accumulate,
                      double *restrict g)
{
    for (ptrdiff_t k = 0; k < m; ++k)
        if (accumulate)
            for (ptrdiff_t i = 0; i < n; ++i)
                g[k * n + i] += precision[i] * product[k * n + i] + residual[i] * alpha[k];
        else
            for (ptrdiff_t i = 0; i < n; ++i)
                g[k * n + i] = precision[i] * product[k * n + i] + residual[i] * alpha[k];
}

void xg_narrow(ptrdiff_t n, const double *restrict x, float *restrict out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = (float)x[i];
}

void xg_widen(ptrdiff_t n, const float *restrict x, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = x[i];
}

/* A strip has VECTORS registers of rows, and COLUMNS of its columns are computed at a time; of the sums of outer products
 * HIGH rows and 4 columns. AVX-512 has 32 registers, others have 16. */
enum { VECTORS = 3, COLUMNS = 4, HIGH = XG_WIDTH == 8 ? 4 : 3 };

typedef float half_single __attribute__((vector_size(4 * XG_WIDTH), aligned(4), may_alias));

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

int xg_is_wide(void) { return XG_WIDTH > 2; }

/* Room for a strip and the diagonal of a triangle, or for HIGH scaled columns and a register of each column; and for what
 * _tiles.pxd does with the BLAS. */
ptrdiff_t xg_triangle_scratch(ptrdiff_t n, ptrdiff_t m)
{
    ptrdiff_t size = VECTORS * XG_WIDTH * m + (m + COLUMNS) * COLUMNS + HIGH * n + 3 * LINE / 8;
    ptrdiff_t of_blas = n * m + n;
    return xg_is_wide() || size > of_blas ? size : of_blas;
}

#define REAL double
#define SIZE XG_WIDTH /* numbers in a register */
#define PARTS 1       /* registers of doubles for the numbers of a register */
#define NAME(name) name
#include "triangles.inc.h"
#undef REAL
#undef SIZE
#undef PARTS
#undef NAME

#define REAL float
#define SIZE (2 * XG_WIDTH)
#define PARTS 2
#define NAME(name) name##_single
#include "triangles.inc.h"
