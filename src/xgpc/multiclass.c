#include "chunks.h"
#include "multiclass.h"

/* Least variance of a latent function and its noise. */
#define XG_NOISE_FLOOR 1e-12

/* Trapezoidal rule of XG_MULTINOMIAL_*, in standard deviations s_y of the latent function of the label. Largest errors
 * of p_y for 2 to 100 classes: 1e-10 where all other s_c >= s_y / 2 (but 2e-9 at 100 classes), 4e-7 at 0.3 s_y,
 * 6e-5 at 0.2 s_y, 4e-3 at 0.1 s_y. */
#define XG_RULE_STEP 0.2
#define XG_RULE_HALF 31
#define XG_RULE_SIZE (2 * XG_RULE_HALF + 1)

ptrdiff_t xg_multiclass_scratch(ptrdiff_t classes)
{
    return XG_CHUNK * (XG_CLASS_ROWS * classes + XG_POINT_ROWS) + 2 * XG_RULE_SIZE;
}

/* ell = -log(1 + sum_{c != y} exp(x_c)), x_c = m_c - m_y + (v_c + v_y) / 2. */
void xg_softmax_additive_noise_chunk(XG_CHUNK_ARGUMENTS);
XG_CLONES void xg_softmax_additive_noise_chunk(XG_CHUNK_ARGUMENTS)
{
    ptrdiff_t block = classes * pitch;
    double *share = scratch, *top = share + block, *sum = top + pitch, *inverse = sum + pitch, *m_y = inverse + pitch,
           *v_y = m_y + pitch;

    xg_of_label(classes, n, stride, m, y, m_y);
    xg_of_label(classes, n, stride, v, y, v_y);
    for (ptrdiff_t i = 0; i < n; ++i)
        top[i] = sum[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double x = (m[c * stride + i] - m_y[i]) + 0.5 * (v[c * stride + i] + v_y[i]);
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
            r[c * stride + i] = (2.0 * is_label - 1.0) * precision + precision * m[c * stride + i];
        }
}

/* ell = log(delta / (C - 1)) + gain p_y, p_y = E[prod_{c != y} Phi(z_c)], z_c = (g - m_c) / s_c, g ~ N(m_y, s_y^2),
 * s_c^2 = v_c + noise. With g = m_y + s_y x: z_c = a_c + b_c x, and both of
 * A_c = E[prod Phi phi(z_c) / Phi(z_c)], X_c = E[x prod Phi phi(z_c) / Phi(z_c)] give the derivatives. */

/* product *= Phi(a + b x), ratio = phi / Phi. */
XG_INLINE void xg_multinomial_factors(ptrdiff_t n, double x, const double *restrict a, const double *restrict b,
                                      double *restrict ratio, double *restrict product)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double z = a[i] + b[i] * x;
        double t = xg_min(fabs(z), 40.0);
        double e = xg_exp(-0.5 * t * t);
        double scaled = xg_tail_polynomial((t - 4.0) / (t + 4.0)) / (t + 1.0); /* Phi(-t) / e */
        double above = 1.0 - e * scaled;
        product[i] *= z < 0.0 ? e * scaled : above;
        ratio[i] = XG_INV_SQRT_2PI * (z < 0.0 ? 1.0 : e) / (z < 0.0 ? scaled : above);
    }
}

XG_INLINE void xg_multinomial_gradients(ptrdiff_t n, double x, const double *restrict weighted,
                                        const double *restrict ratio, double *restrict by_shift,
                                        double *restrict by_scale)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double value = weighted[i] * ratio[i];
        by_shift[i] += value;
        by_scale[i] += x * value;
    }
}

void xg_multinomial_chunk(XG_CHUNK_ARGUMENTS, double, double, const double *);
XG_CLONES void xg_multinomial_chunk(XG_CHUNK_ARGUMENTS, double noise, double delta, const double *rule)
{
    ptrdiff_t block = classes * pitch;
    double *a = scratch, *b = a + block, *ratio = b + block, *by_shift = ratio + block, *by_scale = by_shift + block,
           *product = by_scale + block, *probability = product + pitch, *m_y = probability + pitch, *s_y = m_y + pitch,
           *mean_y = s_y + pitch, *variance_y = mean_y + pitch;
    double wrong = log(delta / (double)(classes - 1)), gain = log1p(-delta) - wrong;

    xg_of_label(classes, n, stride, m, y, m_y);
    xg_of_label(classes, n, stride, v, y, s_y);
    for (ptrdiff_t i = 0; i < n; ++i) {
        s_y[i] = sqrt(xg_max(s_y[i] + noise, XG_NOISE_FLOOR));
        probability[i] = mean_y[i] = variance_y[i] = 0.0;
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double inverse = 1.0 / sqrt(xg_max(v[c * stride + i] + noise, XG_NOISE_FLOOR));
            /* The label's own factor: Phi = 1, phi = 0. */
            a[c * pitch + i] = y[i] == (double)c ? 64.0 : (m_y[i] - m[c * stride + i]) * inverse;
            b[c * pitch + i] = y[i] == (double)c ? 0.0 : s_y[i] * inverse;
            by_shift[c * pitch + i] = by_scale[c * pitch + i] = 0.0;
        }
    for (ptrdiff_t q = 0; q < XG_RULE_SIZE; ++q) {
        double x = rule[q], weight = rule[XG_RULE_SIZE + q];
        for (ptrdiff_t i = 0; i < n; ++i)
            product[i] = weight;
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_multinomial_factors(n, x, a + c * pitch, b + c * pitch, ratio + c * pitch, product);
        for (ptrdiff_t i = 0; i < n; ++i)
            probability[i] += product[i];
        for (ptrdiff_t c = 0; c < classes; ++c)
            xg_multinomial_gradients(n, x, product, ratio + c * pitch, by_shift + c * pitch, by_scale + c * pitch);
    }
    for (ptrdiff_t i = 0; i < n; ++i)
        ell[i] = wrong + gain * probability[i];
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double precise = gain / xg_max(v[c * stride + i] + noise, XG_NOISE_FLOOR);
            double inverse = 1.0 / sqrt(xg_max(v[c * stride + i] + noise, XG_NOISE_FLOOR));
            double shift = by_shift[c * pitch + i], scale = by_scale[c * pitch + i];
            double precision = precise * (a[c * pitch + i] * shift + b[c * pitch + i] * scale);
            lambda[c * stride + i] = precision;
            r[c * stride + i] = precision * m[c * stride + i] - gain * inverse * shift;
            mean_y[i] += inverse * shift;
            variance_y[i] += inverse * scale;
        }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double precision = -gain * variance_y[i] / s_y[i];
            double linear = gain * mean_y[i] + precision * m_y[i];
            lambda[c * stride + i] = y[i] == (double)c ? precision : lambda[c * stride + i];
            r[c * stride + i] = y[i] == (double)c ? linear : r[c * stride + i];
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
/* Leave alpha with a relative error of at most 6e-15 over all u in [1e-12, 1]. */
#define XG_ALPHA_STEPS 4

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
    double series = 1.0 / 12.0;
    series = series * s - 691.0 / 32760.0;
    series = series * s + 1.0 / 132.0;
    series = series * s - 1.0 / 240.0;
    series = series * s + 1.0 / 252.0;
    series = series * s - 1.0 / 120.0;
    series = series * s + 1.0 / 12.0;
    *tail = 0.5 * w + series * s + shifted * (numerator / product);
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
    double stirling = 1.0 / 156.0;
    stirling = stirling * s - 691.0 / 360360.0;
    stirling = stirling * s + 1.0 / 1188.0;
    stirling = stirling * s - 1.0 / 1680.0;
    stirling = stirling * s + 1.0 / 1260.0;
    stirling = stirling * s - 1.0 / 360.0;
    stirling = stirling * s + 1.0 / 12.0;
    double shift = x - alpha, half_log_two_pi = 0.91893853320467274178;
    return (shift + 0.5) * xg_log1p(x - 1.0) - shift - 1.0 + half_log_two_pi + stirling * w - xg_log1p(factor - 1.0) +
           (alpha - 1.0) * tail;
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
    double value = 1.0 / 479001600.0, t = xg_min(a, 0.25);
    value = 1.0 / 39916800.0 - value * t;
    value = 1.0 / 3628800.0 - value * t;
    value = 1.0 / 362880.0 - value * t;
    value = 1.0 / 40320.0 - value * t;
    value = 1.0 / 5040.0 - value * t;
    value = 1.0 / 720.0 - value * t;
    value = 1.0 / 120.0 - value * t;
    value = 1.0 / 24.0 - value * t;
    value = 1.0 / 6.0 - value * t;
    value = 0.5 - value * t;
    value = 1.0 - value * t;
    return a < 0.25 ? value * t : 1.0 - q;
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

void xg_logistic_softmax_chunk(XG_CHUNK_ARGUMENTS);
XG_CLONES void xg_logistic_softmax_chunk(XG_CHUNK_ARGUMENTS)
{
    ptrdiff_t block = classes * pitch;
    double *t = scratch, *mean = t + block, *u = mean + block, *alpha = u + pitch, *log_sigma = alpha + pitch,
           *bounded = log_sigma + pitch;
    double share = 1.0 / (double)classes, log_classes = log((double)classes);

    for (ptrdiff_t i = 0; i < n; ++i)
        u[i] = log_sigma[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double complement, value;
            xg_logistic_softmax_class(m[c * stride + i], v[c * stride + i], &t[c * pitch + i], &complement,
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

/* Abscissas, and weights of a standard normal variable that sum to one. */
static void xg_normal_rule(double *rule)
{
    double sum = 0.0;
    for (int q = 0; q < XG_RULE_SIZE; ++q) {
        rule[q] = XG_RULE_STEP * (q - XG_RULE_HALF);
        rule[XG_RULE_SIZE + q] = exp(-0.5 * rule[q] * rule[q]);
        sum += rule[XG_RULE_SIZE + q];
    }
    for (int q = 0; q < XG_RULE_SIZE; ++q)
        rule[XG_RULE_SIZE + q] /= sum;
}

#define XG_CASE(number, likelihood, bound, form, term) XG_CASE_##form(number, term)
#define XG_CASE_POINT(number, term)
#define XG_CASE_POINT_NOISE(number, term)
#define XG_CASE_CLASSES(number, term)                                                                                \
    case number:                                                                                                     \
        XG_FOR_CHUNKS(term(XG_CHUNK_OF_ROWS))                                                                        \
        return 0;
#define XG_CASE_CLASSES_TABLE(number, term)                                                                          \
    case number:                                                                                                     \
        if (!table->rows)                                                                                            \
            return -1;                                                                                               \
        XG_FOR_CHUNKS(term(XG_CHUNK_OF_ROWS, table))                                                                 \
        return 0;
#define XG_CASE_CLASSES_NOISE(number, term)                                                                          \
    case number:                                                                                                     \
        xg_normal_rule(rule);                                                                                        \
        XG_FOR_CHUNKS(xg_multinomial_chunk(XG_CHUNK_OF_ROWS, term, delta, rule))                                     \
        return 0;
#define XG_FOR_CHUNKS(call)                                                                                          \
    for (ptrdiff_t start = 0; start < n; start += pitch) {                                                           \
        ptrdiff_t size = n - start < pitch ? n - start : pitch;                                                      \
        call;                                                                                                        \
    }
#define XG_CHUNK_OF_ROWS                                                                                             \
    classes, size, stride, pitch, m + start, v + start, y + start, scratch, ell + start, lambda + start, r + start

int xg_multiclass_sites(int kind, ptrdiff_t classes, ptrdiff_t n, ptrdiff_t stride, const double *m, const double *v,
                        const double *y, double delta, const xg_hazard_table *table, double *scratch, double *ell,
                        double *lambda, double *r)
{
    ptrdiff_t pitch = xg_chunk_size(classes);
    double *rule = scratch + XG_CHUNK * (XG_CLASS_ROWS * classes + XG_POINT_ROWS);

    switch (kind) {
        XG_SITE_LIST(XG_CASE)
    }
    return -1;
}
