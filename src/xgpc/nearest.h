/* The nearest rows of points, by Euclidean distance or by the sum of absolute differences, in double precision; of
 * equally near rows those with the smaller numbers.
 *
 * The rows are ordered by place, in leaves of XG_LEAF rows: a half of the rows, a half of that half, and so on. Lengths
 * along p orthogonal directions, for absolute differences some of the features, and the difference of the rests if p < d,
 * bound distances from below. By them, in
 * single precision, boxes around leaves and then rows are left out; the others are compared in double precision. Limits
 * allow for rounding, so no nearer row is missed, unless more than ``most`` rows would have to be compared. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Rows or boxes that are compared at a time, and rows of a leaf. A group is a panel of leaves. */
#define XG_PANEL 16
#define XG_LEAF 128

typedef struct {
    double key;
    int64_t number;
} xg_keyed;

typedef struct {
    ptrdiff_t n, d, p, most; /* rows, features, directions, rows to compare at most with each point */
    int power;                /* of the differences that are summed, 2 or 1; keys are these sums */
    const double *mean;       /* (d,) */
    const double *directions; /* (d, p), orthonormal columns */
    double radius;            /* largest distance of a row from the mean, by which coordinates are divided; above 0 */
    const double *rows;       /* (n, d), in their order */
    int64_t *order;           /* (n,), numbers of the rows in their order */
    float *panels;            /* (panels of rows, c, XG_PANEL), coordinates */
    float *leaves;            /* (panels of leaves, c, 2, XG_PANEL), least and largest coordinates */
    float *groups;            /* (panels of groups, c, 2, XG_PANEL), likewise */
} xg_nearest;

/* Panels that hold n rows or boxes. */
static inline ptrdiff_t xg_panels(ptrdiff_t n) { return (n + XG_PANEL - 1) / XG_PANEL; }
static inline ptrdiff_t xg_leaves(ptrdiff_t n) { return (n + XG_LEAF - 1) / XG_LEAF; }

/* Number c of coordinates. */
static inline ptrdiff_t xg_coordinates(const xg_nearest *tree) { return tree->p + (tree->p < tree->d); }

/* Fill radius, order, panels, leaves and groups of a tree of rows (n, d); its field rows is left. Rows are divided by
 * places (n, n_places), or by their coordinates if n_places is 0. */
void xg_nearest_build(xg_nearest *tree, const double *rows, const float *places, ptrdiff_t n_places, void *scratch);

/* Bytes of its scratch: items (n,), lengths along the directions (p,), and coordinates (n, c). */
static inline size_t xg_nearest_build_scratch(const xg_nearest *tree)
{
    return (size_t)tree->n * (sizeof(xg_keyed) + (size_t)xg_coordinates(tree) * sizeof(float)) +
           (size_t)tree->p * sizeof(double);
}

/* Bytes of scratch of a search. */
static inline size_t xg_nearest_scratch(const xg_nearest *tree, ptrdiff_t k)
{
    ptrdiff_t n_leaves = xg_leaves(tree->n), n_groups = xg_panels(n_leaves);
    return (size_t)(k + n_leaves + n_groups) * sizeof(xg_keyed) + (size_t)tree->p * sizeof(double) +
           (size_t)((xg_panels(n_groups) + 1) * XG_PANEL + tree->p + 1) * sizeof(float);
}

/* out (r, k) = numbers of the k nearest rows of points (r, d), the nearest first; or, if points are NULL, of the other
 * rows that are nearest to the rows first, ..., first + r - 1 in their order. */
void xg_nearest_of(const xg_nearest *tree, const double *points, ptrdiff_t first, ptrdiff_t r, ptrdiff_t k,
                   void *scratch, int32_t *out);
