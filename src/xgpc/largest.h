/* Probabilities that each of several independent values, normal or normal plus Gumbel, is the largest, by one integral
 * for all of them. With H_c and h_c the distribution function and density of value c, r_c = h_c / H_c, T = prod_c H_c,
 *
 *     p_y = integral of T r_y,   dp_y / dm_c = -integral of T r_y r_c,
 *     dp_y / dv_c = half the integral of T r_y h'_c / H_c,   c != y,
 *
 * as dH_c / dv_c = h'_c / 2. The derivatives of all p by one moment sum to zero, which gives that of p_c by its own.
 * Time and memory are O(classes). */
#pragma once

#include "vmath.h"

/* The distribution function of the sum of a normal and a standard Gumbel variable: two functions of (row, x), of which
 * this has coefficients of cubic B-splines, each (rows + 2, columns + 2), at rows 0 .. rows - 1 and at columns x from
 * low to high, plus one coefficient on each side. */
typedef struct {
    ptrdiff_t rows, columns;
    double low, high;
    const double *psi, *slope;
} xg_table;

/* One point: means and standard deviations (classes,) of its values, their rows of the table, and nodes: the first
 * possible one, as the integral begins where T is about exp(-40), if that is right of the first; and an end. The integral
 * goes on to at least this, and to ``reach``, the largest distance from a mean beyond which a value counts as
 * impossible, from its beginning. If the table has no psi, the values are normal. */
typedef struct {
    const xg_table *table;
    ptrdiff_t classes;
    const double *mean, *scale, *row;
    double first, end, reach;
} xg_values;

/* Number of doubles of scratch, 21 kB for each class. */
ptrdiff_t xg_largest_scratch(const xg_table *table, ptrdiff_t classes);

/* log p (classes,), divided by the sum of all p, which is one but for the error of the rule. */
void xg_largest(const xg_values *at, double *scratch, double *log_p);
/* Derivatives (2, classes, classes) of each p, in rows, by means and variances. */
void xg_largest_slopes(const xg_values *at, double *scratch, double *slopes);
