#include "axis.h"

#include "lanes.inc.h"
#include "profiles.h"


/* Points, and vectors of rows, that are worked on at a time: as many sums are under way as the latency of additions
 * needs, and a load of a row serves four points. */
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
XG_INLINE void logarithms(const int is_smooth, const int V, const int C, const xg_axis_tile *tile, ptrdiff_t i,
                          ptrdiff_t size, ptrdiff_t k, double *out)
{
    ptrdiff_t n = tile->n, d = tile->d;
    const double *x = tile->x + i, *z = tile->z + k * d;
    lanes distance[VECTORS][POINTS], growth[VECTORS][POINTS], sum[VECTORS][POINTS];
    for (int v = 0; v < V; ++v)
        for (int c = 0; c < C; ++c)
            distance[v][c] = sum[v][c] = (lanes){0.0};
    for (ptrdiff_t first = 0; first < d; first += CHUNK) {
        ptrdiff_t last = SMALLER(first + CHUNK, d);
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

XG_INLINE void logarithms_of_rows(const int is_smooth, const int V, const xg_axis_tile *tile, ptrdiff_t i,
                                  ptrdiff_t size, double *out)
{
    ptrdiff_t k = 0;
    for (; k + POINTS <= tile->m; k += POINTS)
        logarithms(is_smooth, V, POINTS, tile, i, size, k, out);
    for (; k < tile->m; ++k)
        logarithms(is_smooth, V, 1, tile, i, size, k, out);
}

XG_INLINE void all_logarithms(const int is_smooth, const xg_axis_tile *tile, double *out)
{
    const ptrdiff_t together = VECTORS * XG_WIDTH;
    ptrdiff_t n = tile->n, i = 0;
    for (; i + together <= n; i += together)
        logarithms_of_rows(is_smooth, VECTORS, tile, i, XG_WIDTH, out);
    for (; i + XG_WIDTH <= n; i += XG_WIDTH)
        logarithms_of_rows(is_smooth, 1, tile, i, XG_WIDTH, out);
    if (i < n)
        logarithms_of_rows(is_smooth, 1, tile, i, n - i, out);
}

void xg_axis_logarithms(const xg_axis_tile *tile, double *out)
{
    if (tile->is_smooth)
        all_logarithms(1, tile, out);
    else
        all_logarithms(0, tile, out);
}

/* Adds what ``size`` rows from i on, at most a vector, contribute for feature j and C points from k on. */
XG_INLINE void add_slopes(const int is_smooth, const int C, const xg_axis_tile *tile, ptrdiff_t k, ptrdiff_t j,
                          ptrdiff_t i, ptrdiff_t size, const double *weight, lanes *by_point, lanes *by_scale)
{
    ptrdiff_t n = tile->n, d = tile->d;
    lanes here = load(tile->x + j * n + i, size);
    for (int c = 0; c < C; ++c) {
        lanes difference = here - tile->z[(k + c) * d + j];
        lanes slope = log_slope(is_smooth, load(weight + (k + c) * n + i, size), difference);
        by_point[c] += slope;
        by_scale[c] += slope * difference;
    }
}

/* Sums over the rows for feature j and C points from k on; is_smooth and C are constants. */
XG_INLINE void slopes(const int is_smooth, const int C, const xg_axis_tile *tile, ptrdiff_t k, ptrdiff_t j,
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

XG_INLINE void all_slopes(const int is_smooth, const xg_axis_tile *tile, const double *weight, double *by_points,
                          double *by_scales)
{
    ptrdiff_t k = 0;
    for (; k + POINTS <= tile->m; k += POINTS)
        for (ptrdiff_t j = 0; j < tile->d; ++j)
            slopes(is_smooth, POINTS, tile, k, j, weight, by_points, by_scales);
    for (; k < tile->m; ++k)
        for (ptrdiff_t j = 0; j < tile->d; ++j)
            slopes(is_smooth, 1, tile, k, j, weight, by_points, by_scales);
}

void xg_axis_slopes(const xg_axis_tile *tile, const double *weight, double *by_points, double *by_scales)
{
    if (tile->is_smooth)
        all_slopes(1, tile, weight, by_points, by_scales);
    else
        all_slopes(0, tile, weight, by_points, by_scales);
}

XG_INLINE void row_slopes(const int is_smooth, const xg_axis_tile *tile, const double *weight, double *out)
{
    ptrdiff_t n = tile->n, d = tile->d;
    for (ptrdiff_t i = 0; i < n; i += XG_WIDTH)
        for (ptrdiff_t j = 0; j < d; ++j) {
            ptrdiff_t size = SMALLER(n - i, XG_WIDTH);
            lanes here = load(tile->x + j * n + i, size), sum = {0.0};
            for (ptrdiff_t k = 0; k < tile->m; ++k)
                sum -= log_slope(is_smooth, load(weight + k * n + i, size), here - tile->z[k * d + j]);
            store(sum, out + j * n + i, size);
        }
}

void xg_axis_row_slopes(const xg_axis_tile *tile, const double *weight, double *out)
{
    if (tile->is_smooth)
        row_slopes(1, tile, weight, out);
    else
        row_slopes(0, tile, weight, out);
}
