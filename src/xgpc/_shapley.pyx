"""Shapley values of product games, see shapley.h."""
import numpy as np

cdef extern from "shapley.h" nogil:
    ctypedef struct xg_product_games:
        Py_ssize_t players, games, n_parts, n_nodes
        const double* part
        const double* node
        const double* weight
        const double* slope
    Py_ssize_t xg_shapley_scratch(const xg_product_games* games)
    void xg_shapley(const xg_product_games* games, double* scratch, double* out)


def product_games(const double[:, :, ::1] parts, const double[:, ::1] nodes, const double[::1] weights,
                  const double[::1] slopes):
    """Shapley values (players, games); O(players games nodes).

    Parameters
    ----------
    parts : (K, players, games), K = 2 or 4
    nodes, weights : (nodes, K) and (nodes,), of the rule for the integral
    slopes : (K,)
    """
    if parts.shape[0] not in (2, 4):
        raise ValueError(f"Games have two or four parts; got {parts.shape[0]}.")
    out = np.empty((parts.shape[1], parts.shape[2]))
    cdef double[:, ::1] values = out
    cdef xg_product_games games
    cdef double[::1] scratch
    if parts.shape[1] and parts.shape[2]:
        games.n_parts, games.players, games.games = parts.shape[0], parts.shape[1], parts.shape[2]
        games.n_nodes = weights.shape[0]
        games.part, games.node = &parts[0, 0, 0], &nodes[0, 0]
        games.weight, games.slope = &weights[0], &slopes[0]
        scratch = np.empty(xg_shapley_scratch(&games))
        with nogil:
            xg_shapley(&games, &scratch[0], &values[0, 0])
    return out
