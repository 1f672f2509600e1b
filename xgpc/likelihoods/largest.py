"""Probabilities that each of several independent values is the largest.

A row has C latent values, and its label is y if f_y + g_y is the largest of f_c + g_c, c = 1..C. The noise values g are
independent: Gumbel for softmax, normal for multinomial probit. With H_c the distribution function of f_c + g_c and h_c
its density,

    p_y = integral of h_y(t) prod_{c != y} H_c(t) dt,

which ``_sites.Values`` computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import _sites

Range = tuple[np.ndarray, np.ndarray]


class Family(NamedTuple):
    """Distribution of f + g: the table of ``_sites.Values``, the range of its columns, and the row of a standard
    deviation. An empty table is that of normal variables."""

    table: Callable[[], np.ndarray]
    columns: tuple[float, float]
    row: Callable[[np.ndarray], np.ndarray]


def largest_of(mean: np.ndarray, scale: np.ndarray, reach: Range, family: Family) -> _sites.Values:
    """log P(class y is the largest), and its derivatives, for means, scales (n, C) and distances ``reach`` that the
    integral covers."""
    mean = mean - mean.max(axis=1, keepdims=True)
    below, above = reach
    ends = np.array([(mean - below).max(axis=1), (mean + above).max(axis=1), above.max(axis=1)])
    mean, scale, row = (np.ascontiguousarray(values, dtype=np.float64) for values in (mean, scale, family.row(scale)))
    return _sites.Values(family.table(), *family.columns, mean, scale, row, ends)
