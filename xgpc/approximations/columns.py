"""Covariances of the latent values at one of many rows with those at all of them: columns of a joint covariance that is
never formed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..kernels.spec import KernelSpec
from ..rows.blas import single_threaded_blas
from ..rows.executor import Threads, on_threads, parts_of
from .base import KernelPosterior
from .local import LEAST_PRECISION, LocalPosterior, residual_weights

# The number of a row -> covariances (C, n), without the white noise that is the row's own.
ColumnOf = Callable[[int], np.ndarray]
# Rows whose neighbours' weights are found at a time: temporaries are some times the weights.
WEIGHT_ROWS = 4096


def covariance_columns(q: KernelPosterior | LocalPosterior, X: np.ndarray, n_jobs: int | None) -> ColumnOf:
    """Columns of ``q.covariance(X)``, X (n, d), each made when it is asked for.

    O(n m (d + C)) each with m inducing points (or rows of a full process), and of neighbours O((n + n_train) (m + k)
    (d + C)); memory O(n), of neighbours C n k numbers.
    """
    X = np.ascontiguousarray(X, dtype=np.float64)
    return _of_neighbours(q, X, n_jobs) if isinstance(q, LocalPosterior) else _of_forms(q, X, n_jobs)


def _kernel_sums(spec: KernelSpec, points: list[np.ndarray], weights: Any, X: np.ndarray, n_jobs: Any) -> np.ndarray:
    """Sums over points (p, d) of weights (C, p) times their covariances with the rows of X (n, d): (C, n)."""
    core, each = spec.at(np.concatenate(points)), on_threads(n_jobs)
    weights = np.asarray(weights)
    with single_threaded_blas():
        return np.concatenate(each(lambda rows: weights @ core.cross(X[rows]).T, parts_of(len(X))), axis=1)


def _of_forms(q: KernelPosterior, X: np.ndarray, n_jobs: int | None) -> ColumnOf:
    """k(x, x_i) less what the covariance form explains, and with what it adds: one sum over the points and x_i."""
    forms, groups = q.covariance_forms(), q.prior.groups
    forms_of_groups = [forms] if len(groups) == 1 else [[form] for form in forms]

    def column(i: int) -> np.ndarray:
        here, found = X[i : i + 1], []
        for group, own in zip(groups, forms_of_groups, strict=True):
            k = group.core.cross(here)[0]
            changes = [form.added.T @ (form.added @ k) - form.explained.T @ (form.explained @ k) for form in own]
            weights = [np.append(change, 1.0) for change in changes]
            found.append(_kernel_sums(group.spec, [group.Z, here], weights, X, n_jobs))
        return np.concatenate(found)

    return column


def _of_neighbours(q: LocalPosterior, X: np.ndarray, n_jobs: int | None) -> ColumnOf:
    """As ``LocalPosterior.covariance``, in sums over neighbours. With gamma the weights of a row's neighbours N,

        g(x) = k(x, x_i) - sum_N gamma_i k(x, x_N) + a(x).(V b_i - b_i),
        Cov(e_j, e_i) = g(x_j) - sum over j's neighbours of gamma_j (g(x_N) - gamma_i (1 / lambda_N + noise)),

    the last only where they are neighbours of i, too.
    """
    index, gamma = _weights(q, X, n_jobs)
    seen, places = np.unique(index, return_inverse=True)
    places = places.reshape(index.shape)
    near = np.asarray(q.X[seen], dtype=np.float64)
    prior, a = q.prior, q.whitened_rows.a
    noise = prior.spec.noise_alone().at(prior.Z[:1]).diagonals(near)
    own = noise + 1.0 / np.maximum(q.precision[:, seen], LEAST_PRECISION)

    def column(i: int) -> np.ndarray:
        here, mine = X[i : i + 1], gamma[:, i]
        b = prior.Linv @ prior.core.cross(here)[0] - mine @ a[index[i]]
        change = (np.einsum("cmk,ck->cm", q.V, b) - b) @ prior.Linv
        points = [prior.Z, here, near[places[i]]]
        weights = np.concatenate([change, np.ones((len(b), 1)), -mine], axis=1)
        at_rows, at_near = (_kernel_sums(prior.spec, points, weights, rows, n_jobs) for rows in (X, near))
        at_near[:, places[i]] -= mine * own[:, places[i]]
        told = [np.einsum("nk,nk->n", of_class, g[places]) for of_class, g in zip(gamma, at_near, strict=True)]
        return q.variance_scale * (at_rows - told)

    return column


def _weights(q: LocalPosterior, X: np.ndarray, n_jobs: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours (n, k) of the rows, and their weights gamma (C, n, k)."""
    with Threads(n_jobs) as executor:
        at, found = q.at(executor, X), []
        for start in range(0, len(X), WEIGHT_ROWS):
            rows = slice(start, min(start + WEIGHT_ROWS, len(X)))
            part = replace(at, rows=at.rows.part(rows), index=at.index[rows])
            found.append(residual_weights(executor, part)["gamma"])
        return at.index, np.concatenate(found, axis=1)
