#include "largest.h"

/* Nodes low + unit a sinh(b k), k = 0, 1, ..., whose steps grow with the distance from low, as those of softmax.c:
 * b = XG_GROWTH, a b = XG_FIRST_STEP, and unit = F / R at low, where F = -log T is about XG_LOW, and R = -F'. Errors of
 * probabilities are below 1e-8 (tests/test_links.py). With steps of .15 that grow by .1 they are 4e-7, and with F = 48
 * at low 1e-8, because unit grows with F; with a smaller F more is missed left of low. */
#define XG_LOW 40.0
#define XG_FIRST_STEP .1
#define XG_GROWTH .08
/* Newton's method ends where a step is below XG_LOW_NEAR units, mostly after two steps, or after XG_LOW_STEPS. */
#define XG_LOW_STEPS 60
#define XG_LOW_NEAR .15
/* Most nodes; b is larger where the end is more than 1e33 units from low. */
#define XG_MOST_NODES 1024

/* A smaller probability is summed in logarithms. */
#define XG_TINY 1e-200
/* Below XG_LOG_LEAST, the integrand may be largest left of low, or narrow and close to it: left of node XG_TOP. (A
 * narrow class farther to the right would make F larger at low.) Two nodes around its maximum are near enough if its
 * logarithm is a parabola to within XG_PEAK_NEAR, which leaves errors of 1e-3 of log p; at most XG_PEAK_ROUNDS times
 * XG_LANES nodes are put between them. */
#define XG_LOG_LEAST -30.0
#define XG_TOP 7
#define XG_PEAK_NEAR .1
#define XG_PEAK_ROUNDS 30
#define XG_LOG_2PI 1.83787706640934548356

/* exp(64), so that arguments of xg_exp are below 0. */
#define XG_EXP_64 6235149080811616882910000000.0

/* The derivatives of xg_spline_weights by s. */
XG_INLINE void xg_spline_slopes(double s, double *w)
{
    double r = 1.0 - s;
    w[0] = -0.5 * r * r;
    w[1] = s * (1.5 * s - 2.0);
    w[2] = -r * (1.5 * r - 2.0);
    w[3] = 0.5 * s * s;
}

XG_CALLED void xg_row(ptrdiff_t n, ptrdiff_t start, const double *w, const double *restrict a, double *restrict out)
{
    for (ptrdiff_t j = start; j < n; ++j)
        out[j] = w[0] * a[j] + w[1] * a[n + j] + w[2] * a[2 * n + j] + w[3] * a[3 * n + j];
}

/* row has the coefficients of psi and then those of slope, in the columns of the table. */
XG_CALLED void xg_along_row(const xg_table *restrict table, const double *restrict row, double centre, double scale,
                            ptrdiff_t n, const double *restrict t, double *restrict psi, double *restrict slope,
                            double *restrict bend)
{
    ptrdiff_t columns = table->columns;
    const double *a = row, *b = row + columns + 2;
    double low = table->low, high = table->high;
    double per_column = (double)(columns - 1) / (high - low), per_scale = 1.0 / scale;
    for (ptrdiff_t k = 0; k < n; ++k) {
        double w[4], x = (t[k] - centre) * per_scale;
        double at = (xg_min(xg_max(x, low), high) - low) * per_column;
        int j = (int)at;
        j = j > (int)columns - 2 ? (int)columns - 2 : j;
        xg_spline_weights(at - j, w);
        psi[k] = w[0] * a[j] + w[1] * a[j + 1] + w[2] * a[j + 2] + w[3] * a[j + 3];
        slope[k] = w[0] * b[j] + w[1] * b[j + 1] + w[2] * b[j + 2] + w[3] * b[j + 3];
        if (!bend)
            continue;
        xg_spline_slopes(at - j, w);
        bend[k] = per_column * (w[0] * b[j] + w[1] * b[j + 1] + w[2] * b[j + 2] + w[3] * b[j + 3]);
    }
}

/* Coefficients along a row of the table, which hold from x = least on. */
static void xg_gumbel_row(const xg_table *table, double row, double least, double *out)
{
    /* A row that is NaN counts as the first, and its results are NaN. */
    ptrdiff_t width = table->columns + 2, first = (ptrdiff_t)xg_min(xg_max(row, 0.0), (double)(table->rows - 2));
    /* With one column more, as a node there may be rounded to the left. */
    double column = (least - table->low) / (table->high - table->low) * (double)(table->columns - 1);
    ptrdiff_t start = (ptrdiff_t)xg_min(xg_max(column - 1.0, 0.0), (double)(table->columns - 2));
    double w[4];
    xg_spline_weights(row - (double)first, w);
    xg_row(width, start, w, table->psi + first * width, out);
    xg_row(width, start, w, table->slope + first * width, out + width);
}

/* psi = log(-log H), slope = -d psi / dt and, unless NULL, bend = d slope / dt at n values t. H is the distribution
 * function of f + g, f normal with some mean and g Gumbel, with standard deviation scale. The table has both functions at
 * the row of the coefficients and x = (t - mean - XG_EULER) / scale.
 *
 * Left of the table, psi follows the logarithm of the normal distribution function. Right of it, the hazard grows as
 * the normal one until it reaches that of the Gumbel distribution, which is one. */
static void xg_gumbel_along(const xg_table *table, const double *row, double mean, double scale, ptrdiff_t n,
                            const double *t, double *psi, double *slope, double *bend)
{
    double low = table->low, high = table->high, per_scale = 1.0 / scale, centre = mean + XG_EULER;
    xg_along_row(table, row, centre, scale, n, t, psi, slope, bend);
    for (ptrdiff_t k = 0; k < n; ++k) {
        double x = (t[k] - centre) * per_scale;
        if (x < low) {
            psi[k] -= low * slope[k] * log1p((x - low) / low);
            slope[k] *= low / x;
            if (bend)
                bend[k] = -slope[k] / x;
        }
        if (x > high) {
            double right = x - high, bent = xg_min(right, xg_max(scale - slope[k], 0.0));
            psi[k] -= bent * (slope[k] + 0.5 * bent) + (right - bent) * (slope[k] + bent);
            slope[k] += bent;
            if (bend)
                bend[k] = bent < right ? 0.0 : 1.0;
        }
        slope[k] *= per_scale;
        if (bend)
            bend[k] *= per_scale * per_scale;
    }
}

/* (t - mean) / scale, so small that its square is within the range of a double. */
XG_INLINE double xg_argument(double t, double mean, double precise)
{
    return xg_min(xg_max((t - mean) * precise, -1e150), 1e150);
}

/* Of one class at n nodes t: e = -log H, r and, unless NULL, bend = h' / h. */
XG_CALLED void xg_normal_hazard(double mean, double scale, ptrdiff_t n, const double *restrict t, double *restrict e,
                                double *restrict r, double *restrict bend)
{
    double precise = 1.0 / scale;
    for (ptrdiff_t k = 0; k < n; ++k) {
        double z = xg_argument(t[k], mean, precise), x = fabs(z), square = 0.5 * x * x;
        /* The ratio of Phi(-x) to exp(-x^2 / 2) is exact where both vanish. */
        double ratio = xg_tail_polynomial((x - 4.0) / (x + 4.0)) / (x + 1.0), gauss = xg_exp(-square);
        double tail = gauss * ratio, right = 1.0 / (1.0 - tail);
        e[k] = (z < 0.0 ? square : 0.0) + xg_log1p(z < 0.0 ? 1.0 / ratio - 1.0 : tail * right);
        r[k] = XG_INV_SQRT_2PI * precise * (z < 0.0 ? 1.0 / ratio : gauss * right);
        if (bend)
            bend[k] = -z * precise;
    }
}

XG_CALLED void xg_gumbel_hazard(const xg_table *table, const double *row, double mean, double scale, ptrdiff_t n,
                                const double *restrict t, double *restrict e, double *restrict r,
                                double *restrict bend)
{
    xg_gumbel_along(table, row, mean, scale, n, t, e, r, bend);
    for (ptrdiff_t k = 0; k < n; ++k) {
        double slope = r[k];
        e[k] = XG_EXP_64 * xg_exp(xg_min(e[k] - 64.0, 0.0));
        r[k] = slope * e[k];
        if (bend)
            bend[k] = bend[k] / slope - slope + r[k];
    }
}

/* Doubles of a class in arrays of nodes: not a power of two, so that those of several classes fit into a cache. */
#define XG_STRIDE (XG_MOST_NODES + XG_LANES)

/* Scratch */
typedef struct {
    double *t, *mass, *F, *R, *e; /* of a point */
    double *r, *bend, *rows;      /* of its classes */
    ptrdiff_t n, width;           /* number of nodes; doubles of a class in rows */
    double low, unit;
} xg_work;

static ptrdiff_t xg_row_width(const xg_table *table) { return table->psi ? 2 * (table->columns + 2) : 0; }

ptrdiff_t xg_largest_scratch(const xg_table *table, ptrdiff_t classes)
{
    return 5 * XG_MOST_NODES + classes * (2 * XG_STRIDE + xg_row_width(table));
}

/* exp(b k) and its inverse for a node k, b, and exp(b). */
typedef struct {
    double growth, inverse, b, factor;
} xg_rule;

/* The rule for a distance, in units, that the nodes have to reach. */
static xg_rule xg_rule_for(double distance)
{
    double b = xg_max(XG_GROWTH, log(distance) / (XG_MOST_NODES - 8 * XG_LANES));
    return (xg_rule){1.0, 1.0, b, exp(b)};
}

/* (node k - low) / unit of the rule, whose k grows by one. */
static double xg_next_place(xg_rule *rule)
{
    double place = 0.5 * XG_FIRST_STEP / rule->b * (rule->growth - rule->inverse);
    rule->growth *= rule->factor;
    rule->inverse /= rule->factor;
    return place;
}

/* Coefficients of the table for all classes, from a node on. */
static void xg_read_rows(const xg_values *at, double first, const xg_work *work)
{
    for (ptrdiff_t c = 0; at->table->psi && c < at->classes; ++c)
        xg_gumbel_row(at->table, at->row[c], (first - at->mean[c] - XG_EULER) / at->scale[c],
                      work->rows + c * work->width);
}

/* Sets F, R, r and, if wanted, bend of n nodes from a number on. */
static void xg_hazards(const xg_values *at, ptrdiff_t start, ptrdiff_t n, int with_bend, const xg_work *work)
{
    double *F = work->F + start, *R = work->R + start, *t = work->t + start;
    for (ptrdiff_t k = 0; k < n; ++k)
        F[k] = R[k] = 0.0;
    for (ptrdiff_t c = 0; c < at->classes; ++c) {
        double *r = work->r + c * XG_STRIDE + start;
        double *bend = with_bend ? work->bend + c * XG_STRIDE + start : NULL;
        if (at->table->psi)
            xg_gumbel_hazard(at->table, work->rows + c * work->width, at->mean[c], at->scale[c], n, t, work->e, r,
                             bend);
        else
            xg_normal_hazard(at->mean[c], at->scale[c], n, t, work->e, r, bend);
        for (ptrdiff_t k = 0; k < n; ++k) {
            F[k] += work->e[k];
            R[k] += r[k];
        }
    }
}

/* Nodes of a point, their masses, which are weights times T, and the hazards of its classes. */
static xg_work xg_nodes(const xg_values *at, int with_bend, double *scratch)
{
    const ptrdiff_t most = XG_MOST_NODES;
    double *of_classes = scratch + 5 * most;
    xg_work work = {scratch, scratch + most, scratch + 2 * most, scratch + 3 * most, scratch + 4 * most, of_classes,
                    of_classes + at->classes * XG_STRIDE, of_classes + 2 * at->classes * XG_STRIDE, 0,
                    xg_row_width(at->table), at->first, 1.0};
    xg_rule rule;
    double least = at->first, most_low = at->end, place = -1.0, span;
    xg_read_rows(at, at->first, &work);
    /* F falls from XG_LOW or more at ``least`` to less at ``most_low``: Newton's method for cbrt(F), or half of the
     * interval where that leaves it. (log F is a line for Gumbel variables, sqrt(F) nearly one for normal ones.) */
    for (int step = 0; step < XG_LOW_STEPS; ++step) {
        double units, next;
        work.t[0] = work.low;
        xg_hazards(at, 0, 1, 0, &work);
        work.unit = work.F[0] / work.R[0];
        units = 3.0 - 3.0 * cbrt(XG_LOW / work.F[0]);
        if (fabs(units) < XG_LOW_NEAR || (work.low == at->first && units < 0.0))
            break;
        if (units > 0.0)
            least = work.low;
        else
            most_low = work.low;
        next = work.low + work.unit * units;
        work.low = next > least && next < most_low ? next : 0.5 * (least + most_low);
    }
    /* The last node with weight is the first beyond the end. Nodes without weight fill the vector. */
    span = (xg_max(at->end, work.low + at->reach) - work.low) / work.unit;
    rule = xg_rule_for(span);
    do {
        work.mass[work.n] = place < span ? 0.5 * XG_FIRST_STEP * work.unit * (rule.growth + rule.inverse) : 0.0;
        place = xg_next_place(&rule);
        work.t[work.n++] = work.low + work.unit * place;
    } while (work.n < most && (work.n % XG_LANES || place < span));
    xg_hazards(at, 0, work.n, with_bend, &work);
    for (ptrdiff_t k = 0; k < work.n; ++k)
        work.mass[k] *= xg_exp(-work.F[k]);
    return work;
}

static double xg_dot(ptrdiff_t n, const double *restrict x, const double *restrict y)
{
    double sum[XG_LANES] = {0.0};
    for (ptrdiff_t k = 0; k < n; k += XG_LANES)
        for (int l = 0; l < XG_LANES; ++l)
            sum[l] += x[k + l] * y[k + l];
    return xg_sum_of_lanes(sum);
}

/* log r of a class at n nodes t so far right of its mean that r leaves the range of a double, and H is one. */
static void xg_log_hazard(const xg_values *at, const xg_work *work, ptrdiff_t c, ptrdiff_t n, const double *t,
                          double *slope, double *out)
{
    double mean = at->mean[c], precise = 1.0 / at->scale[c];
    if (at->table->psi)
        xg_gumbel_along(at->table, work->rows + c * work->width, mean, at->scale[c], n, t, out, slope, NULL);
    for (ptrdiff_t k = 0; k < n; ++k) {
        double z = xg_argument(t[k], mean, precise);
        out[k] = at->table->psi ? out[k] + log(slope[k]) : log(XG_INV_SQRT_2PI * precise) - 0.5 * z * z;
    }
}

/* log of the integral for a class whose terms leave the range of a double; overwrites the class's hazards. */
static double xg_log_integral(const xg_values *at, const xg_work *work, ptrdiff_t c)
{
    double *term = work->e, top = -HUGE_VAL, sum = 0.0;
    xg_log_hazard(at, work, c, work->n, work->t, work->r + c * XG_STRIDE, term);
    for (ptrdiff_t k = 0; k < work->n; ++k) {
        term[k] += work->mass[k] > 0.0 ? log(work->mass[k]) : -HUGE_VAL;
        top = xg_max(top, term[k]);
    }
    for (ptrdiff_t k = 0; k < work->n; ++k)
        sum += exp(term[k] - top);
    return top + log(sum);
}

/* Derivative of log(T r_c) at a node. */
static double xg_rise(const xg_work *work, ptrdiff_t c, ptrdiff_t k)
{
    return work->R[k] - work->r[c * XG_STRIDE + k] + work->bend[c * XG_STRIDE + k];
}

/* log(T r_c) at a node, and its derivative. */
typedef struct {
    double t, level, rise;
} xg_node;

static xg_node xg_node_of(const xg_values *at, const xg_work *work, ptrdiff_t c, ptrdiff_t k)
{
    double r = work->r[c * XG_STRIDE + k], slope, log_r = log(r);
    if (r < XG_TINY)
        xg_log_hazard(at, work, c, 1, work->t + k, &slope, &log_r);
    return (xg_node){work->t[k], log_r - work->F[k], xg_rise(work, c, k)};
}

/* log of the integral of T r_c, which is log-concave, by Laplace's method on a parabola around its maximum; log(T r_c)
 * rises at one node and falls at the other. Overwrites nodes from ``start`` on. */
static double xg_log_peak(const xg_values *at, const xg_work *work, ptrdiff_t c, xg_node left, xg_node right,
                          ptrdiff_t start)
{
    double width = right.t - left.t, share = left.rise / (left.rise - right.rise);
    /* The maximum is left of the last node. */
    if (!(left.rise > 0.0))
        return left.level;
    for (int round = 0; round < XG_PEAK_ROUNDS; ++round) {
        ptrdiff_t k = 0;
        if (fabs(right.level - left.level - 0.5 * width * (left.rise + right.rise)) < XG_PEAK_NEAR)
            break;
        for (ptrdiff_t l = 0; l < XG_LANES; ++l)
            work->t[start + l] = left.t + width * (double)(l + 1) / (XG_LANES + 1);
        xg_hazards(at, start, XG_LANES, 1, work);
        while (k < XG_LANES && xg_rise(work, c, start + k) > 0.0)
            ++k;
        left = k ? xg_node_of(at, work, c, start + k - 1) : left;
        right = k < XG_LANES ? xg_node_of(at, work, c, start + k) : right;
        width = right.t - left.t;
        share = left.rise / (left.rise - right.rise);
    }
    return (1.0 - share) * (left.level + 0.5 * share * width * left.rise) +
           share * (right.level - 0.5 * (1.0 - share) * width * right.rise) +
           0.5 * (XG_LOG_2PI + log(width / (left.rise - right.rise)));
}

/* log p of the classes where it is infinite, whose T r_c is largest left of node XG_TOP; other nodes go left of it. */
static void xg_peaks(const xg_values *at, const xg_work *work, double *log_p)
{
    ptrdiff_t n = 0, most = XG_MOST_NODES - XG_LANES;
    xg_rule rule;
    double top = work->t[XG_TOP], least = top;
    for (ptrdiff_t c = 0; c < at->classes; ++c)
        least = log_p[c] == HUGE_VAL ? xg_min(least, at->mean[c]) : least;
    rule = xg_rule_for((top - least) / work->unit);
    do
        work->t[n] = top - work->unit * xg_next_place(&rule);
    while (work->t[n++] > least && n < most);
    xg_read_rows(at, work->t[n - 1], work);
    xg_hazards(at, 0, n, 1, work);
    for (ptrdiff_t c = 0; c < at->classes; ++c) {
        ptrdiff_t k = 1;
        if (log_p[c] != HUGE_VAL)
            continue;
        while (k < n - 1 && xg_rise(work, c, k) <= 0.0)
            ++k;
        log_p[c] = xg_log_peak(at, work, c, xg_node_of(at, work, c, k), xg_node_of(at, work, c, k - 1), n);
    }
}

/* log_p less the logarithm of the sum of all p, exact for a class that is nearly certain, too. */
static void xg_normalise(ptrdiff_t classes, double *log_p)
{
    ptrdiff_t top = 0;
    double others = 0.0, log_sum, log_largest;
    for (ptrdiff_t c = 1; c < classes; ++c)
        top = log_p[c] > log_p[top] ? c : top;
    log_largest = log_p[top];
    for (ptrdiff_t c = 0; c < classes; ++c)
        others += c == top ? 0.0 : exp(log_p[c] - log_largest);
    log_sum = log1p(others);
    for (ptrdiff_t c = 0; c < classes; ++c)
        log_p[c] = c == top ? -log_sum : (log_p[c] - log_largest) - log_sum;
}

void xg_largest(const xg_values *at, double *scratch, double *log_p)
{
    xg_work work = xg_nodes(at, 0, scratch);
    int is_small = 0, is_cut = 0;
    for (ptrdiff_t c = 0; c < at->classes; ++c) {
        double sum = xg_dot(work.n, work.mass, work.r + c * XG_STRIDE);
        log_p[c] = sum < XG_TINY ? xg_log_integral(at, &work, c) : log(sum);
        is_small |= log_p[c] < XG_LOG_LEAST;
    }
    if (is_small)
        xg_hazards(at, XG_TOP, 1, 1, &work);
    for (ptrdiff_t c = 0; is_small && c < at->classes; ++c)
        if (log_p[c] < XG_LOG_LEAST && xg_rise(&work, c, XG_TOP) < 0.0 && at->mean[c] < work.t[XG_TOP]) {
            log_p[c] = HUGE_VAL;
            is_cut = 1;
        }
    if (is_cut)
        xg_peaks(at, &work, log_p);
    xg_normalise(at->classes, log_p);
}

void xg_largest_slopes(const xg_values *at, double *scratch, double *slopes)
{
    xg_work work = xg_nodes(at, 1, scratch);
    ptrdiff_t C = at->classes;
    double *by_mean = slopes, *by_variance = slopes + C * C;
    for (ptrdiff_t c = 0; c < C; ++c) {
        by_mean[c * C + c] = by_variance[c * C + c] = 0.0;
        /* h' / H in place of h' / h */
        for (ptrdiff_t k = 0; k < work.n; ++k)
            work.bend[c * XG_STRIDE + k] *= work.r[c * XG_STRIDE + k];
    }
    for (ptrdiff_t y = 0; y < C; ++y) {
        for (ptrdiff_t k = 0; k < work.n; ++k)
            work.e[k] = work.mass[k] * work.r[y * XG_STRIDE + k];
        for (ptrdiff_t c = 0; c < C; ++c) {
            if (c == y)
                continue;
            double of_mean = xg_dot(work.n, work.e, work.r + c * XG_STRIDE);
            double of_variance = 0.5 * xg_dot(work.n, work.e, work.bend + c * XG_STRIDE);
            by_mean[y * C + c] = -of_mean;
            by_mean[c * C + c] += of_mean;
            by_variance[y * C + c] = of_variance;
            by_variance[c * C + c] -= of_variance;
        }
    }
}
