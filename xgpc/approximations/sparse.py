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
from ..rows.block import Block
from ..rows.source import ArraySource
from ..statistics import AnySites, Contraction, EvaluatedSites, Update, gradient
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


def symmetric(lower: np.ndarray) -> np.ndarray:
    """Symmetric matrices (..., m, m), given their lower triangles with zeros above."""
    return lower + np.swapaxes(np.tril(lower, -1), -1, -2)


def times(P: np.ndarray, w: np.ndarray) -> np.ndarray:
    """P w (C, m) of symmetric matrices (C, m, m), given as for ``symmetric``."""
    return (symmetric(P) @ w[..., None])[..., 0]


@dataclass(frozen=True, eq=False)
class SparsePosterior(KernelPosterior):
    """q(z) = N(w, P^{-1}) over whitened inducing values u = L z of C independent latent functions.

    If the prior has a posterior ``earlier_q``, that takes its place in KL, norm and products by the prior's precision.
    """

    prior: Any  # InducingPrior
    P: np.ndarray  # (C, m, m) precisions, their lower triangles
    h: np.ndarray  # (C, m) linear natural parameters, P w = h
    Rinv: np.ndarray = field(repr=False)  # (C, m, m) inverses of the lower Cholesky factors of P
    w: np.ndarray = field(repr=False)  # (C, m) means
    kl: float = field(repr=False)  # KL(q || p), or that to the earlier posterior, in nats
    squared_norm: float = field(repr=False)  # of w, or of its distance from the earlier mean, by the earlier precision
    not_in_passes = ("P",)

    def in_precision(self, dtype: type) -> SparsePosterior:
        if self.prior.groups[0].dtype is dtype:
            return self
        return replace(self, prior=grouped([replace(group, dtype=dtype) for group in self.prior.groups]))

    @property
    def eta(self) -> Natural:
        return self.P, self.h

    def block_marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """O(rows (C m^2 + m d))."""
        mean, variance = _engine.marginals_block(self.prior.whitened(block, len(self.w)), self.Rinv, self.w)
        return mean, variance

    def unexplained(self, block: Block) -> np.ndarray:
        return replace(self, Rinv=np.zeros_like(self.Rinv), w=np.zeros_like(self.w)).block_marginals(block)[1]

    def update(self, block: Block, site: Site) -> Update:
        """O(rows (C m^2 + m d)) if the latent functions share a kernel, else O(rows C (m^2 + m d))."""
        whitened = self.prior.whitened(block, len(self.w))
        sites, total, curved, P, h = _engine.update_block(whitened, self.Rinv, self.w, site, block.y, block.weight)
        return EvaluatedSites._make([*sites, total]), curved, P, h

    def _by_prior(self, x: np.ndarray) -> np.ndarray:
        """The prior's precision times x."""
        return x if self.prior.earlier_q is None else times(self.prior.earlier_q.P, x)

    @cached_property
    def mean_pair(self) -> Natural:
        return self.w, self.w if self.prior.earlier_q is None else self._by_prior(self.w - self.prior.earlier_q.w)

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        return times(precision, self.w)

    def solve(self, residual: np.ndarray) -> Natural:
        step = _engine.means(self.Rinv, residual)
        return step, self._by_prior(step)

    def at_mean(self, mean: Natural) -> Self:
        """Up to rounding: the mean is P^{-1} h."""
        h = times(self.P, mean[0])
        w = _engine.means(self.Rinv, h)
        kl, squared_norm = _engine.divergence(self.Rinv, w, self.prior.earlier_q)
        return replace(self, h=h, w=w, kl=kl, squared_norm=squared_norm)

    def kl_to(self, other: Self, enough: float = np.inf) -> float:
        """O(C m^3), or O(C m^2) where the means alone make it ``enough``."""
        return _engine.divergence(self.Rinv, self.w, other, enough)[0]

    def first_order_gain(self, target: Natural, other: Self) -> float:
        """O(C m^3)."""
        return _engine.first_order_gain(self.P, self.h, self.Rinv, self.w, *target, other.Rinv, other.w)

    def gradient(self, training: Training, sites: AnySites, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        """At fixed q(u), see ``matrix_gradients`` in ``src/xgpc/_engine.pyx``; O(C n m^2 + n m d + C m^3)."""
        groups = self.prior.groups
        M, alpha, grams = _engine.matrix_gradients(groups, self.Rinv, *natural, self.w)
        crosses = training.reduce(gradient, Contraction(sites, self.prior, self.w, M, alpha))
        each = zip(groups, crosses, grams, strict=True)
        d_theta, d_Z = zip(*[prior.spec.gradient(prior.core, *sums) for prior, *sums in each], strict=True)
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
        return b @ h, np.einsum("ij,ij->i", b @ symmetric(np.tril(P)), b)


class InducingPrior(KernelPrior):
    """Latent functions by their values u = L z at inducing points: coefficients of whitened rows a = L^{-1} k_m(x)."""

    key: str  # of whitened rows in caches
    posterior_class: ClassVar[type[SparsePosterior]] = SparsePosterior

    def work(self, n_latents: int) -> float:
        core, m = self.groups[0].core, self.n_inducing
        return float(m * (n_latents * m + core.n_features))

    def whitened(self, block: Block, n_latents: int) -> list[WhitenedRows]:
        """The rows whitened by each kernel, with scratch of this thread."""
        whitened = _engine.kept_rows(block.cache, self.key, n_latents)
        if whitened is None:
            groups, X = self.groups, block.X
            m, d = groups[0].Z.shape
            work = _engine.workspace(len(X), m, d, n_latents)
            caches = block.row_caches(self.key, len(groups), len(X) * m, groups[0].dtype)
            whitened = [WhitenedRows(g.core, X, g.Linv, cache, work) for g, cache in zip(groups, caches, strict=True)]
            # Sparse rows are dense for one pass at a time.
            if X is block.matrix:
                block.cache["whitened"] = self.key, whitened
        return whitened

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> Natural:
        return _engine.statistics_block(self.whitened(block, len(linear)), precision, linear)

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        return _engine.products_block(self.whitened(block, len(w)), w)

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        return _engine.sums_block(self.whitened(block, len(values)), values)

    def gradient(self, block: Block, state: Contraction) -> list[KernelGradient]:
        """Contraction of dF/dK_nm and dF/dk_ii with each kernel's derivatives; O(rows (C m^2 + m d))."""
        whitened, sites = self.whitened(block, len(state.w)), state.sites.of(block)
        return _engine.gradient_of_block(whitened, state.M, state.alpha, state.w, sites.precision, sites.linear)

    def mini_batches(self, source: ArraySource) -> BatchRows:
        """The rows for the compiled mini-batch loop."""
        cores, Linv = zip(*((group.core, group.Linv) for group in self.groups), strict=True)
        return BatchRows(list(cores), np.stack(Linv), source.X, source.y, source.weight)

    def posterior(self, natural: Natural) -> SparsePosterior | None:
        """q from its natural parameters (lower triangles of P), or None if P is not positive definite; O(C m^3)."""
        parts = _engine.gaussian(*natural, self.earlier_q)
        return None if parts is None else self.posterior_class(self, parts[0], natural[1], *parts[1:])


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
    not_in_passes, separate = ("L", "earlier_q"), SeparateSparsePriors

    @classmethod
    def build(cls, spec: KernelSpec, Z: np.ndarray, dtype: type = np.float64) -> Self:
        """Factorise K_mm with as little jitter as it needs; O(m^3). ValueError if the largest jitter is too small."""
        if not np.all(np.isfinite(Z)):
            raise ValueError("The inducing points contain NaN or infinity.")
        core = spec.at(Z)
        factors = _engine.inducing_factors(core, JITTER, JITTER_ESCALATIONS + 1)
        if factors is None:
            raise ValueError(
                f"The covariance matrix of the inducing points is not positive definite, even with a relative jitter "
                f"of {JITTER * 10.0**JITTER_ESCALATIONS:g} on its diagonal; kernel: {spec.kernel}. Scale the features, "
                "give finite and moderate kernel parameters, or take fewer inducing points."
            )
        return cls(spec, Z, core, *factors, dtype)

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> SparsePrior:
        return self.build(specs[0], Z, self.dtype)
