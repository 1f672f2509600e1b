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

/* total += TERM(i) for n elements, in lanes */
#define SUM(total, n, TERM)                                                                                          \
    {                                                                                                                \
        double lane[XG_LANES] = {0.0};                                                                               \
        ptrdiff_t i = 0;                                                                                             \
        for (; i + XG_LANES <= n; i += XG_LANES)                                                                     \
            for (int l = 0; l < XG_LANES; ++l)                                                                       \
                lane[l] += TERM(i + l);                                                                              \
        for (; i < n; ++i)                                                                                           \
            total += TERM(i);                                                                                        \
        for (int l = 0; l < XG_LANES; ++l)                                                                           \
            total += lane[l];                                                                                        \
    }

XG_INLINE double square(double x) { return x * x; }

double xg_natural_gradient(ptrdiff_t n, double scale, const double *target, const double *current, double *g)
{
    double total = 0.0;
#define TERM(i) square(g[i] = scale * target[i] - current[i])
    SUM(total, n, TERM)
#undef TERM
    return total;
}

double xg_move_average(ptrdiff_t n, double weight, const double *g, double *mean)
{
    double total = 0.0;
#define TERM(i) square(mean[i] += weight * (g[i] - mean[i]))
    SUM(total, n, TERM)
#undef TERM
    return total;
}

double xg_distance(ptrdiff_t n, const double *x, const double *y)
{
    double total = 0.0;
#define TERM(i) square(x[i] - y[i])
    SUM(total, n, TERM)
#undef TERM
    return total;
}

void xg_step(ptrdiff_t n, double rate, const double *g, double *current)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        current[i] += rate * g[i];
}
