#include "profiles.h"

XG_INLINE double sum_of_lanes(double *lane)
{
    for (int half = XG_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; ++l)
            lane[l] += lane[l + half];
    return lane[0];
}

#define XG_STATIONARY(i) xg_min(c[i] - 0.5 * (x2[i] + z), 0.0)
#define XG_CROSS(i) ((void)x2, (void)z, c[i])
#define XG_SLOPE(function, argument, at, lane)                                                                       \
    {                                                                                                                \
        xg_profile p = function(argument(at), shape);                                                                \
        double weight = scale * gk[at], slope = weight * p.slope;                                                    \
        o[at] = slope;                                                                                               \
        row_sum[at] += slope;                                                                                        \
        column[lane] += slope;                                                                                       \
        value[lane] += weight * p.value;                                                                             \
        shapes[lane] += weight * p.shape;                                                                            \
    }

#define XG_TILE_FIELDS                                                                                               \
    ptrdiff_t n = tile->n, m = tile->m;                                                                              \
    double shape = tile->shape;                                                                                      \
    const double *x2 = tile->x2, *z2 = tile->z2, *cross = tile->cross;

/* The loops of a family; argument computes h from the inner products. */
#define XG_FAMILY(number, name, function, argument)                                                                  \
    static void number##_values(const xg_profile_tile *tile, int mode, double scale, double *out)                    \
    {                                                                                                                \
        XG_TILE_FIELDS                                                                                               \
        for (ptrdiff_t k = 0; k < m; ++k) {                                                                          \
            const double *c = cross + k * n;                                                                         \
            double *o = out + k * n;                                                                                 \
            double z = z2[k];                                                                                        \
            if (mode == XG_SET)                                                                                      \
                for (ptrdiff_t i = 0; i < n; ++i)                                                                    \
                    o[i] = scale * function(XG_##argument(i), shape).value;                                          \
            else if (mode == XG_ADD)                                                                                 \
                for (ptrdiff_t i = 0; i < n; ++i)                                                                    \
                    o[i] += scale * function(XG_##argument(i), shape).value;                                         \
            else                                                                                                     \
                for (ptrdiff_t i = 0; i < n; ++i)                                                                    \
                    o[i] *= scale * function(XG_##argument(i), shape).value;                                         \
        }                                                                                                            \
    }                                                                                                                \
    static void number##_slopes(const xg_profile_tile *tile, double scale, const double *g, double *out,             \
                                  double *restrict row_sum, double *restrict column_sum, double *restrict sums)      \
    {                                                                                                                \
        XG_TILE_FIELDS                                                                                               \
        double value[XG_LANES] = {0.0}, shapes[XG_LANES] = {0.0};                                                    \
        for (ptrdiff_t k = 0; k < m; ++k) {                                                                          \
            const double *c = cross + k * n, *gk = g + k * n;                                                        \
            double *o = out + k * n;                                                                                 \
            double z = z2[k];                                                                                        \
            double column[XG_LANES] = {0.0};                                                                         \
            ptrdiff_t i = 0;                                                                                         \
            for (; i + XG_LANES <= n; i += XG_LANES)                                                                 \
                for (int l = 0; l < XG_LANES; ++l)                                                                   \
                    XG_SLOPE(function, XG_##argument, i + l, l)                                                      \
            for (; i < n; ++i)                                                                                       \
                XG_SLOPE(function, XG_##argument, i, 0)                                                              \
            column_sum[k] += sum_of_lanes(column);                                                                   \
        }                                                                                                            \
        sums[0] += sum_of_lanes(value);                                                                              \
        sums[1] += sum_of_lanes(shapes);                                                                             \
    }                                                                                                                \
    static void number##_array(double shape, ptrdiff_t n, const double *restrict h, double *restrict value,          \
                                 double *restrict slope, double *restrict shaped)                                    \
    {                                                                                                                \
        if (!slope)                                                                                                  \
            for (ptrdiff_t i = 0; i < n; ++i)                                                                        \
                value[i] = function(h[i], shape).value;                                                              \
        else                                                                                                         \
            for (ptrdiff_t i = 0; i < n; ++i) {                                                                      \
                xg_profile p = function(h[i], shape);                                                                \
                value[i] = p.value;                                                                                  \
                slope[i] = p.slope;                                                                                  \
                shaped[i] = p.shape;                                                                                 \
            }                                                                                                        \
    }
XG_FAMILY_LIST(XG_FAMILY)

static const struct {
    const char *name;
    void (*values)(const xg_profile_tile *, int, double, double *);
    void (*slopes)(const xg_profile_tile *, double, const double *, double *, double *, double *, double *);
    void (*array)(double, ptrdiff_t, const double *, double *, double *, double *);
} families[] = {
#define XG_ENTRY(number, name, function, argument) {name, number##_values, number##_slopes, number##_array},
    XG_FAMILY_LIST(XG_ENTRY)};

const char *xg_family_name(int i) { return families[i].name; }

void xg_profile_array(int family, double shape, ptrdiff_t n, const double *h, double *value, double *slope,
                      double *shaped)
{
    families[family].array(shape, n, h, value, slope, shaped);
}

void xg_profile_values(const xg_profile_tile *tile, int mode, double scale, double *out)
{
    families[tile->family].values(tile, mode, scale, out);
}

void xg_profile_slopes(const xg_profile_tile *tile, double scale, const double *g, double *out, double *row_sum,
                       double *column_sum, double *sums)
{
    memset(row_sum, 0, (size_t)tile->n * sizeof *row_sum);
    families[tile->family].slopes(tile, scale, g, out, row_sum, column_sum, sums);
}

void xg_half_distances(const xg_profile_tile *tile, double *restrict out)
{
    const double *restrict x = tile->x, *restrict z = tile->z;
    ptrdiff_t n = tile->n, m = tile->m, d = tile->d;
    memset(out, 0, (size_t)(n * m) * sizeof *out);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t j = 0; j < d; ++j)
            for (ptrdiff_t i = 0; i < n; ++i) {
                double difference = x[j * n + i] - z[k * d + j];
                out[k * n + i] -= 0.5 * (difference * difference);
            }
    for (ptrdiff_t i = 0; i < n * m; ++i)
        out[i] = xg_max(out[i], XG_FARTHEST);
}

/* Rows that are read together, feature by feature: their numbers stay in the first-level cache. */
enum { TOGETHER = 16 };

#define XG_SCALE(REAL)                                                                                               \
    XG_INLINE void scale_##REAL(const xg_rows *rows, ptrdiff_t first, ptrdiff_t size, ptrdiff_t d,                   \
                                const double *restrict centre, const double *restrict scale, double *restrict x,     \
                                double *restrict x2)                                                                 \
    {                                                                                                                \
        const char *row[TOGETHER];                                                                                   \
        for (ptrdiff_t l = 0; l < size; ++l)                                                                         \
            row[l] = rows->X + rows->row_stride * (rows->index ? rows->index[first + l] : rows->start + first + l);  \
        for (ptrdiff_t j = 0; j < d; ++j)                                                                            \
            for (ptrdiff_t l = 0; l < size; ++l) {                                                                   \
                double value = (*(const REAL *)(row[l] + j * rows->feature_stride) - centre[j]) * scale[j];          \
                x[j * rows->n + first + l] = value;                                                                  \
                x2[first + l] += value * value;                                                                      \
            }                                                                                                        \
    }
XG_SCALE(float)
XG_SCALE(double)

double xg_scale_rows(const xg_rows *rows, ptrdiff_t d, const double *centre, const double *scale, double *x,
                     double *restrict x2)
{
    double largest = 0.0;
    memset(x2, 0, (size_t)rows->n * sizeof *x2);
    for (ptrdiff_t i = 0; i < rows->n; i += TOGETHER) {
        ptrdiff_t left = rows->n - i;
        if (left >= TOGETHER && rows->is_single)
            scale_float(rows, i, TOGETHER, d, centre, scale, x, x2);
        else if (left >= TOGETHER)
            scale_double(rows, i, TOGETHER, d, centre, scale, x, x2);
        else if (rows->is_single)
            scale_float(rows, i, left, d, centre, scale, x, x2);
        else
            scale_double(rows, i, left, d, centre, scale, x, x2);
    }
    for (ptrdiff_t i = 0; i < rows->n; ++i)
        largest = xg_max(largest, x2[i]);
    return largest;
}

void xg_add_squares(ptrdiff_t n, ptrdiff_t d, const double *restrict weight, const double *restrict x,
                    double *restrict sum)
{
    for (ptrdiff_t j = 0; j < d; ++j) {
        double lane[XG_LANES] = {0.0};
        ptrdiff_t i = 0;
        for (; i + XG_LANES <= n; i += XG_LANES)
            for (int l = 0; l < XG_LANES; ++l)
                lane[l] += weight[i + l] * x[j * n + i + l] * x[j * n + i + l];
        for (; i < n; ++i)
            lane[0] += weight[i] * x[j * n + i] * x[j * n + i];
        sum[j] += sum_of_lanes(lane);
    }
}
