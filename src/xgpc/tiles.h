/* Functions of tiles besides BLAS and triangles.h. Element (i, k) of an (n, m) tile, i < n a row of data, is at
 * [k * n + i]. */
#ifndef XGPC_TILES_H
#define XGPC_TILES_H

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

#endif
