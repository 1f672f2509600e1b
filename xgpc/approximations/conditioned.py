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
from typing import Any

import numpy as np

from ..kernels.spec import KernelSpec
from .base import KernelPrior, Natural, new_key
from .sparse import SparsePosterior


@dataclass(frozen=True, eq=False)
class ConditionedPrior(KernelPrior):
    """q_0, ``before``, as a prior."""

    before: SparsePosterior
    key: str = field(default_factory=new_key, init=False, repr=False)

    @property
    def groups(self) -> tuple[Any, ...]:
        return self.before.prior.groups

    @property
    def Z(self) -> np.ndarray:
        return self.before.prior.Z

    @property
    def jitter(self) -> float:
        return self.before.prior.jitter

    def basis(self, n_latents: int | None) -> Any:
        """The basis of p: a block keeps one set of whitened rows for both."""
        return self.before.prior.basis(n_latents)

    def with_sites(self, P: np.ndarray, h: np.ndarray) -> Natural:
        return self.before.P + P, self.before.h + h

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> KernelPrior:
        """p with other kernels and points: q_0 is one of these kernels and points."""
        return self.before.prior.rebuilt(specs, Z)
