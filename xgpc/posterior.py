"""The sparse posterior: the value that prediction, saving and warm starts need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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


def freeze(record: object) -> None:
    """Make the arrays of a record read-only: a posterior is a value."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Prior:
    """p(u) = N(0, K_mm) at the inducing points, K_mm = k(Z, Z) + jitter I = L L^T; of one latent function or several.

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
        freeze(self)

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

    @property
    def groups(self) -> tuple[Prior, ...]:
        """The priors of the latent functions: one for all."""
        return (self,)

    @property
    def parts(self) -> list[tuple[Prior, slice]]:
        """Each prior with the latent functions that have it, as a slice of their axis."""
        return [(self, slice(None))]

    @property
    def n_inducing(self) -> int:
        return len(self.Z)

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> Prior:
        """The same with another kernel, the one of ``specs``, and other inducing points."""
        return Prior.build(specs[0], Z)


@dataclass(frozen=True, eq=False)
class SeparatePriors:
    """A kernel and inducing points, as many, for each latent function.

    Attributes
    ----------
    groups : tuple of C priors
    """

    groups: tuple[Any, ...]

    @property
    def Z(self) -> np.ndarray:
        """Inducing points (C, m, d)."""
        return np.stack([prior.Z for prior in self.groups])

    @property
    def n_inducing(self) -> int:
        return self.groups[0].n_inducing

    @property
    def jitter(self) -> float:
        """The largest of any."""
        return max(prior.jitter for prior in self.groups)

    @property
    def parts(self) -> list[tuple[Any, slice]]:
        return [(prior, slice(c, c + 1)) for c, prior in enumerate(self.groups)]

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> SeparatePriors:
        return SeparatePriors(
            tuple(group.rebuilt([spec], points) for group, spec, points in zip(self.groups, specs, Z, strict=True))
        )


def times(P: np.ndarray, w: np.ndarray) -> np.ndarray:
    """P w of symmetric (m, m) or (C, m, m) matrices of which the lower triangles are given, zeros above."""
    return ((P + np.swapaxes(np.tril(P, -1), -1, -2)) @ w[..., None])[..., 0]


# Prior, SeparatePriors or ``xgpc.full.FullPrior``; SparsePosterior or ``xgpc.full.FullPosterior``. What is written for
# any of them uses what they have in common.
AnyPrior = Any
AnyPosterior = Any


def is_same_prior(one: AnyPrior, other: AnyPrior) -> bool:
    """Whether two priors, built one by one perhaps, have the same kernels at the same points."""
    return len(one.groups) == len(other.groups) and all(
        a is b or (type(a) is type(b) and a.spec.kernel == b.spec.kernel and np.array_equal(a.Z, b.Z))
        for a, b in zip(one.groups, other.groups, strict=True)
    )


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """q(z) = N(w, P^{-1}) over whitened inducing values u = L z, of one latent function or of C independent ones.

    Attributes
    ----------
    prior : Prior or SeparatePriors
    P : (m, m) precision, its lower triangle; (C, m, m) for C latent functions, and so on
    h : (m,) linear natural parameter, P w = h
    R, Rinv : (m, m) lower Cholesky factor of P and its inverse
    w : (m,) mean
    """

    prior: AnyPrior
    P: np.ndarray
    h: np.ndarray
    R: np.ndarray = field(repr=False)
    Rinv: np.ndarray = field(repr=False)
    w: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def from_natural(cls, prior: AnyPrior, P: np.ndarray, h: np.ndarray) -> SparsePosterior | None:
        """q from its natural parameters (lower triangles of P), or None if P is not positive definite; O(C m^3)."""
        if P.ndim == 2:
            factors = cholesky_and_inverse(P)
            if factors is None:
                return None
            R, Rinv = factors
            return cls(prior, P, h, R, Rinv, Rinv.T @ (Rinv @ h))
        R, Rinv, w = np.empty_like(P), np.empty_like(P), np.empty_like(h)
        for c in range(len(P)):
            factors = cholesky_and_inverse(P[c])
            if factors is None:
                return None
            R[c], Rinv[c] = factors
            w[c] = Rinv[c].T @ (Rinv[c] @ h[c])
        return cls(prior, P, h, R, Rinv, w)

    @classmethod
    def at_prior(cls, prior: AnyPrior, n_latents: int | None = None) -> SparsePosterior:
        """q = p: P = I, h = 0; of one latent function if their number is None."""
        m = prior.n_inducing
        shape = () if n_latents is None else (n_latents,)
        identity = np.broadcast_to(np.eye(m), (*shape, m, m)).copy()
        return cls(prior, identity, np.zeros((*shape, m)), identity, identity, np.zeros((*shape, m)))

    @property
    def shape(self) -> tuple[int, ...]:
        """() for one latent function, else their number."""
        return self.w.shape[:-1]

    @property
    def n_latents(self) -> int | None:
        return len(self.w) if self.w.ndim == 2 else None

    @property
    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        return self.P, self.h

    def times_mean(self, P: np.ndarray) -> np.ndarray:
        """The linear term that a precision, as in ``natural``, has at the mean."""
        return times(P, self.w)

    def with_natural(self, P: np.ndarray, h: np.ndarray) -> SparsePosterior | None:
        """The posterior of other natural parameters under the same prior."""
        return SparsePosterior.from_natural(self.prior, P, h)

    def stacked(self) -> tuple[np.ndarray, np.ndarray]:
        """Rinv (C, m, m) and w (C, m), whatever the number of latent functions."""
        m = self.w.shape[-1]
        return self.Rinv.reshape(-1, m, m), self.w.reshape(-1, m)

    @property
    def kl(self) -> float:
        """KL(q || p) = (tr P^{-1} + w.w - m + log |P|) / 2 of all latent functions, in nats."""
        log_det = 2.0 * np.sum(np.log(np.diagonal(self.R, axis1=-2, axis2=-1)))
        return float(0.5 * (np.sum(self.Rinv**2) + self.squared_norm - self.w.size + log_det))

    @property
    def squared_norm(self) -> float:
        """w.w of all latent functions: the squared norm of the mean function."""
        return float(np.sum(self.w**2))

    def kl_to(self, p: SparsePosterior) -> float:
        """KL(q || p) of two posteriors under the same prior, in nats; O(m^3)."""
        log_det = 2.0 * np.sum(np.log(np.diagonal(p.R, axis1=-2, axis2=-1) / np.diagonal(self.R, axis1=-2, axis2=-1)))
        distance = np.swapaxes(p.R, -1, -2) @ (p.w - self.w)[..., None]
        return float(0.5 * (np.sum((self.Rinv @ p.R) ** 2) - self.w.size + np.sum(distance**2) - log_det))

    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (n,) or (C, n) of the latent functions at the rows of X (n, d); O(n (C m^2 + m d))."""
        Rinv, w = self.stacked()
        mean, variance = np.empty((2, len(w), len(X)))
        no_cache = np.empty(0)
        with BlockMap(len(X), w.shape[1], X.shape[1], n_jobs, len(w)) as blocks:
            for prior, c in self.prior.parts:

                def task(start, stop, work, prior=prior, c=c):
                    _engine.marginals_block(
                        prior.core, X, no_cache, False, start, stop, prior.Linv, Rinv[c], w[c], work, mean[c],
                        variance[c],
                    )  # fmt: skip

                for _ in blocks(task):
                    pass
        return mean.reshape(*self.shape, -1), variance.reshape(*self.shape, -1)

    def covariance_sums(self, X: np.ndarray, S: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """b.h and b^T S b (r,) at the rows of X, b = P^{-1} a, of one latent function: sums over rows i of C_i t_i and
        C_i^2 s_i, C_i = a^T P^{-1} a_i, for h = sum t_i a_i and the lower triangle of S = sum s_i a_i a_i^T."""
        b = (self.prior.core.cross(X) @ self.prior.Linv.T @ self.Rinv.T) @ self.Rinv
        return b @ h, np.einsum("ij,ij->i", b @ (np.tril(S) + np.tril(S, -1).T), b)

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (n, n) or (C, n, n) of a latent function at the rows of X.

        O(C n^2 (m + d)) time, O(C n^2) memory.
        """
        Rinv, _ = self.stacked()
        covariance = np.empty((len(Rinv), len(X), len(X)))
        for prior, part in self.prior.parts:
            a = prior.core.cross(X) @ prior.Linv.T
            here = prior.spec.at(np.asarray(X, dtype=np.float64)).cross(X)
            np.fill_diagonal(here, prior.core.diagonals(X))
            for c in range(len(Rinv))[part]:
                b = a @ Rinv[c].T
                joint = here - a @ a.T + b @ b.T
                joint = 0.5 * (joint + joint.T)
                np.fill_diagonal(joint, np.maximum(np.diag(joint), np.sum(b**2, axis=1)))
                covariance[c] = joint
        return covariance.reshape(*self.shape, len(X), len(X))
