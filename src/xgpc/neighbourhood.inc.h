/* Neighbourhoods of XG_WIDTH rows at work, and the conditionals given them; for the notation see local.h. */
#pragma once

#include "local.h"

#include "lanes.inc.h"
#include "profiles.h"

/* Sites without precision have this: roots of it and their reciprocals are exact enough, and without overflow. */
#define LEAST_PRECISION 1e-300

/* XG_WIDTH rows at work. */
typedef struct {
    ptrdiff_t n_lanes; /* rows in use; the others repeat the last */
    int64_t row[XG_WIDTH], place[XG_WIDTH];
    int64_t *index; /* (k, XG_WIDTH), neighbours */
    lanes *chunk, *a, *h, *value, *slope, *shaped, *D, *B, *G;
    lanes *precision, *root, *linear, *gamma, *eta, *Dr, *f, *e, *chi;
    lanes *by_near; /* (k, 1 + 2 classes), gradients by D_jj and the sites of the neighbours */
    lanes *b, *beta, diagonal, counted; /* the first so many neighbours count */
    double *rows;                       /* (XG_WIDTH, m) */
} group;

static ptrdiff_t lanes_of(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k, group *g,
                          lanes *scratch)
{
    ptrdiff_t used = 0, T = PACKED(k + 1) + k + 1, F = kernel->n_factors, m = support->m;
#define TAKE(name, size)                                                                                             \
    if (g)                                                                                                           \
        g->name = scratch + used;                                                                                    \
    used += (size);
    TAKE(chunk, (k + 1) * CHUNK)
    TAKE(value, F * T) TAKE(slope, F * T) TAKE(shaped, F * T)
    TAKE(h, T) TAKE(D, T) TAKE(B, T) TAKE(G, T)
    TAKE(precision, k) TAKE(root, k) TAKE(linear, k) TAKE(gamma, k) TAKE(eta, k) TAKE(chi, k)
    TAKE(Dr, k) TAKE(f, k) TAKE(e, k) TAKE(by_near, k * (1 + 2 * support->n_classes))
    TAKE(a, m) TAKE(b, m) TAKE(beta, m)
#undef TAKE
    if (g) {
        g->index = (int64_t *)(scratch + used);
        g->rows = (double *)(scratch + used + k);
    }
    return used + k + m;
}

/* Rows of the support, (., width), that are neighbours, and of those to predict. */
XG_INLINE lane_rows neighbours(const xg_local_rows *rows, const group *g, const double *values, ptrdiff_t width)
{
    return (lane_rows){rows->k, width, g->index, values};
}

XG_INLINE lane_rows own_rows(const group *g, const double *values, ptrdiff_t width)
{
    return (lane_rows){1, width, g->row, values};
}

/* h = log(growth) + h, or 0 where that is above 0, for growths >= 1 */
XG_CALLED void add_logarithms(ptrdiff_t n, const double *restrict growth, double *restrict h)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        h[i] = xg_min(xg_log1p(growth[i] - 1.0) + h[i], 0.0);
}

/* Adds to h the logarithms of an axis-aligned kernel's factors for some features x (count, CHUNK) of all pairs; growth is
 * scratch. Of rows that are equal but for rounding h may be above 0. */
XG_CALLED void axis_arguments(int family, ptrdiff_t count, const lanes *x, ptrdiff_t size, lanes *growth, lanes *h)
{
    if (family == XG_AXIS_MATERN_12) {
        pair_sums(XG_DISTANCES, 0, count, x, size, -1.0, h);
        return;
    }
    for (ptrdiff_t p = 0; p < PACKED(count); ++p)
        growth[p] = (lanes){0.0} + 1.0;
    pair_sums(XG_DISTANCES, 0, count, x, size, -ROOT_3, h);
    pair_sums(XG_GROWTHS, 0, count, x, size, 1.0, growth);
    add_logarithms(XG_WIDTH * PACKED(count), (const double *)growth, (double *)h);
}

/* Arguments h of factor f for all pairs of the neighbours, and of these and x, which is the last. */
XG_CALLED void arguments(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                         ptrdiff_t f, group *g)
{
    ptrdiff_t k = rows->k, d = kernel->n_features, T = PACKED(k + 1);
    lane_rows near = neighbours(rows, g, support->x + f * support->n * d, d);
    lane_rows here = own_rows(g, rows->x + f * rows->n * d, d);
    for (ptrdiff_t p = 0; p < T; ++p)
        g->h[p] = (lanes){0.0};
    for (ptrdiff_t first = 0; first < d; first += CHUNK) {
        ptrdiff_t size = SMALLER(d - first, CHUNK);
        gather(&near, first, size, g->chunk, CHUNK, 1);
        gather(&here, first, size, g->chunk + k * CHUNK, CHUNK, 1);
        /* Differences, and not squares and products of the rows: of these nothing is left far from an origin. */
        if (kernel->family[f] == XG_DOT_PRODUCT)
            pair_sums(XG_PRODUCTS, 0, k + 1, g->chunk, size, 1.0, g->h);
        else if (xg_is_axis_aligned(kernel->family[f]))
            axis_arguments(kernel->family[f], k + 1, g->chunk, size, g->value + f * (T + k + 1), g->h);
        else
            pair_sums(XG_SQUARES, 0, k + 1, g->chunk, size, -0.5, g->h);
    }
}

/* out = the sum so far, if there is one, plus variance times the product of factors' values, T apart */
XG_INLINE void add_term(double variance, ptrdiff_t factors, const lanes *value, ptrdiff_t T, ptrdiff_t size,
                        const lanes *sum, lanes *out)
{
    const lanes zero = {0.0};
    for (ptrdiff_t p = 0; p < size; ++p) {
        lanes term = zero + variance;
        for (ptrdiff_t f = 0; f < factors; ++f)
            term *= value[f * T + p];
        if (sum)
            term += sum[p];
        out[p] = term;
    }
}

/* A factor's profile of all pairs if one lane is in use, without that of the others. */
XG_CALLED void profile_of_one(const xg_local_kernel *kernel, ptrdiff_t f, ptrdiff_t size, group *g, lanes *value)
{
    double *h = (double *)g->h, *packed = (double *)g->B;
    for (ptrdiff_t p = 0; p < size; ++p)
        h[p] = h[p * XG_WIDTH];
    xg_profile_array(kernel->family[f], kernel->shape[f], size, h, packed, NULL, NULL);
    for (ptrdiff_t p = 0; p < size; ++p)
        value[p] = (lanes){0.0} + packed[p];
}

/* The kernel's profiles of all pairs of the neighbours and x, packed, in value, slope and shaped. */
XG_CALLED void profiles(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                        int with_slopes, group *g)
{
    ptrdiff_t size = PACKED(rows->k + 1), T = size + rows->k + 1;
    for (ptrdiff_t f = 0; f < kernel->n_factors; ++f) {
        double *slope = with_slopes ? (double *)(g->slope + f * T) : NULL;
        arguments(kernel, support, rows, f, g);
        if (g->n_lanes == 1 && !with_slopes) {
            profile_of_one(kernel, f, size, g, g->value + f * T);
            continue;
        }
        xg_profile_array(kernel->family[f], kernel->shape[f], XG_WIDTH * size, (const double *)g->h,
                         (double *)(g->value + f * T), slope, (double *)(g->shaped + f * T));
    }
}

/* D <- K of the neighbours and x, packed, from the profiles. */
XG_CALLED void kernel_block(const xg_local_kernel *kernel, ptrdiff_t k, group *g)
{
    ptrdiff_t size = PACKED(k + 1), T = size + k + 1;
    const lanes *sum = NULL; /* of the terms before */
    for (ptrdiff_t t = 0; t < kernel->n_terms; ++t) {
        ptrdiff_t start = kernel->first[t], factors = kernel->first[t + 1] - start;
        const lanes *value = g->value + start * T;
        if (kernel->noise[t])
            continue;
        if (factors == 1) /* as most kernels have it: without loops inside */
            add_term(kernel->variance[t], 1, value, T, size, sum, g->D);
        else
            add_term(kernel->variance[t], factors, value, T, size, sum, g->D);
        sum = g->D;
    }
    for (ptrdiff_t p = 0; p < (sum ? 0 : size); ++p)
        g->D[p] = (lanes){0.0};
}

/* Asks for columns of the rows, (., width), that are neighbours j, ..., j + 3 of the rows row, ..., row + XG_WIDTH - 1. */
XG_INLINE void fetch(const xg_local_rows *rows, ptrdiff_t row, ptrdiff_t j, const double *values, ptrdiff_t width,
                     ptrdiff_t first, ptrdiff_t size)
{
    ptrdiff_t k = rows->k, last = SMALLER(j + 4, k);
    for (int l = 0; l < XG_WIDTH; ++l) {
        const int32_t *index = rows->index + SMALLER(row + l, rows->n - 1) * k;
        for (ptrdiff_t i = j; i < last; ++i)
            for (ptrdiff_t q = first; q < first + size; q += LINE / (ptrdiff_t)sizeof(double))
                __builtin_prefetch(values + index[i] * width + q, 0, 2);
    }
}

/* D <- K - A A^T off the diagonal if one lane is in use: along the rows, in an eighth of the time. */
XG_CALLED void residual_of_one(const xg_local_support *support, const xg_local_rows *rows, group *g)
{
    ptrdiff_t k = rows->k, m = support->m;
    const double *own = rows->a + g->row[0] * m;
    for (ptrdiff_t i = 1; i <= k; ++i) {
        const double *row = i < k ? support->a + g->index[i * XG_WIDTH] * m : own;
        for (ptrdiff_t j = 0; j < i; j += 4) {
            const double *other[4];
            double sums[4];
            for (int c = 0; c < 4; ++c)
                other[c] = support->a + g->index[SMALLER(j + c, i - 1) * XG_WIDTH] * m;
            row_products(m, row, other, sums);
            for (ptrdiff_t c = 0; c < SMALLER(i - j, 4); ++c)
                g->D[PACKED(i) + j + c] -= sums[c];
        }
    }
}

/* D <- K - A A^T off the diagonal */
XG_CALLED void residual_of_all(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                              group *g)
{
    ptrdiff_t k = rows->k, m = support->m;
    lane_rows near = neighbours(rows, g, support->a, m);
    for (ptrdiff_t first = 0; first < m; first += CHUNK) {
        ptrdiff_t size = SMALLER(m - first, CHUNK);
        gather(&near, first, size, g->chunk, CHUNK, 1);
        for (ptrdiff_t q = 0; q < size; ++q)
            g->chunk[k * CHUNK + q] = g->a[first + q];
        ptrdiff_t next = first + CHUNK, d = kernel->n_features;
        /* Memory is read ahead, between sums: waiting for it takes up to half of a sweep (8000 rows, 2 MB of cache). */
        for (ptrdiff_t i = 0; i < k + 1; i += 4) {
            if (next < m)
                fetch(rows, g->row[0], i, support->a, m, next, SMALLER(m - next, CHUNK));
            else {
                fetch(rows, g->row[0] + XG_WIDTH, i, support->a, m, 0, SMALLER(m, CHUNK));
                for (ptrdiff_t f = 0; f < kernel->n_factors; ++f)
                    fetch(rows, g->row[0] + XG_WIDTH, i, support->x + f * support->n * d, d, 0, d);
            }
            pair_sums(XG_PRODUCTS, i, SMALLER(i + 4, k + 1), g->chunk, size, -1.0, g->D);
        }
    }
}

/* D <- K - A A^T */
XG_CALLED void residual_block(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                              group *g)
{
    ptrdiff_t k = rows->k;
    if (g->n_lanes == 1)
        residual_of_one(support, rows, g);
    else
        residual_of_all(kernel, support, rows, g);
    lane_rows near = neighbours(rows, g, support->residual, 1), own = own_rows(g, rows->residual, 1);
    gather(&near, 0, 1, g->e, 1, 1);
    for (ptrdiff_t j = 0; j < k; ++j)
        g->D[PACKED(j) + j] = g->e[j];
    gather(&own, 0, 1, g->D + PACKED(k) + k, 1, 1);
}

/* Sites of class c, and B <- the Cholesky factor of I + lambda^1/2 D lambda^1/2, with lambda^1/2 D_x in row k. */
XG_CALLED void factorise(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c, group *g)
{
    ptrdiff_t k = rows->k;
    lane_rows precision = neighbours(rows, g, support->precision + c * support->n, 1);
    lane_rows linear = neighbours(rows, g, support->linear + c * support->n, 1);
    lanes *root = g->root, *B = g->B;
    const lanes *D = g->D;
    gather(&precision, 0, 1, g->precision, 1, 1);
    gather(&linear, 0, 1, g->linear, 1, 1);
    for (ptrdiff_t i = 0; i < k; ++i) {
        lanes own;
        for (int l = 0; l < XG_WIDTH; ++l)
            own[l] = xg_max(g->precision[i][l], LEAST_PRECISION);
        root[i] = root_of(own);
        for (ptrdiff_t j = 0; j < i; ++j)
            B[PACKED(i) + j] = root[i] * root[j] * D[PACKED(i) + j];
        B[PACKED(i) + i] = 1.0 + own * D[PACKED(i) + i];
        B[PACKED(k) + i] = root[i] * D[PACKED(k) + i];
    }
    cholesky(k, B);
}

/* out_j = x_j, or 0 where j does not count. Those that do come first: triangular solves and products with the others'
 * elements zero are those of the leading block. */
XG_INLINE void leave_out(ptrdiff_t k, lanes counted, const lanes *x, lanes *out)
{
    for (ptrdiff_t j = 0; j < k; ++j)
        out[j] = (lanes)((lane_bits)x[j] & (counted > (double)j));
}

typedef struct {
    lanes mean, variance;
} conditional;

/* What the neighbours that count say of the residual; gamma, eta = gamma / lambda = D_x - D gamma and b stay in the group,
 * and b goes to ``own_b``, too, row by row. */
XG_CALLED conditional condition(const xg_local_support *support, const xg_local_rows *rows, group *g, double *own_b)
{
    ptrdiff_t k = rows->k, m = support->m;
    lane_rows near = neighbours(rows, g, support->a, m), own_a = own_rows(g, rows->a, m);
    lane_rows own = {1, m, g->place, own_b};
    conditional found;
    leave_out(k, g->counted, g->B + PACKED(k), g->gamma);
    found.variance = g->D[PACKED(k) + k] - dot(k, g->gamma, g->gamma);
    for (int l = 0; l < XG_WIDTH; ++l)
        found.variance[l] = xg_max(found.variance[l], 0.0);
    solve_upper(k, g->B, g->gamma);
    for (ptrdiff_t j = 0; j < k; ++j) {
        g->eta[j] = g->gamma[j] / g->root[j];
        g->gamma[j] *= g->root[j];
    }
    found.mean = dot(k, g->eta, g->linear);
    subtract_rows(g->n_lanes, &near, &own_a, g->gamma, g->counted, own_b);
    gather(&own, 0, m, g->b, m, 1);
    return found;
}
