"""Curvatures of expected log likelihoods in the means of a row, which couple the classes.

A curvature maps labels 0, ..., C - 1 (rows,) as float64, weights (rows,), the gradients of the expected log
likelihoods by the means, linear - precision mean of the sites (C, rows), and the precisions (C, rows) to a function
that multiplies values (C, rows) by the curvature of each row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ranges import LEAST_DIVISOR

# The curvature of softmax divides by 1 - p_c, which counts as at least this.
LEAST_COMPLEMENT = 1e-3

# Values (C, rows) -> the products of the curvature of each row with them.
Product = Callable[[np.ndarray], np.ndarray]
Curvature = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Product]


def softmax_curvature(y: np.ndarray, weight: np.ndarray, gradient: np.ndarray, precision: np.ndarray) -> Product:
    """diag(d) - d d^T / sum(d), d_c = lambda_c / (1 - p_c).

    The diagonal holds the sites' precisions, and the curvature is zero along (1, ..., 1).
    """
    # The gradient in the mean is weight * (1 - p) for the label and -weight * p for the other classes.
    complement = 1.0 + gradient / np.maximum(weight, LEAST_DIVISOR)
    complement[y.astype(np.intp), np.arange(len(y))] -= 1.0
    d = precision / np.clip(complement, LEAST_COMPLEMENT, 1.0)
    total = np.maximum(np.sum(d, axis=0), np.finfo(float).tiny)
    return lambda values: d * (values - np.sum(d * values, axis=0) / total)


def multinomial_curvature(y: np.ndarray, weight: np.ndarray, gradient: np.ndarray, precision: np.ndarray) -> Product:
    """The sum over classes c of lambda_c (e_y - e_c) (e_y - e_c)^T, where negative precisions count as zero.

    The likelihood compares the label y with every other class; the coupling of two other classes is left out.
    """
    label, least = (y.astype(np.intp), np.arange(len(y))), np.maximum(precision, 0.0)

    def product(values: np.ndarray) -> np.ndarray:
        result = values - values[label]
        result *= least
        # For the label itself the difference was zero.
        result[label] -= np.sum(result, axis=0)
        return result

    return product
