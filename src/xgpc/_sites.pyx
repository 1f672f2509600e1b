"""Sites: from the latent marginals of points to their expected log likelihoods, precisions and linear terms."""
from uuid import uuid4

import numpy as np

from ._core cimport *

cdef extern from *:
    """
    #include "coefficients.inc.h"
    #define XG_PAIR(weight, variance) {weight, variance},
    static const double xg_logistic_mixture[][2] = {XG_LOGISTIC_MIXTURE(XG_PAIR)};
    #define XG_LOGISTIC_MIXTURE_SIZE (sizeof xg_logistic_mixture / sizeof xg_logistic_mixture[0])
    """
    const double[1][2] xg_logistic_mixture
    const Py_ssize_t XG_LOGISTIC_MIXTURE_SIZE

# sigma(f) = sum_k p_k Phi(f / sqrt(v_k)): p_k and v_k of each k
LOGISTIC_MIXTURE = tuple((xg_logistic_mixture[k][0], xg_logistic_mixture[k][1])
                         for k in range(XG_LOGISTIC_MIXTURE_SIZE))

# (likelihood, bound) -> number in the list of sites.h
KINDS = {(xg_site_likelihood(i).decode(), xg_site_bound(i).decode()): i for i in range(XG_SITE_COUNT)}
# Degree of the polynomials in the table of exact softmax.
HAZARD_DEGREE = XG_HAZARD_DEGREE
# Sites with one latent function per class.
MULTI_CLASS = frozenset(key for key, i in KINDS.items() if xg_site_is_multi_class(i))

# Links of cavities -> their numbers
LINKS = {"logit": XG_CAVITY_LOGIT, "probit": XG_CAVITY_PROBIT}


cdef class Site:
    """The site function of a likelihood with one of its bounds, a key of ``KINDS``. It is immutable and can be pickled.

    There is one latent function, or for keys in ``MULTI_CLASS`` one per class. ``parameter`` is the probability delta,
    under additive noise, that a label is not that of the largest latent value; guess and lapse rate (2,), or one number
    for both; or increasing cut points (classes - 1,); ``learned`` says whether a fit learns it. Exact softmax must have
    a ``table`` (rows + 2, HAZARD_DEGREE + 5), see softmax.h, which is not copied. ``record`` is that of the registry.

    ``prior_mean`` (n_latents,), by default zeros, is the mean of each latent function under the prior: a posterior
    describes the distance of the latent functions from it, and a site takes the mean of this distance. Copies and
    pickles keep the ``key``, under which results are cached; all other sites have other keys.
    """
    def __cinit__(self, likelihood, bound, Py_ssize_t n_latents=1, parameter=0.01, bint learned=False,
                  table=None, record=None, prior_mean=None, key=None):
        kind = likelihood, bound
        if kind not in KINDS:
            raise ValueError(f"(likelihood, bound) must be one of {list(KINDS)}; got {kind}.")
        if n_latents < 1 or (n_latents > 1) != (kind in MULTI_CLASS):
            allowed = "the number of classes, at least 2" if kind in MULTI_CLASS else "1"
            raise ValueError(f"n_latents of the site {kind} must be {allowed}; got {n_latents}.")
        shape = np.shape(table)
        if kind == ("softmax", "exact") and (shape[1:] != (XG_HAZARD_COLUMNS,) or shape[0] < 4):
            raise ValueError(f"The site {kind} must have a table (rows + 2, {XG_HAZARD_COLUMNS}) with at least two "
                             f"rows; got the shape {shape}.")
        if prior_mean is not None and np.shape(prior_mean) != (n_latents,):
            raise ValueError(f"prior_mean must be ({n_latents},); got {np.shape(prior_mean)}.")
        self.likelihood, self.bound = likelihood, bound
        self.n_latents, self.learned, self.record = n_latents, learned, record
        self._table = np.zeros((2, XG_HAZARD_COLUMNS)) if table is None else table
        self._prior_mean = np.zeros(n_latents) if prior_mean is None else np.array(prior_mean, dtype=np.float64)
        self._parameters = np.array(parameter, dtype=np.float64, ndmin=1)
        self._is_array = np.ndim(parameter) > 0
        self._core = xg_likelihood(KINDS[kind], &self._prior_mean[0], len(self._parameters), &self._parameters[0],
                                   xg_hazard_table(self._table.shape[0] - 2, &self._table[0, 0]))
        self.key = uuid4().hex if key is None else key

    @property
    def parameter(self):
        return np.array(self._parameters) if self._is_array else self._parameters[0]

    def with_parameter(self, parameter):
        """The same site with another parameter and a new key."""
        return Site(*self._arguments(parameter), self._prior_mean)

    def with_prior_mean(self, prior_mean):
        """The same site with another prior mean and a new key; itself if the mean is equal.

        ValueError for any other shape than (n_latents,).
        """
        if np.array_equal(self._prior_mean, prior_mean):
            return self
        return Site(*self._arguments(self.parameter), prior_mean)

    @property
    def prior_mean(self):
        return np.array(self._prior_mean)

    def _arguments(self, parameter):
        # Arguments of a site with this parameter, without prior mean and key
        table = np.asarray(self._table) if self._core.table.rows else None
        return self.likelihood, self.bound, self.n_latents, parameter, self.learned, table, self.record

    def __reduce__(self):
        return Site, (*self._arguments(self.parameter), self.prior_mean, self.key)


cdef void evaluate(Site site, const xg_moments* at, const double* weight, double* scratch,
                   const xg_site_arrays* out) noexcept nogil:
    # Sites of points, from the moments of the latent functions' distance from the prior mean. weight may be NULL.
    cdef Py_ssize_t c, i
    xg_sites(&site._core, at, scratch, out)
    for i in range(at.n if weight else 0):
        out.ell[i] *= weight[i]
        for c in range(site.n_latents):
            out.precision[c * at.stride + i] *= weight[i]
            out.linear[c * at.stride + i] *= weight[i]


def sites(Site site, mean, variance, y, weight=()):
    """ell (n,), precision and linear term (n,) or (C, n) of n points, and the sum of ell in the order of the points, as
    the functions of blocks have it; weight may be empty."""
    cdef const double[::1] labels = np.asarray(y, dtype=np.float64), weights = np.asarray(weight, dtype=np.float64)
    cdef Py_ssize_t i, n = labels.shape[0]
    shape = site.n_latents, n
    cdef const double[:, ::1] means = np.ascontiguousarray(np.reshape(mean, shape), dtype=np.float64)
    cdef const double[:, ::1] variances = np.ascontiguousarray(np.reshape(variance, shape), dtype=np.float64)
    ells, precision, linear = np.empty(n), np.empty(np.shape(mean)), np.empty(np.shape(mean))
    cdef double[::1] ell = ells, scratch = np.empty(xg_multiclass_scratch(site.n_latents))
    cdef double[:, ::1] precisions = precision.reshape(shape), linears = linear.reshape(shape)
    cdef xg_moments at = xg_moments(site.n_latents, n, n, n, &means[0, 0], &variances[0, 0], &labels[0])
    cdef xg_site_arrays out = xg_site_arrays(&ell[0], &precisions[0, 0], &linears[0, 0])
    cdef double total = 0.0
    with nogil:
        evaluate(site, &at, entry(weights, 0), &scratch[0], &out)
        for i in range(n):
            total += ell[i]
    return ells, precision, linear, total


def parameter_gradient(Site site, const double[:, ::1] mean, const double[:, ::1] variance, const double[::1] y,
                       const double[::1] weight):
    """Gradient of the sum of ell by cut points, or by guess and lapse rate, for moments (1, n); weight may be empty.

    That by a rate of 0 counts as 0.
    """
    cdef Py_ssize_t n = y.shape[0]
    gradient = np.zeros(len(site._parameters))
    cdef double[::1] by_parameter = gradient
    cdef xg_moments at = xg_moments(1, n, n, n, &mean[0, 0], &variance[0, 0], &y[0])
    cdef int status
    with nogil:
        status = xg_parameter_gradient(&site._core, &at, entry(weight, 0), &by_parameter[0])
    if status:
        raise ValueError(f"The site {site.likelihood!r} has neither cut points nor rates.")
    return gradient


def softmax_scores(Site site, const double[:, ::1] mean, const double[:, ::1] variance, const double[::1] y):
    """log E[softmax_y(f)] (n,) of exact softmax, and its derivatives with respect to means and variances (C, n)."""
    cdef Py_ssize_t classes = mean.shape[0], n = mean.shape[1]
    cdef xg_moments at = xg_moments(classes, n, n, n, &mean[0, 0], &variance[0, 0], &y[0])
    values, d_mean, d_variance = np.empty(n), np.empty((classes, n)), np.empty((classes, n))
    cdef double[::1] out = values, scratch = np.empty(xg_multiclass_scratch(classes))
    cdef double[:, ::1] by_mean = d_mean, by_variance = d_variance
    with nogil:
        xg_softmax_scores(&at, &site._core.table, &scratch[0], &out[0], &by_mean[0, 0], &by_variance[0, 0])
    return values, d_mean, d_variance


def softmax_vjp(Site site, const double[:, ::1] mean, const double[:, ::1] variance,
                const double[:, ::1] by_precision, const double[:, ::1] by_linear):
    """Derivatives by means and variances (C, n) from those by the precisions and linear terms of exact softmax."""
    cdef Py_ssize_t classes = mean.shape[0], n = mean.shape[1]
    cdef xg_moments at = xg_moments(classes, n, n, n, &mean[0, 0], &variance[0, 0], NULL)
    d_mean, d_variance = np.empty((classes, n)), np.empty((classes, n))
    cdef double[::1] scratch = np.empty(xg_multiclass_scratch(classes))
    cdef double[:, ::1] by_mean = d_mean, by_variance = d_variance
    with nogil:
        xg_softmax_vjp(&at, &by_precision[0, 0], &by_linear[0, 0], &site._core.table, &scratch[0],
                       &by_mean[0, 0], &by_variance[0, 0])
    return d_mean, d_variance


def cavity_scores(int link, const double[::1] mean, const double[::1] variance, const double[::1] y):
    """log E[p(y | f)] (n,) for f ~ N(mean, variance), and its derivatives by these."""
    out = np.empty((3, len(mean)))
    cdef double[:, ::1] o = out
    cdef Py_ssize_t n = mean.shape[0]
    cdef xg_moments at = xg_moments(1, n, n, n, &mean[0], &variance[0], &y[0])
    with nogil:
        xg_cavity_scores(link, &at, &o[0, 0], &o[1, 0], &o[2, 0])
    return out[0], out[1], out[2]


def cavity_sites(int link, const double[::1] mean, const double[::1] variance, const double[::1] y):
    """Precisions and linear terms (n,) of expectation propagation's sites for cavities N(mean, variance)."""
    out = np.empty((2, len(mean)))
    cdef double[:, ::1] o = out
    cdef Py_ssize_t n = mean.shape[0]
    cdef xg_moments at = xg_moments(1, n, n, n, &mean[0], &variance[0], &y[0])
    with nogil:
        xg_cavity_sites(link, &at, &o[0, 0], &o[1, 0])
    return out[0], out[1]


def cavity_vjp(int link, const double[::1] mean, const double[::1] variance, const double[::1] y,
               const double[::1] d_precision, const double[::1] d_linear):
    """Gradients (n,) by means and variances of cavities from those by their sites."""
    out = np.empty((2, len(mean)))
    cdef double[:, ::1] o = out
    cdef Py_ssize_t n = mean.shape[0]
    cdef xg_moments at = xg_moments(1, n, n, n, &mean[0], &variance[0], &y[0])
    with nogil:
        xg_cavity_vjp(link, &at, &d_precision[0], &d_linear[0], &o[0, 0], &o[1, 0])
    return out[0], out[1]


def logistic_normal_mean(const double[::1] mean, const double[::1] variance):
    """E[sigma(f)], f ~ N(mean, variance), elementwise."""
    cdef Py_ssize_t n = mean.shape[0]
    out = np.empty(n)
    cdef double[::1] result = out
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
    with nogil:
        count = xg_logistic_normal_logs(n, &mean[0], &variance[0], least, &found[0], &result[0, 0])
    return out, thin[:count]


def exp(const double[::1] x):
    """exp(x) for x <= 0, elementwise."""
    cdef Py_ssize_t n = x.shape[0]
    out = np.empty(n)
    cdef double[::1] result = out
    with nogil:
        xg_exp_array(n, &x[0], &result[0])
    return out


def normal(const double[::1] x):
    """Standard normal distribution function and density, elementwise."""
    cdef Py_ssize_t n = x.shape[0]
    out = np.empty((2, n))
    cdef double[:, ::1] result = out
    with nogil:
        xg_normal_array(n, &x[0], &result[0, 0], &result[1, 0])
    return out[0], out[1]


cdef class Values:
    """C independent values of each of n points: means, standard deviations and rows of the table (n, C).

    They are sums of normal and Gumbel variables, or normal if ``tables`` is empty. These (2, rows + 2, columns + 2) are
    the spline coefficients of largest.h; low and high are the range of the columns. ``ends`` (3, n) are those of the
    integrals for the largest value: the first possible beginning, the least end, and the least distance between both.
    """

    cdef const double[:, :, ::1] tables
    cdef const double[:, ::1] mean, scale, row, ends
    cdef xg_table table
    cdef double[::1] scratch

    def __cinit__(self, const double[:, :, ::1] tables, double low, double high, const double[:, ::1] mean,
                  const double[:, ::1] scale, const double[:, ::1] row, const double[:, ::1] ends):
        self.tables, self.mean, self.scale, self.row, self.ends = tables, mean, scale, row, ends
        self.table = xg_table(tables.shape[1] - 2, tables.shape[2] - 2, low, high, NULL, NULL)
        if tables.shape[0]:
            self.table.psi, self.table.slope = &tables[0, 0, 0], &tables[1, 0, 0]
        self.scratch = np.empty(xg_largest_scratch(&self.table, mean.shape[1]))

    cdef xg_values at(self, Py_ssize_t i) noexcept nogil:
        return xg_values(&self.table, self.mean.shape[1], &self.mean[i, 0], &self.scale[i, 0], &self.row[i, 0],
                         self.ends[0, i], self.ends[1, i], self.ends[2, i])

    def log_probabilities(self):
        """Log probabilities (n, C) that each value is the largest."""
        cdef Py_ssize_t i, n = self.mean.shape[0]
        values = np.empty((n, self.mean.shape[1]))
        cdef double[:, ::1] log_p = values
        cdef xg_values at
        with nogil:
            for i in range(n):
                at = self.at(i)
                xg_largest(&at, &self.scratch[0], &log_p[i, 0])
        return values

    def slopes(self):
        """Derivatives (2, n, C, C) of the probabilities by means and by variances."""
        cdef Py_ssize_t i, n = self.mean.shape[0], classes = self.mean.shape[1]
        by_moments = np.empty((n, 2, classes, classes))
        cdef double[:, :, :, ::1] out = by_moments
        cdef xg_values at
        with nogil:
            for i in range(n):
                at = self.at(i)
                xg_largest_slopes(&at, &self.scratch[0], &out[i, 0, 0, 0])
        return np.swapaxes(by_moments, 0, 1)


def product_games(const double[:, :, ::1] parts, const double[:, ::1] nodes, const double[::1] weights,
                  const double[::1] slopes):
    """Shapley values (players, games) of ``parts`` (K, players, games), K = 2 or 4, by a rule for the integral with
    nodes (nodes, K) and weights (nodes,), and slopes (K,); O(players games nodes)."""
    if parts.shape[0] not in (2, 4):
        raise ValueError(f"Games have two or four parts; got {parts.shape[0]}.")
    out = np.empty((parts.shape[1], parts.shape[2]))
    cdef double[:, ::1] values = out
    cdef xg_product_games games = xg_product_games(parts.shape[1], parts.shape[2], parts.shape[0], weights.shape[0],
                                                   &parts[0, 0, 0], &nodes[0, 0], &weights[0], &slopes[0])
    cdef double[::1] scratch = np.empty(xg_shapley_scratch(&games))
    with nogil:
        xg_shapley(&games, &scratch[0], &values[0, 0])
    return out
