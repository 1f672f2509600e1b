"""How large numbers may be that can be computed with."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

# Features beyond this overflow when squared distances are formed in units of small length scales.
LARGEST_FEATURE = 1e140
# Latent means and variances whose predictive probabilities have finite logarithms under every likelihood: a square of
# the one, and a small multiple of the other, are within the range of a double.
LARGEST_MEAN, LARGEST_VARIANCE = 1e150, 1e300

# Weights beyond these leave the range of a double in sums and squares.
WEIGHT_RANGE = (1e-100, 1e100)


def largest_size(rows: Any) -> float:
    """Largest absolute value of an array or a sparse one, without a copy of it."""
    values = rows.data if sparse.issparse(rows) else rows
    # Methods: NumPy's functions of these names take four times as long for a row.
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def check_latent(mean: np.ndarray, variance: np.ndarray, X: Any, first: int = 0) -> None:
    """ValueError for a row of X (n, d) whose latent mean or variance, (n,) or (C, n), has left its range.

    The first row has the number ``first`` in the message.

    Only kernels that grow, those with ``DotProduct``, and linear models can come to that within the range of features.
    """
    if np.abs(mean).max(initial=0.0) <= LARGEST_MEAN and variance.max(initial=0.0) <= LARGEST_VARIANCE:
        return
    proper = (np.abs(mean) <= LARGEST_MEAN) & (variance <= LARGEST_VARIANCE)
    row = int(np.argmin(np.all(proper.reshape(-1, proper.shape[-1]), axis=0)))
    size = largest_size(X[row : row + 1])
    raise ValueError(
        f"The latent function grows too large at row {first + row} of X, which has a feature of size {size:.3g}: its "
        f"mean must be within {LARGEST_MEAN:g} and its variance below {LARGEST_VARIANCE:g}. Scale the features, or "
        "take a kernel that does not grow with them, such as RBF()."
    )


def check_weight_range(weight: np.ndarray) -> None:
    low, high = WEIGHT_RANGE
    if len(weight) and not (np.min(weight) >= low and np.max(weight) <= high):
        raise ValueError(
            f"Weights (sample_weight times class_weight) must be 0 or between {low:g} and {high:g}; got "
            f"{np.min(weight):g} to {np.max(weight):g}. Divide them by their mean."
        )
