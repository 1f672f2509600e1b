/* The list of all sites: their numbers, their dispatch in sites.c and multiclass.c, and the names that Python reads.
 *
 * SITE(number, likelihood, bound, form, term), a line for each. The forms, with what their term is:
 *
 * POINT          one latent function; a static inline function (m, v, y) of sites.h
 * POINT_NOISE    one latent function, additive noise; the variance of the noise
 * CLASSES        a latent function for each class; a chunk of multiclass.c
 * CLASSES_TABLE  the same, a chunk that takes the table of softmax.h
 * CLASSES_NOISE  the same, additive noise; the variance of the noise */
#ifndef XGPC_SITE_LIST_H
#define XGPC_SITE_LIST_H

#include <stddef.h>

/* Variances of the normal noise that stands for each likelihood's; the logistic one's is the nearest by its largest
 * difference (Liu et al. 2019, section II-A). */
#define XG_STEP_NOISE 0.0
#define XG_PROBIT_NOISE 1.0
#define XG_LOGIT_NOISE (1.702 * 1.702)

#define XG_SITE_LIST(SITE)                                                                                           \
    SITE(XG_LOGIT_POLYA_GAMMA, "logit", "polya-gamma", POINT, xg_logit_polya_gamma)                                  \
    SITE(XG_LOGIT_EXACT, "logit", "exact", POINT, xg_logit_exact)                                                    \
    SITE(XG_LOGIT_TAYLOR, "logit", "taylor", POINT, xg_logit_taylor)                                                 \
    SITE(XG_PROBIT_EXACT, "probit", "exact", POINT, xg_probit_exact)                                                 \
    SITE(XG_SVM_AUGMENTED, "svm", "augmented", POINT, xg_svm_augmented)                                              \
    SITE(XG_SVM_EXACT, "svm", "exact", POINT, xg_svm_exact)                                                          \
    SITE(XG_STEP_ADDITIVE_NOISE, "step", "additive-noise", POINT_NOISE, XG_STEP_NOISE)                               \
    SITE(XG_PROBIT_ADDITIVE_NOISE, "probit", "additive-noise", POINT_NOISE, XG_PROBIT_NOISE)                         \
    SITE(XG_LOGIT_ADDITIVE_NOISE, "logit", "additive-noise", POINT_NOISE, XG_LOGIT_NOISE)                            \
    SITE(XG_SOFTMAX_EXACT, "softmax", "exact", CLASSES_TABLE, xg_softmax_exact_chunk)                                \
    SITE(XG_SOFTMAX_ADDITIVE_NOISE, "softmax", "additive-noise", CLASSES, xg_softmax_additive_noise_chunk)           \
    SITE(XG_MULTINOMIAL_STEP, "multinomial-step", "additive-noise", CLASSES_NOISE, XG_STEP_NOISE)                    \
    SITE(XG_MULTINOMIAL_PROBIT, "multinomial-probit", "additive-noise", CLASSES_NOISE, XG_PROBIT_NOISE)              \
    SITE(XG_MULTINOMIAL_LOGIT, "multinomial-logit", "additive-noise", CLASSES_NOISE, XG_LOGIT_NOISE)                 \
    SITE(XG_LOGISTIC_SOFTMAX, "logistic-softmax", "polya-gamma", CLASSES, xg_logistic_softmax_chunk)

#define XG_SITE_NUMBER(number, likelihood, bound, form, term) number,
enum { XG_SITE_LIST(XG_SITE_NUMBER) XG_SITE_COUNT };
#undef XG_SITE_NUMBER

int xg_site_count(void);
/* Of site 0 <= i < xg_site_count(). */
const char *xg_site_likelihood(int i);
const char *xg_site_bound(int i);
int xg_site_is_multi_class(int i);

#endif
