"""Sweeps over all rows: in this process, or many rows in parts by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._sites import Site
from ..approximations.local_rows import Coefficients, LocalRows, local_rows, transformed
from ..approximations.sparse import SparsePrior
from ..rows.blas import single_threaded_blas
from ..rows.coinciding import Sites
from ..rows.executor import Executor
from ..rows.partitions import Partitions
from ..rows.source import ArraySource, labels_and_weights
from .local_sites import GivenNeighbours, Local, Sweep

Pair = tuple[np.ndarray, np.ndarray]


class AfterSweep(NamedTuple):
    """New sites (C, n), q(z) from the sites before, and the rows' means and variances (C, n) from these."""

    sites: Sites
    q: Coefficients
    predicted: tuple[np.ndarray, np.ndarray]


def prepared(executor: Executor, rows: ArraySource, prior: SparsePrior, among: Pair, site: Site) -> Local:
    """Rows with what all sweeps have in common, in this process or on the workers of a cluster.

    ``among`` are neighbours as from ``in_order``.
    """
    workers, parts, labels = executor.workers, executor.parts_for_workers(rows.n_rows), labels_and_weights(rows)
    if workers is None or not parts or site.record.curvature is not None:
        return Local(executor, labels, prior, local_rows(executor, prior, rows.X), *among, site).with_blocks()
    shared = workers.shared(shared_rows, (rows.X, prior), len(parts))
    return Local(executor, labels, prior, transformed(prior, rows.X[:0]), *among, site, shared=shared)


def sweep_of(local: Local) -> Callable[[Sites], AfterSweep]:
    """The function that sweeps over all rows."""
    return in_process(local.with_blocks()) if local.shared is None else on_workers(local, local.shared)


def in_process(local: Local) -> Callable[[Sites], AfterSweep]:
    def sweep(sites: Sites) -> AfterSweep:
        found = Sweep.of(local, sites)
        return AfterSweep(found.sites(), found.q, found.predicted())

    return sweep


class Part(NamedTuple):
    """Some of the rows: a worker keeps them during all sweeps."""

    first: int
    labels: Pair
    among: Pair


class SharedRows(NamedTuple):
    """All rows, which each worker has: the arrays of ``LocalRows``, whose bytes dask counts in a tuple alone."""

    prior: SparsePrior
    whitened: tuple[np.ndarray, np.ndarray, np.ndarray]

    def local(self, part: Part, site: Site) -> Local:
        rows = LocalRows(*self.whitened)
        return Local(Executor(), part.labels, self.prior, rows, *part.among, site, first=part.first)


def shared_rows(given: tuple[np.ndarray, SparsePrior]) -> SharedRows:
    """Task of a worker: whiten all rows X (n, d) under a prior."""
    X, prior = given
    return SharedRows(prior, local_rows(Executor(), prior, X).arrays)


def unchanged(batch: tuple[SharedRows], common: None, part: Part) -> Part:
    """Task that leaves a part with a worker."""
    return part


def first_half(batch: tuple[SharedRows, Part], common: tuple[Site, Sites], each: None) -> GivenNeighbours:
    """Task of the first half of a sweep for a part; ``common`` has the sites (C, n) of all rows."""
    (rows, part), (site, sites) = batch, common
    with single_threaded_blas():
        return GivenNeighbours.of(rows.local(part, site), sites)


def natural_sums(batch: tuple[SharedRows, Part, GivenNeighbours], common: None, each: None) -> Coefficients:
    """Task that returns the part's sums for q(z)."""
    return batch[2].natural


def second_half(
    batch: tuple[SharedRows, Part, GivenNeighbours], common: tuple[Site, Coefficients], each: None
) -> tuple[np.ndarray, ...]:
    """Task of the second half of a sweep: new precisions and linear terms, means and variances (C, r) of a part."""
    (rows, part, first), (site, q) = batch, common
    with single_threaded_blas():
        found = Sweep.second(rows.local(part, site), first, q)
        return *found.sites(), *found.predicted()


def on_workers(local: Local, shared: Partitions) -> Callable[[Sites], AfterSweep]:
    """Sweeps by the workers of a cluster, where each half of a sweep is one task for each part of the rows.

    A part's neighbours, and what the first half leaves to the second, stay with the worker; sites (C, n) and q(z)
    travel.
    """
    (y, weight), executor, parts = local.labels, local.executor, local.executor.parts_for_workers(len(local.index))
    given = [Part(rows.start, (y[rows], weight[rows]), (local.index[rows], local.n_earlier[rows])) for rows in parts]
    of_parts, none = shared.keep(unchanged, None, given), [None] * len(parts)

    def sweep(sites: Sites) -> AfterSweep:
        halves = of_parts.keep(first_half, (local.site, sites), none)
        natural = Coefficients.zeros(len(sites[0]), local.prior.n_inducing)
        for sums in executor.gathered(halves, natural_sums, None, none):
            natural.add(sums)
        q = natural.from_natural()
        found = zip(*executor.gathered(halves, second_half, (local.site, q), none), strict=True)
        precision, linear, mean, variance = (np.concatenate(arrays, axis=1) for arrays in found)
        return AfterSweep((precision, linear), q, (mean, variance))

    return sweep
