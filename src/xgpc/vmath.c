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
void xg_squared_norms(ptrdiff_t n, ptrdiff_t m, const double *restrict a, double *restrict out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i)
            out[i] += a[k * n + i] * a[k * n + i];
}

XG_CLONES
void xg_means(ptrdiff_t n, ptrdiff_t m, const double *restrict a, const double *restrict w, double *restrict mean)
{
    memset(mean, 0, (size_t)n * sizeof *mean);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i)
            mean[i] += a[k * n + i] * w[k];
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


XG_CLONES
void xg_scale_and_sum(ptrdiff_t n, ptrdiff_t m, const double *restrict a, const double *restrict s,
                      const double *restrict r, int accumulate, double *restrict root, double *restrict out,
                      double *restrict sum)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        root[i] = sqrt(xg_max(s[i], 0.0));
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

ptrdiff_t xg_negative_rows(ptrdiff_t n, ptrdiff_t m, const double *restrict a, const double *restrict s,
                           ptrdiff_t *restrict index, double *restrict out)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        index[count] = i;
        count += s[i] < 0.0;
    }
    for (ptrdiff_t k = 0; count && k < m; ++k)
        for (ptrdiff_t j = 0; j < count; ++j)
            out[k * count + j] = sqrt(-s[index[j]]) * a[k * n + index[j]];
    return count;
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
void xg_scale(ptrdiff_t n, const double *restrict factor, double *restrict x)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        x[i] *= factor[i];
}

XG_CLONES
void xg_clip_precision(ptrdiff_t n, const double *restrict mean, double *restrict precision, double *restrict linear)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double negative = xg_min(precision[i], 0.0);
        precision[i] -= negative;
        linear[i] -= negative * mean[i];
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
