/* The gradient by whitened rows, summed over the rows whose neighbours they are. */
#ifndef XGPC_SPREAD_H
#define XGPC_SPREAD_H

#include <stddef.h>
#include <stdint.h>

/* n rows with k neighbours each: index, gamma, chi (n, k), and b, u (n, m) as in xg_local_pulled. */
typedef struct {
    ptrdiff_t n, k, m;
    const int64_t *index;
    const double *gamma, *chi, *b, *u;
} xg_spread_rows;

/* Adds gamma u - chi b to the columns first, ..., last - 1 of the row of each neighbour in d_a (., m). */
void xg_spread(const xg_spread_rows *rows, ptrdiff_t first, ptrdiff_t last, double *d_a);

#endif
