#include "residual.h"

#include "vmath.h"

XG_CLONES
void xg_residual_rows(ptrdiff_t n, ptrdiff_t m, ptrdiff_t k, const double *restrict a, const double *restrict A,
                      const int64_t *restrict index, const double *restrict gamma, double *restrict b)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double *out = b + i * m;
        for (ptrdiff_t q = 0; q < m; ++q)
            out[q] = a[i * m + q];
        for (ptrdiff_t j = 0; j < k; ++j) {
            const double *near = A + index[i * k + j] * m, weight = gamma[i * k + j];
            for (ptrdiff_t q = 0; q < m; ++q)
                out[q] -= weight * near[q];
        }
    }
}
