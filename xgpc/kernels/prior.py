"""A weak prior of length scales: features are about as relevant as each other, until the rows say otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .default import START_LENGTH_SCALE
from .spec import KernelSpec

# Standard deviation of the logarithms of the default kernel's length scales about their mean. Chosen by rows kept apart
# of heart, breast cancer, waveform and german, 400 rows at most; bench/studies/length_scale_prior.py measures these and
# sets that had no part in the choice.
DEFAULT_SPREAD = 1.0
# Standard deviation of the mean of the logarithms about that of the start, of the default kernel: less than a factor of
# four, nine times of ten, where the rows do not say otherwise. Without it, active learning from ten rows on takes every
# length scale to a hundred features' spreads and asks for the corners. (Mean NLL of 52 problems of 20 to 1000 rows,
# tools/small_fits.py: .3156 without, .3149 with it, .3155 with .5. A prior of the variance raised it: .317 to .3195.)
DEFAULT_LEVEL = 0.7


@dataclass(frozen=True, eq=False)
class LengthScalePrior:
    """Log-normal prior of length scales: of their ratios, where a kernel has several, and of their common factor.

    Of each kernel with length scales l_1 .. l_k, in units of their features' spreads s_j, the log density is
    -1/2 sum_j (u_j - mean(u))^2 / spread^2 - 1/2 (mean(u) - log sqrt(k / 2))^2 / level^2 with u_j = log(l_j / s_j), but
    for a constant. Where features share a length scale, as a table's columns of levels may, s_j is the first one's;
    levels of a column have the same spread.

    Attributes
    ----------
    spread : float, standard deviation of u_j about their mean; infinite: ratios are free
    unit : (d,) s_j, of each feature
    level : float, standard deviation of the mean; infinite: the common factor is free
    """

    spread: float = np.inf
    unit: np.ndarray = field(default_factory=lambda: np.empty(0))
    level: float = np.inf

    @property
    def is_flat(self) -> bool:
        return bool(np.isinf(self.spread) and np.isinf(self.level))

    def at(self, spec: KernelSpec) -> tuple[float, np.ndarray]:
        """Log density of a kernel, and its gradient by ``theta``."""
        value, gradient = 0.0, np.zeros(len(spec.theta))
        if self.is_flat:
            return value, gradient
        for place in _length_scales(spec):
            if place.stop - place.start == 1 and np.isinf(self.level):
                continue
            first = [0 if features is None else features[0] for features in spec.features[place]]
            u = spec.theta[place] - np.log(self.unit[first])
            ratio = (u - np.mean(u)) / self.spread
            level = (np.mean(u) - np.log(START_LENGTH_SCALE * np.sqrt(len(u)))) / self.level
            value -= 0.5 * float(ratio @ ratio + level**2)
            # The mean moves with each, but the deviations from it sum to zero.
            gradient[place] -= ratio / self.spread + level / (self.level * len(u))
        return value, gradient

    def of(self, groups: Sequence[Any]) -> tuple[float, np.ndarray]:
        """Of a prior's groups, each with a ``spec``: log density, and gradient by their ``theta`` one after another."""
        values, gradients = zip(*(self.at(group.spec) for group in groups), strict=True)
        return sum(values), np.concatenate(gradients)


def _length_scales(spec: KernelSpec) -> list[slice]:
    """Where in ``theta`` a kernel has length scales; a power has the same ones repeatedly."""
    places = [leaf.theta["length_scale"] for _, leaf in spec.factors if "length_scale" in leaf.theta]
    return [slice(*ends) for ends in dict.fromkeys((place.start, place.stop) for place in places)]


NO_PRIOR = LengthScalePrior()
