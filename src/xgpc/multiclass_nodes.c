#include "chunks.h"
#include "multiclass.h"

/* Added to the variances of XG_SOFTMAX_EXACT: derivatives by the standard deviation are divided by it. Costs ell at
 * most XG_SOFTMAX_FLOOR / 2, far below what the nodes cost, and lambda about 1e-16 / sqrt(XG_SOFTMAX_FLOOR). */
#define XG_SOFTMAX_FLOOR 1e-8

/* Softmax: with f_cs = m_c + sqrt(v_c) eps_sc, ell is the mean over s of f_y - logsumexp_c f_c. Nodes come in pairs of
 * opposite sign, so that d ell / d sqrt(v_c) is a sum of differences of probabilities within pairs. */

/* top = max_c (d + sd eps), and the same for -eps. */
XG_INLINE void xg_softmax_tops(ptrdiff_t n, double eps, const double *restrict d, const double *restrict sd,
                               double *restrict top, double *restrict mirrored)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double step = sd[i] * eps;
        top[i] = xg_max(top[i], d[i] + step);
        mirrored[i] = xg_max(mirrored[i], d[i] - step);
    }
}

XG_INLINE void xg_softmax_exponentials(ptrdiff_t n, double eps, const double *restrict d, const double *restrict sd,
                                       const double *restrict top, const double *restrict mirrored,
                                       double *restrict plus, double *restrict minus, double *restrict sum_plus,
                                       double *restrict sum_minus)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double step = sd[i] * eps;
        double a = xg_exp((d[i] + step) - top[i]), b = xg_exp((d[i] - step) - mirrored[i]);
        plus[i] = a;
        minus[i] = b;
        sum_plus[i] += a;
        sum_minus[i] += b;
    }
}

XG_INLINE void xg_softmax_gradients(ptrdiff_t n, double eps, const double *restrict plus, const double *restrict minus,
                                    const double *restrict inverse_plus, const double *restrict inverse_minus,
                                    double *restrict mean, double *restrict slope)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double a = plus[i] * inverse_plus[i], b = minus[i] * inverse_minus[i];
        mean[i] += a + b;
        slope[i] += eps * (a - b);
    }
}

XG_CLONES void xg_softmax_exact_chunk(XG_CHUNK_ARGUMENTS, ptrdiff_t n_nodes, const double *nodes)
{
    ptrdiff_t block = classes * pitch;
    double *d = scratch, *sd = d + block, *plus = sd + block, *minus = plus + block, *mean = minus + block,
           *slope = mean + block, *top = slope + block, *mirrored = top + pitch, *sum_plus = mirrored + pitch,
           *sum_minus = sum_plus + pitch, *loss = sum_minus + pitch, *m_y = loss + pitch;
    double share = 0.5 / (double)n_nodes;

    xg_of_label(classes, n, stride, m, y, m_y);
    for (ptrdiff_t i = 0; i < n; ++i)
        loss[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            d[c * pitch + i] = m[c * stride + i] - m_y[i];
            sd[c * pitch + i] = sqrt(v[c * stride + i] + XG_SOFTMAX_FLOOR);
            mean[c * pitch + i] = slope[c * pitch + i] = 0.0;
        }
    for (ptrdiff_t s = 0; s < n_nodes; ++s) {
        const double *eps = nodes + s * classes;
        for (ptrdiff_t i = 0; i < n; ++i) {
            top[i] = mirrored[i] = -HUGE_VAL;
            sum_plus[i] = sum_minus[i] = 0.0;
        }
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_softmax_tops(n, eps[c], d + c * pitch, sd + c * pitch, top, mirrored);
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_softmax_exponentials(n, eps[c], d + c * pitch, sd + c * pitch, top, mirrored, plus + c * pitch,
                                    minus + c * pitch, sum_plus, sum_minus);
        for (ptrdiff_t i = 0; i < n; ++i) {
            double product = sum_plus[i] * sum_minus[i], inverse = 1.0 / product, other = sum_minus[i];
            loss[i] += (top[i] + mirrored[i]) + xg_log1p(product - 1.0);
            sum_minus[i] = sum_plus[i] * inverse;
            sum_plus[i] = other * inverse;
        }
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_softmax_gradients(n, eps[c], plus + c * pitch, minus + c * pitch, sum_plus, sum_minus,
                                 mean + c * pitch, slope + c * pitch);
    }
    for (ptrdiff_t i = 0; i < n; ++i)
        ell[i] = -share * loss[i];
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double label = y[i] == (double)c ? 1.0 : 0.0;
            double precision = share * slope[c * pitch + i] / sd[c * pitch + i];
            lambda[c * stride + i] = precision;
            r[c * stride + i] = (label - share * mean[c * pitch + i]) + precision * m[c * stride + i];
        }
}

/* mean += p (1 - p) for both signs: minus the second derivatives of ell by the means. */
XG_INLINE void xg_softmax_spreads(ptrdiff_t n, const double *restrict plus, const double *restrict minus,
                                  const double *restrict inverse_plus, const double *restrict inverse_minus,
                                  double *restrict mean)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double a = plus[i] * inverse_plus[i], b = minus[i] * inverse_minus[i];
        mean[i] += a * (1.0 - a) + b * (1.0 - b);
    }
}

XG_CLONES static void xg_softmax_spread_chunk(ptrdiff_t classes, ptrdiff_t n, ptrdiff_t stride, ptrdiff_t pitch,
                                              const double *restrict m, const double *restrict v, ptrdiff_t n_nodes,
                                              const double *nodes, double *restrict scratch, double *restrict spread)
{
    ptrdiff_t block = classes * pitch;
    double *d = scratch, *sd = d + block, *plus = sd + block, *minus = plus + block, *mean = minus + block,
           *top = mean + block, *mirrored = top + pitch, *sum_plus = mirrored + pitch, *sum_minus = sum_plus + pitch;
    double share = 0.5 / (double)n_nodes;

    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            d[c * pitch + i] = m[c * stride + i];
            sd[c * pitch + i] = sqrt(v[c * stride + i] + XG_SOFTMAX_FLOOR);
            mean[c * pitch + i] = 0.0;
        }
    for (ptrdiff_t s = 0; s < n_nodes; ++s) {
        const double *eps = nodes + s * classes;
        for (ptrdiff_t i = 0; i < n; ++i) {
            top[i] = mirrored[i] = -HUGE_VAL;
            sum_plus[i] = sum_minus[i] = 0.0;
        }
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_softmax_tops(n, eps[c], d + c * pitch, sd + c * pitch, top, mirrored);
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_softmax_exponentials(n, eps[c], d + c * pitch, sd + c * pitch, top, mirrored, plus + c * pitch,
                                    minus + c * pitch, sum_plus, sum_minus);
        for (ptrdiff_t i = 0; i < n; ++i) {
            sum_plus[i] = 1.0 / sum_plus[i];
            sum_minus[i] = 1.0 / sum_minus[i];
        }
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_softmax_spreads(n, plus + c * pitch, minus + c * pitch, sum_plus, sum_minus, mean + c * pitch);
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i)
            spread[c * stride + i] = share * mean[c * pitch + i];
}

void xg_softmax_spread(ptrdiff_t classes, ptrdiff_t n, const double *m, const double *v, ptrdiff_t n_nodes,
                       const double *nodes, double *scratch, double *spread)
{
    ptrdiff_t pitch = xg_chunk_size(classes);
    for (ptrdiff_t start = 0; start < n; start += pitch)
        xg_softmax_spread_chunk(classes, n - start < pitch ? n - start : pitch, n, pitch, m + start, v + start, n_nodes,
                                nodes, scratch, spread + start);
}
