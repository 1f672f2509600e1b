/* Sites: (m, v, y) -> (ell, lambda, r), one static inline function per likelihood and bound.
 *
 * ell is the point's term of the bound, lambda = -2 d ell / d v its precision and
 * r = d ell / d m + lambda m its linear term, so that q's natural parameters are
 * P = I + sum lambda a a^T and h = sum r a. Labels y are -1 or +1. */
#ifndef XGPC_SITES_H
#define XGPC_SITES_H

#include "site_list.h"
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

/* log Phi(y f) with -(log Phi)'' as a mixture of normal distribution functions sum_k p_k Phi((mu_k - x) / s_k): closed
 * form for every m and v. */
XG_INLINE xg_site xg_probit_exact(double m, double v, double y)
{
    xg_site site;
    double mean = y * m;
    double loss = 0.0, linear = 0.0, slope = 0.0;
#define TERM(p, location, squared_scale)                                                                             \
    {                                                                                                                \
        double square = v + squared_scale, scale = sqrt(square), gauss;                                              \
        double gap = location - mean, z = gap / scale;                                                               \
        double tail = xg_normal_tail(fabs(z), &gauss);                                                               \
        double cdf = z < 0.0 ? tail : 1.0 - tail;                                                                    \
        double peak = XG_INV_SQRT_2PI * gauss * scale;                                                               \
        loss += p * ((gap * gap + square) * cdf + gap * peak);                                                       \
        linear += p * (location * cdf + peak);                                                                       \
        slope += p * cdf;                                                                                            \
    }
    XG_PROBIT_MIXTURE(TERM)
#undef TERM
    site.ell = -0.5 * loss;
    site.lambda = slope;
    site.r = y * linear;
    return site;
}

/* Below this a variance counts as this: sites stay finite at the hinge. */
#define XG_SVM_SMALLEST_VARIANCE 1e-24

/* Wenzel et al. 2017, equation (11): a lower bound of the exact site. */
XG_INLINE xg_site xg_svm_augmented(double m, double v, double y)
{
    xg_site site;
    double gap = 1.0 - y * m;
    double root = sqrt(xg_max(gap * gap + v, XG_SVM_SMALLEST_VARIANCE)); /* lambda is infinite at zero */
    site.lambda = 1.0 / root;
    site.ell = -(gap + root);
    site.r = y * (1.0 + site.lambda);
    return site;
}

/* -2 E[max(1 - y f, 0)], the pseudo log likelihood of the support vector machine. */
XG_INLINE xg_site xg_svm_exact(double m, double v, double y)
{
    xg_site site;
    double gap = 1.0 - y * m, gauss;
    double scale = sqrt(xg_max(v, XG_SVM_SMALLEST_VARIANCE)); /* lambda at the hinge grows as 1 / scale */
    double z = gap / scale;
    double tail = xg_normal_tail(fabs(z), &gauss);
    double cdf = z < 0.0 ? tail : 1.0 - tail;
    double pdf = XG_INV_SQRT_2PI * gauss;
    site.ell = -2.0 * (gap * cdf + scale * pdf);
    site.lambda = 2.0 * (pdf / scale);
    site.r = y * (2.0 * cdf) + site.lambda * m;
    return site;
}

/* Liu et al. 2019, equation (8): E[log p(y | g)], g ~ N(m, v + nu), with p the probability 1 - delta of the right label
 * where y g > 0 and delta of the wrong one elsewhere; nu = 0, 1 and 2.897 for step, probit and logit. log_right is
 * log(1 - delta) and log_wrong log(delta). lambda is negative where y m is. */
XG_INLINE xg_site xg_additive_noise(double m, double v, double y, double nu, double log_right, double log_wrong)
{
    xg_site site;
    double square = xg_max(v + nu, 1e-12); /* a step has no derivatives without variance */
    double scale = sqrt(square), gauss;
    double t = y * m / scale;
    double tail = xg_normal_tail(fabs(t), &gauss);
    double below = t < 0.0 ? tail : 1.0 - tail, above = t < 0.0 ? 1.0 - tail : tail; /* Phi(t), Phi(-t) */
    double slope = (log_right - log_wrong) * XG_INV_SQRT_2PI * gauss;
    site.ell = log_right * below + log_wrong * above;
    site.lambda = slope * t / square;
    site.r = y * (slope * (1.0 + t * t) / scale);
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

/* Sites of n points, as functions of the latent value's distance from the prior's mean: m is the mean of f - prior_mean,
 * and r = d ell / d m + lambda m. log_right and log_wrong, log(1 - delta) and log(delta), are read by additive noise
 * alone. Returns 0, or -1 and writes nothing if the kind is not one of one latent function. */
int xg_sites(int kind, ptrdiff_t n, const double *m, const double *v, const double *y, double prior_mean,
             double log_right, double log_wrong, double *ell, double *lambda, double *r);
void xg_logistic_normal_mean_array(ptrdiff_t n, const double *m, const double *v, double *out);

/* log E[sigma(-f)] and log E[sigma(f)], f ~ N(m, v), into out (n, 2), by the mixture and, for |m| > v, the identity that
 * likelihoods/binary.py has. Returns the number of points whose less probable side, below ``least``, the mixture alone
 * is too thin for; thin (n,) gets their numbers. */
ptrdiff_t xg_logistic_normal_logs(ptrdiff_t n, const double *m, const double *v, double least, ptrdiff_t *thin,
                                  double *out);

#endif
