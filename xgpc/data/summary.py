"""Count rows: summaries of batches or partitions add to the summary of all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .batches import Batch, Columns
from .checks import refuse_rounded


def tally(codes: np.ndarray, weight: np.ndarray, n_labels: int = 0) -> np.ndarray:
    """Return (3, k) for k label numbers: the rows, the rows of positive weight, and the sums of weights."""
    return np.array([np.bincount(codes, one, n_labels) for one in (None, weight > 0.0, weight)], dtype=np.float64)


def widened(counts: np.ndarray, n_labels: int) -> np.ndarray:
    """Return counts (..., k) padded with zeros to ``n_labels``."""
    return np.pad(counts, [(0, 0)] * (counts.ndim - 1) + [(0, max(0, n_labels - counts.shape[-1]))])


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the kind of labels, numbers (truth values included) or text; only labels of one kind can be sorted."""
    return "numbers" if dtype.kind in "biuf" else "text"


class Labels(NamedTuple):
    """Distinct labels as Python values, and the dtype of an array of all labels.

    Labels are in the order of their first rows. That order breaks ties between classes, and does not depend on where
    batches end.
    """

    values: tuple[Any, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, y: np.ndarray) -> tuple[Labels, np.ndarray]:
        """Return the distinct labels of y (r,), and each row's label number (r,)."""
        distinct, first, inverse = np.unique(y, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return cls(tuple(distinct[order].tolist()), distinct.dtype), np.argsort(order)[inverse.ravel()]

    def __add__(self, others: Labels) -> Labels:  # type: ignore[override]
        """Append the labels of ``others`` that are new; raise ValueError for another kind of labels."""
        if kind_of(self.dtype) != kind_of(others.dtype):
            raise ValueError(
                f"The batch has labels that are {kind_of(others.dtype)}, such as {others.values[0]!r}; those before "
                f"are {kind_of(self.dtype)}. Give all labels as one or the other."
            )
        together = tuple(dict.fromkeys((*self.values, *others.values)))
        return Labels(together, np.result_type(self.dtype, others.dtype))

    def places(self, others: tuple[Any, ...]) -> np.ndarray:
        """Return the label numbers (k,) of ``others``, which are among these labels."""
        numbers = {value: number for number, value in enumerate(self.values)}
        return np.array([numbers[value] for value in others], dtype=np.intp)

    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted labels (C,) and their numbers; raise ValueError if one array of all labels rounds some."""
        classes = np.unique(np.array(self.values, dtype=self.dtype))
        refuse_rounded(self.values, classes)
        return classes, self.places(tuple(classes.tolist()))


@dataclass(frozen=True)
class Summary:
    """Counts of some rows; the sum of two summaries is the summary of all their rows.

    Attributes
    ----------
    columns : Columns
    dtype : of the features: float32 if all are
    has_weights : bool, whether any have
    labels : Labels
    tally : (3, k) rows of each label, those of positive weight, and sums of weights
    """

    columns: Columns
    dtype: np.dtype[Any]
    has_weights: bool
    labels: Labels
    tally: np.ndarray

    @classmethod
    def of(cls, batch: Batch, allowed: np.ndarray | None) -> tuple[Summary, np.ndarray]:
        """Return a batch's summary, and each row's label number (r,); raise ValueError for a label not allowed."""
        labels, codes = Labels.of(batch.y)
        known = set(labels.values if allowed is None else allowed.tolist())
        unknown = [number for number, value in enumerate(labels.values) if value not in known]
        if unknown:
            raise ValueError(
                f"Row {int(np.argmax(codes == unknown[0]))} of the batch has the label {labels.values[unknown[0]]!r}, "
                f"which is not among the given classes {sorted(known)}."
            )
        weight = np.ones(len(codes)) if batch.weight is None else batch.weight
        return cls(batch.columns, batch.X.dtype, batch.weight is not None, labels, tally(codes, weight)), codes

    def __add__(self, other: Summary) -> Summary:
        """Add a summary; raise ValueError if it has other columns, or another kind of labels."""
        other.columns.check_same(self.columns, "the first batch")
        labels = self.labels + other.labels
        total = widened(self.tally, len(labels.values))
        total[:, labels.places(other.labels.values)] += other.tally
        has_weights = self.has_weights or other.has_weights
        return Summary(self.columns, np.result_type(self.dtype, other.dtype), has_weights, labels, total)

    @property
    def n_rows(self) -> int:
        return int(self.tally[0].sum())

    @property
    def n_given(self) -> int:
        """Rows of positive weight."""
        return int(self.tally[1].sum())
