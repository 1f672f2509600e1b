/* Factors of a kernel: stationary profiles p(h) of h = -r^2 / 2, r the scaled distance; the dot product; and products
 * over features, of which h is the logarithm.
 *
 * A profile has a value, a slope d p / d h, and the derivative of p with respect to the logarithm of its shape
 * parameter. */
#pragma once

#include "vmath.h"

/* The list of all families; a line of it is FAMILY(number, name, function, argument). The function is below; it
 * takes h and the shape parameter. Its argument is STATIONARY, h = -r^2 / 2, or CROSS: h = x.z, or a sum over features,
 * see axis.c. */
#define XG_FAMILY_LIST(FAMILY)                                                                                       \
    FAMILY(XG_RBF, "rbf", xg_rbf, STATIONARY)                                                                        \
    FAMILY(XG_MATERN_12, "matern-1/2", xg_matern_12, STATIONARY)                                                     \
    FAMILY(XG_MATERN_32, "matern-3/2", xg_matern_32, STATIONARY)                                                     \
    FAMILY(XG_MATERN_52, "matern-5/2", xg_matern_52, STATIONARY)                                                     \
    FAMILY(XG_RATIONAL_QUADRATIC, "rational-quadratic", xg_rational_quadratic, STATIONARY)                           \
    FAMILY(XG_PERIODIC, "periodic", xg_periodic, STATIONARY)                                                         \
    FAMILY(XG_DOT_PRODUCT, "dot-product", xg_dot_product, CROSS)                                                     \
    FAMILY(XG_AXIS_MATERN_12, "axis-matern-1/2", xg_rbf, CROSS)                                                      \
    FAMILY(XG_AXIS_MATERN_32, "axis-matern-3/2", xg_rbf, CROSS)

#define XG_FAMILY_NUMBER(number, name, function, argument) number,
enum { XG_FAMILY_LIST(XG_FAMILY_NUMBER) XG_FAMILY_COUNT };
#undef XG_FAMILY_NUMBER

/* Name of family 0 <= i < XG_FAMILY_COUNT. */
const char *xg_family_name(int i);

static inline int xg_is_axis_aligned(int family)
{
    return family == XG_AXIS_MATERN_12 || family == XG_AXIS_MATERN_32;
}

typedef struct {
    double value, slope, shape;
} xg_profile;

XG_INLINE xg_profile xg_rbf(double h, double shape)
{
    (void)shape;
    double e = xg_exp(h);
    return (xg_profile){e, e, 0.0};
}

/* The slope has a pole at h = 0. All derivatives multiply it by a distance, which vanishes faster there. */
XG_INLINE xg_profile xg_matern_12(double h, double shape)
{
    (void)shape;
    double r = sqrt(-2.0 * h), e = xg_exp(-r);
    return (xg_profile){e, r < 1e-7 ? 0.0 : e / r, 0.0};
}

XG_INLINE xg_profile xg_matern_32(double h, double shape)
{
    (void)shape;
    double a = sqrt(-6.0 * h), e = xg_exp(-a);
    return (xg_profile){(1.0 + a) * e, 3.0 * e, 0.0};
}

XG_INLINE xg_profile xg_matern_52(double h, double shape)
{
    (void)shape;
    double a = sqrt(-10.0 * h), e = xg_exp(-a);
    return (xg_profile){(1.0 + a * (1.0 + a * (1.0 / 3.0))) * e, 5.0 / 3.0 * (1.0 + a) * e, 0.0};
}

/* (1 + u)^-shape, u = r^2 / (2 shape) */
XG_INLINE xg_profile xg_rational_quadratic(double h, double shape)
{
    double u = -h / shape, log_base = xg_log1p(u), base = 1.0 + u;
    double value = xg_exp(-shape * log_base);
    return (xg_profile){value, value / base, shape * value * (u / base - log_base)};
}

/* sin(pi v) for |v| <= 1/2: Taylor's series, of which the next term is below 1e-17. */
XG_INLINE double xg_sine_of_half_turns(double v)
{
    double t = 9.869604401089358 * v * v, sum = 1.0;
    for (int j = 20; j > 0; j -= 2)
        sum = 1.0 - t / (j * (j + 1)) * sum;
    return 3.141592653589793 * v * sum;
}

/* exp(-2 sin^2(pi r) / shape^2), r the distance in periods: scikit-learn's ExpSineSquared, shape its length scale
 * (MacKay 1998, Introduction to Gaussian processes, section 5). With d r / d h = -1 / r, the slope is 4 pi / shape^2
 * times the value times sin(pi r) cos(pi r) / r, of which the ratio has the limit pi at r = 0; below 1e-7 it is that to
 * all digits. */
XG_INLINE xg_profile xg_periodic(double h, double shape)
{
    double r = sqrt(-2.0 * h), v = r - rint(r), half = 0.5 - fabs(v), inverse = 1.0 / (shape * shape);
    double sine = xg_sine_of_half_turns(v), product = copysign(xg_sine_of_half_turns(half), v) * fabs(sine);
    double value = xg_exp(-2.0 * inverse * sine * sine);
    double ratio = r < 1e-7 ? 3.141592653589793 : product / r;
    return (xg_profile){value, 12.566370614359172 * inverse * value * ratio, 4.0 * inverse * value * sine * sine};
}

/* shape + x.z, with h = x.z */
XG_INLINE xg_profile xg_dot_product(double h, double shape)
{
    return (xg_profile){shape + h, 1.0, shape};
}

/* Tiles: element (i, k) of an (n, m) tile, i < n a row of data, is at [k * n + i]. For a stationary profile h[i, k]
 * = cross[i, k] - (x2[i] + z2[k]) / 2, clipped at 0; otherwise h = cross. */

enum { XG_SET = 0, XG_ADD = 1, XG_MULTIPLY = 2 };

/* A profile p, by its family and shape, and what h of an (n, m) tile is computed from: a tile x (n, d) of scaled rows and
 * their squared norms x2 (n,), row-major scaled points z (m, d) and z2 (m,), and cross. */
typedef struct {
    int family;
    double shape;
    ptrdiff_t n, m, d;
    const double *x, *x2, *z, *z2, *cross;
} xg_profile_tile;

/* out = scale p, out += scale p, or out *= scale p; out may be cross if it is set. */
void xg_profile_values(const xg_profile_tile *tile, int mode, double scale, double *out);
/* With G (n, m): out = scale G dp/dh; row_sum[i] = sum_k out[i, k]; column_sum[k] += sum_i out[i, k];
 * sums[0] += sum scale G p; sums[1] += sum scale G dp/dlog(shape). out may be cross. */
void xg_profile_slopes(const xg_profile_tile *tile, double scale, const double *g, double *out, double *row_sum,
                       double *column_sum, double *sums);
/* Value of h if the square of a distance overflows: with infinity, a profile with a polynomial would be infinity
 * times 0. */
#define XG_FARTHEST (-1e300)
/* out[i, k] = -|x_i - z_k|^2 / 2, from differences: slower than from inner products, but without cancellation. */
void xg_half_distances(const xg_profile_tile *tile, double *out);
/* Of an axis-aligned family: out[i, k] = log k(x_i, z_k). */
void xg_axis_logarithms(const xg_profile_tile *tile, double *out);
/* With weights W (n, m) of the logarithms: by_points (m, d) += sum_i W_ik dlog k / dz_kj, and by_scales (d,) += sum_ik W_ik
 * dlog k / dlog(length scale j). For nu = 1/2 the first is W times the sign of x_ij - z_kj, which is 0 where they are
 * equal. */
void xg_axis_slopes(const xg_profile_tile *tile, const double *weight, double *by_points, double *by_scales);
/* The gradient by the scaled rows: out (n, d), a tile, = sum_k W_ik dlog k / dx_ij. */
void xg_axis_row_slopes(const xg_profile_tile *tile, const double *weight, double *out);
/* value[i], slope[i] and shaped[i]: the profile at h[i], its slope, and its derivative with respect to log(shape).
 * If slope is NULL, only the value. */
void xg_profile_array(int family, double shape, ptrdiff_t n, const double *h, double *value, double *slope,
                      double *shaped);
/* n rows of X (any number, d), float or double: at ``index``, or from ``start`` on if index is NULL. Strides in bytes. */
typedef struct {
    const char *X;
    ptrdiff_t row_stride, feature_stride;
    int is_single;
    const ptrdiff_t *index;
    ptrdiff_t start, n;
} xg_rows;

/* Tile x (n, d) = (X - centre) scale and x2 (n,) its squared norms; returns the largest of these. */
double xg_scale_rows(const xg_rows *rows, ptrdiff_t d, const double *centre, const double *scale, double *x,
                     double *x2);
/* sum[j] += sum_i weight[i] x[i, j]^2 for a tile x (n, d) */
void xg_add_squares(ptrdiff_t n, ptrdiff_t d, const double *weight, const double *x, double *sum);
