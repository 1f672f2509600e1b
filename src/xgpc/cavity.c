#include "cavity.h"

/* Least precision of a site, and least share of a cavity's variance that a site leaves: round-off. */
#define LEAST_PRECISION 1e-12
#define LEAST_SHARE 1e-9

/* log E[sigma(f)], f ~ N(t, v), and its first four derivatives with respect to t. Derivatives with respect to v
 * follow from these, because the expectation solves the heat equation. */
typedef struct {
    double value, first, second, third, fourth;
} derivatives;

XG_INLINE derivatives of_logarithm(double value, double g1, double g2, double g3, double g4)
{
    double a = g1 / value, b = g2 / value, c = g3 / value, d = g4 / value;
    derivatives L;
    L.value = value;
    L.first = a;
    L.second = b - a * a;
    L.third = c - 3.0 * a * b + 2.0 * a * a * a;
    L.fourth = d - 4.0 * a * c - 3.0 * b * b + 12.0 * a * a * b - 6.0 * a * a * a * a;
    return L;
}

/* For t < -v / 2 the tails of the mixture are too thin. There E[sigma(f)] = exp(t + v / 2) E[sigma(g)], g ~ N(-(t +
 * v), v). */
XG_INLINE derivatives logit(double t, double v)
{
    int is_tilted = t < -0.5 * v;
    double mean = is_tilted ? -(t + v) : t;
    double g0 = 0.0, g1 = 0.0, g2 = 0.0, g3 = 0.0, g4 = 0.0;
    /* All terms are relative to exp(-excess), about the widest tail, because for v > 5800 the terms would underflow. */
    double excess = mean < 0.0 ? 0.5 * mean * mean / (v + 18.0) : 0.0;
#define TERM(p, inverse_squared_scale)                                                                               \
    {                                                                                                                \
        double inverse = 1.0 / sqrt(v + inverse_squared_scale), z = mean * inverse, x = fabs(z);                     \
        double gauss = xg_exp(xg_min(excess - 0.5 * z * z, 0.0));                                                    \
        double tail = gauss * xg_tail_polynomial((x - 4.0) / (x + 4.0)) / (x + 1.0);                                 \
        double slope = p * XG_INV_SQRT_2PI * gauss * inverse;                                                        \
        g0 += p * (z < 0.0 ? tail : 1.0 - tail);                                                                     \
        g1 += slope;                                                                                                 \
        g2 -= slope * inverse * z;                                                                                   \
        g3 += slope * inverse * inverse * (z * z - 1.0);                                                             \
        g4 -= slope * inverse * inverse * inverse * z * (z * z - 3.0);                                               \
    }
    XG_LOGISTIC_MIXTURE(TERM)
#undef TERM
    derivatives L = of_logarithm(g0, g1, g2, g3, g4);
    L.value = -xg_log1p(1.0 / L.value - 1.0) - excess;
    if (is_tilted) {
        L.value += t + 0.5 * v;
        L.first = 1.0 - L.first;
        L.third = -L.third;
    }
    return L;
}

XG_INLINE derivatives probit(double t, double v)
{
    double inverse = 1.0 / sqrt(1.0 + v), z = t * inverse, x = fabs(z), gauss;
    double tail = xg_normal_tail(x, &gauss);
    double mills = xg_tail_polynomial((x - 4.0) / (x + 4.0)) / (x + 1.0); /* Phi(-x) / exp(-x^2 / 2) */
    double r = XG_INV_SQRT_2PI * (z < 0.0 ? 1.0 / mills : gauss / (1.0 - tail));
    double near = z + r, far = z + 2.0 * r, slope = -r * near, product = near * far - 1.0;
    derivatives L;
    L.value = -xg_log1p(z < 0.0 ? 1.0 / mills - 1.0 : tail / (1.0 - tail)) - (z < 0.0 ? 0.5 * x * x : 0.0);
    L.first = r * inverse;
    L.second = slope * inverse * inverse;
    L.third = r * product * inverse * inverse * inverse;
    L.fourth = slope * product + r * ((1.0 + slope) * far + near * (1.0 + 2.0 * slope));
    L.fourth *= inverse * inverse * inverse * inverse;
    return L;
}

/* A loop over n points with the derivatives L at point i. It vectorises because each loop has one link alone. */
#define AT_POINTS(...)                                                                                               \
    const double *restrict m = at->m, *restrict v = at->v, *restrict y = at->y;                                      \
    if (link == XG_CAVITY_LOGIT)                                                                                     \
        for (ptrdiff_t i = 0; i < at->n; ++i) {                                                                      \
            derivatives L = logit(y[i] * m[i], v[i]);                                                                \
            __VA_ARGS__                                                                                              \
        }                                                                                                            \
    else                                                                                                             \
        for (ptrdiff_t i = 0; i < at->n; ++i) {                                                                      \
            derivatives L = probit(y[i] * m[i], v[i]);                                                               \
            __VA_ARGS__                                                                                              \
        }

void xg_cavity_scores(int link, const xg_moments *restrict at, double *restrict value, double *restrict d_m,
                      double *restrict d_v)
{
    AT_POINTS(value[i] = L.value; d_m[i] = y[i] * L.first; d_v[i] = 0.5 * (L.second + L.first * L.first);)
}

void xg_cavity_sites(int link, const xg_moments *restrict at, double *restrict precision, double *restrict linear)
{
    AT_POINTS(double curvature = xg_max(-L.second, LEAST_PRECISION);
              double share = xg_max(1.0 - curvature * v[i], LEAST_SHARE);
              precision[i] = curvature / share;
              linear[i] = (y[i] * L.first + curvature * m[i]) / share;)
}

void xg_cavity_vjp(int link, const xg_moments *restrict at, const double *restrict d_precision,
                   const double *restrict d_linear, double *restrict d_m, double *restrict d_v)
{
    AT_POINTS(
        double g = xg_max(-L.second, LEAST_PRECISION), share = xg_max(1.0 - g * v[i], LEAST_SHARE);
        double first = y[i] * L.first, linear = first + g * m[i], square = share * share;
        double is_free = -L.second > LEAST_PRECISION && 1.0 - g * v[i] > LEAST_SHARE ? 1.0 : 0.0;
        double by_first = d_linear[i] / share;
        double by_g = is_free * (d_precision[i] / square + d_linear[i] * (m[i] / share + linear * v[i] / square));
        d_m[i] = by_first * L.second - by_g * y[i] * L.third + d_linear[i] * g / share;
        d_v[i] = by_first * y[i] * 0.5 * (L.third + 2.0 * L.first * L.second)
                 - by_g * 0.5 * (L.fourth + 2.0 * L.second * L.second + 2.0 * L.first * L.third)
                 + is_free * (d_precision[i] * g * g + d_linear[i] * linear * g) / square;)
}
