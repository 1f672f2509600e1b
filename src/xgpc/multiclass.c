#include "multinomial.h"
#include "sites.h"

ptrdiff_t xg_multiclass_scratch(ptrdiff_t classes)
{
    return XG_CHUNK * ((XG_CLASS_ROWS + 1) * classes + XG_POINT_ROWS) + xg_multinomial_scratch(classes);
}

/* ell = -log(1 + sum_{c != y} exp(x_c)), x_c = m_c - m_y + (v_c + v_y) / 2. */
XG_CALLED void xg_softmax_additive_noise_chunk(const xg_moments *restrict at, double *restrict scratch,
                                            const xg_site_arrays *restrict out)
{
    XG_CHUNK_FIELDS
    ptrdiff_t block = classes * pitch;
    double *share = scratch, *top = share + block, *sum = top + pitch, *inverse = sum + pitch, *m_y = inverse + pitch,
           *v_y = m_y + pitch;

    xg_of_label(classes, n, pitch, m, y, m_y);
    xg_of_label(classes, n, stride, v, y, v_y);
    for (ptrdiff_t i = 0; i < n; ++i)
        top[i] = sum[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double x = (m[c * pitch + i] - m_y[i]) + 0.5 * (v[c * stride + i] + v_y[i]);
            x = y[i] == (double)c ? -HUGE_VAL : x;
            share[c * pitch + i] = x;
            top[i] = xg_max(top[i], x);
        }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double e = xg_exp(share[c * pitch + i] - top[i]);
            share[c * pitch + i] = e;
            sum[i] += e;
        }
    for (ptrdiff_t i = 0; i < n; ++i) {
        double one = xg_exp(-top[i]);
        ell[i] = -(top[i] + xg_log1p((one - 1.0) + sum[i]));
        inverse[i] = 1.0 / (one + sum[i]);
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double is_label = y[i] == (double)c ? 1.0 : 0.0;
            double precision = (is_label * sum[i] + share[c * pitch + i]) * inverse[i];
            lambda[c * stride + i] = precision;
            r[c * stride + i] = (2.0 * is_label - 1.0) * precision + precision * m[c * pitch + i];
        }
}

/* Logistic-softmax: p(y | f) = sigma(f_y) / sum_c sigma(f_c). The augmentation has a Gamma variable of shape alpha and
 * rate C, Poisson counts of means gamma_c and Polya-Gamma variables; at their optima, with c_c = sqrt(m_c^2 + v_c),
 *
 *     t_c = exp(-m_c / 2) / (2 cosh(c_c / 2)) in (0, 1],  tau = mean_c t_c,  alpha - 1 = tau exp(digamma(alpha)),
 *     gamma_c = t_c exp(digamma(alpha)) / C,
 *     ell = m_y / 2 - log(2 cosh(c_y / 2)) + alpha - 1 - log C + log Gamma(alpha) + (1 - alpha) digamma(alpha),
 *     lambda_c = (1{c = y} + gamma_c) tanh(c_c / 2) / (2 c_c),  r_c = (1{c = y} - gamma_c) / 2.
 *
 * Where all latent functions are far below zero tau -> 1 and alpha ~ 1 / (2 (1 - tau)) has no limit. So everything is
 * written in u = 1 - tau and in E(alpha) = exp(digamma(alpha)) - (alpha - 1 / 2), which falls from .0615 at 1 to 0, and
 * alpha is held below 1 / (2 XG_LEAST_COMPLEMENT): any alpha gives a bound, and lambda and r by these formulas. */
#define XG_LEAST_COMPLEMENT 1e-12
/* alpha then has a relative error of at most 6e-15 for all u in [1e-12, 1]. */
#define XG_ALPHA_STEPS 4

/* c[0] + c[1] x + ... + c[n - 1] x^(n - 1), for a constant n */
XG_INLINE double xg_polynomial(const int n, const double *c, double x)
{
    double value = c[n - 1];
#pragma GCC unroll 16
    for (int j = n - 2; j >= 0; --j)
        value = value * x + c[j];
    return value;
}

/* Asymptotic series of digamma and log Gamma (Abramowitz & Stegun 6.3.18 and 6.1.41) at x >= 10, reached by ten steps
 * of the recurrence where alpha < 10. *tail = log x - digamma(alpha); *factor = Gamma(x) / Gamma(alpha). */
XG_INLINE double xg_shifted(double alpha, double *tail, double *factor)
{
    double shifted = alpha < 10.0 ? 1.0 : 0.0, base = xg_min(alpha, 10.0);
    double product = base, numerator = 1.0;
    for (int j = 1; j < 10; ++j) {
        numerator = numerator * (base + j) + product;
        product = product * (base + j);
    }
    double x = alpha + 10.0 * shifted, w = 1.0 / x, s = w * w;
    static const double series[] = {1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0,
                                    1.0 / 12.0};
    *tail = 0.5 * w + xg_polynomial(7, series, s) * s + shifted * (numerator / product);
    *factor = alpha < 10.0 ? product : 1.0;
    return x;
}

/* E(alpha), alpha >= 1. */
XG_INLINE double xg_digamma_excess(double alpha)
{
    double tail, factor;
    double x = xg_shifted(alpha, &tail, &factor);
    double middle = alpha - 0.5, w = 1.0 / middle, s = w * w;
    double near = x * xg_exp(-tail) - middle;
    double far = w * (1.0 / 24.0 - s * (37.0 / 5760.0 - s * (10313.0 / 2903040.0 - s * (5509121.0 / 1393459200.0))));
    return alpha < 64.0 ? near : far;
}

/* alpha - 1 + log Gamma(alpha) + (1 - alpha) digamma(alpha), alpha >= 1, without cancellation of large terms. */
XG_INLINE double xg_gamma_entropy(double alpha)
{
    double tail, factor;
    double x = xg_shifted(alpha, &tail, &factor), w = 1.0 / x, s = w * w;
    static const double stirling[] = {1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0,
                                      -691.0 / 360360.0, 1.0 / 156.0};
    double shift = x - alpha, half_log_two_pi = 0.91893853320467274178;
    return (shift + 0.5) * xg_log1p(x - 1.0) - shift - 1.0 + half_log_two_pi + xg_polynomial(7, stirling, s) * w -
           xg_log1p(factor - 1.0) + (alpha - 1.0) * tail;
}

/* alpha = (1 / 2 + E) / u + 1 / 2 - E is the equation of alpha. It is nearly solved for alpha, as E hardly varies:
 * Newton's step, with a derivative of E good to 4 %, leaves a thousandth of an error. */
XG_INLINE double xg_alpha_start(double u)
{
    double excess = u * (0.0833 - 0.0218 * u);
    return (0.5 + excess) / u + (0.5 - excess);
}

XG_INLINE double xg_alpha_step(double alpha, double u)
{
    double excess = xg_digamma_excess(alpha), middle = alpha - 0.5;
    double slope = 1.0 / (24.0 * (middle * middle + 0.295));
    double inverse = 1.0 / u;
    double residual = alpha - ((0.5 + excess) * inverse + (0.5 - excess));
    return xg_max(alpha - residual / (1.0 + slope * (inverse - 1.0)), 1.0);
}

/* 1 - exp(-a), a >= 0, with a small relative error; q = exp(-a). */
XG_INLINE double xg_complement(double a, double q)
{
    static const double series[] = {1.0, -1.0 / 2.0, 1.0 / 6.0, -1.0 / 24.0, 1.0 / 120.0, -1.0 / 720.0, 1.0 / 5040.0,
                                    -1.0 / 40320.0, 1.0 / 362880.0, -1.0 / 3628800.0, 1.0 / 39916800.0,
                                    -1.0 / 479001600.0};
    double t = xg_min(a, 0.25);
    return a < 0.25 ? xg_polynomial(12, series, t) * t : 1.0 - q;
}

/* t_c, 1 - t_c, the Polya-Gamma mean and m_c / 2 - log(2 cosh(c_c / 2)) of one latent function. */
XG_INLINE void xg_logistic_softmax_class(double m, double v, double *t, double *complement, double *mean,
                                         double *log_sigma)
{
    double c = sqrt(m * m + v), e = xg_exp(-c), inverse = 1.0 / (1.0 + e);
    double sum = c + fabs(m), high = 0.5 * sum, low = 0.5 * v / xg_max(sum, 1e-300); /* (c + |m|) / 2, (c - |m|) / 2 */
    double a = m < 0.0 ? low : high, q = xg_exp(-a);
    *t = q * inverse;
    *complement = (xg_complement(a, q) + e) * inverse;
    *mean = xg_pg_mean(c, e);
    *log_sigma = -(m < 0.0 ? high : low) - xg_log1p_unit(e);
}

XG_CALLED void xg_logistic_softmax_chunk(const xg_moments *restrict at, double *restrict scratch,
                                      const xg_site_arrays *restrict out)
{
    XG_CHUNK_FIELDS
    ptrdiff_t block = classes * pitch;
    double *t = scratch, *mean = t + block, *u = mean + block, *alpha = u + pitch, *log_sigma = alpha + pitch,
           *bounded = log_sigma + pitch;
    double share = 1.0 / (double)classes, log_classes = log((double)classes);

    for (ptrdiff_t i = 0; i < n; ++i)
        u[i] = log_sigma[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double complement, value;
            xg_logistic_softmax_class(m[c * pitch + i], v[c * stride + i], &t[c * pitch + i], &complement,
                                      &mean[c * pitch + i], &value);
            u[i] += share * complement;
            log_sigma[i] = y[i] == (double)c ? value : log_sigma[i];
        }
    for (ptrdiff_t i = 0; i < n; ++i) {
        bounded[i] = xg_max(u[i], XG_LEAST_COMPLEMENT);
        alpha[i] = xg_alpha_start(bounded[i]);
    }
    for (int step = 0; step < XG_ALPHA_STEPS; ++step)
        for (ptrdiff_t i = 0; i < n; ++i)
            alpha[i] = xg_alpha_step(alpha[i], bounded[i]);
    for (ptrdiff_t i = 0; i < n; ++i) {
        double excess = xg_digamma_excess(alpha[i]), value = (alpha[i] - 0.5) + excess; /* exp(digamma(alpha)) */
        /* tau value - (alpha - 1), zero but for held alphas */
        double slack = 0.5 + excess - u[i] * value;
        ell[i] = log_sigma[i] + (xg_gamma_entropy(alpha[i]) - log_classes) + slack;
        u[i] = share * value;
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double label = y[i] == (double)c ? 1.0 : 0.0, gamma = t[c * pitch + i] * u[i];
            lambda[c * stride + i] = (label + gamma) * mean[c * pitch + i];
            r[c * stride + i] = 0.5 * (label - gamma);
        }
}

void xg_multiclass_sites(const xg_likelihood *likelihood, const xg_moments *points, double *scratch,
                         const xg_site_arrays *sites)
{
    int kind = likelihood->kind;
    ptrdiff_t classes = points->classes, pitch = kind == XG_SOFTMAX_EXACT ? XG_GROUP : xg_chunk_size(classes);
    const double *prior_mean = likelihood->prior_mean;
    double *shifted = scratch + XG_CHUNK * (XG_CLASS_ROWS * classes + XG_POINT_ROWS),
           *tables = shifted + XG_CHUNK * classes;

    if (kind == XG_MULTINOMIAL_STEP || kind == XG_MULTINOMIAL_PROBIT || kind == XG_MULTINOMIAL_LOGIT)
        xg_multinomial_tables(classes, tables);
    for (ptrdiff_t start = 0; start < points->n; start += pitch) {
        xg_moments at = xg_moments_from(points, start, pitch);
        xg_site_arrays out = xg_sites_from(sites, start);
        /* Means of the latent functions, from those of their distances from the prior mean */
        for (ptrdiff_t c = 0; c < classes; ++c)
            for (ptrdiff_t i = 0; i < at.n; ++i)
                shifted[c * pitch + i] = at.m[c * at.m_stride + i] + prior_mean[c];
        at.m = shifted;
        at.m_stride = pitch;
#define xg_multinomial(noise)                                                                                        \
    xg_multinomial_chunk(&at, noise, likelihood->parameters[0], tables, scratch, &out)
#define XG_CASE(number, name, bound, site)                                                                           \
    case number:                                                                                                     \
        site;                                                                                                        \
        break;
        switch (kind) {
            XG_CLASSES_LIST(XG_CASE)
        }
        /* Linear terms of the distances, from those of the latent functions */
        for (ptrdiff_t c = 0; c < classes; ++c)
            for (ptrdiff_t i = 0, place = c * at.stride; i < at.n; ++i, ++place)
                out.r[place] -= out.lambda[place] * prior_mean[c];
    }
}
