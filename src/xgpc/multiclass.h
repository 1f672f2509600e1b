/* Sites of several classes: the marginals of one latent function per class -> ell, and lambda and r of each class.
 *
 * As in sites.h, lambda_c = -2 d ell / d v_c and r_c = d ell / d m_c + lambda_c m_c of the very ell that is computed.
 *
 * XG_SOFTMAX_EXACT           E[log softmax_y(f)]
 * XG_SOFTMAX_ADDITIVE_NOISE  a lower bound of it: Liu et al. 2019, equation (25), "GPCsm"
 * XG_MULTINOMIAL_*           Liu et al. 2019, equation (18), with noise of variance 0, 1 and 1.702^2
 * XG_LOGISTIC_SOFTMAX        Galy-Fajou et al. 2019, the bound of their augmentation
 *
 * Precisions of XG_MULTINOMIAL_* can be negative. */
#ifndef XGPC_MULTICLASS_H
#define XGPC_MULTICLASS_H

#include "site_list.h"
#include "softmax.h"

/* Doubles of scratch xg_multiclass_sites wants. */
ptrdiff_t xg_multiclass_scratch(ptrdiff_t classes);

/* Sites of n points, classes >= 2. Element (c, i) of m, v, lambda and r stands at [c * stride + i]; y[i] is one of
 * 0 .. classes - 1. m and r are of f_c - prior_mean[c]: see xg_sites. delta, in (0, 1), is the probability of a random label of XG_MULTINOMIAL_*. table is that of
 * XG_SOFTMAX_EXACT. Returns 0, or -1 and writes nothing if the kind is not one of several classes, or XG_SOFTMAX_EXACT
 * without a table. */
int xg_multiclass_sites(int kind, ptrdiff_t classes, ptrdiff_t n, ptrdiff_t stride, const double *m, const double *v,
                        const double *y, const double *prior_mean, double delta, const xg_hazard_table *table,
                        double *scratch, double *ell, double *lambda, double *r);

#endif
