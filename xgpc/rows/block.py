"""A block of rows, with what was computed of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .. import _sites
from .._sites import Site

# Rows of a block: a unit of scheduling. Large against the m x m addition that ends it, small enough that twenty
# thousand rows still balance over many threads.
BLOCK_ROWS = 1152


class Rescaling(NamedTuple):
    """What another label noise makes of sites: precision and linear times ``factor``, ell that and ``offset`` more."""

    factor: float = 1.0
    offset: float = 0.0


AS_EVALUATED = Rescaling()


class Sites(NamedTuple):
    """Marginals of C latent functions at the rows of a block, and the sites that they make: (C, rows) each.

    Attributes
    ----------
    belief_key, site_key : of the posterior that they are the marginals of, and of the site function
    log_likelihood : float, sum of ell in nats
    rescaling : Rescaling, of what the site function gave
    """

    belief_key: str
    site_key: str
    mean: np.ndarray
    variance: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    log_likelihood: float
    rescaling: Rescaling = AS_EVALUATED


class Block:
    """Consecutive rows of a source, where they live.

    Parameters
    ----------
    start : int, number of the first row in the source
    X : (rows, d) float32 or float64, any strides, or CSR
    y : (rows,) float64, labels as the sites take them; empty where there are none
    weight : (rows,) float64, positive, or empty for ones
    cache_bytes : int, memory that whitened rows may take

    Notes
    -----
    Whitened rows, sites and what is ``made`` are caches: each is kept with the key of what it was made of, and made
    again where that is not what is asked for. They are not part of a pickled block.
    """

    def __init__(self, start: int, X: Any, y: np.ndarray, weight: np.ndarray, cache_bytes: int):
        self.start, self.X, self.y, self.weight, self.cache_bytes = start, X, y, weight, cache_bytes
        self.forget()

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
        """Drop all caches."""
        self._whitened: np.ndarray = np.empty((0, 0))
        self._basis = ""
        self._latest: Sites | None = None
        self._restated: Sites | None = None
        self._made: dict[str, tuple[Hashable, Any]] = {}

    def made(self, kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of that key if it was the last of its kind to be made here; else it is made."""
        known = self._made.get(kind)
        if known is None or known[0] != key:
            self._made[kind] = known = key, make()
        return known[1]

    @contextmanager
    def whitened(self, basis: str, n_groups: int, size: int, dtype: type) -> Iterator[tuple[np.ndarray, bool]]:
        """Memory (n_groups, size) of a type for rows whitened by a basis of that key, and whether it holds them.

        (n_groups, 0) if that is too much. If it does not hold them, the context is to fill it; left without an error,
        it holds them from then on.
        """
        if np.dtype(dtype).itemsize * n_groups * size > self.cache_bytes:
            size = 0
        if self._whitened.shape != (n_groups, size) or self._whitened.dtype != dtype:
            self._whitened, self._basis = np.empty((n_groups, size), dtype=dtype), ""
        is_there = self._basis == basis
        if not is_there:
            self._basis = ""
        yield self._whitened, is_there
        self._basis = basis if size else ""

    def keep_sites(self, sites: Sites) -> None:
        self._latest = sites

    def known_sites(self, belief: str, site: Site, rescaling: Rescaling) -> Sites | None:
        """Sites of a posterior of that key, if they are there, or can be made from others of it or its marginals.

        The latest are there, and the last that a prior was changed with: where learning goes on from if a step of the
        hyperparameters fails.
        """
        for sites in (self._latest, self._restated):
            if sites is not None and sites.belief_key == belief:
                if sites.site_key == site.key and sites.rescaling == rescaling:
                    return sites
                # What is rescaled already would give other bits.
                if sites.site_key != site.key or sites.rescaling != AS_EVALUATED:
                    sites = self.evaluated(belief, site, sites.mean, sites.variance)
                return self.rescaled(sites, rescaling)
        return None

    def keep_restated(self, sites: Sites) -> None:
        self._restated = sites

    def evaluated(self, belief: str, site: Site, mean: np.ndarray, variance: np.ndarray) -> Sites:
        """Sites from marginals (C, rows)."""
        ell = np.empty(len(self))
        precision, linear = np.empty((2, *mean.shape))
        total = _sites.sites(site, mean, variance, self.y, self.weight, ell, precision, linear)
        return Sites(belief, site.key, mean, variance, precision, linear, total)

    def rescaled(self, sites: Sites, rescaling: Rescaling) -> Sites:
        """Sites as the site function gave them, rescaled."""
        if rescaling == AS_EVALUATED:
            return sites
        factor, offset = rescaling
        total_weight = float(np.sum(self.weight)) if len(self.weight) else len(self)
        return sites._replace(
            precision=factor * sites.precision,
            linear=factor * sites.linear,
            log_likelihood=factor * sites.log_likelihood + offset * total_weight,
            rescaling=rescaling,
        )
