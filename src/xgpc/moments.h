/* Arrays of points under one or several latent functions: what sites are computed from, and the sites. */
#pragma once

#include "vmath.h"

/* Latent means m and variances v of n points, and their labels y (n,): -1 or 1 for one latent function, otherwise
 * 0 .. classes - 1. From one latent function to the next, m is m_stride doubles apart, and v is stride doubles. */
typedef struct {
    ptrdiff_t classes, n, m_stride, stride;
    const double *restrict m, *restrict v, *restrict y;
} xg_moments;

/* Sites of these points: ell (n,), and lambda and r of each latent function, stride doubles apart. */
typedef struct {
    double *restrict ell, *restrict lambda, *restrict r;
} xg_site_arrays;

/* At most ``most`` of the points, from start on. */
XG_INLINE xg_moments xg_moments_from(const xg_moments *at, ptrdiff_t start, ptrdiff_t most)
{
    ptrdiff_t n = at->n - start < most ? at->n - start : most;
    return (xg_moments){at->classes, n, at->m_stride, at->stride, at->m + start, at->v + start, at->y + start};
}

XG_INLINE xg_site_arrays xg_sites_from(const xg_site_arrays *sites, ptrdiff_t start)
{
    return (xg_site_arrays){sites->ell + start, sites->lambda + start, sites->r + start};
}
