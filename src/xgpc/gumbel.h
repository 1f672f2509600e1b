/* The distribution function of the sum of a normal and a standard Gumbel variable, from a table. */
#pragma once

#include "vmath.h"

/* Two functions of (row, x): coefficients of cubic B-splines, each (rows + 2, columns + 2), at rows 0 .. rows - 1
 * and at columns x from low to high, plus one coefficient on each side. */
typedef struct {
    ptrdiff_t rows, columns;
    double low, high;
    const double *psi, *slope;
} xg_table;

/* Number of doubles of scratch that xg_gumbel_normal needs. */
static inline ptrdiff_t xg_gumbel_scratch(const xg_table *table) { return 2 * (table->columns + 2); }

/* psi = log(-log H), slope = -d psi / du and bend = d slope / du at n values of u = t - E[f]. H is the distribution
 * function of f + g, f normal and g Gumbel, with standard deviation scale. The table has both functions at x = (u -
 * Euler's constant) / scale and row.
 *
 * Left of the table, psi follows the logarithm of the normal distribution function. Right of it, the hazard grows as
 * the normal one until it reaches that of the Gumbel distribution, which is one. */
void xg_gumbel_normal(const xg_table *table, ptrdiff_t n, const double *u, double scale, double row, double *scratch,
                      double *psi, double *slope, double *bend);
