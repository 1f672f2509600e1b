"""Checks of what users hand in; every error says what was given and what is allowed."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from .likelihoods import resolve
from .schemes import SCHEMES
from .stochastic import learning_rate_schedule

# Features beyond this overflow when squared distances are formed in units of small length scales.
LARGEST_FEATURE = 1e140
# Latent means and variances whose predictive probabilities have finite logarithms under every likelihood: a square of
# the one, and a small multiple of the other, are within the range of a double.
LARGEST_MEAN, LARGEST_VARIANCE = 1e150, 1e300

# Weights beyond these leave the range of a double in sums and squares.
WEIGHT_RANGE = (1e-100, 1e100)


def check_parameters(model: Any) -> None:
    """Raise ValueError for a constructor argument of a classifier that is not allowed."""
    if not (model.optimizer is None or (isinstance(model.optimizer, str) and model.optimizer in SCHEMES)):
        raise ValueError(f"optimizer must be one of {list(SCHEMES)} or None; got {model.optimizer!r}.")
    resolve(model.likelihood, model.bound)
    noise = model.label_noise
    if not (isinstance(noise, str) and noise == "learn") and not (
        isinstance(noise, numbers.Real) and not isinstance(noise, bool) and 0.0 < float(noise) < 0.5
    ):
        raise ValueError(f"label_noise must be 'learn' or a number between 0 and 0.5; got {noise!r}.")
    _check_subset_sizes(model.subset_sizes)
    if not is_integer(model.n_restarts_optimizer) or model.n_restarts_optimizer < 0:
        raise ValueError(
            f"n_restarts_optimizer must be an integer that is not negative; got {model.n_restarts_optimizer!r}."
        )
    if model.share not in ("kernel", "none"):
        raise ValueError(f"share must be 'kernel' or 'none'; got {model.share!r}.")
    for name, other in (("n_inducing", "auto"), ("batch_size", None), ("max_iter", ...)):
        value = getattr(model, name)
        is_other = value is None if other is None else isinstance(value, str) and value == other
        if not is_other and not (is_integer(value) and value >= 1):
            also = "" if other is ... else f" or {other!r}"
            raise ValueError(f"{name} must be a positive integer{also}; got {value!r}.")
    if model.n_jobs is not None and (not is_integer(model.n_jobs) or model.n_jobs == 0):
        raise ValueError(f"n_jobs must be a number of threads, -1 for all cores, or None; got {model.n_jobs!r}.")
    for name in ("learn_inducing", "warm_start"):
        if not isinstance(getattr(model, name), bool | np.bool_):
            raise ValueError(f"{name} must be True or False; got {getattr(model, name)!r}.")
    if not isinstance(model.tol, numbers.Real) or not float(model.tol) >= 0.0:
        raise ValueError(f"tol must be a number that is not negative; got {model.tol!r}.")
    learning_rate_schedule(model.learning_rate)
    if isinstance(model.inducing_points, str) and model.inducing_points == "all":
        for name, allowed in (("optimizer", ("profile", None)), ("batch_size", (None,))):
            value = getattr(model, name)
            if value not in allowed:
                raise ValueError(
                    f"inducing_points='all' is a full Gaussian process, for which {name} must be "
                    f"{' or '.join(map(repr, allowed))}; got {value!r}. Other values are for inducing points."
                )


def check_optimizer(optimizer: str | None, likelihood: str, bound: str) -> None:
    """Raise ValueError for an optimizer that is not for a likelihood's bound."""
    if optimizer is None or SCHEMES[optimizer].allows(likelihood, bound):
        return
    others = [name for name, scheme in SCHEMES.items() if scheme.allows(likelihood, bound)]
    raise ValueError(
        f"optimizer={optimizer!r} is not for the bound {bound!r} of likelihood {likelihood!r}; take one of {others}, "
        f"or {SCHEMES[optimizer].needs}."
    )


def checked_rows(model: Any, X: Any, *y: Any, reset: bool, **options: Any) -> Any:
    """X, and y if it is given, by ``validate_data``; ValueError for features that are too large to compute with."""
    options = {"dtype": (np.float64, np.float32), **options}
    checked = validate_data(model, X, *y, reset=reset, **options)
    rows = checked[0] if y else checked
    largest = largest_size(rows)
    if largest > LARGEST_FEATURE:
        raise ValueError(f"X has a value of size {largest:.3g}; scale the features to at most {LARGEST_FEATURE:g}.")
    return checked


def largest_size(rows: Any) -> float:
    """Largest absolute value of an array or a sparse one, without a copy of it."""
    values = rows.data if sparse.issparse(rows) else rows
    return max(float(np.max(values)), -float(np.min(values))) if values.size else 0.0


def check_latent(mean: np.ndarray, variance: np.ndarray, X: Any, first: int = 0) -> None:
    """ValueError for a row of X (n, d) whose latent mean or variance, (n,) or (C, n), has left its range.

    The first row has the number ``first`` in the message.

    Only kernels that grow, those with ``DotProduct``, and linear models can come to that within the range of features.
    """
    proper = (np.abs(mean) <= LARGEST_MEAN) & (variance <= LARGEST_VARIANCE)
    if np.all(proper):
        return
    row = int(np.argmin(np.all(proper.reshape(-1, proper.shape[-1]), axis=0)))
    size = largest_size(X[row : row + 1])
    raise ValueError(
        f"The latent function grows too large at row {first + row} of X, which has a feature of size {size:.3g}: its "
        f"mean must be within {LARGEST_MEAN:g} and its variance below {LARGEST_VARIANCE:g}. Scale the features, or "
        "take a kernel that does not grow with them, such as RBF()."
    )


def training_data(
    model: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Checked training data of a classifier; sets what ``validate_data`` sets of it.

    Returns
    -------
    X : (n, d) rows of positive weight
    codes : (n,) numbers of their classes
    classes : the distinct labels
    weight : (n,) or None for all ones, class weights included
    """
    rows, y = checked_rows(model, X, y, reset=True)
    check_classification_targets(y)
    target_type = type_of_target(y, input_name="y")
    if target_type not in ("binary", "multiclass"):
        raise ValueError(f"y must have one label for each row; its type is {target_type}.")
    classes, codes = np.unique(y, return_inverse=True)
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, rows, dtype=np.float64)
        if np.any(weight < 0):
            raise ValueError(f"sample_weight must not be negative; its least value is {np.min(weight):g}.")
        keep = weight > 0.0
        if not np.all(keep):
            rows, codes, weight = rows[keep], codes[keep], weight[keep]
        check_weight_range(weight)
    present = classes[np.unique(codes)]
    if len(present) < 2:
        raise ValueError(
            f"Classification needs rows of two classes; the rows (of positive weight) are of {len(present)} class: "
            f"{present.tolist()}."
        )
    class_weight = getattr(model, "class_weight", None)
    if class_weight is not None:
        factors = _class_factors(class_weight, classes, codes, weight)
        weight = factors[codes] * (1.0 if weight is None else weight)
        check_weight_range(weight)
    return rows, codes, classes, weight


def _class_factors(class_weight, classes, codes, weight) -> np.ndarray:
    """Weight of each class; "balanced" ones make the total weights of the classes that have rows equal."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        totals = np.bincount(codes, weight, minlength=len(classes))
        present = totals > 0.0
        return np.sum(totals) / (np.count_nonzero(present) * np.where(present, totals, 1.0))
    factors = compute_class_weight(class_weight, classes=classes, y=classes[codes])
    if not np.all((factors > 0.0) & np.isfinite(factors)):
        raise ValueError(f"class_weight must be positive and finite; got {class_weight!r}.")
    return factors


def check_weight_range(weight: np.ndarray) -> None:
    low, high = WEIGHT_RANGE
    if len(weight) and not (np.min(weight) >= low and np.max(weight) <= high):
        raise ValueError(
            f"Weights (sample_weight times class_weight) must be 0 or between {low:g} and {high:g}; got "
            f"{np.min(weight):g} to {np.max(weight):g}. Divide them by their mean."
        )


def _check_subset_sizes(sizes: Any) -> None:
    if sizes is None or (isinstance(sizes, str) and sizes == "auto"):
        return
    values = np.asarray(sizes) if isinstance(sizes, list | tuple | np.ndarray) else np.empty(0)
    if (
        values.ndim != 1
        or not len(values)
        or values.dtype.kind not in "iu"
        or values[0] < 1
        or np.any(np.diff(values) <= 0)
    ):
        raise ValueError(f"subset_sizes must be 'auto', None, or increasing positive integers; got {sizes!r}.")


def is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
