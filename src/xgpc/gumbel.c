#include "gumbel.h"

#include "spline.inc.h"

/* The column of x, from 0. */
XG_INLINE double xg_column(const xg_table *table, double x)
{
    return (x - table->low) / (table->high - table->low) * (double)(table->columns - 1);
}

XG_CALLED void xg_row(ptrdiff_t n, ptrdiff_t start, const double *w, const double *restrict a, double *restrict out)
{
    for (ptrdiff_t j = start; j < n; ++j)
        out[j] = w[0] * a[j] + w[1] * a[n + j] + w[2] * a[2 * n + j] + w[3] * a[3 * n + j];
}

/* row has the coefficients of psi and then those of slope, in the columns of the table. */
XG_CALLED void xg_along_row(const xg_table *restrict table, const double *restrict row, double centre, double scale,
                            ptrdiff_t n, const double *restrict t, double *restrict psi, double *restrict slope,
                            double *restrict bend)
{
    ptrdiff_t columns = table->columns;
    const double *a = row, *b = row + columns + 2;
    double low = table->low, high = table->high;
    double per_column = (double)(columns - 1) / (high - low), per_scale = 1.0 / scale;
    for (ptrdiff_t k = 0; k < n; ++k) {
        double w[4], x = (t[k] - centre) * per_scale;
        double at = (xg_min(xg_max(x, low), high) - low) * per_column;
        int j = (int)at;
        j = j > (int)columns - 2 ? (int)columns - 2 : j;
        xg_spline_weights(at - j, w);
        psi[k] = w[0] * a[j] + w[1] * a[j + 1] + w[2] * a[j + 2] + w[3] * a[j + 3];
        slope[k] = w[0] * b[j] + w[1] * b[j + 1] + w[2] * b[j + 2] + w[3] * b[j + 3];
        if (!bend)
            continue;
        xg_spline_slopes(at - j, w);
        bend[k] = per_column * (w[0] * b[j] + w[1] * b[j + 1] + w[2] * b[j + 2] + w[3] * b[j + 3]);
    }
}

void xg_gumbel_row(const xg_table *table, double row, double least, double *out)
{
    /* A row that is NaN counts as the first, and its results are NaN. */
    ptrdiff_t width = table->columns + 2, first = (ptrdiff_t)xg_min(xg_max(row, 0.0), (double)(table->rows - 2));
    /* With one column more, as a node there may be rounded to the left. */
    ptrdiff_t start = (ptrdiff_t)xg_min(xg_max(xg_column(table, least) - 1.0, 0.0), (double)(table->columns - 2));
    double w[4];
    xg_spline_weights(row - (double)first, w);
    xg_row(width, start, w, table->psi + first * width, out);
    xg_row(width, start, w, table->slope + first * width, out + width);
}

void xg_gumbel_along(const xg_table *table, const double *row, double mean, double scale, ptrdiff_t n, const double *t,
                     double *psi, double *slope, double *bend)
{
    double low = table->low, high = table->high, per_scale = 1.0 / scale, centre = mean + XG_EULER;
    xg_along_row(table, row, centre, scale, n, t, psi, slope, bend);
    for (ptrdiff_t k = 0; k < n; ++k) {
        double x = (t[k] - centre) * per_scale;
        if (x < low) {
            psi[k] -= low * slope[k] * log1p((x - low) / low);
            slope[k] *= low / x;
            if (bend)
                bend[k] = -slope[k] / x;
        }
        if (x > high) {
            double right = x - high, bent = xg_min(right, xg_max(scale - slope[k], 0.0));
            psi[k] -= bent * (slope[k] + 0.5 * bent) + (right - bent) * (slope[k] + bent);
            slope[k] += bent;
            if (bend)
                bend[k] = bent < right ? 0.0 : 1.0;
        }
        slope[k] *= per_scale;
        if (bend)
            bend[k] *= per_scale * per_scale;
    }
}
