"""The record of a fit: the columns of ``history_``.

All rows
    ``seconds`` since the start; ``n_rows`` in use; with inducing points ``n_inducing``.
Evaluations of the optimizer
    ``evaluation``, from 1 in every stage; ``elbo``, the bound; ``log_prior`` if length scales have a prior (the
    optimizer maximises the sum of both); ``theta``, the logarithms of the kernel parameters as in scikit-learn,
    kernel by kernel (NaN beyond a single kernel's own if later each class has one); ``inner_iterations`` of the
    posterior.
Iterations of the posterior
    ``iteration``, or ``epoch`` with mini-batches; ``elbo``; ``learning_rate``; with mini-batches also ``change`` and
    ``log_likelihood``.
Decisions
    ``decision``, a sentence, empty in all other rows (``decisions_`` lists them). Decisions are about the number of
    inducing points, with ``gain_per_point``; neighbours, with ``query_score``; keeping the kernel learned without
    neighbours if held-out rows show none better; a kernel for each class; the start kernel; a warm start that is not
    possible, or a checkpoint that is resumed; parts skipped for lack of time; keeping the previous hyperparameters,
    or the posterior before mini-batches; and columns that are the index of a data frame.
Rounds with neighbours
    A round takes ``n_rows`` rows, of which some are held out and predicted from ``n_neighbors`` of the others. It
    makes ``searches`` for neighbours and ``sweeps`` over their sites, then maximises the mean log probability of the
    held-out rows: ``query_score`` before and ``learned_score`` after ``evaluations`` of the score and its gradient
    (``evaluations`` is a count, ``evaluation`` a number). The first of these rows are starts, without
    evaluations, and kernels of different roughness; the last is the second round. If the class frequencies predict
    held-out rows nearly as well, the kernels are also tried from short length scales; if this does not help, or
    held-out rows are too few, there is no second round.
Sites of all rows
    ``n_neighbors``, ``searches`` and ``sweeps``, alone or with the decision by held-out rows.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np


class Listener(Protocol):
    """Receives reports of a fit."""

    def row(self, columns: dict[str, Any]) -> None:
        """Receive the columns of a row; a column ``stage`` means that this stage begins."""


class History:
    """Rows of named values, collected during a fit and returned as a dict of arrays.

    Parameters
    ----------
    listener : Listener, default=None
        Receives each row when it is added, and rows that are not kept.

    Attributes
    ----------
    context : dict
        Values that every row gets until they are changed.
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self._start = time.perf_counter()
        self._parts: list[dict[str, Any]] = []
        self._listener = listener
        self.context: dict[str, Any] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def add(self, **columns: Any) -> None:
        """Add one row, or several: arrays have one value for each row, other values are repeated."""
        row = {**self.context, **columns}
        self._parts.append({"seconds": self.seconds, **row})
        self.tell(**row)

    def tell(self, **columns: Any) -> None:
        """Report a row to the listener without keeping it, such as the ``stage`` that begins."""
        if self._listener is not None:
            self._listener.row(columns)

    def arrays(self) -> dict[str, np.ndarray]:
        """One array for each column, with the rows on its first axis; missing values are NaN or empty strings."""
        lengths = [max(len(np.atleast_1d(value)) for value in part.values()) for part in self._parts]
        columns = {}
        for name in dict.fromkeys(name for part in self._parts for name in part):
            found = [np.asarray(part[name]) for part in self._parts if name in part]
            shape = max(value.shape[1:] for value in found)
            missing = np.full((1, *shape), "" if found[0].dtype.kind == "U" else np.nan)
            columns[name] = np.concatenate(
                [
                    _rows(np.asarray(part.get(name, missing)), length, shape)
                    for part, length in zip(self._parts, lengths, strict=True)
                ]
            )
        return columns


def _rows(value: np.ndarray, length: int, shape: tuple[int, ...]) -> np.ndarray:
    """A value as rows of the given shape; a shorter value, from fewer kernels, is filled with NaN."""
    rows = np.broadcast_to(value, (length, *value.shape[1:]))
    if rows.shape[1:] == shape:
        return rows
    return np.pad(rows, ((0, 0), (0, shape[0] - rows.shape[1])), constant_values=np.nan)
