/* Kernels that are products over features: of Matern kernels kappa of one feature each, nu = 1/2 or 3/2.
 *
 * With t_j = |x_j - z_j|, the features divided by their length scales, the logarithm of k is the sum over j of
 * log kappa(t_j): -t_j for nu = 1/2, log(1 + sqrt(3) t_j) - sqrt(3) t_j for nu = 3/2. No product of matrices has it. */
#include "lanes.inc.h"
#include "profiles.h"

/* Features, points, and vectors of rows that are worked on at a time: one logarithm serves so many features, as many
 * sums are under way as the latency of additions needs, and a load of a row serves four points. If a product of FEATURES
 * growths overflows, one of the differences is above 2^15, where the kernel is 0, whatever finite logarithm ``xg_log1p``
 * has for infinity. */
#define FEATURES 64
#define POINTS 4
#define VECTORS 2

/* The first size elements, and zeros. */
XG_INLINE lanes load(const double *x, ptrdiff_t size)
{
    lanes value = {0.0};
    if (size >= XG_WIDTH)
        return *(const lanes *)x;
    memcpy(&value, x, (size_t)size * sizeof *x);
    return value;
}

XG_INLINE void store(lanes value, double *out, ptrdiff_t size)
{
    if (size >= XG_WIDTH)
        *LANES(out) = value;
    else
        memcpy(out, &value, (size_t)size * sizeof *out);
}

/* Rows i, ..., i + V XG_WIDTH - 1, or ``size`` of them, and C points from k on; V, C and is_smooth are constants. */
XG_INLINE void logarithms(const int is_smooth, const int V, const int C, const xg_profile_tile *tile, ptrdiff_t i,
                          ptrdiff_t size, ptrdiff_t k, double *out)
{
    ptrdiff_t n = tile->n, d = tile->d;
    const double *x = tile->x + i, *z = tile->z + k * d;
    lanes distance[VECTORS][POINTS], growth[VECTORS][POINTS], sum[VECTORS][POINTS];
    for (int v = 0; v < V; ++v)
        for (int c = 0; c < C; ++c)
            distance[v][c] = sum[v][c] = (lanes){0.0};
    for (ptrdiff_t first = 0; first < d; first += FEATURES) {
        ptrdiff_t last = SMALLER(first + FEATURES, d);
        for (int v = 0; v < V; ++v)
            for (int c = 0; c < C; ++c)
                growth[v][c] = (lanes){0.0} + 1.0;
        for (ptrdiff_t j = first; j < last; ++j)
            for (int v = 0; v < V; ++v) {
                lanes here = load(x + j * n + v * XG_WIDTH, size);
                for (int c = 0; c < C; ++c) {
                    distance[v][c] += absolute(here - z[c * d + j]);
                    if (is_smooth)
                        growth[v][c] *= growth_of(here - z[c * d + j]);
                }
            }
        for (int v = 0; is_smooth && v < V; ++v) {
            const double *product = (const double *)growth[v];
            double *to = (double *)sum[v];
            for (int e = 0; e < C * XG_WIDTH; ++e)
                to[e] += xg_log1p(product[e] - 1.0);
        }
    }
    for (int v = 0; v < V; ++v)
        for (int c = 0; c < C; ++c) {
            lanes total = sum[v][c] - (is_smooth ? ROOT_3 : 1.0) * distance[v][c];
            for (int l = 0; l < XG_WIDTH; ++l)
                total[l] = xg_min(xg_max(total[l], XG_FARTHEST), 0.0);
            store(total, out + (k + c) * n + i + v * XG_WIDTH, size);
        }
}

XG_INLINE void logarithms_of_rows(const int is_smooth, const int V, const xg_profile_tile *tile, ptrdiff_t i,
                                  ptrdiff_t size, double *out)
{
    ptrdiff_t k = 0;
    for (; k + POINTS <= tile->m; k += POINTS)
        logarithms(is_smooth, V, POINTS, tile, i, size, k, out);
    for (; k < tile->m; ++k)
        logarithms(is_smooth, V, 1, tile, i, size, k, out);
}

void xg_axis_logarithms(const xg_profile_tile *tile, double *out)
{
    const ptrdiff_t together = VECTORS * XG_WIDTH;
    const int is_smooth = tile->family == XG_AXIS_MATERN_32;
    ptrdiff_t n = tile->n, i = 0;
    for (; i + together <= n; i += together)
        XG_WITH(is_smooth, 1, 0, logarithms_of_rows, VECTORS, tile, i, XG_WIDTH, out);
    for (; i < n; i += XG_WIDTH)
        XG_WITH(is_smooth, 1, 0, logarithms_of_rows, 1, tile, i, n - i, out);
}

/* Slopes of a vector of rows from i on, or of the ``size`` that are left, by feature j of C points from k on, and the
 * differences. */
XG_INLINE void slopes_at(const int is_smooth, const int C, const xg_profile_tile *tile, ptrdiff_t k, ptrdiff_t j,
                         ptrdiff_t i, ptrdiff_t size, const double *weight, lanes *difference, lanes *slope)
{
    ptrdiff_t n = tile->n, d = tile->d;
    lanes here = load(tile->x + j * n + i, size), at[POINTS];
    for (int c = 0; c < C; ++c) {
        difference[c] = here - tile->z[(k + c) * d + j];
        at[c] = load(weight + (k + c) * n + i, size);
    }
    log_slopes(is_smooth, C, at, difference, slope);
}

/* Adds the slopes of ``size`` rows from i on to sums. */
XG_INLINE void add_slopes(const int is_smooth, const int C, const xg_profile_tile *tile, ptrdiff_t k, ptrdiff_t j,
                          ptrdiff_t i, ptrdiff_t size, const double *weight, lanes *by_point, lanes *by_scale)
{
    lanes difference[POINTS], slope[POINTS];
    slopes_at(is_smooth, C, tile, k, j, i, size, weight, difference, slope);
    for (int c = 0; c < C; ++c) {
        by_point[c] += slope[c];
        by_scale[c] += slope[c] * difference[c];
    }
}

/* Sums over the rows for feature j and C points from k on; is_smooth and C are constants. */
XG_INLINE void slopes(const int is_smooth, const int C, const xg_profile_tile *tile, ptrdiff_t k, ptrdiff_t j,
                      const double *weight, double *by_points, double *by_scales)
{
    ptrdiff_t n = tile->n, i = 0;
    lanes by_point[POINTS], by_scale[POINTS];
    for (int c = 0; c < C; ++c)
        by_point[c] = by_scale[c] = (lanes){0.0};
    for (; i + XG_WIDTH <= n; i += XG_WIDTH)
        add_slopes(is_smooth, C, tile, k, j, i, XG_WIDTH, weight, by_point, by_scale);
    if (i < n)
        add_slopes(is_smooth, C, tile, k, j, i, n - i, weight, by_point, by_scale);
    for (int c = 0; c < C; ++c) {
        by_points[(k + c) * tile->d + j] += sum_of(by_point[c]);
        by_scales[j] += sum_of(by_scale[c]);
    }
}

/* Which of some features have at most two values in a tile, as most columns of tables with categories do, and these
 * values, that of the first row as ``low``. For a point, all rows of a value have the same slope, so that their weights
 * are added up instead. */
typedef struct {
    int is_binary[FEATURES];
    double low[FEATURES], high[FEATURES];
} features;

XG_CALLED features features_from(const xg_profile_tile *tile, ptrdiff_t first, ptrdiff_t last)
{
    features part;
    for (ptrdiff_t j = first; j < last; ++j) {
        const double *x = tile->x + j * tile->n;
        double low = x[0], high = x[0];
        ptrdiff_t i = 0;
        for (; i < tile->n && (x[i] == low || x[i] == high || low == high); ++i)
            high = x[i] == low ? high : x[i];
        part.is_binary[j - first] = i == tile->n;
        part.low[j - first] = low;
        part.high[j - first] = high;
    }
    return part;
}

/* Adds the weights of ``size`` rows from i on to sums; only of rows whose feature x is high, unless x is NULL. */
XG_INLINE void add_weights(const int C, ptrdiff_t n, ptrdiff_t i, ptrdiff_t size, const double *weight,
                           const double *x, double high, lanes *sum)
{
    for (int c = 0; c < C; ++c) {
        lanes at = load(weight + c * n + i, size);
        sum[c] += x == NULL ? at : (lanes)((lane_bits)at & (load(x + i, size) == high));
    }
}

XG_INLINE void weights_of(const int C, ptrdiff_t n, const double *weight, const double *x, double high, double *sums)
{
    ptrdiff_t i = 0;
    lanes sum[POINTS];
    for (int c = 0; c < C; ++c)
        sum[c] = (lanes){0.0};
    for (; i + XG_WIDTH <= n; i += XG_WIDTH)
        add_weights(C, n, i, XG_WIDTH, weight, x, high, sum);
    if (i < n)
        add_weights(C, n, i, n - i, weight, x, high, sum);
    for (int c = 0; c < C; ++c)
        sums[c] = sum_of(sum[c]);
}

/* The same as ``slopes`` for a binary feature; total has the sums of all weights of the points. That of low values is a
 * difference, exact to the rounding of the total: to add up both takes twice as long. */
XG_INLINE void binary_slopes(const int is_smooth, const int C, const xg_profile_tile *tile, ptrdiff_t k, ptrdiff_t j,
                             double low, double high, const double *weight, const double *total, double *by_points,
                             double *by_scales)
{
    double of_high[POINTS];
    weights_of(C, tile->n, weight + k * tile->n, tile->x + j * tile->n, high, of_high);
    for (int c = 0; c < C; ++c) {
        double z = tile->z[(k + c) * tile->d + j];
        double at_low = log_slope(is_smooth, total[c] - of_high[c], low - z);
        double at_high = log_slope(is_smooth, of_high[c], high - z);
        by_points[(k + c) * tile->d + j] += at_low + at_high;
        by_scales[j] += at_low * (low - z) + at_high * (high - z);
    }
}

XG_INLINE void slopes_of(const int is_smooth, const int C, const xg_profile_tile *tile, const features *part,
                         ptrdiff_t first, ptrdiff_t last, ptrdiff_t k, const double *weight, double *by_points,
                         double *by_scales)
{
    double total[POINTS];
    weights_of(C, tile->n, weight + k * tile->n, NULL, 0.0, total);
    for (ptrdiff_t j = first; j < last; ++j)
        if (part->is_binary[j - first])
            binary_slopes(is_smooth, C, tile, k, j, part->low[j - first], part->high[j - first], weight, total,
                          by_points, by_scales);
        else
            slopes(is_smooth, C, tile, k, j, weight, by_points, by_scales);
}

void xg_axis_slopes(const xg_profile_tile *tile, const double *weight, double *by_points, double *by_scales)
{
    const int is_smooth = tile->family == XG_AXIS_MATERN_32;
    for (ptrdiff_t first = 0; first < tile->d; first += FEATURES) {
        ptrdiff_t last = SMALLER(first + FEATURES, tile->d), k = 0;
        features part = features_from(tile, first, last);
        for (; k + POINTS <= tile->m; k += POINTS)
            XG_WITH(is_smooth, 1, 0, slopes_of, POINTS, tile, &part, first, last, k, weight, by_points, by_scales);
        for (; k < tile->m; ++k)
            XG_WITH(is_smooth, 1, 0, slopes_of, 1, tile, &part, first, last, k, weight, by_points, by_scales);
    }
}

/* Subtracts from sum the slopes by feature j of C points from k on. */
XG_INLINE void subtract_slopes(const int is_smooth, const int C, const xg_profile_tile *tile, ptrdiff_t k, ptrdiff_t j,
                               ptrdiff_t i, const double *weight, lanes *sum)
{
    lanes difference[POINTS], slope[POINTS];
    slopes_at(is_smooth, C, tile, k, j, i, tile->n - i, weight, difference, slope);
    for (int c = 0; c < C; ++c)
        *sum -= slope[c];
}

void xg_axis_row_slopes(const xg_profile_tile *tile, const double *weight, double *out)
{
    const int is_smooth = tile->family == XG_AXIS_MATERN_32;
    for (ptrdiff_t i = 0; i < tile->n; i += XG_WIDTH)
        for (ptrdiff_t j = 0; j < tile->d; ++j) {
            lanes sum = {0.0};
            ptrdiff_t k = 0;
            for (; k + POINTS <= tile->m; k += POINTS)
                XG_WITH(is_smooth, 1, 0, subtract_slopes, POINTS, tile, k, j, i, weight, &sum);
            for (; k < tile->m; ++k)
                XG_WITH(is_smooth, 1, 0, subtract_slopes, 1, tile, k, j, i, weight, &sum);
            store(sum, out + j * tile->n + i, tile->n - i);
        }
}
