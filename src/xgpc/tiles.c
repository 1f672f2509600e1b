#include "tiles.h"

#define REAL double
#define NAME XG_DOUBLE
#include "tile_functions.h"
#undef REAL
#undef NAME

#define REAL float
#define NAME XG_SINGLE
#include "tile_functions.h"
#undef REAL
#undef NAME

XG_CLONES
void xg_means(ptrdiff_t n, ptrdiff_t m, const double *restrict a, const double *restrict w, double *restrict mean)
{
    memset(mean, 0, (size_t)n * sizeof *mean);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i)
            mean[i] += a[k * n + i] * w[k];
}

XG_CLONES
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

XG_CLONES
void xg_narrow(ptrdiff_t n, const double *restrict x, float *restrict out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = (float)x[i];
}

XG_CLONES
void xg_widen(ptrdiff_t n, const float *restrict x, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = x[i];
}

XG_CLONES
void xg_add_lower(ptrdiff_t m, const float *restrict part, int accumulate, double *restrict sum)
{
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            sum[i * m + j] = (accumulate ? sum[i * m + j] : 0.0) + part[i * m + j];
}
