/* The Cholesky factor of a small matrix, and the factor's inverse. */
#pragma once

#include "vmath.h"

/* Up to this size xg_cholesky is faster than LAPACK: it takes half of its time at 256, where the matrices fill a
 * second-level cache, and two thirds at 512. */
#define XG_CHOLESKY_MOST 512

/* Numbers of scratch for matrices (m, m). */
ptrdiff_t xg_cholesky_scratch(ptrdiff_t m);
/* The lower Cholesky factor of a (m, m), of which only the lower triangle is read, and the factor's inverse; both with
 * zeros above the diagonal. Matrices are row-major; factor may be NULL, and both may be a. Returns 0, or the number of
 * the first row, from 1, whose pivot is not positive: the results then have no meaning. */
int xg_cholesky(ptrdiff_t m, const double *a, double *factor, double *inverse, double *scratch);
