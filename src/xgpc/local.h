/* Predictions from the k nearest rows: the residual of a sparse posterior, conditioned on their sites.
 *
 * Notation, for a row x with neighbours N: a and A_N whitened rows, D = K - A A^T what they leave of the prior,
 * lambda and r the neighbours' sites, q(z) = N(w, V), M = D_NN + diag(1 / lambda), gamma = M^-1 D_N(x),
 * b = a - A_N^T gamma. Then mean = a.w + gamma.(r / lambda - A_N w), variance = D(x, x) - D_N(x).gamma + b.V b.
 * Everything goes through B = I + lambda^1/2 D lambda^1/2, which exists for lambda = 0, too.
 *
 * As many rows as a register has doubles are worked on at a time, one in each lane; see lanes.h. */
#ifndef XGPC_LOCAL_H
#define XGPC_LOCAL_H

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
 * (n,), sites (classes, n), and q(z): w (classes, m), V (classes, m, m). */
typedef struct {
    ptrdiff_t n, m, n_classes;
    const double *x, *a, *residual, *precision, *linear, *w, *V;
} xg_local_support;

/* The rows to predict: x (n_factors, n, d), a (n, m), residual variances (n,), neighbours index (n, k). own_precision
 * and own_linear (classes, n): what a row that is part of q(z) has added to it, to be taken out; or NULL. */
typedef struct {
    ptrdiff_t n, k;
    const double *x, *a, *residual;
    const int64_t *index;
    const double *own_precision, *own_linear;
} xg_local_rows;

/* What a gradient d_mean, d_variance (classes, n) by the predictions makes of the other quantities; for row i, class c:
 *   gamma, chi (classes, n, k)      dF/dK_NN = -(chi gamma^T + gamma chi^T) / 2, dF/dk_N(x) = chi - d_variance gamma
 *   b, u (classes, n, m)            dF/dA_N = -chi b^T + gamma u^T
 *   d_a (n, m)                      dF/da, of all classes
 *   d_precision, d_linear (classes, n, k)  by the neighbours' sites
 *   own (classes, n, 5)             dF/d(own precision, own linear, b.V a, a.V a, a.w)
 * and sums over rows, added: terms (n_terms,) and shapes, scales (n_factors, d) by the logarithms of variances, shapes
 * and length scales, of what is off the diagonal of K. */
typedef struct {
    const double *d_mean, *d_variance;
    double *gamma, *chi, *b, *u, *d_a, *d_precision, *d_linear, *own;
    double *terms, *shapes, *scales;
} xg_local_gradient;

/* Scratch, in doubles, of the function below. */
ptrdiff_t xg_local_scratch(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k);

/* mean and variance (classes, n); with gradient not NULL its outputs, mean and variance then need not be there. What is
 * found for a row has the same bits whichever rows are predicted with it. */
void xg_local_predict(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                      double *scratch, double *mean, double *variance, const xg_local_gradient *gradient);

#endif
