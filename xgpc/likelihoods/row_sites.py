"""The sites of some rows, as a curvature reads them."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class RowSites(Protocol):
    """Marginals and sites of some rows; every array is (C, rows)."""

    @property
    def mean(self) -> np.ndarray: ...
    @property
    def variance(self) -> np.ndarray: ...
    @property
    def precision(self) -> np.ndarray: ...
    @property
    def linear(self) -> np.ndarray: ...
