"""A sample of a stream of rows, from which a kernel can be learned again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import _get_feature_names

from ..ranges import WEIGHT_RANGE, refuse_masked
from .labels import check_same_kind, checked_labels, refuse_rounded
from .tables import with_names

# Rows that count for less are dropped: all of a million of them would count for less than one row.
LEAST = 1e-6


class Reservoir:
    """A sample of the rows of a stream, of bounded size, with weights by which it stands for all rows.

    A row whose batch came k batches ago counts as ``forgetting_factor ** k`` rows, and the sample has it with a
    probability that grows with that: without forgetting each row of the stream is as probable. Sums over the sample,
    by its weights, are unbiased estimates of those over all rows ([1]_, section 3). While no row had to be left out
    they are those sums.

    Parameters
    ----------
    size : int
        Most rows that are kept.
    forgetting_factor : float in (0, 1], default=1.0
        As for ``GPClassifier.partial_fit``.
    random_state : int, numpy.random.Generator or None, default=None

    References
    ----------
    .. [1] Cohen, Kaplan. Summarizing data using bottom-k sketches. PODC 2007. Rank conditioning.

    Examples
    --------
    >>> import numpy as np
    >>> reservoir = Reservoir(100, random_state=0)
    >>> for number in range(10):
    ...     X = np.random.default_rng(number).normal(size=(50, 2))
    ...     reservoir.add(X, X[:, 0] > 0.0)
    >>> X, y, weight = reservoir.rows()
    >>> X.shape
    (100, 2)
    """

    def __init__(self, size: int, forgetting_factor: float = 1.0, random_state: Any = None) -> None:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"size must be a number of rows, 1 or more; got {size!r}.")
        if not 0.0 < forgetting_factor <= 1.0:
            raise ValueError(f"forgetting_factor must be above 0, and 1 at most; got {forgetting_factor!r}.")
        self.size, self.forgetting_factor = int(size), float(forgetting_factor)
        self._random = np.random.default_rng(random_state)
        self._rows: tuple[np.ndarray, ...] | None = None
        self._names: Any = None
        # Those of least keys are kept: exponential variables, divided by what a row counts for. The least one left out.
        self._keys, self._counts, self._least_left = np.zeros(0), np.zeros(0), np.inf

    def add(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take a batch, X (n, d) and y (n,) with weights (n,), into account; those before are then a batch older.

        A data frame's columns must be those of the batches before, in their order. Memory for ``size + n`` rows.

        Raises
        ------
        ValueError
            For rows that are no finite numbers, labels that are missing or of another kind than those before, and rows
            that do not fit each other, or those before. Nothing of the batch is taken then.
        """
        refuse_masked(X, y, sample_weight)
        X = with_names(X)
        names = _get_feature_names(X)
        X = check_array(X, dtype=(np.float64, np.float32), ensure_min_samples=0)
        labels = _as_text(checked_labels(y, len(X)))
        weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != (len(X),):
            raise ValueError(f"sample_weight must be (n,), for the {len(X)} rows of X; got {weight.shape}.")
        if not np.all((weight == 0.0) | ((weight >= WEIGHT_RANGE[0]) & (weight <= WEIGHT_RANGE[1]))):
            raise ValueError(f"sample_weight must be 0, or from {WEIGHT_RANGE[0]:g} to {WEIGHT_RANGE[1]:g}.")
        if self._rows is not None and X.shape[1] != self._rows[0].shape[1]:
            raise ValueError(f"X has {X.shape[1]} features; the batches before have {self._rows[0].shape[1]}.")
        if self._rows is not None and not np.array_equal(names, self._names):
            raise ValueError(f"The columns of X are {_said(names)}; those of the batches before {_said(self._names)}.")
        if self._rows is not None and len(labels) and labels.dtype != self._rows[1].dtype:
            check_same_kind(labels, self._rows[1])
            together = np.concatenate([self._rows[1], labels])
            refuse_rounded([*self._rows[1].tolist(), *labels.tolist()], together)
        self._forget()
        if not len(labels):
            return
        self._names = names
        given = weight > 0.0
        batch = X[given], labels[given], weight[given]
        self._keys = np.concatenate([self._keys, self._random.exponential(size=np.count_nonzero(given))])
        self._counts = np.concatenate([self._counts, np.ones(np.count_nonzero(given))])
        self._rows = batch if self._rows is None else tuple(map(np.concatenate, zip(self._rows, batch, strict=True)))
        if len(self._keys) > self.size:
            order = np.argsort(self._keys, kind="stable")
            self._least_left = min(self._least_left, float(self._keys[order[self.size]]))
            self._keep(np.sort(order[: self.size]))

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X (k, d), y (k,) and weights (k,) of the rows that are kept, in their order.

        Raises
        ------
        ValueError
            Before there are any.
        """
        if self._rows is None or not len(self._keys):
            raise ValueError("The reservoir has no rows yet: add a batch that has some.")
        X, y, weight = self._rows
        # A row that counts for c is kept with probability 1 - exp(-c t), given the least key t of all others left out.
        return X, y, weight * self._counts / -np.expm1(-self._counts * self._least_left)

    def _forget(self) -> None:
        if self.forgetting_factor < 1.0:
            self._keys = self._keys / self.forgetting_factor
            self._counts = self._counts * self.forgetting_factor
            self._least_left /= self.forgetting_factor
            self._keep(np.flatnonzero(self._counts >= LEAST))

    def _keep(self, which: np.ndarray) -> None:
        self._keys, self._counts = self._keys[which], self._counts[which]
        if self._rows is not None:
            self._rows = tuple(array[which] for array in self._rows)


def _as_text(labels: np.ndarray) -> np.ndarray:
    """Labels (n,) of text as an array of that type: of objects they are nothing else."""
    return labels.astype(str) if labels.dtype.kind == "O" else labels


def _said(names: Any) -> str:
    return "without names" if names is None else str(list(names))
