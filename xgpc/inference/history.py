"""The record of a fit: the columns of ``history_``.

All rows
    ``seconds`` since the start; ``n_rows`` in use; with inducing points ``n_inducing``.
Evaluations of the optimizer
    ``evaluation``, from 1 in every stage; ``elbo``, the bound itself; ``log_prior``, where length scales have a prior:
    what is climbed is the sum of both; ``theta``, the logarithms of the kernel's parameters as in
    scikit-learn, kernel by kernel (of a single one NaN beyond its own, where later each class has one);
    ``inner_iterations`` of the posterior.
Iterations of the posterior
    ``iteration``, or ``epoch`` of mini-batches; ``elbo``; ``learning_rate``; of mini-batches their ``change`` and
    ``log_likelihood``.
Decisions
    ``decision``, a sentence, empty in all other rows (``decisions_`` lists them): on the number of inducing points,
    with ``gain_per_point``; on neighbours, with ``query_score``; on the kernel learned without neighbours, where query
    rows tell of no better one; on a kernel for each class; on the kernel that learning starts with; to begin anew where
    a warm start cannot go on, or to go on from a checkpoint; on what there was no time for; to keep the previous
    hyperparameters, or the posterior that mini-batches started from; on columns that are the index of a data frame.
Rounds with neighbours
    A round takes ``n_rows`` rows, some of them queries, which are predicted from ``n_neighbors`` of the others. It
    makes ``searches`` for these and ``sweeps`` over their sites, then maximises the mean log probability of the
    queries: ``query_score`` at the round's start, ``learned_score`` at its end, after so many ``evaluations`` of the
    score and its gradient (a number of the round, where ``evaluation`` numbers rows). The first rows try where to
    begin, with no evaluations, and kernels of different roughness; the last is the second round. Where the queries are
    not clearly better known than by the frequencies of the classes, such kernels are tried from short length scales,
    too; if these do not help, or queries are too few to learn a kernel from, there is no second round.
Sites of all rows
    ``n_neighbors``, ``searches`` and ``sweeps`` alone, or beside the decision by rows kept apart.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np


class Listener(Protocol):
    """Who wants to know how a fit goes."""

    def row(self, columns: dict[str, Any]) -> None:
        """Columns of a row; with a ``stage`` among them that one begins."""


class History:
    """Rows of named values, collected during a fit and handed out as a dict of arrays.

    Parameters
    ----------
    listener : Listener, default=None
        Is told each row as it comes, and what else the fit says.

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
        """Since the start."""
        return time.perf_counter() - self._start

    def add(self, **columns: Any) -> None:
        """One row, or several at once: arrays with a row for each, other values repeated."""
        row = {**self.context, **columns}
        self._parts.append({"seconds": self.seconds, **row})
        self.tell(**row)

    def tell(self, **columns: Any) -> None:
        """A row for the listener alone: what is not kept, such as the ``stage`` that begins."""
        if self._listener is not None:
            self._listener.row(columns)

    def arrays(self) -> dict[str, np.ndarray]:
        """One array a column, its first axis the rows; NaN, or an empty string, where a row lacks it."""
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
    """A value for so many rows, each of that shape: shorter ones, of fewer kernels, end with NaN."""
    rows = np.broadcast_to(value, (length, *value.shape[1:]))
    if rows.shape[1:] == shape:
        return rows
    return np.pad(rows, ((0, 0), (0, shape[0] - rows.shape[1])), constant_values=np.nan)
