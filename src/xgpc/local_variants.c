/* Which of the builds of local.c and spread.c a machine takes. */
#include "local.h"
#include "spread.h"

#define XG_DECLARED(variant)                                                                                         \
    ptrdiff_t xg_local_scratch_##variant(const xg_local_kernel *, const xg_local_support *, ptrdiff_t);              \
    void xg_local_condition_##variant(const xg_local_kernel *, const xg_local_support *, const xg_local_rows *,      \
                                      ptrdiff_t, ptrdiff_t, double *, const xg_local_conditional *,                  \
                                      const xg_local_gradient *);                                                    \
    void xg_spread_##variant(const xg_spread_rows *, const xg_spread_sums *);
XG_DECLARED(base)
#ifdef XG_HAVE_TARGET_CLONES
XG_DECLARED(v3)
XG_DECLARED(v4)
#define XG_CHOSEN(call)                                                                                              \
    (__builtin_cpu_supports("x86-64-v4")   ? call(v4)                                                                \
     : __builtin_cpu_supports("x86-64-v3") ? call(v3)                                                                \
                                           : call(base))
#else
#define XG_CHOSEN(call) call(base)
#endif

ptrdiff_t xg_local_scratch(const xg_local_kernel *kernel, const xg_local_support *support, ptrdiff_t k)
{
#define SCRATCH(variant) xg_local_scratch_##variant(kernel, support, k)
    return XG_CHOSEN(SCRATCH);
}

void xg_local_condition(const xg_local_kernel *kernel, const xg_local_support *support, const xg_local_rows *rows,
                        ptrdiff_t first, ptrdiff_t last, double *scratch, const xg_local_conditional *out,
                        const xg_local_gradient *gradient)
{
#define CONDITION(variant) xg_local_condition_##variant(kernel, support, rows, first, last, scratch, out, gradient)
    XG_CHOSEN(CONDITION);
}

void xg_spread(const xg_spread_rows *rows, const xg_spread_sums *sums)
{
#define SPREAD(variant) xg_spread_##variant(rows, sums)
    XG_CHOSEN(SPREAD);
}
