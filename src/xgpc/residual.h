/* Rows minus weighted sums of their neighbours. */
#ifndef XGPC_RESIDUAL_H
#define XGPC_RESIDUAL_H

#include <stddef.h>
#include <stdint.h>

/* b = a - A_N^T gamma (n, m) of rows a (n, m), with weights gamma (n, k) of their neighbours index (n, k) among the
 * rows A (., m). */
void xg_residual_rows(ptrdiff_t n, ptrdiff_t m, ptrdiff_t k, const double *a, const double *A, const int64_t *index,
                      const double *gamma, double *b);

#endif
