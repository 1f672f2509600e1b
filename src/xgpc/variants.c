/* Which of the builds of axis.c, local.c, nearest.c, shapley.c, spread.c and triangles.c a machine takes. */
#include "axis.h"
#include "local.h"
#include "nearest.h"
#include "shapley.h"
#include "spread.h"
#include "triangles.h"

#ifdef XG_HAVE_TARGET_CLONES
#define XG_BUILDS(result, name, parameters)                                                                          \
    result name##_base parameters;                                                                                   \
    result name##_v3 parameters;                                                                                     \
    result name##_v4 parameters;
#define XG_CHOSEN(name)                                                                                              \
    (__builtin_cpu_supports("x86-64-v4")   ? name##_v4                                                               \
     : __builtin_cpu_supports("x86-64-v3") ? name##_v3                                                               \
                                           : name##_base)
#else
#define XG_BUILDS(result, name, parameters) result name##_base parameters;
#define XG_CHOSEN(name) name##_base
#endif

XG_BUILDS(void, xg_axis_logarithms, (const xg_axis_tile *, double *))
void xg_axis_logarithms(const xg_axis_tile *tile, double *out)
{
    XG_CHOSEN(xg_axis_logarithms)(tile, out);
}

XG_BUILDS(void, xg_axis_slopes, (const xg_axis_tile *, const double *, double *, double *))
void xg_axis_slopes(const xg_axis_tile *tile, const double *weight, double *by_points, double *by_scales)
{
    XG_CHOSEN(xg_axis_slopes)(tile, weight, by_points, by_scales);
}

XG_BUILDS(void, xg_axis_row_slopes, (const xg_axis_tile *, const double *, double *))
void xg_axis_row_slopes(const xg_axis_tile *tile, const double *weight, double *out)
{
    XG_CHOSEN(xg_axis_row_slopes)(tile, weight, out);
}

XG_BUILDS(ptrdiff_t, xg_local_scratch, (const xg_local_kernel *, const xg_local_support *, ptrdiff_t))
ptrdiff_t xg_local_scratch(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k)
{
    return XG_CHOSEN(xg_local_scratch)(kernel, support, k);
}

XG_BUILDS(void, xg_local_condition, (const xg_local_kernel *, const xg_local_support *, const xg_local_rows *, ptrdiff_t,
                                     ptrdiff_t, double *, const xg_local_conditional *, const xg_local_gradient *))
void xg_local_condition(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                        ptrdiff_t first, ptrdiff_t last, double *scratch, const xg_local_conditional *out,
                        const xg_local_gradient *gradient)
{
    XG_CHOSEN(xg_local_condition)(kernel, support, rows, first, last, scratch, out, gradient);
}

XG_BUILDS(void, xg_nearest_build, (xg_nearest *, const double *, const xg_nearest_arrays *))
void xg_nearest_build(xg_nearest *tree, const double *rows, const xg_nearest_arrays *arrays)
{
    XG_CHOSEN(xg_nearest_build)(tree, rows, arrays);
}

XG_BUILDS(void, xg_nearest_of,
          (const xg_nearest *, const double *, ptrdiff_t, ptrdiff_t, ptrdiff_t, void *, int32_t *))
void xg_nearest_of(const xg_nearest *tree, const double *points, ptrdiff_t first, ptrdiff_t r, ptrdiff_t k,
                   void *scratch, int32_t *out)
{
    XG_CHOSEN(xg_nearest_of)(tree, points, first, r, k, scratch, out);
}

XG_BUILDS(ptrdiff_t, xg_shapley_scratch, (const xg_product_games *))
ptrdiff_t xg_shapley_scratch(const xg_product_games *games)
{
    return XG_CHOSEN(xg_shapley_scratch)(games);
}

XG_BUILDS(void, xg_shapley, (const xg_product_games *, double *, double *))
void xg_shapley(const xg_product_games *games, double *scratch, double *out)
{
    XG_CHOSEN(xg_shapley)(games, scratch, out);
}

XG_BUILDS(void, xg_spread, (const xg_spread_rows *, const xg_spread_sums *))
void xg_spread(const xg_spread_rows *rows, const xg_spread_sums *sums)
{
    XG_CHOSEN(xg_spread)(rows, sums);
}

XG_BUILDS(ptrdiff_t, xg_triangle_scratch, (ptrdiff_t, ptrdiff_t))
ptrdiff_t xg_triangle_scratch(ptrdiff_t n, ptrdiff_t m)
{
    ptrdiff_t size = XG_CHOSEN(xg_triangle_scratch)(n, m), of_blas = n * m + n;
    return xg_is_wide() || size > of_blas ? size : of_blas;
}

int xg_is_wide(void)
{
    return XG_CHOSEN(xg_triangle_scratch) != xg_triangle_scratch_base;
}

#define XG_TRIANGLE_DISPATCHED(name, parameters, arguments)                                                          \
    XG_BUILDS(void, name, parameters)                                                                                \
    void name parameters { XG_CHOSEN(name) arguments; }
XG_TRIANGLE_LIST(XG_TRIANGLE_DISPATCHED, double, XG_DOUBLE)
XG_TRIANGLE_LIST(XG_TRIANGLE_DISPATCHED, float, XG_SINGLE)
