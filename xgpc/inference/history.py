"""The record of a fit: the columns of ``history_``.

All rows
    ``seconds`` since the start; ``n_rows`` in use; with inducing points ``n_inducing``.
Evaluations of the optimizer
    ``evaluation``, from 1 in every stage; ``elbo``; ``theta``, the logarithms of the kernel's parameters as in
    scikit-learn; ``inner_iterations`` of the posterior.
Iterations of the posterior
    ``iteration``, or ``epoch`` of mini-batches; ``elbo``; ``learning_rate``; of mini-batches their ``change`` and
    ``log_likelihood``.
Decisions
    ``decision``, in words: on the number of inducing points, with ``gain_per_point``; on neighbours, with
    ``query_score``; to keep the previous hyperparameters, or the posterior that mini-batches started from.
Rounds with neighbours
    A round takes ``n_rows`` rows, some of them queries, which are predicted from ``n_neighbors`` of the others. It
    makes ``searches`` for these and ``sweeps`` over their sites, then maximises the mean log probability of the
    queries: ``query_score`` at the round's start, ``learned_score`` at its end, after so many ``evaluations`` of the
    score and its gradient (a number of the round, where ``evaluation`` numbers rows). The first rows try where to
    begin, with no evaluations, and kernels of different roughness; the last is the second round.
Sites of all rows
    ``n_neighbors``, ``searches`` and ``sweeps`` alone, or beside the decision by rows kept apart.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np


class History:
    """Rows of named values, collected during a fit and handed out as a dict of arrays.

    Attributes
    ----------
    context : dict
        Values that every row gets until they are changed.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._parts: list[dict[str, Any]] = []
        self.context: dict[str, Any] = {}

    def add(self, **columns: Any) -> None:
        """One row, or several at once: arrays with a row for each, other values repeated."""
        self._parts.append({"seconds": time.perf_counter() - self._start, **self.context, **columns})

    def arrays(self) -> dict[str, np.ndarray]:
        """One array a column, its first axis the rows; NaN, or an empty string, where a row lacks it."""
        example = {name: np.asarray(value) for part in self._parts for name, value in part.items()}
        lengths = [max(len(np.atleast_1d(value)) for value in part.values()) for part in self._parts]
        columns = {}
        for name, value in example.items():
            missing = np.full(value.shape[1:], "" if value.dtype.kind == "U" else np.nan)
            columns[name] = np.concatenate(
                [
                    np.broadcast_to(part.get(name, missing), (length, *missing.shape))
                    for part, length in zip(self._parts, lengths, strict=True)
                ]
            )
        return columns
