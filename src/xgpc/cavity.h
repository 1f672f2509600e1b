/* E[p(y | f)] of two classes under a normal cavity, and the sites of expectation propagation. */
#pragma once

#include "moments.h"

enum { XG_CAVITY_LOGIT, XG_CAVITY_PROBIT };

/* The moments of the one latent function are those of the cavity.
 *
 * value = log E[p(y | f)], f ~ N(m, v), and its derivatives with respect to m and v. */
void xg_cavity_scores(int link, const xg_moments *at, double *value, double *d_m, double *d_v);
/* The normal site whose product with the cavity N(m, v) has the mean and the variance of the tilted distribution. */
void xg_cavity_sites(int link, const xg_moments *at, double *precision, double *linear);
/* The gradient with respect to the cavity, from that with respect to the site. */
void xg_cavity_vjp(int link, const xg_moments *at, const double *d_precision, const double *d_linear, double *d_m,
                   double *d_v);
