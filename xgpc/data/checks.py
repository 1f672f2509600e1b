"""Check labels, classes, weights and groups; errors say what was given, what is allowed, and how to fix it."""

from __future__ import annotations

import numbers
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.class_weight import compute_class_weight

from ..names import ClassWeight, MatrixLike, RandomSeed, listed, shown
from ..ranges import LARGEST_FEATURE, MOST_ROWS, BadRow, check_weight_range, largest_size
from ..status import warn_user

HOW_TO_IMPUTE = "Put in numbers, as sklearn.impute.SimpleImputer does in a pipeline."


def random_state_of(seed: RandomSeed) -> np.random.RandomState:
    """Return what scikit-learn's ``check_random_state`` does; the next numbers of a Generator are a seed."""
    try:
        return check_random_state(int(seed.integers(2**32)) if isinstance(seed, np.random.Generator) else seed)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, a whole number from 0 to 2**32 - 1 as a seed, or a RandomState or Generator of "
            f"NumPy; got {seed!r}."
        ) from error


def refuse_not_in_memory(value: object) -> None:
    """Raise ValueError for too many rows, and for what NumPy would turn into arrays: lazy frames, masked values."""
    library, kind = type(value).__module__.partition(".")[0], type(value).__name__
    if library == "dask":
        raise ValueError(
            f"Got a {kind} of dask, whose rows are not in memory: give what its compute() makes. Only fit, predict, "
            "predict_proba, predict_log_proba, decision_function and score of xgpc.dask.DaskGPClassifier take it."
        )
    if kind == "LazyFrame":
        raise ValueError(f"Got a {kind} of {library}, a query that has no rows yet: give what its collect() makes.")
    n_rows = next(iter(getattr(value, "shape", ())), 0)
    if isinstance(n_rows, int) and n_rows > MOST_ROWS:
        raise ValueError(
            f"Got {n_rows} rows ({kind}); at most {MOST_ROWS} are possible at a time. Fit with fit_batches, and "
            "predict with predict_proba_batches, which take rows batch by batch."
        )
    if isinstance(value, np.ma.MaskedArray) and (n_masked := int(np.sum(np.ma.getmaskarray(value)))):
        raise ValueError(
            f"An array of shape {value.shape} has masked values ({n_masked}), which are no data. Leave out their "
            "rows, or put in values: numpy.ma.filled(array, value)."
        )


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA."""
    is_nan = isinstance(value, numbers.Number) and bool(value != value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def said_missing(counts: Sequence[tuple[str, int]]) -> str:
    """Return a phrase on how many numbers are missing, and in which columns."""
    total, columns = sum(count for _, count in counts), [f"{count} in {name}" for name, count in counts]
    return f"{total} missing number{'s' if total > 1 else ''} (NaN): {listed(columns)}"


def missing_numbers(rows: MatrixLike, names: Sequence[str] | None) -> list[tuple[str, int]]:
    """Return the names of the features of rows (n, d), dense or CSR, with missing numbers, and how many these miss."""
    entries = sparse.coo_array(rows)
    columns, counts = np.unique(entries.col[np.isnan(entries.data)], return_counts=True)
    return [(feature_name(j, names), n) for j, n in zip(columns, counts.tolist(), strict=True)]


def feature_name(column: int, names: Sequence[str] | None) -> str:
    return f"feature {column}" if names is None else repr(names[column])


def check_features(rows: MatrixLike, names: Sequence[str] | None, advice: str = HOW_TO_IMPUTE) -> None:
    """Raise ValueError for rows (n, d), dense or CSR, with numbers that are missing, infinite or too large.

    ``advice`` says what to do about missing ones.
    """
    largest = largest_size(rows)
    if largest <= LARGEST_FEATURE:
        return
    entries = sparse.coo_array(rows)
    sizes = np.abs(entries.data, dtype=np.float64)
    first = int(np.argmax(np.isnan(sizes) if np.isnan(largest) else sizes > LARGEST_FEATURE))
    row, column, value = int(entries.row[first]), int(entries.col[first]), entries.data[first]
    if np.isnan(value):
        raise BadRow(f"X has {said_missing(missing_numbers(rows, names))}. {advice}", row)
    if np.isinf(value):
        size, cure = "infinity", "leave out such rows, or put in numbers"
    else:
        size, cure = f"size {abs(value):.3g}", f"scale the features to at most {LARGEST_FEATURE:g}"
    raise BadRow(f"X has a value of {size}, of {feature_name(column, names)} in row {row}; {cure}.", row)


def _refuse_missing(name: str, what: str, values: np.ndarray, advice: str) -> None:
    """Raise BadRow if one of the values (n,) is missing."""
    if values.dtype.kind in "fcmM":
        missing = np.flatnonzero(np.isnan(values))
    else:
        missing = np.flatnonzero([is_missing(value) for value in values] if values.dtype.kind == "O" else [])
    if len(missing):
        first = f"the first in row {missing[0]}: {shown(values[missing[0]])}"
        raise BadRow(f"{name} has {len(missing)} missing {what}, {first}. {advice}", missing[0])


def kind_of(dtype: np.dtype) -> str:
    """Return the kind of labels, numbers (truth values included) or text; only labels of one kind can be sorted."""
    return "numbers" if dtype.kind in "biuf" else "text"


def _refuse_kinds(labels: np.ndarray) -> None:
    """Raise ValueError for labels (n,) other than text, whole numbers and truth values."""
    if labels.dtype.kind in "ScmM":
        raise ValueError(f"Labels must be text, whole numbers or truth values, not {labels.dtype}: take y.astype(str).")
    for label in labels.tolist() if labels.dtype.kind == "O" else ():
        if not isinstance(label, str):
            raise ValueError(
                f"Unknown label type: y is an array of objects with labels such as {label!r} ({type(label).__name__}). "
                "Give text alone, or an array of numbers, such as y.astype(int) makes."
            )
    (broken,) = np.nonzero(np.isinf(labels) | (labels != np.floor(labels)) if labels.dtype.kind == "f" else ())
    if len(broken):
        measured = f"the label {labels[broken[0]]}, which looks like a measurement: classes are text or whole numbers."
        raise BadRow(f"Unknown label type: row {broken[0]} of y has {measured}", broken[0])


def checked_labels(y: ArrayLike, n_rows: int) -> np.ndarray:
    """Return the labels (n_rows,); raise ValueError for another number, missing labels and measurements."""
    refuse_not_in_memory(y)
    if has_counts(y):
        raise ValueError(
            f"y should be a 1d array of labels, got an array of shape {np.shape(y)} instead. fit and partial_fit of "
            "GPClassifier and GPOrdinalClassifier take counts or probabilities, if classes= names the columns."
        )
    if y is None:
        raise ValueError("A classifier requires y to be passed, but the target y is None: give the label of each row.")
    # scikit-learn's check makes floats of nullable types, and takes longer than all others here together.
    labels: np.ndarray = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "biu":
        labels = column_or_1d(labels if labels.ndim else y, warn=True)
    if len(labels) != n_rows:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n_rows} rows and {len(labels)} labels.")
    _refuse_missing("y", "labels", labels, "Leave out rows without a label.")
    _refuse_kinds(labels)
    return labels


def has_counts(y: ArrayLike) -> bool:
    """Whether labels are counts or probabilities of classes, in two columns or more."""
    # ``np.shape`` would call the ``__array_function__`` of what only resembles an array.
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return len(shape) == 2 and shape[1] > 1


def numbers_of(values: ArrayLike, words: str) -> np.ndarray:
    """Return an array of numbers; raise ValueError, which begins with the words, for text, dates and complex ones."""
    try:
        array = np.asarray(values)
        return array.astype(np.float64, casting="unsafe" if array.dtype.kind == "O" else "same_kind")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{words}; got {reprlib.repr(values)}: {str(error).rstrip('.')}.") from error


def checked_counts(y: ArrayLike, n_rows: int, columns: ArrayLike | None, classes: np.ndarray) -> np.ndarray:
    """Return counts (n_rows, C) in the order of ``classes``; ``columns`` are the classes that y has columns for."""
    refuse_not_in_memory(y)
    shape = n_rows, len(classes)
    if columns is None or np.shape(y) != shape or len(np.asarray(columns)) != len(classes):
        raise ValueError(
            f"y with several columns must have the counts or probabilities of the classes, here of shape {shape}, and "
            f"classes= must name its columns; got y of shape {np.shape(y)} and classes={columns!r}. For one label a "
            "row, give y of shape (n,)."
        )
    named, wanted = (list(map(str, labels)) for labels in (getattr(y, "columns", ()), np.asarray(columns).tolist()))
    if named != wanted and sorted(named) == sorted(wanted):
        raise ValueError(f"The columns of y are {named}, but classes={columns!r}: give both in the same order.")
    counts = numbers_of(y, "y must have counts or probabilities, a dense array of numbers")
    (bad,) = np.nonzero(~np.all((counts >= 0.0) & np.isfinite(counts), axis=1))
    if len(bad):
        given = f"row {bad[0]} is {counts[bad[0]]}"
        raise BadRow(f"y must have counts or probabilities, finite and not negative; {given}.", bad[0])
    return counts[:, np.argsort(class_numbers(np.asarray(columns), classes))]


def refuse_rounded(labels: Iterable[object], classes: np.ndarray) -> None:
    """Raise ValueError for labels that the array of all classes rounds: large integers next to floats, for instance."""
    stored = set(classes.tolist())
    lost = [label for label in labels if label not in stored]
    if lost:
        raise ValueError(
            f"The labels are integers as large as {lost[0]!r} and floating point numbers, or integers of different "
            "types, which in one array are rounded and would be confused. Give all as integers of one type, or as text."
        )


def checked_classes(classes: Any, first_classes: np.ndarray | None = None, is_ordered: bool = False) -> np.ndarray:
    """Return the distinct labels (C,), sorted, or in the order of ``classes`` if that counts.

    ValueError unless they are two or more, of one kind, and those of ``first_classes`` if given.
    """
    values = list(classes) if np.ndim(np.asarray(classes, dtype=object)) == 1 else []
    if len({isinstance(value, str) for value in values}) > 1 or any(map(is_missing, values)):
        values = []
    try:
        distinct = np.unique(np.asarray(values))
    except TypeError:
        # They have no order.
        values, distinct = [], np.empty(0)
    refuse_rounded(values, distinct)
    if len(distinct) < max(2, len(values)) or (distinct.dtype.kind == "f" and np.any(distinct != np.floor(distinct))):
        raise ValueError(
            "classes must be a list of all labels that there are to be, two or more, each once, all whole numbers or "
            f"all strings, none of them missing; got {reprlib.repr(classes)}."
        )
    _refuse_kinds(distinct)
    if is_ordered:
        distinct = distinct[np.argsort([values.index(label) for label in distinct.tolist()])]
    if first_classes is not None and distinct.tolist() != first_classes.tolist():
        raise ValueError(
            f"classes must be None or those of the first call, {first_classes.tolist()}; got {distinct.tolist()}. For "
            "another class make a new estimator."
        )
    return distinct


def class_numbers(labels: np.ndarray, classes: np.ndarray, advice: str = "") -> np.ndarray:
    """Return the positions (n,) of labels in classes; raise ValueError for an unknown label, with advice."""
    # "1" is not 1.
    are_alike = kind_of(labels.dtype) == kind_of(classes.dtype)
    order = np.argsort(classes)
    codes = np.searchsorted(classes, labels if are_alike else classes[:0], sorter=order)
    codes = order[np.minimum(codes, len(classes) - 1)]
    unknown = np.flatnonzero(classes[codes] != labels) if are_alike else np.arange(len(labels))
    if len(unknown):
        unknown_labels = reprlib.repr(list(dict.fromkeys(labels[unknown].tolist())))
        all_classes = reprlib.repr(classes.tolist())
        raise BadRow(f"y has labels {unknown_labels} that are not in classes {all_classes}.{advice}", unknown[0])
    return codes


def check_classes_present(present: np.ndarray, may_lack: bool = False, takes_classes: bool = False) -> None:
    """Raise ValueError unless rows of positive weight have two classes, or one if classes ``may_lack``."""
    if not len(present):
        raise ValueError("No row counts: each sample_weight, or each count in y, is zero. Give some that are positive.")
    if len(present) < 2 and not may_lack:
        advice = " Give classes= in Python, all labels that there may be, for a fit to them." if takes_classes else ""
        raise ValueError(
            f"Classification needs rows of two classes; the rows (of positive weight) are of {len(present)} class: "
            f"{present.tolist()}.{advice}"
        )


def checked_weights(sample_weight: ArrayLike | None, n_rows: int) -> np.ndarray:
    """Return a copy (n_rows,) of the weights, ones for None.

    Raise ValueError for all but real numbers that are not negative.
    """
    refuse_not_in_memory(sample_weight)
    one_each = f"a real number for each of the {n_rows} rows, or one for all (class_weight takes weights of classes)"
    weight = numbers_of(1.0 if sample_weight is None else sample_weight, f"sample_weight must be {one_each}")
    if weight.shape not in ((), (n_rows,)):
        given = f"{reprlib.repr(sample_weight)}: an array of shape {weight.shape}"
        raise ValueError(f"sample_weight must be {one_each}; got {given}.")
    weight = np.array(np.broadcast_to(weight, n_rows))
    (bad,) = np.nonzero(~(weight >= 0.0))
    if len(bad):
        rule = "sample_weight must not be negative, or NaN. Leave out such rows, or give them a weight of 0."
        raise BadRow(f"Row {bad[0]} has sample_weight {weight[bad[0]]:g}: {rule}", bad[0])
    check_weight_range(weight[weight > 0.0])
    return weight


def checked_groups(groups: ArrayLike, n_rows: int) -> np.ndarray:
    """Return the groups (n_rows,); raise ValueError for another number, missing ones, and those of several kinds."""
    refuse_not_in_memory(groups)
    groups = np.asarray(groups)
    if groups.shape != (n_rows,):
        raise ValueError(f"groups must have one value for each of the {n_rows} rows; its shape is {groups.shape}.")
    _refuse_missing("groups", "values", groups, "Give each such row a group of its own, or leave it out.")
    try:
        distinct = np.unique(groups)
    except TypeError as error:
        raise ValueError(f"groups must be all numbers or all strings, to be told apart: {error}.") from error
    if len(distinct) == 1:
        warn_user(f"groups are all {distinct.tolist()[0]!r}: none can be held out. Give others, or leave groups out.")
    return groups


def weights_of_classes(class_weight: ClassWeight | None, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the weights (C,) of the classes, which are 1 unless given; "balanced": n / (C n_c) from row ``counts``.

    Rows of positive weight count, whatever their weights, as all rows do in scikit-learn's ``compute_class_weight``,
    SVC, ridge and tree classifiers. (Its LogisticRegression sums sample weights since 1.7.) A row of weight zero is as
    one that was not given. A class without rows cannot be balanced, and has the weight 1.
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        shares = counts * (np.count_nonzero(counts) / np.sum(counts))
        return np.divide(1.0, shares, out=np.ones(len(shares)), where=shares > 0.0)
    if class_weight is None:
        return np.ones(len(classes))
    weight = compute_class_weight(class_weight, classes=classes, y=classes)
    if not np.all((weight > 0.0) & np.isfinite(weight)):
        raise ValueError(f"class_weight must be positive and finite; got {class_weight!r}.")
    return weight
