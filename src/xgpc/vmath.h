/* Branch-free elementary functions that compilers turn into SIMD code inside loops.
 *
 * Largest errors, held by tests/test_vmath.py against mpmath: xg_exp 1.3 ulp; xg_normal_tail 5e-16 relative in the
 * scaled tail, and x^2 eps / 4 from rounding x^2 in its exponential; xg_log1p_unit 3 ulp; xg_pg_mean 4 ulp. */
#ifndef XGPC_VMATH_H
#define XGPC_VMATH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Inlined into every clone of a loop: without that the loops below do not vectorise. */
#if defined(__GNUC__) || defined(__clang__)
#define XG_INLINE static inline __attribute__((always_inline))
#else
#define XG_INLINE static inline
#endif

#include "coefficients.h"

/* One copy of a loop per instruction set, chosen at load time, where the compiler can (meson.build probes). */
#ifdef XG_HAVE_TARGET_CLONES
#define XG_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define XG_CLONES
#endif

#define XG_INV_SQRT_2PI 0.39894228040143267794

XG_INLINE double xg_min(double a, double b) { return a < b ? a : b; }
XG_INLINE double xg_max(double a, double b) { return a > b ? a : b; }

/* exp(x) for x <= 0; 0 for x < -708. */
XG_INLINE double xg_exp(double x)
{
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer in the low bits */
    double clipped = xg_max(x, -708.0);
    double shifted = clipped * 1.44269504088896340736 + shift;
    double n = shifted - shift;
    double r = (clipped - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double value = xg_exp_polynomial(r);
    int64_t exponent, bits;
    memcpy(&exponent, &shifted, sizeof exponent);
    memcpy(&bits, &value, sizeof bits);
    bits = (int64_t)((uint64_t)bits + ((uint64_t)exponent << 52));
    memcpy(&value, &bits, sizeof value);
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

/* log(1 + e) for 0 <= e <= 1. */
XG_INLINE double xg_log1p_unit(double e)
{
    double s = e / (2.0 + e);
    return 2.0 * s * xg_atanh_polynomial(s * s);
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

/* Tiles: element (i, k) of an (n, m) tile, i < n a row of data, stands at [k * n + i]. */

/* out (n, m) (+)= variance * exp(-d2 / 2), d2[i, k] = x2[i] + z2[k] - 2 cross[i, k] clipped at 0. */
void xg_rbf_from_products(ptrdiff_t n, ptrdiff_t m, const double *x2, const double *z2, double variance,
                          const double *cross, int accumulate, double *out);
/* The same from differences of the scaled tile x (n, d) and row-major z (m, d): slower, free of cancellation. */
void xg_rbf_from_differences(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, const double *z, double variance,
                             int accumulate, double *out);
/* out[i] = sum_k a[i, k]^2 */
void xg_squared_norms(ptrdiff_t n, ptrdiff_t m, const double *a, double *out);
/* copy = a, norms[i] = sum_k a[i, k]^2, mean[i] = sum_k a[i, k] w[k] */
void xg_norms_and_means(ptrdiff_t n, ptrdiff_t m, const double *a, const double *w, double *copy, double *norms,
                        double *mean);
/* out[i, k] = sqrt(s[i]) a[i, k], sum[k] = sum_i r[i] a[i, k], added to sum if accumulate; root (n,) is scratch */
void xg_scale_and_sum(ptrdiff_t n, ptrdiff_t m, const double *a, const double *s, const double *r, int accumulate,
                      double *root, double *out, double *sum);
/* g[i, k] = precision[i] g[i, k] + residual[i] alpha[k] */
void xg_gradient_tile(ptrdiff_t n, ptrdiff_t m, const double *precision, const double *residual, const double *alpha,
                      double *g);
/* w *= g elementwise; row_sum[i] = sum_k w[i, k]; column_sum[k] += sum_i w[i, k] */
void xg_weight_tile(ptrdiff_t n, ptrdiff_t m, const double *g, double *w, double *row_sum, double *column_sum);

/* Vectors of natural parameters. */

/* g = scale * target - current; returns |g|^2 */
double xg_natural_gradient(ptrdiff_t n, double scale, const double *target, const double *current, double *g);
/* mean += weight (g - mean); returns |mean|^2 */
double xg_move_average(ptrdiff_t n, double weight, const double *g, double *mean);
/* |x - y|^2 */
double xg_distance(ptrdiff_t n, const double *x, const double *y);
/* current += rate g */
void xg_step(ptrdiff_t n, double rate, const double *g, double *current);

#endif
