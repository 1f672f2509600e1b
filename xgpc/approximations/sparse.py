"""The sparse posterior: latent functions by their values at inducing points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from .. import _engine
from .._engine import WhitenedRows
from .._kernels import InducingKernel, KernelGradient
from .._natural_gradient import BatchRows
from .._sites import Site
from ..kernels.spec import KernelSpec
from ..ranges import small_is_zero
from ..rows.block import Block
from ..rows.executor import workspace
from ..rows.source import ArraySource
from ..statistics import Contraction, EvaluatedSites, FixedSites, SitesAtPosterior, gradient
from .base import (
    CovarianceForm,
    KernelPosterior,
    KernelPrior,
    Natural,
    SeparatePriors,
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


def times(P: np.ndarray, w: np.ndarray) -> np.ndarray:
    """P w (C, m) of symmetric matrices (C, m, m) of which the lower triangles are given, zeros above."""
    return ((P + np.swapaxes(np.tril(P, -1), -1, -2)) @ w[..., None])[..., 0]


def mean_of(Rinv: np.ndarray, h: np.ndarray) -> np.ndarray:
    """P^{-1} h (C, m)."""
    return (np.swapaxes(Rinv, -1, -2) @ (Rinv @ h[..., None]))[..., 0]


@dataclass(frozen=True, eq=False)
class SparsePosterior(KernelPosterior):
    """q(z) = N(w, P^{-1}) over whitened inducing values u = L z of C independent latent functions.

    If the prior has a posterior ``before``, KL, norm and products by the prior's precision are those of ``before``.
    """

    prior: Any  # InducingPrior
    P: np.ndarray  # (C, m, m) precisions, their lower triangles
    h: np.ndarray  # (C, m) linear natural parameters, P w = h
    R: np.ndarray = field(repr=False)  # (C, m, m) lower Cholesky factors of P
    Rinv: np.ndarray = field(repr=False)  # (C, m, m) their inverses
    w: np.ndarray = field(repr=False)  # (C, m) means
    not_in_passes = ("P", "R")

    def in_precision(self, dtype: type) -> SparsePosterior:
        if self.prior.groups[0].dtype is dtype:
            return self
        return replace(self, prior=grouped([replace(group, dtype=dtype) for group in self.prior.groups]))

    def whitened_arrays(self) -> dict[str, np.ndarray]:
        arrays = {"whitened_mean": self.w, "whitened_covariance": np.swapaxes(self.Rinv, 1, 2) @ self.Rinv}
        return arrays | {"whitening": np.stack([group.Linv for group in self.groups])}

    @property
    def eta(self) -> Natural:
        return self.P, self.h

    @property
    def n_latents(self) -> int:
        return len(self.w)

    def block_marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """O(rows (C m^2 + m d))."""
        parts = []
        for rows, c in self.prior.whitened(block, len(self.w)):
            parts.append(_engine.marginals_block(rows, self.Rinv[c], self.w[c]))
        mean, variance = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return mean, variance

    def unexplained(self, block: Block) -> np.ndarray:
        known = replace(self, Rinv=np.zeros_like(self.Rinv), w=np.zeros_like(self.w))
        return known.block_marginals(block)[1]

    def update(self, block: Block, site: Site) -> tuple[EvaluatedSites, np.ndarray, np.ndarray]:
        """O(rows (C m^2 + m d)) if the latent functions share a kernel, else O(rows C (m^2 + m d))."""
        whitened = self.prior.whitened(block, len(self.w))
        if len(whitened) > 1:
            return super().update(block, site)
        ((rows, _),) = whitened
        P, h = np.zeros(self.Rinv.shape), np.zeros(self.w.shape)
        values, total = _engine.update_block(rows, self.Rinv, self.w, site, block.y, block.weight, P, h)
        mean, variance, precision, linear = values
        return EvaluatedSites(mean, variance, precision, linear, total), P, h

    def _by_prior(self, x: np.ndarray) -> np.ndarray:
        """The prior's precision times x."""
        return x if self.prior.before is None else times(self.prior.before.P, x)

    @cached_property
    def mean_pair(self) -> Natural:
        return self.w, self.w if self.prior.before is None else self._by_prior(self.w - self.prior.before.w)

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        return times(precision, self.w)

    def solve(self, residual: np.ndarray) -> Natural:
        step = mean_of(self.Rinv, residual)
        return step, self._by_prior(step)

    def at_mean(self, mean: Natural) -> Self:
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
        if self.prior.before is None:
            return float(np.vdot(self.w, self.w))
        return float(np.vdot(self.w - self.prior.before.w, self.mean_pair[1]))

    def kl_to(self, other: Self) -> float:
        """O(C m^3)."""
        diagonals = np.diagonal(other.R, axis1=-2, axis2=-1), np.diagonal(self.R, axis1=-2, axis2=-1)
        log_det = 2.0 * np.sum(np.log(diagonals[0] / diagonals[1]))
        distance, product = np.swapaxes(other.R, -1, -2) @ (other.w - self.w)[..., None], self.Rinv @ other.R
        return float(0.5 * (np.vdot(product, product) - self.w.size + np.vdot(distance, distance) - log_det))

    def first_order_gain(self, target: Natural, other: Self) -> float:
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
        (P, h), w, M, alpha = natural, self.w, np.empty_like(self.Rinv), np.empty_like(self.w)
        grams, groups = [], self.prior.groups
        for g, prior in enumerate(groups):
            G = np.zeros(M.shape[1:])
            for c in range(len(w)) if len(groups) == 1 else [g]:
                G_c, M[c], alpha[c] = _engine.matrix_gradients(prior.Linv, self.Rinv[c], P[c], h[c], w[c], prior.jitter)
                G += G_c
            gram = KernelGradient.empty(prior.core)
            _engine.gradient_of_gram(prior.core, G, gram)
            grams.append(gram)
        crosses = training.reduce(gradient, Contraction(sites, self.prior, w, M, alpha))
        each = zip(groups, crosses, grams, strict=True)
        d_theta, d_Z = zip(*(prior.spec.gradient(prior.core, *sums) for prior, *sums in each), strict=True)
        return np.concatenate(d_theta), np.reshape(d_Z, self.prior.Z.shape)

    def covariance_forms(self) -> list[CovarianceForm]:
        """a = L^{-1} k: mean w.a, variance k(x, x) - |a|^2 + |R^{-1} a|^2 of each latent function; O(C m^3)."""
        each = zip(self.groups, self.Rinv, self.w, strict=True)
        return [CovarianceForm(group.core, group.Linv.T @ w, group.Linv, Rinv @ group.Linv) for group, Rinv, w in each]

    def path_deviations(self) -> np.ndarray:
        """Those of the jitter: L L^T = k(Z, Z) + jitter times its mean diagonal."""
        noise = [np.mean(np.sum(prior.L**2, axis=1)) * prior.jitter / (1.0 + prior.jitter) for prior in self.groups]
        return np.repeat(np.sqrt(noise)[:, None], self.prior.n_inducing, axis=1)

    def covariance_sums(self, X: np.ndarray, P: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """b.h and b^T P b (r,) for b = P_q^{-1} a: C_i = a^T P_q^{-1} a_i, h = sum t_i a_i, P = sum s_i a_i a_i^T."""
        (Rinv,), (P,), (h,) = self.Rinv, P, h
        b = (self.prior.core.cross(X) @ self.prior.Linv.T @ Rinv.T) @ Rinv
        return b @ h, np.einsum("ij,ij->i", b @ (np.tril(P) + np.tril(P, -1).T), b)


class InducingPrior(KernelPrior):
    """Latent functions by their values u = L z at inducing points: coefficients of whitened rows a = L^{-1} k_m(x)."""

    key: str  # of whitened rows in caches
    posterior_class: ClassVar[type[SparsePosterior]] = SparsePosterior

    def work(self, n_latents: int) -> float:
        core, m = self.groups[0].core, self.n_inducing
        return float(m * (n_latents * m + core.n_features))

    def whitened(self, block: Block, n_latents: int) -> list[tuple[WhitenedRows, slice]]:
        """The rows whitened by each kernel, and its latent functions as a slice of their axis."""
        groups, X = self.groups, block.X
        n, m = len(X), len(groups[0].Z)
        work = workspace(n, m, groups[0].core.n_features, n_latents)
        caches = block.row_caches(self.key, len(groups), n * m, groups[0].dtype)
        each = map(slice, range(n_latents), range(1, n_latents + 1)) if len(groups) > 1 else [slice(None)]
        whitened = (WhitenedRows(g.core, X, g.Linv, cache, work) for g, cache in zip(groups, caches, strict=True))
        return list(zip(whitened, each, strict=True))

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> Natural:
        C, m = len(precision), self.n_inducing
        P, h = np.zeros((C, m, m)), np.zeros((C, m))
        for rows, c in self.whitened(block, len(h)):
            _engine.statistics_block(rows, precision[c], linear[c], P[c], h[c])
        return P, h

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        return np.concatenate([_engine.products_block(rows, w[c]) for rows, c in self.whitened(block, len(w))])

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        return np.concatenate([_engine.sums_block(rows, values[c]) for rows, c in self.whitened(block, len(values))])

    def gradient(
        self, block: Block, sites: EvaluatedSites, w: np.ndarray, M: np.ndarray, alpha: np.ndarray
    ) -> list[KernelGradient]:
        """Contraction of dF/dK_nm and dF/dk_ii with each kernel's derivatives; O(rows (C m^2 + m d))."""
        totals = [KernelGradient.empty(group.core) for group in self.groups]
        for total, (rows, c) in zip(totals, self.whitened(block, len(w)), strict=True):
            _engine.gradient_of_block(rows, M[c], alpha[c], w[c], sites.precision[c], sites.linear[c], total)
        return totals

    def mini_batches(self, source: ArraySource) -> BatchRows:
        """The rows for the compiled mini-batch loop."""
        cores, Linv = zip(*((group.core, group.Linv) for group in self.groups), strict=True)
        return BatchRows(list(cores), np.stack(Linv), source.X, source.y, source.weight, np.arange(source.n_rows))

    def posterior(self, natural: Natural) -> SparsePosterior | None:
        """q from its natural parameters (lower triangles of P), or None if P is not positive definite; O(C m^3)."""
        P, h = natural
        factors = _engine.cholesky_and_inverse(P)
        if factors is None:
            return None
        R, Rinv = factors
        return self.posterior_class(self, _engine.lower_triangles(P), h, R, Rinv, mean_of(Rinv, h))

    def separate(self, members: tuple[KernelPrior, ...]) -> SeparateSparsePriors:
        return SeparateSparsePriors(members)


class SeparateSparsePriors(SeparatePriors, InducingPrior):
    """Inducing points of a kernel for each latent function."""


@dataclass(frozen=True, eq=False)
class SparsePrior(InducingPrior):
    """p(u) = N(0, K_mm) at the inducing points, K_mm = k(Z, Z) + jitter I = L L^T, of all latent functions."""

    spec: KernelSpec
    Z: np.ndarray  # (m, d) inducing points
    core: InducingKernel  # the compiled kernel at Z
    L: np.ndarray  # (m, m), lower triangle
    Linv: np.ndarray  # (m, m), lower triangle
    jitter: float  # relative to the mean diagonal of k(Z, Z)
    dtype: type = np.float64  # of whitened rows, of their products with R^{-1}, and of sums of a tile's outer products
    key: str = field(default_factory=new_key, init=False, repr=False)
    not_in_passes = ("L", "before")

    @classmethod
    def build(cls, spec: KernelSpec, Z: np.ndarray, dtype: type = np.float64) -> Self:
        """Factorise K_mm with as little jitter as it needs; O(m^3). ValueError if the largest jitter is too small."""
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
        return self.build(specs[0], Z, self.dtype)
