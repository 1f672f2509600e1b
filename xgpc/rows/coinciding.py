"""Rows with equal features: copies with the same label are one row; how often labels at the same place agree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize_scalar

from ..names import MatrixLike
from .block import BLOCK_ROWS
from .executor import parts_of
from .source import ArraySource

# A smaller agreement counts as none, as it changes no probability by more than this.
LEAST_AGREEMENT = 1e-3
# Values of -log(1 - a) at which a stream keeps the log likelihood of an agreement a, from 0 to all rows but six in a
# million. As a function of these values it is smooth, so that a cubic spline serves between them.
NODES = np.linspace(0.0, 12.0, 49)

# Precisions and linear terms of rows, (2, C, n).
Sites = np.ndarray


@dataclass(frozen=True)
class Distinct:
    """The distinct rows among given rows.

    A row of weight w counts as w rows: for inducing points, copies of a row are as good as one row with the sum of
    their weights, but as neighbours they would take several of the k places.

    ``Fit.merged`` has merged most copies before held-out rows are drawn. This class merges the others, within the rows
    that are learned from: those with a splitter, of a memory map, or whose labels contradict each other too often.

    Attributes
    ----------
    source : ArraySource with r rows, the first of each in their order
    first : (r,) number of each among the given rows
    place : (n,) number of the distinct row that each given row equals
    share : (n,) share of each given row in the weight of its distinct row
    """

    source: ArraySource
    first: np.ndarray
    place: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, all_rows: ArraySource, codes: np.ndarray | None = None) -> Distinct:
        """Merge rows of equal whole numbers ``codes`` (n,), or None: of equal features and labels."""
        codes = first_of_each(all_rows.X, all_rows.y) if codes is None else codes
        first, place = by_first_row(codes)
        if len(first) == all_rows.n_rows:
            return cls(all_rows, first, place, np.ones(all_rows.n_rows))
        sums = np.bincount(place, all_rows.weight)
        source = ArraySource(all_rows.rows[first], all_rows.y[first], sums)
        return cls(source, first, place, all_rows.weight / sums[place])

    def sums(self, sites: Sites) -> Sites:
        """Return sites (2, C, r) of the distinct rows, given those (2, C, n) of the given rows."""
        if len(self.place) == self.source.n_rows:
            return np.ascontiguousarray(sites)
        return np.array([[np.bincount(self.place, values) for values in part] for part in sites])

    def parts(self, sites: Sites) -> Sites:
        """Return sites (2, C, n) of the given rows, which share those (2, C, r) of the distinct rows."""
        return self.share * sites[:, :, self.place]


@dataclass(frozen=True)
class Places:
    """The distinct features among rows, and the labels there.

    Attributes
    ----------
    keys : (p,) hashes of the places, ascending
    X : (p, d) their features
    totals : (p, C) total weights of the labels
    """

    keys: np.ndarray
    X: np.ndarray
    totals: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, codes: np.ndarray, weight: np.ndarray, n_classes: int) -> Places:
        """Places of rows X (n, d) with class numbers (n,) and weights (n,)."""
        keys, first, place = np.unique(_hashes(X, np.zeros(len(X))), return_index=True, return_inverse=True)
        totals = np.bincount(n_classes * place + codes, weight, n_classes * len(keys))
        return cls(keys, X[first], totals.reshape(len(keys), n_classes))

    def find(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows (s,) of X (r, d) that are at one of the places, and the numbers (s,) of these places."""
        X = X.astype(self.X.dtype, copy=False)
        place = np.minimum(np.searchsorted(self.keys, _hashes(X, np.zeros(len(X)))), len(self.keys) - 1)
        rows = np.flatnonzero(np.all(self.X[place] == X, axis=1))
        return rows, place[rows]

    def recall(self, X: np.ndarray, log_p: np.ndarray, agreement: float) -> np.ndarray:
        """Log probabilities (r, C) of rows X (r, d). With probability ``agreement``, a row at one of the places has the
        label of a row there; otherwise its label follows ``log_p`` (r, C)."""
        rows, place = self.find(X)
        share = self.totals[place] / np.sum(self.totals[place], axis=1, keepdims=True)
        log_repeated = np.log(agreement * share, out=np.full(share.shape, -np.inf), where=share > 0.0)
        recalled = log_p.copy()
        recalled[rows] = np.logaddexp(np.log1p(-agreement) + log_p[rows], log_repeated)
        return recalled


class Agreement(NamedTuple):
    """Probability a with which a row has the label of another row at the same place, and not one by the latent
    function; and the log likelihood (G,) of the labels of such rows for each -log(1 - a) in ``NODES``."""

    probability: float
    log_likelihood: np.ndarray


NO_AGREEMENT = Agreement(0.0, np.zeros(len(NODES)))


def agreement_of_labels(
    place: np.ndarray, codes: np.ndarray, log_p: np.ndarray, is_new: np.ndarray, earlier: np.ndarray
) -> Agreement:
    """The agreement of rows at the same place: those that ``is_new`` (n,) marks, and earlier ones by their log
    likelihood ``earlier`` (G,).

    It is the posterior mode under the prior density 2 (1 - a), as if one row more had disagreed. ``place`` (n,) are the
    rows' places, of two or more rows each, ``codes`` (n,) their class numbers, and ``log_p`` (n, C) their log
    probabilities by the latent function.
    """
    key, of_earlier = log_p.shape[1] * place + codes, CubicSpline(NODES, earlier)
    share = ((np.bincount(key)[key] - 1.0) / (np.bincount(place)[place] - 1.0))[is_new]
    p = np.maximum(np.exp(log_p[np.arange(len(place)), codes]), np.finfo(float).tiny)[is_new]

    def log_likelihood(a: float) -> float:
        return float(np.sum(np.log(a * share + (1.0 - a) * p)))

    def minus_log_posterior(a: float) -> float:
        log_left = np.log1p(-a)
        return -float(log_likelihood(a) + log_left + of_earlier(min(-log_left, NODES[-1])))

    a = float(minimize_scalar(minus_log_posterior, bounds=(0.0, 1.0), method="bounded").x)
    together = earlier + [log_likelihood(-np.expm1(-u)) for u in NODES]
    # The search does not reach its bounds.
    return Agreement(a if a > LEAST_AGREEMENT else 0.0, together)


def contradicted(places: np.ndarray, codes: np.ndarray) -> float:
    """Share of the rows at places of several rows that have another label than most at their place.

    ``places`` (n,) are the rows' places, and ``codes`` (n,) numbers of place and label.
    """
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    # The codes of a place follow each other.
    place_of_code = places[first]
    starts = np.flatnonzero(np.diff(place_of_code, prepend=-1))
    rows_at_place, rows_of_main_label = np.add.reduceat(counts, starts), np.maximum.reduceat(counts, starts)
    several = rows_at_place > 1
    return float(np.sum((rows_at_place - rows_of_main_label)[several]) / max(1, np.sum(rows_at_place[several])))


def by_first_row(values: np.ndarray, axis: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The rows (r,) where the distinct ones of some values, or of rows for ``axis`` 0, are first; and for each row the
    number of its value in this order (n,)."""
    _, first, place = np.unique(values, axis=axis, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[place.ravel()]


def first_of_each(X: MatrixLike, y: np.ndarray) -> np.ndarray:
    """Return, for each row of X (n, d), dense or CSR, with whole numbers y (n,), the number of the first equal row.

    ``np.unique`` of whole rows gives the same, and takes 30 times as long.
    """
    keys = _hashes(X, y)
    ordered = np.sort(keys)
    if np.all(ordered[1:] != ordered[:-1]):
        return np.arange(len(keys))
    _, starts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    first = starts[inverse]
    # Of a million rows that all differ, two have the same key with a probability below 1e-6; such a row stays apart.
    (later_rows,) = np.nonzero(first != np.arange(len(first)))
    others = X[later_rows] != X[first[later_rows]]
    features_differ = np.diff(others.tocsr().indptr) > 0 if sparse.issparse(others) else np.any(others, axis=1)
    differ = (y[later_rows] != y[first[later_rows]]) | features_differ
    first[later_rows[differ]] = later_rows[differ]
    return first


@lru_cache(8)
def _odd_numbers(n: int) -> np.ndarray:
    """The same n random odd numbers in each call; nothing writes to them."""
    return np.random.default_rng(0).integers(0, 2**63, n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _hashes(X: MatrixLike, y: np.ndarray) -> np.ndarray:
    """Return keys (n,) that are the same for equal rows, also if one has -0.0 where another has 0.0."""
    # Sums of products with random odd numbers; a zero adds nothing.
    factors = _odd_numbers(X.shape[1] + 1)
    keys = y.astype(np.int64).astype(np.uint64) * factors[-1]
    if sparse.issparse(X):
        return keys + sparse.csr_array((_mixed(X.data), X.indices, X.indptr), shape=X.shape) @ factors[:-1]
    # The bits of a block stay in cache.
    for part in parts_of(len(X), BLOCK_ROWS):
        keys[part] += _mixed(X[part]) @ factors[:-1]
    return keys


def _mixed(values: np.ndarray) -> np.ndarray:
    """The bits of numbers, mixed: those of numbers of few digits end in zeros, as products and sums of them would."""
    size = values.dtype.itemsize
    mixed = np.ascontiguousarray(values).view(f"u{size}").astype(np.uint64)
    # -0.0 becomes 0.0. (A sum with 0.0 would make zeros of numbers below 2.2e-308, too.)
    mixed[mixed == np.uint64(2 ** (8 * size - 1))] = 0
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed
