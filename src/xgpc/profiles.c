#include "profiles.h"

#define XG_STATIONARY(i) xg_min(c[i] - 0.5 * (x2[i] + z), 0.0)
#define XG_BILINEAR(i) c[i]
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
    const double *x2 = tile->x2, *z2 = tile->z2, *cross = tile->cross;                                               \
    (void)x2;

/* The loops of a family; argument computes h from the inner products. */
#define XG_FAMILY(function, argument)                                                                                \
    void function##_values(const xg_profile_tile *, int, double, double *);                                          \
    XG_CLONES void function##_values(const xg_profile_tile *tile, int mode, double scale, double *out)               \
    {                                                                                                                \
        XG_TILE_FIELDS                                                                                               \
        for (ptrdiff_t k = 0; k < m; ++k) {                                                                          \
            const double *c = cross + k * n;                                                                         \
            double *o = out + k * n;                                                                                 \
            double z = z2[k];                                                                                        \
            (void)z;                                                                                                 \
            if (mode == XG_SET)                                                                                      \
                for (ptrdiff_t i = 0; i < n; ++i)                                                                    \
                    o[i] = scale * function(argument(i), shape).value;                                               \
            else if (mode == XG_ADD)                                                                                 \
                for (ptrdiff_t i = 0; i < n; ++i)                                                                    \
                    o[i] += scale * function(argument(i), shape).value;                                              \
            else                                                                                                     \
                for (ptrdiff_t i = 0; i < n; ++i)                                                                    \
                    o[i] *= scale * function(argument(i), shape).value;                                              \
        }                                                                                                            \
    }                                                                                                                \
    void function##_slopes(const xg_profile_tile *, double, const double *, double *, double *, double *,            \
                           double *);                                                                                \
    XG_CLONES void function##_slopes(const xg_profile_tile *tile, double scale, const double *g, double *out,        \
                                     double *restrict row_sum, double *restrict column_sum, double *restrict sums)   \
    {                                                                                                                \
        XG_TILE_FIELDS                                                                                               \
        for (ptrdiff_t k = 0; k < m; ++k) {                                                                          \
            const double *c = cross + k * n, *gk = g + k * n;                                                        \
            double *o = out + k * n;                                                                                 \
            double z = z2[k];                                                                                        \
            (void)z;                                                                                                 \
            double column[XG_LANES] = {0.0}, value[XG_LANES] = {0.0}, shapes[XG_LANES] = {0.0};                      \
            ptrdiff_t i = 0;                                                                                         \
            for (; i + XG_LANES <= n; i += XG_LANES)                                                                 \
                for (int l = 0; l < XG_LANES; ++l)                                                                   \
                    XG_SLOPE(function, argument, i + l, l)                                                           \
            for (; i < n; ++i)                                                                                       \
                XG_SLOPE(function, argument, i, 0)                                                                   \
            for (int l = 0; l < XG_LANES; ++l) {                                                                     \
                column_sum[k] += column[l];                                                                          \
                sums[0] += value[l];                                                                                 \
                sums[1] += shapes[l];                                                                                \
            }                                                                                                        \
        }                                                                                                            \
    }

#define XG_FAMILY_ARRAYS(number, name, function, argument)                                                            \
    void function##_array(double, ptrdiff_t, const double *, double *, double *, double *);                          \
    XG_CLONES void function##_array(double shape, ptrdiff_t n, const double *restrict h, double *restrict value,     \
                                    double *restrict slope, double *restrict shaped)                                 \
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
XG_FAMILY_LIST(XG_FAMILY_ARRAYS)

#define XG_FAMILY_LOOPS(number, name, function, argument) XG_FAMILY(function, XG_##argument)
XG_FAMILY_LIST(XG_FAMILY_LOOPS)

const char *xg_family_name(int i)
{
#define XG_NAME(number, name, function, argument) name,
    static const char *const names[] = {XG_FAMILY_LIST(XG_NAME)};
    return names[i];
}

#define XG_VALUES_CASE(number, name, function, argument)                                                             \
    case number: function##_values(tile, mode, scale, out); break;
#define XG_SLOPES_CASE(number, name, function, argument)                                                             \
    case number: function##_slopes(tile, scale, g, out, row_sum, column_sum, sums); break;

#define XG_ARRAY_CASE(number, name, function, argument)                                                              \
    case number: function##_array(shape, n, h, value, slope, shaped); break;

void xg_profile_array(int family, double shape, ptrdiff_t n, const double *h, double *value, double *slope,
                      double *shaped)
{
    switch (family) {
        XG_FAMILY_LIST(XG_ARRAY_CASE)
    }
}

void xg_profile_values(const xg_profile_tile *tile, int mode, double scale, double *out)
{
    switch (tile->family) {
        XG_FAMILY_LIST(XG_VALUES_CASE)
    }
}

void xg_profile_slopes(const xg_profile_tile *tile, double scale, const double *g, double *out, double *row_sum,
                       double *column_sum, double *sums)
{
    memset(row_sum, 0, (size_t)tile->n * sizeof *row_sum);
    switch (tile->family) {
        XG_FAMILY_LIST(XG_SLOPES_CASE)
    }
}

XG_CLONES
void xg_half_distances(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *restrict x, const double *restrict z,
                       double *restrict out)
{
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

XG_CLONES
void xg_multiply(ptrdiff_t size, const double *restrict g, double *restrict out)
{
    for (ptrdiff_t i = 0; i < size; ++i)
        out[i] *= g[i];
}
