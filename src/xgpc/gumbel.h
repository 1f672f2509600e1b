/* The distribution function of the sum of a normal and a standard Gumbel variable, from a table. */
#pragma once

#include "vmath.h"

#define XG_EULER 0.57721566490153286061

/* Two functions of (row, x): coefficients of cubic B-splines, each (rows + 2, columns + 2), at rows 0 .. rows - 1
 * and at columns x from low to high, plus one coefficient on each side. */
typedef struct {
    ptrdiff_t rows, columns;
    double low, high;
    const double *psi, *slope;
} xg_table;

/* Number of doubles of the coefficients along a row; they hold from x = least on. */
static inline ptrdiff_t xg_gumbel_scratch(const xg_table *table) { return 2 * (table->columns + 2); }
void xg_gumbel_row(const xg_table *table, double row, double least, double *out);

/* psi = log(-log H), slope = -d psi / dt and, unless NULL, bend = d slope / dt at n values t. H is the distribution function of f +
 * g, f normal with some mean and g Gumbel, with standard deviation scale. The table has both functions at the row of the
 * coefficients and x = (t - mean - XG_EULER) / scale.
 *
 * Left of the table, psi follows the logarithm of the normal distribution function. Right of it, the hazard grows as
 * the normal one until it reaches that of the Gumbel distribution, which is one. */
void xg_gumbel_along(const xg_table *table, const double *row, double mean, double scale, ptrdiff_t n, const double *t,
                     double *psi, double *slope, double *bend);
