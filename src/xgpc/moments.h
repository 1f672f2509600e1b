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

/* The sites of several classes are computed in chunks of points whose scratch, at most about 110 kB, stays in the cache.
 * Rows must be long enough for a loop, which matters more than the first-level cache: with 26 classes, chunks of 64
 * points are a tenth faster than chunks of 16. Classes are `pitch` doubles apart, in scratch and in the means of a
 * chunk. */
#define XG_CHUNK 64
#define XG_CLASS_ROWS 6
#define XG_POINT_ROWS 8

static inline ptrdiff_t xg_chunk_size(ptrdiff_t classes)
{
    ptrdiff_t size = 2304 / classes / 8 * 8;
    return size < 8 ? 8 : size > XG_CHUNK ? XG_CHUNK : size;
}

/* out[i] = x of the class of label i. */
XG_INLINE void xg_of_label(ptrdiff_t classes, ptrdiff_t n, ptrdiff_t stride, const double *restrict x,
                           const double *restrict y, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i)
            out[i] = y[i] == (double)c ? x[c * stride + i] : out[i];
}

/* What a function of a chunk begins with: the fields of the moments ``at`` and of their sites ``out``. */
#define XG_CHUNK_FIELDS                                                                                              \
    ptrdiff_t classes = at->classes, n = at->n, stride = at->stride, pitch = at->m_stride;                           \
    const double *restrict m = at->m, *restrict v = at->v, *restrict y = at->y;                                      \
    double *restrict ell = out->ell, *restrict lambda = out->lambda, *restrict r = out->r;
