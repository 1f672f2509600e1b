/* The distribution function of a normal plus a standard Gumbel variable, by a table. */
#ifndef XGPC_GUMBEL_H
#define XGPC_GUMBEL_H

#include "vmath.h"

/* Two functions of (row, x): coefficients of cubic B-splines, each (rows + 2, columns + 2), at rows 0 .. rows - 1 and at
 * columns x from low to high, with one more of each around them. */
typedef struct {
    ptrdiff_t rows, columns;
    double low, high;
    const double *psi, *slope;
} xg_table;

/* Doubles of scratch that xg_gumbel_normal wants. */
ptrdiff_t xg_gumbel_scratch(const xg_table *table);

/* psi = log(-log H) and slope = -d psi / du at n values of u = t - E[f], H the distribution function of f + g, f normal
 * and g Gumbel, with standard deviation scale; the table has both in x = (u - Euler's constant) / scale, at row.
 *
 * Beyond the table psi follows the normal distribution's logarithm to the left, and to the right its hazard as far as
 * the Gumbel distribution's, which is one. */
void xg_gumbel_normal(const xg_table *table, ptrdiff_t n, const double *u, double scale, double row, double *scratch,
                      double *psi, double *slope);

#endif
