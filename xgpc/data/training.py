"""Check the rows that an estimator gets, to fit or to predict, and encode tables as matrices of numbers."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..ranges import LARGEST_FEATURE, check_weight_range, largest_size
from ..rows.batches import Rows
from .checks import (
    check_classes_present,
    checked_classes,
    checked_weights,
    class_factors,
    class_numbers,
    refuse_missing,
    refuse_objects,
)
from .encoding import HOW_TO_MISS, LISTED, Encoding, as_array, is_categorical, of_table, said_missing, warn_of_means
from .far_values import described, limits_of
from .frames import ColumnTable, columns_of, has_missing, is_table, refuse_not_in_memory, refuse_times, with_names

# What NumPy says of text that it cannot read as a number.
_NO_NUMBER = "could not convert string to float"


class TrainingData(NamedTuple):
    """Checked rows of positive weight.

    Attributes
    ----------
    X : (n, d) float32 or float64, or CSR
    codes : (n,) numbers of their classes
    classes : the distinct labels
    weight : (n,), class weights included, or None for all ones
    encoding : Encoding or None, where it was learned from a table
    """

    X: Any
    codes: np.ndarray
    classes: np.ndarray
    weight: np.ndarray | None
    encoding: Encoding | None = None


def training_data(
    model: Any, X: Any, y: Any, sample_weight: Any, classes: Any = None, is_first: bool = True
) -> TrainingData:
    """Check training data; of a model's first rows, set the attributes that ``validate_data`` sets.

    A table has no encoding if all columns are numbers and no number is missing.

    Parameters
    ----------
    classes : labels that there may be; None: those of y
    """
    columns, chosen = _columns_to_encode(model, X) if is_first else ([], [])
    if not columns:
        rows = checked_rows(model, X, reset=is_first)
        keep, codes, classes, weight = _targets(model, rows.shape[0], y, sample_weight, classes)
        return TrainingData(rows if len(keep) == rows.shape[0] else rows[keep], codes, classes, weight)
    keep, codes, classes, weight = _targets(model, len(columns[0]), y, sample_weight, classes)
    encoding = Encoding.learn(columns, chosen, keep, weight, allow_missing=is_table(X))
    X = with_names(X) if is_table(X) else as_array(X)
    check_column_labels(model, X, reset=True)
    validate_data(model, X, reset=True, skip_check_array=True)
    matrix = check_array(encoding.matrix(columns, keep), dtype=(np.float64, np.float32), estimator=model)
    check_feature_range(matrix, lambda: encoding.matrix_names)
    return TrainingData(matrix, codes, classes, weight, encoding)


def _columns_to_encode(model: Any, X: Any) -> tuple[list[Any], list[bool]]:
    """Return the columns of X, and which of them are categorical; empty lists if X needs no encoding."""
    setting = getattr(model, "categorical_features", None)
    names_columns = not (setting is None or isinstance(setting, str))
    if not (hasattr(model, "categorical_features") and (is_table(X) or names_columns)):
        return [], []
    refuse_not_in_memory(X)
    if sparse.issparse(X):
        raise ValueError(
            f"categorical_features={setting!r} is for tables and arrays; a sparse X has columns of numbers. Leave "
            "'from_dtype'."
        )
    X = with_names(X) if is_table(X) else as_array(X)
    refuse_times(X)
    columns = columns_of(X)
    chosen = is_categorical(setting, X, columns)
    return (columns, chosen) if any(chosen) or any(map(has_missing, columns)) else ([], [])


def checked_labels_of(model: Any, y: Any, n_rows: int) -> np.ndarray:
    """Return the labels (n_rows,), checked by scikit-learn."""
    refuse_not_in_memory(y)
    refuse_missing(y)
    refuse_objects(np.asarray(y))
    labels: np.ndarray = check_X_y(np.zeros((n_rows, 1)), y, estimator=model)[1]
    return labels


def _targets(
    model: Any, n_rows: int, y: Any, sample_weight: Any, classes: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the numbers (n,) of the rows of positive weight, their class numbers, the classes, and weights or None."""
    y, may_lack = checked_labels_of(model, y, n_rows), classes is not None
    if classes is None:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
    else:
        classes = checked_classes(classes)
        codes = class_numbers(y, classes)
    factors = None
    if getattr(model, "class_weight", None) is not None:
        factors = class_factors(model.class_weight, classes, np.bincount(codes, minlength=len(classes)))
    weight, keep = None, np.arange(n_rows)
    if sample_weight is not None:
        refuse_not_in_memory(sample_weight)
        given = checked_weights(sample_weight, n_rows)
        (keep,) = np.nonzero(given)
        codes, weight = codes[keep], given[keep]
    check_classes_present(classes[np.unique(codes)], may_lack, hasattr(model, "partial_fit"))
    if factors is not None:
        weight = factors[codes] * (1.0 if weight is None else weight)
        check_weight_range(weight)
    return keep, codes, classes, weight


def checked_rows(model: Any, X: Any, *, reset: bool) -> Any:
    """Return the rows (n, d) of X, encoded; raise ValueError for missing or too large features."""
    if not reset and _is_checked(model, X):
        return X
    # An error below says where numbers are not finite. There may be no rows to predict.
    options: dict[str, Any] = {"dtype": (np.float64, np.float32), "ensure_all_finite": False}
    options["ensure_min_samples"] = int(reset)
    if sparse.issparse(X) and model.__sklearn_tags__().input_tags.sparse:
        options["accept_sparse"] = "csr"
    refuse_not_in_memory(X)
    X = with_names(X, () if reset else getattr(model, "feature_names_in_", ()))
    check_column_labels(model, X, reset)
    given = None if reset else getattr(model, "encoding_", None)
    encoding = of_table(given)
    if encoding is not None or (not reset and hasattr(model, "feature_names_in_")):
        _refuse_no_table(model, X, encoding is not None)
    if encoding is not None:
        validate_data(model, X, reset=False, skip_check_array=True)
        rows = check_array(encoding.encode(X), estimator=model, **options)
        check_feature_range(rows, lambda: encoding.matrix_names)
        return rows
    refuse_times(X)
    try:
        rows = validate_data(model, X, reset=reset, **options)
    except ValueError as error:
        if _NO_NUMBER in str(error):
            raise ValueError(f"X has text: {error}. {_how_to_use_text(model, reset)}") from error
        raise
    names: Callable[[], Sequence[str]] = partial(names_of_features, model)
    if math.isnan(largest_size(rows)):
        means = getattr(model, "feature_mean_", None) if is_table(X) and not reset else None
        named = (lambda: [repr(column.name) for column in X.columns]) if isinstance(X, ColumnTable) else names
        rows = _without_missing_numbers(rows, named, means, _how_to_miss(model, reset))
    check_feature_range(rows, names)
    return rows if given is None else given.within_limits(rows)


def _refuse_no_table(model: Any, X: Any, is_encoded: bool) -> None:
    """Raise ValueError if a model was fitted to a table, and X is neither a table nor a two-dimensional array."""
    if is_table(X) or (sparse.issparse(X) and not is_encoded):
        return
    try:
        shape = np.shape(X)
    except ValueError:
        # Rows of unequal lengths.
        shape = ()
    if len(shape) == 2 and not sparse.issparse(X):
        return
    what = f"a {type(X).__name__}" + (f" of shape {shape}" if shape else "")
    raise ValueError(
        f"X must be a table with the {model.n_features_in_} columns that the model was fitted to, or an array "
        f"(n, {model.n_features_in_}); got {what}. Of a single row give [row], or a data frame of one row."
    )


def check_column_labels(model: Any, X: Any, reset: bool) -> None:
    """Store or compare column labels that are not text; scikit-learn compares only text."""
    labels: tuple[Any, ...] = tuple(X.columns) if hasattr(X, "columns") and hasattr(X, "iloc") else ()
    given = None if all(isinstance(label, str) for label in labels) else tuple(map(str, labels))
    if reset:
        model._column_labels = given
    elif None not in (given, model._column_labels) and given != model._column_labels:
        raise ValueError(
            f"X has the columns {reprlib.repr(list(map(str, labels)))}; the model was fitted to "
            f"{reprlib.repr(list(model._column_labels))}. Give the same columns in the same order, or an array, whose "
            "columns count by their positions."
        )


def _without_missing_numbers(rows: Any, names: Callable[[], Sequence[str]], means: np.ndarray | None, how: str) -> Any:
    """Replace NaN by ``means`` (d,) with a warning; without means, raise ValueError.

    Warning and error name the features.
    """
    if sparse.issparse(rows):
        counts = np.bincount(rows.indices[np.isnan(rows.data)], minlength=rows.shape[1])
    else:
        counts = np.count_nonzero(np.isnan(rows), axis=0)
    missing = [(name, int(count)) for name, count in zip(names(), counts, strict=True) if count]
    if means is not None:
        warn_of_means(missing)
        return np.where(np.isnan(rows), means.astype(rows.dtype), rows)
    raise ValueError(f"X has {said_missing(missing)}. {how}")


def _how_to_miss(model: Any, reset: bool) -> str:
    how = "Put in numbers, as sklearn.impute.SimpleImputer does in a pipeline"
    if not hasattr(model, "categorical_features"):
        return f"{how}."
    return (
        HOW_TO_MISS if reset else f"{how}; or fit to a data frame, or a table of Arrow, whose rows miss some numbers."
    )


def _how_to_use_text(model: Any, reset: bool) -> str:
    how = "Make numbers of it, as sklearn.preprocessing.OneHotEncoder does"
    if not reset:
        return f"The model was fitted to numbers. {how}."
    if not hasattr(model, "categorical_features"):
        return f"{how}."
    return (
        f"{how}; or give a data frame of pandas or polars, or a table of Arrow, whose columns of text are levels with "
        "categorical_features='from_dtype'; or name an array's columns of text in categorical_features."
    )


def check_feature_range(rows: Any, names: Callable[[], Sequence[str]]) -> None:
    """Raise ValueError if rows (n, d) have a value that is too large to compute with; the error names its feature."""
    largest = largest_size(rows)
    if largest <= LARGEST_FEATURE:
        return
    size, place, how = f"size {largest:.3g}", "", f"scale the features to at most {LARGEST_FEATURE:g}"
    if largest == math.inf:
        size, how = "infinity", "leave out such rows, or put in numbers"
    if not sparse.issparse(rows):
        row, column = np.unravel_index(np.argmax(np.abs(rows)), rows.shape)
        place = f", of {names()[int(column)]} in row {row}"
    raise ValueError(f"X has a value of {size}{place}; {how}.")


def names_of_features(model: Any) -> list[str]:
    """Return the features' names for messages: quoted names of a data frame, or numbers."""
    names = getattr(model, "feature_names_in_", None)
    return [f"feature {j}" for j in range(model.n_features_in_)] if names is None else [repr(name) for name in names]


def names_of_columns(model: Any, encoding: Encoding | None) -> list[str]:
    """Return the names of the encoded matrix's columns for messages."""
    table = of_table(encoding)
    return names_of_features(model) if table is None else table.described_columns


def _is_checked(model: Any, X: Any) -> bool:
    """Return whether ``validate_data`` would return X unchanged.

    Tested first, because ``validate_data`` takes longer than the rest of a prediction of one row.
    """
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and X.ndim == 2
        and len(X) > 0
        and X.shape[1] == model.n_features_in_
        and not hasattr(model, "feature_names_in_")
        and getattr(model, "encoding_", None) is None
        and largest_size(X) <= LARGEST_FEATURE
    )


def with_limits(model: Any, rows: Rows, encoding: Encoding | None) -> tuple[Any, Encoding | None, str]:
    """Return the rows with all values within limits, the encoding with the limits, or None if there is neither, and a
    sentence on the limits, or an empty one.

    Sparse rows stay unchanged, because zeros would not stay zeros; memory maps, because a copy may not fit into memory.
    """
    limits = () if model.feature_transform is None or sparse.issparse(rows.X) else limits_of(rows.X, rows.weight)
    if not limits:
        return rows.X, encoding, ""
    found = described(limits, names_of_columns(model, encoding), LISTED)
    if _is_mapped(rows.X):
        why = "a memory map is read where it is"
        return rows.X, encoding, f"Values that a wide gap separates from all others stay, as {why}: {found}."
    place = "are predicted from the other features" if limits[0].slopes else "are moved to limits"
    told = f"Values that a wide gap separates from all others {place} (feature_transform=None leaves them): {found}."
    encoding = replace(encoding or Encoding((), ""), limits=limits)
    return encoding.within_limits(rows.X), encoding, told


def _is_mapped(X: Any) -> bool:
    """Return whether an array is a memory map, or a part of one."""
    return isinstance(X, np.memmap) or (isinstance(X, np.ndarray) and _is_mapped(X.base))
