"""Statistics of a block of rows: functions of the block and a state, with additive records.

Of a posterior, a state has a ``Marginalizer``: a basis in which latent functions are linear, f(x) = a(x) . z plus a
residual of the prior, and the distribution of z. A function changes nothing but the block's cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ._kernels import InducingKernel, KernelGradient
from ._sites import Site, parameter_gradient
from .rows.block import AS_EVALUATED, Block, Rescaling, Sites
from .rows.executor import Cost

# Kinds of sites in a block's cache: the latest, and those that were last projected to another prior, from which
# learning continues if a step of the hyperparameters fails.
SITES, PROJECTED_SITES = "sites", "projected sites"


@dataclass
class Moments:
    """Sums over rows: of ell and of lambda v, and the sites' contribution to the natural parameters.

    With inducing points, P has the lower triangles (C, m, m) of the sums of lambda a a^T, and h (C, m) the sums of r a.
    """

    log_likelihood: float
    curved: float
    P: np.ndarray
    h: np.ndarray

    def __iadd__(self, other: Moments) -> Moments:
        self.log_likelihood += other.log_likelihood
        self.curved += other.curved
        self.P += other.P
        self.h += other.h
        return self


class Basis(Protocol):
    """C latent functions as linear functions of m coefficients each."""

    @property
    def cost(self) -> Cost:
        """Cost of a pass."""

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and h of ``Moments`` for sites (C, rows)."""

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        """w_c . a_i (C, rows) for w (C, m)."""

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        """Sums of values_ci a_i (C, m) for values (C, rows)."""


class KernelBasis(Basis, Protocol):
    """A basis that depends on kernels and inducing points."""

    @property
    def parts(self) -> tuple[tuple[InducingKernel, np.ndarray, slice], ...]:
        """For each kernel its compiled form, L^{-1}, and its latent functions."""

    def gradient(
        self, block: Block, sites: Sites, w: np.ndarray, M: np.ndarray, alpha: np.ndarray
    ) -> list[KernelGradient]: ...


class Predictor(Protocol):
    """Marginals at any rows."""

    @property
    def cost(self) -> Cost: ...

    def marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (C, rows) of the latent functions."""


class Marginalizer(Predictor, Protocol):
    """Distribution of the coefficients; a cache compares marginalizers by identity."""

    @property
    def basis(self) -> Basis: ...

    def update(self, block: Block, site: Site) -> tuple[Sites, np.ndarray, np.ndarray]:
        """Marginals with their sites, and the sites' P and h."""


@dataclass(frozen=True)
class SitesAtPosterior:
    """The sites at the marginals of a posterior, rescaled."""

    marginalizer: Marginalizer
    site: Site
    rescaling: Rescaling = AS_EVALUATED

    @property
    def key(self) -> tuple[str, Rescaling]:
        return self.site.key, self.rescaling

    @property
    def cost(self) -> Cost:
        return self.marginalizer.cost

    def of(self, block: Block, kind: str = SITES) -> Sites:
        """The sites of a block, from its cache if that has them or others at the same posterior; kept as a ``kind``."""
        found = block.cache.get(SITES, self.marginalizer) or block.cache.get(PROJECTED_SITES, self.marginalizer)
        as_evaluated = self.site.key, AS_EVALUATED
        # Rescaling sites that are already rescaled would give other bits.
        if found and found[0] in (self.key, as_evaluated):
            key, sites = found
        else:
            marginals = (found[1].mean, found[1].variance) if found else self.marginalizer.marginals(block)
            key, sites = as_evaluated, block.evaluated(self.site, *marginals)
        if key != self.key:
            sites = block.rescaled(sites, self.rescaling)
        for name in {SITES, kind}:
            block.cache.keep(name, self.marginalizer, (self.key, sites))
        return sites


@dataclass(frozen=True)
class FixedSites:
    """Sites with given precisions and linear terms (C, n) of all rows."""

    precision: np.ndarray
    linear: np.ndarray

    def of(self, block: Block, kind: str = SITES) -> Sites:
        unknown = np.empty((len(self.precision), 0))
        precision, linear = (np.ascontiguousarray(part[:, block.rows]) for part in (self.precision, self.linear))
        return Sites(unknown, unknown, precision, linear, math.nan)


@dataclass(frozen=True)
class OnBasis:
    """Sites and a basis."""

    sites: SitesAtPosterior | FixedSites
    basis: Basis

    @property
    def cost(self) -> Cost:
        return self.basis.cost


@dataclass(frozen=True)
class Projection(OnBasis):
    """Sites and the basis that they are projected to; with ``clipped``, negative precisions become zero."""

    clipped: bool = False


@dataclass(frozen=True)
class PriorVariances(OnBasis):
    """Sites, and the basis whose prior variances multiply their precisions."""

    basis: KernelBasis


@dataclass(frozen=True)
class Contraction(OnBasis):
    """Sites, and the terms of q in the kernel's gradient: w (C, m), and M and alpha of ``_engine.matrix_gradients``."""

    basis: KernelBasis
    w: np.ndarray
    M: np.ndarray
    alpha: np.ndarray


@dataclass(frozen=True)
class Products:
    """Sites whose curvature couples the classes, and the direction w (C, m) to multiply it with."""

    sites: SitesAtPosterior
    w: np.ndarray

    @property
    def cost(self) -> Cost:
        # A solve makes many products, and only the first one computes whitened rows.
        return Cost(2.0 * self.w.size, self.w.size)


class Gradients(list[KernelGradient]):
    """Gradients of all kernels."""

    def __iadd__(self, others: Gradients) -> Gradients:  # type: ignore[override, misc]
        for mine, other in zip(self, others, strict=True):
            mine += other
        return self


def update_sums(block: Block, state: SitesAtPosterior) -> Moments:
    """Marginals and sites at a posterior, not rescaled, and the sites' natural parameters."""
    sites, P, h = state.marginalizer.update(block, state.site)
    block.cache.keep(SITES, state.marginalizer, ((state.site.key, AS_EVALUATED), sites))
    return Moments(sites.log_likelihood, float(np.vdot(sites.precision, sites.variance)), P, h)


def project_sites(block: Block, state: Projection) -> Moments:
    """Natural parameters of sites in a basis."""
    sites = state.sites.of(block, PROJECTED_SITES)
    precision, linear = sites.precision, sites.linear
    if state.clipped:
        excess = np.minimum(precision, 0.0)
        linear, precision = linear - excess * sites.mean, precision - excess
    return Moments(0.0, 0.0, *state.basis.moments(block, precision, linear))


def gradient(block: Block, state: Contraction) -> Gradients:
    """Contraction of dF/dK_nm and dF/dk_ii with each kernel's derivatives."""
    return Gradients(state.basis.gradient(block, state.sites.of(block), state.w, state.M, state.alpha))


def mean_gradient(block: Block, state: SitesAtPosterior) -> np.ndarray:
    """Gradient (C, m) of the sum of ell by the mean of the coefficients."""
    sites = state.of(block)
    return state.marginalizer.basis.sums(block, sites.linear - sites.precision * sites.mean)


def gradient_by_parameter(block: Block, state: SitesAtPosterior) -> np.ndarray:
    """Gradient of the sum of ell by the likelihood's parameter: cut points, or guess and lapse rate."""
    sites = state.of(block)
    return parameter_gradient(state.site, sites.mean, sites.variance, block.y, block.weight)


def curvature_product(block: Block, state: Products) -> np.ndarray:
    """Product (C, m) of the curvature that couples the classes with a direction."""
    sites = state.sites
    basis, curvature = sites.marginalizer.basis, sites.site.record.curvature
    key = sites.marginalizer, sites.key
    product = block.cache.made("curvature", key, lambda: curvature(block.y, block.weight, sites.of(block)))
    return basis.sums(block, product(basis.products(block, state.w)))


def block_sites(block: Block, state: SitesAtPosterior) -> Sites:
    """The sites; ``Executor.map`` gives them for all rows."""
    return state.of(block)


def log_likelihood(block: Block, state: SitesAtPosterior) -> float:
    """Sum of ell."""
    return state.of(block).log_likelihood


def quadratic_constant(block: Block, state: SitesAtPosterior) -> float:
    """Sum of E[lambda f^2 / 2 - r f]: minus the sites' expected quadratics without their constants."""
    sites = state.of(block)
    second_moment = sites.mean**2 + sites.variance
    return float(np.vdot(0.5 * sites.precision, second_moment) - np.vdot(sites.linear, sites.mean))


def prior_curvature(block: Block, state: PriorVariances) -> float:
    """Sum of lambda k(x, x) of one latent function."""
    return float(np.vdot(state.sites.of(block).precision, state.basis.parts[0][0].diagonals(block.X)))


def marginals(block: Block, state: Predictor) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (C, rows); ``Executor.map`` gives them for all rows."""
    return state.marginals(block)
