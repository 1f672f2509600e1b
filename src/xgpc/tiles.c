#include "tiles.h"

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
