# Of tiles.h, with the precision of the tile chosen by its type.
from ._blas cimport number

cdef extern from "tiles.h" nogil:
    void xg_squared_norms(Py_ssize_t rows, Py_ssize_t m, const double* a, double* out)
    void xg_squared_norms_single(Py_ssize_t rows, Py_ssize_t m, const float* a, double* out)
    void xg_norms_and_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* copy,
                            double* norms, double* mean)
    void xg_norms_and_means_single(Py_ssize_t rows, Py_ssize_t m, const float* a, const double* w, float* copy,
                                   double* norms, double* mean)
    void xg_scale_and_sum(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* s, const double* r,
                          double* root, double* out, double* sum)
    void xg_scale_and_sum_single(Py_ssize_t rows, Py_ssize_t m, const float* a, const double* s, const double* r,
                                 double* root, float* out, double* sum)
    Py_ssize_t xg_negative_rows(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* s, Py_ssize_t* index,
                                double* out)
    Py_ssize_t xg_negative_rows_single(Py_ssize_t rows, Py_ssize_t m, const float* a, const double* s,
                                       Py_ssize_t* index, float* out)
    void xg_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* mean)
    void xg_gradient_tile(Py_ssize_t rows, Py_ssize_t m, const double* precision, const double* residual,
                          const double* alpha, const double* product, bint accumulate, double* g)
    void xg_narrow(Py_ssize_t n, const double* x, float* out)
    void xg_widen(Py_ssize_t n, const float* x, double* out)
    void xg_add_lower(Py_ssize_t m, const float* part, bint accumulate, double* sum)


cdef inline void squared_norms(Py_ssize_t rows, Py_ssize_t m, const number* a, double* out) noexcept nogil:
    if number is double:
        xg_squared_norms(rows, m, a, out)
    else:
        xg_squared_norms_single(rows, m, a, out)


cdef inline void norms_and_means(Py_ssize_t rows, Py_ssize_t m, const number* a, const double* w, number* copy,
                                 double* norms, double* mean) noexcept nogil:
    if number is double:
        xg_norms_and_means(rows, m, a, w, copy, norms, mean)
    else:
        xg_norms_and_means_single(rows, m, a, w, copy, norms, mean)


cdef inline void scale_and_sum(Py_ssize_t rows, Py_ssize_t m, const number* a, const double* s, const double* r,
                               double* root, number* out, double* sum) noexcept nogil:
    if number is double:
        xg_scale_and_sum(rows, m, a, s, r, root, out, sum)
    else:
        xg_scale_and_sum_single(rows, m, a, s, r, root, out, sum)


cdef inline Py_ssize_t negative_rows(Py_ssize_t rows, Py_ssize_t m, const number* a, const double* s,
                                     Py_ssize_t* index, number* out) noexcept nogil:
    if number is double:
        return xg_negative_rows(rows, m, a, s, index, out)
    else:
        return xg_negative_rows_single(rows, m, a, s, index, out)


cdef inline const double* widened(Py_ssize_t size, const number* a, double* scratch) noexcept nogil:
    # In double precision: itself, or in scratch.
    if number is double:
        return a
    else:
        xg_widen(size, a, scratch)
        return scratch
