#include "vmath.h"

XG_CLONES
void xg_exp_array(ptrdiff_t n, const double *x, double *out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = xg_exp(x[i]);
}

XG_CLONES
void xg_normal_array(ptrdiff_t n, const double *x, double *cdf, double *pdf)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double gauss;
        double tail = xg_normal_tail(fabs(x[i]), &gauss);
        cdf[i] = x[i] < 0.0 ? tail : 1.0 - tail;
        pdf[i] = XG_INV_SQRT_2PI * gauss;
    }
}

XG_CLONES
void xg_rbf_from_products(ptrdiff_t rows, ptrdiff_t m, const double *x2, const double *z2, double variance,
                          const double *cross, int accumulate, double *out)
{
    for (ptrdiff_t i = 0; i < rows; ++i) {
        const double *c = cross + i * m;
        double *o = out + i * m;
        if (accumulate)
            for (ptrdiff_t k = 0; k < m; ++k)
                o[k] += variance * xg_exp(xg_min(c[k] - 0.5 * (x2[i] + z2[k]), 0.0));
        else
            for (ptrdiff_t k = 0; k < m; ++k)
                o[k] = variance * xg_exp(xg_min(c[k] - 0.5 * (x2[i] + z2[k]), 0.0));
    }
}

XG_CLONES
void xg_rbf_from_differences(ptrdiff_t rows, ptrdiff_t m, ptrdiff_t d, const double *x, const double *z,
                             double variance, int accumulate, double *out)
{
    for (ptrdiff_t i = 0; i < rows; ++i)
        for (ptrdiff_t k = 0; k < m; ++k) {
            double squared = 0.0;
            for (ptrdiff_t j = 0; j < d; ++j) {
                double difference = x[i * d + j] - z[k * d + j];
                squared += difference * difference;
            }
            double value = variance * xg_exp(-0.5 * squared);
            out[i * m + k] = accumulate ? out[i * m + k] + value : value;
        }
}

/* Eight partial sums in a fixed order: vectorised without leave to reassociate. */
#define XG_LANES 8

XG_CLONES
void xg_squared_norms(ptrdiff_t rows, ptrdiff_t m, const double *a, double *out)
{
    for (ptrdiff_t i = 0; i < rows; ++i) {
        const double *row = a + i * m;
        double lane[XG_LANES] = {0.0}, total = 0.0;
        ptrdiff_t k = 0;
        for (; k + XG_LANES <= m; k += XG_LANES)
            for (int l = 0; l < XG_LANES; ++l)
                lane[l] += row[k + l] * row[k + l];
        for (; k < m; ++k)
            total += row[k] * row[k];
        for (int l = 0; l < XG_LANES; ++l)
            total += lane[l];
        out[i] = total;
    }
}

XG_CLONES
void xg_scale_by_root(ptrdiff_t rows, ptrdiff_t m, const double *a, const double *s, double *out)
{
    for (ptrdiff_t i = 0; i < rows; ++i) {
        double root = sqrt(s[i]);
        for (ptrdiff_t k = 0; k < m; ++k)
            out[i * m + k] = root * a[i * m + k];
    }
}

XG_CLONES
void xg_weight_block(ptrdiff_t rows, ptrdiff_t m, const double *g, double *w, double *row_sum, double *column_sum)
{
    for (ptrdiff_t i = 0; i < rows; ++i) {
        const double *grow = g + i * m;
        double *row = w + i * m;
        double lane[XG_LANES] = {0.0}, total = 0.0;
        ptrdiff_t k = 0;
        for (; k + XG_LANES <= m; k += XG_LANES)
            for (int l = 0; l < XG_LANES; ++l) {
                row[k + l] *= grow[k + l];
                column_sum[k + l] += row[k + l];
                lane[l] += row[k + l];
            }
        for (; k < m; ++k) {
            row[k] *= grow[k];
            column_sum[k] += row[k];
            total += row[k];
        }
        for (int l = 0; l < XG_LANES; ++l)
            total += lane[l];
        row_sum[i] = total;
    }
}

XG_CLONES
double xg_natural_gradient(ptrdiff_t n, double scale, const double *target, const double *current, double *g)
{
    double lane[XG_LANES] = {0.0}, total = 0.0;
    ptrdiff_t i = 0;
    for (; i + XG_LANES <= n; i += XG_LANES)
        for (int l = 0; l < XG_LANES; ++l) {
            g[i + l] = scale * target[i + l] - current[i + l];
            lane[l] += g[i + l] * g[i + l];
        }
    for (; i < n; ++i) {
        g[i] = scale * target[i] - current[i];
        total += g[i] * g[i];
    }
    for (int l = 0; l < XG_LANES; ++l)
        total += lane[l];
    return total;
}

XG_CLONES
double xg_move_average(ptrdiff_t n, double weight, const double *g, double *mean)
{
    double lane[XG_LANES] = {0.0}, total = 0.0;
    ptrdiff_t i = 0;
    for (; i + XG_LANES <= n; i += XG_LANES)
        for (int l = 0; l < XG_LANES; ++l) {
            mean[i + l] += weight * (g[i + l] - mean[i + l]);
            lane[l] += mean[i + l] * mean[i + l];
        }
    for (; i < n; ++i) {
        mean[i] += weight * (g[i] - mean[i]);
        total += mean[i] * mean[i];
    }
    for (int l = 0; l < XG_LANES; ++l)
        total += lane[l];
    return total;
}

XG_CLONES
double xg_distance(ptrdiff_t n, const double *x, const double *y)
{
    double lane[XG_LANES] = {0.0}, total = 0.0;
    ptrdiff_t i = 0;
    for (; i + XG_LANES <= n; i += XG_LANES)
        for (int l = 0; l < XG_LANES; ++l)
            lane[l] += (x[i + l] - y[i + l]) * (x[i + l] - y[i + l]);
    for (; i < n; ++i)
        total += (x[i] - y[i]) * (x[i] - y[i]);
    for (int l = 0; l < XG_LANES; ++l)
        total += lane[l];
    return total;
}

XG_CLONES
void xg_step(ptrdiff_t n, double rate, const double *g, double *current)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        current[i] += rate * g[i];
}
