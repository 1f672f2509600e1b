#include "spread.h"

#include "vmath.h"

XG_CLONES
void xg_spread(const xg_spread_rows *rows, ptrdiff_t first, ptrdiff_t last, double *restrict d_a)
{
    ptrdiff_t k = rows->k, m = rows->m;
    for (ptrdiff_t i = 0; i < rows->n; ++i) {
        const double *restrict b = rows->b + i * m, *restrict u = rows->u + i * m;
        for (ptrdiff_t j = i * k; j < (i + 1) * k; ++j) {
            double *restrict near = d_a + rows->index[j] * m, gamma = rows->gamma[j], chi = rows->chi[j];
            for (ptrdiff_t q = first; q < last; ++q)
                near[q] += gamma * u[q] - chi * b[q];
        }
    }
}
