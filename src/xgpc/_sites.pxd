cdef extern from "softmax.h" nogil:
    ctypedef struct xg_hazard_table:
        Py_ssize_t rows
        const double* values

cdef extern from "multiclass.h" nogil:
    Py_ssize_t xg_multiclass_scratch(Py_ssize_t classes)


cdef class Site:
    cdef readonly object likelihood, bound, record
    cdef readonly str key
    cdef readonly int kind
    cdef readonly Py_ssize_t n_latents
    cdef readonly double parameter
    cdef readonly bint learned
    cdef const double[:, ::1] _table
    cdef xg_hazard_table _hazards
    cdef const double[::1] _prior_mean


cdef int evaluate(Site site, Py_ssize_t n, Py_ssize_t stride, const double* mean, const double* variance,
                  const double* y, const double* weight, double* scratch, double* ell, double* precision,
                  double* linear) except -1 nogil


cdef inline const double* entry(const double[::1] values, Py_ssize_t i) noexcept nogil:
    # Address of element i, NULL of an empty array.
    return &values[i] if values.shape[0] else NULL
