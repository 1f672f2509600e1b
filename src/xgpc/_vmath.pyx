"""Elementwise functions of the compiled core, for arrays."""
import numpy as np

cdef extern from "vmath.h" nogil:
    void xg_exp_array(Py_ssize_t n, const double* x, double* out)
    void xg_normal_array(Py_ssize_t n, const double* x, double* cdf, double* pdf)

cdef extern from "sites.h" nogil:
    void xg_logistic_normal_mean_array(Py_ssize_t n, const double* m, const double* v, double* out)
    Py_ssize_t xg_logistic_normal_logs(Py_ssize_t n, const double* m, const double* v, double least, Py_ssize_t* thin,
                                       double* out)

cdef extern from *:
    """
    #include "coefficients.h"
    #define XG_PAIR(weight, variance) {weight, variance},
    static const double xg_logistic_mixture[][2] = {XG_LOGISTIC_MIXTURE(XG_PAIR)};
    #define XG_LOGISTIC_MIXTURE_SIZE (sizeof xg_logistic_mixture / sizeof xg_logistic_mixture[0])
    """
    const double[1][2] xg_logistic_mixture
    const Py_ssize_t XG_LOGISTIC_MIXTURE_SIZE

# sigma(f) = sum_k p_k Phi(f / sqrt(v_k)): p_k and v_k of each k
LOGISTIC_MIXTURE = tuple((xg_logistic_mixture[k][0], xg_logistic_mixture[k][1])
                         for k in range(XG_LOGISTIC_MIXTURE_SIZE))


def logistic_normal_mean(const double[::1] mean, const double[::1] variance):
    """E[sigma(f)], f ~ N(mean, variance), elementwise."""
    cdef Py_ssize_t n = mean.shape[0]
    out = np.empty(n)
    cdef double[::1] result = out
    if n:
        with nogil:
            xg_logistic_normal_mean_array(n, &mean[0], &variance[0], &result[0])
    return out


def logistic_normal_logs(const double[::1] mean, const double[::1] variance, double least):
    """log E[sigma(-f)] and log E[sigma(f)], (n, 2), f ~ N(mean, variance), and the indices (r,) of inexact points.

    A point is inexact if |mean| <= variance and the probability of the less probable class is below ``least``; see
    ``likelihoods/binary.py``.
    """
    cdef Py_ssize_t n = mean.shape[0], count = 0
    out, thin = np.empty((n, 2)), np.empty(n, dtype=np.intp)
    cdef double[:, ::1] result = out
    cdef Py_ssize_t[::1] found = thin
    if n:
        with nogil:
            count = xg_logistic_normal_logs(n, &mean[0], &variance[0], least, &found[0], &result[0, 0])
    return out, thin[:count]


def exp(const double[::1] x):
    """exp(x) for x <= 0, elementwise."""
    cdef Py_ssize_t n = x.shape[0]
    out = np.empty(n)
    cdef double[::1] result = out
    if n:
        with nogil:
            xg_exp_array(n, &x[0], &result[0])
    return out


def normal(const double[::1] x):
    """Standard normal distribution function and density, elementwise."""
    cdef Py_ssize_t n = x.shape[0]
    out = np.empty((2, n))
    cdef double[:, ::1] result = out
    if n:
        with nogil:
            xg_normal_array(n, &x[0], &result[0, 0], &result[1, 0])
    return out[0], out[1]
