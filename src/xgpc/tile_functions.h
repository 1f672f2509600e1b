/* The functions of tiles.h for one type; tiles.c includes this file for each type, with REAL and NAME defined. */

XG_CLONES
void NAME(xg_squared_norms)(ptrdiff_t n, ptrdiff_t m, const REAL *restrict a, double *restrict out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double value = a[k * n + i];
            out[i] += value * value;
        }
}

XG_CLONES
void NAME(xg_norms_and_means)(ptrdiff_t n, ptrdiff_t m, const REAL *restrict a, const double *restrict w,
                              REAL *restrict copy, double *restrict norms, double *restrict mean)
{
    memset(norms, 0, (size_t)n * sizeof *norms);
    memset(mean, 0, (size_t)n * sizeof *mean);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double value = a[k * n + i];
            copy[k * n + i] = a[k * n + i];
            norms[i] += value * value;
            mean[i] += value * w[k];
        }
}

XG_CLONES
void NAME(xg_scale_and_sum)(ptrdiff_t n, ptrdiff_t m, const REAL *restrict a, const double *restrict s,
                            const double *restrict r, double *restrict root, REAL *restrict out,
                            double *restrict sum)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        root[i] = sqrt(xg_max(s[i], 0.0));
    for (ptrdiff_t k = 0; k < m; ++k) {
        const REAL *ak = a + k * n;
        REAL *ok = out + k * n;
        double lane[XG_LANES] = {0.0}, total = 0.0;
        ptrdiff_t i = 0;
        for (; i + XG_LANES <= n; i += XG_LANES)
            for (int l = 0; l < XG_LANES; ++l) {
                ok[i + l] = (REAL)(root[i + l] * ak[i + l]);
                lane[l] += r[i + l] * ak[i + l];
            }
        for (; i < n; ++i) {
            ok[i] = (REAL)(root[i] * ak[i]);
            total += r[i] * ak[i];
        }
        for (int l = 0; l < XG_LANES; ++l)
            total += lane[l];
        sum[k] += total;
    }
}

ptrdiff_t NAME(xg_negative_rows)(ptrdiff_t n, ptrdiff_t m, const REAL *restrict a, const double *restrict s,
                                 ptrdiff_t *restrict index, REAL *restrict out)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        index[count] = i;
        count += s[i] < 0.0;
    }
    for (ptrdiff_t k = 0; count && k < m; ++k)
        for (ptrdiff_t j = 0; j < count; ++j)
            out[k * count + j] = (REAL)(sqrt(-s[index[j]]) * a[k * n + index[j]]);
    return count;
}
