cdef extern from "moments.h" nogil:
    ctypedef struct xg_moments:
        Py_ssize_t classes, n, m_stride, stride
        const double* m
        const double* v
        const double* y
    ctypedef struct xg_site_arrays:
        double* ell
        double* precision "lambda"
        double* linear "r"

cdef extern from "softmax.h" nogil:
    ctypedef struct xg_hazard_table:
        Py_ssize_t rows
        const double* values

cdef extern from "sites.h" nogil:
    ctypedef struct xg_likelihood:
        int kind
        const double* prior_mean
        Py_ssize_t n_parameters
        const double* parameters
        xg_hazard_table table

cdef extern from "multiclass.h" nogil:
    Py_ssize_t xg_multiclass_scratch(Py_ssize_t classes)


cdef class Site:
    cdef readonly object likelihood, bound, record
    cdef readonly str key
    cdef readonly Py_ssize_t n_latents
    cdef readonly bint learned
    cdef bint _is_array
    cdef const double[:, ::1] _table
    cdef const double[::1] _prior_mean, _parameters
    cdef xg_likelihood _core


cdef int evaluate(Site site, const xg_moments* at, const double* weight, double* scratch,
                  const xg_site_arrays* out) except -1 nogil


cdef inline const double* entry(const double[::1] values, Py_ssize_t i) noexcept nogil:
    # Address of element i, NULL of an empty array.
    return &values[i] if values.shape[0] else NULL
