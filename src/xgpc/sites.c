#include "sites.h"

#define XG_SITE_LOOP(name, function)                                                                                 \
    void name(ptrdiff_t, const double *, const double *, const double *, double *, double *, double *);              \
    XG_CLONES void name(ptrdiff_t n, const double *restrict m, const double *restrict v, const double *restrict y,   \
                        double *restrict ell, double *restrict lambda, double *restrict r)                           \
    {                                                                                                                \
        for (ptrdiff_t i = 0; i < n; ++i) {                                                                          \
            xg_site site = function(m[i], v[i], y[i]);                                                               \
            ell[i] = site.ell;                                                                                       \
            lambda[i] = site.lambda;                                                                                 \
            r[i] = site.r;                                                                                           \
        }                                                                                                            \
    }

XG_SITE_LOOP(xg_logit_polya_gamma_loop, xg_logit_polya_gamma)
XG_SITE_LOOP(xg_logit_exact_loop, xg_logit_exact)
XG_SITE_LOOP(xg_logit_taylor_loop, xg_logit_taylor)

void xg_sites(int kind, ptrdiff_t n, const double *m, const double *v, const double *y, const double *weight,
              double *ell, double *lambda, double *r)
{
    if (kind == XG_LOGIT_POLYA_GAMMA)
        xg_logit_polya_gamma_loop(n, m, v, y, ell, lambda, r);
    else if (kind == XG_LOGIT_EXACT)
        xg_logit_exact_loop(n, m, v, y, ell, lambda, r);
    else
        xg_logit_taylor_loop(n, m, v, y, ell, lambda, r);
    if (weight)
        for (ptrdiff_t i = 0; i < n; ++i) {
            ell[i] *= weight[i];
            lambda[i] *= weight[i];
            r[i] *= weight[i];
        }
}

XG_CLONES
void xg_logistic_normal_mean_array(ptrdiff_t n, const double *m, const double *v, double *out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = xg_logistic_normal_mean(m[i], v[i]);
}
