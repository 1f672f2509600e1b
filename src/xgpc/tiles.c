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
