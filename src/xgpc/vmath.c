#include "vmath.h"

void xg_exp_array(ptrdiff_t n, const double *x, double *out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = xg_exp(x[i]);
}

void xg_normal_array(ptrdiff_t n, const double *x, double *cdf, double *pdf)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double gauss;
        double tail = xg_normal_tail(fabs(x[i]), &gauss);
        cdf[i] = x[i] < 0.0 ? tail : 1.0 - tail;
        pdf[i] = XG_INV_SQRT_2PI * gauss;
    }
}

void xg_scale(ptrdiff_t n, const double *restrict factor, double *restrict x)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        x[i] *= factor[i];
}

void xg_clip_precision(ptrdiff_t n, const double *restrict mean, double *restrict precision, double *restrict linear)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double negative = xg_min(precision[i], 0.0);
        precision[i] -= negative;
        linear[i] -= negative * mean[i];
    }
}

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

void xg_step(ptrdiff_t n, double rate, const double *g, double *current)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        current[i] += rate * g[i];
}
