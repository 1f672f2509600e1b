"""The local posterior: a sparse posterior, and the nearest rows' sites for the residual that it leaves.

Each training row has a site; a prediction conditions the residual on the sites of the k nearest rows, see
``local_rows``. The sites of all rows determine q(z) by the chain rule: each row's site given those of its neighbours
that come before it in a random order (Vecchia's approximation of the residual; Gyger, Furrer, Sigrist 2025, arXiv
2507.05064).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array

from .. import _engine, _kernels, _local
from ..ranges import LARGEST_TO_SQUARE, LEAST_DIVISOR, small_is_zero
from ..rows.blas import single_threaded_blas
from ..rows.coinciding import Places
from ..rows.executor import PART_ROWS, Executor, joined, parts_for, parts_of
from ..rows.neighbours import Neighbours
from .base import ColumnOf, KernelPosterior, Value, kernel_sums
from .local_rows import (
    Conditional,
    LocalRows,
    Neighbourhoods,
    local_rows,
    metric,
    neighbour_matrices,
)
from .sparse import SparsePosterior, SparsePrior

# Rounding errors of the eigenvalues of V, a covariance that is at most the identity.
EIGENVALUE_ERROR = 1e-12


@dataclass(frozen=True, eq=False)
class LocalPosterior(Value):
    """Training rows with their sites, from which latent values are predicted.

    Attributes
    ----------
    prior : SparsePrior
    X : (n, d) training rows, float32 or float64
    y, weight : (n,) their labels, -1 or +1, or 0, ..., C - 1, and weights; latent values do not need them
    precision, linear : (C, n) sites
    w, V : (C, m) and (C, m, m), mean and covariance of q(z), which follow from the sites
    n_neighbors : int, k
    variance_scale : float
        Factor of all variances and covariances. Held-out rows may choose another one than 1, because classes may be
        more certain away from their borders than under a process whose borders are as rough.
    """

    prior: SparsePrior
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    w: np.ndarray
    V: np.ndarray
    n_neighbors: int
    variance_scale: float = 1.0

    def keep(self, neighbours: Neighbours) -> None:
        """Keep the search tree of a fit, so that it need not be made again."""
        # The value of a cached property, which pickles and files leave out.
        vars(self).update(neighbours=neighbours)

    @property
    def n_latents(self) -> int:
        return len(self.w)

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.n_latents == 1 else (self.n_latents,)

    @property
    def kept_rows(self) -> LocalPosterior:
        return self

    @cached_property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.X, metric(self.prior.core))

    @cached_property
    def places(self) -> Places:
        codes = np.maximum(self.y, 0.0).astype(np.intp)
        return Places.of(self.X, codes, self.weight, max(2, self.n_latents))

    @cached_property
    def whitened_rows(self) -> LocalRows:
        return local_rows(Executor(1), self.prior, self.X)

    @cached_property
    def predictor(self) -> _local.Predictor:
        neighbours, prior, sites = self.neighbours, self.prior, (self.precision, self.linear)
        scale = np.full(prior.core.n_features, neighbours.metric.scale)
        search, q = (neighbours.tree, scale, LARGEST_TO_SQUARE), (self.w, self.V)
        return _local.Predictor(prior.core, prior.Linv, *search, self.whitened_rows, sites, *q, self.n_neighbors)

    def without_neighbors(self) -> SparsePosterior:
        """The posterior of the inducing points' values alone: q(z), as the neighbours' sites made it."""
        P = np.linalg.inv(self.V + EIGENVALUE_ERROR * np.eye(self.V.shape[1]))
        return self.prior.proper_posterior((P, (P @ self.w[..., None])[..., 0]))

    def at(self, X: np.ndarray, n_earlier: np.ndarray | None = None) -> Neighbourhoods:
        """Rows of X (r, d), and their neighbours."""
        index, rows = self.neighbours.of(X, self.n_neighbors), local_rows(Executor(1), self.prior, X)
        sites = self.precision, self.linear
        return Neighbourhoods(self.prior.core, self.whitened_rows, rows, sites, index, n_earlier)

    @small_is_zero
    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """A search, and O(r (k^2 (m + d) + C (k^3 + m^2)))."""
        predictor, (m, d) = self.predictor, self.prior.Z.shape

        def part(rows: slice) -> np.ndarray:
            return predictor.moments(X[rows], _engine.workspace(rows.stop - rows.start, m, d))

        mean, variance = joined(part, parts_of(len(X)), n_jobs, axis=2).reshape(2, *self.shape, len(X))
        return mean, self.variance_scale * variance

    def gradients(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """With the same neighbours; O(r (k^2 (m + d) + C (k^3 + m (m + d)))) and a search."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        # The threads share these two, so they are made before.
        _, parts = (self.neighbours, self.whitened_rows), parts_for(len(X), len(self.w))
        gradients = joined(lambda rows: self._gradients_of(X[rows]), parts, n_jobs, axis=2)
        by_mean, by_variance = gradients.reshape(2, *self.shape, *X.shape)
        return by_mean, self.variance_scale * by_variance

    def _gradients_of(self, X: np.ndarray) -> np.ndarray:
        """Gradients (2, C, r, d) of means and unscaled variances by the rows of X (r, d)."""
        core, (C, m), (r, d), k = self.prior.core, self.w.shape, X.shape, self.n_neighbors
        # The core takes two sets of neighbours: here both are all, for gradients of the mean and of the variance.
        local = self.at(X, np.full(r, k, dtype=np.int32))
        is_variance = np.repeat(np.arange(2.0), C * r).reshape(2, C, r)
        is_mean = 1.0 - is_variance
        V, w = np.array(self.V), np.array(self.w)
        directions = [(V, w, var, mean, var, mean) for mean, var in zip(is_mean, is_variance, strict=True)]
        out = [tuple(np.empty((C, r, size)) for size in (k, k, m, m)) for _ in range(2)]
        local.vjp(0, r, directions, out, np.empty((r, m)), np.empty(r), np.empty((r, k, 1 + 2 * C)))
        gamma, chi, b, u = (np.stack(arrays) for arrays in zip(*out, strict=True))
        # By the covariances with the neighbours and, through the whitened rows, with the inducing points; see local.h.
        by_near, by_points = chi - is_variance[..., None] * gamma, (-u - is_variance[..., None] * b) @ self.prior.Linv
        G = np.ascontiguousarray(np.swapaxes(by_points, 2, 3)).reshape(2 * C, m, r)
        gradients = core.row_gradients(X, G).reshape(2, C, r, d)
        gradients[1] += core.diagonal_gradient(X)
        by_neighbours = _kernels.neighbour_gradients(core, self.X, local.index, X, by_near.reshape(2 * C, r, k))
        return gradients + by_neighbours.reshape(gradients.shape)

    def _together(
        self, X: np.ndarray, n_jobs: int | None
    ) -> tuple[Neighbourhoods, Conditional, np.ndarray, np.ndarray, np.ndarray, list[csr_array]]:
        """The rows of X (r, d), and their conditionals; numbers and features of all training rows that are neighbours
        of any; which of these each row has (r, k); and their weights, as C sparse matrices."""
        with single_threaded_blas(), Executor(n_jobs) as executor:
            local = self.at(X)
            conditional = local.empty(len(X), with_gamma=True)
            executor.each(lambda rows: local.condition(rows.start, rows.stop, [conditional]), parts_of(len(X)))
        seen, places = np.unique(local.index, return_inverse=True)
        places, X_seen = places.reshape(local.index.shape), np.asarray(self.X[seen], dtype=np.float64)
        return local, conditional, seen, X_seen, places, neighbour_matrices(places, conditional.gamma, len(seen))

    @small_is_zero
    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance, where each row is predicted from its own neighbours.

        Of the errors e_i = f(x_i) - mean_i it is

            Cov(e_i, e_j) = b_i V b_j + D_ij - gamma_i D_Nj - D_iN gamma_j + gamma_i (D_NN + diag(1 / lambda)) gamma_j

        with N the neighbours of either, times ``variance_scale``: positive semidefinite, and the predictions' variances
        are its diagonal.
        O(r^2 k^2 (m + d)) time, O(r^2 k) memory.
        """
        X = np.asarray(X, dtype=np.float64)
        local, conditional, seen, X_seen, _, matrices = self._together(X, 1)
        a_seen, a, kernel = local.support.a[seen], local.rows.a, self.prior.spec.at(X_seen)
        cross, joint = kernel.cross(X) - a @ a_seen.T, self.prior.spec.at(X).cross(X) - a @ a.T
        covariance = np.empty((len(matrices), len(X), len(X)))
        for c, (G, b) in enumerate(zip(matrices, conditional.b, strict=True)):
            G_t, inner = G.T.toarray(), np.zeros((len(X), len(X)))
            diagonal = local.support.residual[seen] + 1.0 / np.maximum(self.precision[c, seen], LEAST_DIVISOR)
            # Sums over the neighbours, PART_ROWS of them at a time, so that the kernel's values fit into memory.
            for part in np.array_split(np.arange(len(seen)), 1 + len(seen) // PART_ROWS):
                D = kernel.cross(X_seen[part]) - a_seen[part] @ a_seen.T
                D[np.arange(len(part)), part] = diagonal[part]
                inner += G_t[part].T @ (D @ G_t)
            crossed = G @ cross.T
            total = b.T @ self.V[c] @ b + joint - crossed - crossed.T + inner
            covariance[c] = 0.5 * (total + total.T)
        covariance *= self.variance_scale
        each = np.arange(len(X))
        covariance[:, each, each] = np.atleast_2d(self.marginals(X)[1])
        return covariance.reshape(*self.shape, len(X), len(X))

    def covariance_columns(self, X: np.ndarray, n_jobs: int | None) -> ColumnOf:
        """As ``covariance``, in sums over neighbours. With gamma the weights of a row's neighbours N,

            g(x) = k(x, x_i) - sum_N gamma_i k(x, x_N) + a(x).(V b_i - b_i),
            Cov(e_j, e_i) = g(x_j) - sum over j's neighbours of gamma_j (g(x_N) - gamma_i (1 / lambda_N + noise)),

        the last only where they are neighbours of i, too. O((n + n_train) (m + k) (d + C)) each, C n k numbers.
        """
        X = np.ascontiguousarray(X, dtype=np.float64)
        local, (*_, gamma), seen, X_seen, places, matrices = self._together(X, n_jobs)
        prior = self.prior
        diagonal = prior.core.parts_of_diagonal(X_seen)[1] + 1.0 / np.maximum(self.precision[:, seen], LEAST_DIVISOR)

        def column(i: int) -> np.ndarray:
            gamma_i = gamma[:, i]
            b = prior.Linv @ prior.core.cross(X[i : i + 1])[0] - gamma_i @ local.support.a[local.index[i]]
            change = (np.einsum("cmk,ck->cm", self.V, b) - b) @ prior.Linv
            points = np.concatenate([prior.Z, X[i : i + 1], X_seen[places[i]]])
            weights = np.concatenate([change, np.ones((len(b), 1)), -gamma_i], axis=1)
            at_rows, at_seen = (kernel_sums(prior.spec, points, weights, rows, n_jobs) for rows in (X, X_seen))
            at_seen[:, places[i]] -= gamma_i * diagonal[:, places[i]]
            explained = [matrix @ g for matrix, g in zip(matrices, at_seen, strict=True)]
            return self.variance_scale * (at_rows - explained)

        return column

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            "rows": self.X,
            "row_labels": self.y,
            "row_weights": self.weight,
            "site_precision": self.precision,
            "site_linear": self.linear,
            "whitened_mean": self.w,
            "whitened_covariance": self.V,
            "variance_scale": np.array(self.variance_scale),
        }


# What predicts: a posterior of C independent latent functions.
Posterior: TypeAlias = KernelPosterior | LocalPosterior


def covariance_bytes(q: Posterior, n_rows: int) -> float:
    """Memory that a joint covariance takes for so many rows, beside its argument.

    Beside the results there are four matrices, or five with neighbours, and three with a column for each point, or for
    each row that is a neighbour.
    """
    k, n_columns = q.n_neighbors, q.prior.n_inducing
    if k:
        n_columns = min(len(q.kept_rows.X), n_rows * k)
    return 8.0 * n_rows * (n_rows * (q.n_latents + 4.0 + (k > 0)) + 3.0 * n_columns)
