"""The linear model as an approximation: whitened rows are the features times their prior deviations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse
from scipy.linalg import qr
from scipy.optimize import minimize_scalar
from sklearn.utils.extmath import row_norms

from .. import _engine
from .._engine import RowCache, WhitenedRows
from .._natural_gradient import BatchRows
from .._sites import Site
from ..names import MatrixLike
from ..rows.blas import single_threaded_blas
from ..rows.block import Block
from ..rows.source import ArraySource
from ..statistics import Update, evaluated
from .base import Value, new_key
from .sparse import InducingPrior, SparsePosterior

# Largest change of log s^2 in a step: in the first steps q is not at rest.
LARGEST_MOVE = 2.0
# Density of a block of rows below which sparse products are faster than dense ones (500 to 2000 features).
SPARSE_BELOW = 0.03


@dataclass(frozen=True, eq=False)
class RowSpan(Value):
    """Coordinates Q^T x of rows x, for an orthonormal basis Q of the span of fewer rows than features; or x itself.

    Coefficients beta ~ N(0, s^2 I) are Q b + c with b ~ N(0, s^2 I) and c ~ N(0, s^2 (I - Q Q^T)) independent. The
    label of a training row depends on b alone, and c keeps its prior: r coefficients take the place of d.
    """

    basis: np.ndarray | None  # (d, r) Q, or None: the features are the coordinates

    @classmethod
    def of(cls, X: MatrixLike) -> tuple[RowSpan, MatrixLike]:
        """The span of X (n, d), dense or sparse, and the coordinates of its rows: with n < d a QR decomposition of X^T
        with pivoting, in O(n^2 d) time (a hundredth of a fit's) and 16 n d bytes.
        """
        n, d = X.shape
        if n >= d:
            return cls(None), X
        dense = np.array(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
        Q, R, order = qr(dense.T, overwrite_a=True, mode="economic", pivoting=True)
        # distances[r]: squared distances of rows from the first r directions; (d eps)^2 of distances[0] is rounding.
        largest = np.max(np.abs(R), axis=0)
        squares = np.divide(R, largest, out=np.zeros_like(R), where=largest > 0.0) ** 2
        distances = np.cumsum(squares[::-1], axis=0)[::-1]
        r = max(1, int(np.count_nonzero(np.any(distances > (d * np.finfo(float).eps) ** 2 * distances[0], axis=1))))
        coordinates = np.empty((n, r))
        coordinates[order] = R[:r].T
        return cls(Q[:, :r]), coordinates

    def coordinates(self, X: MatrixLike) -> tuple[MatrixLike, np.ndarray | float]:
        """Coordinates of the rows of X (b, d), and squared distances (b,) of rows from the span; 0 without a basis."""
        if self.basis is None:
            return X, 0.0
        inside = X @ self.basis
        norms = row_norms(X.astype(np.float64, copy=False), squared=True)
        return inside, np.maximum(norms - row_norms(inside, squared=True), 0.0)

    def coefficients(self, b: np.ndarray) -> np.ndarray:
        """Means (d,) of the coefficients, from those (r,) of their coordinates."""
        return b if self.basis is None else self.basis @ b

    def covariance(self, S: np.ndarray, s2: float) -> np.ndarray:
        """Covariance of the coefficients and an intercept, if any, from that of their coordinates and the intercept.

        Q (S - s^2 I) Q^T + s^2 I; O(d^2 r) time, 8 d^2 bytes.
        """
        if self.basis is None:
            return S
        d, r = self.basis.shape
        more = len(S) - r
        covariance = np.empty((d + more, d + more))
        covariance[:d, :d] = self.basis @ (S[:r, :r] - s2 * np.eye(r)) @ self.basis.T
        covariance[range(d), range(d)] += s2
        covariance[d:, :d] = S[r:, :r] @ self.basis.T
        covariance[:d, d:] = covariance[d:, :d].T
        covariance[d:, d:] = S[r:, r:]
        return covariance


@dataclass(frozen=True, eq=False)
class LinearPosterior(SparsePosterior):
    """q of the coefficients over their prior standard deviations.

    Rows are coordinates in the span of the training rows; rows with more columns than that are features. Outside of the
    span the coefficients have their prior.
    """

    # Values that overflow are refused later, with the number of their row.
    @np.errstate(over="ignore", invalid="ignore")
    def block_marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        if block.matrix.shape[1] > self.prior.d:
            rows, outside = self.prior.span.coordinates(block.matrix)
            mean, variance = self.block_marginals(Block(block.start, rows, block.y, block.weight, 0))
            return mean, variance + self.prior.variance * outside
        few = self.prior.few(block.matrix)
        return super().block_marginals(block) if few is None else self._of_few(few)

    def update(self, block: Block, site: Site) -> Update:
        few = self.prior.few(block.matrix)
        if few is None:
            return super().update(block, site)
        sites = evaluated(block, site, *self._of_few(few))
        P = np.tril((few.T @ few.multiply(sites.precision[0][:, None])).toarray())
        curved = float(np.vdot(sites.precision, sites.variance))
        return sites, curved, P[None], (few.T @ sites.linear[0])[None]

    def _of_few(self, a: MatrixLike) -> tuple[np.ndarray, np.ndarray]:
        """Means a_i . w and variances |R^{-1} a_i|^2 (1, rows) of sparse rows (rows, D)."""
        (Rinv,), (w,) = self.Rinv, self.w
        b = a @ Rinv.T
        return (a @ w)[None], np.einsum("ij,ij->i", b, b)[None]

    def covariance(self, X: MatrixLike) -> np.ndarray:
        """(n, n) of rows (n, d), dense or sparse, by the covariances of the coefficients; O(n r (n + r) + n^2 d)."""
        prior = self.prior
        inside, _ = prior.span.coordinates(X)
        roots = prior.scaled(inside) @ self.Rinv[0].T
        covariance = roots @ roots.T
        if prior.span.basis is not None:
            products = X.astype(np.float64) @ X.T
            outside = (products.toarray() if sparse.issparse(products) else products) - inside @ inside.T
            covariance += prior.variance * outside
        return 0.5 * (covariance + covariance.T)

    def gradients(self, X: MatrixLike, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients, and twice their covariance times the rows: O(n r (r + d))."""
        (prior, span, d), (Rinv,), (w,) = (self.prior, self.prior.span, self.prior.d), self.Rinv, self.w
        inside, _ = span.coordinates(X)
        with single_threaded_blas():
            by_variance = (2.0 * (prior.scaled(inside) @ Rinv.T @ Rinv) * prior.scale)[:, :d]
            if span.basis is not None:
                outside = np.asarray(X - inside @ span.basis.T)
                by_variance = by_variance @ span.basis.T + 2.0 * prior.variance * outside
        mean = span.coefficients((prior.scale * w)[:d])
        return np.broadcast_to(mean, by_variance.shape).copy(), by_variance


@dataclass(frozen=True, eq=False)
class LinearPrior(InducingPrior):
    """Coefficients beta = scale z with z ~ N(0, I) of one latent function.

    Whitened rows are a = scale (x, 1), where x are coordinates in the ``span`` of the training rows.
    """

    scale: np.ndarray  # (D,) standard deviations: d times s, and last that of the intercept if there is one
    d: int  # coefficients without the intercept
    low: float  # range of log s^2; equal if s is given
    high: float
    span: RowSpan = RowSpan(None)  # of which the coefficients are coordinates
    key: str = field(default_factory=new_key, init=False, repr=False)
    posterior_class = LinearPosterior

    @property
    def variance(self) -> float:
        return float(self.scale[0] ** 2)

    @property
    def n_inducing(self) -> int:
        """Coefficients, D."""
        return len(self.scale)

    def within(self, span: RowSpan, d: int) -> LinearPrior:
        """The prior, of the same variance, of d coordinates in a span, at most as many as the coefficients."""
        return replace(self, scale=np.append(self.scale[:d], self.scale[self.d :]), d=d, span=span)

    def work(self, n_latents: int) -> float:
        return 2.0 * self.n_inducing**2

    def scaled(self, X: MatrixLike) -> np.ndarray:
        """The whitened rows (r, D) of X (r, d)."""
        a = np.empty((X.shape[0], len(self.scale)))
        np.multiply(X.toarray() if sparse.issparse(X) else X, self.scale[: self.d], out=a[:, : self.d])
        a[:, self.d :] = self.scale[self.d :]
        return a

    def few(self, X: MatrixLike) -> MatrixLike | None:
        """The whitened rows as CSR, if so few values are not zero that this is faster; else None."""
        if not sparse.issparse(X) or X.nnz >= SPARSE_BELOW * X.shape[0] * X.shape[1]:
            return None
        ones = np.ones((X.shape[0], len(self.scale) - self.d))
        a = sparse.hstack([sparse.csr_array(X), ones], format="csr", dtype=np.float64)
        return a @ sparse.diags_array(self.scale, format="csr")

    def whitened(self, block: Block, n_latents: int) -> list[WhitenedRows]:
        a, D = self.scaled(block.matrix), len(self.scale)
        work = _engine.workspace(len(a), D, 1)
        tiles = np.concatenate([a[start : start + work.rows].T.ravel() for start in range(0, len(a), work.rows)])
        return [WhitenedRows(None, None, None, RowCache(tiles, is_filled=True), work)]

    def mini_batches(self, source: ArraySource) -> BatchRows:
        return BatchRows([None], np.empty((1, 1, 1)), self.scaled(source.rows), source.y, source.weight)

    def moved(self, log_t: float) -> tuple[LinearPrior, np.ndarray]:
        """The prior with exp(log_t) times s^2, and the factors (D,) of the whitened rows."""
        t = np.ones(len(self.scale))
        t[: self.d] = np.exp(0.5 * log_t)
        return replace(self, scale=self.scale * t), t

    def best_move(self, S: np.ndarray, h: np.ndarray, largest: float = LARGEST_MOVE) -> tuple[float, float]:
        """log_t = log(s_new^2 / s^2) of most evidence with the sites as they are, and its gain in nats.

        ``largest`` bounds the size of log_t.

        Sites are normal densities. Let C and k be S and h with the intercept integrated out: the log evidence

            J(t) = (t k^T (I + t C)^{-1} k - log |I + t C|) / 2 + constant

        takes O(d) with the eigenvalues of C. Where such moves and the updates of q both rest, the bound maximised over
        q is stationary. Under conjugate bounds (polya-gamma, augmented) every move raises it.
        """
        if self.low == self.high:
            return 0.0, 0.0
        d, C, k = self.d, S[: self.d, : self.d], h[: self.d]
        if len(h) > d:
            C, k = C - np.outer(S[d, :d], S[d, :d]) / (1.0 + S[d, d]), k - S[d, :d] * (h[d] / (1.0 + S[d, d]))
        eigenvalues, vectors = np.linalg.eigh(C)
        eigenvalues, squares = np.maximum(eigenvalues, 0.0), (vectors.T @ k) ** 2

        def loss(log_t: float) -> float:
            t = np.exp(log_t)
            return 0.5 * float(np.sum(np.log1p(t * eigenvalues) - t * squares / (1.0 + t * eigenvalues)))

        log_variance = np.log(self.variance)
        bounds = np.clip([min(self.low - log_variance, 0.0), max(self.high - log_variance, 0.0)], -largest, largest)
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-7})
        return float(best.x), loss(0.0) - float(best.fun)
