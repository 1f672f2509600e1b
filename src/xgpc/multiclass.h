/* Sites of several classes: from the marginals of one latent function per class to ell, and lambda and r of each class.
 *
 * As in sites.h, lambda_c = -2 d ell / d v_c and r_c = d ell / d m_c + lambda_c m_c.
 *
 * XG_SOFTMAX_EXACT           E[log softmax_y(f)]
 * XG_SOFTMAX_ADDITIVE_NOISE  a lower bound of it: Liu et al. 2019, equation (25), "GPCsm"
 * XG_MULTINOMIAL_*           Liu et al. 2019, equation (18), with noise of variance 0, 1 and 1.702^2
 * XG_LOGISTIC_SOFTMAX        the bound of the augmentation of Galy-Fajou et al. 2019
 *
 * Precisions of XG_MULTINOMIAL_* can be negative. */
#pragma once

#include "sites.h"

/* Number of doubles of scratch that xg_multiclass_sites needs. */
ptrdiff_t xg_multiclass_scratch(ptrdiff_t classes);

/* Sites of points of two classes or more, from the moments of the distances f_c - prior_mean[c]; see xg_sites.
 * XG_SOFTMAX_EXACT needs the table. Returns 0; or returns -1 and writes nothing if the kind has one latent function
 * only, or if the table is missing. */
int xg_multiclass_sites(const xg_likelihood *likelihood, const xg_moments *points, double *scratch,
                        const xg_site_arrays *sites);
