/* Sites of several classes: the marginals of one latent function per class -> ell, and lambda and r of each class.
 *
 * As in sites.h, lambda_c = -2 d ell / d v_c and r_c = d ell / d m_c + lambda_c m_c of the very ell that is computed.
 *
 * XG_SOFTMAX_EXACT           E[log softmax_y(f)] by quasi-random nodes
 * XG_SOFTMAX_ADDITIVE_NOISE  a lower bound of it: Liu et al. 2019, equation (25), "GPCsm"
 * XG_MULTINOMIAL_*           Liu et al. 2019, equation (18), with noise of variance 0, 1 and 1.702^2
 * XG_LOGISTIC_SOFTMAX        Galy-Fajou et al. 2019, the bound of their augmentation
 *
 * Precisions of XG_SOFTMAX_EXACT and XG_MULTINOMIAL_* can be negative. */
#ifndef XGPC_MULTICLASS_H
#define XGPC_MULTICLASS_H

#include "site_list.h"
#include "vmath.h"

/* Doubles of scratch xg_multiclass_sites wants. */
ptrdiff_t xg_multiclass_scratch(ptrdiff_t classes);

/* Sites of n points, classes >= 2. Element (c, i) of m, v, lambda and r stands at [c * stride + i]; y[i] is one of
 * 0 .. classes - 1. delta, in (0, 1), is the probability of a random label of XG_MULTINOMIAL_*. nodes, (n_nodes,
 * classes) row by row, are the nodes of XG_SOFTMAX_EXACT, each used with both signs; they must have second moments
 * nodes^T nodes / n_nodes = I for lambda to be right where v is small. Returns 0, or -1 and writes nothing if the kind
 * is not one of several classes. */
int xg_multiclass_sites(int kind, ptrdiff_t classes, ptrdiff_t n, ptrdiff_t stride, const double *m, const double *v,
                        const double *y, double delta, ptrdiff_t n_nodes, const double *nodes, double *scratch,
                        double *ell, double *lambda, double *r);

/* E[p_c (1 - p_c)] of n points, p = softmax(f), by the nodes of XG_SOFTMAX_EXACT; (classes, n) each, scratch as above. */
void xg_softmax_spread(ptrdiff_t classes, ptrdiff_t n, const double *m, const double *v, ptrdiff_t n_nodes,
                       const double *nodes, double *scratch, double *spread);

#endif
