#include "sites.h"

/* Ordered classes: p(y = c | f) = F(b_c - f) - F(b_{c-1} - f) with cut points b_1 < ... < b_{C-1}. A row's class lies
 * between its cut points low and high; XG_NO_CUT stands for an infinite one. Both likelihoods are log-concave in f and
 * in the cut points. */
#define XG_NO_CUT 1e100

/* ell, lambda and r of sites.h, and the derivatives of ell by both cut points. */
typedef struct {
    double ell, lambda, r, by_low, by_high;
} xg_ordinal_site;

typedef xg_ordinal_site (*xg_ordinal_function)(double m, double v, double low, double high);

/* Adds the site of two classes, of which a label's is above the cut or below it; returns its derivative by the cut. */
XG_INLINE double add_cut(double m, double v, double cut, double label, xg_ordinal_site *total)
{
    if (fabs(cut) >= XG_NO_CUT)
        return 0.0;
    xg_site site = xg_logit_exact(m - cut, v, label);
    total->ell += site.ell;
    total->lambda += site.lambda;
    return -(site.r - site.lambda * (m - cut));
}

/* sigma(a) - sigma(b) = sigma(a) sigma(-b) (1 - exp(b - a)): two sites of two classes, and a constant. */
static xg_ordinal_site xg_ordinal_logit(double m, double v, double low, double high)
{
    xg_ordinal_site site = {0.0};
    site.by_high = add_cut(m, v, high, -1.0, &site);
    site.by_low = add_cut(m, v, low, 1.0, &site);
    site.r = site.lambda * m - site.by_high - site.by_low;
    if (high < XG_NO_CUT && low > -XG_NO_CUT) {
        double gap = high - low;
        site.ell += log(-expm1(-gap));
        site.by_high += 1.0 / expm1(gap);
        site.by_low -= 1.0 / expm1(gap);
    }
    return site;
}

/* Phi(-x) exp(x^2 / 2), x >= 0. */
static double scaled_tail(double x)
{
    double inverse = 1.0 / (x * x);
    if (x > 40.0)
        return XG_INV_SQRT_2PI / x * (1.0 - inverse * (1.0 - 3.0 * inverse));
    return xg_tail_polynomial((x - 4.0) / (x + 4.0)) / (x + 1.0);
}

/* log p at one value f, minus its second derivative, and its derivatives by the cut points. */
static xg_ordinal_site probit_at(double f, double low, double high)
{
    double a = high - f, b = low - f;
    /* By symmetry the interval's middle is at or below f, so that differences are of small tails. */
    int mirrored = a + b > 0.0;
    double x = mirrored ? b : -a, z = mirrored ? a : -b;
    double near, far; /* the densities at x and z, divided by p */
    xg_ordinal_site site = {0.0};
    if (x >= 0.0) {
        double fall = exp(-0.5 * (z - x) * (z + x));
        double share = xg_max(scaled_tail(x) - scaled_tail(z) * fall, 1e-300);
        site.ell = log(share) - 0.5 * x * x;
        near = XG_INV_SQRT_2PI / share;
        far = near * fall;
    } else {
        double at_x, at_z;
        double outside = xg_normal_tail(-x, &at_x) + xg_normal_tail(z, &at_z);
        site.ell = log1p(-outside);
        near = XG_INV_SQRT_2PI * at_x / (1.0 - outside);
        far = XG_INV_SQRT_2PI * at_z / (1.0 - outside);
    }
    double slope = far - near; /* by f of the mirrored problem */
    site.lambda = xg_min(xg_max(slope * slope - (x * near - z * far), 0.0), 1.0);
    site.by_high = mirrored ? far : near;
    site.by_low = -(mirrored ? near : far);
    return site;
}

/* Gauss-Legendre nodes and weights on [-1, 1], the positive half. */
#define XG_NODES 4
static const double nodes[XG_NODES] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975363};
static const double weights[XG_NODES] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                         0.1012285362903763};
/* The integral covers this many standard deviations on either side; panels are at most two of them wide. */
#define XG_REACH 7
/* Near a cut point panels are this wide, further off as wide as their distance from it: log p is smooth there. */
#define XG_NEAR_CUT 1.5
#define XG_MOST_EDGES 512

static int add_edge(double *edges, int count, double edge)
{
    if (!(fabs(edge) < XG_REACH) || count == XG_MOST_EDGES)
        return count;
    int i = count;
    for (; i > 0 && edges[i - 1] > edge; --i)
        edges[i] = edges[i - 1];
    edges[i] = edge;
    return count + 1;
}

/* Expectations by panels; the errors are below 1e-9 of their scale. */
static xg_ordinal_site xg_ordinal_probit(double m, double v, double low, double high)
{
    double edges[XG_MOST_EDGES + 2], sd = sqrt(v), cuts[2] = {low, high}, total = 0.0;
    int count = 0;
    edges[count++] = -XG_REACH;
    for (int j = 1; j < XG_REACH; ++j)
        edges[count++] = 2.0 * j - XG_REACH;
    for (int c = 0; c < 2 && 2.0 * sd > XG_NEAR_CUT; ++c) {
        if (fabs(cuts[c]) >= XG_NO_CUT)
            continue;
        double centre = (cuts[c] - m) / sd, end = fabs(centre) + XG_REACH;
        count = add_edge(edges, count, centre);
        for (double step = XG_NEAR_CUT / sd; step < end; step *= 2.0) {
            count = add_edge(edges, count, centre - step);
            count = add_edge(edges, count, centre + step);
        }
    }
    edges[count] = XG_REACH;
    xg_ordinal_site site = {0.0};
    for (int j = 0; j < count; ++j) {
        double half = 0.5 * (edges[j + 1] - edges[j]), middle = 0.5 * (edges[j + 1] + edges[j]);
        if (!(half > 0.0))
            continue;
        for (int k = 0; k < 2 * XG_NODES; ++k) {
            double x = middle + half * (k < XG_NODES ? nodes[k] : -nodes[k - XG_NODES]);
            double weight = half * weights[k % XG_NODES] * exp(-0.5 * x * x);
            xg_ordinal_site at = probit_at(m + sd * x, low, high);
            total += weight;
            site.ell += weight * at.ell;
            site.lambda += weight * at.lambda;
            site.by_low += weight * at.by_low;
            site.by_high += weight * at.by_high;
        }
    }
    site.ell /= total;
    site.lambda /= total;
    site.by_low /= total;
    site.by_high /= total;
    site.r = site.lambda * m - site.by_high - site.by_low;
    return site;
}

static xg_ordinal_site xg_ordinal_at(xg_ordinal_function function, const xg_likelihood *likelihood, double m, double v,
                                     ptrdiff_t class)
{
    const double *cuts = likelihood->parameters;
    double low = class > 0 ? cuts[class - 1] : -XG_NO_CUT;
    return function(m, v, low, class < likelihood->n_parameters ? cuts[class] : XG_NO_CUT);
}

/* The class of a label */
static ptrdiff_t xg_class_of(double y) { return (ptrdiff_t)(0.5 * (y + 1.0)); }

/* The rates of a label whose probability is between a and 1 - b. */
static xg_rates xg_rates_of(double a, double b)
{
    double log_most = log1p(-b);
    return (xg_rates){log_most, a > 0.0 ? log_most - log(a) : XG_NO_CUT};
}

#define xg_ordinal(function, m, v, y)                                                                                \
    xg_without_cuts(xg_ordinal_at(function, likelihood, m, v, xg_class_of(y)))
XG_INLINE xg_site xg_without_cuts(xg_ordinal_site site) { return (xg_site){site.ell, site.lambda, site.r}; }

/* A loop over points for each site, after what any of them needs. */
#define XG_LOOP(number, name, bound, site_of)                                                                        \
    XG_CALLED void number##_loop(const xg_likelihood *likelihood, const xg_moments *restrict at,                     \
                                 const xg_site_arrays *restrict out)                                                 \
    {                                                                                                                \
        const double *restrict means = at->m, *restrict variances = at->v, *restrict labels = at->y;                 \
        double *restrict ell = out->ell, *restrict lambda = out->lambda, *restrict r = out->r;                       \
        double prior_mean = likelihood->prior_mean[0], first = likelihood->parameters[0];                            \
        double last = likelihood->parameters[likelihood->n_parameters - 1], logs[] = {log(first), log1p(-first)};    \
        xg_rates rates[] = {xg_rates_of(last, first), xg_rates_of(first, last)};                                     \
        (void)logs, (void)rates;                                                                                     \
        for (ptrdiff_t i = 0, n = at->n; i < n; ++i) {                                                               \
            double m = means[i] + prior_mean, v = variances[i], y = labels[i];                                       \
            xg_site site = site_of;                                                                                  \
            ell[i] = site.ell;                                                                                       \
            lambda[i] = site.lambda;                                                                                 \
            r[i] = site.r - site.lambda * prior_mean;                                                                \
        }                                                                                                            \
    }
XG_POINT_LIST(XG_LOOP)

void xg_sites(const xg_likelihood *likelihood, const xg_moments *at, double *scratch, const xg_site_arrays *out)
{
#define XG_NAME(number, likelihood, bound, site) number##_loop,
    static void (*const loops[])(const xg_likelihood *, const xg_moments *, const xg_site_arrays *) = {
        XG_POINT_LIST(XG_NAME)};
    if (xg_site_is_multi_class(likelihood->kind))
        xg_multiclass_sites(likelihood, at, scratch, out);
    else
        loops[likelihood->kind](likelihood, at, out);
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
    for (ptrdiff_t i = 0; i < at->n; ++i) {
        ptrdiff_t c = xg_class_of(at->y[i]);
        xg_ordinal_site site = xg_ordinal_at(function, likelihood, at->m[i] + likelihood->prior_mean[0], at->v[i], c);
        double w = weight ? weight[i] : 1.0;
        if (c > 0)
            by_parameter[c - 1] += w * site.by_low;
        if (c < likelihood->n_parameters)
            by_parameter[c] += w * site.by_high;
    }
    return 0;
}

#define XG_DESCRIPTION(number, likelihood, bound, site) {likelihood, bound},
static const struct {
    const char *likelihood, *bound;
} xg_descriptions[] = {XG_POINT_LIST(XG_DESCRIPTION) XG_CLASSES_LIST(XG_DESCRIPTION)};

const char *xg_site_likelihood(int i) { return xg_descriptions[i].likelihood; }
const char *xg_site_bound(int i) { return xg_descriptions[i].bound; }
int xg_site_is_multi_class(int i) { return i >= XG_SOFTMAX_EXACT; }

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
