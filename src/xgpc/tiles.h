/* Functions of tiles besides BLAS. Element (i, k) of an (n, m) tile, i < n a row of data, is at [k * n + i]; a small matrix
 * is row-major. The result of a row does not depend on other rows. */
#pragma once

#include "vmath.h"

/* out[i] = sum_k a[i, k]^2 */
void xg_squared_norms(ptrdiff_t n, ptrdiff_t m, const double *a, double *out);
/* mean[i] = sum_k a[i, k] w[k] */
void xg_means(ptrdiff_t n, ptrdiff_t m, const double *a, const double *w, double *mean);
/* g[i, k] = precision[i] product[i, k] + residual[i] alpha[k], added to g if accumulate */
void xg_gradient_tile(ptrdiff_t n, ptrdiff_t m, const double *precision, const double *residual, const double *alpha,
                      const double *product, int accumulate, double *g);
/* out = x, rounded */
void xg_narrow(ptrdiff_t n, const double *x, float *out);
/* out = x */
void xg_widen(ptrdiff_t n, const float *x, double *out);

/* What a pass does m^2 times for each row: products of tiles with triangles, and sums of outer products of rows. In double
 * precision and, with names that end in _single, in single precision; sums over the elements of a row and over the rows
 * of a tile then are in double precision. They are as fast as the BLAS for many inducing points, and up to three times as
 * fast for few. ``scratch`` has room for xg_triangle_scratch(n, m) doubles. */

/* a <- a lower^T, of which only the lower triangle is read */
void xg_times_lower_t(ptrdiff_t n, ptrdiff_t m, const double *lower, double *a, double *scratch);
/* mean[i] = sum_k a[i, k] w[k], norms[i] = |a_i|^2 and spread[i] = |b_i|^2 for b = a lower^T. b (n, m) is written unless it
 * is NULL. */
void xg_marginals(ptrdiff_t n, ptrdiff_t m, const double *a, const double *w, const double *lower, double *b,
                  double *mean, double *norms, double *spread, double *scratch);
void xg_marginals_single(ptrdiff_t n, ptrdiff_t m, const float *a, const double *w, const float *lower, float *b,
                         double *mean, double *norms, double *spread, double *scratch);
/* P += sum_i s[i] a_i a_i^T, its lower triangle, and h += sum_i r[i] a_i */
void xg_add_outer(ptrdiff_t n, ptrdiff_t m, const double *a, const double *s, const double *r, double *P, double *h,
                  double *scratch);
void xg_add_outer_single(ptrdiff_t n, ptrdiff_t m, const float *a, const double *s, const double *r, double *P,
                         double *h, double *scratch);
ptrdiff_t xg_triangle_scratch(ptrdiff_t n, ptrdiff_t m);
/* Whether these functions have registers of 256 bits or more. Else a BLAS that has them is faster in double precision,
 * and _tiles.pxd calls it. */
int xg_is_wide(void);
