#include "nearest.h"
#include "vmath.h"

#if XG_WIDTH > 2
#include <immintrin.h>
#endif


#define WIDTH (2 * XG_WIDTH)
#define VECTORS (XG_PANEL / WIDTH)
/* Coordinates after which rows of a panel may be left out. */
#define CHUNK 8
/* Rows of which the spread of a part is computed. */
#define SPREAD_ROWS 64
/* Least relative errors of the sums that are compared, for each coordinate, and of distances, in single precision. */
#define SUM_ERROR 0x1p-22
#define DISTANCE_ERROR 0x1p-21
/* Most steps to a limit for the first leaf: it is then within a thousandth of the largest key. */
#define BISECTIONS 10

typedef int32_t float_bits __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef float floats __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
#define FLOATS(p) (*(const floats *)(p))

static int is_less(xg_keyed a, xg_keyed b) { return a.key < b.key || (a.key == b.key && a.number < b.number); }

/* Restore the heap, whose largest item comes first, below place i. */
static void sift_down(xg_keyed *heap, ptrdiff_t n, ptrdiff_t i)
{
    xg_keyed item = heap[i];
    for (ptrdiff_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && is_less(heap[child], heap[child + 1]);
        if (!is_less(item, heap[child]))
            break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

/* Move the first items in the order of their keys, which are numbers, before all others. */
static void split(xg_keyed *items, ptrdiff_t n, ptrdiff_t first)
{
    ptrdiff_t low = 0, high = n - 1;
    while (low < high) {
        double a = items[low].key, b = items[low + (high - low) / 2].key, c = items[high].key;
        double pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (items[i].key < pivot)
                ++i;
            while (items[j].key > pivot)
                --j;
            if (i <= j) {
                xg_keyed item = items[i];
                items[i++] = items[j];
                items[j--] = item;
            }
        }
        if (first <= j)
            high = j;
        else if (first >= i)
            low = i;
        else
            return;
    }
}

/* The direction along which the items are spread most: by squares about the mean, or by absolute differences. */
static ptrdiff_t widest(int power, const xg_keyed *items, ptrdiff_t n, ptrdiff_t c, const float *coordinates)
{
    ptrdiff_t step = (n + SPREAD_ROWS - 1) / SPREAD_ROWS, best = 0;
    double most = -1.0;
    for (ptrdiff_t j = 0; j < c; ++j) {
        double sum = 0.0, square = 0.0, count = 0.0;
        for (ptrdiff_t i = 0; i < n; i += step) {
            double x = coordinates[items[i].number * c + j];
            sum += x, square += x * x, count += 1.0;
        }
        double spread = square - sum * sum / count;
        if (power == 1) {
            spread = 0.0;
            for (ptrdiff_t i = 0; i < n; i += step)
                spread += fabs(coordinates[items[i].number * c + j] - sum / count);
        }
        if (spread > most)
            most = spread, best = j;
    }
    return best;
}

static void divide(int power, xg_keyed *items, ptrdiff_t n, ptrdiff_t c, const float *coordinates)
{
    while (n > XG_LEAF) {
        ptrdiff_t part = n > XG_LEAF * XG_PANEL ? XG_LEAF * XG_PANEL : XG_LEAF, half = (n + part - 1) / part / 2 * part;
        ptrdiff_t direction = widest(power, items, n, c, coordinates);
        for (ptrdiff_t i = 0; i < n; ++i)
            items[i].key = coordinates[items[i].number * c + direction];
        split(items, n, half);
        divide(power, items, half, c, coordinates);
        items += half, n -= half;
    }
}

static void empty_boxes(ptrdiff_t n_panels, ptrdiff_t c, float *boxes)
{
    for (ptrdiff_t i = 0; i < n_panels * 2 * c * XG_PANEL; ++i)
        boxes[i] = i / XG_PANEL % 2 ? -INFINITY : INFINITY;
}

/* The distance of which a sum of powers is the key, and the key of a distance. */
static double distance_of(const xg_nearest *tree, double key) { return tree->power == 1 ? key : sqrt(key); }
static double key_of(const xg_nearest *tree, double distance)
{
    return tree->power == 1 ? distance : distance * distance;
}

/* What a difference adds to a sum; power is a constant in loops. */
XG_INLINE double term_of(const int power, double x) { return power == 1 ? fabs(x) : x * x; }

XG_INLINE double sum_of(const int power, const double *x, const double *y, ptrdiff_t d)
{
    double lane[XG_WIDTH] = {0.0}, total = 0.0;
    ptrdiff_t j = 0;
    for (; j + XG_WIDTH <= d; j += XG_WIDTH)
        for (int l = 0; l < XG_WIDTH; ++l)
            lane[l] += term_of(power, x[j + l] - y[j + l]);
    for (; j < d; ++j)
        total += term_of(power, x[j] - y[j]);
    for (int l = 0; l < XG_WIDTH; ++l)
        total += lane[l];
    return total;
}

/* The sum of powers of the differences of x (d,) and y */
static double exact_key(const xg_nearest *tree, const double *x, const double *y)
{
    return XG_WITH(tree->power == 1, 1, 2, sum_of, x, y, tree->d);
}

/* out (c) = coordinates of a point; scratch (p). Returns its distance from the mean, in radii. */
static double coordinates_of(const xg_nearest *tree, const double *restrict point, double *restrict along,
                             float *restrict out)
{
    ptrdiff_t d = tree->d, p = tree->p;
    double sum = 0.0, rest;
    memset(along, 0, (size_t)p * sizeof *along);
    for (ptrdiff_t i = 0; i < d; ++i) {
        double x = point[i] - tree->mean[i];
        const double *restrict direction = tree->directions + i * p;
        sum += term_of(tree->power, x);
        for (ptrdiff_t j = 0; j < p; ++j)
            along[j] += x * direction[j];
    }
    rest = sum;
    for (ptrdiff_t j = 0; j < p; ++j) {
        rest -= term_of(tree->power, along[j]);
        out[j] = (float)(along[j] / tree->radius);
    }
    if (p < d)
        out[p] = (float)(distance_of(tree, xg_max(rest, 0.0)) / tree->radius);
    return distance_of(tree, sum) / tree->radius;
}

/* Write panels and boxes of rows. */
static void fill(const xg_nearest *tree, const float *coordinates)
{
    ptrdiff_t n = tree->n, c = xg_coordinates(tree), n_groups = xg_panels(xg_leaves(n));
    empty_boxes(n_groups, c, tree->leaves);
    empty_boxes(xg_panels(n_groups), c, tree->groups);
    memset(tree->panels, 0, (size_t)(xg_panels(n) * c * XG_PANEL) * sizeof(float));
    for (ptrdiff_t i = 0; i < n; ++i) {
        ptrdiff_t leaf = i / XG_LEAF, group = leaf / XG_PANEL;
        for (ptrdiff_t j = 0; j < c; ++j) {
            float x = coordinates[tree->order[i] * c + j];
            float *of_leaf = tree->leaves + (group * c + j) * 2 * XG_PANEL + leaf % XG_PANEL;
            float *of_group = tree->groups + (group / XG_PANEL * c + j) * 2 * XG_PANEL + group % XG_PANEL;
            tree->panels[(i / XG_PANEL * c + j) * XG_PANEL + i % XG_PANEL] = x;
            of_leaf[0] = fminf(of_leaf[0], x), of_leaf[XG_PANEL] = fmaxf(of_leaf[XG_PANEL], x);
            of_group[0] = fminf(of_group[0], x), of_group[XG_PANEL] = fmaxf(of_group[XG_PANEL], x);
        }
    }
}

void xg_nearest_build(xg_nearest *tree, const double *rows, const float *places, ptrdiff_t n_places, void *scratch)
{
    ptrdiff_t n = tree->n, d = tree->d, c = xg_coordinates(tree);
    xg_keyed *items = scratch;
    double *along = (double *)(items + n);
    float *coordinates = (float *)(along + tree->p);
    double radius = 0.0;
    for (ptrdiff_t i = 0; i < n; ++i)
        radius = xg_max(radius, exact_key(tree, rows + i * d, tree->mean));
    tree->radius = radius > 0.0 ? distance_of(tree, radius) : 1.0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        coordinates_of(tree, rows + i * d, along, coordinates + i * c);
        items[i].number = i;
    }
    divide(tree->power, items, n, n_places ? n_places : c, n_places ? places : coordinates);
    for (ptrdiff_t i = 0; i < n; ++i)
        tree->order[i] = items[i].number;
    fill(tree, coordinates);
}

/* A bit for each element that is not above a value; NaN is not. */
XG_INLINE unsigned not_above(floats x, float most)
{
#if XG_WIDTH == 8
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(most), _CMP_NGT_UQ);
#elif XG_WIDTH == 4
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_set1_ps(most), _CMP_NGT_UQ));
#else
    unsigned bits = 0;
    for (int l = 0; l < WIDTH; ++l)
        bits |= (unsigned)!(x[l] > most) << l;
    return bits;
#endif
}

/* The larger element of each pair; of a pair with NaN the second. */
XG_INLINE floats larger(floats a, floats b)
{
#if XG_WIDTH == 8
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif XG_WIDTH == 4
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    for (int l = 0; l < WIDTH; ++l)
        a[l] = a[l] > b[l] ? a[l] : b[l];
    return a;
#endif
}

/* As ``term_of``, for differences in single precision */
XG_INLINE floats terms_of(const int power, floats x)
{
    if (power == 1)
        return (floats)((float_bits)x & INT32_MAX);
    return x * x;
}

/* Add keys of a panel's rows from q along the coordinates first, ..., last - 1; power is a constant. */
XG_INLINE void add_keys(const int power, const float *panel, const float *q, ptrdiff_t first, ptrdiff_t last, floats *sum)
{
    for (ptrdiff_t j = first; j < last; ++j)
        for (int v = 0; v < VECTORS; ++v) {
            floats x = FLOATS(panel + j * XG_PANEL + v * WIDTH) - q[j];
            sum[v] += terms_of(power, x);
        }
}

/* out (XG_PANEL) = keys of q from a panel of boxes; power is a constant. */
XG_INLINE void keys_of_boxes(const int power, const float *panel, const float *q, ptrdiff_t c, float *out)
{
    floats sum[VECTORS] = {{0.0f}};
    for (ptrdiff_t j = 0; j < c; ++j)
        for (int v = 0; v < VECTORS; ++v) {
            floats low = FLOATS(panel + 2 * j * XG_PANEL + v * WIDTH) - q[j];
            floats high = q[j] - FLOATS(panel + (2 * j + 1) * XG_PANEL + v * WIDTH);
            floats x = larger(larger(low, high), (floats){0.0f});
            sum[v] += terms_of(power, x);
        }
    memcpy(out, sum, sizeof sum);
}

static void box_keys(const xg_nearest *tree, const float *panel, const float *q, float *out)
{
    XG_WITH(tree->power == 1, 1, 2, keys_of_boxes, panel, q, xg_coordinates(tree), out);
}

/* What is known of a point's nearest rows: their keys and numbers, the nearest first. */
typedef struct {
    const xg_nearest *tree;
    const double *point;
    const float *q;      /* (c,), its coordinates */
    ptrdiff_t own, k, n; /* the place of the point among the rows, or -1; rows to find, and found */
    xg_keyed *found;     /* (k,) */
    double slack;        /* error of its distances in single precision, in radii */
    float most;          /* rows with larger keys in single precision are not among the nearest */
} search;

/* The limit in single precision for rows at a distance, in radii. */
static float limit(const search *s, double distance)
{
    return (float)(key_of(s->tree, distance + s->slack) * (1.0 + SUM_ERROR * (double)(xg_coordinates(s->tree) + 4)));
}

static void consider(search *s, ptrdiff_t place)
{
    const xg_nearest *tree = s->tree;
    if (place == s->own || place >= tree->n)
        return;
    xg_keyed item = {exact_key(tree, tree->rows + place * tree->d, s->point), tree->order[place]};
    if (s->n == s->k && !is_less(item, s->found[s->k - 1]))
        return;
    ptrdiff_t i = s->n < s->k ? s->n++ : s->k - 1;
    for (; i && is_less(item, s->found[i - 1]); --i)
        s->found[i] = s->found[i - 1];
    s->found[i] = item;
    if (s->n < s->k)
        return;
    float most = limit(s, distance_of(tree, s->found[s->k - 1].key) / tree->radius);
    s->most = most < s->most ? most : s->most;
}

/* Consider the rows of some panels; power and count are constants. Several panels at a time, because each waits for the
 * sums and the branch of its own. */
XG_INLINE void compare_panels(const int power, const int count, search *s, ptrdiff_t row)
{
    ptrdiff_t c = xg_coordinates(s->tree), size = c * XG_PANEL;
    const float *panels = s->tree->panels + row * c;
    floats sum[4][VECTORS] = {{{0.0f}}};
    unsigned near[4], any = 1;
    for (ptrdiff_t j = 0, end; j < c && any; j = end) {
        end = c - j < 2 * CHUNK ? c : j + CHUNK;
        for (; j < end; ++j)
            for (int p = 0; p < count; ++p)
                add_keys(power, panels + p * size, s->q, j, j + 1, sum[p]);
        any = 0;
        for (int p = 0; p < count; ++p) {
            near[p] = 0;
            for (int v = 0; v < VECTORS; ++v)
                near[p] |= not_above(sum[p][v], s->most) << (v * WIDTH);
            any |= near[p];
        }
    }
    for (int p = 0; any && p < count; ++p)
        for (; near[p]; near[p] &= near[p] - 1) {
            int lane = __builtin_ctz(near[p]);
            if (!(((const float *)sum[p])[lane] > s->most))
                consider(s, row + p * XG_PANEL + lane);
        }
}

static void compare(search *s, ptrdiff_t leaf)
{
    ptrdiff_t n = s->tree->n, row = leaf * XG_LEAF, last = row + XG_LEAF < n ? row + XG_LEAF : n;
    for (; row + 3 * XG_PANEL < last; row += 4 * XG_PANEL)
        XG_WITH(s->tree->power == 1, 1, 2, compare_panels, 4, s, row);
    for (; row < last; row += XG_PANEL)
        XG_WITH(s->tree->power == 1, 1, 2, compare_panels, 1, s, row);
}

/* A limit from single precision alone, so that few rows of the first leaf need distances in double precision: bisection
 * for a key that just enough rows do not exceed. */
static void begin(search *s, ptrdiff_t leaf)
{
    ptrdiff_t c = xg_coordinates(s->tree), first = leaf * XG_LEAF, needed = s->k + (s->own >= 0), n;
    float keys[XG_LEAF], low = 0.0f, high = 0.0f;
    n = s->tree->n - first < XG_LEAF ? s->tree->n - first : XG_LEAF;
    if (s->tree->p < s->tree->d || needed > n)
        return;
    for (ptrdiff_t row = 0; row < n; row += XG_PANEL) {
        floats sum[VECTORS] = {{0.0f}};
        XG_WITH(s->tree->power == 1, 1, 2, add_keys, s->tree->panels + (first + row) * c, s->q, 0, c, sum);
        memcpy(keys + row, sum, sizeof sum);
    }
    for (ptrdiff_t i = 0; i < XG_LEAF; ++i) {
        keys[i] = i < n ? keys[i] : INFINITY;
        high = i < n && keys[i] > high ? keys[i] : high;
    }
    for (int step = 0, count = 0; step < BISECTIONS && count != needed; ++step) {
        float middle = 0.5f * (low + high);
        count = 0;
        for (ptrdiff_t i = 0; i < XG_LEAF; i += WIDTH)
            count += __builtin_popcount(not_above(FLOATS(keys + i), middle));
        if (count < needed)
            low = middle;
        else
            high = middle;
    }
    s->most = limit(s, distance_of(s->tree, high * (1.0 + SUM_ERROR * (double)(c + 4))) + s->slack);
}

/* Boxes of leaves, or ~number of groups, whose rows may be near: a heap, the nearest box first. */
static void push(xg_keyed *boxes, ptrdiff_t *n, float key, int64_t number)
{
    xg_keyed box = {-key, number};
    ptrdiff_t i = (*n)++;
    for (; i && is_less(boxes[(i - 1) / 2], box); i = (i - 1) / 2)
        boxes[i] = boxes[(i - 1) / 2];
    boxes[i] = box;
}

static void of_point(search *s, xg_keyed *boxes, float *bounds)
{
    const xg_nearest *tree = s->tree;
    ptrdiff_t c = xg_coordinates(tree), n_leaves = xg_leaves(tree->n), n_groups = xg_panels(n_leaves), n = 0, best = 0;
    ptrdiff_t home = 0, compared = XG_LEAF;
    float *of_leaves = bounds + xg_panels(n_groups) * XG_PANEL;
    for (ptrdiff_t panel = 0; panel < xg_panels(n_groups); ++panel)
        box_keys(tree, tree->groups + panel * 2 * c * XG_PANEL, s->q, bounds + panel * XG_PANEL);
    for (ptrdiff_t group = 1; group < n_groups; ++group)
        best = bounds[group] < bounds[best] ? group : best;
    box_keys(tree, tree->leaves + best * 2 * c * XG_PANEL, s->q, of_leaves);
    for (ptrdiff_t leaf = 1; leaf < XG_PANEL; ++leaf)
        home = of_leaves[leaf] < of_leaves[home] ? leaf : home;
    home += best * XG_PANEL;
    begin(s, home);
    compare(s, home);
    for (ptrdiff_t group = 0; group < n_groups; ++group)
        if (!(bounds[group] > s->most))
            boxes[n++] = (xg_keyed){-bounds[group], ~group};
    for (ptrdiff_t i = n / 2; i-- > 0;)
        sift_down(boxes, n, i);
    while (n && !(-boxes[0].key > s->most) && (compared < tree->most || s->n < s->k)) {
        ptrdiff_t nearest = boxes[0].number, group = ~nearest;
        boxes[0] = boxes[--n];
        sift_down(boxes, n, 0);
        if (nearest >= 0) {
            compare(s, nearest);
            compared += XG_LEAF;
            continue;
        }
        box_keys(tree, tree->leaves + group * 2 * c * XG_PANEL, s->q, of_leaves);
        for (ptrdiff_t l = 0, leaf = group * XG_PANEL; l < XG_PANEL && leaf < n_leaves; ++l, ++leaf)
            if (!(of_leaves[l] > s->most) && leaf != home)
                push(boxes, &n, of_leaves[l], leaf);
    }
}

void xg_nearest_of(const xg_nearest *tree, const double *points, ptrdiff_t first, ptrdiff_t r, ptrdiff_t k,
                               void *scratch, int32_t *out)
{
    ptrdiff_t d = tree->d, n_leaves = xg_leaves(tree->n);
    xg_keyed *found = scratch, *boxes = found + k;
    double *along = (double *)(boxes + n_leaves + xg_panels(n_leaves));
    float *q = (float *)(along + tree->p), *bounds = q + xg_coordinates(tree);
    for (ptrdiff_t i = 0; i < r; ++i) {
        search s = {tree, points ? points + i * d : tree->rows + (first + i) * d, q, points ? -1 : first + i, k, 0,
                    found, 0.0, INFINITY};
        double distance = coordinates_of(tree, s.point, along, q);
        s.slack = (DISTANCE_ERROR + 2e-8 * sqrt((double)d)) * (1.0 + distance);
        of_point(&s, boxes, bounds);
        for (ptrdiff_t j = 0; j < k; ++j)
            out[i * k + j] = (int32_t)found[j].number;
    }
}
