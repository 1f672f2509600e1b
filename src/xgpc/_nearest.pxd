from libc.stdint cimport int32_t, int64_t

cdef extern from "nearest.h" nogil:
    enum:
        XG_PANEL
    ctypedef struct xg_keyed:
        double key
        int64_t number
    ctypedef struct xg_nearest:
        Py_ssize_t n, d, p, most
        int power
        const double* mean
        const double* directions
        double radius
        const double* rows
        const int64_t* order
        const float* panels
        const float* leaves
        const float* groups
    ctypedef struct xg_nearest_arrays:
        int64_t* order
        float* panels
        float* leaves
        float* groups
        float* coordinates
        double* along
        xg_keyed* items
        const float* places
        Py_ssize_t n_places
    Py_ssize_t xg_panels(Py_ssize_t n)
    Py_ssize_t xg_leaves(Py_ssize_t n)
    Py_ssize_t xg_coordinates(const xg_nearest* tree)
    void xg_nearest_build(xg_nearest* tree, const double* rows, const xg_nearest_arrays* to)
    size_t xg_nearest_scratch(const xg_nearest* tree, Py_ssize_t k)
    void xg_nearest_of(const xg_nearest* tree, const double* points, Py_ssize_t first, Py_ssize_t r, Py_ssize_t k,
                       void* scratch, int32_t* out)


cdef class Tree:
    cdef xg_nearest tree
    cdef readonly object order
    cdef object _alive
