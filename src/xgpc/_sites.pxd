from ._core cimport xg_likelihood, xg_moments, xg_site_arrays


cdef class Site:
    cdef readonly object likelihood, bound, record
    cdef readonly str key
    cdef readonly Py_ssize_t n_latents
    cdef readonly bint learned
    cdef bint _is_array
    cdef const double[:, ::1] _table
    cdef const double[::1] _prior_mean, _parameters
    cdef xg_likelihood _core


cdef void evaluate(Site site, const xg_moments* at, const double* weight, double* scratch,
                   const xg_site_arrays* out) noexcept nogil


cdef inline const double* entry(const double[::1] values, Py_ssize_t i) noexcept nogil:
    # Address of element i, NULL of an empty array.
    return &values[i] if values.shape[0] else NULL
