"""The distribution function of a normal plus a Gumbel variable, for the quadrature of softmax probabilities."""
import numpy as np

cdef extern from "gumbel.h" nogil:
    ctypedef struct xg_table:
        Py_ssize_t rows, columns
        double low, high
        const double* psi
        const double* slope
    Py_ssize_t xg_gumbel_scratch(const xg_table* table)
    void xg_gumbel_normal(const xg_table* table, Py_ssize_t n, const double* u, double scale, double row,
                          double* scratch, double* psi, double* slope, double* bend)


def gumbel_normal(const double[:, :, ::1] tables, double low, double high, const double[:, ::1] u,
                  const double[::1] scale, const double[::1] row):
    """log(-log H), minus its derivative with respect to u, and the derivative of that (3, r, n), for sums of normal and
    Gumbel variables.

    Parameters
    ----------
    tables : (2, rows + 2, columns + 2) spline coefficients of both in units of the scale, one more on each side
    low, high : range of the columns
    u : (r, n) values minus the mean of the normal variable
    scale, row : (r,) standard deviations of the sums, and their rows in the tables, from 0
    """
    cdef xg_table table
    cdef Py_ssize_t i, n = u.shape[1]
    table.rows, table.columns = tables.shape[1] - 2, tables.shape[2] - 2
    table.low, table.high = low, high
    table.psi, table.slope = &tables[0, 0, 0], &tables[1, 0, 0]
    out = np.empty((3, u.shape[0], n))
    cdef double[:, :, ::1] result = out
    cdef double[::1] scratch = np.empty(xg_gumbel_scratch(&table))
    if n:
        with nogil:
            for i in range(u.shape[0]):
                xg_gumbel_normal(&table, n, &u[i, 0], scale[i], row[i], &scratch[0], &result[0, i, 0],
                                 &result[1, i, 0], &result[2, i, 0])
    return out
