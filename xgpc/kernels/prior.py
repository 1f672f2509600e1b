"""A weak prior of length scales: features are about as relevant as each other, until the rows say otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .spec import KernelSpec

# Standard deviation of the logarithms of the default kernel's length scales about their mean. Chosen by rows kept apart
# of heart, breast cancer, waveform and german, 400 rows at most; bench/studies/length_scale_prior.py measures these and
# sets that had no part in the choice.
DEFAULT_SPREAD = 1.0


@dataclass(frozen=True, eq=False)
class LengthScalePrior:
    """Log-normal prior of the ratios of length scales, where a kernel has several: their common factor is free.

    Of each kernel with length scales l_1 .. l_k, in units of their features' spreads s_j, the log density is
    -1/2 sum_j (u_j - mean(u))^2 / spread^2 with u_j = log(l_j / s_j), but for a constant. Where features share a length
    scale, as a table's columns of levels may, s_j is the first one's; levels of a column have the same spread.

    Attributes
    ----------
    spread : float, standard deviation of u_j; infinite: no prior
    unit : (d,) s_j, of each feature
    """

    spread: float = np.inf
    unit: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def is_flat(self) -> bool:
        return bool(np.isinf(self.spread))

    def at(self, spec: KernelSpec) -> tuple[float, np.ndarray]:
        """Log density of a kernel, and its gradient by ``theta``."""
        value, gradient = 0.0, np.zeros(len(spec.theta))
        if self.is_flat:
            return value, gradient
        for place in _several(spec):
            first = [features[0] for features in spec.features[place] if features is not None]
            u = spec.theta[place] - np.log(self.unit[first])
            ratio = (u - np.mean(u)) / self.spread
            value -= 0.5 * float(ratio @ ratio)
            # The mean moves with each, but the deviations from it sum to zero.
            gradient[place] -= ratio / self.spread
        return value, gradient

    def of(self, groups: Sequence[Any]) -> tuple[float, np.ndarray]:
        """Of a prior's groups, each with a ``spec``: log density, and gradient by their ``theta`` one after another."""
        values, gradients = zip(*(self.at(group.spec) for group in groups), strict=True)
        return sum(values), np.concatenate(gradients)


def _several(spec: KernelSpec) -> list[slice]:
    """Where in ``theta`` a kernel has the length scales of several features; a power has the same ones repeatedly."""
    places = [leaf.theta["length_scale"] for _, leaf in spec.factors if "length_scale" in leaf.theta]
    distinct = dict.fromkeys((place.start, place.stop) for place in places)
    return [slice(start, stop) for start, stop in distinct if stop - start > 1]


NO_PRIOR = LengthScalePrior()
