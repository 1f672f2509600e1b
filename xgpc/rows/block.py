"""A block of rows, and what it remembers of earlier passes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from .. import _sites
from .._engine import RowCache
from .._sites import Site

# Rows of a block: a unit of scheduling. Large against the m x m addition that ends it, small enough that twenty
# thousand rows still balance over many threads.
BLOCK_ROWS = 1152


class Rescaling(NamedTuple):
    """The change of sites with the label noise: precision, linear and ell times ``factor``, and ell plus ``offset``."""

    factor: float = 1.0
    offset: float = 0.0


AS_EVALUATED = Rescaling()


class Sites(NamedTuple):
    """Marginals of C latent functions at the rows of a block, and the sites that they make: (C, rows) each.

    Attributes
    ----------
    marginalizer_key, site_key : of the posterior that they are the marginals of, and of the site function
    log_likelihood : float, sum of ell in nats
    rescaling : Rescaling, of what the site function gave
    """

    marginalizer_key: str
    site_key: str
    mean: np.ndarray
    variance: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    log_likelihood: float
    rescaling: Rescaling = AS_EVALUATED


class Cache:
    """Values computed from a block: the last of each kind, with a key that says what it was computed with.

    A function of a block looks a value up by its key, and computes it again where the key is another one: a cache saves
    time and changes no bit.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[Hashable, Any]] = {}

    def last(self, kind: str) -> tuple[Any, Any]:
        """The last value of a kind, and its key; None twice if there is none."""
        return self._last.get(kind, (None, None))

    def get(self, kind: str, key: Hashable) -> Any:
        """The last value of a kind if that is its key, else None."""
        known, value = self.last(kind)
        return value if known == key else None

    def keep(self, kind: str, key: Hashable, value: Any) -> None:
        self._last[kind] = key, value

    def made(self, kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """The last value of a kind if that is its key; else it is made, and kept."""
        known, value = self.last(kind)
        if known != key:
            value = make()
            self.keep(kind, key, value)
        return value


class Block:
    """Consecutive rows of a source, where they live.

    Parameters
    ----------
    start : int, number of the first row in the source
    X : (rows, d) float32 or float64, any strides, or CSR
    y : (rows,) float64, labels as the sites take them; empty where there are none
    weight : (rows,) float64, positive, or empty for ones
    cache_bytes : int, memory that whitened rows may take

    Attributes
    ----------
    cache : Cache, all that changes here; a pickled block is without
    """

    def __init__(self, start: int, X: Any, y: np.ndarray, weight: np.ndarray, cache_bytes: int):
        self.start, self.X, self.y, self.weight, self.cache_bytes = start, X, y, weight, cache_bytes
        self.cache = Cache()

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def rows(self) -> slice:
        """The block's rows in arrays of all rows of the source."""
        return slice(self.start, self.start + len(self))

    def __getstate__(self) -> tuple[Any, ...]:
        return self.start, self.X, self.y, self.weight, self.cache_bytes

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def forget(self) -> None:
        """Begin with an empty cache."""
        self.cache = Cache()

    def row_caches(self, basis: str, n_groups: int, size: int, dtype: type) -> list[RowCache]:
        """Memory for rows whitened by each of the kernels of a basis with that key: (size,) of a type, or (0,) if that
        is too much. The memory of another basis' rows serves again."""
        if np.dtype(dtype).itemsize * n_groups * size > self.cache_bytes:
            size = 0
        key = basis, (n_groups, size, dtype)
        known, caches = self.cache.last("whitened rows")
        if known != key:
            is_as_large = known is not None and known[1] == key[1]
            caches = [
                RowCache(caches[g].values if is_as_large else np.empty(size, dtype=dtype)) for g in range(n_groups)
            ]
            self.cache.keep("whitened rows", key, caches)
        return caches

    def evaluated(self, marginalizer: str, site: Site, mean: np.ndarray, variance: np.ndarray) -> Sites:
        """Sites from marginals (C, rows)."""
        ell = np.empty(len(self))
        precision, linear = np.empty((2, *mean.shape))
        total = _sites.sites(site, mean, variance, self.y, self.weight, ell, precision, linear)
        return Sites(marginalizer, site.key, mean, variance, precision, linear, total)

    def rescaled(self, sites: Sites, rescaling: Rescaling) -> Sites:
        """Sites as the site function gave them, rescaled."""
        factor, offset = rescaling
        total_weight = float(np.sum(self.weight)) if len(self.weight) else len(self)
        return sites._replace(
            precision=factor * sites.precision,
            linear=factor * sites.linear,
            log_likelihood=factor * sites.log_likelihood + offset * total_weight,
            rescaling=rescaling,
        )
