"""The sparse posterior: the value that prediction, saving and warm starts need."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import lapack

from . import _engine
from ._kernels import InducingKernel
from .blocks import BlockMap
from .kernels import KernelSpec

# Relative to the mean diagonal of k(Z, Z). Least jitter at which the Cholesky factorisation of a smooth kernel's
# matrix succeeds in float64 with room to spare; escalated tenfold, at most so often, when it does not.
JITTER = 1e-6
JITTER_ESCALATIONS = 5


def cholesky_and_inverse(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Lower Cholesky factor and its inverse, C-contiguous, or None if ``matrix`` is not positive definite.

    Only the lower triangle is read. A row-major lower triangle is a column-major upper one.
    """
    upper, info = lapack.dpotrf(matrix.T, lower=0, clean=1)
    if info or not np.all(np.isfinite(upper)):
        return None
    inverse, info = lapack.dtrtri(upper, lower=0)
    if info:
        return None
    return upper.T, inverse.T


def _freeze(record: object) -> None:
    """Make the arrays of a record read-only: a posterior is a value."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Prior:
    """p(u) = N(0, K_mm) at the inducing points, K_mm = k(Z, Z) + jitter I = L L^T.

    Attributes
    ----------
    spec : KernelSpec
    Z : (m, d) inducing points
    core : the compiled kernel at Z
    L, Linv : (m, m) lower triangles
    jitter : float, relative to the mean diagonal of k(Z, Z)
    """

    spec: KernelSpec
    Z: np.ndarray
    core: InducingKernel
    L: np.ndarray
    Linv: np.ndarray
    jitter: float

    def __post_init__(self) -> None:
        _freeze(self)

    @classmethod
    def build(cls, spec: KernelSpec, Z: np.ndarray) -> Prior:
        """Factorise K_mm, with as little jitter as it takes; O(m^3).

        Raises
        ------
        ValueError
            If Z is not finite, or K_mm not positive definite even with the largest jitter.
        """
        if not np.all(np.isfinite(Z)):
            raise ValueError("The inducing points contain NaN or infinity.")
        core = spec.at(Z)
        gram = core.cross(Z)
        gram = 0.5 * (gram + gram.T)
        diagonal = np.diag(gram).copy()
        for escalation in range(JITTER_ESCALATIONS + 1):
            jitter = JITTER * 10.0**escalation
            np.fill_diagonal(gram, diagonal + jitter * np.mean(diagonal))
            factors = cholesky_and_inverse(gram)
            if factors is not None:
                return cls(spec, Z, core, *factors, jitter)
        raise ValueError(
            f"The covariance matrix of the inducing points is not positive definite, even with a relative jitter of "
            f"{jitter:g} on its diagonal; kernel: {spec.kernel}. Scale the features, give finite and moderate kernel "
            "parameters, or take fewer inducing points."
        )


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """q(z) = N(w, P^{-1}) over whitened inducing values u = L z.

    Attributes
    ----------
    prior : Prior
    P : (m, m) precision, its lower triangle
    h : (m,) linear natural parameter, P w = h
    R, Rinv : (m, m) lower Cholesky factor of P and its inverse
    w : (m,) mean
    """

    prior: Prior
    P: np.ndarray
    h: np.ndarray
    R: np.ndarray = field(repr=False)
    Rinv: np.ndarray = field(repr=False)
    w: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        _freeze(self)

    @classmethod
    def from_natural(cls, prior: Prior, P: np.ndarray, h: np.ndarray) -> SparsePosterior | None:
        """q from its natural parameters (lower triangle of P), or None if P is not positive definite; O(m^3)."""
        factors = cholesky_and_inverse(P)
        if factors is None:
            return None
        R, Rinv = factors
        return cls(prior, P, h, R, Rinv, Rinv.T @ (Rinv @ h))

    @classmethod
    def at_prior(cls, prior: Prior) -> SparsePosterior:
        """q = p: P = I, h = 0."""
        m = len(prior.Z)
        identity = np.eye(m)
        return cls(prior, identity, np.zeros(m), identity, identity, np.zeros(m))

    @property
    def kl(self) -> float:
        """KL(q || p) = (tr P^{-1} + w.w - m + log |P|) / 2, in nats."""
        log_det = 2.0 * np.sum(np.log(np.diag(self.R)))
        return float(0.5 * (np.sum(self.Rinv**2) + self.w @ self.w - len(self.w) + log_det))

    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (n,) of the latent function at the rows of X (n, d); O(n (m^2 + m d))."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        prior = self.prior
        with BlockMap(len(X), len(prior.Z), X.shape[1], n_jobs) as blocks:
            for _ in blocks(
                lambda start, stop, work: _engine.marginals_block(
                    prior.core, X, start, stop, prior.Linv, self.Rinv, self.w, work, mean, variance
                )
            ):
                pass
        return mean, variance

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (n, n) of the latent function at the rows of X; O(n^2 (m + d)) time, O(n^2) memory."""
        prior = self.prior
        a = prior.core.cross(X) @ prior.Linv.T
        b = a @ self.Rinv.T
        here = prior.spec.at(np.asarray(X, dtype=np.float64)).cross(X)
        np.fill_diagonal(here, prior.core.diagonals(X))
        covariance = here - a @ a.T + b @ b.T
        covariance = 0.5 * (covariance + covariance.T)
        np.fill_diagonal(covariance, np.maximum(np.diag(covariance), np.sum(b**2, axis=1)))
        return covariance
