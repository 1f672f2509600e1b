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
void xg_rbf_from_products(ptrdiff_t n, ptrdiff_t m, const double *x2, const double *z2, double variance,
                          const double *cross, int accumulate, double *out)
{
    for (ptrdiff_t k = 0; k < m; ++k) {
        const double *c = cross + k * n;
        double *o = out + k * n;
        double z = z2[k];
        if (accumulate)
            for (ptrdiff_t i = 0; i < n; ++i)
                o[i] += variance * xg_exp(xg_min(c[i] - 0.5 * (x2[i] + z), 0.0));
        else
            for (ptrdiff_t i = 0; i < n; ++i)
                o[i] = variance * xg_exp(xg_min(c[i] - 0.5 * (x2[i] + z), 0.0));
    }
}

XG_CLONES
void xg_rbf_from_differences(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, const double *z, double variance,
                             int accumulate, double *out)
{
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double squared = 0.0;
            for (ptrdiff_t j = 0; j < d; ++j) {
                double difference = x[j * n + i] - z[k * d + j];
                squared += difference * difference;
            }
            double value = variance * xg_exp(-0.5 * squared);
            out[k * n + i] = accumulate ? out[k * n + i] + value : value;
        }
}

XG_CLONES
void xg_squared_norms(ptrdiff_t n, ptrdiff_t m, const double *restrict a, double *restrict out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i)
            out[i] += a[k * n + i] * a[k * n + i];
}

XG_CLONES
void xg_norms_and_means(ptrdiff_t n, ptrdiff_t m, const double *restrict a, const double *restrict w,
                        double *restrict copy, double *restrict norms, double *restrict mean)
{
    memset(norms, 0, (size_t)n * sizeof *norms);
    memset(mean, 0, (size_t)n * sizeof *mean);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double value = a[k * n + i];
            copy[k * n + i] = value;
            norms[i] += value * value;
            mean[i] += value * w[k];
        }
}

/* Sums of a whole vector run in eight lanes in a fixed order: vectorised without leave to reassociate. */
#define XG_LANES 8

XG_CLONES
void xg_scale_and_sum(ptrdiff_t n, ptrdiff_t m, const double *restrict a, const double *restrict s,
                      const double *restrict r, int accumulate, double *restrict root, double *restrict out,
                      double *restrict sum)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        root[i] = sqrt(s[i]);
    for (ptrdiff_t k = 0; k < m; ++k) {
        const double *ak = a + k * n;
        double *ok = out + k * n;
        double lane[XG_LANES] = {0.0}, total = 0.0;
        ptrdiff_t i = 0;
        for (; i + XG_LANES <= n; i += XG_LANES)
            for (int l = 0; l < XG_LANES; ++l) {
                ok[i + l] = root[i + l] * ak[i + l];
                lane[l] += r[i + l] * ak[i + l];
            }
        for (; i < n; ++i) {
            ok[i] = root[i] * ak[i];
            total += r[i] * ak[i];
        }
        for (int l = 0; l < XG_LANES; ++l)
            total += lane[l];
        sum[k] = accumulate ? sum[k] + total : total;
    }
}

XG_CLONES
void xg_gradient_tile(ptrdiff_t n, ptrdiff_t m, const double *restrict precision, const double *restrict residual,
                      const double *restrict alpha, double *restrict g)
{
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i)
            g[k * n + i] = precision[i] * g[k * n + i] + residual[i] * alpha[k];
}

XG_CLONES
void xg_weight_tile(ptrdiff_t n, ptrdiff_t m, const double *restrict g, double *restrict w, double *restrict row_sum,
                    double *restrict column_sum)
{
    memset(row_sum, 0, (size_t)n * sizeof *row_sum);
    for (ptrdiff_t k = 0; k < m; ++k) {
        const double *gk = g + k * n;
        double *wk = w + k * n;
        double lane[XG_LANES] = {0.0}, total = 0.0;
        ptrdiff_t i = 0;
        for (; i + XG_LANES <= n; i += XG_LANES)
            for (int l = 0; l < XG_LANES; ++l) {
                wk[i + l] *= gk[i + l];
                row_sum[i + l] += wk[i + l];
                lane[l] += wk[i + l];
            }
        for (; i < n; ++i) {
            wk[i] *= gk[i];
            row_sum[i] += wk[i];
            total += wk[i];
        }
        for (int l = 0; l < XG_LANES; ++l)
            total += lane[l];
        column_sum[k] += total;
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
