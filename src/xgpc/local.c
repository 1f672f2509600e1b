#include "local.h"

#include "profiles.h"

/* Eight rows side by side; in memory like eight doubles. */
typedef double lanes __attribute__((vector_size(8 * XG_LANES), aligned(8), may_alias));

#define PACKED(i) ((i) * ((i) + 1) / 2)
#define LANES(p) ((lanes *)(p))

/* Features of a whitened row that are gathered and multiplied at a time: of 33 rows they stay in a first-level cache. */
#define CHUNK 8

typedef struct {
    ptrdiff_t n_lanes; /* rows in use; the others repeat the last */
    int64_t row[XG_LANES];
    int64_t *index;                                      /* (k, 8) */
    lanes *A, *a, *x, *h, *value, *slope, *shaped, *D, *B, *G;
    lanes *precision, *root, *linear, *u, *Du, *gamma, *alpha, *eta, *f, *e, *chi;
    lanes *b, *Vb, *Va, *beta, *s, *d_a;
} group;

static ptrdiff_t lanes_of(const xg_local_kernel *kernel, ptrdiff_t k, ptrdiff_t m, group *g, double *scratch)
{
    ptrdiff_t used = 0, T = PACKED(k + 1) + k + 1, F = kernel->n_factors;
#define TAKE(name, size)                                                                                             \
    if (g)                                                                                                           \
        g->name = LANES(scratch) + used;                                                                             \
    used += (size);
    TAKE(A, k * m)
    TAKE(a, m)
    TAKE(x, (k + 1) * kernel->n_features)
    TAKE(h, T)
    TAKE(value, F * T)
    TAKE(slope, F * T)
    TAKE(shaped, F * T)
    TAKE(D, T)
    TAKE(B, PACKED(k))
    TAKE(G, T)
    TAKE(precision, k)
    TAKE(root, k)
    TAKE(linear, k)
    TAKE(u, k)
    TAKE(Du, k)
    TAKE(gamma, k)
    TAKE(alpha, k)
    TAKE(eta, k)
    TAKE(f, k)
    TAKE(e, k)
    TAKE(chi, k)
    TAKE(b, m)
    TAKE(Vb, m)
    TAKE(Va, m)
    TAKE(beta, m)
    TAKE(s, m)
    TAKE(d_a, m)
#undef TAKE
    if (g)
        g->index = (int64_t *)(LANES(scratch) + used);
    return used + k;
}

ptrdiff_t xg_local_scratch(const xg_local_kernel *kernel, ptrdiff_t k, ptrdiff_t m)
{
    return XG_LANES * lanes_of(kernel, k, m, NULL, NULL);
}

/* out[j] = columns first .. first + size of row index[j] of each lane, of a row-major (., width) */
XG_INLINE void gather(ptrdiff_t count, const int64_t *index, const double *values, ptrdiff_t width, ptrdiff_t first,
                      ptrdiff_t size, ptrdiff_t stride, lanes *out)
{
    for (ptrdiff_t j = 0; j < count; ++j) {
        const double *row[XG_LANES];
        for (int l = 0; l < XG_LANES; ++l)
            row[l] = values + index[j * XG_LANES + l] * width + first;
        for (ptrdiff_t q = 0; q < size; ++q) {
            lanes value;
            for (int l = 0; l < XG_LANES; ++l)
                value[l] = row[l][q];
            out[j * stride + q] = value;
        }
    }
}

/* out, a packed lower triangle without its diagonal, += factor x_i . x_j over size columns */
XG_INLINE void products(ptrdiff_t count, const lanes *x, ptrdiff_t stride, ptrdiff_t size, double factor, lanes *out)
{
    for (ptrdiff_t i = 0; i < count; i += 2) {
        const lanes *x0 = x + i * stride, *x1 = i + 1 < count ? x0 + stride : x0;
        lanes *o0 = out + PACKED(i), *o1 = i + 1 < count ? out + PACKED(i + 1) : o0;
        for (ptrdiff_t j = 0; j < i; j += 2) {
            const lanes *y0 = x + j * stride, *y1 = y0 + stride;
            lanes s00 = {0.0}, s01 = {0.0}, s10 = {0.0}, s11 = {0.0};
            for (ptrdiff_t q = 0; q < size; ++q) {
                s00 += x0[q] * y0[q];
                s01 += x0[q] * y1[q];
                s10 += x1[q] * y0[q];
                s11 += x1[q] * y1[q];
            }
            o0[j] += factor * s00;
            o0[j + 1] += factor * s01;
            if (o1 != o0) {
                o1[j] += factor * s10;
                o1[j + 1] += factor * s11;
            }
        }
        if (o1 != o0) {
            lanes s = {0.0};
            for (ptrdiff_t q = 0; q < size; ++q)
                s += x1[q] * x0[q];
            o1[i] += factor * s;
        }
    }
}

/* out (rows,) = A x for A (rows, columns) */
XG_INLINE void times(ptrdiff_t rows, ptrdiff_t columns, const lanes *A, const lanes *x, lanes *out)
{
    for (ptrdiff_t i = 0; i < rows; ++i) {
        lanes s0 = {0.0}, s1 = {0.0};
        ptrdiff_t j = 0;
        for (; j + 1 < columns; j += 2) {
            s0 += A[i * columns + j] * x[j];
            s1 += A[i * columns + j + 1] * x[j + 1];
        }
        if (j < columns)
            s0 += A[i * columns + j] * x[j];
        out[i] = s0 + s1;
    }
}

/* out (columns,) = A^T x */
XG_INLINE void transposed_times(ptrdiff_t rows, ptrdiff_t columns, const lanes *A, const lanes *x, lanes *out)
{
    for (ptrdiff_t j = 0; j < columns; ++j)
        out[j] = (lanes){0.0};
    for (ptrdiff_t i = 0; i < rows; ++i)
        for (ptrdiff_t j = 0; j < columns; ++j)
            out[j] += A[i * columns + j] * x[i];
}

/* out = S x for the same row-major (n, n) matrix in all lanes */
XG_INLINE void shared_times(ptrdiff_t n, const double *S, const lanes *x, lanes *out)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        lanes s0 = {0.0}, s1 = {0.0};
        ptrdiff_t j = 0;
        for (; j + 1 < n; j += 2) {
            s0 += S[i * n + j] * x[j];
            s1 += S[i * n + j + 1] * x[j + 1];
        }
        if (j < n)
            s0 += S[i * n + j] * x[j];
        out[i] = s0 + s1;
    }
}

/* out = D x for a packed symmetric matrix */
XG_INLINE void symmetric_times(ptrdiff_t n, const lanes *D, const lanes *x, lanes *out)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        const lanes *row = D + PACKED(i);
        lanes s = row[i] * x[i];
        for (ptrdiff_t j = 0; j < i; ++j) {
            s += row[j] * x[j];
            out[j] += row[j] * x[i];
        }
        out[i] = s;
    }
}

XG_INLINE lanes dot(ptrdiff_t n, const lanes *x, const lanes *y)
{
    lanes s0 = {0.0}, s1 = {0.0};
    ptrdiff_t i = 0;
    for (; i + 1 < n; i += 2) {
        s0 += x[i] * y[i];
        s1 += x[i + 1] * y[i + 1];
    }
    if (i < n)
        s0 += x[i] * y[i];
    return s0 + s1;
}

XG_INLINE lanes root_of(lanes x)
{
    for (int l = 0; l < XG_LANES; ++l)
        x[l] = sqrt(x[l]);
    return x;
}

/* Packed B <- its Cholesky factor, with the reciprocals of its diagonal there; four columns at a time. */
XG_INLINE void cholesky(ptrdiff_t n, lanes *B)
{
    for (ptrdiff_t j = 0; j < n; j += 4) {
        ptrdiff_t width = n - j < 4 ? n - j : 4;
        for (ptrdiff_t i = j; i < n; ++i) {
            lanes *row = B + PACKED(i) + j;
            const lanes *left = B + PACKED(i);
            ptrdiff_t columns = i - j + 1 < width ? i - j + 1 : width;
            if (columns == 4) {
                const lanes *y0 = B + PACKED(j), *y1 = B + PACKED(j + 1), *y2 = B + PACKED(j + 2),
                            *y3 = B + PACKED(j + 3);
                lanes s0 = row[0], s1 = row[1], s2 = row[2], s3 = row[3];
                for (ptrdiff_t q = 0; q < j; ++q) {
                    s0 -= left[q] * y0[q];
                    s1 -= left[q] * y1[q];
                    s2 -= left[q] * y2[q];
                    s3 -= left[q] * y3[q];
                }
                row[0] = s0;
                row[1] = s1;
                row[2] = s2;
                row[3] = s3;
            } else
                for (ptrdiff_t c = 0; c < columns; ++c) {
                    const lanes *y = B + PACKED(j + c);
                    lanes s = row[c];
                    for (ptrdiff_t q = 0; q < j; ++q)
                        s -= left[q] * y[q];
                    row[c] = s;
                }
            for (ptrdiff_t c = 0; c < columns; ++c) {
                const lanes *y = B + PACKED(j + c) + j;
                lanes s = row[c];
                for (ptrdiff_t q = 0; q < c; ++q)
                    s -= row[q] * y[q];
                row[c] = c == i - j ? 1.0 / root_of(s) : s * y[c];
            }
        }
    }
}

/* x <- B^-1 x by the factor of ``cholesky`` */
XG_INLINE void solve(ptrdiff_t n, const lanes *B, lanes *x)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        const lanes *row = B + PACKED(i);
        lanes s0 = x[i], s1 = {0.0};
        ptrdiff_t j = 0;
        for (; j + 1 < i; j += 2) {
            s0 -= row[j] * x[j];
            s1 -= row[j + 1] * x[j + 1];
        }
        if (j < i)
            s0 -= row[j] * x[j];
        x[i] = (s0 + s1) * row[i];
    }
    for (ptrdiff_t i = n; i-- > 0;) {
        const lanes *row = B + PACKED(i);
        lanes value = x[i] * row[i];
        x[i] = value;
        for (ptrdiff_t j = 0; j < i; ++j)
            x[j] -= row[j] * value;
    }
}

XG_INLINE void solve_between_roots(ptrdiff_t k, const group *g, const lanes *x, lanes *out)
{
    for (ptrdiff_t j = 0; j < k; ++j)
        out[j] = g->root[j] * x[j];
    solve(k, g->B, out);
    for (ptrdiff_t j = 0; j < k; ++j)
        out[j] *= g->root[j];
}

/* Arguments h of factor f for all pairs of the neighbours, and of these and x, which is the last. */
XG_INLINE void arguments(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                         ptrdiff_t f, group *g)
{
    ptrdiff_t k = rows->k, d = kernel->n_features, T = PACKED(k + 1);
    const double *x = rows->x + f * rows->n * d;
    lanes *own = g->x + k * d;
    gather(k, g->index, support->x + f * support->n * d, d, 0, d, d, g->x);
    gather(1, g->row, x, d, 0, d, d, own);
    for (ptrdiff_t p = 0; p < T; ++p)
        g->h[p] = (lanes){0.0};
    if (kernel->family[f] == XG_DOT_PRODUCT) {
        products(k + 1, g->x, d, d, 1.0, g->h);
        return;
    }
    /* Distances do not depend on the origin: near x they lose no digits. */
    for (ptrdiff_t j = 0; j < k; ++j) {
        lanes norm = {0.0};
        for (ptrdiff_t q = 0; q < d; ++q) {
            g->x[j * d + q] -= own[q];
            norm += g->x[j * d + q] * g->x[j * d + q];
        }
        g->u[j] = -0.5 * norm;
    }
    products(k, g->x, d, d, 1.0, g->h);
    for (ptrdiff_t i = 0; i < k; ++i) {
        lanes *row = g->h + PACKED(i);
        for (ptrdiff_t j = 0; j < i; ++j) {
            lanes h = row[j] + g->u[i] + g->u[j];
            for (int l = 0; l < XG_LANES; ++l)
                h[l] = xg_min(h[l], 0.0);
            row[j] = h;
        }
    }
    for (ptrdiff_t j = 0; j < k; ++j)
        g->h[PACKED(k) + j] = g->u[j];
}

/* D, packed, of the neighbours and x; the kernel's profiles stay in value, slope and shaped. */
XG_INLINE void residual_block(const xg_local_kernel *kernel, const xg_local_support *support,
                              const xg_local_rows *rows, int with_slopes, group *g)
{
    ptrdiff_t k = rows->k, m = support->m, T = PACKED(k + 1) + k + 1;
    for (ptrdiff_t f = 0; f < kernel->n_factors; ++f) {
        double *slope = with_slopes ? (double *)(g->slope + f * T) : NULL;
        arguments(kernel, support, rows, f, g);
        xg_profile_array(kernel->family[f], kernel->shape[f], XG_LANES * PACKED(k + 1), (const double *)g->h,
                         (double *)(g->value + f * T), slope, (double *)(g->shaped + f * T));
    }
    for (ptrdiff_t p = 0; p < T; ++p)
        g->D[p] = (lanes){0.0};
    for (ptrdiff_t t = 0; t < kernel->n_terms; ++t) {
        if (kernel->noise[t])
            continue;
        for (ptrdiff_t p = 0; p < PACKED(k + 1); ++p) {
            lanes value = {0.0};
            value += kernel->variance[t];
            for (ptrdiff_t f = kernel->first[t]; f < kernel->first[t + 1]; ++f)
                value *= g->value[f * T + p];
            g->D[p] += value;
        }
    }
    gather(1, g->row, rows->a, m, 0, m, m, g->a);
    gather(k, g->index, support->a, m, 0, m, m, g->A);
    for (ptrdiff_t first = 0; first < m; first += CHUNK)
        products(k, g->A + first, m, m - first < CHUNK ? m - first : CHUNK, -1.0, g->D);
    times(k, m, g->A, g->a, g->u);
    for (ptrdiff_t j = 0; j < k; ++j)
        g->D[PACKED(k) + j] -= g->u[j];
    for (int l = 0; l < XG_LANES; ++l) {
        for (ptrdiff_t j = 0; j < k; ++j)
            g->D[PACKED(j) + j][l] = support->residual[g->index[j * XG_LANES + l]];
        g->D[PACKED(k) + k][l] = rows->residual[g->row[l]];
    }
}

typedef struct {
    lanes mean, variance, rho, aVa, aw, kappa, tau, own_precision, own_linear;
} prediction;

/* The prediction by class c; B, gamma, eta, b, Vb and, with own sites, Va stay in the group. */
XG_INLINE prediction predict(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c, group *g)
{
    ptrdiff_t k = rows->k, m = support->m;
    const double *w = support->w + c * m, *V = support->V + c * m * m;
    const lanes *D_x = g->D + PACKED(k);
    prediction p;
    for (ptrdiff_t j = 0; j < k; ++j)
        for (int l = 0; l < XG_LANES; ++l) {
            int64_t i = c * support->n + g->index[j * XG_LANES + l];
            g->precision[j][l] = support->precision[i];
            g->linear[j][l] = support->linear[i];
        }
    for (ptrdiff_t i = 0; i < k; ++i) {
        g->root[i] = root_of(g->precision[i]);
        for (ptrdiff_t j = 0; j <= i; ++j)
            g->B[PACKED(i) + j] = g->root[i] * g->root[j] * g->D[PACKED(i) + j];
        g->B[PACKED(i) + i] += 1.0;
    }
    cholesky(k, g->B);
    /* nu = r - Lambda A w, alpha = M^-1 (r / lambda - A w) */
    p.aw = (lanes){0.0};
    for (ptrdiff_t q = 0; q < m; ++q)
        p.aw += g->a[q] * w[q];
    for (ptrdiff_t j = 0; j < k; ++j) {
        lanes s = {0.0};
        for (ptrdiff_t q = 0; q < m; ++q)
            s += g->A[j * m + q] * w[q];
        g->u[j] = g->linear[j] - g->precision[j] * s;
    }
    symmetric_times(k, g->D, g->u, g->Du);
    solve_between_roots(k, g, g->Du, g->alpha);
    solve_between_roots(k, g, D_x, g->gamma);
    for (ptrdiff_t j = 0; j < k; ++j)
        g->alpha[j] = g->u[j] - g->alpha[j];
    transposed_times(k, m, g->A, g->gamma, g->b);
    for (ptrdiff_t q = 0; q < m; ++q)
        g->b[q] = g->a[q] - g->b[q];
    shared_times(m, V, g->b, g->Vb);
    p.mean = p.aw + dot(k, D_x, g->alpha);
    p.variance = D_x[k] - dot(k, D_x, g->gamma);
    for (int l = 0; l < XG_LANES; ++l)
        p.variance[l] = xg_max(p.variance[l], 0.0);
    p.variance += dot(m, g->b, g->Vb);
    if (rows->own_precision) {
        for (int l = 0; l < XG_LANES; ++l) {
            p.own_precision[l] = rows->own_precision[c * rows->n + g->row[l]];
            p.own_linear[l] = rows->own_linear[c * rows->n + g->row[l]];
        }
        shared_times(m, V, g->a, g->Va);
        p.rho = dot(m, g->b, g->Va);
        p.aVa = dot(m, g->a, g->Va);
        p.tau = 1.0 - p.own_precision * p.aVa;
        p.kappa = (p.own_precision * p.aw - p.own_linear) / p.tau;
        p.mean += p.rho * p.kappa;
        p.variance += p.own_precision * p.rho * p.rho / p.tau;
    }
    return p;
}

/* Row i of the group's lanes becomes row row[i] of a row-major (., width) */
XG_INLINE void scatter(const group *g, ptrdiff_t width, const lanes *values, double *out)
{
    for (ptrdiff_t l = 0; l < g->n_lanes; ++l)
        for (ptrdiff_t q = 0; q < width; ++q)
            out[g->row[l] * width + q] = values[q][l];
}

/* Outputs of class c, and its part of G = dF/dK of the pairs and of d_a. */
XG_INLINE void pull_back(const xg_local_support *support, const xg_local_rows *rows, ptrdiff_t c,
                         const xg_local_gradient *gradient, const prediction *p, group *g)
{
    ptrdiff_t k = rows->k, m = support->m, at = c * rows->n;
    const double *w = support->w + c * m;
    const lanes *D_x = g->D + PACKED(k);
    lanes g_mean, g_variance, d_rho = {0.0}, d_aVa = {0.0}, d_aw = {0.0};
    for (int l = 0; l < XG_LANES; ++l) {
        g_mean[l] = l < g->n_lanes ? gradient->d_mean[at + g->row[l]] : 0.0;
        g_variance[l] = l < g->n_lanes ? gradient->d_variance[at + g->row[l]] : 0.0;
    }
    if (rows->own_precision) {
        lanes d_kappa = g_mean * p->rho, ratio = p->rho / p->tau;
        lanes d_tau = -g_variance * p->own_precision * ratio * ratio - d_kappa * p->kappa / p->tau;
        lanes own[5];
        d_rho = g_mean * p->kappa + 2.0 * g_variance * p->own_precision * ratio;
        d_aVa = -d_tau * p->own_precision;
        d_aw = d_kappa * p->own_precision / p->tau;
        own[0] = g_variance * p->rho * ratio + d_kappa * p->aw / p->tau - d_tau * p->aVa;
        own[1] = -d_kappa / p->tau;
        own[2] = d_rho;
        own[3] = d_aVa;
        own[4] = d_aw;
        scatter(g, 5, own, gradient->own + 5 * at);
    }
    for (ptrdiff_t q = 0; q < m; ++q) {
        g->beta[q] = g_mean * w[q] + 2.0 * g_variance * g->Vb[q];
        if (rows->own_precision)
            g->beta[q] += d_rho * g->Va[q];
    }
    symmetric_times(k, g->D, g->gamma, g->eta);
    symmetric_times(k, g->D, g->linear, g->Du);
    times(k, m, g->A, g->beta, g->f);
    for (ptrdiff_t j = 0; j < k; ++j) {
        g->eta[j] = D_x[j] - g->eta[j];
        g->f[j] = -g->f[j] - g_variance * D_x[j] - g_mean * g->Du[j];
    }
    solve_between_roots(k, g, g->f, g->e);
    symmetric_times(k, g->D, g->e, g->Du);
    for (ptrdiff_t j = 0; j < k; ++j) {
        g->chi[j] = g_mean * g->linear[j] + g->e[j];
        g->f[j] = g->eta[j] * (g->f[j] - g->Du[j]);
        g->eta[j] *= g_mean;
    }
    scatter(g, k, g->gamma, gradient->gamma + at * k);
    scatter(g, k, g->chi, gradient->chi + at * k);
    scatter(g, k, g->f, gradient->d_precision + at * k);
    scatter(g, k, g->eta, gradient->d_linear + at * k);
    transposed_times(k, m, g->A, g->chi, g->s);
    for (ptrdiff_t q = 0; q < m; ++q) {
        lanes d_a = g->beta[q] - g->s[q] - g_variance * (g->a[q] + g->b[q]) + d_aw * w[q];
        if (rows->own_precision)
            d_a += d_rho * g->Vb[q] + 2.0 * d_aVa * g->Va[q];
        g->d_a[q] += d_a;
        g->s[q] += g_variance * g->a[q] - g->beta[q];
    }
    scatter(g, m, g->b, gradient->b + at * m);
    scatter(g, m, g->s, gradient->u + at * m);
    for (ptrdiff_t i = 0; i < k; ++i)
        for (ptrdiff_t j = 0; j < i; ++j)
            g->G[PACKED(i) + j] -= g->chi[i] * g->gamma[j] + g->gamma[i] * g->chi[j];
    for (ptrdiff_t j = 0; j < k; ++j)
        g->G[PACKED(k) + j] += g->chi[j] - g_variance * g->gamma[j];
}

XG_INLINE double sum_of(lanes x)
{
    double total = 0.0;
    for (int l = 0; l < XG_LANES; ++l)
        total += x[l];
    return total;
}

/* Contraction of G with the derivatives of all pairs by the logarithms of a factor's length scales. h <- its weights. */
XG_INLINE void by_length_scales(const xg_local_kernel *kernel, const xg_local_support *support,
                                const xg_local_rows *rows, ptrdiff_t f, group *g, double *scales)
{
    ptrdiff_t k = rows->k, d = kernel->n_features;
    /* The last factor's scaled rows are there still. */
    if (kernel->n_factors > 1) {
        lanes *weights = g->B; /* k (k + 1) / 2, too few for x: those are kept in f */
        for (ptrdiff_t p = 0; p < PACKED(k); ++p)
            weights[p] = g->h[p];
        for (ptrdiff_t j = 0; j < k; ++j)
            g->f[j] = g->h[PACKED(k) + j];
        arguments(kernel, support, rows, f, g);
        for (ptrdiff_t p = 0; p < PACKED(k); ++p)
            g->h[p] = weights[p];
        for (ptrdiff_t j = 0; j < k; ++j)
            g->h[PACKED(k) + j] = g->f[j];
    }
    for (ptrdiff_t j = 0; j < k; ++j)
        g->e[j] = g->h[PACKED(k) + j];
    for (ptrdiff_t i = 0; i < k; ++i)
        for (ptrdiff_t j = 0; j < i; ++j) {
            g->e[i] += g->h[PACKED(i) + j];
            g->e[j] += g->h[PACKED(i) + j];
        }
    /* x is the origin: sum_ij W_ij (x_i - x_j)^2 = sum_i (row sum) x_i^2 - 2 sum_{i > j} W_ij x_i x_j */
    for (ptrdiff_t q = 0; q < d; ++q) {
        lanes total = {0.0};
        for (ptrdiff_t i = 0; i < k; ++i) {
            lanes x = g->x[i * d + q], toward = {0.0};
            for (ptrdiff_t j = 0; j < i; ++j)
                toward += g->h[PACKED(i) + j] * g->x[j * d + q];
            total += x * (g->e[i] * x - 2.0 * toward);
        }
        scales[f * d + q] += sum_of(total);
    }
}

/* Contraction of G with the derivatives of all pairs by the kernel's parameters. */
XG_INLINE void by_parameters(const xg_local_kernel *kernel, const xg_local_support *support,
                             const xg_local_rows *rows, const xg_local_gradient *gradient, group *g)
{
    ptrdiff_t k = rows->k, size = PACKED(k + 1), T = size + k + 1;
    for (ptrdiff_t t = 0; t < kernel->n_terms; ++t) {
        lanes total = {0.0};
        if (kernel->noise[t])
            continue;
        for (ptrdiff_t i = 0; i <= k; ++i)
            for (ptrdiff_t j = 0; j < i; ++j) {
                lanes value = g->G[PACKED(i) + j];
                for (ptrdiff_t f = kernel->first[t]; f < kernel->first[t + 1]; ++f)
                    value *= g->value[f * T + PACKED(i) + j];
                total += value;
            }
        gradient->terms[t] += kernel->variance[t] * sum_of(total);
        for (ptrdiff_t f = kernel->first[t]; f < kernel->first[t + 1]; ++f) {
            lanes shaped = {0.0};
            for (ptrdiff_t p = 0; p < size; ++p) {
                lanes weight = kernel->variance[t] * g->G[p];
                for (ptrdiff_t other = kernel->first[t]; other < kernel->first[t + 1]; ++other)
                    if (other != f)
                        weight *= g->value[other * T + p];
                shaped += weight * g->shaped[f * T + p];
                g->h[p] = weight * g->slope[f * T + p];
            }
            gradient->shapes[f] += sum_of(shaped);
            if (kernel->family[f] != XG_DOT_PRODUCT)
                by_length_scales(kernel, support, rows, f, g, gradient->scales);
        }
    }
}

XG_CLONES
void xg_local_predict(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                      ptrdiff_t start, ptrdiff_t stop, double *scratch, double *mean, double *variance,
                      const xg_local_gradient *gradient)
{
    group shared, *g = &shared;
    ptrdiff_t k = rows->k, m = support->m;
    lanes_of(kernel, k, m, g, scratch);
    for (ptrdiff_t i = start; i < stop; i += XG_LANES) {
        g->n_lanes = stop - i < XG_LANES ? stop - i : XG_LANES;
        for (int l = 0; l < XG_LANES; ++l) {
            g->row[l] = l < g->n_lanes ? i + l : stop - 1;
            for (ptrdiff_t j = 0; j < k; ++j)
                g->index[j * XG_LANES + l] = rows->index[g->row[l] * k + j];
        }
        residual_block(kernel, support, rows, gradient != NULL, g);
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
            scatter(g, m, g->d_a, gradient->d_a);
            by_parameters(kernel, support, rows, gradient, g);
        }
    }
}
