"""Latent functions that were drawn from a posterior, as functions of x."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from .approximations.draws import Paths, drawn_paths, pathwise_obstacle
from .approximations.local import Posterior
from .config import integer
from .data.checks import random_state_of
from .estimator import ColumnsOfFit
from .names import MatrixLike, RandomSeed
from .ranges import small_is_zero
from .rows.blas import single_threaded_blas
from .rows.block import dense
from .rows.executor import parts_for


@small_is_zero
class LatentDraws:
    """Latent functions that ``GPClassifier.draw_functions`` drew; a later fit of the model does not change them."""

    def __init__(self, model: ColumnsOfFit, q: Posterior, mean: float | np.ndarray, n_draws: int, seed: RandomSeed):
        integer(1).check("n_draws", n_draws)
        if obstacle := pathwise_obstacle(q):
            raise ValueError(f"draw_functions {obstacle}. Take sample_latent(X, method='exact') for draws at rows.")
        points = q.without_neighbors()
        self._model, self._mean = copy.copy(model), mean
        self._paths: list[list[Paths]] = [[] for _ in points.groups]
        with single_threaded_blas():
            for c, _, part in drawn_paths(points, n_draws, random_state_of(seed)):
                self._paths[c].append(part)

    def __call__(self, X: MatrixLike) -> np.ndarray:
        """Values (n, n_draws), or (n, C, n_draws) for C latent functions, at the rows of X (n, d)."""
        values = self._each(Paths.__call__, dense(self._model._rows(X)))
        values += np.reshape(self._mean, (-1, 1, 1))
        return self._rows_first(values)

    def gradient(self, X: MatrixLike) -> np.ndarray:
        """Gradients by X (n, n_draws, d), or (n, C, n_draws, d)."""
        rows_as_given, rows = self._model._given_rows(X)
        return self._rows_first(self._model._encoding.transform_vjp(rows_as_given, self._each(Paths.gradient, rows)))

    def _each(self, function: Callable[[Paths, np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
        """What a function has for all draws (C, n_draws, n, ...)."""
        rows = np.asarray(rows, dtype=np.float64)
        parts = [rows[part] for part in parts_for(len(rows), 1)] or [rows]
        with single_threaded_blas():
            each = [[[function(some, part) for part in parts] for some in paths] for paths in self._paths]
        return np.stack([np.concatenate([np.concatenate(some, axis=1) for some in paths]) for paths in each])

    def _rows_first(self, values: np.ndarray) -> np.ndarray:
        values = np.moveaxis(values, 2, 0)
        return values if np.ndim(self._mean) else values[:, 0]
