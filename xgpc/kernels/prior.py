"""A weak prior of length scales, under which all features are about equally relevant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .default import START_LENGTH_SCALE
from .spec import KernelSpec

# Standard deviation of the log length scales of the default kernel about their mean. It was chosen on held-out rows of
# heart, breast cancer, waveform and german, with at most 400 training rows, and lowers the mean NLL by .003 to .029 on
# six sets that had no part in the choice.
DEFAULT_SPREAD = 1.0
# Standard deviation of the mean log length scale of the default kernel about its start; with probability .95 the mean
# is within a factor of four. Without this prior, active learning from ten rows takes every length scale to a hundred
# times the features' spread, and asks for corners. (Mean NLL of 52 problems with 20 to 1000 rows, tools/small_fits.py:
# .3156 without, .3149 with it, .3155 with .5. A prior of the variance raised it: .317 to .3195.)
DEFAULT_LEVEL = 0.7


@dataclass(frozen=True, eq=False)
class LengthScalePrior:
    """Log-normal prior of the length scales of each kernel: of their ratios, and of their geometric mean.

    With u_j = log(l_j / s_j) for length scales l_1 .. l_k and spreads s_j of their features, the log density is, up to
    a constant, -1/2 sum_j (u_j - mean(u))^2 / spread^2 - 1/2 (mean(u) - log sqrt(k / 2))^2 / level^2. If several
    features share a length scale, as the levels of a column may, s_j belongs to the first; all levels have the same.

    Attributes
    ----------
    spread : float
        Standard deviation of u_j about their mean; infinity means no prior of the ratios.
    unit : (d,) array
        Spreads s_j of the features.
    level : float
        Standard deviation of the mean; infinity means no prior of the mean.
    """

    spread: float = np.inf
    unit: np.ndarray = field(default_factory=lambda: np.empty(0))
    level: float = np.inf

    @property
    def is_flat(self) -> bool:
        return bool(np.isinf(self.spread) and np.isinf(self.level))

    def at(self, spec: KernelSpec) -> tuple[float, np.ndarray]:
        """Log density of a kernel, and its gradient in ``theta``."""
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
            # The derivative of the mean drops out of the first part, as the deviations sum to zero.
            gradient[place] -= ratio / self.spread + level / (self.level * len(u))
        return value, gradient

    def of(self, groups: Sequence[Any]) -> tuple[float, np.ndarray]:
        """Log density of all kernels ``group.spec``, and its gradient in their concatenated ``theta``."""
        values, gradients = zip(*(self.at(group.spec) for group in groups), strict=True)
        return sum(values), np.concatenate(gradients)


def _length_scales(spec: KernelSpec) -> list[slice]:
    """Positions in ``theta`` of the length scales; the factors of a power have the same positions."""
    places = [leaf.theta["length_scale"] for _, leaf in spec.factors if "length_scale" in leaf.theta]
    return [slice(*ends) for ends in dict.fromkeys((place.start, place.stop) for place in places)]


NO_PRIOR = LengthScalePrior()
