/* What a pass does m^2 times for each row: products of tiles with triangles, and sums of outer products of rows. In
 * double precision and, with names that end in _single, in single precision; sums over the elements of a row and over
 * the rows of a tile then are in double precision. They are as fast as the BLAS for many inducing points, and up to three
 * times as fast for few.
 *
 * Element (i, k) of an (n, m) tile, i < n a row of data, is at [k * n + i]; a small matrix is row-major. The result of a
 * row does not depend on other rows. ``scratch`` has room for xg_triangle_scratch(n, m) doubles. */
#ifndef XGPC_TRIANGLES_H
#define XGPC_TRIANGLES_H

#include <stddef.h>

/* Arguments of each function, and their names. NAME is XG_DOUBLE or XG_SINGLE.
 *
 * xg_times_lower_t: a <- a lower^T, of which only the lower triangle is read.
 *
 * xg_marginals: mean[i] = sum_k a[i, k] w[k], norms[i] = |a_i|^2 and spread[i] = |b_i|^2 for b = a lower^T. b (n, m) is
 * written unless it is NULL.
 *
 * xg_add_outer: P += sum_i s[i] a_i a_i^T, its lower triangle, and h += sum_i r[i] a_i. */
#define XG_TRIANGLE_LIST(FUNCTION, REAL, NAME)                                                                       \
    FUNCTION(NAME(xg_times_lower_t),                                                                                 \
             (ptrdiff_t n, ptrdiff_t m, const REAL *lower, REAL *a, double *scratch), (n, m, lower, a, scratch))     \
    FUNCTION(NAME(xg_marginals),                                                                                     \
             (ptrdiff_t n, ptrdiff_t m, const REAL *a, const double *w, const REAL *lower, REAL *b, double *mean,    \
              double *norms, double *spread, double *scratch),                                                       \
             (n, m, a, w, lower, b, mean, norms, spread, scratch))                                                   \
    FUNCTION(NAME(xg_add_outer),                                                                                     \
             (ptrdiff_t n, ptrdiff_t m, const REAL *a, const double *s, const double *r, double *P, double *h,       \
              double *scratch),                                                                                      \
             (n, m, a, s, r, P, h, scratch))

#define XG_DOUBLE(name) name
#define XG_SINGLE(name) name##_single
#define XG_TRIANGLE_DECLARED(name, parameters, arguments) void name parameters;
XG_TRIANGLE_LIST(XG_TRIANGLE_DECLARED, double, XG_DOUBLE)
XG_TRIANGLE_LIST(XG_TRIANGLE_DECLARED, float, XG_SINGLE)
ptrdiff_t xg_triangle_scratch(ptrdiff_t n, ptrdiff_t m);
/* Whether these functions have registers of 256 bits or more. Else a BLAS that has them is faster in double precision,
 * and _tiles.pxd calls it. */
int xg_is_wide(void);

#endif
