"""What labels may be: text, or whole numbers and truth values; the same for all that come in batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .batches import BadRow

# Labels of a kind can be put in one order.
NUMBERS, WORDS = "numbers", "text"


def checked_labels(y: Any, n_rows: int) -> np.ndarray:
    """Labels (n_rows,) as an array; ValueError for a wrong shape, missing ones, and what is no label of a class."""
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


def refuse_objects(labels: np.ndarray) -> None:
    """ValueError for labels (n,) that are bytes, complex numbers, or objects other than text."""
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


def missing_values(values: np.ndarray) -> np.ndarray:
    """Rows of values (n,) that are missing."""
    if values.dtype.kind in "fcmM":
        return np.flatnonzero(np.isnan(values))
    return np.flatnonzero([is_missing(value) for value in values] if values.dtype.kind == "O" else [])


def is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:
        # pandas.NA does not say whether it equals itself.
        return True
    except ValueError:
        # An array among the labels; that is refused later.
        return False


def kind_of(labels: np.ndarray) -> str:
    """What labels (n,) are: numbers, truth values among them, or text."""
    return NUMBERS if labels.dtype.kind in "biuf" else WORDS


def check_same_kind(labels: np.ndarray, before: np.ndarray) -> None:
    """ValueError for a batch's labels (n,), one or more, that are of another kind than those before."""
    if kind_of(labels) != kind_of(before):
        raise ValueError(
            f"The batch has labels that are {kind_of(labels)}, such as {labels[:1].tolist()[0]!r}; those before are "
            f"{kind_of(before)}. Give all labels as one or the other."
        )


def refuse_rounded(labels: Iterable[Any], classes: np.ndarray) -> None:
    """ValueError for labels that became others in the array of all classes, as large integers beside floats do."""
    known = set(classes.tolist())
    lost = [label for label in labels if label not in known]
    if lost:
        raise ValueError(
            f"The labels are integers as large as {lost[0]!r} and floating point numbers, or integers of different "
            "types, which in one array are rounded and would be confused. Give all as integers of one type, or as text."
        )
