/* What the site functions of several classes share: chunks of points. */
#ifndef XGPC_CHUNKS_H
#define XGPC_CHUNKS_H

#include "vmath.h"

/* Points are worked through in chunks whose scratch, about 110 kB at most, stays in cache. Rows long enough to be worth
 * a loop count for more than the first level does: with 26 classes chunks of 64 points are a tenth faster than of 16.
 * Rows of a chunk stand `pitch` doubles apart. */
#define XG_CHUNK 64
#define XG_CLASS_ROWS 6
#define XG_POINT_ROWS 8

static inline ptrdiff_t xg_chunk_size(ptrdiff_t classes)
{
    ptrdiff_t size = 2304 / classes / 8 * 8;
    return size < 8 ? 8 : size > XG_CHUNK ? XG_CHUNK : size;
}

/* out[i] = x of the label's class. */
XG_INLINE void xg_of_label(ptrdiff_t classes, ptrdiff_t n, ptrdiff_t stride, const double *restrict x,
                           const double *restrict y, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = 0.0;
    for (ptrdiff_t c = 0; c < classes; ++c)
        for (ptrdiff_t i = 0; i < n; ++i)
            out[i] = y[i] == (double)c ? x[c * stride + i] : out[i];
}

/* Of a class m stands pitch, and v, lambda and r stride doubles from those of the one before. */
#define XG_CHUNK_ARGUMENTS                                                                                           \
    ptrdiff_t classes, ptrdiff_t n, ptrdiff_t stride, ptrdiff_t pitch, const double *restrict m,                     \
        const double *restrict v, const double *restrict y, double *restrict scratch, double *restrict ell,          \
        double *restrict lambda, double *restrict r

#endif
