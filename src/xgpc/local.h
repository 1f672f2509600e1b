/* What the k nearest rows say of the residual of a sparse posterior, by their sites.
 *
 * Notation, for a row x with neighbours N: a and A_N whitened rows, D = K - A A^T what they leave of the prior,
 * lambda and r the neighbours' sites, M = D_NN + diag(1 / lambda), gamma = M^-1 D_N(x). Given z, the latent value at x
 * is normal with mean b.z + gamma.(r / lambda), b = a - A_N^T gamma, and variance D(x, x) - D_N(x).gamma.
 * Everything goes through B = I + lambda^1/2 D lambda^1/2, which exists for lambda = 0, too.
 *
 * As many rows as a register has doubles are worked on at a time, one in each lane; see lanes.inc.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A kernel: terms of factors, as in InducingKernel. */
typedef struct {
    ptrdiff_t n_terms, n_factors, n_features;
    const double *variance;
    const int *noise;
    const ptrdiff_t *first;
    const int *family;
    const double *shape;
} xg_local_kernel;

/* The n rows that are neighbours: scaled features x (n_factors, n, d), whitened rows a (n, m), residual variances D_ii
 * (n,), sites (classes, n). */
typedef struct {
    ptrdiff_t n, m, n_classes;
    const double *x, *a, *residual, *precision, *linear;
} xg_local_support;

/* Rows x (n_factors, n, d), a (n, m), residual variances (n,), and their neighbours index (n, k). With n_earlier (n,),
 * or NULL, there are two sets of neighbours: all, and the first so many. Conditionals with the same kernel and rows can
 * share ``blocks``, or NULL: memory for D of each neighbourhood, (n + 8, (k + 1) (k + 2) / 2), that depends on no site. A
 * zero where that of a row begins says that it has not been computed. All calls then begin at multiples of eight rows. */
typedef struct {
    ptrdiff_t n, k;
    double *blocks;
    const double *x, *a, *residual;
    const int32_t *index, *n_earlier;
} xg_local_rows;

/* The conditional given a set of neighbours: variance and mean (classes, n) of the value at z = 0, and gamma
 * (classes, n, k) or NULL, for n rows from ``first`` on; and b (classes, m, b_n) from b_first on. */
typedef struct {
    ptrdiff_t first, n, b_first, b_n;
    double *b, *variance, *mean, *gamma;
} xg_local_conditional;

/* A gradient by conditionals, for rows that xg_local_condition is called for. It is given as S (classes, m, m),
 * symmetric, v (classes, m), and F's gradients by b.S b, b.v, variance and mean, (classes, rows->n). Where these are
 * NULL, the rows are those of the support, and S and v the gradient by P = sum s b b^T and h = sum g b, with
 * s = 1 / (1 / lambda + variance), g = s (r / lambda - mean), and the row's own site as it is.
 * What it makes of other quantities is written; for row i, class c:
 *   gamma, chi (classes, n, k)      dF/dK_NN = -(chi gamma^T + gamma chi^T) / 2, dF/dk_N(x) = chi - d_variance gamma
 *   b, u (classes, n, m)            dF/dA_N = -chi b^T + gamma u^T */
typedef struct {
    const double *S, *v, *d_form, *d_dot, *d_variance, *d_mean;
    double *gamma, *chi, *b, *u;
} xg_local_pulled;

/* Of each set of neighbours; of all sets and classes, for these rows, d_a (n, m), dF/da, and d_diagonal (n,), the sum of
 * d_variance; by_near (n, k, 1 + 2 classes), the gradient by D_jj of the neighbours, and by their sites' precisions and
 * linear terms; and sums over rows, added: terms (n_terms,) and shapes, scales (n_factors, d) by the logarithms of
 * variances, shapes and length scales, of what is off the diagonal of K. */
typedef struct {
    xg_local_pulled set[2];
    double *d_a, *d_diagonal, *by_near, *terms, *shapes, *scales;
} xg_local_gradient;

/* Scratch, in doubles, of the function below. */
ptrdiff_t xg_local_scratch(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k);

/* The conditionals of the rows first, ..., last - 1 given each set of neighbours go to out, an array; or with gradient
 * not NULL its outputs are written. The result for a row has the same bits whichever rows are computed with it; a row
 * alone, the last of a range, has other rounding. */
void xg_local_condition(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                        ptrdiff_t first, ptrdiff_t last, double *scratch, const xg_local_conditional *out,
                        const xg_local_gradient *gradient);

/* n rows with k neighbours each, all different, index (n, k), and what a gradient makes of each set of neighbours and
 * class, and of all together, by_near; with two sets n_earlier (n,). */
typedef struct {
    ptrdiff_t n, k, m, n_classes, n_sets;
    const int32_t *index, *n_earlier;
    const double *by_near;
    const xg_local_pulled *set;
} xg_scatter_rows;

/* Adds gamma u - chi b and by_near to the gradients by the neighbours, of N rows in all: by their whitened rows
 * d_a (N, m), and by k(x, x) and sites, d_near (N, 1 + 2 classes). */
void xg_scatter_add(const xg_scatter_rows *rows, double *d_a, double *d_near);
