"""Statistics of a block of rows: functions of the block and a state, whose results (records) can be added.

A state has the posterior of latent functions, or a prior: f(x) = a(x) . z plus a residual of the prior, with
coefficients z. A function changes nothing but the block's cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from . import _sites
from ._sites import Site, parameter_gradient
from .likelihoods.curvature import Product
from .rows.block import Block

# Kinds of sites in a block's cache: the latest, and those that were last projected to another prior, from which
# learning continues if a step of the hyperparameters fails.
SITES, PROJECTED_SITES = "sites", "projected sites"


class Rescaling(NamedTuple):
    """Change of sites with the label noise: precision, linear and ell times ``factor``, then ell plus ``offset``."""

    factor: float = 1.0
    offset: float = 0.0


AS_EVALUATED = Rescaling()


class EvaluatedSites(NamedTuple):
    """Marginals of C latent functions at the rows of a block, and their sites: (C, rows) each.

    Attributes
    ----------
    log_likelihood : float, sum of ell in nats
    """

    mean: np.ndarray
    variance: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    log_likelihood: float


def evaluated(block: Block, site: Site, mean: np.ndarray, variance: np.ndarray) -> EvaluatedSites:
    """Sites from marginals (C, rows)."""
    _, precision, linear, total = _sites.sites(site, mean, variance, block.y, block.weight)
    return EvaluatedSites(mean, variance, precision, linear, total)


# Sites at a posterior's marginals, the sum of lambda v, and the sites' P and h
Update = tuple[EvaluatedSites, float, np.ndarray, np.ndarray]


class Sums(list[Any]):
    """Numbers, arrays and ``KernelGradient``s, which are added one by one."""

    def __iadd__(self, others: Sums) -> Sums:  # type: ignore[override, misc]
        for i, other in enumerate(others):
            self[i] += other
        return self


class ForWorkers:
    """A state that is pickled without what no pass reads of its posterior and its priors."""

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(value, "for_passes", value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class SitesAtPosterior(ForWorkers):
    """The sites at the marginals of a posterior, rescaled."""

    q: Any  # KernelPosterior of ``approximations.base``, or its ``anywhere``; a cache compares posteriors by identity
    site: Site
    rescaling: Rescaling = AS_EVALUATED

    @property
    def work(self) -> float:
        return self.q.work

    @property
    def n_latents(self) -> int:
        return self.q.n_latents

    def of(self, block: Block, kind: str = SITES) -> EvaluatedSites:
        """The sites of a block, from cached sites at this posterior or their marginals, if any; kept as a ``kind``."""
        kept = block.cache.at(SITES, self.q) or block.cache.at(PROJECTED_SITES, self.q)
        wanted, as_evaluated = (self.site.key, self.rescaling), (self.site.key, AS_EVALUATED)
        # Rescaling sites that are already rescaled would give other bits.
        if kept and kept[0] in (wanted, as_evaluated):
            key, sites = kept
        else:
            marginals = (kept[1].mean, kept[1].variance) if kept else self.q.block_marginals(block)
            key, sites = as_evaluated, evaluated(block, self.site, *marginals)
        if key != wanted:
            mean, variance, precision, linear, total = sites
            factor, offset = self.rescaling
            total = factor * total + offset * float(np.sum(block.weight))
            sites = EvaluatedSites(mean, variance, factor * precision, factor * linear, total)
        for name in {SITES, kind}:
            block.cache[name] = self.q, (wanted, sites)
        return sites


@dataclass(frozen=True)
class FirstSites:
    """The sites at a standard normal latent value of each row, of one latent function; they are not cached."""

    site: Site
    n_latents: int = 1

    def of(self, block: Block, kind: str = SITES) -> EvaluatedSites:
        return evaluated(block, self.site, np.zeros((1, len(block))), np.ones((1, len(block))))


@dataclass(frozen=True)
class FixedSites:
    """Sites with given precisions and linear terms (C, n) of all rows."""

    precision: np.ndarray
    linear: np.ndarray

    @property
    def n_latents(self) -> int:
        return len(self.precision)

    def of(self, block: Block, kind: str = SITES) -> EvaluatedSites:
        unknown = np.empty((len(self.precision), 0))
        precision, linear = (np.ascontiguousarray(part[:, block.rows]) for part in (self.precision, self.linear))
        return EvaluatedSites(unknown, unknown, precision, linear, math.nan)


# What gives the sites of a block.
AnySites = SitesAtPosterior | FirstSites | FixedSites


@dataclass(frozen=True)
class Projection(ForWorkers):
    """Sites and the prior that they are projected to; with ``clipped``, negative precisions become zero."""

    sites: AnySites
    prior: Any  # Prior
    clipped: bool = field(default=False, kw_only=True)

    @property
    def work(self) -> float:
        return self.prior.work(self.sites.n_latents)


@dataclass(frozen=True)
class Contraction(Projection):
    """Sites, and the terms of q in the kernel's gradient: w (C, m), and M and alpha of ``_engine.matrix_gradients``."""

    w: np.ndarray
    M: np.ndarray
    alpha: np.ndarray


@dataclass(frozen=True)
class Products:
    """Sites whose curvature couples the classes, and the direction w (C, m) to multiply it with."""

    sites: SitesAtPosterior
    w: np.ndarray

    @property
    def work(self) -> float:
        # A solve makes many products, and only the first one computes whitened rows.
        return 2.0 * self.w.size


def update_sums(block: Block, state: SitesAtPosterior) -> Sums:
    """Sums of ell and of lambda v of the sites at a posterior, not rescaled, and what they add to P and h."""
    sites, *sums = state.q.update(block, state.site)
    block.cache[SITES] = state.q, ((state.site.key, AS_EVALUATED), sites)
    return Sums([sites.log_likelihood, *sums])


def project_sites(block: Block, state: Projection) -> Sums:
    """What sites add to P and h under a prior."""
    sites = state.sites.of(block, PROJECTED_SITES)
    precision, linear = sites.precision, sites.linear
    if state.clipped:
        excess = np.minimum(precision, 0.0)
        linear, precision = linear - excess * sites.mean, precision - excess
    return Sums(state.prior.moments(block, precision, linear))


def gradient(block: Block, state: Contraction) -> Sums:
    """Contraction of dF/dK_nm and dF/dk_ii with each kernel's derivatives."""
    return Sums(state.prior.gradient(block, state))


def mean_gradient(block: Block, state: SitesAtPosterior) -> np.ndarray:
    """Gradient (C, m) of the sum of ell by the mean of the coefficients."""
    sites = state.of(block)
    return state.q.prior.sums(block, sites.linear - sites.precision * sites.mean)


def gradient_by_parameter(block: Block, state: SitesAtPosterior) -> np.ndarray:
    """Gradient of the sum of ell by the likelihood's parameter: cut points, or guess and lapse rate."""
    sites = state.of(block)
    return parameter_gradient(state.site, sites.mean, sites.variance, block.y, block.weight)


def curvature_product(block: Block, state: Products) -> np.ndarray:
    """Product (C, m) of the curvature that couples the classes with a direction."""
    sites = state.sites
    prior, curvature = sites.q.prior, sites.site.record.curvature

    def multiplier() -> Product:
        of_block = sites.of(block)
        slope = of_block.linear - of_block.precision * of_block.mean
        return curvature(block.y, block.weight, slope, of_block.precision)

    product = block.cache.made("curvature", (sites.q, sites.site.key, sites.rescaling), multiplier)
    return prior.sums(block, product(prior.products(block, state.w)))


def log_likelihood(block: Block, state: SitesAtPosterior) -> float:
    """Sum of ell."""
    return state.of(block).log_likelihood


def quadratic_constant(block: Block, state: SitesAtPosterior) -> float:
    """Sum of E[lambda f^2 / 2 - r f]: minus the sites' expected quadratics without their constants."""
    sites = state.of(block)
    return float(np.vdot(0.5 * sites.precision, sites.mean**2 + sites.variance) - np.vdot(sites.linear, sites.mean))


def prior_curvature(block: Block, state: Projection) -> float:
    """Sum of lambda k(x, x) of one latent function."""
    return float(np.vdot(state.sites.of(block).precision, state.prior.core.diagonals(block.X)))
