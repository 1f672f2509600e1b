/* What the gradients of rows' conditionals add to those of the rows that are their neighbours. */
#pragma once

#include "local.h"

/* n rows with k neighbours each, all different, index (n, k), and what each set of neighbours and class makes of the
 * gradient. */
typedef struct {
    ptrdiff_t n, k, m, n_classes, n_sets;
    const int32_t *index;
    const xg_local_pulled *set;
} xg_scatter_rows;

/* Gradients by N rows' whitened rows a (N, m), k(x, x) (N,), and sites (classes, N). */
typedef struct {
    ptrdiff_t n;
    double *a, *diagonal, *precision, *linear;
} xg_scatter_sums;

/* Adds gamma u - chi b, -gamma chi, d_precision and d_linear to what the neighbours have. */
void xg_scatter_add(const xg_scatter_rows *rows, const xg_scatter_sums *sums);
