/* Expectations of softmax for independent normal latent values, by one integral for all classes.
 *
 * With independent standard Gumbel g_c: H_c(t) = P(f_c + g_c <= t) = E[exp(-exp(f_c - t))], T = prod_c H_c,
 * r_c = (log H_c)', R = sum_c r_c, and Euler's gamma,
 *
 *     E[logsumexp f] = integral of t T R - gamma,  p_c = E[softmax_c] = integral of T r_c,
 *     E[softmax_c (1 - softmax_c)] = integral of T r_c (R - r_c).
 *
 * log(-log H_c) is a polynomial whose coefficients a table has. Beside a fine rule with the predictions' table, for
 * variances of one size from 0 to 1e4 or of all sizes in a row, means from N(0, 0) to N(0, 30^2), and 2 to 300 classes,
 * the largest errors are 8e-6 nats (4e-8 without variances), 5e-7 in a probability and 3e-5 relative in
 * lambda_c = E[softmax_c (1 - softmax_c)], where that is more than 1e-4. A row of C classes takes about .2 C
 * microseconds, .3 C for three, in 512-bit registers. */
#pragma once

#include "moments.h"

/* Degree of the polynomials. The columns of the table are their coefficients, the lowest power first, and four
 * numbers. */
#define XG_HAZARD_DEGREE 18
#define XG_HAZARD_COLUMNS (XG_HAZARD_DEGREE + 5)

/* Cubic B-spline coefficients (rows + 2, XG_HAZARD_COLUMNS) along rows 0 .. rows - 1, with one more on either side.
 * The standard deviation s = sd(f + g) has the row (rows - 1) (1 - sqrt(1 - sd(g) / s)). With x = (t - E[f + g]) /
 * s, y = (x - centre) / width and w = y (1 + .25 y^2) / (1 + .6 y^2), the polynomial in w is log(-log H). The four
 * numbers are centre / width, 1 / width, and the range of y in which the polynomial holds. */
typedef struct {
    ptrdiff_t rows;
    const double *values;
} xg_hazard_table;

/* Number of points that are processed in parallel, one per lane: loops of a fixed length, which compilers vectorise. */
#define XG_GROUP 8

/* Sites of at most XG_GROUP points: ell = E[log softmax_y(f)], lambda_c as above and r_c = 1{c = y} - p_c + lambda_c m_c. */
void xg_softmax_exact_chunk(const xg_moments *at, const xg_hazard_table *table, double *scratch,
                            const xg_site_arrays *out);

/* Derivatives have the shape (classes, n) of the moments, whose strides are n. */

/* log p_y (n,), and its derivatives with respect to means and variances. */
void xg_softmax_scores(const xg_moments *at, const xg_hazard_table *table, double *scratch, double *value,
                       double *by_mean, double *by_variance);
/* Derivatives of sum_c by_lambda_c lambda_c + by_r_c r_c with respect to means and variances. */
void xg_softmax_vjp(const xg_moments *at, const double *by_lambda, const double *by_r, const xg_hazard_table *table,
                    double *scratch, double *by_mean, double *by_variance);
