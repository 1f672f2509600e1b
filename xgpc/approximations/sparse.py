"""The sparse posterior: latent functions by their values at inducing points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from .. import _engine
from .._engine import WhitenedRows
from .._kernels import InducingKernel, KernelGradient
from .._sites import Site
from .._svi import BatchRows
from ..kernels.spec import KernelSpec
from ..ranges import small_is_zero
from ..rows.block import Block, Sites
from ..rows.executor import Cost, workspace
from ..rows.source import Picked
from ..statistics import Contraction, FixedSites, SitesAtPosterior, gradient
from .base import (
    CovarianceForm,
    KernelPosterior,
    KernelPrior,
    Natural,
    Training,
    grouped,
    new_key,
)

# Relative to the mean diagonal of k(Z, Z): the Cholesky factorisation of a smooth kernel's matrix succeeds in float64
# with room to spare. If it fails, the jitter grows tenfold, at most so often.
JITTER = 1e-6
JITTER_ESCALATIONS = 5
# The types of whitened rows by what the parameter ``precision`` calls them.
PRECISIONS: dict[str, type] = {"double": np.float64, "mixed": np.float32}


@dataclass(frozen=True, eq=False)
class InducingBasis:
    """Whitened rows a = L^{-1} k_m(x), of one kernel for all latent functions or of one for each."""

    key: str
    # For each kernel its compiled form, L^{-1} (m, m), and its latent functions as a slice of their axis.
    parts: tuple[tuple[InducingKernel, np.ndarray, slice], ...]
    n_latents: int  # C
    dtype: type  # of whitened rows, of their products with R^{-1}, and of the sums of a tile's outer products

    @property
    def cost(self) -> Cost:
        core, _, _ = self.parts[0]
        m = core.n_inducing
        return Cost(m * (self.n_latents * m + core.n_features), self.n_latents * m**2)

    def rows(self, block: Block) -> list[tuple[WhitenedRows, slice]]:
        """The rows whitened by each kernel, and its latent functions."""
        core, _, _ = self.parts[0]
        n, m, X = len(block), core.n_inducing, block.X
        work = workspace(n, m, core.n_features, self.n_latents)
        caches = block.row_caches(self.key, len(self.parts), n * m, self.dtype)
        return [
            (WhitenedRows(core, X, Linv, cache, work), c)
            for (core, Linv, c), cache in zip(self.parts, caches, strict=True)
        ]

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> Natural:
        P, h = zero_moments(self.n_latents, self.parts[0][0].n_inducing)
        for rows, c in self.rows(block):
            _engine.statistics_block(rows, precision[c], linear[c], P[c], h[c])
        return P, h

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        return np.concatenate([_engine.products_block(rows, w[c]) for rows, c in self.rows(block)])

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        return np.concatenate([_engine.sums_block(rows, values[c]) for rows, c in self.rows(block)])

    def gradient(
        self, block: Block, sites: Sites, w: np.ndarray, M: np.ndarray, alpha: np.ndarray
    ) -> list[KernelGradient]:
        """Contraction of dF/dK_nm and dF/dk_ii with each kernel's derivatives; O(rows (C m^2 + m d))."""
        totals = [KernelGradient.empty(core) for core, _, _ in self.parts]
        for total, (rows, c) in zip(totals, self.rows(block), strict=True):
            _engine.gradient_of_block(rows, M[c], alpha[c], w[c], sites.precision[c], sites.linear[c], total)
        return totals

    def mini_batches(self, picked: Picked) -> BatchRows:
        """The rows for the compiled mini-batch loop."""
        return BatchRows([core for core, *_ in self.parts], np.stack([Linv for _, Linv, _ in self.parts]), *picked)


def zero_moments(n_latents: int, m: int) -> Natural:
    """P (C, m, m) and h (C, m) for compiled functions to write."""
    return np.zeros((n_latents, m, m)), np.zeros((n_latents, m))


@dataclass(frozen=True, eq=False)
class GaussianMarginalizer:
    """Coefficients z_c ~ N(w_c, P_c^{-1}), independent."""

    basis: Any  # InducingBasis or LinearBasis, in which they are coefficients
    Rinv: np.ndarray  # (C, m, m) inverse Cholesky factors of P
    w: np.ndarray  # (C, m)

    @property
    def cost(self) -> Cost:
        return self.basis.cost

    def marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """O(rows (C m^2 + m d))."""
        found = [_engine.marginals_block(rows, self.Rinv[c], self.w[c]) for rows, c in self.basis.rows(block)]
        mean, variance = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
        return mean, variance

    def update(self, block: Block, site: Site) -> tuple[Sites, np.ndarray, np.ndarray]:
        """O(rows (C m^2 + m d)) if the latent functions share a kernel, else O(rows C (m^2 + m d))."""
        (rows, _), *others = self.basis.rows(block)
        if others:
            sites = block.evaluated(site, *self.marginals(block))
            return sites, *self.basis.moments(block, sites.precision, sites.linear)
        P, h = zero_moments(*self.w.shape)
        values, total = _engine.update_block(rows, self.Rinv, self.w, site, block.y, block.weight, P, h)
        mean, variance, precision, linear = values
        return Sites(mean, variance, precision, linear, total), P, h


@dataclass(frozen=True, eq=False)
class SparsePrior(KernelPrior):
    """p(u) = N(0, K_mm) at the inducing points, K_mm = k(Z, Z) + jitter I = L L^T, of all latent functions."""

    spec: KernelSpec
    Z: np.ndarray  # (m, d) inducing points
    core: InducingKernel  # the compiled kernel at Z
    L: np.ndarray  # (m, m), lower triangle
    Linv: np.ndarray  # (m, m), lower triangle
    jitter: float  # relative to the mean diagonal of k(Z, Z)
    dtype: type = np.float64  # of whitened rows, see ``InducingBasis``
    key: str = field(default_factory=new_key, init=False, repr=False)

    @classmethod
    def build(cls, spec: KernelSpec, Z: np.ndarray, dtype: type = np.float64) -> Self:
        """Factorise K_mm, with as little jitter as it takes; O(m^3). ValueError if even the largest is too little."""
        if not np.all(np.isfinite(Z)):
            raise ValueError("The inducing points contain NaN or infinity.")
        core = spec.at(Z)
        gram = core.cross(Z)
        gram = 0.5 * (gram + gram.T)
        diagonal = np.diag(gram).copy()
        for escalation in range(JITTER_ESCALATIONS + 1):
            jitter = JITTER * 10.0**escalation
            np.fill_diagonal(gram, diagonal + jitter * np.mean(diagonal))
            factors = _engine.cholesky_and_inverse(gram)
            if factors is not None:
                return cls(spec, Z, core, *factors, jitter, dtype)
        raise ValueError(
            f"The covariance matrix of the inducing points is not positive definite, even with a relative jitter of "
            f"{jitter:g} on its diagonal; kernel: {spec.kernel}. Scale the features, give finite and moderate kernel "
            "parameters, or take fewer inducing points."
        )

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> SparsePrior:
        return SparsePrior.build(specs[0], Z, self.dtype)

    def basis_of(self, prior: KernelPrior, n_latents: int | None) -> InducingBasis:
        groups = prior.groups
        each = [slice(c, c + 1) for c in range(len(groups))] if len(groups) > 1 else [slice(None)]
        parts = [(group.core, group.Linv, c) for group, c in zip(groups, each, strict=True)]
        return InducingBasis(prior.key, tuple(parts), n_latents or 1, self.dtype)

    def posterior_of(self, prior: KernelPrior, natural: Natural) -> SparsePosterior | None:
        return SparsePosterior.from_natural(prior, *natural)


def times(P: np.ndarray, w: np.ndarray) -> np.ndarray:
    """P w of symmetric (m, m) or (C, m, m) matrices of which the lower triangles are given, zeros above."""
    return ((P + np.swapaxes(np.tril(P, -1), -1, -2)) @ w[..., None])[..., 0]


def mean_of(Rinv: np.ndarray, h: np.ndarray) -> np.ndarray:
    """P^{-1} h (m,) or (C, m)."""
    return (np.swapaxes(Rinv, -1, -2) @ (Rinv @ h[..., None]))[..., 0]


@dataclass(frozen=True, eq=False)
class SparsePosterior(KernelPosterior):
    """q(z) = N(w, P^{-1}) over whitened inducing values u = L z, of one latent function or of C independent ones.

    If the prior has a posterior ``before``, KL, norm and products by the prior's precision are those of ``before``.
    """

    prior: Any  # SparsePrior, SeparatePriors of them, or another prior of whitened coefficients
    P: np.ndarray  # (m, m) precision, its lower triangle; (C, m, m) for C latent functions, and so on
    h: np.ndarray  # (m,) linear natural parameter, P w = h
    R: np.ndarray = field(repr=False)  # (m, m) lower Cholesky factor of P
    Rinv: np.ndarray = field(repr=False)  # (m, m) its inverse
    w: np.ndarray = field(repr=False)  # (m,) mean

    @classmethod
    def from_natural(cls, prior: KernelPrior, P: np.ndarray, h: np.ndarray) -> Self | None:
        """q from its natural parameters (lower triangles of P), or None if P is not positive definite; O(C m^3)."""
        factors = _engine.cholesky_and_inverse(P)
        if factors is None:
            return None
        R, Rinv = factors
        return cls(prior, _engine.lower_triangles(P), h, R, Rinv, mean_of(Rinv, h))

    def in_precision(self, dtype: type) -> SparsePosterior:
        """The same distribution, with whitened rows of a type."""
        if self.prior.groups[0].dtype is dtype:
            return self
        return replace(self, prior=grouped([replace(group, dtype=dtype) for group in self.prior.groups]))

    @property
    def natural(self) -> Natural:
        return self.P, self.h

    @cached_property
    def basis(self) -> Any:
        return self.prior.basis(self.n_latents)

    @cached_property
    def marginalizer(self) -> GaussianMarginalizer:
        return GaussianMarginalizer(self.basis, *self.stacked())

    def stacked(self) -> tuple[np.ndarray, np.ndarray]:
        """Rinv (C, m, m) and w (C, m), whatever the number of latent functions."""
        m = self.w.shape[-1]
        return self.Rinv.reshape(-1, m, m), self.w.reshape(-1, m)

    def _by_prior(self, x: np.ndarray) -> np.ndarray:
        """The prior's precision times x."""
        return x if self.prior.before is None else times(self.prior.before.P, x)

    @property
    def mean_pair(self) -> Natural:
        return self.w, self.w if self.prior.before is None else self._by_prior(self.w - self.prior.before.w)

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        return times(precision, self.w)

    def solve(self, residual: np.ndarray) -> Natural:
        step = mean_of(self.Rinv, residual)
        return step, self._by_prior(step)

    def at_mean(self, mean: Natural) -> SparsePosterior:
        """Up to rounding: the mean is P^{-1} h."""
        h = times(self.P, mean[0])
        return replace(self, h=h, w=mean_of(self.Rinv, h))

    @cached_property
    @small_is_zero
    def kl(self) -> float:
        """KL(q || p) = (tr P^{-1} + w.w - m + log |P|) / 2 of all latent functions, or the KL to ``before``."""
        if self.prior.before is not None:
            return self.kl_to(self.prior.before)
        log_det = 2.0 * np.sum(np.log(np.diagonal(self.R, axis1=-2, axis2=-1)))
        return 0.5 * (float(np.vdot(self.Rinv, self.Rinv) + log_det) + self.squared_norm - self.w.size)

    @cached_property
    def squared_norm(self) -> float:
        before = self.prior.before
        return float(np.vdot(self.w if before is None else self.w - before.w, self.mean_pair[1]))

    def kl_to(self, other: SparsePosterior) -> float:
        """O(C m^3)."""
        diagonals = np.diagonal(other.R, axis1=-2, axis2=-1), np.diagonal(self.R, axis1=-2, axis2=-1)
        log_det = 2.0 * np.sum(np.log(diagonals[0] / diagonals[1]))
        distance, product = np.swapaxes(other.R, -1, -2) @ (other.w - self.w)[..., None], self.Rinv @ other.R
        return float(0.5 * (np.vdot(product, product) - self.w.size + np.vdot(distance, distance) - log_det))

    def first_order_gain(self, target: Natural, other: SparsePosterior) -> float:
        """O(C m^3)."""
        missing = target[0] - self.P
        missing = missing + np.swapaxes(np.tril(missing, -1), -1, -2)
        by_mean = target[1] - self.h - (missing @ self.w[..., None])[..., 0]
        narrowed = [float(np.sum((q.Rinv @ missing) * q.Rinv)) for q in (self, other)]
        return float(np.sum(by_mean * (other.w - self.w))) + 0.5 * (narrowed[0] - narrowed[1])

    def gradient(
        self, training: Training, sites: SitesAtPosterior | FixedSites, natural: Natural
    ) -> tuple[np.ndarray, np.ndarray]:
        """At fixed q(u), see ``matrix_gradients`` in ``src/xgpc/_engine.pyx``; O(C n m^2 + n m d + C m^3)."""
        Rinv, w = self.stacked()
        P, h = natural[0].reshape(Rinv.shape), natural[1].reshape(w.shape)
        M, alpha = np.empty_like(Rinv), np.empty_like(w)
        grams = []
        basis = self.basis
        for prior, (_, _, part) in zip(self.prior.groups, basis.parts, strict=True):
            G = np.zeros(Rinv.shape[1:])
            for c in range(len(w))[part]:
                G_c, M[c], alpha[c] = _engine.matrix_gradients(prior.Linv, Rinv[c], P[c], h[c], w[c], prior.jitter)
                G += G_c
            gram = KernelGradient.empty(prior.core)
            _engine.gradient_of_gram(prior.core, G, gram)
            grams.append(gram)
        crosses = training.reduce(gradient, Contraction(sites, basis, w, M, alpha))
        each = zip(self.prior.groups, crosses, grams, strict=True)
        d_theta, d_Z = zip(*(prior.spec.gradient(prior.core, *sums) for prior, *sums in each), strict=True)
        return np.concatenate(d_theta), np.reshape(d_Z, self.prior.Z.shape)

    def covariance_forms(self) -> list[CovarianceForm]:
        """a = L^{-1} k: mean w.a, variance k(x, x) - |a|^2 + |R^{-1} a|^2 of each latent function; O(C m^3)."""
        each = zip(self.groups, *self.stacked(), strict=True)
        return [CovarianceForm(group.core, group.Linv.T @ w, group.Linv, Rinv @ group.Linv) for group, Rinv, w in each]

    def path_deviations(self) -> np.ndarray:
        """That of the jitter: L L^T = k(Z, Z) + jitter times its mean diagonal."""
        noise = [np.mean(np.sum(prior.L**2, axis=1)) * prior.jitter / (1.0 + prior.jitter) for prior in self.groups]
        return np.repeat(np.sqrt(noise)[:, None], self.prior.n_inducing, axis=1)

    def covariance_sums(self, X: np.ndarray, P: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """b.h and b^T P b (r,) for b = P_q^{-1} a: C_i = a^T P_q^{-1} a_i, h = sum t_i a_i, P = sum s_i a_i a_i^T."""
        b = (self.prior.core.cross(X) @ self.prior.Linv.T @ self.Rinv.T) @ self.Rinv
        return b @ h, np.einsum("ij,ij->i", b @ (np.tril(P) + np.tril(P, -1).T), b)
