"""Deterministic nodes for expectations over several independent normal variables."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

# Rows of normal_nodes by default: at least this many. With 16 errors are nearly twice, with 64 about half as large.
LEAST_ROWS = 32
# Which of the scramblings of Sobol's sequence: they differ by less than the constructions do.
SEED = 0


def normal_nodes(n_classes: int, n_rows: int | None = None) -> np.ndarray:
    """Half of a symmetric set of nodes that stands for a standard normal distribution in ``n_classes`` dimensions.

    A scrambled Sobol sequence gives signs and the order of magnitudes; the magnitudes of a column are the medians of
    half-normal strata; a symmetric square root then makes the second moments those of the identity, moving the nodes as
    little as that can be done. Together with their negatives the nodes are exact for polynomials of degree three.

    Parameters
    ----------
    n_classes : int
        Dimension, at least 1.
    n_rows : int, optional
        Rows, at least ``n_classes``. By default the least power of two that is neither below 32 nor below twice
        ``n_classes``: a Sobol sequence cut elsewhere has up to twice the error.

    Returns
    -------
    nodes : ndarray of shape (n_rows, n_classes)
        To be used with both signs and equal weights. The same for the same arguments.

    Raises
    ------
    ValueError
        If ``n_classes`` is below 1 or ``n_rows`` below ``n_classes``.

    Notes
    -----
    Root mean squared errors of E[log softmax], of its gradient by the means and, relative to their size, of the
    precisions; default number of rows, means from N(0, 4), one variance for all classes or, last, variances from 0.01
    to 100 for each point, uniform in the logarithm:

    =======  ================  ================  ================  ================  ================
    classes  variance 0.1      variance 1        variance 10       variance 100      variances differ
    =======  ================  ================  ================  ================  ================
    2        2e-5, 3e-5, .003  .001, 6e-4, .01   .008, .004, .04   .02, .006, .04    .01, .002, .3
    3        7e-5, 6e-5, .008  .003, .002, .03   .03, .008, .05    .06, .01, .05     .02, .004, .3
    6        6e-5, 3e-5, .005  .004, .001, .03   .04, .01, .08     .09, .02, .1      .04, .006, .4
    10       5e-5, 2e-5, .005  .003, .001, .03   .04, .009, .09    .3, .02, .1       .08, .01, .4
    26       3e-5, 1e-5, .004  .002, 5e-4, .03   .03, .004, .1     .1, .008, .2      .07, .006, .2
    =======  ================  ================  ================  ================  ================

    Precisions where variances differ much are the weak spot, being derivatives by a standard deviation divided by it:
    about two in a hundred are then negative.

    Without the square root errors of E[log softmax] are ten times as large at variance 0.1 and thrice at 1. In the
    place of Sobol's sequence, random orthogonal frames with chi radii are as good only where classes are many; signs of
    Hadamard matrices with common radii are far worse from variance 10 on.
    """
    if n_classes < 1:
        raise ValueError(f"n_classes must be at least 1, got {n_classes}")
    if n_rows is None:
        n_rows = 1 << (max(LEAST_ROWS, 2 * n_classes) - 1).bit_length()
    if n_rows < n_classes:
        raise ValueError(f"n_rows must be at least n_classes = {n_classes} for unit second moments, got {n_rows}")
    sobol = qmc.Sobol(n_classes, scramble=True, seed=SEED)
    uniform = sobol.random_base2((n_rows - 1).bit_length())[:n_rows] - 0.5
    ranks = np.argsort(np.argsort(np.abs(uniform), axis=0, kind="stable"), axis=0)
    nodes = np.copysign(ndtri(0.5 + 0.5 * (ranks + 0.5) / n_rows), uniform)
    scale, axes = np.linalg.eigh(nodes.T @ nodes / n_rows)
    return np.ascontiguousarray(nodes @ (axes / np.sqrt(scale)) @ axes.T)
