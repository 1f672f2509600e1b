/* Chunks of points, for the site functions of several classes. */
#pragma once

#include "moments.h"

/* Points are processed in chunks whose scratch, at most about 110 kB, stays in the cache. Rows must be long enough
 * for a loop, which matters more than the first-level cache: with 26 classes, chunks of 64 points are a tenth faster
 * than chunks of 16. Classes are `pitch`
 * doubles apart, in scratch and in the means of a chunk. */
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
