#include "softmax.h"

#define XG_GUMBEL_VARIANCE 1.64493406684822643647

#define XG_EACH_LANE for (int i = 0; i < XG_GROUP; ++i)

/* Nodes t_k = low + unit (a sinh(b k)), k = 0, 1, ..., with b = XG_GROWTH, a b = XG_FIRST_STEP, and unit = F / R
 * near low, where F = -log T is XG_LOW. A class whose H is still between 0 and 1 at a distance from low is about as
 * wide as this distance, otherwise it would be 0 at low; so the steps may grow with the distance. The mass left of
 * low and beyond the end is below 1e-7, which costs 4e-8 in ell without variances (1e-9 with limits of 20). With a
 * first step of .15 and a growth of .1, the largest error of ell is 3e-6 instead of 8e-6, with 31 nodes on average
 * instead of 25. */
#define XG_LOW 18.0
#define XG_HIGH 18.0
#define XG_FIRST_STEP .2
#define XG_GROWTH .12
#define XG_GROWTH_FACTOR 1.12749685157937567574 /* exp(XG_GROWTH) */
/* Newton steps for low; with three, F is far from XG_LOW for 300 classes. */
#define XG_LOW_STEPS 4
/* Most nodes, which ends the loop for values that are not finite; variances of 0 and 1e16 in a row take 170. */
#define XG_MOST_NODES 400

/* Least probability of a label in divisions. */
#define XG_LEAST_PROBABILITY 1e-300

/* w = y (XG_SLOPE + (1 - XG_SLOPE) / (1 + XG_BEND y^2)) */
#define XG_SLOPE (0.25 / 0.6)
#define XG_BEND 0.6

/* Scratch of a class: its polynomials, mean, r, q, two sums, and two weights of derivatives. */
enum {
    XG_MEAN = XG_HAZARD_COLUMNS, XG_HAZARD, XG_CURVE, XG_FIRST_SUM, XG_SECOND_SUM, XG_FIRST_WEIGHT, XG_SECOND_WEIGHT,
    XG_PLACES
};
_Static_assert(XG_GROUP * XG_PLACES <= XG_CHUNK * XG_CLASS_ROWS, "the scratch of several classes is too small");

/* Columns after the coefficients; the second one becomes 1 / (s width). */
enum { CENTRE = XG_HAZARD_DEGREE + 1, INVERSE_WIDTH, LEAST, LARGEST };

/* G points: the position of place p of class c in scratch. */
#define XG_AT(c, p) (scratch + ((c) * XG_PLACES + (p)) * XG_GROUP)

typedef struct {
    double first[XG_GROUP], high[XG_GROUP]; /* left of low, and the end of the integral */
} xg_range;

/* Compute the polynomials and the means of f + g, with sums of zero. Lanes from n on repeat the last point. */
XG_INLINE xg_range xg_prepare(const xg_moments *at, const xg_hazard_table *table, double *scratch)
{
    ptrdiff_t classes = at->classes, n = at->n, m_stride = at->m_stride, stride = at->stride;
    const double *m = at->m, *v = at->v;
    xg_range range;
    XG_EACH_LANE range.first[i] = range.high[i] = -HUGE_VAL;
    for (ptrdiff_t c = 0; c < classes; ++c) {
        double s[XG_GROUP], variance[XG_GROUP], row[XG_GROUP];
        double *k = XG_AT(c, 0), *mean = XG_AT(c, XG_MEAN);
        for (int i = 0; i < XG_GROUP; ++i) {
            ptrdiff_t point = i < n ? i : n - 1;
            variance[i] = xg_max(v[c * stride + point], 0.0);
            mean[i] = m[c * m_stride + point] + XG_EULER;
        }
        XG_EACH_LANE {
            s[i] = sqrt(variance[i] + XG_GUMBEL_VARIANCE);
            /* 1 - ratio without cancellation: v / (s (s + sd(g))) */
            double rest = variance[i] / (s[i] * (s[i] + 1.28254983016186409554));
            row[i] = xg_max(1.0 - sqrt(rest), 0.0) * (double)(table->rows - 1);
        }
        for (int i = 0; i < XG_GROUP; ++i) {
            double w[4], values[XG_HAZARD_COLUMNS];
            ptrdiff_t first = (ptrdiff_t)row[i];
            first = first > table->rows - 2 ? table->rows - 2 : first;
            const double *a = table->values + first * XG_HAZARD_COLUMNS;
            xg_spline_weights(row[i] - (double)first, w);
            for (int j = 0; j < XG_HAZARD_COLUMNS; ++j)
                values[j] = w[0] * a[j] + w[1] * a[XG_HAZARD_COLUMNS + j] + w[2] * a[2 * XG_HAZARD_COLUMNS + j] +
                            w[3] * a[3 * XG_HAZARD_COLUMNS + j];
            for (int j = 0; j < XG_HAZARD_COLUMNS; ++j)
                k[j * XG_GROUP + i] = values[j];
        }
        XG_EACH_LANE {
            double inverse = k[INVERSE_WIDTH * XG_GROUP + i] / s[i];
            double low = mean[i] + (k[CENTRE * XG_GROUP + i] + k[LEAST * XG_GROUP + i]) / inverse;
            /* P(f + g > m + reach) < exp(-XG_HIGH) (Chernoff) */
            double near = XG_HIGH + 0.5 * variance[i], far = sqrt(2.0 * XG_HIGH * variance[i]);
            double high = mean[i] + (variance[i] < 2.0 * XG_HIGH ? near : far);
            k[INVERSE_WIDTH * XG_GROUP + i] = inverse;
            range.first[i] = xg_max(range.first[i], low);
            range.high[i] = xg_max(range.high[i], high);
            XG_AT(c, XG_FIRST_SUM)[i] = XG_AT(c, XG_SECOND_SUM)[i] = 0.0;
        }
    }
    return range;
}

/* F = -log T, R and R' at t, with r_c and optionally q_c = H_c'' / H_c = r_c' + r_c^2 of every class. */
XG_INLINE void xg_hazards(ptrdiff_t classes, const double *t, int with_curve, double *scratch, double *F, double *R,
                          double *slope_of_R)
{
    double total[XG_GROUP], sum[XG_GROUP], slopes[XG_GROUP];
    XG_EACH_LANE total[i] = sum[i] = slopes[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c) {
        const double *restrict k = XG_AT(c, 0), *restrict mean = XG_AT(c, XG_MEAN);
        double *restrict r = XG_AT(c, XG_HAZARD), *restrict q = XG_AT(c, XG_CURVE);
        XG_EACH_LANE {
            double scale = k[INVERSE_WIDTH * XG_GROUP + i];
            double y = scale * (t[i] - mean[i]) - k[CENTRE * XG_GROUP + i], largest = k[LARGEST * XG_GROUP + i];
            /* Beyond the range of the polynomial psi is linear, as for a Gumbel variable. */
            double beyond = xg_max(y - largest, 0.0);
            y = xg_min(y, largest);
            double square = XG_BEND * y * y, inverse = 1.0 / (1.0 + square);
            double bent = (1.0 - XG_SLOPE) * inverse, w = y * (XG_SLOPE + bent);
            double by_y = XG_SLOPE + bent * (2.0 * inverse - 1.0); /* dw / dy */
            double value = k[XG_HAZARD_DEGREE * XG_GROUP + i], first = 0.0, second = 0.0;
#pragma GCC unroll 32
            for (int j = XG_HAZARD_DEGREE - 1; j >= 0; --j) {
                if (with_curve)
                    second = second * w + first;
                first = first * w + value;
                value = value * w + k[j * XG_GROUP + i];
            }
            double by_t = first * by_y * scale;
            double e = xg_near_exp(xg_max(xg_min(value + first * by_y * beyond, 4.0), -708.0));
            r[i] = -e * by_t;
            total[i] += e;
            sum[i] += r[i];
            if (with_curve) {
                double second_by_y = -2.0 * XG_BEND * bent * y * (3.0 - square) * inverse * inverse;
                double curvature = (2.0 * second * by_y * by_y + first * second_by_y) * scale * scale;
                double slope = -e * ((beyond > 0.0 ? 0.0 : curvature) + by_t * by_t);
                q[i] = slope + r[i] * r[i];
                slopes[i] += slope;
            }
        }
    }
    XG_EACH_LANE {
        F[i] = total[i];
        R[i] = sum[i];
        slope_of_R[i] = slopes[i];
    }
}

typedef struct {
    double low[XG_GROUP], unit[XG_GROUP], span[XG_GROUP]; /* span: from low to the end, in units */
    double growth;                                      /* exp(b k) */
    double t[XG_GROUP], weight[XG_GROUP];               /* node k and its weight, zero beyond the end */
} xg_rule;

/* The rule for a group of points, whose classes are prepared in scratch. */
XG_INLINE xg_rule xg_rule_of(const xg_moments *at, const xg_hazard_table *table, double *scratch)
{
    xg_range range = xg_prepare(at, table, scratch);
    xg_rule rule;
    double F[XG_GROUP], R[XG_GROUP], slope[XG_GROUP];
    rule.growth = 1.0 / XG_GROWTH_FACTOR;
    XG_EACH_LANE rule.low[i] = range.first[i];
    for (int step = 0; step < XG_LOW_STEPS; ++step) {
        xg_hazards(at->classes, rule.low, 0, scratch, F, R, slope);
        /* log F is nearly a line */
        XG_EACH_LANE {
            double ratio = F[i] * (1.0 / XG_LOW);
            rule.unit[i] = F[i] / R[i];
            double log_ratio = xg_log1p(xg_max(ratio - 1.0, 0.0)) - xg_log1p(xg_max(1.0 / ratio - 1.0, 0.0));
            rule.low[i] = xg_max(rule.low[i] + rule.unit[i] * log_ratio, range.first[i]);
        }
    }
    XG_EACH_LANE rule.span[i] = (range.high[i] - rule.low[i]) / rule.unit[i];
    return rule;
}

/* Move to the next node; returns 0 if it is beyond the end of every lane. */
XG_INLINE int xg_next(xg_rule *rule)
{
    const double half = 0.5 * XG_FIRST_STEP;
    double before = rule->growth, after = before * XG_GROWTH_FACTOR, last = 0.0;
    double reached = half / XG_GROWTH * (before - 1.0 / before), at = half / XG_GROWTH * (after - 1.0 / after);
    double step = half * (after + 1.0 / after);
    XG_EACH_LANE {
        rule->t[i] = rule->low[i] + rule->unit[i] * at;
        rule->weight[i] = reached < rule->span[i] ? rule->unit[i] * step : 0.0;
        last = xg_max(last, rule->weight[i]);
    }
    rule->growth = after;
    return last > 0.0;
}

#define XG_FOR_NODES(rule) for (int node = 0; node < XG_MOST_NODES && xg_next(&(rule)); ++node)

void xg_softmax_exact_chunk(const xg_moments *at, const xg_hazard_table *table, double *scratch,
                            const xg_site_arrays *out)
{
    ptrdiff_t classes = at->classes, n = at->n, m_stride = at->m_stride, stride = at->stride;
    const double *m = at->m, *y = at->y;
    double F[XG_GROUP], R[XG_GROUP], slope[XG_GROUP], mass[XG_GROUP], moment[XG_GROUP], centre[XG_GROUP];
    xg_rule rule = xg_rule_of(at, table, scratch);

    XG_EACH_LANE {
        mass[i] = moment[i] = 0.0;
        centre[i] = rule.low[i] + 3.0 * rule.unit[i]; /* about the middle */
    }
    XG_FOR_NODES(rule) {
        xg_hazards(classes, rule.t, 0, scratch, F, R, slope);
        XG_EACH_LANE {
            F[i] = rule.weight[i] * xg_exp(-F[i]);
            mass[i] += F[i] * R[i];
            moment[i] += F[i] * R[i] * (rule.t[i] - centre[i]);
        }
        for (ptrdiff_t c = 0; c < classes; ++c) {
            const double *r = XG_AT(c, XG_HAZARD);
            double *p = XG_AT(c, XG_FIRST_SUM), *precision = XG_AT(c, XG_SECOND_SUM), share[XG_GROUP];
            XG_EACH_LANE share[i] = F[i] * r[i];
            XG_EACH_LANE p[i] += share[i];
            XG_EACH_LANE precision[i] += share[i] * xg_max(R[i] - r[i], 0.0);
        }
    }
    /* The mass is one, except for the error of the rule. */
    for (int i = 0; i < n; ++i) {
        double of_label = m[(ptrdiff_t)y[i] * m_stride + i];
        out->ell[i] = xg_min((of_label - centre[i]) + (XG_EULER - moment[i] / mass[i]), 0.0);
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (int i = 0; i < n; ++i) {
            double p = XG_AT(c, XG_FIRST_SUM)[i] / mass[i], precision = XG_AT(c, XG_SECOND_SUM)[i];
            out->lambda[c * stride + i] = precision;
            out->r[c * stride + i] = ((y[i] == (double)c ? 1.0 : 0.0) - p) + precision * m[c * m_stride + i];
        }
}

/* As dp_y/dm_d = -integral of T r_y r_d, dp_y/dv_d = half the integral of T r_y q_d for d != y (a normal variable's
 * variance makes half of the second derivative), and by parts dp_y/dv_y = -half the integral of T q_y (R - r_y). */
XG_CALLED void xg_softmax_score(const xg_moments *at, const xg_hazard_table *table, double *scratch, double *value,
                                double *by_mean, double *by_variance)
{
    ptrdiff_t classes = at->classes, n = at->n, stride = at->stride;
    double F[XG_GROUP], R[XG_GROUP], slope[XG_GROUP], p[XG_GROUP], label[XG_GROUP], r_y[XG_GROUP], q_y[XG_GROUP];
    xg_rule rule = xg_rule_of(at, table, scratch);

    for (int i = 0; i < XG_GROUP; ++i) {
        p[i] = 0.0;
        label[i] = at->y[i < n ? i : n - 1];
    }
    XG_FOR_NODES(rule) {
        xg_hazards(classes, rule.t, 1, scratch, F, R, slope);
        XG_EACH_LANE r_y[i] = q_y[i] = 0.0;
        for (ptrdiff_t c = 0; c < classes; ++c)
            XG_EACH_LANE {
                r_y[i] = label[i] == (double)c ? XG_AT(c, XG_HAZARD)[i] : r_y[i];
                q_y[i] = label[i] == (double)c ? XG_AT(c, XG_CURVE)[i] : q_y[i];
            }
        XG_EACH_LANE {
            F[i] = rule.weight[i] * xg_exp(-F[i]);
            p[i] += F[i] * r_y[i];
        }
        for (ptrdiff_t c = 0; c < classes; ++c) {
            const double *restrict r = XG_AT(c, XG_HAZARD), *restrict q = XG_AT(c, XG_CURVE);
            double *restrict first = XG_AT(c, XG_FIRST_SUM), *restrict second = XG_AT(c, XG_SECOND_SUM);
            XG_EACH_LANE {
                int own = label[i] == (double)c;
                double others = R[i] - r_y[i];
                first[i] += F[i] * r_y[i] * (own ? others : -r[i]);
                second[i] += 0.5 * F[i] * (own ? -q_y[i] * others : r_y[i] * q[i]);
            }
        }
    }
    for (int i = 0; i < n; ++i) {
        p[i] = xg_max(p[i], XG_LEAST_PROBABILITY);
        value[i] = xg_min(log(p[i]), 0.0);
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (int i = 0; i < n; ++i) {
            by_mean[c * stride + i] = XG_AT(c, XG_FIRST_SUM)[i] / p[i];
            by_variance[c * stride + i] = XG_AT(c, XG_SECOND_SUM)[i] / p[i];
        }
}

/* Derivatives of sum_c a_c lambda_c + b_c p_c, a = by_lambda + by_r m and b = -by_r. Besides the formulas above, by
 * parts, for d != c
 *
 *   dlambda_c/dm_d = integral of T q_c r_d, dlambda_c/dv_d = -half the integral of T q_c q_d,
 *
 * and for d = c the same with -S and S' + S^2, S = R - r_c, instead of r_d and q_d. */
XG_CALLED void xg_softmax_pulled(const xg_moments *at, const double *by_lambda, const double *by_r,
                                 const xg_hazard_table *table, double *scratch, double *by_mean, double *by_variance)
{
    ptrdiff_t classes = at->classes, n = at->n, stride = at->stride;
    double F[XG_GROUP], R[XG_GROUP], slope[XG_GROUP], sum_a[XG_GROUP], sum_b[XG_GROUP];
    xg_rule rule = xg_rule_of(at, table, scratch);

    for (ptrdiff_t c = 0; c < classes; ++c)
        for (int i = 0; i < XG_GROUP; ++i) {
            ptrdiff_t point = c * stride + (i < n ? i : n - 1);
            XG_AT(c, XG_FIRST_WEIGHT)[i] = by_lambda[point] + by_r[point] * at->m[point];
            XG_AT(c, XG_SECOND_WEIGHT)[i] = -by_r[point];
        }
    XG_FOR_NODES(rule) {
        xg_hazards(classes, rule.t, 1, scratch, F, R, slope);
        XG_EACH_LANE sum_a[i] = sum_b[i] = 0.0;
        for (ptrdiff_t c = 0; c < classes; ++c)
            XG_EACH_LANE {
                sum_a[i] += XG_AT(c, XG_FIRST_WEIGHT)[i] * XG_AT(c, XG_CURVE)[i];
                sum_b[i] += XG_AT(c, XG_SECOND_WEIGHT)[i] * XG_AT(c, XG_HAZARD)[i];
            }
        XG_EACH_LANE F[i] = rule.weight[i] * xg_exp(-F[i]);
        for (ptrdiff_t c = 0; c < classes; ++c) {
            const double *restrict r = XG_AT(c, XG_HAZARD), *restrict q = XG_AT(c, XG_CURVE),
                         *restrict a = XG_AT(c, XG_FIRST_WEIGHT), *restrict b = XG_AT(c, XG_SECOND_WEIGHT);
            double *restrict first = XG_AT(c, XG_FIRST_SUM), *restrict second = XG_AT(c, XG_SECOND_SUM);
            XG_EACH_LANE {
                double others = R[i] - r[i], bent = (slope[i] - (q[i] - r[i] * r[i])) + others * others;
                double of_p = b[i] * R[i] - sum_b[i], of_lambda = sum_a[i] - a[i] * q[i];
                /* r = 1{c = y} - p + lambda m has the mean itself, too */
                double direct = -b[i] * r[i] * others;
                first[i] += F[i] * (r[i] * (of_p + of_lambda) - a[i] * q[i] * others + direct);
                second[i] -= 0.5 * F[i] * q[i] * (of_p + of_lambda + a[i] * bent);
            }
        }
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (int i = 0; i < n; ++i) {
            by_mean[c * stride + i] = XG_AT(c, XG_FIRST_SUM)[i];
            by_variance[c * stride + i] = XG_AT(c, XG_SECOND_SUM)[i];
        }
}

void xg_softmax_scores(const xg_moments *at, const xg_hazard_table *table, double *scratch, double *value,
                       double *by_mean, double *by_variance)
{
    for (ptrdiff_t start = 0; start < at->n; start += XG_GROUP) {
        xg_moments group = xg_moments_from(at, start, XG_GROUP);
        xg_softmax_score(&group, table, scratch, value + start, by_mean + start, by_variance + start);
    }
}

void xg_softmax_vjp(const xg_moments *at, const double *by_lambda, const double *by_r, const xg_hazard_table *table,
                    double *scratch, double *by_mean, double *by_variance)
{
    for (ptrdiff_t start = 0; start < at->n; start += XG_GROUP) {
        xg_moments group = xg_moments_from(at, start, XG_GROUP);
        xg_softmax_pulled(&group, by_lambda + start, by_r + start, table, scratch, by_mean + start,
                          by_variance + start);
    }
}
