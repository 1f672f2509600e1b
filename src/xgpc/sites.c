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
XG_SITE_LOOP(xg_probit_exact_loop, xg_probit_exact)
XG_SITE_LOOP(xg_svm_augmented_loop, xg_svm_augmented)
XG_SITE_LOOP(xg_svm_exact_loop, xg_svm_exact)

XG_CLONES
static void xg_additive_noise_loop(ptrdiff_t n, const double *restrict m, const double *restrict v,
                                   const double *restrict y, double noise, double log_right, double log_wrong,
                                   double *restrict ell, double *restrict lambda, double *restrict r)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        xg_site site = xg_additive_noise(m[i], v[i], y[i], noise, log_right, log_wrong);
        ell[i] = site.ell;
        lambda[i] = site.lambda;
        r[i] = site.r;
    }
}

void xg_sites(int kind, ptrdiff_t n, const double *m, const double *v, const double *y, double log_right,
              double log_wrong, double *ell, double *lambda, double *r)
{
    switch (kind) {
    case XG_LOGIT_POLYA_GAMMA: xg_logit_polya_gamma_loop(n, m, v, y, ell, lambda, r); break;
    case XG_LOGIT_EXACT: xg_logit_exact_loop(n, m, v, y, ell, lambda, r); break;
    case XG_LOGIT_TAYLOR: xg_logit_taylor_loop(n, m, v, y, ell, lambda, r); break;
    case XG_PROBIT_EXACT: xg_probit_exact_loop(n, m, v, y, ell, lambda, r); break;
    case XG_SVM_AUGMENTED: xg_svm_augmented_loop(n, m, v, y, ell, lambda, r); break;
    case XG_SVM_EXACT: xg_svm_exact_loop(n, m, v, y, ell, lambda, r); break;
    default:
        xg_additive_noise_loop(n, m, v, y,
                               kind == XG_STEP_ADDITIVE_NOISE     ? 0.0
                               : kind == XG_PROBIT_ADDITIVE_NOISE ? XG_PROBIT_NOISE
                                                                  : XG_LOGIT_NOISE,
                               log_right, log_wrong, ell, lambda, r);
    }
}

XG_CLONES
void xg_logistic_normal_mean_array(ptrdiff_t n, const double *m, const double *v, double *out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = xg_logistic_normal_mean(m[i], v[i]);
}
