#include "neighbourhood.inc.h"

ptrdiff_t xg_local_scratch(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k)
{
    return LINE / 8 + XG_WIDTH * lanes_of(kernel, support, k, NULL, NULL);
}

/* gamma, chi and the sites' gradients: of beta = dF/db they need A_N beta. */
XG_CALLED void vjp_sites(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c, lanes g_mean,
                         lanes g_variance, group *g)
{
    ptrdiff_t k = rows->k, classes = support->n_classes;
    lanes *by_near = g->by_near;
    const lanes *D_x = g->D + PACKED(k);
    lane_rows near = neighbours(rows, g, support->a, support->m);
    leave_out(k, g->counted, g->linear, g->e);
    symmetric_times(k, g->D, g->e, g->Dr);
    scatter(XG_WIDTH, support->m, g->beta, g->rows);
    row_dots(&near, g->rows, g->f);
    for (ptrdiff_t j = 0; j < k; ++j) {
        g->chi[j] = g_mean * g->e[j];
        g->f[j] = -g->f[j] - g_variance * D_x[j] - g_mean * g->Dr[j];
        g->e[j] = g->root[j] * g->f[j];
    }
    leave_out(k, g->counted, g->e, g->e);
    solve_lower(k, g->B, g->e);
    leave_out(k, g->counted, g->e, g->e);
    solve_upper(k, g->B, g->e);
    for (ptrdiff_t j = 0; j < k; ++j, by_near += 1 + 2 * classes) {
        g->chi[j] += g->root[j] * g->e[j];
        by_near[0] -= g->gamma[j] * g->chi[j];
        by_near[1 + c] += g->eta[j] * g->e[j] / g->root[j];
        by_near[1 + classes + c] += g->eta[j] * g_mean;
    }
}

/* F's gradient by b, in beta, and by the mean and variance ``here``; zeros in lanes that are not in use. */
XG_CALLED conditional by_conditional(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c,
                                     const xg_local_pulled *pulled, conditional here, group *g)
{
    ptrdiff_t m = support->m;
    const double *v = pulled->v + c * m;
    lanes used, d_form = {0.0}, d_dot = {0.0};
    conditional by;
    shared_times(m, pulled->S + c * m * m, g->b, g->beta);
    if (!pulled->d_form) {
        lanes precision, linear, along = {0.0};
        for (int l = 0; l < XG_WIDTH; ++l) {
            precision[l] = support->precision[c * support->n + g->row[l]];
            linear[l] = support->linear[c * support->n + g->row[l]];
        }
        for (ptrdiff_t q = 0; q < m; ++q)
            along += v[q] * g->b[q];
        d_form = precision / (1.0 + precision * here.variance);
        d_dot = (linear - precision * here.mean) / (1.0 + precision * here.variance);
        by.variance = -d_form * (d_form * dot(m, g->b, g->beta) + d_dot * along);
        by.mean = -d_form * along;
    }
    for (int l = 0; l < XG_WIDTH; ++l) {
        ptrdiff_t at = c * rows->n + g->row[l];
        used[l] = l < g->n_lanes;
        if (pulled->d_form) {
            d_form[l] = pulled->d_form[at];
            d_dot[l] = pulled->d_dot[at];
            by.variance[l] = pulled->d_variance[at];
            by.mean[l] = pulled->d_mean[at];
        }
    }
    for (ptrdiff_t q = 0; q < m; ++q)
        g->beta[q] = used * (2.0 * d_form * g->beta[q] + d_dot * v[q]);
    by.variance *= used;
    by.mean *= used;
    return by;
}

/* u and what is added to d_a of a row, from t = beta - A_N^T chi */
XG_INLINE void by_own_row(ptrdiff_t m, double variance, const double *restrict a, const double *restrict b,
                          const double *restrict t, double *restrict u, double *restrict d_a)
{
    for (ptrdiff_t q = 0; q < m; ++q) {
        u[q] = variance * a[q] - t[q];
        d_a[q] += t[q] - variance * (a[q] + b[q]);
    }
}

/* Outputs of class c by one set of neighbours, and its part of G = dF/dK of the pairs and of d_a. ``at`` is the place of
 * row g->row[0] and this class in them. */
XG_CALLED void vjp(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c, ptrdiff_t at,
                   const xg_local_pulled *pulled, conditional here, group *g, double *d_a)
{
    ptrdiff_t k = rows->k, m = support->m;
    lane_rows near = neighbours(rows, g, support->a, m), beta = {1, m, g->place, g->rows};
    lanes *G = g->G;
    const lanes *gamma = g->gamma, *chi = g->chi;
    conditional by = by_conditional(support, rows, c, pulled, here, g);
    vjp_sites(support, rows, c, by.mean, by.variance, g);
    g->diagonal += by.variance;
    scatter(g->n_lanes, k, g->gamma, pulled->gamma + at * k);
    scatter(g->n_lanes, k, g->chi, pulled->chi + at * k);
    subtract_rows(g->n_lanes, &near, &beta, chi, g->counted, g->rows);
    for (ptrdiff_t l = 0; l < g->n_lanes; ++l)
        by_own_row(m, by.variance[l], rows->a + g->row[l] * m, pulled->b + (at + l) * m, g->rows + l * m,
                   pulled->u + (at + l) * m, d_a + l * m);
    for (ptrdiff_t i = 0; i < k; ++i)
        for (ptrdiff_t j = 0; j < i; ++j)
            G[PACKED(i) + j] = G[PACKED(i) + j] - chi[i] * gamma[j] - gamma[i] * chi[j];
    for (ptrdiff_t j = 0; j < k; ++j)
        G[PACKED(k) + j] += chi[j] - by.variance * gamma[j];
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

/* sums[q] += sum_ij W_ij dlog kappa / dlog(length scale) for columns q of the rows x (count, CHUNK); see axis.c */
XG_INLINE void slopes_by_scales(const int is_smooth, ptrdiff_t count, const lanes *W, ptrdiff_t size, const lanes *x,
                                double *sums)
{
    for (ptrdiff_t q = 0; q < size; q += 4) {
        lanes total[4] = {{0.0}, {0.0}, {0.0}, {0.0}}, weight[4], difference[4], slope[4];
        for (ptrdiff_t i = 1; i < count; ++i)
            for (ptrdiff_t j = 0; j < i; ++j) {
                for (ptrdiff_t c = 0; c < 4; ++c) {
                    ptrdiff_t column = SMALLER(q + c, size - 1);
                    weight[c] = W[PACKED(i) + j];
                    difference[c] = x[i * CHUNK + column] - x[j * CHUNK + column];
                }
                log_slopes(is_smooth, 4, weight, difference, slope);
                for (int c = 0; c < 4; ++c)
                    total[c] += slope[c] * difference[c];
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
    int is_axis_aligned = xg_is_axis_aligned(kernel->family[f]);
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
        gather(&near, first, size, g->chunk, is_axis_aligned ? CHUNK : 1, is_axis_aligned ? 1 : k);
        gather(&here, first, size, own, 1, 1);
        if (is_axis_aligned)
            XG_WITH(kernel->family[f] == XG_AXIS_MATERN_32, 1, 0, slopes_by_scales, k + 1, g->h, size, g->chunk,
                    scales + f * d + first);
        else {
            for (ptrdiff_t q = 0; q < size; ++q)
                for (ptrdiff_t j = 0; j < k; ++j)
                    g->chunk[q * k + j] -= own[q];
            squared_differences(k, g->h, g->e, size, g->chunk, scales + f * d + first);
        }
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

/* What a set of neighbours says of class c, written. */
XG_INLINE void write_conditional(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c,
                                 conditional here, const xg_local_conditional *out, const group *g)
{
    ptrdiff_t k = rows->k, m = support->m, at = c * out->n - out->first + g->row[0];
    double *b = out->b + c * m * out->b_n - out->b_first + g->row[0];
    for (ptrdiff_t q = 0; q < m; ++q, b += out->b_n)
        if (g->n_lanes == XG_WIDTH)
            *LANES(b) = g->b[q];
        else
            scatter(g->n_lanes, 1, g->b + q, b);
    if (out->gamma)
        scatter(g->n_lanes, k, g->gamma, out->gamma + at * k);
    scatter(g->n_lanes, 1, &here.mean, out->mean + at);
    scatter(g->n_lanes, 1, &here.variance, out->variance + at);
}

void xg_local_condition(const xg_local_kernel *kernel, const xg_local_support *support,
                                    const xg_local_rows *rows, ptrdiff_t first, ptrdiff_t last, double *scratch,
                                    const xg_local_conditional *out, const xg_local_gradient *gradient)
{
    group shared, *g = &shared;
    ptrdiff_t k = rows->k, m = support->m, planes = 1 + 2 * support->n_classes;
    int n_sets = rows->n_earlier ? 2 : 1;
    lanes_of(kernel, support, k, g, aligned(scratch));
    lanes *D = g->D;
    for (ptrdiff_t i = first; i < last; i += XG_WIDTH) {
        g->n_lanes = SMALLER(last - i, XG_WIDTH);
        for (int l = 0; l < XG_WIDTH; ++l) {
            g->row[l] = SMALLER(i + l, last - 1);
            g->place[l] = SMALLER(l, g->n_lanes - 1);
            const int32_t *index = rows->index + g->row[l] * k;
            for (ptrdiff_t j = 0; j < k; ++j)
                g->index[j * XG_WIDTH + l] = index[j];
        }
        lane_rows own = own_rows(g, rows->a, m);
        gather(&own, 0, m, g->a, m, 1);
        g->D = rows->blocks ? LANES(rows->blocks + i * PACKED(k + 1)) : D;
        int is_known = rows->blocks && g->D[0][0] > 0.0;
        if (gradient || !is_known)
            profiles(kernel, support, rows, gradient != NULL, g);
        if (is_known)
            for (ptrdiff_t j = 0; j < k; j += 4)
                fetch(rows, i + XG_WIDTH, j, support->a, m, 0, m);
        else {
            kernel_block(kernel, k, g);
            residual_block(kernel, support, rows, g);
        }
        if (gradient) {
            for (ptrdiff_t p = 0; p < PACKED(k + 1); ++p)
                g->G[p] = (lanes){0.0};
            memset(gradient->d_a + (i - first) * m, 0, (size_t)(g->n_lanes * m) * sizeof(double));
            g->diagonal = (lanes){0.0};
            for (ptrdiff_t j = 0; j < k * planes; ++j)
                g->by_near[j] = (lanes){0.0};
        }
        for (ptrdiff_t c = 0; c < support->n_classes; ++c) {
            factorise(support, rows, c, g);
            for (int set = 0; set < n_sets; ++set) {
                for (int l = 0; l < XG_WIDTH; ++l)
                    g->counted[l] = set ? rows->n_earlier[g->row[l]] : k;
                ptrdiff_t at = c * (last - first) + i - first;
                conditional here = condition(support, rows, g, gradient ? gradient->set[set].b + at * m : g->rows);
                if (gradient)
                    vjp(support, rows, c, at, gradient->set + set, here, g, gradient->d_a + (i - first) * m);
                else
                    write_conditional(support, rows, c, here, out + set, g);
            }
        }
        if (gradient) {
            scatter(g->n_lanes, k * planes, g->by_near, gradient->by_near + (i - first) * k * planes);
            scatter(g->n_lanes, 1, &g->diagonal, gradient->d_diagonal + i - first);
            by_parameters(kernel, support, rows, gradient, g);
        }
    }
}
