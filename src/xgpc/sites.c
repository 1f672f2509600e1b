#include "sites.h"

#define XG_SITE_LOOP(name, function)                                                                                 \
    static void name(double prior_mean, const xg_moments *restrict at, const xg_site_arrays *restrict out)           \
    {                                                                                                                \
        const double *restrict m = at->m, *restrict v = at->v, *restrict y = at->y;                                  \
        double *restrict ell = out->ell, *restrict lambda = out->lambda, *restrict r = out->r;                       \
        for (ptrdiff_t i = 0, n = at->n; i < n; ++i) {                                                               \
            xg_site site = function(m[i] + prior_mean, v[i], y[i]);                                                  \
            ell[i] = site.ell;                                                                                       \
            lambda[i] = site.lambda;                                                                                 \
            r[i] = site.r - site.lambda * prior_mean;                                                                \
        }                                                                                                            \
    }

#define XG_LOOP(number, likelihood, bound, form, term) XG_LOOP_##form(term)
#define XG_LOOP_POINT(term) XG_SITE_LOOP(term##_loop, term)
#define XG_LOOP_POINT_NOISE(term)
#define XG_LOOP_POINT_RATES(term)
#define XG_LOOP_ORDINAL(term)
#define XG_LOOP_CLASSES(term)
#define XG_LOOP_CLASSES_TABLE(term)
#define XG_LOOP_CLASSES_NOISE(term)
XG_SITE_LIST(XG_LOOP)

static void xg_additive_noise_loop(double noise, const xg_likelihood *likelihood, const xg_moments *restrict at,
                                   const xg_site_arrays *restrict out)
{
    double prior_mean = likelihood->prior_mean[0];
    double log_right = log1p(-likelihood->parameters[0]), log_wrong = log(likelihood->parameters[0]);
    const double *restrict m = at->m, *restrict v = at->v, *restrict y = at->y;
    double *restrict ell = out->ell, *restrict lambda = out->lambda, *restrict r = out->r;
    for (ptrdiff_t i = 0, n = at->n; i < n; ++i) {
        xg_site site = xg_additive_noise(m[i] + prior_mean, v[i], y[i], noise, log_right, log_wrong);
        ell[i] = site.ell;
        lambda[i] = site.lambda;
        r[i] = site.r - site.lambda * prior_mean;
    }
}

/* The rates of a label whose probability is between a and 1 - b. */
static xg_rates xg_rates_of(double a, double b)
{
    double log_most = log1p(-b);
    return (xg_rates){log_most, a > 0.0 ? log_most - log(a) : XG_NO_CUT};
}

static void xg_rates_loop(const xg_likelihood *likelihood, const xg_moments *restrict at,
                          const xg_site_arrays *restrict out)
{
    double prior_mean = likelihood->prior_mean[0];
    double guess = likelihood->parameters[0], lapse = likelihood->parameters[likelihood->n_parameters - 1];
    xg_rates positive = xg_rates_of(guess, lapse), negative = xg_rates_of(lapse, guess);
    const double *restrict m = at->m, *restrict v = at->v, *restrict y = at->y;
    double *restrict ell = out->ell, *restrict lambda = out->lambda, *restrict r = out->r;
    for (ptrdiff_t i = 0, n = at->n; i < n; ++i) {
        xg_site site = xg_logit_rates(m[i] + prior_mean, v[i], y[i], y[i] > 0.0 ? positive : negative);
        ell[i] = site.ell;
        lambda[i] = site.lambda;
        r[i] = site.r - site.lambda * prior_mean;
    }
}

/* With a, b, c and x of xg_logit_rates, d ell / da = E sigma(-x - c) / a and d ell / db = -E sigma(x + c) / (1 - b). */
static void xg_rates_gradient(const xg_likelihood *likelihood, const xg_moments *at, const double *weight,
                              double *by_rate)
{
    ptrdiff_t last = likelihood->n_parameters - 1;
    for (ptrdiff_t i = 0; i < at->n; ++i) {
        ptrdiff_t of_a = at->y[i] > 0.0 ? 0 : last, of_b = last - of_a;
        double a = likelihood->parameters[of_a], b = likelihood->parameters[of_b], w = weight ? weight[i] : 1.0;
        double x = at->y[i] * (at->m[i] + likelihood->prior_mean[0]) + xg_rates_of(a, b).shift;
        if (a > 0.0)
            by_rate[of_a] += w * xg_logistic_normal_mean(-x, at->v[i]) / a;
        if (b > 0.0)
            by_rate[of_b] -= w * xg_logistic_normal_mean(x, at->v[i]) / (1.0 - b);
    }
}

static xg_ordinal_site xg_ordinal_at(xg_ordinal_function function, const xg_likelihood *likelihood,
                                     const xg_moments *at, ptrdiff_t i, ptrdiff_t *class)
{
    const double *cuts = likelihood->parameters;
    ptrdiff_t c = *class = (ptrdiff_t)(0.5 * (at->y[i] + 1.0));
    double low = c > 0 ? cuts[c - 1] : -XG_NO_CUT, high = c < likelihood->n_parameters ? cuts[c] : XG_NO_CUT;
    return function(at->m[i] + likelihood->prior_mean[0], at->v[i], low, high);
}

static void xg_ordinal_loop(xg_ordinal_function function, const xg_likelihood *likelihood, const xg_moments *at,
                            const xg_site_arrays *out)
{
    for (ptrdiff_t i = 0, c; i < at->n; ++i) {
        xg_ordinal_site site = xg_ordinal_at(function, likelihood, at, i, &c);
        out->ell[i] = site.ell;
        out->lambda[i] = site.lambda;
        out->r[i] = site.r - site.lambda * likelihood->prior_mean[0];
    }
}

int xg_parameter_gradient(const xg_likelihood *likelihood, const xg_moments *at, const double *weight,
                          double *by_parameter)
{
    if (likelihood->kind == XG_PSYCHOMETRIC) {
        xg_rates_gradient(likelihood, at, weight, by_parameter);
        return 0;
    }
    xg_ordinal_function function = likelihood->kind == XG_ORDINAL_LOGIT    ? xg_ordinal_logit
                                   : likelihood->kind == XG_ORDINAL_PROBIT ? xg_ordinal_probit
                                                                           : NULL;
    if (!function)
        return -1;
    for (ptrdiff_t i = 0, c; i < at->n; ++i) {
        xg_ordinal_site site = xg_ordinal_at(function, likelihood, at, i, &c);
        double w = weight ? weight[i] : 1.0;
        if (c > 0)
            by_parameter[c - 1] += w * site.by_low;
        if (c < likelihood->n_parameters)
            by_parameter[c] += w * site.by_high;
    }
    return 0;
}

#define XG_CASE(number, likelihood, bound, form, term) XG_CASE_##form(number, term)
#define XG_CASE_POINT(number, term)                                                                                  \
    case number:                                                                                                     \
        term##_loop(likelihood->prior_mean[0], at, out);                                                             \
        return 0;
#define XG_CASE_POINT_NOISE(number, term)                                                                            \
    case number:                                                                                                     \
        xg_additive_noise_loop(term, likelihood, at, out);                                                           \
        return 0;
#define XG_CASE_POINT_RATES(number, term)                                                                            \
    case number:                                                                                                     \
        xg_rates_loop(likelihood, at, out);                                                                          \
        return 0;
#define XG_CASE_ORDINAL(number, term)                                                                                \
    case number:                                                                                                     \
        xg_ordinal_loop(term, likelihood, at, out);                                                                  \
        return 0;
#define XG_CASE_CLASSES(number, term)
#define XG_CASE_CLASSES_TABLE(number, term)
#define XG_CASE_CLASSES_NOISE(number, term)

int xg_sites(const xg_likelihood *likelihood, const xg_moments *at, const xg_site_arrays *out)
{
    switch (likelihood->kind) {
        XG_SITE_LIST(XG_CASE)
    }
    return -1;
}

#define XG_IS_MULTI_CLASS_POINT 0
#define XG_IS_MULTI_CLASS_POINT_NOISE 0
#define XG_IS_MULTI_CLASS_POINT_RATES 0
#define XG_IS_MULTI_CLASS_ORDINAL 0
#define XG_IS_MULTI_CLASS_CLASSES 1
#define XG_IS_MULTI_CLASS_CLASSES_TABLE 1
#define XG_IS_MULTI_CLASS_CLASSES_NOISE 1
#define XG_DESCRIPTION(number, likelihood, bound, form, term) {likelihood, bound, XG_IS_MULTI_CLASS_##form},

static const struct {
    const char *likelihood, *bound;
    int is_multi_class;
} xg_descriptions[] = {XG_SITE_LIST(XG_DESCRIPTION)};

int xg_site_count(void)
{
    return XG_SITE_COUNT;
}

const char *xg_site_likelihood(int i)
{
    return xg_descriptions[i].likelihood;
}

const char *xg_site_bound(int i)
{
    return xg_descriptions[i].bound;
}

int xg_site_is_multi_class(int i)
{
    return xg_descriptions[i].is_multi_class;
}

void xg_logistic_normal_mean_array(ptrdiff_t n, const double *m, const double *v, double *out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = xg_logistic_normal_mean(m[i], v[i]);
}

ptrdiff_t xg_logistic_normal_logs(ptrdiff_t n, const double *m, const double *v, double least, ptrdiff_t *thin,
                                  double *out)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t start = 0; start < n; start += XG_LANES) {
        ptrdiff_t size = n - start < XG_LANES ? n - start : XG_LANES;
        double shifted[XG_LANES] = {0.0}, variance[XG_LANES] = {0.0}, mixture[XG_LANES];
        for (ptrdiff_t l = 0; l < size; ++l) {
            double a = fabs(m[start + l]);
            variance[l] = v[start + l];
            shifted[l] = a > variance[l] ? a - variance[l] : -a;
        }
        /* Compute all lanes for any size, so that the bits of a point do not depend on the number of points. */
        for (int l = 0; l < XG_LANES; ++l)
            mixture[l] = xg_logistic_normal_mean(shifted[l], variance[l]);
        for (ptrdiff_t l = 0; l < size; ++l) {
            ptrdiff_t i = start + l;
            double a = fabs(m[i]);
            int tilted = a > v[i], positive = m[i] > 0.0;
            double small = log(mixture[l]) + (tilted ? 0.5 * v[i] - a : 0.0);
            if (!tilted && mixture[l] < least)
                thin[count++] = i;
            out[2 * i + !positive] = small;
            out[2 * i + positive] = log1p(-exp(small));
        }
    }
    return count;
}
