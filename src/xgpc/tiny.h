/* Arithmetic with numbers below 2.2e-308 is a hundred times as slow. After xg_without_tiny, which returns the mode
 * before, results of this size are zero in the thread; xg_set_mode ends it. On other processors nothing changes. */
#pragma once

#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#define XG_MODE _mm_getcsr()
#define XG_SET_MODE _mm_setcsr
#define XG_WITHOUT_TINY 0x8000u
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
#define XG_MODE __builtin_aarch64_get_fpcr()
#define XG_SET_MODE __builtin_aarch64_set_fpcr
#define XG_WITHOUT_TINY 0x1000000u
#else
#define XG_MODE 0u
#define XG_SET_MODE (void)
#define XG_WITHOUT_TINY 0u
#endif

static inline void xg_set_mode(unsigned mode)
{
    XG_SET_MODE(mode);
}

static inline unsigned xg_without_tiny(void)
{
    unsigned mode = XG_MODE;
    xg_set_mode(mode | XG_WITHOUT_TINY);
    return mode;
}
