/* Sites: (m, v, y) -> (ell, lambda, r), one static inline function per likelihood and bound.
 *
 * ell is the point's term of the bound, lambda = -2 d ell / d v its precision and
 * r = d ell / d m + lambda m its linear term, so that q's natural parameters are
 * P = I + sum lambda a a^T and h = sum r a. Labels y are -1 or +1. */
#ifndef XGPC_SITES_H
#define XGPC_SITES_H

#include "vmath.h"

typedef struct {
    double ell, lambda, r;
} xg_site;

/* Wenzel et al. 2018, equations (10) to (12), with the constants: a lower bound of the exact site. */
XG_INLINE xg_site xg_logit_polya_gamma(double m, double v, double y)
{
    xg_site site;
    double c = sqrt(m * m + v);
    double e = xg_exp(-c);
    site.ell = 0.5 * (y * m - c) - xg_log1p_unit(e);
    site.lambda = xg_pg_mean(c, e);
    site.r = 0.5 * y;
    return site;
}

/* Expectations of log sigma(y f) and its derivatives with sigma as a normal scale mixture
 * (Monahan & Stefanski 1992): closed form for every m and v. */
XG_INLINE xg_site xg_logit_exact(double m, double v, double y)
{
    xg_site site;
    double mean = y * m;
    double softplus = 0.0, wrong = 0.0, slope = 0.0;
#define TERM(p, inverse_squared_scale)                                                                               \
    {                                                                                                                \
        double scale = sqrt(v + inverse_squared_scale), gauss;                                                       \
        double z = mean / scale;                                                                                     \
        double tail = xg_normal_tail(fabs(z), &gauss);                                                               \
        double below = z < 0.0 ? 1.0 - tail : tail; /* Phi(-z) */                                                    \
        double pdf = XG_INV_SQRT_2PI * gauss;                                                                        \
        softplus += p * (scale * pdf - mean * below);                                                                \
        wrong += p * below;                                                                                          \
        slope += p * (pdf / scale);                                                                                  \
    }
    XG_LOGISTIC_MIXTURE(TERM)
#undef TERM
    site.ell = -softplus;
    site.lambda = slope;
    site.r = y * wrong + slope * m;
    return site;
}

/* Izmailov & Kropotov 2016, section 4.2: log sigma(y f) to second order about xi = m, their equation (16). lambda and r
 * are those of the expansion with xi fixed, as that method has them; ell is not a bound. */
XG_INLINE xg_site xg_logit_taylor(double m, double v, double y)
{
    xg_site site;
    double e = xg_exp(-fabs(m));
    double small = e / (1.0 + e), wrong = y * m < 0.0 ? 1.0 - small : small; /* sigma(-|m|), sigma(-y m) */
    site.lambda = small * (1.0 - small);
    site.ell = xg_min(y * m, 0.0) - xg_log1p_unit(e) - 0.5 * site.lambda * v;
    site.r = y * wrong + site.lambda * m;
    return site;
}

/* E[sigma(f)], f ~ N(m, v). */
XG_INLINE double xg_logistic_normal_mean(double m, double v)
{
    double value = 0.0;
#define TERM(p, inverse_squared_scale)                                                                               \
    {                                                                                                                \
        double z = m / sqrt(v + inverse_squared_scale), gauss;                                                       \
        double tail = xg_normal_tail(fabs(z), &gauss);                                                               \
        value += p * (z < 0.0 ? tail : 1.0 - tail);                                                                  \
    }
    XG_LOGISTIC_MIXTURE(TERM)
#undef TERM
    return value;
}

enum { XG_LOGIT_POLYA_GAMMA = 0, XG_LOGIT_EXACT = 1, XG_LOGIT_TAYLOR = 2 };

/* Sites of n points; weight may be NULL, else it multiplies ell, lambda and r. */
void xg_sites(int kind, ptrdiff_t n, const double *m, const double *v, const double *y, const double *weight,
              double *ell, double *lambda, double *r);
void xg_logistic_normal_mean_array(ptrdiff_t n, const double *m, const double *v, double *out);

#endif
