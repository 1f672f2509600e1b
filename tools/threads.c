/* Block functions of the core in several threads, which read the same arrays and write disjoint parts of others, as the
 * threads of xgpc/rows/executor.py do. `python tools/sanitize.py --threads` builds this with ThreadSanitizer and runs it.
 * The values are those of the same calls in one thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cavity.h"
#include "largest.h"
#include "local.h"
#include "sites.h"
#include "nearest.h"
#include "profiles.h"
#include "shapley.h"
#include "tiles.h"

/* Rows, rows of a part, features, inducing points, neighbours, latent functions, threads. */
enum { N = 512, PART = 64, PARTS = N / PART, D = 3, M = 5, K = 6, C = 3, THREADS = 4, PACKED_BLOCK = (K + 1) * (K + 2) / 2 };

/* What all threads read: the tree is built before they begin. */
static double X[N * D], A[N * M], Z[M * D], lower[M * M], mean[C * N], variance[C * N], binary[N], classes[N];
static double positive[N], S[C * M * M], games[4 * D * N], hazards[4 * XG_HAZARD_COLUMNS], splines[6 * 8];
static float single[N * M], lower_single[M * M];
static int32_t near[N * K], n_earlier[N];
static double middle[D], directions[D * D];
static xg_nearest tree;

/* What they write, each its rows or its part. */
typedef struct {
    double ell[XG_SITE_COUNT][N], precision[XG_SITE_COUNT][C * N], linear[XG_SITE_COUNT][C * N];
    double cavity[2][7][N], logs[2 * N], normal[N], largest[2][C * N];
    double scaled[PARTS][PART * D], squares[N], cross[XG_FAMILY_COUNT][PARTS][PART * M], slopes[PARTS][PART * M];
    double row_sum[N], by_points[PARTS][M * D], by_scales[PARTS][D];
    double times[N * M], norms[2][N], spread[2][N], moments[3][N], P[2][PARTS][M * M], h[2][PARTS][M];
    float times_single[N * M];
    double shapley[PARTS][D * PART];
    int32_t nearest[2][N * K];
    int64_t order[PARTS][PART];
    double blocks[(N + 8) * PACKED_BLOCK], b[2][C * N * M], v[2][C * N], m[2][C * N], gamma[2][C * N * K];
    double pulled[PARTS][2][C * PART * (2 * K + 2 * M)], by_near[PARTS][(1 + 2 * C) * PART * K], d_a[N * M], d_diagonal[N], sums[PARTS][2 + D];
} results;

static results together, alone;

static void *room(size_t bytes)
{
    void *found = calloc(bytes + 64, 1);
    if (!found)
        abort();
    return found;
}

static void sites(ptrdiff_t first, results *out)
{
    static const double cuts[C - 1] = {-0.5, 0.5}, noise = 0.01, prior_mean[C];
    double *scratch = room(sizeof(double) * (size_t)xg_multiclass_scratch(C));
    for (int i = 0; i < XG_SITE_COUNT; ++i) {
        int is_multi = xg_site_is_multi_class(i), is_ordinal = !strncmp(xg_site_likelihood(i), "ordinal", 7);
        xg_likelihood one = {i, prior_mean, is_ordinal ? C - 1 : 1, is_ordinal ? cuts : &noise, {2, hazards}};
        xg_moments at = {is_multi ? C : 1, PART, N, N, mean + first, variance + first,
                         (is_multi ? classes : binary) + first};
        xg_site_arrays to = {out->ell[i] + first, out->precision[i] + first, out->linear[i] + first};
        xg_sites(&one, &at, scratch, &to);
    }
    for (int link = 0; link < 2; ++link) {
        xg_moments at = {1, PART, N, N, mean + first, variance + first, binary + first};
        double(*to)[N] = out->cavity[link];
        xg_cavity_scores(link, &at, to[0] + first, to[1] + first, to[2] + first);
        xg_cavity_sites(link, &at, to[3] + first, to[4] + first);
        xg_cavity_vjp(link, &at, mean + N + first, mean + 2 * N + first, to[5] + first, to[6] + first);
    }
    ptrdiff_t thin[PART];
    xg_logistic_normal_logs(PART, mean + first, variance + first, 1e-9, thin, out->logs + 2 * first);
    xg_logistic_normal_mean_array(PART, mean + first, variance + first, out->normal + first);
    free(scratch);
    xg_table tables[2] = {{0}, {2, 4, -3.0, 3.0, splines, splines + 24}};
    scratch = room(sizeof(double) * (size_t)xg_largest_scratch(&tables[1], C));
    for (int t = 0; t < 2; ++t)
        for (ptrdiff_t i = first; i < first + PART; ++i) {
            double values[C], scales[C] = {0.5, 1.0, 1.5};
            for (int c = 0; c < C; ++c)
                values[c] = mean[c * N + i];
            xg_values at = {&tables[t], C, values, scales, scales, -30.0, 30.0, 15.0};
            xg_largest(&at, scratch, out->largest[t] + C * i);
        }
    free(scratch);
}

static void kernels(ptrdiff_t first, results *out)
{
    ptrdiff_t p = first / PART;
    xg_rows rows = {(const char *)X, D * sizeof(double), sizeof(double), 0, NULL, first, PART};
    xg_scale_rows(&rows, D, middle, lower, out->scaled[p], out->squares + first);
    for (int family = 0; family < XG_FAMILY_COUNT; ++family) {
        double *cross = out->cross[family][p];
        xg_profile_tile tile = {family, 1.5, PART, M, D, out->scaled[p], positive, Z, positive, cross};
        if (xg_is_axis_aligned(family)) {
            xg_axis_logarithms(&tile, cross);
            xg_axis_slopes(&tile, cross, out->by_points[p], out->by_scales[p]);
        } else
            xg_half_distances(&tile, cross);
        double column_sum[M] = {0.0}, sums[2] = {0.0};
        xg_profile_slopes(&tile, 2.0, A + first * M, out->slopes[p], out->row_sum + first, column_sum, sums);
        xg_profile_values(&tile, XG_SET, 2.0, cross);
    }
}

static void triangles(ptrdiff_t first, results *out)
{
    ptrdiff_t p = first / PART;
    double *scratch = room(sizeof(double) * (size_t)xg_triangle_scratch(PART, M));
    double *a = out->times + first * M;
    float *a_single = out->times_single + first * M;
    memcpy(a, A + first * M, PART * M * sizeof *a);
    memcpy(a_single, single + first * M, PART * M * sizeof *a_single);
    xg_times_lower_t(PART, M, lower, a, scratch);
    xg_marginals(PART, M, a, Z, lower, NULL, out->moments[0] + first, out->norms[0] + first, out->spread[0] + first,
                 scratch);
    xg_add_outer(PART, M, a, positive, mean + first, out->P[0][p], out->h[0][p], scratch);
    xg_marginals_single(PART, M, a_single, Z, lower_single, NULL, out->moments[1] + first, out->norms[1] + first,
                        out->spread[1] + first, scratch);
    xg_add_outer_single(PART, M, a_single, positive, mean + first, out->P[1][p], out->h[1][p], scratch);
    xg_means(PART, M, a, Z, out->moments[2] + first);
    free(scratch);
    xg_product_games game = {D, PART, 2, 2, games + 2 * D * first, positive, positive + 4, positive + 6};
    scratch = room(sizeof(double) * (size_t)xg_shapley_scratch(&game));
    xg_shapley(&game, scratch, out->shapley[p]);
    free(scratch);
}

/* A tree of rows (n, D), whose order is written to ``order``. The other arrays stay. */
static void build(xg_nearest *made, const double *rows, ptrdiff_t n, int64_t *order)
{
    *made = (xg_nearest){.n = n, .d = D, .p = D, .most = n, .power = 2, .mean = middle, .directions = directions};
    ptrdiff_t leaves = xg_panels(xg_leaves(n)), c = xg_coordinates(made), box = 2 * c * XG_PANEL;
    made->order = order;
    made->panels = room(sizeof(float) * (size_t)(xg_panels(n) * c * XG_PANEL));
    made->leaves = room(sizeof(float) * (size_t)((leaves + xg_panels(leaves)) * box));
    made->groups = made->leaves + leaves * box;
    void *scratch = room(xg_nearest_build_scratch(made));
    xg_nearest_build(made, rows, NULL, 0, scratch);
    free(scratch);
    double *in_order = room(sizeof(double) * (size_t)(n * D));
    for (ptrdiff_t i = 0; i < n; ++i)
        memcpy(in_order + i * D, rows + order[i] * D, D * sizeof(double));
    made->rows = in_order;
}

static void nearest(ptrdiff_t first, results *out)
{
    void *scratch = room(xg_nearest_scratch(&tree, K));
    xg_nearest_of(&tree, A + first * D, 0, PART, K, scratch, out->nearest[0] + first * K);
    xg_nearest_of(&tree, NULL, first, PART, K, scratch, out->nearest[1] + first * K);
    free(scratch);
    xg_nearest own;
    build(&own, X + first * D, PART, out->order[first / PART]);
    free((void *)own.rows);
    free(own.panels);
    free(own.leaves);
}

static void neighbourhoods(ptrdiff_t first, results *out)
{
    static const double one = 1.3, shape = 1.0;
    static const int no = 0, family = XG_MATERN_32;
    static const ptrdiff_t terms[2] = {0, 1};
    xg_local_kernel kernel = {1, 1, D, &one, &no, terms, &family, &shape};
    xg_local_support support = {N, M, C, X, A, positive, variance, mean};
    xg_local_rows rows = {N, K, out->blocks, X, A, positive, near, n_earlier};
    double *scratch = room(sizeof(double) * (size_t)xg_local_scratch(&kernel, &support, K));
    xg_local_conditional given[2];
    xg_local_gradient gradient = {.d_a = out->d_a + first * M, .d_diagonal = out->d_diagonal + first,
                                  .by_near = out->by_near[first / PART],
                                  .terms = out->sums[first / PART], .shapes = out->sums[first / PART] + 1,
                                  .scales = out->sums[first / PART] + 2};
    for (int s = 0; s < 2; ++s) {
        double *to = out->pulled[first / PART][s];
        given[s] = (xg_local_conditional){0, N, 0, N, out->b[s], out->v[s], out->m[s], out->gamma[s]};
        gradient.set[s] = (xg_local_pulled){.S = S, .v = Z, .gamma = to, .chi = to + C * PART * K,
                                            .b = to + 2 * C * PART * K, .u = to + C * PART * (2 * K + M)};
    }
    xg_local_condition(&kernel, &support, &rows, first, first + PART, scratch, given, NULL);
    xg_local_condition(&kernel, &support, &rows, first, first + PART, scratch, NULL, &gradient);
    free(scratch);
}

static void part(ptrdiff_t p, results *out)
{
    sites(p * PART, out);
    kernels(p * PART, out);
    triangles(p * PART, out);
    nearest(p * PART, out);
    neighbourhoods(p * PART, out);
}

static pthread_barrier_t start;

static void *thread(void *number)
{
    pthread_barrier_wait(&start);
    for (ptrdiff_t p = *(const int *)number; p < PARTS; p += THREADS)
        part(p, &together);
    return NULL;
}

/* Numbers from -1 to 1. */
static void fill(double *x, ptrdiff_t n)
{
    static uint64_t state = 1;
    for (ptrdiff_t i = 0; i < n; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (double)(state >> 40) / (1 << 23) - 1.0;
    }
}

static void prepare(void)
{
    fill(X, N * D);
    fill(Z, M * D);
    fill(A, N * M);
    fill(mean, C * N);
    fill(games, 4 * D * N);
    fill(splines, 48);
    for (int i = 0; i < N * M; ++i)
        single[i] = (float)(A[i] *= 0.2);
    for (int i = 0; i < C * N; ++i)
        variance[i] = 0.5 + mean[i] * mean[i];
    for (int i = 0; i < N; ++i) {
        positive[i] = 1.0;
        binary[i] = i % 2 ? 1.0 : -1.0;
        classes[i] = i % C;
        n_earlier[i] = i % (K + 1);
        for (int j = 0; j < K; ++j)
            near[i * K + j] = (i + j + 1) % N;
    }
    for (int i = 0; i < M; ++i)
        for (int j = 0; j <= i; ++j)
            lower_single[i * M + j] = (float)(lower[i * M + j] = i == j ? 1.0 : 0.1);
    for (int i = 0; i < C * M * M; ++i)
        S[i] = i % (M * M) % (M + 1) ? 0.0 : 1.0;
    for (int i = 0; i < D; ++i)
        directions[i * D + i] = 1.0;
    /* log(-log H) = -w, in the same way for all variances. */
    for (int row = 0; row < 4; ++row) {
        double *of = hazards + row * XG_HAZARD_COLUMNS;
        of[1] = -1.0;
        of[XG_HAZARD_DEGREE + 2] = 0.2;
        of[XG_HAZARD_DEGREE + 3] = -1.0;
        of[XG_HAZARD_DEGREE + 4] = 1.0;
    }
    build(&tree, X, N, room(N * sizeof(int64_t)));
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    prepare();
    pthread_barrier_init(&start, NULL, THREADS);
    for (int t = 0; t < THREADS; ++t) {
        numbers[t] = t;
        if (pthread_create(&threads[t], NULL, thread, &numbers[t]))
            abort();
    }
    for (int t = 0; t < THREADS; ++t)
        pthread_join(threads[t], NULL);
    for (ptrdiff_t p = 0; p < PARTS; ++p)
        part(p, &alone);
    if (memcmp(&together, &alone, sizeof alone)) {
        puts("The results of several threads are not those of one.");
        return 1;
    }
    return 0;
}
