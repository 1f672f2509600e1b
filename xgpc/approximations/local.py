"""The local posterior: a sparse posterior, and the nearest rows' sites for the residual that it leaves.

f(x) = a(x) . z + g(x), with whitened a and z ~ N(0, I) as in a sparse posterior, and g ~ GP(0, D) with
D(x, x') = k(x, x') - a(x) . a(x'). Each training row has a site; a prediction conditions g on those of the k nearest
rows. The sites of all rows determine q(z) by the chain rule: each row's site given those of its neighbours that come
before it in a random order (Vecchia's approximation of the residual; Gyger, Furrer, Sigrist 2025, arXiv 2507.05064).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ..rows.block import Block
from ..rows.executor import Cost, Executor, Threads, parts_of
from ..rows.neighbours import Neighbours
from ..rows.source import ArraySource
from .base import Value, cholesky_and_inverse
from .local_rows import (
    Conditional,
    LocalRows,
    Neighbourhoods,
    PullBack,
    Pulled,
    Sites,
    conditionals,
    local_rows,
    metric,
    pulled_back,
)
from .sparse import SparsePosterior, SparsePrior

# Rows whose covariances with all neighbours are formed at a time.
CHUNK = 512
# A site's precision counts as so much at least where it is divided by.
LEAST_PRECISION = 1e-300


@dataclass(frozen=True)
class Coefficients:
    """q(z) = N(w, V) of C latent functions.

    Attributes
    ----------
    w, V : (C, m) and (C, m, m)
    """

    w: np.ndarray
    V: np.ndarray

    @classmethod
    def of(cls, P: np.ndarray, h: np.ndarray) -> Coefficients:
        """From what sites add to the natural parameters, (C, m, m) and (C, m).

        Raises
        ------
        ValueError
            If the precision is not positive definite.
        """
        V = np.empty_like(P)
        for c, precision in enumerate(P):
            factors = cholesky_and_inverse(np.eye(len(precision)) + precision)
            if factors is None:
                raise ValueError("The precision of the sites is not positive definite; give moderate sample weights.")
            V[c] = factors[1].T @ factors[1]
        return cls((V @ h[..., None])[..., 0], V)


def site_terms(found: Conditional, sites: Sites) -> Sites:
    """Precisions and linear terms (C, r) that rows' sites have for b.z, given the neighbours' sites: 1 / (1 / lambda +
    variance), and its product with r / lambda - mean."""
    precision, linear = sites
    share = 1.0 / (1.0 + precision * found.variance)
    return share * precision, share * (linear - precision * found.mean)


def moments(executor: Executor, found: Conditional, q: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (C, r) of b.z; O(C r m^2)."""
    parts = executor.each(lambda rows: block_moments(found.part(rows), q), parts_of(found.mean.shape[1]))
    means, variances = zip(*parts, strict=True)
    return np.concatenate(means, axis=1), np.concatenate(variances, axis=1)


def block_moments(found: Conditional, q: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """``moments`` of a block of rows, on the calling thread."""
    mean = np.einsum("crm,cm->cr", found.b, q.w)
    return mean, np.einsum("crm,crm->cr", found.b @ q.V, found.b)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Rows to predict, and q(z)."""

    at: Neighbourhoods
    q: Coefficients

    @property
    def cost(self) -> Cost:
        work, _ = self.at.cost
        return Cost(work + self.at.support.a.shape[1] ** 2, 1)


def predict(block: Block, state: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (C, r) of the rows of a block."""
    (found,) = conditionals(block.rows, state.at)
    mean, variance = block_moments(found, state.q)
    return found.mean + mean, found.variance + variance


def predicted(executor: Executor, at: Neighbourhoods, q: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (C, r); O(r (k^2 (m + d) + C (k^3 + m^2)))."""
    if not len(at.index):
        return np.empty((at.n_latents, 0)), np.empty((at.n_latents, 0))
    means, variances = zip(*executor.map(predict, at.source(), Predictions(at, q)), strict=True)
    return np.concatenate(means, axis=1), np.concatenate(variances, axis=1)


def residual_weights(executor: Executor, at: Neighbourhoods) -> Pulled:
    """Weights "gamma" (C, r, k) of the neighbours' residuals, and "b" (C, r, m): a less the neighbours' weighted a."""
    none = np.zeros((at.n_latents, len(at.index)))
    nothing = Conditional(np.zeros((*none.shape, at.support.a.shape[1])), none, none)
    (found,) = pulled_back(executor, PullBack(at, [nothing])).sets
    return found


@dataclass(frozen=True, eq=False)
class LocalPosterior(Value):
    """Training rows with their sites, from which latent values are predicted.

    Attributes
    ----------
    prior : SparsePrior
    X : (n, d) training rows, float32 or float64
    precision, linear : (C, n) sites
    w, V : (C, m) and (C, m, m), mean and covariance of q(z), which follow from the sites
    n_neighbors : int, k
    n_latents : int or None, number C of latent functions; None: one, without an axis in the results
    variance_scale : float
        Factor of all variances and covariances. Classes may be more certain away from their borders than a process
        whose borders are as rough: 1 is the process's own, less was learned from the labels of query rows.
    """

    prior: SparsePrior
    X: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    w: np.ndarray
    V: np.ndarray
    n_neighbors: int
    n_latents: int | None = None
    variance_scale: float = 1.0

    @classmethod
    def from_fit(
        cls,
        prior: SparsePrior,
        X: np.ndarray,
        sites: Sites,
        q: Coefficients,
        n_neighbors: int,
        n_latents: int | None,
        variance_scale: float,
        whitened_rows: LocalRows,
        neighbours: Neighbours,
    ) -> LocalPosterior:
        """A posterior that keeps the whitened rows and the search tree of the fit, which would else be made again.

        Parameters
        ----------
        whitened_rows : of X, as ``local_rows`` makes them
        neighbours : of X times ``metric``
        """
        found = cls(prior, X, *sites, q.w, q.V, n_neighbors, n_latents, variance_scale)
        # Values of cached properties, which pickles and files leave out.
        vars(found).update(whitened_rows=whitened_rows, neighbours=neighbours)
        return found

    @property
    def sites(self) -> Sites:
        return self.precision, self.linear

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.n_latents is None else (self.n_latents,)

    @cached_property
    def metric(self) -> np.ndarray:
        return metric(self.prior.core)

    @cached_property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.X * self.metric)

    @cached_property
    def whitened_rows(self) -> LocalRows:
        with Threads(1) as executor:
            return local_rows(executor, self.prior, ArraySource(self.X, cache_bytes=0))

    def without_neighbors(self) -> SparsePosterior:
        """The posterior of the inducing points' values alone: q(z), as the neighbours' sites made it."""
        P = np.linalg.inv(self.V)
        parts = (P, (P @ self.w[..., None])[..., 0])
        found = SparsePosterior.from_natural(
            self.prior, *(part.reshape(*self.shape, *part.shape[1:]) for part in parts)
        )
        if found is None:
            raise ValueError("The covariance of the inducing points' values is not positive definite.")
        return found

    @property
    def coefficients(self) -> Coefficients:
        return Coefficients(self.w, self.V)

    def at(self, executor: Executor, X: np.ndarray) -> Neighbourhoods:
        """Rows of X (r, d), and their neighbours."""
        rows = local_rows(executor, self.prior, ArraySource(X, cache_bytes=0))
        index = self.neighbours.of(X * self.metric, self.n_neighbors, executor.n_threads)
        return Neighbourhoods(self.prior.core, self.whitened_rows, self.sites, rows, index)

    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (r,) or (C, r) of the latent functions at the rows of X (r, d).

        A search, and O(r (k^2 (m + d) + C (k^3 + m^2))).
        """
        if not len(X):
            return np.empty((*self.shape, 0)), np.empty((*self.shape, 0))
        with Threads(n_jobs) as executor:
            mean, variance = predicted(executor, self.at(executor, X), self.coefficients)
        variance *= self.variance_scale
        return mean.reshape(*self.shape, len(X)), variance.reshape(*self.shape, len(X))

    def covariance_bytes(self, n_rows: int) -> float:
        """The results, five matrices more, and three with a column for each neighbour of any row."""
        seen = min(len(self.X), n_rows * self.n_neighbors)
        return 8.0 * n_rows * (n_rows * (len(self.w) + 5.0) + 3.0 * seen)

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (r, r) or (C, r, r) of the latent values at the rows of X (r, d), given their predictions.

        Each row is predicted from its own neighbours. Of the errors e_i = f(x_i) - mean_i it is

            Cov(e_i, e_j) = b_i V b_j + D_ij - gamma_i D_Nj - D_iN gamma_j + gamma_i (D_NN + diag(1 / lambda)) gamma_j

        with N the neighbours of either, times ``variance_scale``: positive semidefinite, and the predictions' variances
        are its diagonal.
        O(r^2 k^2 (m + d)) time, O(r^2 k) memory.
        """
        X = np.asarray(X, dtype=np.float64)
        with Threads(1) as executor:
            at = self.at(executor, X)
            _, variances = predicted(executor, at, self.coefficients)
            found = residual_weights(executor, at)
            seen, places = np.unique(at.index, return_inverse=True)
            near = np.asarray(self.X[seen], dtype=np.float64)
            support, kernel = at.support.part(seen), self.prior.spec.at(near)
            cross = kernel.cross(X) - at.rows.a @ support.a.T
            joint = self.prior.spec.at(X).cross(X) - at.rows.a @ at.rows.a.T
            ends = np.arange(0, at.index.size + 1, at.index.shape[1])
            covariance = np.empty((at.n_latents, len(X), len(X)))
            for c, (gamma, b, diagonal) in enumerate(zip(found["gamma"], found["b"], variances, strict=True)):
                G = csr_array((gamma.ravel(), places.ravel(), ends), shape=(len(X), len(seen)))
                G_t = G.T.toarray()
                # Sums over the neighbours, so many of them at a time that the kernel's values fit.
                own = support.residual + 1.0 / np.maximum(self.precision[c, seen], LEAST_PRECISION)
                inner = np.zeros((len(X), len(X)))
                for part in np.array_split(np.arange(len(seen)), 1 + len(seen) // CHUNK):
                    D = kernel.cross(near[part]) - support.a[part] @ support.a.T
                    D[np.arange(len(part)), part] = own[part]
                    inner += G_t[part].T @ (D @ G_t)
                crossed = G @ cross.T
                total = b @ self.V[c] @ b.T + joint - crossed - crossed.T + inner
                covariance[c] = 0.5 * (total + total.T)
                np.fill_diagonal(covariance[c], diagonal)
        covariance *= self.variance_scale
        return covariance.reshape(*self.shape, len(X), len(X))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            "rows": self.X,
            "site_precision": self.precision,
            "site_linear": self.linear,
            "local_w": self.w,
            "local_V": self.V,
        }
