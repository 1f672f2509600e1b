#include "ordinal.h"
#include "sites.h"

/* sigma(a) - sigma(b) = sigma(a) sigma(-b) (1 - exp(b - a)): two sites of two classes, and a constant. */
xg_ordinal_site xg_ordinal_logit(double m, double v, double low, double high)
{
    xg_ordinal_site site = {0.0, 0.0, 0.0, 0.0, 0.0};
    if (high < XG_NO_CUT) {
        xg_site below = xg_logit_exact(m - high, v, -1.0);
        site.ell += below.ell;
        site.lambda += below.lambda;
        site.by_high = -(below.r - below.lambda * (m - high));
    }
    if (low > -XG_NO_CUT) {
        xg_site above = xg_logit_exact(m - low, v, 1.0);
        site.ell += above.ell;
        site.lambda += above.lambda;
        site.by_low = -(above.r - above.lambda * (m - low));
    }
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
    double log_p, near, far; /* the densities at x and z, divided by p */
    if (x >= 0.0) {
        double fall = exp(-0.5 * (z - x) * (z + x));
        double share = scaled_tail(x) - scaled_tail(z) * fall;
        share = xg_max(share, 1e-300);
        log_p = log(share) - 0.5 * x * x;
        near = XG_INV_SQRT_2PI / share;
        far = near * fall;
    } else {
        double at_x, at_z;
        double outside = xg_normal_tail(-x, &at_x) + xg_normal_tail(z, &at_z);
        log_p = log1p(-outside);
        near = XG_INV_SQRT_2PI * at_x / (1.0 - outside);
        far = XG_INV_SQRT_2PI * at_z / (1.0 - outside);
    }
    xg_ordinal_site site;
    double slope = far - near; /* by f of the mirrored problem */
    site.ell = log_p;
    site.lambda = xg_min(xg_max(slope * slope - (x * near - z * far), 0.0), 1.0);
    site.r = 0.0;
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
xg_ordinal_site xg_ordinal_probit(double m, double v, double low, double high)
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
    xg_ordinal_site site = {0.0, 0.0, 0.0, 0.0, 0.0};
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
