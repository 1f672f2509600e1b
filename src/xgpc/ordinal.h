/* Sites of ordered classes: p(y = c | f) = F(b_c - f) - F(b_{c-1} - f) with cut points b_1 < ... < b_{C-1}.
 *
 * A row's class lies between its cut points low and high; XG_NO_CUT stands for an infinite one. Both likelihoods are
 * log-concave in f and in the cut points. */
#ifndef XGPC_ORDINAL_H
#define XGPC_ORDINAL_H

#include "moments.h"

#define XG_NO_CUT 1e100

/* ell, lambda and r of sites.h, and the derivatives of ell by both cut points. */
typedef struct {
    double ell, lambda, r, by_low, by_high;
} xg_ordinal_site;

typedef xg_ordinal_site (*xg_ordinal_function)(double m, double v, double low, double high);

xg_ordinal_site xg_ordinal_logit(double m, double v, double low, double high);
xg_ordinal_site xg_ordinal_probit(double m, double v, double low, double high);

#endif
