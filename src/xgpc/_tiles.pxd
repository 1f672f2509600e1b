# Of tiles.h and triangles.h, with the precision of the tile chosen by its type.

# Type of whitened rows and their products.
ctypedef fused number:
    float
    double

cdef extern from "tiles.h" nogil:
    void xg_squared_norms(Py_ssize_t rows, Py_ssize_t m, const double* a, double* out)
    void xg_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* mean)
    void xg_gradient_tile(Py_ssize_t rows, Py_ssize_t m, const double* precision, const double* residual,
                          const double* alpha, const double* product, bint accumulate, double* g)
    void xg_narrow(Py_ssize_t n, const double* x, float* out)
    void xg_widen(Py_ssize_t n, const float* x, double* out)

cdef extern from "triangles.h" nogil:
    Py_ssize_t xg_triangle_scratch(Py_ssize_t rows, Py_ssize_t m)
    void xg_times_lower_t(Py_ssize_t rows, Py_ssize_t m, const double* lower, double* a, double* scratch)
    void xg_marginals(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, const double* lower, double* b,
                      double* mean, double* norms, double* spread, double* scratch)
    void xg_marginals_single(Py_ssize_t rows, Py_ssize_t m, const float* a, const double* w, const float* lower,
                             float* b, double* mean, double* norms, double* spread, double* scratch)
    void xg_add_outer(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* s, const double* r, double* P,
                      double* h, double* scratch)
    void xg_add_outer_single(Py_ssize_t rows, Py_ssize_t m, const float* a, const double* s, const double* r,
                             double* P, double* h, double* scratch)


cdef inline void row_marginals(Py_ssize_t rows, Py_ssize_t m, const number* a, const double* w, const number* lower,
                               number* b, double* mean, double* norms, double* spread,
                               double* scratch) noexcept nogil:
    if number is double:
        xg_marginals(rows, m, a, w, lower, b, mean, norms, spread, scratch)
    else:
        xg_marginals_single(rows, m, a, w, lower, b, mean, norms, spread, scratch)


cdef inline void add_outer(Py_ssize_t rows, Py_ssize_t m, const number* a, const double* s, const double* r, double* P,
                           double* h, double* scratch) noexcept nogil:
    if number is double:
        xg_add_outer(rows, m, a, s, r, P, h, scratch)
    else:
        xg_add_outer_single(rows, m, a, s, r, P, h, scratch)
