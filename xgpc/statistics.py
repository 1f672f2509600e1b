"""Statistics of a block of rows for inference and learning: functions of the block and a state, with additive records.

A state is made of arrays. Of a posterior it has a ``Marginalizer``: the basis in which latent functions are linear,
f(x) = a(x) . z plus what the basis leaves of the prior, and the distribution of z. A function writes to nothing but the
block's cache, from which later calls take sites and whitened rows by the keys of a posterior, a site and a basis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ._kernels import KernelGradient
from ._sites import Site
from .rows.block import AS_EVALUATED, Block, Rescaling, Sites
from .rows.executor import Cost, give_back

# Sites that a block's cache keeps: the latest, and those that a prior was changed with, from which learning goes on if
# a step of the hyperparameters fails.
SITES, PROJECTED_SITES = "sites", "projected sites"


@dataclass
class Moments:
    """Sums over rows.

    Attributes
    ----------
    log_likelihood : float, of ell
    curved : float, of lambda v
    P : natural parameters that the precisions make: (C, m, m), lower triangles of sums of lambda a a^T, for instance
    h : (C, m), sums of r a
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

    def release(self) -> None:
        """Give the matrices back, for other blocks' sums: nobody uses them any more. See ``Executor.reduce``."""
        if self.P.ndim == 3:
            give_back(self.P)


class Basis(Protocol):
    """Latent functions of C classes as linear functions of m coefficients each.

    Attributes
    ----------
    key : str, the same for the same basis
    cost : Cost, of a pass
    """

    @property
    def key(self) -> str: ...

    @property
    def cost(self) -> Cost: ...

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and h, as in ``Moments``, of values (C, rows)."""

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        """w_c . a_i (C, rows) for w (C, m)."""

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        """Sums of values_ci a_i (C, m) for values (C, rows)."""


class Predictor(Protocol):
    """Marginals at any rows."""

    @property
    def cost(self) -> Cost: ...

    def marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (C, rows) of the latent functions."""


class Marginalizer(Predictor, Protocol):
    """Distribution of the latent functions' coefficients.

    Attributes
    ----------
    key : str, the same for the same distribution
    basis : Basis
    """

    @property
    def key(self) -> str: ...

    @property
    def basis(self) -> Basis: ...

    def update(self, block: Block, site: Site) -> tuple[Sites, np.ndarray, np.ndarray]:
        """Marginals and sites, and the sites' P and h."""


@dataclass(frozen=True)
class SitesAtPosterior:
    """The sites that the marginals of a posterior make, rescaled."""

    marginalizer: Marginalizer
    site: Site
    rescaling: Rescaling = AS_EVALUATED

    @property
    def key(self) -> tuple[str, str, Rescaling]:
        return self.marginalizer.key, self.site.key, self.rescaling

    @property
    def cost(self) -> Cost:
        return self.marginalizer.cost

    def of(self, block: Block) -> Sites:
        """From the block's cache, where it has them or others of the same posterior."""
        marginalizer, cache = self.marginalizer.key, block.cache
        sites = cache.get(SITES, marginalizer) or cache.get(PROJECTED_SITES, marginalizer)
        is_usable = sites and sites.site_key == self.site.key and sites.rescaling in (AS_EVALUATED, self.rescaling)
        if not is_usable:
            # Sites that are rescaled already would give other bits.
            marginals = (sites.mean, sites.variance) if sites else self.marginalizer.marginals(block)
            sites = block.evaluated(marginalizer, self.site, *marginals)
        if sites.rescaling != self.rescaling:
            sites = block.rescaled(sites, self.rescaling)
        cache.keep(SITES, marginalizer, sites)
        return sites


@dataclass(frozen=True)
class FixedSites:
    """Sites that are a value of their own: precision and linear (C, n) of all rows, which are not to be changed."""

    precision: np.ndarray
    linear: np.ndarray

    def of(self, block: Block) -> Sites:
        unknown = np.empty((len(self.precision), 0))
        precision, linear = (np.ascontiguousarray(part[:, block.rows]) for part in (self.precision, self.linear))
        return Sites("", "", unknown, unknown, precision, linear, math.nan)


class OnBasis:
    """A state that costs what its basis does."""

    basis: Basis

    @property
    def cost(self) -> Cost:
        return self.basis.cost


@dataclass(frozen=True)
class Projection(OnBasis):
    """Sites, and the basis to state them in; negative precisions count as zero, if ``clipped``."""

    sites: SitesAtPosterior | FixedSites
    basis: Basis
    clipped: bool = False


@dataclass(frozen=True)
class Products:
    """Sites that have a curvature across classes, and the direction w (C, m) to multiply it with."""

    sites: SitesAtPosterior
    w: np.ndarray

    @property
    def cost(self) -> Cost:
        # The cost with kept rows: a solve makes many products, and only the first makes rows.
        return Cost(2.0 * self.w.size, self.w.size)


class KernelBasis(Basis, Protocol):
    """A basis that depends on kernels and inducing points."""

    def gradient(
        self, block: Block, sites: Sites, w: np.ndarray, M: np.ndarray, alpha: np.ndarray
    ) -> list[KernelGradient]: ...

    def prior_variances(self, block: Block) -> np.ndarray: ...


@dataclass(frozen=True)
class PriorVariances(OnBasis):
    """Sites, and the basis whose prior variances they are to be multiplied with."""

    sites: SitesAtPosterior | FixedSites
    basis: KernelBasis


@dataclass(frozen=True)
class Contraction(OnBasis):
    """Sites, and what the gradient by the kernel needs of q: w (C, m), and M (C, m, m) and alpha (C, m) of
    ``_engine.matrix_gradients``."""

    sites: SitesAtPosterior | FixedSites
    basis: KernelBasis
    w: np.ndarray
    M: np.ndarray
    alpha: np.ndarray


class Gradients(list[KernelGradient]):
    """One of each kernel."""

    def __iadd__(self, others: Gradients) -> Gradients:  # type: ignore[override, misc]
        for mine, other in zip(self, others, strict=True):
            mine += other
        return self


def update(block: Block, state: SitesAtPosterior) -> Moments:
    """Marginals and sites under a posterior, not rescaled, and the natural parameters that they make."""
    sites, P, h = state.marginalizer.update(block, state.site)
    block.cache.keep(SITES, sites.marginalizer_key, sites)
    return Moments(sites.log_likelihood, float(np.vdot(sites.precision, sites.variance)), P, h)


def project_sites(block: Block, state: Projection) -> Moments:
    """Natural parameters of sites in another basis."""
    sites = state.sites.of(block)
    block.cache.keep(PROJECTED_SITES, sites.marginalizer_key, sites)
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


def curvature_product(block: Block, state: Products) -> np.ndarray:
    """Product (C, m) of a curvature across classes with a direction."""
    sites = state.sites
    basis, curvature = sites.marginalizer.basis, sites.site.record.curvature
    product = block.cache.made("curvature", sites.key, lambda: curvature(block.y, block.weight, sites.of(block)))
    return basis.sums(block, product(basis.products(block, state.w)))


def block_sites(block: Block, state: SitesAtPosterior) -> Sites:
    """The sites themselves; of all rows by ``Executor.map``."""
    return state.of(block)


def log_likelihood(block: Block, state: SitesAtPosterior) -> float:
    """Sum of ell."""
    return state.of(block).log_likelihood


def quadratic_constant(block: Block, state: SitesAtPosterior) -> float:
    """Sum of E[lambda f^2 / 2 - r f]: minus what the sites' quadratics are on average, but for their constants."""
    sites = state.of(block)
    second_moment = sites.mean**2 + sites.variance
    return float(np.vdot(0.5 * sites.precision, second_moment) - np.vdot(sites.linear, sites.mean))


def prior_curvature(block: Block, state: PriorVariances) -> float:
    """Sum of lambda k(x, x), of one latent function."""
    return float(np.vdot(state.sites.of(block).precision, state.basis.prior_variances(block)))


def marginals(block: Block, state: Predictor) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (C, rows); of all rows by ``Executor.map``."""
    return state.marginals(block)
