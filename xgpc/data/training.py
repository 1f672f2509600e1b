"""Check the rows that an estimator gets, to fit or to predict, and encode tables as matrices of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..names import MatrixLike, listed
from ..ranges import BadRow, check_weight_range, largest_size
from ..rows.batches import Rows
from ..rows.block import dense
from ..rows.source import NONE, is_mapped
from ..status import warn_user
from .checks import (
    HOW_TO_IMPUTE,
    check_classes_present,
    check_features,
    checked_classes,
    checked_counts,
    checked_groups,
    checked_labels,
    checked_weights,
    class_numbers,
    feature_name,
    has_counts,
    missing_numbers,
    said_missing,
)
from .encoding import FLOATS, HOW_TO_MISS, PLAIN, Encoding, check_names, is_categorical, warn_of_means
from .table import Column, Table, first_text, levels_in, orders_of
from .tails import described, limits_beside, limits_of, warps_of, within

HOW_TO_NUMBER = (
    "make numbers of it, as sklearn.preprocessing.OneHotEncoder does; GPClassifier takes text in data frames, and in "
    "an array's columns that categorical_features names"
)
HOW_TO_NAME = " List all labels that may occur in classes=[...] of the first call."


class Columns(NamedTuple):
    """What an estimator keeps of the columns that it was fitted to.

    Attributes
    ----------
    n_features : int
    names : of the features, or None
    labels : of the columns of a data frame if these are not text, as text, or None
    encoding : Encoding
    mean, spread : (n_features,) of the training rows, or empty
    fill : (n_features,) mean before warps, or None: without warps, for an encoded table, and in files of earlier
        versions
    """

    n_features: int
    names: tuple[str, ...] | None
    labels: tuple[str, ...] | None = None
    encoding: Encoding = PLAIN
    mean: np.ndarray = NONE
    spread: np.ndarray = NONE
    fill: np.ndarray | None = None

    def check_same(self, first: Columns) -> None:
        """Raise ValueError if a batch has other columns than the first batch."""
        are_same = (self.n_features, self.names) == (first.n_features, first.names)
        if not are_same or (self.labels and first.labels and self.labels != first.labels):
            sides = [f"{side.n_features} features, {list(side.labels or side.described)}" for side in (self, first)]
            raise ValueError(
                f"The batch has {sides[0]}; the first batch has {sides[1]}. Give the same ones in the same order."
            )

    @property
    def described(self) -> list[str]:
        """Names of the features, or of the columns of the encoded matrix, for messages."""
        names = self.encoding.matrix_names or self.names
        return [f"feature {j}" for j in range(self.n_features)] if names is None else list(map(repr, names))


class FitInput(NamedTuple):
    """Arguments of a fit.

    ``classes`` are the labels that may occur, in the order of the columns of y (n, C); None: those of y.
    """

    X: MatrixLike
    y: ArrayLike
    sample_weight: ArrayLike | None = None
    groups: ArrayLike | None = None
    classes: ArrayLike | None = None


class TrainingData(NamedTuple):
    """Checked rows of positive weight, dense or CSR, with class numbers as y; classes and columns.

    Attributes
    ----------
    n_each : (C,) numbers of the classes' rows
    order : numbers of ordered classes from the lowest level to the highest; empty if none was given
    groups : (n,) of the rows, or None
    places : (n,) numbers of the rows among those given if y has counts, of which a row may come once for each class
    index_columns : columns of a data frame's index, which were left out
    """

    rows: Rows
    classes: np.ndarray
    n_each: np.ndarray
    columns: Columns
    order: np.ndarray
    groups: np.ndarray | None = None
    places: np.ndarray | None = None
    index_columns: Sequence[str] = ()


def training_data(model: BaseEstimator, inputs: FitInput, fitted: Columns | None = None) -> TrainingData:
    """Check training data; a table has no encoding if all columns are numbers and no number is missing.

    The rows are not yet within limits and warped.

    Parameters
    ----------
    model : the estimator, with its parameters; scikit-learn's checks keep names and number of columns in it
    fitted : the columns of a model that continues; None for its first rows
    """
    X, y, sample_weight, groups, classes = inputs
    table = Table.of(X, (fitted and fitted.names) or ())
    columns, chosen = ([], []) if fitted else _columns(model, table)
    is_encoded = any(chosen) or any(column.n_missing for column in columns)
    if not columns:
        rows = checked_rows(model, table, fitted)
    elif not is_encoded:
        rows = np.column_stack([column.numbers() for column in columns])
        check_features(rows, table.names)
    n_rows = len(columns[0].values) if is_encoded else rows.shape[0]
    if not n_rows:
        raise ValueError("X has 0 samples; give one row at least, or leave this call out.")
    is_ordered = getattr(model, "_is_ordered", False)
    classes = levels_in(orders_of(y)) if classes is None and is_ordered else classes
    may_lack = classes is not None
    levels = checked_classes(classes, None, is_ordered) if may_lack else NONE
    weight = checked_weights(sample_weight, n_rows)
    counts_classes = may_lack and has_counts(y)
    if counts_classes:
        sorted_classes = np.sort(levels)
        counts = checked_counts(y, n_rows, classes, sorted_classes)
        n_each = (counts if sample_weight is None else counts[weight > 0.0]).sum(axis=0)
        weights = counts * weight[:, None]
        keep, codes = np.nonzero(weights)
        weight = weights[keep, codes]
        check_weight_range(weight)
    else:
        labels = checked_labels(y, n_rows)
        sorted_classes = np.sort(levels) if may_lack else np.unique(labels)
        # scikit-learn's check warns where there are more classes than half of the rows.
        if not may_lack and len(sorted_classes) > 2:
            check_classification_targets(labels)
        codes = class_numbers(labels, sorted_classes, HOW_TO_NAME if may_lack else "")
        (keep,) = np.nonzero(weight)
        codes, weight = codes[keep], weight[keep]
        n_each = np.bincount(codes, minlength=len(sorted_classes))
    check_classes_present(sorted_classes[np.unique(codes)], may_lack, takes_classes=hasattr(model, "partial_fit"))
    encoding = PLAIN
    if is_encoded:
        encoding = Encoding.learn(columns, chosen, keep, weight)
        rows = encoding.matrix(columns, is_learned=True)
    if len(keep) < n_rows or counts_classes:
        rows = rows[keep]
    described = fitted or Columns(len(columns) or rows.shape[1], table.names, table.labels, encoding)
    order = np.searchsorted(sorted_classes, levels) if is_ordered and may_lack else NONE
    groups = None if groups is None else checked_groups(groups, n_rows)[keep]
    places = keep if counts_classes else None
    checked = Rows(rows, codes, weight)
    return TrainingData(checked, sorted_classes, n_each, described, order, groups, places, table.index_columns)


def _columns(model: BaseEstimator, table: Table) -> tuple[list[Column], list[bool]]:
    """Return the columns of a table that may need an encoding, else none, and which of them are categorical."""
    setting = getattr(model, "categorical_features", None)
    names_columns = not (setting is None or isinstance(setting, str))
    if not (names_columns or (table.is_frame and hasattr(model, "categorical_features"))):
        return [], []
    if sparse.issparse(table.native):
        raise ValueError(
            f"categorical_features={setting!r} is not for a sparse X, whose columns are numbers: leave 'from_dtype'."
        )
    columns = table.columns()
    n_rows = len(columns[0].values) if columns else len(table.rows)
    if not n_rows or not columns:
        raise ValueError(f"X has {n_rows} rows and {len(columns)} columns; give a row and a column or more.")
    chosen = is_categorical(setting, table, columns)
    for doubt in filter(None, (column.doubt() for column in columns if isinstance(setting, str))):
        warn_user(doubt)
    missing = [(column.name, column.n_missing) for column, leaves in zip(columns, chosen, strict=True) if not leaves]
    if not table.is_frame and any(count for _, count in missing):
        raise ValueError(f"X has {said_missing([pair for pair in missing if pair[1]])}. {HOW_TO_MISS}")
    # Its names and number are kept, and compared in predictions.
    validate_data(model, table.native if table.is_frame else table.array(), reset=True, skip_check_array=True)
    return columns, chosen


def checked_rows(model: BaseEstimator, table: Table, fitted: Columns | None) -> MatrixLike:
    """Return the rows (n, d) of a table to fit, or to predict by a ``fitted`` model, before limits and warps.

    There may be none to predict. Missing and too large numbers raise ValueError.
    """
    model_columns, takes_tables = fitted or Columns(0, None), hasattr(model, "categorical_features")
    # scikit-learn does not compare names that are no text.
    check_names(table.labels, model_columns.labels)
    encoding = model_columns.encoding
    if encoding.columns:
        validate_data(model, table.native if table.is_frame else table.array(), reset=False, skip_check_array=True)
        return encoding.matrix(table.columns(), allow_missing=table.is_frame)
    rows = _numbers(model, table, fitted)
    names = model_columns.names or table.names
    if len(model_columns.mean) and table.is_frame and math.isnan(largest_size(rows)):
        warn_of_means(missing_numbers(rows, names))
        mean = encoding.inverse(model_columns.mean[None])[0] if model_columns.fill is None else model_columns.fill
        rows = np.where(np.isnan(rows), mean.astype(rows.dtype), rows)
    check_features(rows, names, HOW_TO_MISS if takes_tables else HOW_TO_IMPUTE)
    return rows


def _numbers(model: BaseEstimator, table: Table, fitted: Columns | None) -> MatrixLike:
    """Return the rows (n, d) as scikit-learn's checks make numbers of them, which may be missing."""
    is_sparse = sparse.issparse(table.native) and model.__sklearn_tags__().input_tags.sparse
    try:
        # The caller checks that numbers are finite, and names the first that is not.
        return validate_data(
            model,
            table.native,
            reset=not fitted,
            dtype=FLOATS,
            accept_sparse="csr" if is_sparse else False,
            ensure_all_finite=False,
            ensure_min_samples=int(not fitted),
        )
    except (TypeError, ValueError) as error:
        if sparse.issparse(table.native):
            raise
        # Nothing but a table gets further.
        array = table.array()
        if "could not convert string to float" not in str(error):
            raise
        values = array.ravel().tolist()
        row, column = divmod(place := first_text(values), array.shape[1])
        feature = feature_name(column, table.names if fitted is None else fitted.names)
        text = f"could not convert string to float: {values[place]!r}, of {feature} in row {row}"
        cure = HOW_TO_NUMBER if fitted is None else "the model was fitted to numbers"
        raise BadRow(f"X has text: {text}. Correct it; {cure}.", row) from error


def training_batch(batch: MatrixLike) -> tuple[Columns | None, Rows]:
    """Check a batch (X, y) or (X, y, sample_weight) of numbers by itself; its columns are None if it has no rows.

    Each row has a weight. Sparse rows become dense. Errors name the first bad row.
    """
    parts = batch if isinstance(batch, tuple | list) else ()
    if len(parts) not in (2, 3):
        kind = f"{len(parts)} parts" if len(parts) else f"a {type(batch).__name__}"
        raise ValueError(
            f"A batch must be a tuple (X, y) or (X, y, sample_weight); got {kind}. Write fit_batches([(X, y)]); in "
            "from_parquet and from_arrow name the column of the labels, target='...'."
        )
    X, y, weight = (*parts, None)[:3]
    if np.shape(y)[:1] == (0,) and np.shape(X)[:1] == (0,):
        return None, Rows(np.empty((0, 0)), np.empty(0, np.intp), NONE)
    table = Table.of(X)
    columns = table.columns() if table.is_frame else []
    if with_levels := [column for column in columns if column.levels is not None]:
        raise with_levels[0].doubt() or ValueError(
            f"Column {with_levels[0].name!r} has levels, but rows in batches, and of dask, must be numbers: "
            "make columns of levels, as sklearn.preprocessing.OneHotEncoder does, leave them out, or use fit."
        )
    array = np.column_stack([column.values for column in columns]) if columns else dense(table.native)
    rows = check_array(array, dtype=FLOATS, order="C", ensure_all_finite=False, ensure_min_samples=0, input_name="X")
    check_features(rows, table.names)
    checked = Rows(rows, checked_labels(y, len(rows)), checked_weights(weight, len(rows)))
    return Columns(rows.shape[1], table.names, table.labels), checked


def transformed(
    rows: Rows, columns: Columns, may_warp: bool, previous: Columns | None
) -> tuple[MatrixLike, Columns, list[str]]:
    """Return the rows within limits and warped, the columns with an encoding that has both, and sentences on it.

    ``previous`` are the columns of a previous fit that a warm start continues: if the columns are the same, its warps
    stay, if it has any. Sparse rows stay unchanged, because zeros would not stay zeros; memory maps, because a copy may
    not fit into memory.
    """
    X, encoding = rows.X, columns.encoding
    if sparse.issparse(X):
        return X, columns, []
    is_map, notes = is_mapped(X), list[str]()
    change = "stay, because X is a memory map" if is_map else "are {} (feature_transform=None leaves them)"
    limits = limits_of(X, rows.weight)
    # An earlier fit without warps may have had another setting, a kernel of the user, or too few rows to show a tail.
    if previous is not None and previous.encoding.warps and previous.described == columns.described:
        warps = previous.encoding.warps
    else:
        warps = warps_of(X, rows.weight, limits) if may_warp else ()
    if warps:
        names = listed([columns.described[warp.feature] for warp in warps])
        notes.append(f"Features with heavy tails {change.format('warped')}: {names}.")
        limits = limits_beside(warps, limits, X)
    if limits:
        where = listed([described(limit, columns.described[limit.feature]) for limit in limits])
        notes.append(f"Values that a wide gap separates from all others {change.format('moved to limits')}: {where}.")
    if is_map or not notes:
        return X, columns, notes
    encoding = replace(encoding, limits=limits, warps=warps)
    fill = np.average(within(X, limits), axis=0, weights=rows.weight) if warps and not encoding.columns else None
    return encoding.transform(X), columns._replace(encoding=encoding, fill=fill), notes
