#include "local.h"

#include "lanes.h"
#include "profiles.h"

/* Compiled once for each instruction set, with its own width and names; see local_variants.c. */
#define XG_JOINED(name, variant) name##_##variant
#define XG_EXPANDED(name, variant) XG_JOINED(name, variant)
#define XG_VARIANT(name) XG_EXPANDED(name, XG_INSTRUCTIONS)

ptrdiff_t XG_VARIANT(xg_local_scratch)(const xg_local_kernel *, const xg_local_support *, ptrdiff_t);
void XG_VARIANT(xg_local_predict)(const xg_local_kernel *, const xg_local_support *, const xg_local_rows *, double *,
                                  double *, double *, const xg_local_gradient *);

#define ALIGNMENT (XG_WIDTH * sizeof(double))

/* XG_WIDTH rows at work. D has, below the rows of the neighbours and of x, a row -A w of each class. */
typedef struct {
    ptrdiff_t n_lanes; /* rows in use; the others repeat the last */
    int64_t row[XG_WIDTH], place[XG_WIDTH];
    int64_t *index; /* (k, XG_WIDTH), neighbours */
    lanes *chunk, *a, *h, *value, *slope, *shaped, *D, *B, *G;
    lanes *precision, *root, *linear, *gamma, *eta, *Dr, *f, *e, *De, *chi;
    lanes *b, *Vb, *Va, *beta, *s, *d_a, *rows;
} group;

static ptrdiff_t lanes_of(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k, group *g,
                          lanes *scratch)
{
    ptrdiff_t used = 0, T = PACKED(k + 1) + k + 1, F = kernel->n_factors, m = support->m;
    ptrdiff_t all = k + 1 + support->n_classes;
#define TAKE(name, size)                                                                                             \
    if (g)                                                                                                           \
        g->name = scratch + used;                                                                                    \
    used += (size);
    TAKE(chunk, all * CHUNK)
    TAKE(a, m)
    TAKE(h, T)
    TAKE(value, F * T)
    TAKE(slope, F * T)
    TAKE(shaped, F * T)
    TAKE(D, PACKED(all))
    TAKE(B, T)
    TAKE(G, T)
    TAKE(precision, k)
    TAKE(root, k)
    TAKE(linear, k)
    TAKE(gamma, k)
    TAKE(eta, k)
    TAKE(Dr, k)
    TAKE(f, k)
    TAKE(e, k)
    TAKE(De, k)
    TAKE(chi, k)
    TAKE(b, m)
    TAKE(Vb, m)
    TAKE(Va, m)
    TAKE(beta, m)
    TAKE(s, m)
    TAKE(d_a, m)
    TAKE(rows, m)
#undef TAKE
    if (g)
        g->index = (int64_t *)(scratch + used);
    return used + k;
}

ptrdiff_t XG_VARIANT(xg_local_scratch)(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k)
{
    return XG_WIDTH * (1 + lanes_of(kernel, support, k, NULL, NULL));
}

/* Scratch from the next full cache line: vectors that span two lines take twice as long. */
static lanes *aligned(double *scratch)
{
    return (lanes *)(((uintptr_t)scratch + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
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
            pair_sums(XG_PRODUCTS, k + 1, g->chunk, size, 1.0, g->h);
        else
            pair_sums(XG_SQUARES, k + 1, g->chunk, size, -0.5, g->h);
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

/* K of the neighbours and x, packed; the kernel's profiles stay in value, slope and shaped. */
XG_CALLED void kernel_block(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                            int with_slopes, group *g)
{
    ptrdiff_t k = rows->k, size = PACKED(k + 1), T = size + k + 1;
    for (ptrdiff_t f = 0; f < kernel->n_factors; ++f) {
        double *slope = with_slopes ? (double *)(g->slope + f * T) : NULL;
        arguments(kernel, support, rows, f, g);
        xg_profile_array(kernel->family[f], kernel->shape[f], XG_WIDTH * size, (const double *)g->h,
                         (double *)(g->value + f * T), slope, (double *)(g->shaped + f * T));
    }
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

/* D, and a: D <- K - A A^T, with the rows -A w of the classes. */
XG_CALLED void residual_block(const xg_local_support *support, const xg_local_rows *rows, group *g)
{
    ptrdiff_t k = rows->k, m = support->m, C = support->n_classes;
    lane_rows near = neighbours(rows, g, support->a, m), here = own_rows(g, rows->a, m);
    lanes *own = g->chunk + k * CHUNK, *w = own + CHUNK;
    for (ptrdiff_t p = PACKED(k + 1); p < PACKED(k + 1 + C); ++p)
        g->D[p] = (lanes){0.0};
    gather(&here, 0, m, g->a, m, 1);
    for (ptrdiff_t first = 0; first < m; first += CHUNK) {
        ptrdiff_t size = SMALLER(m - first, CHUNK);
        gather(&near, first, size, g->chunk, CHUNK, 1);
        for (ptrdiff_t q = 0; q < size; ++q) {
            own[q] = g->a[first + q];
            for (ptrdiff_t c = 0; c < C; ++c)
                w[c * CHUNK + q] = (lanes){0.0} + support->w[c * m + first + q];
        }
        pair_sums(XG_PRODUCTS, k + 1 + C, g->chunk, size, -1.0, g->D);
    }
    for (int l = 0; l < XG_WIDTH; ++l) {
        for (ptrdiff_t j = 0; j < k; ++j)
            g->D[PACKED(j) + j][l] = support->residual[g->index[j * XG_WIDTH + l]];
        g->D[PACKED(k) + k][l] = rows->residual[g->row[l]];
    }
}

typedef struct {
    lanes mean, variance, rho, aVa, aw, kappa, tau, own_precision, own_linear;
} prediction;

/* Sites of class c, and B <- the Cholesky factor of I + lambda^1/2 D lambda^1/2, with lambda^1/2 D_x in row k. */
XG_CALLED void factorise(const xg_local_support *support, ptrdiff_t k, ptrdiff_t c, group *g)
{
    const double *precision = support->precision + c * support->n, *linear = support->linear + c * support->n;
    for (ptrdiff_t j = 0; j < k; ++j)
        for (int l = 0; l < XG_WIDTH; ++l) {
            g->precision[j][l] = precision[g->index[j * XG_WIDTH + l]];
            g->linear[j][l] = linear[g->index[j * XG_WIDTH + l]];
        }
    for (ptrdiff_t i = 0; i < k; ++i) {
        const lanes *row = g->D + PACKED(i);
        g->root[i] = root_of(g->precision[i]);
        for (ptrdiff_t j = 0; j < i; ++j)
            g->B[PACKED(i) + j] = g->root[i] * g->root[j] * row[j];
        g->B[PACKED(i) + i] = 1.0 + g->precision[i] * row[i];
        g->B[PACKED(k) + i] = g->root[i] * g->D[PACKED(k) + i];
    }
    cholesky(k, g->B);
}

/* sum_j weights[j] a_j of the neighbours */
XG_CALLED void combine_neighbours(const xg_local_support *support, const xg_local_rows *rows, const lanes *weights,
                                  group *g, lanes *out)
{
    lane_rows near = neighbours(rows, g, support->a, support->m);
    lane_rows combined = {1, support->m, g->place, (const double *)g->rows};
    combine(&near, weights, (double *)g->rows);
    gather(&combined, 0, support->m, out, support->m, 1);
}

/* The prediction by class c; B, gamma, eta = D_x - D gamma, b, Vb and, with own sites, Va stay in the group. */
XG_CALLED prediction predict(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c, group *g)
{
    ptrdiff_t k = rows->k, m = support->m;
    const double *V = support->V + c * m * m;
    const lanes *D_x = g->D + PACKED(k), *minus_Aw = g->D + PACKED(k + 1 + c);
    prediction p;
    factorise(support, k, c, g);
    for (ptrdiff_t j = 0; j < k; ++j)
        g->gamma[j] = g->B[PACKED(k) + j];
    p.variance = g->D[PACKED(k) + k] - dot(k, g->gamma, g->gamma);
    for (int l = 0; l < XG_WIDTH; ++l)
        p.variance[l] = xg_max(p.variance[l], 0.0);
    solve_upper(k, g->B, g->gamma);
    for (ptrdiff_t j = 0; j < k; ++j)
        g->gamma[j] *= g->root[j];
    /* eta = gamma / lambda, for lambda = 0, too. */
    symmetric_times(k, g->D, g->gamma, g->eta);
    for (ptrdiff_t j = 0; j < k; ++j)
        g->eta[j] = D_x[j] - g->eta[j];
    p.aw = -minus_Aw[k];
    p.mean = p.aw + dot(k, g->eta, g->linear) + dot(k, g->gamma, minus_Aw);
    combine_neighbours(support, rows, g->gamma, g, g->b);
    for (ptrdiff_t q = 0; q < m; ++q)
        g->b[q] = g->a[q] - g->b[q];
    if (rows->own_precision) {
        for (int l = 0; l < XG_WIDTH; ++l) {
            p.own_precision[l] = rows->own_precision[c * rows->n + g->row[l]];
            p.own_linear[l] = rows->own_linear[c * rows->n + g->row[l]];
        }
        shared_times(m, V, g->b, g->a, g->Vb, g->Va);
        p.rho = dot(m, g->b, g->Va);
        p.aVa = dot(m, g->a, g->Va);
        p.tau = 1.0 - p.own_precision * p.aVa;
        p.kappa = (p.own_precision * p.aw - p.own_linear) / p.tau;
        p.mean += p.rho * p.kappa;
        p.variance += p.own_precision * p.rho * p.rho / p.tau;
    } else
        shared_times(m, V, g->b, NULL, g->Vb, NULL);
    p.variance += dot(m, g->b, g->Vb);
    return p;
}

/* Row i of the group's lanes becomes row row[i] of a row-major (., width) */
XG_INLINE void write_rows(const group *g, ptrdiff_t width, const lanes *values, double *out)
{
    scatter(g->n_lanes, width, values, out + g->row[0] * width);
}

/* Derivatives by what a row has itself in q(z): of b.V a, a.V a and a.w; the outputs ``own``. */
typedef struct {
    lanes rho, aVa, aw;
} own_gradient;

XG_INLINE own_gradient pull_back_own(const prediction *p, lanes g_mean, lanes g_variance, const group *g, double *out)
{
    lanes d_kappa = g_mean * p->rho, ratio = p->rho / p->tau, own[5];
    lanes d_tau = -g_variance * p->own_precision * ratio * ratio - d_kappa * p->kappa / p->tau;
    own_gradient d;
    d.rho = g_mean * p->kappa + 2.0 * g_variance * p->own_precision * ratio;
    d.aVa = -d_tau * p->own_precision;
    d.aw = d_kappa * p->own_precision / p->tau;
    own[0] = g_variance * p->rho * ratio + d_kappa * p->aw / p->tau - d_tau * p->aVa;
    own[1] = -d_kappa / p->tau;
    own[2] = d.rho;
    own[3] = d.aVa;
    own[4] = d.aw;
    write_rows(g, 5, own, out);
    return d;
}

/* gamma, chi and the sites' gradients: of beta = dF/db they need A_N beta. */
XG_CALLED void pull_back_sites(const xg_local_support *support, const xg_local_rows *rows, lanes g_mean,
                               lanes g_variance, group *g)
{
    ptrdiff_t k = rows->k;
    const lanes *D_x = g->D + PACKED(k);
    lane_rows near = neighbours(rows, g, support->a, support->m);
    symmetric_times(k, g->D, g->linear, g->Dr);
    scatter(XG_WIDTH, support->m, g->beta, (double *)g->rows);
    row_dots(&near, (const double *)g->rows, g->f);
    for (ptrdiff_t j = 0; j < k; ++j) {
        g->f[j] = -g->f[j] - g_variance * D_x[j] - g_mean * g->Dr[j];
        g->e[j] = g->root[j] * g->f[j];
    }
    solve_lower(k, g->B, g->e);
    solve_upper(k, g->B, g->e);
    for (ptrdiff_t j = 0; j < k; ++j)
        g->e[j] *= g->root[j];
    symmetric_times(k, g->D, g->e, g->De);
    for (ptrdiff_t j = 0; j < k; ++j) {
        g->chi[j] = g_mean * g->linear[j] + g->e[j];
        g->f[j] = g->eta[j] * (g->f[j] - g->De[j]);
        g->eta[j] *= g_mean;
    }
}

/* Outputs of class c, and its part of G = dF/dK of the pairs and of d_a. */
XG_CALLED void pull_back(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c,
                         const xg_local_gradient *gradient, const prediction *p, group *g)
{
    ptrdiff_t k = rows->k, m = support->m, at = c * rows->n;
    const double *w = support->w + c * m;
    lanes g_mean, g_variance, zero = {0.0};
    own_gradient d = {zero, zero, zero};
    for (int l = 0; l < XG_WIDTH; ++l) {
        g_mean[l] = l < g->n_lanes ? gradient->d_mean[at + g->row[l]] : 0.0;
        g_variance[l] = l < g->n_lanes ? gradient->d_variance[at + g->row[l]] : 0.0;
    }
    if (rows->own_precision)
        d = pull_back_own(p, g_mean, g_variance, g, gradient->own + 5 * at);
    for (ptrdiff_t q = 0; q < m; ++q) {
        g->beta[q] = g_mean * w[q] + 2.0 * g_variance * g->Vb[q];
        if (rows->own_precision)
            g->beta[q] += d.rho * g->Va[q];
    }
    pull_back_sites(support, rows, g_mean, g_variance, g);
    write_rows(g, k, g->gamma, gradient->gamma + at * k);
    write_rows(g, k, g->chi, gradient->chi + at * k);
    write_rows(g, k, g->f, gradient->d_precision + at * k);
    write_rows(g, k, g->eta, gradient->d_linear + at * k);
    combine_neighbours(support, rows, g->chi, g, g->s);
    for (ptrdiff_t q = 0; q < m; ++q) {
        lanes d_a = g->beta[q] - g->s[q] - g_variance * (g->a[q] + g->b[q]) + d.aw * w[q];
        if (rows->own_precision)
            d_a += d.rho * g->Vb[q] + 2.0 * d.aVa * g->Va[q];
        g->d_a[q] += d_a;
        g->s[q] += g_variance * g->a[q] - g->beta[q];
    }
    write_rows(g, m, g->b, gradient->b + at * m);
    write_rows(g, m, g->s, gradient->u + at * m);
    for (ptrdiff_t i = 0; i < k; ++i)
        for (ptrdiff_t j = 0; j < i; ++j)
            g->G[PACKED(i) + j] -= g->chi[i] * g->gamma[j] + g->gamma[i] * g->chi[j];
    for (ptrdiff_t j = 0; j < k; ++j)
        g->G[PACKED(k) + j] += g->chi[j] - g_variance * g->gamma[j];
}

XG_INLINE double sum_of(lanes x)
{
    double total = 0.0;
    for (int l = 0; l < XG_WIDTH; ++l)
        total += x[l];
    return total;
}

/* sums[q] += sum_ij W_ij (x_iq - x_jq)^2 / 2 for some columns of the rows x (size, k), x the origin, row_sum of W:
 * it is sum_i row_sum_i x_i^2 - 2 sum_{i > j} W_ij x_i x_j. */
XG_CALLED void squared_differences(ptrdiff_t k, const lanes *W, const lanes *row_sum, ptrdiff_t size, const lanes *x,
                                   double *sums)
{
    for (ptrdiff_t q = 0; q < size; q += 4) {
        const lanes *column[4];
        lanes total[4];
        for (int c = 0; c < 4; ++c) {
            column[c] = x + SMALLER(q + c, size - 1) * k;
            total[c] = (lanes){0.0};
        }
        for (ptrdiff_t i = 0; i < k; i += 2) {
            ptrdiff_t next = SMALLER(i + 1, k - 1);
            const lanes *row[2] = {W + PACKED(i), W + PACKED(next)};
            lanes toward[2][4] = {{{0.0}}};
            lanes *at[2] = {toward[0], toward[1]};
            add_dots(2, 4, i, -2.0, row, column, at);
            for (int c = 0; c < 4; ++c) {
                lanes here = column[c][i], below = column[c][next];
                total[c] += here * (row_sum[i] * here + toward[0][c]);
                if (next > i)
                    total[c] += below * (row_sum[next] * below + toward[1][c] - 2.0 * row[1][i] * here);
            }
        }
        for (ptrdiff_t c = 0; c < SMALLER(size - q, 4); ++c)
            sums[q + c] += sum_of(total[c]);
    }
}

/* Contraction of the weights h of all pairs with their derivatives by the logarithms of a factor's length scales. */
XG_CALLED void by_length_scales(const xg_local_kernel *kernel, const xg_local_support *support,
                                const xg_local_rows *rows, ptrdiff_t f, group *g, double *scales)
{
    ptrdiff_t k = rows->k, d = kernel->n_features;
    lane_rows near = neighbours(rows, g, support->x + f * support->n * d, d);
    lane_rows here = own_rows(g, rows->x + f * rows->n * d, d);
    lanes *own = g->chunk + k * CHUNK;
    for (ptrdiff_t j = 0; j < k; ++j)
        g->e[j] = g->h[PACKED(k) + j];
    for (ptrdiff_t i = 0; i < k; ++i) {
        lanes total = {0.0};
        for (ptrdiff_t j = 0; j < i; ++j) {
            total += g->h[PACKED(i) + j];
            g->e[j] += g->h[PACKED(i) + j];
        }
        g->e[i] += total;
    }
    for (ptrdiff_t first = 0; first < d; first += CHUNK) {
        ptrdiff_t size = SMALLER(d - first, CHUNK);
        gather(&near, first, size, g->chunk, 1, k);
        gather(&here, first, size, own, 1, 1);
        for (ptrdiff_t q = 0; q < size; ++q)
            for (ptrdiff_t j = 0; j < k; ++j)
                g->chunk[q * k + j] -= own[q];
        squared_differences(k, g->h, g->e, size, g->chunk, scales + f * d + first);
    }
}

/* Contraction of G with the derivatives of all pairs by the kernel's parameters. The diagonal of G is zero. */
XG_CALLED void by_parameters(const xg_local_kernel *kernel, const xg_local_support *support,
                             const xg_local_rows *rows, const xg_local_gradient *gradient, group *g)
{
    ptrdiff_t size = PACKED(rows->k + 1), T = size + rows->k + 1;
    for (ptrdiff_t t = 0; t < kernel->n_terms; ++t) {
        ptrdiff_t start = kernel->first[t], stop = kernel->first[t + 1];
        lanes total = {0.0};
        if (kernel->noise[t])
            continue;
        if (start == stop)
            for (ptrdiff_t p = 0; p < size; ++p)
                total += kernel->variance[t] * g->G[p];
        for (ptrdiff_t f = start; f < stop; ++f) {
            lanes shaped = {0.0};
            total = (lanes){0.0}; /* the same for all factors */
            for (ptrdiff_t p = 0; p < size; ++p) {
                lanes weight = kernel->variance[t] * g->G[p];
                for (ptrdiff_t other = start; other < stop; ++other)
                    if (other != f)
                        weight *= g->value[other * T + p];
                total += weight * g->value[f * T + p];
                shaped += weight * g->shaped[f * T + p];
                g->h[p] = weight * g->slope[f * T + p];
            }
            gradient->shapes[f] += sum_of(shaped);
            if (kernel->family[f] != XG_DOT_PRODUCT)
                by_length_scales(kernel, support, rows, f, g, gradient->scales);
        }
        gradient->terms[t] += sum_of(total);
    }
}

void XG_VARIANT(xg_local_predict)(const xg_local_kernel *kernel, const xg_local_support *support,
                                  const xg_local_rows *rows, double *scratch, double *mean, double *variance,
                                  const xg_local_gradient *gradient)
{
    group shared, *g = &shared;
    ptrdiff_t k = rows->k, m = support->m;
    lanes_of(kernel, support, k, g, aligned(scratch));
    for (ptrdiff_t i = 0; i < rows->n; i += XG_WIDTH) {
        g->n_lanes = SMALLER(rows->n - i, XG_WIDTH);
        for (int l = 0; l < XG_WIDTH; ++l) {
            g->row[l] = SMALLER(i + l, rows->n - 1);
            g->place[l] = l;
            for (ptrdiff_t j = 0; j < k; ++j)
                g->index[j * XG_WIDTH + l] = rows->index[g->row[l] * k + j];
        }
        kernel_block(kernel, support, rows, gradient != NULL, g);
        residual_block(support, rows, g);
        if (gradient) {
            for (ptrdiff_t p = 0; p < PACKED(k + 1); ++p)
                g->G[p] = (lanes){0.0};
            for (ptrdiff_t q = 0; q < m; ++q)
                g->d_a[q] = (lanes){0.0};
        }
        for (ptrdiff_t c = 0; c < support->n_classes; ++c) {
            prediction p = predict(support, rows, c, g);
            if (gradient)
                pull_back(support, rows, c, gradient, &p, g);
            else
                for (ptrdiff_t l = 0; l < g->n_lanes; ++l) {
                    mean[c * rows->n + i + l] = p.mean[l];
                    variance[c * rows->n + i + l] = p.variance[l];
                }
        }
        if (gradient) {
            write_rows(g, m, g->d_a, gradient->d_a);
            by_parameters(kernel, support, rows, gradient, g);
        }
    }
}
