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
    ``decision``, a sentence, empty in all other rows (``decisions_`` lists them), with ``gain_per_point`` of more
    inducing points, or ``held_out_score`` of neighbours. Decisions are about levels that count as one, warps and limits
    of features, the kernel, the number of inducing points, neighbours, a kernel or posterior that is kept from before,
    a warm start that is not possible, parts skipped for lack of time, and columns that are the index of a table.
Rounds with neighbours
    An entry is the search for one kernel, on ``n_rows`` rows of the data. Some of these rows are held out, and
    predicted from their ``n_neighbors`` nearest ones among the others. First the sites of the others are updated in
    ``sweeps``. Then the search maximises the mean log probability of the held-out rows, which is ``held_out_score``
    before and ``learned_score`` after it; ``evaluations`` is how often the search has computed this score and its
    gradient. The first entries are starts that are only compared, without evaluations. In the next ones, if the user
    gave no kernel, a rough, a smoother and an axis-aligned kernel take turns. If there is a second round, it is the
    last entry.
Sites of all rows
    ``n_neighbors`` and ``sweeps``, alone or with the decision by held-out rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike


class History:
    """Rows of named values, collected during a fit and returned as a dict of arrays.

    Attributes
    ----------
    context : dict, values that every row gets until they are changed
    tell : function
        Receives the columns of each row when it is added, and of rows that are not kept, such as the ``stage`` that
        begins.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._parts: list[dict[str, ArrayLike]] = []
        self.context: dict[str, ArrayLike] = {}
        self.tell: Callable[..., None] = lambda **columns: None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def add(self, **columns: ArrayLike) -> None:
        """Add one row, or several: arrays have one value for each row, other values are repeated."""
        row = {**self.context, **columns}
        self._parts.append({"seconds": self.seconds, **row})
        self.tell(**row)

    def begin(self, stage: str, **context: ArrayLike) -> None:
        """Report a stage, whose rows have these values."""
        self.context.update(context)
        self.tell(stage=stage, **context)

    def arrays(self) -> dict[str, np.ndarray]:
        """One array for each column, with the rows on its first axis; missing values are NaN or empty strings."""
        ends = np.cumsum([max(map(len, map(np.atleast_1d, part.values()))) for part in self._parts])
        starts, columns = [0, *ends[:-1]], {}
        for name in dict.fromkeys(chain.from_iterable(self._parts)):
            values = {i: np.asarray(part[name]) for i, part in enumerate(self._parts) if name in part}
            shapes = {value.shape[1:] for value in values.values()}
            column = np.zeros((ends[-1], *max(shapes)), np.result_type(*values.values()))
            if column.dtype.kind != "U" and (len(values) < len(ends) or len(shapes) > 1):
                column = np.full_like(column, np.nan, dtype=np.float64)
            for i, value in values.items():
                # A shorter value comes from fewer kernels.
                column[(slice(starts[i], ends[i]), *map(slice, value.shape[1:]))] = value
            columns[name] = column
        return columns
