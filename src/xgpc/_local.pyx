"""What the k nearest rows say, its gradients, and the sites of expectation propagation; see local.h.

Everything works on a range of rows and writes there alone, so that threads can share the arrays.
"""
import numpy as np

from libc.stdint cimport int64_t

from ._engine cimport Workspace, add_gradient, tiles
from ._kernels cimport InducingKernel, KernelGradient, real

cdef extern from "local.h" nogil:
    ctypedef struct xg_local_kernel:
        Py_ssize_t n_terms, n_factors, n_features
        const double* variance
        const int* noise
        const Py_ssize_t* first
        const int* family
        const double* shape
    ctypedef struct xg_local_support:
        Py_ssize_t n, m, n_classes
        const double* x
        const double* a
        const double* residual
        const double* precision
        const double* linear
    ctypedef struct xg_local_rows:
        Py_ssize_t n, k
        const double* x
        const double* a
        const double* residual
        const int64_t* index
        const int64_t* n_earlier
    ctypedef struct xg_local_conditional:
        double* b
        double* gamma
        double* variance
        double* mean
        double* slopes
    ctypedef struct xg_local_pulled:
        const double* d_b
        const double* d_variance
        const double* d_mean
        double* gamma
        double* chi
        double* b
        double* u
        double* d_precision
        double* d_linear
    ctypedef struct xg_local_gradient:
        xg_local_pulled set[2]
        double* d_a
        double* terms
        double* shapes
        double* scales
    Py_ssize_t xg_local_scratch(const xg_local_kernel* kernel, const xg_local_support* support, Py_ssize_t k)
    void xg_local_condition(const xg_local_kernel* kernel, const xg_local_support* support, const xg_local_rows* rows,
                            double* scratch, const xg_local_conditional* out, const xg_local_gradient* gradient)

cdef extern from "cavity.h" nogil:
    enum:
        XG_CAVITY_LOGIT
        XG_CAVITY_PROBIT
    void xg_cavity_scores(int link, Py_ssize_t n, const double* m, const double* v, const double* y, double* value,
                          double* d_m, double* d_v)
    void xg_cavity_sites(int link, Py_ssize_t n, const double* m, const double* v, const double* y,
                         double* precision, double* linear)
    void xg_cavity_vjp(int link, Py_ssize_t n, const double* m, const double* v, const double* y,
                       const double* d_precision, const double* d_linear, double* d_m, double* d_v)

cdef extern from "residual.h" nogil:
    void xg_residual_rows(Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, const double* a, const double* A,
                          const int64_t* index, const double* gamma, double* b)

# Arrays of xg_local_pulled that are written, in the order in which ``Support.vjp`` returns them.
OUTPUTS = "gamma", "chi", "b", "u", "d_precision", "d_linear"
LINKS = {"logit": XG_CAVITY_LOGIT, "probit": XG_CAVITY_PROBIT}


cdef inline const double* start_of(const double[::1] values) noexcept nogil:
    return &values[0] if values.shape[0] else NULL


cdef class Support:
    """Rows that are neighbours.

    Parameters
    ----------
    kernel : InducingKernel, of which the parameters are taken
    x : (n_factors, n, d) float64, features divided by each factor's length scales
    a : (n, m) float64 whitened rows
    residual : (n,) float64, k(x, x) - |a|^2, not negative
    precision, linear : (C, n) float64 sites
    """
    cdef xg_local_kernel kernel
    cdef xg_local_support support
    cdef object _alive
    cdef InducingKernel _kernel

    def __init__(self, InducingKernel kernel, *arrays):
        (n, m), C = np.shape(arrays[1]), len(arrays[3])
        shapes = [np.shape(array) for array in arrays]
        expected = [(kernel.n_factors, n, kernel.n_features), (n, m), (n,), (C, n), (C, n)]
        if shapes != expected:
            raise ValueError(f"The shapes of x, a, residual, precision, linear must be {expected}; got {shapes}.")
        self._alive, self._kernel = arrays, kernel
        cdef const double[:, :, ::1] x = arrays[0]
        cdef const double[:, ::1] a = arrays[1], precision = arrays[3], linear = arrays[4]
        cdef const double[::1] residual = arrays[2]
        self.kernel.n_terms, self.kernel.n_factors = kernel.n_terms, kernel.n_factors
        self.kernel.n_features = kernel.n_features
        self.kernel.variance, self.kernel.noise = &kernel._variance[0], &kernel._noise[0]
        self.kernel.first = &kernel._first[0]
        self.kernel.family = &kernel._family[0] if kernel.n_factors else NULL
        self.kernel.shape = &kernel._shape[0] if kernel.n_factors else NULL
        self.support.n, self.support.m, self.support.n_classes = n, m, C
        self.support.x = &x[0, 0, 0] if kernel.n_factors else NULL
        self.support.a = &a[0, 0] if m else NULL
        self.support.residual = &residual[0]
        self.support.precision, self.support.linear = &precision[0, 0], &linear[0, 0]

    cdef xg_local_rows rows_of(self, tuple arrays):
        # x, a, residual, index and n_earlier or None, as ``condition`` takes them.
        cdef xg_local_rows rows
        cdef const int64_t[::1] n_earlier
        (n, k), m = np.shape(arrays[3]), self.support.m
        shapes = [np.shape(array) for array in arrays if array is not None]
        expected = [(self.kernel.n_factors, n, self.kernel.n_features), (n, m), (n,), (n, k), (n,)]
        if shapes != expected[:len(shapes)] or len(shapes) < 4:
            raise ValueError(f"The shapes of x, a, residual, index and, for two sets of neighbours, n_earlier must be "
                             f"{expected}; got {shapes}.")
        cdef const double[:, :, ::1] x = arrays[0]
        cdef const double[:, ::1] a = arrays[1]
        cdef const double[::1] residual = arrays[2]
        cdef const int64_t[:, ::1] index = arrays[3]
        rows.n, rows.k = n, k
        rows.x = &x[0, 0, 0] if self.kernel.n_factors else NULL
        rows.a = &a[0, 0] if self.support.m else NULL
        rows.residual = &residual[0]
        rows.index = &index[0, 0] if k else NULL
        rows.n_earlier = NULL
        if arrays[4] is not None:
            n_earlier = arrays[4]
            rows.n_earlier = &n_earlier[0]
        return rows

    def condition(self, tuple arrays):
        """Each set's b (C, n, m), gamma (C, n, k), variance and mean (C, n), and slopes (C, n, k); see local.h.

        ``arrays`` are the rows: x (n_factors, n, d), a (n, m), residual (n,), index (n, k) of their neighbours, and
        n_earlier (n,) where there are two sets of neighbours, else None.
        """
        cdef xg_local_rows rows = self.rows_of(arrays)
        cdef double[::1] scratch = np.empty(xg_local_scratch(&self.kernel, &self.support, rows.k))
        cdef xg_local_conditional out[2]
        cdef Py_ssize_t C = self.support.n_classes, m = self.support.m
        cdef double[:, :, ::1] b, gamma, slopes
        cdef double[:, ::1] variance, mean
        found = []
        for i in range(1 if arrays[4] is None else 2):
            found.append((np.empty((C, rows.n, m)), np.empty((C, rows.n, rows.k)), np.empty((C, rows.n)),
                          np.empty((C, rows.n)), np.empty((C, rows.n, rows.k))))
            b, gamma, variance, mean, slopes = found[i]
            out[i].b = &b[0, 0, 0] if m else NULL
            out[i].gamma = &gamma[0, 0, 0] if rows.k else NULL
            out[i].variance, out[i].mean = &variance[0, 0], &mean[0, 0]
            out[i].slopes = &slopes[0, 0, 0] if rows.k else NULL
        with nogil:
            xg_local_condition(&self.kernel, &self.support, &rows, &scratch[0], out, NULL)
        return found

    def vjp(self, tuple arrays, list given):
        """What gradients by each set's b, variance and mean, ``given``, are by other quantities.

        ``arrays`` are the rows, as for ``condition``. Returns each set's ``OUTPUTS``, the gradient (n, m) by a, and the
        sums over rows: terms, shapes and scales.
        """
        cdef xg_local_rows rows = self.rows_of(arrays)
        cdef double[::1] scratch = np.empty(xg_local_scratch(&self.kernel, &self.support, rows.k))
        cdef xg_local_gradient gradient
        cdef Py_ssize_t F = self.kernel.n_factors, C = self.support.n_classes, m = self.support.m
        # One more than there are factors: there may be none.
        sums = np.zeros(self.kernel.n_terms), np.zeros(F + 1), np.zeros((F + 1, self.kernel.n_features))
        by_a = np.empty((rows.n, m))
        cdef double[::1] terms = sums[0], shapes = sums[1]
        cdef double[:, ::1] scales = sums[2], d_a = by_a
        cdef const double[:, :, ::1] d_b
        cdef const double[:, ::1] d_variance, d_mean
        cdef double[:, :, ::1] gamma, chi, b, u, d_precision, d_linear
        outputs = []
        for i in range(len(given)):
            d_b, d_variance, d_mean = given[i]
            outputs.append(tuple([np.empty((C, rows.n, width)) for width in (rows.k, rows.k, m, m, rows.k, rows.k)]))
            gamma, chi, b, u, d_precision, d_linear = outputs[i]
            gradient.set[i].d_b = &d_b[0, 0, 0] if m else NULL
            gradient.set[i].d_variance, gradient.set[i].d_mean = &d_variance[0, 0], &d_mean[0, 0]
            gradient.set[i].gamma = &gamma[0, 0, 0] if rows.k else NULL
            gradient.set[i].chi = &chi[0, 0, 0] if rows.k else NULL
            gradient.set[i].b = &b[0, 0, 0] if m else NULL
            gradient.set[i].u = &u[0, 0, 0] if m else NULL
            gradient.set[i].d_precision = &d_precision[0, 0, 0] if rows.k else NULL
            gradient.set[i].d_linear = &d_linear[0, 0, 0] if rows.k else NULL
        gradient.d_a = &d_a[0, 0] if m else NULL
        gradient.terms, gradient.shapes, gradient.scales = &terms[0], &shapes[0], &scales[0, 0]
        with nogil:
            xg_local_condition(&self.kernel, &self.support, &rows, &scratch[0], NULL, &gradient)
        return outputs, by_a, (sums[0], sums[1][:F], sums[2][:F])


def residual_rows(const double[:, ::1] a, const double[:, ::1] A, const int64_t[:, ::1] index,
                  const double[:, :, ::1] gamma):
    """b = a - A_N^T gamma (C, n, m) of rows a (n, m), with weights gamma (C, n, k) of their neighbours ``index`` (n, k)
    among the rows A."""
    cdef Py_ssize_t c, C = gamma.shape[0], n = a.shape[0], k = index.shape[1], m = a.shape[1]
    b = np.empty((C, n, m))
    cdef double[:, :, ::1] out = b
    if not b.size:
        return b
    with nogil:
        for c in range(C):
            xg_residual_rows(n, m, k, &a[0, 0], &A[0, 0], &index[0, 0] if k else NULL,
                             &gamma[c, 0, 0] if k else NULL, &out[c, 0, 0])
    return b


def cavity_scores(int link, const double[::1] mean, const double[::1] variance, const double[::1] y):
    """log E[p(y | f)] (n,) for f ~ N(mean, variance), and its derivatives by these."""
    out = np.empty((3, len(mean)))
    cdef double[:, ::1] o = out
    cdef Py_ssize_t n = mean.shape[0]
    if n:
        with nogil:
            xg_cavity_scores(link, n, &mean[0], &variance[0], &y[0], &o[0, 0], &o[1, 0], &o[2, 0])
    return out[0], out[1], out[2]


def cavity_sites(int link, const double[::1] mean, const double[::1] variance, const double[::1] y):
    """Precisions and linear terms (n,) of expectation propagation's sites for cavities N(mean, variance)."""
    out = np.empty((2, len(mean)))
    cdef double[:, ::1] o = out
    cdef Py_ssize_t n = mean.shape[0]
    if n:
        with nogil:
            xg_cavity_sites(link, n, &mean[0], &variance[0], &y[0], &o[0, 0], &o[1, 0])
    return out[0], out[1]


def cavity_vjp(int link, const double[::1] mean, const double[::1] variance, const double[::1] y,
               const double[::1] d_precision, const double[::1] d_linear):
    """Gradients (n,) by means and variances of cavities from those by their sites."""
    out = np.empty((2, len(mean)))
    cdef double[:, ::1] o = out
    cdef Py_ssize_t n = mean.shape[0]
    if n:
        with nogil:
            xg_cavity_vjp(link, n, &mean[0], &variance[0], &y[0], &d_precision[0], &d_linear[0], &o[0, 0],
                          &o[1, 0])
    return out[0], out[1]


def kernel_gradient(InducingKernel kernel, const real[:, :] X, const double[:, ::1] G, const double[::1] g,
                    Workspace work, KernelGradient total):
    """Adds the contractions of G = dF/dk(X, Z) (n, m) and g = dF/dk(x, x) (n,) to ``total``."""
    cdef Py_ssize_t tile, i, j, q, rows, n = X.shape[0], m = kernel.n_inducing
    with nogil:
        for tile in range(tiles(0, n, work)):
            i = tile * work.rows
            rows = min(work.rows, n - i)
            for q in range(m):
                for j in range(rows):
                    work.b[q * rows + j] = G[i + j, q]
            add_gradient(kernel, X, i, rows, &g[i], False, work, total)
