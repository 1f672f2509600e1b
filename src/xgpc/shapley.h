/* Shapley values of product games.
 *
 * In the game v(S) = prod_{i in S} p_i prod_{i not in S} q_i, player j has the Shapley value
 *
 *     (p_j - q_j) integral over t in [0, 1] of prod_{i != j} (t p_i + (1 - t) q_i),
 *
 * the gradient of the multilinear extension along the diagonal (Owen, Management Science 18, 1972). The integrand is a
 * polynomial in t, of which Gauss's rule has the exact integral. Products before and after a player make all products
 * of the others without a division. */
#pragma once

#include "vmath.h"

/* Games whose factors are sums of parts: p and q with nodes (t, 1 - t) and slopes (1, -1); or the four parts of the
 * covariance of two games' values, which is such an integral over two such t. */
typedef struct {
    ptrdiff_t players, games, n_parts, n_nodes; /* two or four parts */
    const double *part;                         /* (n_parts, players, games) */
    const double *node;                         /* (n_nodes, n_parts) */
    const double *weight;                       /* (n_nodes,) */
    const double *slope;                        /* (n_parts,) */
} xg_product_games;

/* Numbers of scratch */
ptrdiff_t xg_shapley_scratch(const xg_product_games *games);

/* out (players, games) = sum_k slope_k part_kj times sum_g weight_g prod_{i != j} sum_k node_gk part_ki */
void xg_shapley(const xg_product_games *games, double *scratch, double *out);
