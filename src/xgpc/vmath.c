#include "vmath.h"

void xg_exp_array(ptrdiff_t n, const double *x, double *out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = xg_exp(x[i]);
}

void xg_normal_array(ptrdiff_t n, const double *x, double *cdf, double *pdf)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        cdf[i] = xg_normal_below(x[i], pdf + i);
}

void xg_clip_precision(ptrdiff_t n, const double *restrict mean, double *restrict precision, double *restrict linear)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double negative = xg_min(precision[i], 0.0);
        precision[i] -= negative;
        linear[i] -= negative * mean[i];
    }
}

XG_INLINE double square(double x) { return x * x; }

/* A function of n elements: the sum, in lanes, of the squares of the values for all elements i */
#define SUM_OF_SQUARES(function, value)                                                                              \
    double function                                                                                                  \
    {                                                                                                                \
        double lane[XG_LANES] = {0.0}, total = 0.0;                                                                  \
        ptrdiff_t first = 0;                                                                                         \
        for (; first + XG_LANES <= n; first += XG_LANES)                                                             \
            for (ptrdiff_t l = 0, i = first; l < XG_LANES; ++l, ++i)                                                 \
                lane[l] += square(value);                                                                            \
        for (ptrdiff_t i = first; i < n; ++i)                                                                        \
            total += square(value);                                                                                  \
        for (int l = 0; l < XG_LANES; ++l)                                                                           \
            total += lane[l];                                                                                        \
        return total;                                                                                                \
    }

SUM_OF_SQUARES(xg_natural_gradient(ptrdiff_t n, double scale, const double *target, const double *current, double *g),
               g[i] = scale * target[i] - current[i])
SUM_OF_SQUARES(xg_move_average(ptrdiff_t n, double weight, const double *g, double *mean),
               mean[i] += weight * (g[i] - mean[i]))
SUM_OF_SQUARES(xg_distance(ptrdiff_t n, const double *x, const double *y), x[i] - y[i])

void xg_step(ptrdiff_t n, double rate, const double *g, double *current)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        current[i] += rate * g[i];
}
