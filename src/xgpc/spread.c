#include "spread.h"

#include "vmath.h"

#define LINE_DOUBLES 8 /* of a cache line */

XG_CLONES
void xg_spread(const xg_spread_rows *rows, const xg_spread_sums *sums)
{
    ptrdiff_t n = rows->n, k = rows->k, m = rows->m;
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = i * k; j < (i + 1) * k; ++j) {
            ptrdiff_t to = rows->index[j];
            double *restrict near = sums->a + to * m;
            /* Memory for the next row, which takes longer than this one's sums. */
            const double *next = sums->a + rows->index[i + 1 < n ? j + k : j] * m;
            for (ptrdiff_t q = 0; q < m; q += LINE_DOUBLES)
                __builtin_prefetch(next + q, 1, 2);
            for (ptrdiff_t c = 0; c < rows->n_classes; ++c) {
                const double *restrict b = rows->b + (c * n + i) * m, *restrict u = rows->u + (c * n + i) * m;
                ptrdiff_t at = c * n * k + j;
                double gamma = rows->gamma[at], chi = rows->chi[at];
                sums->diagonal[to] -= gamma * chi;
                sums->precision[c * sums->n + to] += rows->d_precision[at];
                sums->linear[c * sums->n + to] += rows->d_linear[at];
                for (ptrdiff_t q = 0; q < m; ++q)
                    near[q] += gamma * u[q] - chi * b[q];
            }
        }
}
