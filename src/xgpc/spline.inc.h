#pragma once

#include "vmath.h"

/* The four cubic B-splines that are not zero at the fraction s of the interval between two knots. */
XG_INLINE void xg_spline_weights(double s, double *w)
{
    double r = 1.0 - s;
    w[0] = r * r * r / 6.0;
    w[1] = 2.0 / 3.0 - 0.5 * s * s * (1.0 + r);
    w[2] = 2.0 / 3.0 - 0.5 * r * r * (1.0 + s);
    w[3] = s * s * s / 6.0;
}

/* Their derivatives by s. */
XG_INLINE void xg_spline_slopes(double s, double *w)
{
    double r = 1.0 - s;
    w[0] = -0.5 * r * r;
    w[1] = s * (1.5 * s - 2.0);
    w[2] = -r * (1.5 * r - 2.0);
    w[3] = 0.5 * s * s;
}
