"""A block of rows, and the values that it keeps from earlier passes."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import _sites
from .._engine import RowCache
from .._sites import Site
from ..names import MatrixLike

Made = TypeVar("Made")
# Rows of a block. Their work is large against the (m, m) addition that ends it, and twenty thousand rows still balance
# over many threads.
BLOCK_ROWS = 1152
# Smaller arrays share pages with others.
LEAST_PAGES = 2**16


def own_pages(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An array whose memory returns to the system when it ends.

    What thousands of arrays of some 100 kB have freed, the C library keeps for others of such sizes: a quarter of a
    gigabyte after passes over a million rows.
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < LEAST_PAGES or os.name != "posix":
        return np.empty(shape, dtype)
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape)


class Rescaling(NamedTuple):
    """Change of sites with the label noise: precision, linear and ell times ``factor``, then ell plus ``offset``."""

    factor: float = 1.0
    offset: float = 0.0


AS_EVALUATED = Rescaling()


class Sites(NamedTuple):
    """Marginals of C latent functions at the rows of a block, and their sites: (C, rows) each.

    Attributes
    ----------
    log_likelihood : float, sum of ell in nats
    """

    mean: np.ndarray
    variance: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    log_likelihood: float


class Cache:
    """The last value of each kind computed from a block, with a key for its other arguments; it changes no bit."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, Any]] = {}

    def get(self, kind: str, key: object) -> Any:
        """The last value of a kind if it has this key, else None."""
        known, value = self._last.get(kind, (None, None))
        return value if known == key else None

    def keep(self, kind: str, key: object, value: object) -> None:
        self._last[kind] = key, value

    def made(self, kind: str, key: object, make: Callable[[], Made]) -> Made:
        """As ``get``; a missing value is made and kept."""
        value = self.get(kind, key)
        if value is None:
            value = make()
            self.keep(kind, key, value)
        return value


class Block:
    """Consecutive rows of a source.

    Parameters
    ----------
    start : int, number of the first row in the source
    given, y, weight : rows (rows, d), labels (rows,) and weights (rows,) as of ``ArraySource``
    cache_bytes : int, memory for whitened rows
    makes_dense : bool, whether ``X`` makes rows of a sparse matrix dense on each access

    Attributes
    ----------
    cache : Cache, the only part that changes; a pickled block has an empty one
    """

    def __init__(
        self,
        start: int,
        given: MatrixLike,
        y: np.ndarray,
        weight: np.ndarray,
        cache_bytes: int,
        makes_dense: bool = False,
    ):
        self.start, self.given, self.y, self.weight = start, given, y, weight
        self.cache_bytes, self.makes_dense, self.cache = cache_bytes, makes_dense, Cache()

    def __len__(self) -> int:
        return self.given.shape[0]

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "cache": Cache()}

    @property
    def X(self) -> MatrixLike:
        return np.asarray(self.given.toarray()) if self.makes_dense else self.given

    @property
    def rows(self) -> slice:
        """The block's rows in arrays of all rows of the source."""
        return slice(self.start, self.start + len(self))

    def row_caches(self, key: object, n_groups: int, size: int, dtype: type) -> list[RowCache]:
        """Memory for rows whitened by each kernel of a basis with this key: (size,), or (0,) if that is too much.

        Rows of another basis are overwritten.
        """
        if np.dtype(dtype).itemsize * n_groups * size > self.cache_bytes:
            size = 0
        shape = n_groups, size, dtype
        memory: np.ndarray = self.cache.made("memory", shape, lambda: own_pages((n_groups, size), dtype))
        return self.cache.made("whitened rows", (key, shape), lambda: [RowCache(values) for values in memory])

    def evaluated(self, site: Site, mean: np.ndarray, variance: np.ndarray) -> Sites:
        """Sites from marginals (C, rows)."""
        ell = np.empty(len(self))
        precision, linear = np.empty((2, *mean.shape))
        total = _sites.sites(site, mean, variance, self.y, self.weight, ell, precision, linear)
        return Sites(mean, variance, precision, linear, total)

    def rescaled(self, sites: Sites, rescaling: Rescaling) -> Sites:
        """The sites that ``evaluated`` made, rescaled."""
        mean, variance, precision, linear, total = sites
        factor, offset = rescaling
        total_weight = float(np.sum(self.weight)) if len(self.weight) else len(self)
        return Sites(mean, variance, factor * precision, factor * linear, factor * total + offset * total_weight)
