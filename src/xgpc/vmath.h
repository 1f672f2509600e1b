/* Branch-free elementary functions, which compilers vectorise inside loops.
 *
 * Largest errors, tested against mpmath in tests/test_vmath.py: xg_exp 1.3 ulp; xg_normal_tail 5e-16 relative in the
 * scaled tail, and x^2 eps / 4 from rounding x^2 in its exponential; xg_log1p 3 ulp; xg_pg_mean 4 ulp. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Numbers of a register: the files are built for each kind of register, see dispatch.c. */
#if defined(__AVX512F__)
#define XG_WIDTH 8
#elif defined(__AVX2__)
#define XG_WIDTH 4
#else
#define XG_WIDTH 2
#endif

/* These functions must be inlined, or the loops that call them do not vectorise. */
#define XG_INLINE static inline __attribute__((always_inline))

/* Functions of their own: in a function that they are inlined into, loops lose what ``restrict`` says, and registers. */
#define XG_CALLED static __attribute__((noinline, unused))

/* A call of an inline function with one of two constants as its first argument, for each of which it is compiled. */
#define XG_WITH(condition, first, second, function, ...)                                                             \
    ((condition) ? function(first, __VA_ARGS__) : function(second, __VA_ARGS__))

#include "coefficients.inc.h"

/* Sums over a vector use eight lanes in a fixed order, so that they vectorise without reassociation. */
#define XG_LANES 8

XG_INLINE double xg_sum_of_lanes(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

#define XG_INV_SQRT_2PI 0.39894228040143267794
#define XG_EULER 0.57721566490153286061

XG_INLINE double xg_min(double a, double b) { return a < b ? a : b; }
XG_INLINE double xg_max(double a, double b) { return a > b ? a : b; }

/* exp(x) for -708 <= x <= 708. */
XG_INLINE double xg_near_exp(double x)
{
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer in the low bits */
    double shifted = x * 1.44269504088896340736 + shift;
    double n = shifted - shift;
    double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double value = xg_exp_polynomial(r);
    int64_t exponent, bits;
    memcpy(&exponent, &shifted, sizeof exponent);
    memcpy(&bits, &value, sizeof bits);
    bits = (int64_t)((uint64_t)bits + ((uint64_t)exponent << 52));
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(x) for x <= 0; 0 for x < -708. */
XG_INLINE double xg_exp(double x)
{
    double value = xg_near_exp(xg_max(x, -708.0));
    return x < -708.0 ? 0.0 : value;
}

/* Phi(-x) for x >= 0; *gauss receives exp(-x^2 / 2). */
XG_INLINE double xg_normal_tail(double x, double *gauss)
{
    double t = xg_min(x, 40.0); /* Phi(-38.6) is already below the smallest double */
    double e = xg_exp(-0.5 * t * t);
    *gauss = e;
    return e * xg_tail_polynomial((t - 4.0) / (t + 4.0)) / (t + 1.0);
}

/* Phi(x); *pdf receives the density. */
XG_INLINE double xg_normal_below(double x, double *pdf)
{
    double gauss, tail = xg_normal_tail(fabs(x), &gauss);
    *pdf = XG_INV_SQRT_2PI * gauss;
    return x < 0.0 ? tail : 1.0 - tail;
}

/* xg_normal_tail for x in [0, XG_NEAR], with an absolute error of 6e-13. */
#define XG_NEAR 7.0
XG_INLINE double xg_near_normal_tail(double x, double *gauss)
{
    double e = xg_near_exp(-0.5 * x * x);
    *gauss = e;
    return e * xg_near_tail_polynomial((x - 5.0) / (x + 5.0));
}

/* log(1 + e) for 0 <= e <= 1. */
XG_INLINE double xg_log1p_unit(double e)
{
    double s = e / (2.0 + e);
    return 2.0 * s * xg_atanh_polynomial(s * s);
}

/* log(1 + x), x >= 0. */
XG_INLINE double xg_log1p(double x)
{
    double y = 1.0 + x;
    int64_t bits, biased;
    double exponent, mantissa;
    memcpy(&bits, &y, sizeof bits);
    biased = (int64_t)((uint64_t)bits >> 52) | 0x4330000000000000; /* as a double: 2^52 + 1023 + exponent */
    memcpy(&exponent, &biased, sizeof exponent);
    bits = (bits & 0x000fffffffffffff) | 0x3ff0000000000000;
    memcpy(&mantissa, &bits, sizeof mantissa);
    exponent = x < 1.0 ? 0.0 : exponent - (4503599627370496.0 + 1023.0);
    return exponent * 0.69314718055994530942 + xg_log1p_unit(x < 1.0 ? x : mantissa - 1.0);
}

/* The four cubic B-splines that are not zero at the fraction s of the interval between two knots. */
XG_INLINE void xg_spline_weights(double s, double *w)
{
    double r = 1.0 - s;
    w[0] = r * r * r / 6.0;
    w[1] = 2.0 / 3.0 - 0.5 * s * s * (1.0 + r);
    w[2] = 2.0 / 3.0 - 0.5 * r * r * (1.0 + s);
    w[3] = s * s * s / 6.0;
}

/* Mean tanh(c / 2) / (2 c) of the Polya-Gamma distribution PG(1, c), c >= 0; e = exp(-c). */
XG_INLINE double xg_pg_mean(double c, double e)
{
    double near = xg_pg_mean_polynomial(c * c);
    double far = (1.0 - e) / ((1.0 + e) * 2.0 * xg_max(c, 0.5));
    return c < 0.5 ? near : far;
}

void xg_exp_array(ptrdiff_t n, const double *x, double *out);
void xg_normal_array(ptrdiff_t n, const double *x, double *cdf, double *pdf);

/* Sites of n points. */

/* Set negative precisions to 0, and change the linear terms so that r - lambda m, the gradient in the mean, stays */
void xg_clip_precision(ptrdiff_t n, const double *mean, double *precision, double *linear);

/* Vectors of natural parameters. */

/* g = scale * target - current; returns |g|^2 */
double xg_natural_gradient(ptrdiff_t n, double scale, const double *target, const double *current, double *g);
/* mean += weight (g - mean); returns |mean|^2 */
double xg_move_average(ptrdiff_t n, double weight, const double *g, double *mean);
/* |x - y|^2 */
double xg_distance(ptrdiff_t n, const double *x, const double *y);
/* current += rate g */
void xg_step(ptrdiff_t n, double rate, const double *g, double *current);
