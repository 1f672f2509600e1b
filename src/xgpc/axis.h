/* Kernels that are products over features: of Matern kernels kappa of one feature each, nu = 1/2 or 3/2.
 *
 * With t_j = |x_j - z_j|, the features divided by their length scales, the logarithm of k is the sum over j of
 * log kappa(t_j): -t_j for nu = 1/2, log(1 + sqrt(3) t_j) - sqrt(3) t_j for nu = 3/2. No product of matrices has it. */
#pragma once

#include <stddef.h>

/* A tile x (n, d) of scaled rows, row i of feature j at [j * n + i], and row-major points z (m, d); is_smooth: nu = 3/2 */
typedef struct {
    int is_smooth;
    ptrdiff_t n, m, d;
    const double *x, *z;
} xg_axis_tile;

/* out[k * n + i] = log k(x_i, z_k) */
void xg_axis_logarithms(const xg_axis_tile *tile, double *out);
/* With weights W (n, m) of the logarithms: by_points (m, d) += sum_i W_ik dlog k / dz_kj, and by_scales (d,) += sum_ik W_ik
 * dlog k / dlog(length scale j). For nu = 1/2 the first is W times the sign of x_ij - z_kj, which is 0 where they are
 * equal. */
void xg_axis_slopes(const xg_axis_tile *tile, const double *weight, double *by_points, double *by_scales);
/* The gradient by the scaled rows: out (n, d), a tile, = sum_k W_ik dlog k / dx_ij. */
void xg_axis_row_slopes(const xg_axis_tile *tile, const double *weight, double *out);
