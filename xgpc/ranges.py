"""Which numbers can be computed with: neither too large, too small, masked, nor from outside a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

import numpy as np
from scipy import sparse

from .names import MatrixLike

Public = TypeVar("Public", bound=Callable[..., object])

# Features beyond this overflow when squared distances are formed in units of small length scales.
LARGEST_FEATURE = 1e140
# A column whose values differ by a smaller part of their size is constant: rounding leaves such differences. In single
# precision it leaves four units in the last place.
LEAST_VARIATION, UNITS_OF_ROUNDING = 1e-12, 4.0
# Squares of larger numbers, of distances for instance, leave the range of a double.
LARGEST_TO_SQUARE = 1e150
# Latent variances, and means up to LARGEST_TO_SQUARE, whose predictive probabilities have finite logarithms under every
# likelihood: a small multiple of the variance, and a square of the mean, are within the range of a double.
LARGEST_VARIANCE = 1e300

# The reciprocal of a smaller number may overflow: kernel parameters are at least this, and what may be zero, such as a
# site's precision or a weight, counts as at least this where it is a divisor. Products with the quotients do not
# overflow, as their numerators are in proportion to the divisor.
LEAST_DIVISOR = 1e-300
# Squares of smaller weights leave the range of a double. Beside sums over the rows of 1 / eps = 5e15 times the prior's
# precision, the prior is rounded away; this is for a million rows.
WEIGHT_RANGE = (1e-100, 1e12)

# The sum of so few squares takes a fifth of the time of the two extremes. For the sum of many BLAS wakes its threads,
# which keep processors busy for some time.
FEW_VALUES = 1000
# Rows in memory at a time: the core has 32 bits for the number of a neighbour.
MOST_ROWS = 2**31 - 1


class BadRow(ValueError):
    """An error in the row of this number among the rows that were given."""

    def __init__(self, message: str, row: int):
        super().__init__(message)
        self.row = int(row)

    def __reduce__(self) -> tuple[object, ...]:
        # Notes stay when the error comes from another process.
        return type(self), (str(self), self.row), vars(self)


class DoubtfulRow(BadRow, UserWarning):
    """A warning that a row is probably wrong. A fit takes the row as it is; for the command the warning is an error."""


def small_is_zero(public: Public) -> Public:
    """Decorate what users call, a function or a class with its public members.

    A number below the range of a double becomes 0, as is right here, though the caller may have set ``numpy.errstate``
    to raise. Errors of other kinds stay as the caller wishes.
    """
    decorate = np.errstate(under="ignore")
    if not isinstance(public, type):
        return decorate(public)
    for name, member in list(vars(public).items()):
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, FunctionType):
            setattr(public, name, decorate(member))
        elif isinstance(member, classmethod):
            setattr(public, name, classmethod(decorate(member.__func__)))
        elif isinstance(member, property) and member.fget is not None:
            setattr(public, name, property(decorate(member.fget), member.fset, doc=member.__doc__))
    return public


def largest_size(rows: MatrixLike) -> float:
    """Largest absolute value of an array or a sparse one, without a copy of it."""
    values = rows.data if sparse.issparse(rows) else rows
    # Methods: NumPy's functions of these names take four times as long for a row.
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def is_within(values: np.ndarray, most: float) -> bool:
    """Whether no absolute value of an array exceeds ``most``, or is NaN."""
    is_small = values.size <= FEW_VALUES and math.sqrt(np.vdot(values, values)) <= most
    return is_small or largest_size(values) <= most


def varies(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether columns differ by more than rounding, from their least and largest values (d,), of the data's type."""
    low, high, own = low.astype(np.float64), high.astype(np.float64), np.finfo(np.result_type(low, np.float32))
    size, double = np.maximum(np.abs(low), np.abs(high)), np.finfo(np.float64)
    least = max(LEAST_VARIATION, UNITS_OF_ROUNDING * float(own.eps))
    return np.asarray(high - low > np.maximum(least * size, double.tiny / double.eps))


def as_csr(X: MatrixLike) -> MatrixLike:
    """Sparse rows in CSR format, and others as they are; ValueError for indices outside of the matrix.

    SciPy's and our loops would read and write whatever memory they point to. A matrix of SciPy checks them only if it
    is asked to, and checks drop unused room, so those given are left alone.
    """
    if not sparse.issparse(X):
        return X
    try:
        if X.format == "coo":
            return type(X)((X.data, X.coords), X.shape).tocsr()
        is_packed = X.format in ("csr", "csc", "bsr")
        X = type(X)((X.data, X.indices, X.indptr), X.shape) if is_packed else X.tocsr()
        X.check_format()
    except ValueError as error:
        raise ValueError(
            f"X is a sparse matrix of shape {X.shape} whose parts contradict each other: {error}. Build it anew, such "
            "as scipy.sparse.csr_array((data, (rows, columns)), shape)."
        ) from error
    return X.tocsr()


def check_latent(mean: np.ndarray, variance: np.ndarray, X: MatrixLike, first: int = 0) -> None:
    """BadRow for a row of X (n, d), counted from ``first``, whose latent mean or variance has left its range.

    Only kernels with ``DotProduct`` and linear models grow so large within the range of features.
    """
    if is_within(mean, LARGEST_TO_SQUARE) and is_within(variance, LARGEST_VARIANCE):
        return
    proper = (np.abs(mean) <= LARGEST_TO_SQUARE) & (variance <= LARGEST_VARIANCE)
    row = int(np.argmin(np.all(proper.reshape(-1, proper.shape[-1]), axis=0)))
    size = largest_size(X[row : row + 1])
    raise BadRow(
        f"The latent function grows too large at row {first + row} of X, which has a feature of size {size:.3g}. Scale "
        "the features, or take a kernel that does not grow with them, such as RBF().",
        first + row,
    )


def check_weight_range(weight: np.ndarray) -> None:
    low, high = WEIGHT_RANGE
    if len(weight) and not (np.min(weight) >= low and np.max(weight) <= high):
        raise ValueError(
            f"Weights of rows (sample_weight) must be 0 or between {low:g} and {high:g}; got "
            f"{np.min(weight):g} to {np.max(weight):g}. Divide them by their mean: beside larger ones the prior is "
            "rounded away."
        )
