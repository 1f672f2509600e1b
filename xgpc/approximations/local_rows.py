"""Rows, and the distribution of their latent values given the sites of their nearest training rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .. import _local
from .._kernels import FAMILIES, InducingKernel
from ..rows.block import Block
from ..rows.executor import Cost, Executor, parts_of
from ..rows.memory import empty
from ..rows.source import ArraySource, RowSource
from .sparse import SparsePrior

# Bytes of a cache line. Whitened rows begin with one: reading vectors that span two costs 4 to 5 % of a sweep.
CACHE_LINE = 64
# Of the random order of the training rows, see ``in_order``.
ORDER_SEED = 0
# Precisions and linear terms (C, n) of the training rows' sites.
Sites = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class LocalRows:
    """Rows as the prior transforms them.

    Attributes
    ----------
    x : (n_factors, n, d), features divided by each factor's length scales
    a : (n, m), whitened
    residual : (n,), D(x, x)
    """

    x: np.ndarray
    a: np.ndarray
    residual: np.ndarray

    def part(self, rows: np.ndarray | slice) -> LocalRows:
        return LocalRows(np.ascontiguousarray(self.x[:, rows]), self.a[rows], self.residual[rows])


@dataclass(frozen=True)
class Whitening:
    """The prior that rows are whitened by."""

    prior: SparsePrior

    @property
    def cost(self) -> Cost:
        m, d = self.prior.core.n_inducing, self.prior.core.n_features
        return Cost(m * (m + d), m)


def whitened(block: Block, state: Whitening) -> LocalRows:
    """A block's features divided by length scales, a = L^-1 k(Z, x), and k(x, x) - |a|^2."""
    core = state.prior.core
    X = np.ascontiguousarray(block.X, dtype=np.float64)
    a = core.cross(X) @ state.prior.Linv.T
    residual = np.maximum(core.diagonals(X) - np.einsum("ij,ij->i", a, a), 0.0)
    return LocalRows(X * core.inverse_length_scale[:, None, :], a, residual)


def aligned_rows(parts: list[np.ndarray]) -> np.ndarray:
    """Rows of parts (., m), one after the other, from the beginning of a cache line."""
    shape = sum(len(part) for part in parts), parts[0].shape[1]
    memory = np.empty(8 * shape[0] * shape[1] + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    rows = memory[start : start + 8 * shape[0] * shape[1]].view(np.float64).reshape(shape)
    return np.concatenate(parts, out=rows)


def local_rows(executor: Executor, prior: SparsePrior, source: RowSource) -> LocalRows:
    """All rows of a source; O(n m (m + d))."""
    parts = list(executor.map(whitened, source, Whitening(prior)))
    return LocalRows(
        np.concatenate([part.x for part in parts], axis=1),
        aligned_rows([part.a for part in parts]),
        np.concatenate([part.residual for part in parts]),
    )


def metric(core: InducingKernel) -> np.ndarray:
    """Factors (d,) of features whose distances are compared: all inverse length scales of the kernel."""
    has_scale = core.family != FAMILIES["dot-product"]
    if not np.any(has_scale):
        return np.ones(core.n_features)
    return np.asarray(np.hypot.reduce(core.inverse_length_scale[has_scale], axis=0))


def in_order(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours (n, k) of rows among themselves, those that come earlier first, and how many these are (n,).

    The order of the rows is random, but always the same. By the chain rule of probabilities with a few neighbours, a
    random order leaves out less than one along coordinates (Guinness 2018, arXiv 1609.05372).
    """
    rank = np.random.default_rng(ORDER_SEED).permutation(len(index))
    is_later = rank[index] > rank[:, None]
    places = np.argsort(is_later, axis=1, kind="stable")
    return np.take_along_axis(index, places, axis=1), index.shape[1] - np.sum(is_later, axis=1)


@dataclass(frozen=True)
class Conditional:
    """Latent values given z and the neighbours' sites: normal with means b.z + mean, and these variances.

    Attributes
    ----------
    b : (C, r, m)
    variance, mean : (C, r)
    slopes : (C, r, k) or None, of the means by the neighbours' linear terms, in which they are linear
    """

    b: np.ndarray
    variance: np.ndarray
    mean: np.ndarray
    slopes: np.ndarray | None = None

    def part(self, rows: slice) -> Conditional:
        slopes = None if self.slopes is None else self.slopes[:, rows]
        return Conditional(self.b[:, rows], self.variance[:, rows], self.mean[:, rows], slopes)

    def mean_of(self, linear: np.ndarray, index: np.ndarray) -> np.ndarray:
        """``mean`` of other linear terms (C, n), by the slopes and which of the n rows the neighbours are, (r, k)."""
        assert self.slopes is not None
        each = zip(self.slopes, linear, strict=True)
        return np.stack([np.einsum("rk,rk->r", slopes, of_class.take(index)) for slopes, of_class in each])

    def write(self, rows: slice, part: Conditional) -> None:
        """Set the values of some rows."""
        self.b[:, rows], self.variance[:, rows], self.mean[:, rows] = part.b, part.variance, part.mean
        if self.slopes is not None:
            self.slopes[:, rows] = part.slopes


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Rows, and the training rows that they are predicted from.

    Attributes
    ----------
    core : the compiled kernel
    support, sites : the training rows and their sites
    rows : the rows in question
    index : (r, k), which of the training rows are near
    n_earlier : (r,) or None. With it there are two sets of neighbours: all, and the first so many
    """

    core: InducingKernel
    support: LocalRows
    sites: Sites
    rows: LocalRows
    index: np.ndarray
    n_earlier: np.ndarray | None = None

    @property
    def cost(self) -> Cost:
        k, m, d = self.index.shape[1], self.support.a.shape[1], self.core.n_features
        return Cost(k * k * (m + d) + k**3, m)

    @property
    def n_latents(self) -> int:
        return len(self.sites[0])

    @cached_property
    def compiled(self) -> _local.Support:
        return _local.Support(self.core, self.support.x, self.support.a, self.support.residual, *self.sites)

    def empty(self, n_rows: int, with_slopes: bool = False) -> Conditional:
        """For so many rows, to be written."""
        C, (_, k), m = self.n_latents, self.index.shape, self.support.a.shape[1]
        slopes = empty((C, n_rows, k)) if with_slopes else None
        variance, mean = np.empty((2, C, n_rows))
        return Conditional(empty((C, n_rows, m)), variance, mean, slopes)

    def source(self) -> ArraySource:
        """The rows, as blocks to work on."""
        return ArraySource(self.rows.a, cache_bytes=0)

    def arguments(self, here: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Some of the rows as the compiled functions take them."""
        rows = self.rows.part(here)
        n_earlier = None if self.n_earlier is None else np.ascontiguousarray(self.n_earlier[here])
        return rows.x, rows.a, rows.residual, np.ascontiguousarray(self.index[here]), n_earlier


def conditionals(rows: slice, at: Neighbourhoods, with_slopes: bool = False) -> list[Conditional]:
    """Conditionals of some rows by each set of neighbours; O(k^2 (m + d) + C (k^3 + k m)) a row, on this thread."""
    return [Conditional(*parts) for parts in at.compiled.condition(at.arguments(rows), with_slopes)]


def all_conditionals(executor: Executor, at: Neighbourhoods) -> list[Conditional]:
    """``conditionals`` of all rows; 8 C n m bytes for each set of neighbours."""
    found = [at.empty(len(at.index)) for _ in range(1 if at.n_earlier is None else 2)]

    def fill(rows: slice) -> None:
        for whole, part in zip(found, conditionals(rows, at), strict=True):
            whole.write(rows, part)

    executor.each(fill, parts_of(len(at.index)))
    return found


@dataclass(frozen=True)
class PullBack:
    """Neighbourhoods, and for each set of neighbours a gradient by its conditional, in the same form."""

    at: Neighbourhoods
    given: list[Conditional]


# Results of the compiled gradient for each row and latent function; see xg_local_pulled in src/xgpc/local.h.
Pulled = dict[str, np.ndarray]


@dataclass(frozen=True)
class PulledBack:
    """A gradient by conditionals as gradients by whitened rows, sites and the kernel.

    Attributes
    ----------
    sets : of each set of neighbours
    d_a : (r, m), by whitened rows
    pairs : sums over the rows: by terms, shapes and scales of the kernel
    """

    sets: list[Pulled]
    d_a: np.ndarray
    pairs: list[np.ndarray]


def pulled_back(executor: Executor, state: PullBack) -> PulledBack:
    """The gradients of all rows; it takes some three times as long as ``all_conditionals``."""
    at, (n, k) = state.at, state.at.index.shape
    C, m = at.n_latents, at.support.a.shape[1]
    widths = {"gamma": k, "chi": k, "b": m, "u": m, "d_precision": k, "d_linear": k}
    sets = [{name: empty((C, n, widths[name])) for name in _local.OUTPUTS} for _ in state.given]
    d_a = empty((n, m))

    def fill(rows: slice) -> tuple[np.ndarray, ...]:
        here = (part.part(rows) for part in state.given)
        given = [tuple(map(np.ascontiguousarray, (part.b, part.variance, part.mean))) for part in here]
        outputs, d_a[rows], sums = at.compiled.vjp(at.arguments(rows), given)
        for whole, parts in zip(sets, outputs, strict=True):
            for name, part in zip(_local.OUTPUTS, parts, strict=True):
                whole[name][:, rows] = part
        return sums

    pairs = [np.sum(sums, axis=0) for sums in zip(*executor.each(fill, parts_of(n)), strict=True)]
    return PulledBack(sets, d_a, pairs)
