"""Training rows of tables, checked and encoded; and limits of their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from .inference.history import History
from .rows.batches import Rows
from .rows.encoding import LISTED, Encoding, as_array, is_categorical
from .rows.tables import columns_of, has_missing, is_table, with_names
from .rows.tails import described, limits_of
from .validation import (
    check_feature_range,
    check_labels,
    names_of_columns,
    refuse_not_in_memory,
    refuse_times,
    training_data,
)


def table_data(
    model: Any, X: Any, y: Any, sample_weight: Any, classes: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, Encoding | None]:
    """As ``training_data``, of the first rows of a model with ``categorical_features``, and the encoding of its table.

    Where all columns are numbers, and none are missing, rows are as ``training_data`` has them, without an encoding.
    """
    setting = model.categorical_features
    names_columns = not (setting is None or isinstance(setting, str))
    if not (is_table(X) or names_columns):
        return (*training_data(model, X, y, sample_weight, classes), None)
    refuse_not_in_memory(X)
    refuse_times(X)
    if sparse.issparse(X):
        raise ValueError(
            f"categorical_features={setting!r} is for tables and arrays; a sparse X has columns of numbers. Leave "
            "'from_dtype'."
        )
    X = with_names(X) if is_table(X) else as_array(X)
    columns = columns_of(X)
    chosen = is_categorical(setting, X, columns)
    if not any(chosen) and not any(has_missing(column) for column in columns):
        return (*training_data(model, X, y, sample_weight, classes), None)
    numbers_of_rows = np.arange(float(len(columns[0])))[:, None]
    numbers, codes, classes, weight = training_data(clone(model), numbers_of_rows, y, sample_weight, classes)
    rows = numbers[:, 0].astype(np.intp)
    encoding = Encoding.learn(columns, chosen, rows, weight, allow_missing=is_table(X))
    check_labels(model, X, reset=True)
    validate_data(model, X, reset=True, skip_check_array=True)
    matrix = check_array(encoding.matrix(columns, rows), dtype=(np.float64, np.float32), estimator=model)
    check_feature_range(matrix, lambda: encoding.matrix_names)
    return matrix, codes, classes, weight, encoding


def with_limits(model: Any, history: History, rows: Rows, encoding: Encoding | None) -> tuple[Any, Encoding | None]:
    """Rows of the matrix with all values within limits, and the encoding with these, or None without any.

    Sparse rows stay as they are, whose zeros would not stay zeros, and so does a memory map, whose copy may not fit
    into memory.
    """
    if model.feature_transform is None or sparse.issparse(rows.X):
        return rows.X, encoding
    limits = limits_of(rows.X, rows.weight)
    if not limits:
        return rows.X, encoding
    found = described(limits, names_of_columns(model, encoding), LISTED)
    if _is_mapped(rows.X):
        why = "a memory map is read where it is"
        history.add(decision=f"Values that a wide gap separates from all others stay, as {why}: {found}.")
        return rows.X, encoding
    is_predicted = bool(limits[0].slopes)
    place = "are predicted from the other features" if is_predicted else "are moved to limits"
    told = f"Values that a wide gap separates from all others {place} (feature_transform=None leaves them): "
    history.add(decision=f"{told}{found}.")
    encoding = replace(encoding or Encoding((), ""), limits=limits)
    return encoding.within_limits(rows.X), encoding


def _is_mapped(X: Any) -> bool:
    """Whether an array is a memory map, or a part of one."""
    return isinstance(X, np.memmap) or (isinstance(X, np.ndarray) and _is_mapped(X.base))
