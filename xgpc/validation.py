"""Checks of what users hand in; every error says what was given and what is allowed."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from .inference import learning_rate_schedule
from .likelihoods import resolve
from .schemes import SCHEMES

# Weights beyond these leave the range of a double in sums and squares.
WEIGHT_RANGE = (1e-100, 1e100)


def check_parameters(model: Any) -> None:
    """Raise ValueError for a constructor argument of a classifier that is not allowed."""
    if not (model.optimizer is None or (isinstance(model.optimizer, str) and model.optimizer in SCHEMES)):
        raise ValueError(f"optimizer must be one of {list(SCHEMES)} or None; got {model.optimizer!r}.")
    if model.optimizer is not None:
        _, bound = resolve(model.likelihood, model.bound)
        bounds = SCHEMES[model.optimizer].bounds
        if bound not in bounds:
            raise ValueError(
                f"optimizer={model.optimizer!r} needs bound={' or '.join(map(repr, bounds))}; got {model.bound!r}"
                f"{f', which means {bound!r}' if model.bound == 'auto' else ''}."
            )
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
