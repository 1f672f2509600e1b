/* What the gradients of rows' conditionals add to those of the rows that are their neighbours. */
#ifndef XGPC_SPREAD_H
#define XGPC_SPREAD_H

#include <stddef.h>
#include <stdint.h>

/* n rows with k neighbours each, index (n, k), and for all classes their arrays of xg_local_pulled. */
typedef struct {
    ptrdiff_t n, k, m, n_classes;
    const int64_t *index;
    const double *gamma, *chi, *b, *u, *d_precision, *d_linear;
} xg_spread_rows;

/* Gradients by N rows' whitened rows a (N, m), k(x, x) (N,), and sites (classes, N). */
typedef struct {
    ptrdiff_t n;
    double *a, *diagonal, *precision, *linear;
} xg_spread_sums;

/* Adds gamma u - chi b, -gamma chi, d_precision and d_linear to what the neighbours have. */
void xg_spread(const xg_spread_rows *rows, const xg_spread_sums *sums);

#endif
