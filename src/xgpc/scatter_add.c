#include "lanes.inc.h"
#include "local.h"

/* Neighbours that are added to at a time: so many as registers allow, so that more of them are on their way from memory. */
enum { HIGH = XG_WIDTH == 8 ? 4 : 2 };

/* Q vectors from column q on of R rows, neighbours j, ... of row i, by the first ``n_sets`` sets; R and Q are constants,
 * so that all sums stay in registers. */
XG_INLINE void add_columns(const int R, const int Q, const xg_scatter_rows *rows, ptrdiff_t n_sets, ptrdiff_t i,
                           ptrdiff_t j, ptrdiff_t q, double *const *near)
{
    lanes s[HIGH][4];
    for (int r = 0; r < R; ++r)
        for (int x = 0; x < Q; ++x)
            s[r][x] = LANES(near[r] + q)[x];
    for (const xg_local_pulled *from = rows->set; from < rows->set + n_sets; ++from)
        for (ptrdiff_t row = i; row < rows->n_classes * rows->n; row += rows->n) {
            const double *gamma = from->gamma + row * rows->k + j, *chi = from->chi + row * rows->k + j;
            const lanes *b = LANES(from->b + row * rows->m + q), *u = LANES(from->u + row * rows->m + q);
            for (int x = 0; x < Q; ++x)
                for (int r = 0; r < R; ++r)
                    s[r][x] = s[r][x] + gamma[r] * u[x] - chi[r] * b[x];
        }
    for (int r = 0; r < R; ++r)
        for (int x = 0; x < Q; ++x)
            LANES(near[r] + q)[x] = s[r][x];
}

/* The same for all columns */
XG_INLINE void add_rows(const int R, const xg_scatter_rows *rows, ptrdiff_t n_sets, ptrdiff_t i, ptrdiff_t j, double *d_a)
{
    ptrdiff_t q = 0, m = rows->m;
    double *near[HIGH];
    for (int r = 0; r < R; ++r)
        near[r] = d_a + rows->index[i * rows->k + j + r] * m;
    for (; q + 4 * XG_WIDTH <= m; q += 4 * XG_WIDTH)
        add_columns(R, 4, rows, n_sets, i, j, q, near);
    for (; q + XG_WIDTH <= m; q += XG_WIDTH)
        add_columns(R, 1, rows, n_sets, i, j, q, near);
    for (; q < m; ++q)
        for (const xg_local_pulled *from = rows->set; from < rows->set + n_sets; ++from)
            for (ptrdiff_t row = i; row < rows->n_classes * rows->n; row += rows->n)
                for (int r = 0; r < R; ++r)
                    near[r][q] += from->gamma[row * rows->k + j + r] * from->u[row * m + q]
                                  - from->chi[row * rows->k + j + r] * from->b[row * m + q];
}

void xg_scatter_add(const xg_scatter_rows *rows, double *d_a, double *d_near)
{
    ptrdiff_t n = rows->n, k = rows->k, m = rows->m, planes = 1 + 2 * rows->n_classes;
    for (ptrdiff_t j = 0; j < n * k; ++j)
        for (ptrdiff_t p = 0; p < planes; ++p)
            d_near[rows->index[j] * planes + p] += rows->by_near[j * planes + p];
    for (ptrdiff_t i = 0; i < n; ++i) {
        const int32_t *next = rows->index + SMALLER(i + 1, n - 1) * k;
        ptrdiff_t step;
        for (ptrdiff_t j = 0; j < k; j += step) {
            step = k - j < HIGH ? 1 : HIGH;
            /* Memory for the next row is read ahead, which takes longer than this one's sums. */
            for (ptrdiff_t r = j; r < j + step; ++r)
                for (ptrdiff_t q = 0; q < m; q += LINE / (ptrdiff_t)sizeof(double))
                    __builtin_prefetch(d_a + next[r] * m + q, 1, 2);
            if (step == HIGH)
                add_rows(HIGH, rows, rows->n_sets == 2 && j < rows->n_earlier[i] ? 2 : 1, i, j, d_a);
            else
                add_rows(1, rows, rows->n_sets, i, j, d_a);
        }
    }
}
