"""The posterior of rows that are gone as the prior of rows that come: variational Bayes, one batch after the other.

q(z) = N(w_0, P_0^{-1}) of the rows that are gone is what p(z) = N(0, I) is without any. Sites of new rows add to its
natural parameters (P_0, h_0); the bound of new rows is sum E_q[log p(y | f)] - KL(q || q_0), and its gradients by the
mean are those of a prior with precision P_0 and mean w_0.

References
----------
Broderick, Boyd, Wibisono, Wilson, Jordan. Streaming variational Bayes. NIPS 2013, equation (4).
Bui, Nguyen, Turner. Streaming sparse Gaussian process approximations. NIPS 2017, section 3; with inducing points that
move. Here they stay, or more are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..kernels.spec import KernelSpec
from ..statistics import Basis
from .base import Grouped, KernelPrior, Natural, new_key
from .sparse import SparsePosterior, times


@dataclass(frozen=True, eq=False)
class ConditionedPosterior(SparsePosterior):
    """q(z) of the new rows and those before: KL, norm and products by the prior's precision are those of q_0."""

    @property
    def before(self) -> SparsePosterior:
        """q_0."""
        return self.prior.before

    @cached_property
    def kl(self) -> float:
        """KL(q || q_0) in nats; O(C m^3)."""
        return self.kl_to(self.before)

    @cached_property
    def squared_norm(self) -> float:
        """(w - w_0)^T P_0 (w - w_0)."""
        return float(np.sum((self.w - self.before.w) * self.mean_pair[1]))

    @property
    def mean_pair(self) -> Natural:
        """w, and P_0 (w - w_0): minus the gradient of log q_0 at the mean."""
        return self.w, times(self.before.P, self.w - self.before.w)

    def solve(self, residual: np.ndarray) -> Natural:
        """P^{-1} residual, and P_0 times that."""
        step, _ = super().solve(residual)
        return step, times(self.before.P, step)

    def under_first_prior(self) -> SparsePosterior:
        """The same distribution as a posterior under p, without earlier batches."""
        return SparsePosterior(self.before.prior, self.P, self.h, self.R, self.Rinv, self.w)


@dataclass(frozen=True, eq=False)
class ConditionedPrior(Grouped):
    """q_0 as a ``KernelPrior``.

    Attributes
    ----------
    before : SparsePosterior, q_0
    """

    before: SparsePosterior
    key: str = field(default_factory=new_key, init=False, repr=False)

    is_full = False

    @property
    def groups(self) -> tuple[Any, ...]:
        return self.before.prior.groups

    @property
    def Z(self) -> np.ndarray:
        return self.before.prior.Z

    @property
    def jitter(self) -> float:
        return self.before.prior.jitter

    def basis(self, n_latents: int | None) -> Basis:
        """The basis of p: a block keeps one set of whitened rows for both."""
        return self.before.prior.basis(n_latents)

    def with_sites(self, P: np.ndarray, h: np.ndarray) -> Natural:
        return self.before.P + P, self.before.h + h

    def posterior(self, natural: Natural) -> ConditionedPosterior | None:
        return ConditionedPosterior.from_natural(self, *natural)  # type: ignore[return-value]

    def at_prior(self, n_latents: int | None) -> ConditionedPosterior:
        """q = q_0."""
        q = self.before
        return ConditionedPosterior(self, q.P, q.h, q.R, q.Rinv, q.w)

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> KernelPrior:
        """p with other kernels and points: q_0 is one of these kernels and points."""
        return self.before.prior.rebuilt(specs, Z)
