/* What the gradients of rows' conditionals add to those of the rows that are their neighbours. */
#ifndef XGPC_SPREAD_H
#define XGPC_SPREAD_H

#include "local.h"

/* n rows with k neighbours each, all different, index (n, k), and what each set of neighbours and class makes of the
 * gradient. */
typedef struct {
    ptrdiff_t n, k, m, n_classes, n_sets;
    const int32_t *index;
    const xg_local_pulled *set;
} xg_spread_rows;

/* Gradients by N rows' whitened rows a (N, m), k(x, x) (N,), and sites (classes, N). */
typedef struct {
    ptrdiff_t n;
    double *a, *diagonal, *precision, *linear;
} xg_spread_sums;

/* Adds gamma u - chi b, -gamma chi, d_precision and d_linear to what the neighbours have. */
void xg_spread(const xg_spread_rows *rows, const xg_spread_sums *sums);

#endif
