#include "shapley.h"
#include "lanes.inc.h"


/* Vectors of games side by side: a product waits for the one before it, so that several are under way. */
#define SIDE 4
#define GAMES (SIDE * XG_WIDTH)

ptrdiff_t xg_shapley_scratch(const xg_product_games *games)
{
    return games->players * (games->n_parts + 3) * GAMES;
}

/* Of GAMES games, whose parts are (players, n_parts, SIDE), the sums (players, SIDE) over the nodes; n_parts is a
 * constant. */
XG_INLINE void add_nodes(const int n_parts, const xg_product_games *games, const lanes *part, lanes *factor,
                         lanes *before, lanes *sum)
{
    ptrdiff_t players = games->players;
    for (ptrdiff_t g = 0; g < games->n_nodes; ++g) {
        const double *node = games->node + g * n_parts;
        lanes product[SIDE];
        for (int x = 0; x < SIDE; ++x)
            product[x] = (lanes){0.0} + games->weight[g];
        for (ptrdiff_t i = 0; i < players; ++i)
            for (int x = 0; x < SIDE; ++x) {
                lanes value = node[0] * part[i * n_parts * SIDE + x];
                for (int k = 1; k < n_parts; ++k)
                    value += node[k] * part[(i * n_parts + k) * SIDE + x];
                factor[i * SIDE + x] = value;
                before[i * SIDE + x] = product[x];
                product[x] *= value;
            }
        for (int x = 0; x < SIDE; ++x)
            product[x] = (lanes){0.0} + 1.0;
        for (ptrdiff_t i = players; i-- > 0;)
            for (int x = 0; x < SIDE; ++x) {
                sum[i * SIDE + x] += before[i * SIDE + x] * product[x];
                product[x] *= factor[i * SIDE + x];
            }
    }
}

void xg_shapley(const xg_product_games *games, double *scratch, double *out)
{
    ptrdiff_t players = games->players, n_parts = games->n_parts, n = games->games;
    double *part = scratch, *sum = part + players * n_parts * GAMES;
    double *factor = sum + players * GAMES, *before = factor + players * GAMES;
    for (ptrdiff_t first = 0; first < n; first += GAMES) {
        ptrdiff_t here = SMALLER(GAMES, n - first);
        /* Games beyond the last one are zeros. */
        memset(scratch, 0, (size_t)(players * (n_parts + 1) * GAMES) * sizeof *scratch);
        for (ptrdiff_t k = 0; k < n_parts; ++k)
            for (ptrdiff_t i = 0; i < players; ++i)
                memcpy(part + (i * n_parts + k) * GAMES, games->part + (k * players + i) * n + first,
                       (size_t)here * sizeof *part);
        XG_WITH(n_parts == 2, 2, 4, add_nodes, games, LANES(part), LANES(factor), LANES(before), LANES(sum));
        for (ptrdiff_t i = 0; i < players; ++i)
            for (ptrdiff_t l = 0; l < here; ++l) {
                double slope = 0.0;
                for (ptrdiff_t k = 0; k < n_parts; ++k)
                    slope += games->slope[k] * part[(i * n_parts + k) * GAMES + l];
                out[i * n + first + l] = slope * sum[i * GAMES + l];
            }
    }
}
