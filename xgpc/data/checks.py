"""Check labels, classes, weights and groups; errors say what was given, what is allowed, and how to fix it."""

from __future__ import annotations

import numbers
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ..ranges import check_weight_range, refuse_masked


class BadRow(ValueError):
    """An error of one row of a batch.

    Attributes
    ----------
    row : int, its number in the batch
    given, advice : what it has, and the rest of the sentence
    column : int, of the feature, or None for the label or weight
    name : str, of that column, if it has one
    """

    def __init__(self, row: int, given: str, advice: str, column: int | None = None, name: str | None = None):
        where = "" if column is None else f" in column {column if name is None else repr(name)}"
        super().__init__(f"Row {row} of the batch has {given}{where}{advice}")
        self.row, self.given, self.advice, self.column, self.name = row, given, advice, column, name

    def __reduce__(self) -> Any:
        # From another process, with its notes.
        return type(self), (self.row, self.given, self.advice, self.column, self.name), vars(self)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        # pandas.NA does not say whether it equals itself.
        return True
    except ValueError:
        # An array, which is refused later.
        return False


def missing_values(values: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows whose values (n,) are missing."""
    if values.dtype.kind in "fcmM":
        return np.flatnonzero(np.isnan(values))
    return np.flatnonzero([is_missing(value) for value in values] if values.dtype.kind == "O" else [])


def refuse_missing(y: Any) -> None:
    """Raise ValueError if labels that are objects, such as strings, include None, NaN or pandas.NA."""
    labels = np.asarray(y)
    missing = missing_values(labels if labels.dtype.kind == "O" and labels.ndim == 1 else np.empty(0))
    if len(missing):
        raise ValueError(
            f"y has {len(missing)} missing labels, the first in row {missing[0]}: {labels[missing[0]]!r}. Leave out "
            "rows without a label."
        )


def refuse_objects(labels: np.ndarray) -> None:
    """Raise ValueError for labels (n,) that are bytes, complex numbers, or objects other than text."""
    if labels.dtype.kind in "Sc":
        how = "Complex data not supported" if labels.dtype.kind == "c" else "np.char.decode(y) makes text of bytes"
        raise ValueError(f"Labels must be text, whole numbers or truth values; got an array of {labels.dtype}. {how}.")
    if labels.dtype.kind == "O" and labels.ndim == 1:
        others = [label for label in labels.tolist() if not isinstance(label, str)]
        if others:
            raise ValueError(
                f"Unknown label type: y is an array of objects with labels such as {others[0]!r} "
                f"({type(others[0]).__name__}). Give text alone, or an array of numbers, such as y.astype(int) makes."
            )


def checked_labels(y: Any, n_rows: int) -> np.ndarray:
    """Return a batch's labels (n_rows,); raise ValueError for a wrong shape, missing labels and measurements."""
    labels = np.asarray(y)
    if labels.shape == (n_rows, 1):
        labels = labels[:, 0]
    if labels.shape != (n_rows,):
        raise ValueError(f"y must have one label for each of the batch's {n_rows} rows; its shape is {labels.shape}.")
    missing = missing_values(labels)
    if len(missing):
        raise BadRow(int(missing[0]), "a missing label", ". Leave out rows without a label.")
    refuse_objects(labels)
    if labels.dtype.kind == "f":
        (broken,) = np.nonzero(labels != np.floor(labels))
        if len(broken):
            advice = ", which looks like a measurement: classes are text or whole numbers."
            raise BadRow(int(broken[0]), f"the label {labels[broken[0]]}", advice)
    return labels


def refuse_rounded(labels: Iterable[Any], classes: np.ndarray) -> None:
    """Raise ValueError for labels that the array of all classes rounds: large integers next to floats, for instance."""
    known = set(classes.tolist())
    lost = [label for label in labels if label not in known]
    if lost:
        raise ValueError(
            f"The labels are integers as large as {lost[0]!r} and floating point numbers, or integers of different "
            "types, which in one array are rounded and would be confused. Give all as integers of one type, or as text."
        )


def checked_classes(classes: Any) -> np.ndarray:
    """Return the distinct labels (C,), sorted; raise ValueError unless they are two or more, of one kind."""
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
    """Raise ValueError unless ``classes`` are the model's."""
    if checked_classes(classes).tolist() != known.tolist():
        raise ValueError(
            f"classes must be None or those of the first call, {known.tolist()}; got {classes!r}. A class that was not "
            "named then needs a new estimator."
        )


def class_numbers(y: ArrayLike, classes: np.ndarray) -> np.ndarray:
    """Return the positions (n,) of labels in ``classes``; raise ValueError for an unknown label."""
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
    """Return labels (n,) for the sites: -1 and 1, or class numbers if each class has a latent function."""
    labels = codes.astype(np.float64)
    return 2.0 * labels - 1.0 if n_latents is None else labels


def check_classes_present(present: np.ndarray, may_lack: bool = False, takes_classes: bool = False) -> None:
    """Raise ValueError unless rows of positive weight have two classes, or one if classes ``may_lack``."""
    if not len(present):
        raise ValueError(
            "No row has a positive weight: each sample_weight is zero. Leave sample_weight out to count all."
        )
    if len(present) < 2 and not may_lack:
        how = " Give classes=, a list of all labels that there may be, for a fit to them." if takes_classes else ""
        raise ValueError(
            f"Classification needs rows of two classes; the rows (of positive weight) are of {len(present)} class: "
            f"{present.tolist()}.{how}"
        )


def checked_weights(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Return a copy (n_rows,) of the weights; raise ValueError for all but real numbers, text with digits included."""
    refuse_masked(sample_weight)
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
    if values.shape not in ((), (n_rows,)):
        raise ValueError(f"{what}; sample_weight.shape is {values.shape}.")
    if values.dtype.kind == "O":
        values = np.where([is_missing(value) for value in values.ravel()], np.nan, values)
    weight = np.array(np.broadcast_to(values, n_rows), dtype=np.float64)
    (bad,) = np.nonzero(~(weight >= 0.0))
    if len(bad):
        advice = ": sample_weight must not be negative, or NaN. Leave out such rows, or give them a weight of 0."
        raise BadRow(int(bad[0]), f"sample_weight {weight[bad[0]]:g}", advice)
    check_weight_range(weight[weight > 0.0])
    return weight


def checked_groups(groups: Any, y: Any, sample_weight: Any) -> np.ndarray:
    """Return the groups (n,) of the rows of positive weight."""
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
    """Return the weights (C,) of the classes; "balanced": n / (C n_c) from the row ``counts`` of classes with rows.

    Rows count whatever their sample weights, as they do in scikit-learn's ``compute_class_weight``, SVC, ridge and tree
    classifiers in every version. Its LogisticRegression counted rows up to version 1.6, and sums sample weights since
    1.7.
    """
    is_dict = isinstance(class_weight, dict) and all(isinstance(one, numbers.Real) for one in class_weight.values())
    if not is_dict and not (isinstance(class_weight, str) and class_weight == "balanced"):
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
