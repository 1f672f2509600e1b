from ._kernels cimport InducingKernel, KernelScratch, real


cdef class Workspace:
    cdef readonly Py_ssize_t rows, n_inducing, n_features
    cdef double[::1] a, b, term, factor, rest, x, x2, row_sum, diagonal, mean, variance, ell, precision, linear
    cdef KernelScratch kernel


cdef extern from "vmath.h" nogil:
    void xg_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* mean)
    void xg_squared_norms(Py_ssize_t rows, Py_ssize_t m, const double* a, double* out)
    void xg_norms_and_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* copy,
                            double* norms, double* mean)
    void xg_scale_and_sum(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* s, const double* r,
                          bint accumulate, double* root, double* out, double* sum)


cdef extern from "sites.h" nogil:
    void xg_sites(int kind, Py_ssize_t n, const double* m, const double* v, const double* y, const double* weight,
                  double* ell, double* precision, double* linear)
    void xg_logistic_normal_mean_array(Py_ssize_t n, const double* m, const double* v, double* out)
    enum:
        XG_LOGIT_POLYA_GAMMA
        XG_LOGIT_EXACT
        XG_LOGIT_TAYLOR


cdef void project(InducingKernel kernel, const double* Linv, const real[:, :] X, const Py_ssize_t* index,
                  Py_ssize_t start, Py_ssize_t rows, KernelScratch* scratch, double* a) noexcept nogil
