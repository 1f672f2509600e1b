/* Which of the builds of nearest.c a machine takes. */
#include "nearest.h"
#include "variants.h"

#define DECLARED(variant)                                                                                            \
    void xg_nearest_coordinates_##variant(const xg_nearest *, ptrdiff_t, const double *, double *, float *);         \
    void xg_nearest_order_##variant(ptrdiff_t, ptrdiff_t, const float *, xg_keyed *);                                \
    void xg_nearest_fill_##variant(ptrdiff_t, ptrdiff_t, const float *, const int64_t *, float *, float *, float *); \
    size_t xg_nearest_scratch_##variant(const xg_nearest *, ptrdiff_t);                                              \
    void xg_nearest_of_##variant(const xg_nearest *, const double *, ptrdiff_t, ptrdiff_t, ptrdiff_t, void *,    \
                                 int64_t *);
DECLARED(base)
#ifdef XG_HAVE_TARGET_CLONES
DECLARED(v3)
DECLARED(v4)
#endif

void xg_nearest_coordinates(const xg_nearest *tree, ptrdiff_t n, const double *rows, double *scratch, float *out)
{
#define COORDINATES(variant) xg_nearest_coordinates_##variant(tree, n, rows, scratch, out)
    XG_CHOSEN(COORDINATES);
}

void xg_nearest_order(ptrdiff_t n, ptrdiff_t c, const float *coordinates, xg_keyed *items)
{
#define ORDER(variant) xg_nearest_order_##variant(n, c, coordinates, items)
    XG_CHOSEN(ORDER);
}

void xg_nearest_fill(ptrdiff_t n, ptrdiff_t c, const float *coordinates, const int64_t *order, float *panels,
                     float *leaves, float *groups)
{
#define FILL(variant) xg_nearest_fill_##variant(n, c, coordinates, order, panels, leaves, groups)
    XG_CHOSEN(FILL);
}

size_t xg_nearest_scratch(const xg_nearest *tree, ptrdiff_t k)
{
#define SCRATCH(variant) xg_nearest_scratch_##variant(tree, k)
    return XG_CHOSEN(SCRATCH);
}

void xg_nearest_of(const xg_nearest *tree, const double *points, ptrdiff_t first, ptrdiff_t r, ptrdiff_t k,
                   void *scratch, int64_t *out)
{
#define OF(variant) xg_nearest_of_##variant(tree, points, first, r, k, scratch, out)
    XG_CHOSEN(OF);
}
