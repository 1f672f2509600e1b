/* Functions of whitened rows besides BLAS, in double precision and, with names that end in _single, in single
 * precision. Sums over the elements of a row or over rows are in double precision. Element (i, k) of an (n, m) tile,
 * i < n a row of data, is at [k * n + i]. */
#ifndef XGPC_TILES_H
#define XGPC_TILES_H

#include "vmath.h"

#define XG_TILE_FUNCTIONS(REAL, NAME)                                                                                \
    /* out[i] = sum_k a[i, k]^2 */                                                                                   \
    void NAME(xg_squared_norms)(ptrdiff_t n, ptrdiff_t m, const REAL *a, double *out);                               \
    /* copy = a, norms[i] = sum_k a[i, k]^2, mean[i] = sum_k a[i, k] w[k] */                                         \
    void NAME(xg_norms_and_means)(ptrdiff_t n, ptrdiff_t m, const REAL *a, const double *w, REAL *copy,              \
                                  double *norms, double *mean);                                                      \
    /* out[i, k] = sqrt(s[i]) a[i, k], 0 where s[i] < 0; sum[k] += sum_i r[i] a[i, k]; root (n,) is scratch */       \
    void NAME(xg_scale_and_sum)(ptrdiff_t n, ptrdiff_t m, const REAL *a, const double *s, const double *r,           \
                                double *root, REAL *out, double *sum);                                               \
    /* The rows with s[i] < 0, sqrt(-s[i]) a[i, k], as a tile of as many rows; returns their number. index (n,) is   \
     * scratch */                                                                                                    \
    ptrdiff_t NAME(xg_negative_rows)(ptrdiff_t n, ptrdiff_t m, const REAL *a, const double *s, ptrdiff_t *index,     \
                                     REAL *out);

#define XG_DOUBLE(name) name
#define XG_SINGLE(name) name##_single
XG_TILE_FUNCTIONS(double, XG_DOUBLE)
XG_TILE_FUNCTIONS(float, XG_SINGLE)

/* mean[i] = sum_k a[i, k] w[k] */
void xg_means(ptrdiff_t n, ptrdiff_t m, const double *a, const double *w, double *mean);
/* g[i, k] = precision[i] product[i, k] + residual[i] alpha[k], added to g if accumulate */
void xg_gradient_tile(ptrdiff_t n, ptrdiff_t m, const double *precision, const double *residual, const double *alpha,
                      const double *product, int accumulate, double *g);
/* out = x, rounded */
void xg_narrow(ptrdiff_t n, const double *x, float *out);
/* out = x */
void xg_widen(ptrdiff_t n, const float *x, double *out);
/* sum = part or sum += part, for the lower triangle of row-major matrices (m, m) */
void xg_add_lower(ptrdiff_t m, const float *part, int accumulate, double *sum);

#endif
