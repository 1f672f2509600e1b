"""Checks of rows, labels and weights; every error says what was given and what is allowed."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_array, check_X_y
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from .config import is_name
from .ranges import LARGEST_FEATURE, check_weight_range, largest_size, refuse_masked
from .rows.encoding import HOW_TO_MISS, Encoding, of_table, said_missing, warn_of_means
from .rows.labels import is_missing, missing_values, refuse_objects, refuse_rounded
from .rows.tables import ColumnTable, is_table, with_names

# What NumPy says of text that it cannot read as a number.
_NO_NUMBER = "could not convert string to float"


def checked_rows(model: Any, X: Any, *y: Any, reset: bool, **options: Any) -> Any:
    """X, and y if it is given, by ``validate_data``; ValueError for features that are too large to compute with."""
    if not (reset or y or options) and _is_checked(model, X):
        return X
    # An error below says where numbers are not finite. There may be no rows to predict.
    least = int(reset or bool(y))
    options = {"dtype": (np.float64, np.float32), "ensure_all_finite": False, "ensure_min_samples": least, **options}
    if sparse.issparse(X) and model.__sklearn_tags__().input_tags.sparse:
        options["accept_sparse"] = "csr"
    refuse_not_in_memory(X, *y)
    for labels in y:
        _refuse_missing(labels)
        refuse_objects(np.asarray(labels))
    X = with_names(X, () if reset else getattr(model, "feature_names_in_", ()))
    check_labels(model, X, reset)
    given = None if reset else getattr(model, "encoding_", None)
    encoding = of_table(given)
    if encoding is not None or (not reset and hasattr(model, "feature_names_in_")):
        _refuse_no_table(model, X, encoding is not None)
    if encoding is not None:
        validate_data(model, X, reset=False, skip_check_array=True)
        X = encoding.encode(X)
        checked = check_X_y(X, *y, estimator=model, **options) if y else check_array(X, estimator=model, **options)
    else:
        refuse_times(X)
        try:
            checked = validate_data(model, X, *y, reset=reset, **options)
        except ValueError as error:
            if _NO_NUMBER in str(error):
                raise ValueError(f"X has text: {error}. {_how_to_use_text(model, reset)}") from error
            raise
    rows = checked[0] if y else checked
    names: Callable[[], Sequence[str]] = partial(names_of_features, model)
    if encoding is None:
        means = getattr(model, "feature_mean_", None) if is_table(X) and not reset else None
        named = (lambda: [repr(column.name) for column in X.columns]) if isinstance(X, ColumnTable) else names
        rows = _without_missing_numbers(rows, named, means, _how_to_miss(model, reset))
    check_feature_range(rows, names if encoding is None else lambda: encoding.matrix_names)
    if encoding is None and given is not None:
        rows = given.within_limits(rows)
    return (rows, checked[1]) if y else rows


def _refuse_no_table(model: Any, X: Any, is_encoded: bool) -> None:
    """ValueError, for a model of a table, for what is neither a table nor an array of rows and columns."""
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


def check_labels(model: Any, X: Any, reset: bool) -> None:
    """Remember the labels of a data frame's columns that are not text, or compare them; scikit-learn compares text."""
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
    """Rows (n, d), sparse ones perhaps, with means (d,) for NaN, and a warning; without means a ValueError.

    Both say in which features.
    """
    if not math.isnan(largest_size(rows)):
        return rows
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
    """ValueError for rows (n, d) with a value that is too large to compute with, which names its feature."""
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
    """As messages have them: of a data frame in quotation marks, else by their numbers."""
    names = getattr(model, "feature_names_in_", None)
    return [f"feature {j}" for j in range(model.n_features_in_)] if names is None else [repr(name) for name in names]


def names_of_columns(model: Any, encoding: Encoding | None) -> list[str]:
    """As messages have them, of the columns of the matrix that rows are encoded as."""
    table = of_table(encoding)
    return names_of_features(model) if table is None else table.described_columns


def _is_checked(model: Any, X: Any) -> bool:
    """Whether rows to predict are as ``validate_data`` would return them.

    Looked at first, as that takes longer than all else of the prediction of a row.
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


def refuse_not_in_memory(*given: Any) -> None:
    """ValueError for polars' queries, dask's collections and masked values: NumPy would make arrays of them."""
    refuse_masked(*given)
    for value in given:
        library, kind = type(value).__module__.partition(".")[0], type(value).__name__
        if (library, kind) == ("polars", "LazyFrame"):
            raise ValueError("Got a LazyFrame of polars, a query that has no rows yet: give what its collect() makes.")
        if library == "dask":
            raise ValueError(
                f"Got a {kind} of dask, whose rows need not be in this process: fit and predict with "
                "xgpc.dask.DaskGPClassifier, or give rows in memory, such as those that its compute() makes."
            )


def refuse_times(X: Any) -> None:
    """ValueError for dates and durations, which would count as numbers of a unit that nobody chose."""
    how = "turn them into numbers, such as days since a first date, or leave them out."
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        # To take a column of numbers out of a frame takes longer than to predict a row.
        others = [i for i, kind in enumerate(X.dtypes) if getattr(kind, "kind", "O") not in "biuf"]
        times = [str(X.columns[i]) for i in others if _are_times(X.iloc[:, i])]
        if times:
            raise ValueError(f"X has dates or durations in the columns {times}; {how}")
    elif isinstance(X, np.ndarray) and _are_times(X):
        raise ValueError(f"X has dates or durations ({X.dtype}); {how}")


def _are_times(values: Any) -> bool:
    """Whether an array or a column is of dates, periods or durations, or of objects the first of which is one."""
    if getattr(values.dtype, "kind", "") in "mM" or str(values.dtype).startswith("period"):
        return True
    first = np.ravel(values)[:1] if values.dtype == object else ()
    return any(isinstance(value, date | timedelta | np.datetime64 | np.timedelta64) for value in first)


def _refuse_missing(y: Any) -> None:
    """ValueError for labels that are None, NaN or pandas.NA among strings or other objects."""
    labels = np.asarray(y)
    if labels.dtype.kind != "O" or labels.ndim != 1:
        return
    missing = missing_values(labels)
    if len(missing):
        raise ValueError(
            f"y has {len(missing)} missing labels, the first in row {missing[0]}: {labels[missing[0]]!r}. Leave out "
            "rows without a label."
        )


def checked_classes(classes: Any) -> np.ndarray:
    """Distinct labels (C,) in order; ValueError unless they are two or more, of one kind."""
    what = "classes must be a list of all labels that there are to be, two or more"
    values = list(classes) if np.ndim(np.asarray(classes, dtype=object)) == 1 else []
    if len({isinstance(value, str) for value in values}) > 1:
        raise ValueError(f"{what}, all numbers or all strings; got {classes!r}.")
    if any(is_missing(value) for value in values):
        raise ValueError(f"{what}, none of them missing; got {classes!r}.")
    distinct = np.unique(np.asarray(values))
    refuse_rounded(values, distinct)
    if len(distinct) < 2:
        raise ValueError(f"{what}; got {classes!r}.")
    if distinct.dtype.kind == "f" and np.any(distinct != np.floor(distinct)):
        raise ValueError(f"{what}, strings or whole numbers; got {classes!r}.")
    # Each often enough for no warning that they are as many as the rows of a regression.
    check_classification_targets(np.repeat(distinct, 3))
    return distinct


def check_same_classes(classes: Any, known: np.ndarray) -> None:
    """ValueError unless ``classes`` are those of the model."""
    if checked_classes(classes).tolist() != known.tolist():
        raise ValueError(
            f"classes must be None or those of the first call, {known.tolist()}; got {classes!r}. A class that was not "
            "named then needs a new estimator."
        )


def class_numbers(y: ArrayLike, classes: np.ndarray) -> np.ndarray:
    """Positions (n,) of labels in ``classes``; ValueError for a label that is not among them."""
    # As Python's values: "1" is not 1.
    numbers_of = {label: number for number, label in enumerate(classes.tolist())}
    labels = np.asarray(y).tolist()
    unknown = [label for label in dict.fromkeys(labels) if label not in numbers_of]
    if unknown:
        raise ValueError(
            f"y has labels {reprlib.repr(unknown)} that are not in classes_ {reprlib.repr(classes.tolist())}."
        )
    return np.array([numbers_of[label] for label in labels], dtype=np.intp)


def site_labels(codes: np.ndarray, n_latents: int | None) -> np.ndarray:
    """Labels (n,) as sites take them: -1 and 1, or the numbers of classes that have a latent function each."""
    labels = codes.astype(np.float64)
    return 2.0 * labels - 1.0 if n_latents is None else labels


def training_data(
    model: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, classes: Any = None, is_first: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Checked training data of a classifier; sets what ``validate_data`` sets of it, if these are its first.

    Parameters
    ----------
    classes : labels that there may be; None: those of y

    Returns
    -------
    X : (n, d) rows of positive weight
    codes : (n,) numbers of their classes
    classes : the distinct labels
    weight : (n,) or None for all ones, class weights included
    """
    rows, y = checked_rows(model, X, y, reset=is_first)
    may_lack = classes is not None
    if classes is None:
        check_classification_targets(y)
        target_type = type_of_target(y, input_name="y")
        if target_type not in ("binary", "multiclass"):
            raise ValueError(f"y must have one label for each row; its type is {target_type}.")
        classes, codes = np.unique(y, return_inverse=True)
    else:
        classes = checked_classes(classes)
        codes = class_numbers(y, classes)
    factors = None
    if getattr(model, "class_weight", None) is not None:
        factors = class_factors(model.class_weight, classes, np.bincount(codes, minlength=len(classes)))
    weight = None
    if sample_weight is not None:
        refuse_not_in_memory(sample_weight)
        _refuse_no_weights(sample_weight, rows.shape[0])
        weight = _check_sample_weight(sample_weight, rows, dtype=np.float64)
        if np.any(weight < 0):
            raise ValueError(f"sample_weight must not be negative; its least value is {np.min(weight):g}.")
        keep = weight > 0.0
        if not np.all(keep):
            rows, codes, weight = rows[keep], codes[keep], weight[keep]
        check_weight_range(weight)
    present = classes[np.unique(codes)]
    if not len(present):
        raise ValueError("No row has a positive weight.")
    if len(present) < 2 and not may_lack:
        raise one_class_error(present, hasattr(model, "partial_fit"))
    if factors is not None:
        weight = factors[codes] * (1.0 if weight is None else weight)
        check_weight_range(weight)
    return rows, codes, classes, weight


def one_class_error(present: np.ndarray, takes_classes: bool = False) -> ValueError:
    how = " Give classes=, a list of all labels that there may be, for a fit to them." if takes_classes else ""
    return ValueError(
        f"Classification needs rows of two classes; the rows (of positive weight) are of {len(present)} class: "
        f"{present.tolist()}.{how}"
    )


def _refuse_no_weights(sample_weight: Any, n_rows: int) -> None:
    """ValueError for weights that are no real numbers, even if they could be read as such: strings, dates, mappings."""
    what = f"sample_weight must be a real number for each of the {n_rows} rows, or one for all"
    try:
        values = np.asarray(sample_weight)
    except ValueError as error:
        raise ValueError(f"{what}; it is no array: {error}") from error
    others: list[Any] = values.ravel()[:1].tolist() if values.dtype.kind not in "biuf" else []
    if values.dtype.kind == "O":
        others = [value for value in values.ravel() if not (isinstance(value, numbers.Number) or is_missing(value))]
    if len(others):
        raise ValueError(
            f"{what}; it has {others[0]!r} of type {type(others[0]).__name__}. Give numbers, as "
            "np.asarray(sample_weight, dtype=float) makes of numbers in strings; class_weight takes weights of classes."
        )


def checked_groups(groups: Any, y: Any, sample_weight: Any) -> np.ndarray:
    """Groups (n,) of the rows of positive weight."""
    refuse_masked(groups)
    groups = np.asarray(groups)
    if groups.shape != (len(y),):
        raise ValueError(f"groups must have one value for each of the {len(y)} rows; its shape is {groups.shape}.")
    missing = missing_values(groups)
    if len(missing):
        raise ValueError(
            f"groups has {len(missing)} missing values, the first in row {missing[0]}: {groups[missing[0]]!r}. They "
            "would be one group; give each such row a group of its own, or leave it out."
        )
    try:
        np.unique(groups)
    except TypeError as error:
        raise ValueError(f"groups must be all numbers or all strings, to be told apart: {error}.") from error
    return groups if sample_weight is None else groups[np.broadcast_to(sample_weight, groups.shape) > 0.0]


def class_factors(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weight of each class; "balanced": n / (C n_c) by the numbers of rows, ``counts``, of C classes that have some.

    Rows count whatever their sample weights, as they do in scikit-learn's ``compute_class_weight``, SVC, ridge and tree
    classifiers in every version. Its LogisticRegression counted rows up to version 1.6, and sums sample weights since
    1.7.
    """
    is_dict = isinstance(class_weight, dict) and all(isinstance(one, numbers.Real) for one in class_weight.values())
    if not (is_dict or is_name(class_weight, ("balanced",))):
        raise ValueError(
            "class_weight must be a dict of numbers, a weight for each class such as {'no': 1.0, 'yes': 5.0}, "
            f"'balanced' or None; got {class_weight!r}."
        )
    if isinstance(class_weight, dict):
        factors = compute_class_weight(class_weight, classes=classes, y=classes)
    else:
        # A class without rows has no share.
        factors = np.sum(counts) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    if not np.all((factors > 0.0) & np.isfinite(factors)):
        raise ValueError(f"class_weight must be positive and finite; got {class_weight!r}.")
    return factors
