"""Sites of the local posterior by expectation propagation, and the differentiation of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _local
from .._kernels import InducingKernel
from ..approximations.local import Coefficients, LocalRows, Neighbourhoods, Sites, coefficients, predicted
from ..rows.executor import Executor
from ..rows.source import RowSource

# Share of the way that a sweep takes the sites of all rows at once; less after a sweep that changed them more than the
# one before.
DAMPING, LEAST_DAMPING = 0.7, 0.1
# Sweeps end when they change precision and linear term by less than this, together and on average over rows. Ten times
# less changes no log probability by more than a thousandth on average.
TOLERANCE = 1e-3
MAX_SWEEPS = 50
# A site to start from: of the logistic function near the middle.
START_PRECISION = 0.2


@dataclass(frozen=True)
class Local:
    """Training rows, their neighbours among themselves, and what the labels are likely to be.

    Attributes
    ----------
    source : labels -1 or +1, weights
    core, rows : the kernel, and what it makes of them
    index : (n, k)
    link : int, of ``_local.LINKS``
    """

    source: RowSource
    core: InducingKernel
    rows: LocalRows
    index: np.ndarray
    link: int


@dataclass(frozen=True)
class Cavity:
    """What some rows are predicted to be by the others, and the site of one copy of each that it makes.

    Attributes
    ----------
    at : Neighbourhoods
    mean, variance : (C, r)
    others : (C, r) arrays, sites of a row's further copies, in which a weight above 1 counts
    """

    at: Neighbourhoods
    mean: np.ndarray
    variance: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    others: Sites
    link: int

    @property
    def share(self) -> np.ndarray:
        """What the further copies leave of the variance."""
        return 1.0 / (1.0 + self.variance * self.others[0])

    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean = (self.mean + self.variance * self.others[1]) * self.share
        return mean[0], (self.variance * self.share)[0], self.y

    def sites(self) -> Sites:
        precision, linear = _local.cavity_sites(self.link, *self.arguments())
        return (self.weight * precision)[None], (self.weight * linear)[None]

    def pull_back(self, d_precision: np.ndarray, d_linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (C, r) by mean and variance from those by the sites."""
        by_sites = self.weight * d_precision[0], self.weight * d_linear[0]
        d_mean, d_variance = _local.cavity_pull_back(self.link, *self.arguments(), *by_sites)
        share, (precision, linear) = self.share, self.others
        by_variance = share**2 * (d_variance + d_mean * (linear - self.mean * precision))
        return share * d_mean, by_variance


def labels_and_weights(source: RowSource) -> tuple[np.ndarray, np.ndarray]:
    blocks = source.blocks()
    weights = [block.weight if len(block.weight) else np.ones(len(block)) for block in blocks]
    return np.concatenate([block.y for block in blocks]), np.concatenate(weights)


def cavities(executor: Executor, local: Local, sites: Sites, q: Coefficients, seen: np.ndarray | slice) -> Cavity:
    """Of some rows, by their numbers or all of them: each is predicted from its neighbours and the other rows' q(z)."""
    precision, linear = sites[0][:, seen], sites[1][:, seen]
    own = np.ascontiguousarray(q.own_precision[:, seen]), np.ascontiguousarray(q.own_linear[:, seen])
    at = Neighbourhoods(local.core, local.rows, sites, q, local.rows.part(seen), local.index[seen], own)
    mean, variance = predicted(executor, at)
    y, weight = labels_and_weights(local.source)
    y, weight = np.ascontiguousarray(y[seen]), weight[seen]
    further = np.maximum(weight - 1.0, 0.0) / weight
    return Cavity(at, mean, variance, y, weight, (further * precision, further * linear), local.link)


def start_sites(source: RowSource) -> Sites:
    y, weight = labels_and_weights(source)
    return (START_PRECISION * weight)[None], (0.5 * y * weight)[None]


@dataclass(frozen=True)
class Sweeps:
    """Sites, how many sweeps they took, and whether these ended by the tolerance."""

    sites: Sites
    n_sweeps: int
    converged: bool


def converged_sites(
    executor: Executor, local: Local, sites: Sites, tol: float = TOLERANCE, max_sweeps: int = MAX_SWEEPS
) -> Sweeps:
    """Sites of expectation propagation: damped sweeps over all rows at once, from given ones.

    A sweep that changes the sites more than the last one is damped more, and so are those that follow.
    """
    damping, before = DAMPING, np.inf
    for sweep in range(1, max_sweeps + 1):
        q = coefficients(executor, local.source, local.rows, sites)
        target = cavities(executor, local, sites, q, slice(None)).sites()
        steps = [new - old for new, old in zip(target, sites, strict=True)]
        change = float(sum(np.mean(np.abs(step)) for step in steps))
        if not np.isfinite(change):
            break
        if change > before:
            damping = max(LEAST_DAMPING, 0.5 * damping)
        before = change
        sites = sites[0] + damping * steps[0], sites[1] + damping * steps[1]
        if change < tol:
            return Sweeps(sites, sweep, True)
    return Sweeps(sites, sweep, False)
