#include "lanes.inc.h"
#include "local.h"

/* Q vectors from column q on of R rows, neighbours j, ... of row i; R and Q are constants, so that all sums stay in
 * registers. */
XG_INLINE void add_columns(const int R, const int Q, const xg_scatter_rows *rows, ptrdiff_t i, ptrdiff_t j, ptrdiff_t q,
                           double *const *near)
{
    lanes s[2][4];
    for (int r = 0; r < R; ++r)
        for (int x = 0; x < Q; ++x)
            s[r][x] = LANES(near[r] + q)[x];
    for (ptrdiff_t set = 0; set < rows->n_sets; ++set)
        for (ptrdiff_t c = 0; c < rows->n_classes; ++c) {
            const xg_local_pulled *from = rows->set + set;
            ptrdiff_t row = c * rows->n + i;
            const double *gamma = from->gamma + row * rows->k + j, *chi = from->chi + row * rows->k + j;
            const lanes *b = LANES(from->b + row * rows->m + q), *u = LANES(from->u + row * rows->m + q);
            for (int x = 0; x < Q; ++x)
                for (int r = 0; r < R; ++r)
                    s[r][x] += gamma[r] * u[x] - chi[r] * b[x];
        }
    for (int r = 0; r < R; ++r)
        for (int x = 0; x < Q; ++x)
            LANES(near[r] + q)[x] = s[r][x];
}

/* The same for all columns */
XG_INLINE void add_rows(const int R, const xg_scatter_rows *rows, ptrdiff_t i, ptrdiff_t j, double *const *near)
{
    ptrdiff_t q = 0;
    for (; q + 4 * XG_WIDTH <= rows->m; q += 4 * XG_WIDTH)
        add_columns(R, 4, rows, i, j, q, near);
    for (; q + XG_WIDTH <= rows->m; q += XG_WIDTH)
        add_columns(R, 1, rows, i, j, q, near);
    for (; q < rows->m; ++q)
        for (ptrdiff_t set = 0; set < rows->n_sets; ++set)
            for (ptrdiff_t row = i; row < rows->n_classes * rows->n; row += rows->n) {
                const xg_local_pulled *from = rows->set + set;
                for (int r = 0; r < R; ++r)
                    near[r][q] += from->gamma[row * rows->k + j + r] * from->u[row * rows->m + q]
                                  - from->chi[row * rows->k + j + r] * from->b[row * rows->m + q];
            }
}

void xg_scatter_add(const xg_scatter_rows *rows, ptrdiff_t N, double *d_a, double *d_diagonal, double *d_precision,
                    double *d_linear)
{
    ptrdiff_t n = rows->n, k = rows->k, m = rows->m;
    for (ptrdiff_t set = 0; set < rows->n_sets; ++set)
        for (ptrdiff_t c = 0; c < rows->n_classes; ++c)
            for (ptrdiff_t j = 0, at = c * n * k; j < n * k; ++j, ++at) {
                const xg_local_pulled *from = rows->set + set;
                ptrdiff_t near = rows->index[j];
                d_diagonal[near] -= from->gamma[at] * from->chi[at];
                d_precision[c * N + near] += from->d_precision[at];
                d_linear[c * N + near] += from->d_linear[at];
            }
    for (ptrdiff_t i = 0; i < n; ++i) {
        const int32_t *index = rows->index + i * k, *next = i + 1 < n ? index + k : index;
        for (ptrdiff_t j = 0; j < k; j += 2) {
            double *near[2] = {d_a + index[j] * m, d_a + index[SMALLER(j + 1, k - 1)] * m};
            /* Memory for the next row is read ahead, which takes longer than this one's sums. */
            for (ptrdiff_t r = j; r < SMALLER(j + 2, k); ++r)
                for (ptrdiff_t q = 0; q < m; q += LINE / (ptrdiff_t)sizeof(double))
                    __builtin_prefetch(d_a + next[r] * m + q, 1, 2);
            if (j + 1 < k)
                add_rows(2, rows, i, j, near);
            else
                add_rows(1, rows, i, j, near);
        }
    }
}
