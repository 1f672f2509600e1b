#include "multinomial.h"

/* Least variance of a latent function plus its noise. */
#define XG_NOISE_FLOOR 1e-12

/* With g = m_y + s_y x, p_y is an integral over x ~ N(0, 1) of prod Phi(z_c), z_c = a_c + b_c x, from -XG_REACH to
 * XG_REACH; 4e-10 of the mass is outside. */
#define XG_REACH 6.24
/* Beyond XG_NEAR on either side, phi counts as 0 and Phi is constant, within 1e-12 of its limit. The quadrature
 * leaves out classes that are beyond it on the right at all abscissas, and abscissas at which some class is beyond
 * it on the left. Products of factors stay above XG_TINY, because subnormal numbers are a hundred times as slow. */
#define XG_TINY 1e-100

/* Abscissas are processed in parallel, one per lane. GCC would unroll such a short loop before vectorising it, and
 * then not vectorise it. */
#define XG_EACH_LANE _Pragma("GCC unroll 1") for (int l = 0; l < XG_LANES; ++l)

/* The step of a trapezoidal rule for k other classes, in units of the least of 1 and their s_c / s_y, because the
 * product is sharper than its factors. Errors of p_y are 1e-9; with steps 1.5 times as long they are 1e-6. */
#define XG_STEP_MOST 0.52
#define XG_STEP_FACTOR 0.65
#define XG_STEP_POWER (-0.2)
/* Largest number of abscissas of a trapezoidal rule. If more would be needed, panels take hardly more time. */
#define XG_RULES 5
#define XG_RULE_NODES 208
static const int xg_rule_sizes[XG_RULES] = {24, 32, 40, 48, 64};
/* Width of the panels of the Gauss-Legendre rule with 16 nodes, in those steps; each panel has the step of the
 * classes that are not yet 1 there. For ratios of 1000 there are on average 70 abscissas for two or three classes
 * and 200 for 100, and at most 400. With 12 steps the errors are 4e-8 instead of 1e-9. */
#define XG_PANEL_STEPS 10.0
#define XG_PANEL_LEAST 1e-9
#define XG_PANEL_NODES 16
static const double xg_legendre_nodes[XG_PANEL_NODES / 2] = {
    0.09501250983763744, 0.2816035507792589, 0.45801677765722737, 0.6178762444026438,
    0.755404408355003,   0.8656312023878318, 0.9445750230732326,  0.9894009349916499};
static const double xg_legendre_weights[XG_PANEL_NODES / 2] = {
    0.18945061045506864, 0.18260341504492364, 0.16915651939500265, 0.1495959888165767,
    0.12462897125553407, 0.0951585116824926,  0.062253523938647456, 0.027152459411754176};

#define TABLES(classes) (2 * (XG_RULE_NODES + XG_PANEL_NODES) + (classes))

ptrdiff_t xg_multinomial_scratch(ptrdiff_t classes)
{
    return TABLES(classes) + (4 * XG_LANES + 3) * classes;
}

void xg_multinomial_tables(ptrdiff_t classes, double *tables)
{
    double *x = tables, *weight = x + XG_RULE_NODES + XG_PANEL_NODES;
    for (int rule = 0; rule < XG_RULES; ++rule) {
        int size = xg_rule_sizes[rule];
        double sum = 0.0;
        for (int q = 0; q < size; ++q) {
            x[q] = XG_REACH * ((2.0 * q + 1.0) / size - 1.0);
            weight[q] = xg_exp(-0.5 * x[q] * x[q]);
            sum += weight[q];
        }
        for (int q = 0; q < size; ++q)
            weight[q] /= sum;
        x += size;
        weight += size;
    }
    for (int q = 0; q < XG_PANEL_NODES / 2; ++q) {
        int left = XG_PANEL_NODES / 2 - 1 - q, right = XG_PANEL_NODES / 2 + q;
        x[left] = -xg_legendre_nodes[q];
        x[right] = xg_legendre_nodes[q];
        weight[left] = weight[right] = XG_INV_SQRT_2PI * xg_legendre_weights[q];
    }
    double *steps = tables + 2 * (XG_RULE_NODES + XG_PANEL_NODES);
    steps[0] = XG_STEP_MOST;
    for (ptrdiff_t k = 1; k < classes; ++k)
        steps[k] = xg_min(XG_STEP_MOST, XG_STEP_FACTOR * pow((double)k, XG_STEP_POWER));
}

/* One point: the classes in its quadrature, and for each shift = E[prod Phi phi(z_c) / Phi(z_c)] and scale = E[x
 * prod Phi phi(z_c) / Phi(z_c)]. */
typedef struct {
    ptrdiff_t size;
    double least; /* of 1 and all s_c / s_y = 1 / b_c */
    double *number, *a, *b, *shift, *scale, *before, *cdf;
} xg_multinomial_point;

/* The two steps of the function below, for one class. */
XG_INLINE void xg_multinomial_forward(double a, double b, const double *restrict x, double *restrict product,
                                      double *restrict before, double *restrict cdf)
{
    XG_EACH_LANE {
        double z = a + b * x[l], t = fabs(z), gauss, tail = xg_near_normal_tail(xg_min(t, XG_NEAR), &gauss);
        double value = z < 0.0 ? tail : 1.0 - tail;
        cdf[l] = value;
        before[l] = t < XG_NEAR ? product[l] * gauss : 0.0;
        product[l] = product[l] * value + XG_TINY;
    }
}

XG_INLINE void xg_multinomial_backward(const double *restrict x, const double *restrict before,
                                       const double *restrict cdf, double *restrict product, double *restrict shift,
                                       double *restrict scale)
{
    XG_EACH_LANE {
        double value = before[l] * product[l];
        shift[l] += value;
        scale[l] += x[l] * value;
        product[l] = product[l] * cdf[l] + XG_TINY;
    }
}

/* Add the terms of XG_LANES abscissas x with their weights. There is no division by Phi: before_c = weight prod_{k <
 * c} Phi(z_k) phi(z_c), times prod_{k > c} Phi(z_k). */
XG_INLINE void xg_multinomial_nodes(const xg_multinomial_point *point, const double *restrict x,
                                    const double *restrict weight, double *restrict total)
{
    double product[XG_LANES];

    XG_EACH_LANE
        product[l] = weight[l];
    for (ptrdiff_t k = 0; k < point->size; ++k)
        xg_multinomial_forward(point->a[k], point->b[k], x, product, point->before + k * XG_LANES,
                               point->cdf + k * XG_LANES);
    XG_EACH_LANE {
        total[l] += product[l];
        product[l] = XG_INV_SQRT_2PI;
    }
    for (ptrdiff_t k = point->size - 1; k >= 0; --k)
        xg_multinomial_backward(x, point->before + k * XG_LANES, point->cdf + k * XG_LANES, product,
                                point->shift + k * XG_LANES, point->scale + k * XG_LANES);
}

/* Width of the panel that begins at x: no class is sharper to the right of x than at x, because none is 0 there. */
XG_INLINE double xg_panel_width(const xg_multinomial_point *point, double x, const double *steps)
{
    double least = 1.0;
    ptrdiff_t alive = 0;
    for (ptrdiff_t k = 0; k < point->size; ++k) {
        int is_alive = point->a[k] + point->b[k] * x < XG_NEAR;
        alive += is_alive;
        least = is_alive && least * point->b[k] > 1.0 ? 1.0 / point->b[k] : least;
    }
    return xg_max(XG_PANEL_STEPS * steps[alive] * least, XG_PANEL_LEAST);
}

/* p_y of a point, integrated from the abscissa low on. */
XG_INLINE double xg_multinomial_integral(const xg_multinomial_point *point, double low, const double *tables)
{
    const double *x = tables, *weight = x + XG_RULE_NODES + XG_PANEL_NODES,
                 *steps = tables + 2 * (XG_RULE_NODES + XG_PANEL_NODES);
    double total[XG_LANES] = {0.0}, nodes_wanted = 2.0 * XG_REACH / (steps[point->size] * point->least);

    for (int rule = 0; rule < XG_RULES; ++rule) {
        ptrdiff_t size = xg_rule_sizes[rule];
        if (size >= nodes_wanted) {
            double first = (low + XG_REACH) / (2.0 * XG_REACH) * (double)size;
            for (ptrdiff_t q = (ptrdiff_t)first / XG_LANES * XG_LANES; q < size; q += XG_LANES)
                xg_multinomial_nodes(point, x + q, weight + q, total);
            return xg_sum_of_lanes(total);
        }
        x += size;
        weight += size;
    }
    for (double start = low; start < XG_REACH;) {
        double end = xg_min(start + xg_panel_width(point, start, steps), XG_REACH);
        double half = 0.5 * (end - start), middle = 0.5 * (end + start), at[XG_PANEL_NODES], mass[XG_PANEL_NODES];
        for (int q = 0; q < XG_PANEL_NODES; ++q) {
            at[q] = middle + half * x[q];
            mass[q] = half * weight[q] * xg_exp(-0.5 * at[q] * at[q]);
        }
        for (int q = 0; q < XG_PANEL_NODES; q += XG_LANES)
            xg_multinomial_nodes(point, at + q, mass + q, total);
        start = end;
    }
    return xg_sum_of_lanes(total);
}

/* The classes of a point that are below 1 at the abscissa low; the classes of a chunk are pitch doubles apart. */
XG_INLINE void xg_multinomial_begin(xg_multinomial_point *point, ptrdiff_t classes, ptrdiff_t pitch,
                                    const double *restrict a, const double *restrict b, double low)
{
    double most = 1.0;
    ptrdiff_t size = 0;

    for (ptrdiff_t c = 0; c < classes; ++c) {
        double a_c = a[c * pitch], b_c = b[c * pitch], z = a_c + b_c * low;
        int is_alive = z < XG_NEAR && z > -HUGE_VAL; /* minus infinity is of moments that are not finite */
        point->number[size] = (double)c;
        point->a[size] = a_c;
        point->b[size] = b_c;
        most = is_alive ? xg_max(most, b_c) : most;
        size += is_alive;
    }
    point->size = size;
    point->least = 1.0 / most;
    for (ptrdiff_t k = 0; k < XG_LANES * size; ++k)
        point->shift[k] = point->scale[k] = 0.0;
}

void xg_multinomial_chunk(const xg_moments *restrict at, double noise, double delta, double *tables,
                          double *restrict scratch, const xg_site_arrays *restrict out)
{
    XG_CHUNK_FIELDS
    ptrdiff_t block = classes * pitch, lanes = XG_LANES * classes;
    double *a = scratch, *b = a + block, *inverse = b + block, *shift = inverse + block, *scale = shift + block,
           *low = scale + block, *m_y = low + pitch, *s_y = m_y + pitch, *mean_y = s_y + pitch,
           *variance_y = mean_y + pitch, *work = tables + TABLES(classes), *of_classes = work + 4 * lanes;
    xg_multinomial_point point = {0, 1.0, of_classes, of_classes + classes, of_classes + 2 * classes,
                                  work, work + lanes, work + 2 * lanes, work + 3 * lanes};
    double wrong = log(delta / (double)(classes - 1)), gain = log1p(-delta) - wrong;

    xg_of_label(classes, n, pitch, m, y, m_y);
    xg_of_label(classes, n, stride, v, y, s_y);
    for (ptrdiff_t i = 0; i < n; ++i) {
        s_y[i] = sqrt(xg_max(s_y[i] + noise, XG_NOISE_FLOOR));
        low[i] = -XG_REACH;
        mean_y[i] = variance_y[i] = 0.0;
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double s = sqrt(xg_max(v[c * stride + i] + noise, XG_NOISE_FLOOR)), precise = 1.0 / s;
            double distance = m_y[i] - m[c * pitch + i], first = -(distance + XG_NEAR * s) / s_y[i];
            int is_label = y[i] == (double)c;
            /* The label's own factor is 1 everywhere. */
            a[c * pitch + i] = is_label ? HUGE_VAL : distance * precise;
            b[c * pitch + i] = is_label ? 0.0 : s_y[i] * precise;
            inverse[c * pitch + i] = precise;
            /* In this order a first that is NaN, of means that are not finite, leaves the abscissas in their range. */
            low[i] = is_label ? low[i] : xg_max(first, low[i]);
            shift[c * pitch + i] = scale[c * pitch + i] = 0.0;
        }
    for (ptrdiff_t i = 0; i < n; ++i) {
        xg_multinomial_begin(&point, classes, pitch, a + i, b + i, low[i]);
        ell[i] = wrong + gain * (low[i] < XG_REACH ? xg_multinomial_integral(&point, low[i], tables) : 0.0);
        for (ptrdiff_t k = 0; k < point.size; ++k) {
            ptrdiff_t place = (ptrdiff_t)point.number[k] * pitch + i;
            shift[place] = xg_sum_of_lanes(point.shift + k * XG_LANES);
            scale[place] = xg_sum_of_lanes(point.scale + k * XG_LANES);
        }
    }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double precise = inverse[c * pitch + i], by_mean = precise * shift[c * pitch + i];
            double by_scale = precise * scale[c * pitch + i];
            /* d p_y / d v_c = -(a_c shift + b_c scale) / (2 s_c^2) */
            double distance = m_y[i] - m[c * pitch + i];
            double precision = gain * precise * precise * (distance * by_mean + s_y[i] * by_scale);
            lambda[c * stride + i] = precision;
            r[c * stride + i] = precision * m[c * pitch + i] - gain * by_mean;
            mean_y[i] += by_mean;
            variance_y[i] += by_scale;
        }
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i) {
            double precision = -gain * variance_y[i] / s_y[i];
            double linear = gain * mean_y[i] + precision * m_y[i];
            lambda[c * stride + i] = y[i] == (double)c ? precision : lambda[c * stride + i];
            r[c * stride + i] = y[i] == (double)c ? linear : r[c * stride + i];
        }
}
