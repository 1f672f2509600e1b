"""The record of a fit."""

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
