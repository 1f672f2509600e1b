/* Sites: (m, v, y) -> (ell, lambda, r), one static inline function per likelihood and bound, and the list of all sites.
 *
 * ell is the row's term of the bound, lambda = -2 d ell / d v its precision, and r = d ell / d m + lambda m its linear
 * term. The natural parameters of q are then P = I + sum lambda a a^T and h = sum r a. Labels y are -1 or +1. */
#pragma once

#include "softmax.h"

/* Variances of the normal noise that represents each likelihood; for the logistic one it has the least largest error
 * (Liu et al. 2019, section II-A). */
#define XG_STEP_NOISE 0.0
#define XG_PROBIT_NOISE 1.0
#define XG_LOGIT_NOISE (1.702 * 1.702)

/* The lists of all sites define their numbers, their dispatch in sites.c and multiclass.c, and the names in Python.
 * SITE(number, likelihood, bound, site) is a line of a list: the first is of sites with one latent function, by moments
 * m and v and the label y; the second of sites with a latent function per class, by chunks of points. */
#define XG_POINT_LIST(SITE)                                                                                          \
    SITE(XG_LOGIT_POLYA_GAMMA, "logit", "polya-gamma", xg_logit_polya_gamma(m, v, y))                                \
    SITE(XG_LOGIT_EXACT, "logit", "exact", xg_logit_exact(m, v, y))                                                  \
    SITE(XG_LOGIT_TAYLOR, "logit", "taylor", xg_logit_taylor(m, v, y))                                               \
    SITE(XG_PROBIT_EXACT, "probit", "exact", xg_probit_exact(m, v, y))                                               \
    SITE(XG_SVM_AUGMENTED, "svm", "augmented", xg_svm_augmented(m, v, y))                                            \
    SITE(XG_SVM_EXACT, "svm", "exact", xg_svm_exact(m, v, y))                                                        \
    SITE(XG_STEP_ADDITIVE_NOISE, "step", "additive-noise", xg_additive_noise(m, v, y, XG_STEP_NOISE, logs))          \
    SITE(XG_PROBIT_ADDITIVE_NOISE, "probit", "additive-noise", xg_additive_noise(m, v, y, XG_PROBIT_NOISE, logs))    \
    SITE(XG_LOGIT_ADDITIVE_NOISE, "logit", "additive-noise", xg_additive_noise(m, v, y, XG_LOGIT_NOISE, logs))       \
    SITE(XG_PSYCHOMETRIC, "psychometric", "exact", xg_logit_rates(m, v, y, y > 0.0 ? rates[1] : rates[0]))           \
    SITE(XG_ORDINAL_LOGIT, "ordinal-logit", "exact", xg_ordinal(xg_ordinal_logit, m, v, y))                          \
    SITE(XG_ORDINAL_PROBIT, "ordinal-probit", "exact", xg_ordinal(xg_ordinal_probit, m, v, y))
#define XG_CLASSES_LIST(SITE)                                                                                        \
    SITE(XG_SOFTMAX_EXACT, "softmax", "exact", xg_softmax_exact_chunk(&at, &likelihood->table, scratch, &out))       \
    SITE(XG_SOFTMAX_ADDITIVE_NOISE, "softmax", "additive-noise", xg_softmax_additive_noise_chunk(&at, scratch, &out))\
    SITE(XG_MULTINOMIAL_STEP, "multinomial-step", "additive-noise", xg_multinomial(XG_STEP_NOISE))                   \
    SITE(XG_MULTINOMIAL_PROBIT, "multinomial-probit", "additive-noise", xg_multinomial(XG_PROBIT_NOISE))             \
    SITE(XG_MULTINOMIAL_LOGIT, "multinomial-logit", "additive-noise", xg_multinomial(XG_LOGIT_NOISE))                \
    SITE(XG_LOGISTIC_SOFTMAX, "logistic-softmax", "polya-gamma", xg_logistic_softmax_chunk(&at, scratch, &out))

#define XG_SITE_NUMBER(number, likelihood, bound, site) number,
enum { XG_POINT_LIST(XG_SITE_NUMBER) XG_CLASSES_LIST(XG_SITE_NUMBER) XG_SITE_COUNT };
#undef XG_SITE_NUMBER

/* Names of site 0 <= i < XG_SITE_COUNT, and whether it has one latent function per class. */
const char *xg_site_likelihood(int i);
const char *xg_site_bound(int i);
int xg_site_is_multi_class(int i);

typedef struct {
    double ell, lambda, r;
} xg_site;

/* Wenzel et al. 2018, equations (10) to (12), with the constants: a lower bound of the exact site. */
XG_INLINE xg_site xg_logit_polya_gamma(double m, double v, double y)
{
    double c = sqrt(m * m + v), e = xg_exp(-c);
    return (xg_site){0.5 * (y * m - c) - xg_log1p_unit(e), xg_pg_mean(c, e), 0.5 * y};
}

/* Expectations of log sigma(y f) and its derivatives with sigma as a normal scale mixture
 * (Monahan & Stefanski 1992): closed form for every m and v. */
XG_INLINE xg_site xg_logit_exact(double m, double v, double y)
{
    double mean = y * m, softplus = 0.0, wrong = 0.0, slope = 0.0;
#define TERM(p, inverse_squared_scale)                                                                               \
    {                                                                                                                \
        double scale = sqrt(v + inverse_squared_scale), z = mean / scale, gauss;                                     \
        double tail = xg_normal_tail(fabs(z), &gauss), pdf = XG_INV_SQRT_2PI * gauss;                                \
        double below = z < 0.0 ? 1.0 - tail : tail; /* Phi(-z) */                                                    \
        softplus += p * (scale * pdf - mean * below);                                                                \
        wrong += p * below;                                                                                          \
        slope += p * (pdf / scale);                                                                                  \
    }
    XG_LOGISTIC_MIXTURE(TERM)
#undef TERM
    return (xg_site){-softplus, slope, y * wrong + slope * m};
}

/* Izmailov & Kropotov 2016, section 4.2: log sigma(y f) to second order about xi = m, their equation (16). As in
 * that method, lambda and r are those of the expansion with xi fixed; ell is not a bound. */
XG_INLINE xg_site xg_logit_taylor(double m, double v, double y)
{
    double e = xg_exp(-fabs(m)), small = e / (1.0 + e), lambda = small * (1.0 - small);
    double wrong = y * m < 0.0 ? 1.0 - small : small; /* sigma(-y m); small is sigma(-|m|) */
    return (xg_site){xg_min(y * m, 0.0) - xg_log1p_unit(e) - 0.5 * lambda * v, lambda, y * wrong + lambda * m};
}

/* log Phi(y f) with -(log Phi)'' as a mixture of normal distribution functions sum_k p_k Phi((mu_k - x) / s_k): closed
 * form for every m and v. */
XG_INLINE xg_site xg_probit_exact(double m, double v, double y)
{
    double mean = y * m, loss = 0.0, linear = 0.0, slope = 0.0;
#define TERM(p, location, squared_scale)                                                                             \
    {                                                                                                                \
        double square = v + squared_scale, scale = sqrt(square), gap = location - mean, pdf;                         \
        double cdf = xg_normal_below(gap / scale, &pdf), peak = pdf * scale;                                         \
        loss += p * ((gap * gap + square) * cdf + gap * peak);                                                       \
        linear += p * (location * cdf + peak);                                                                       \
        slope += p * cdf;                                                                                            \
    }
    XG_PROBIT_MIXTURE(TERM)
#undef TERM
    return (xg_site){-0.5 * loss, slope, y * linear};
}

/* Smaller variances count as this one, so that sites stay finite at the hinge. */
#define XG_SVM_SMALLEST_VARIANCE 1e-24

/* Wenzel et al. 2017, equation (11): a lower bound of the exact site. */
XG_INLINE xg_site xg_svm_augmented(double m, double v, double y)
{
    double gap = 1.0 - y * m, root = sqrt(xg_max(gap * gap + v, XG_SVM_SMALLEST_VARIANCE)), lambda = 1.0 / root;
    return (xg_site){-(gap + root), lambda, y * (1.0 + lambda)};
}

/* -2 E[max(1 - y f, 0)], the pseudo log likelihood of the support vector machine. */
XG_INLINE xg_site xg_svm_exact(double m, double v, double y)
{
    double gap = 1.0 - y * m, pdf;
    double scale = sqrt(xg_max(v, XG_SVM_SMALLEST_VARIANCE)); /* lambda at the hinge grows as 1 / scale */
    double cdf = xg_normal_below(gap / scale, &pdf), lambda = 2.0 * (pdf / scale);
    return (xg_site){-2.0 * (gap * cdf + scale * pdf), lambda, y * (2.0 * cdf) + lambda * m};
}

/* Liu et al. 2019, equation (8): E[log p(y | g)], g ~ N(m, v + nu). p is 1 - delta, the probability of the right
 * label, if y g > 0, and delta otherwise. nu = 0, 1 and 2.897 for step, probit and logit; logs are those of delta and
 * 1 - delta. lambda is negative if y m is. */
XG_INLINE xg_site xg_additive_noise(double m, double v, double y, double nu, const double *logs)
{
    double square = xg_max(v + nu, 1e-12); /* a step has no derivatives without variance */
    double scale = sqrt(square), t = y * m / scale, gauss, tail = xg_normal_tail(fabs(t), &gauss);
    double below = t < 0.0 ? tail : 1.0 - tail, above = t < 0.0 ? 1.0 - tail : tail; /* Phi(t), Phi(-t) */
    double slope = (logs[1] - logs[0]) * XG_INV_SQRT_2PI * gauss;
    return (xg_site){logs[1] * below + logs[0] * above, slope * t / square, y * (slope * (1.0 + t * t) / scale)};
}

/* A label of two classes with guess and lapse rates: log of the largest p(y | f), and the shift c of xg_logit_rates. */
typedef struct {
    double log_most, shift;
} xg_rates;

/* p(y | f) = a + (1 - a - b) sigma(x), x = y f, where a and b are the guess and the lapse rate for y = +1, and the lapse
 * and the guess rate for y = -1. With c = log((1 - b) / a), infinite for a = 0,
 *
 *     log p(y | f) = log(1 - b) + log sigma(x) - log sigma(x + c),
 *
 * so that expectations are those of xg_logit_exact. lambda may be negative. */
XG_INLINE xg_site xg_logit_rates(double m, double v, double y, xg_rates rates)
{
    xg_site near = xg_logit_exact(y * m, v, 1.0), far = xg_logit_exact(y * m + rates.shift, v, 1.0);
    return (xg_site){rates.log_most + near.ell - far.ell, near.lambda - far.lambda,
                     y * (near.r - far.r + rates.shift * far.lambda)};
}

/* E[sigma(f)], f ~ N(m, v). */
XG_INLINE double xg_logistic_normal_mean(double m, double v)
{
    double value = 0.0;
#define TERM(p, inverse_squared_scale)                                                                               \
    {                                                                                                                \
        double z = m / sqrt(v + inverse_squared_scale), gauss, tail = xg_normal_tail(fabs(z), &gauss);               \
        value += p * (z < 0.0 ? tail : 1.0 - tail);                                                                  \
    }
    XG_LOGISTIC_MIXTURE(TERM)
#undef TERM
    return value;
}

/* A likelihood with a bound: its number in the list, the prior mean of each latent function, its parameters, and the
 * table of exact softmax, without rows for all others. Parameters are the probability of a wrong label, in (0, 1), under
 * additive noise; guess and lapse rate, with a sum below 1, or one number for both; or the increasing cut points of
 * ordered classes. */
typedef struct {
    int kind;
    const double *prior_mean;
    ptrdiff_t n_parameters;
    const double *parameters;
    xg_hazard_table table;
} xg_likelihood;

/* Sites of points, from the moments of the distances f - prior_mean of their latent functions: r = d ell / d m + lambda m.
 * Those of several classes need scratch of xg_multiclass_scratch(classes) doubles. */
void xg_sites(const xg_likelihood *likelihood, const xg_moments *at, double *scratch, const xg_site_arrays *out);
/* Add each point's derivatives of ell by the parameters, times its weight (1 if NULL), to by_parameter; those by a rate
 * of 0 count as 0. Returns -1 if the kind has neither cut points nor rates. Labels are -1, 1, 3, ... for the classes in
 * their order. */
int xg_parameter_gradient(const xg_likelihood *likelihood, const xg_moments *at, const double *weight,
                          double *by_parameter);
void xg_logistic_normal_mean_array(ptrdiff_t n, const double *m, const double *v, double *out);

/* log E[sigma(-f)] and log E[sigma(f)], f ~ N(m, v), into out (n, 2), from the mixture, and for |m| > v from the
 * identity in likelihoods/binary.py. Returns the number of points at which the probability of the less probable
 * class is below ``least``, so that the mixture is not accurate enough; thin (n,) receives their indices. */
ptrdiff_t xg_logistic_normal_logs(ptrdiff_t n, const double *m, const double *v, double least, ptrdiff_t *thin,
                                  double *out);

/* Sites of several classes: as above, lambda_c = -2 d ell / d v_c and r_c = d ell / d m_c + lambda_c m_c.
 *
 * XG_SOFTMAX_EXACT           E[log softmax_y(f)]
 * XG_SOFTMAX_ADDITIVE_NOISE  a lower bound of it: Liu et al. 2019, equation (25), "GPCsm"
 * XG_MULTINOMIAL_*           Liu et al. 2019, equation (18), with noise of variance 0, 1 and 1.702^2
 * XG_LOGISTIC_SOFTMAX        the bound of the augmentation of Galy-Fajou et al. 2019
 *
 * Precisions of XG_MULTINOMIAL_* can be negative. */

ptrdiff_t xg_multiclass_scratch(ptrdiff_t classes);
void xg_multiclass_sites(const xg_likelihood *likelihood, const xg_moments *points, double *scratch,
                         const xg_site_arrays *sites);
