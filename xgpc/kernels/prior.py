"""A weak prior of length scales, under which all features are about equally relevant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .axis import AxisMatern, ratio_of_distances
from .default import START_LENGTH_SCALE
from .spec import KernelSpec

# Scale of the default kernel's log length scales about their mean. (On 26 sets of 40, 100 and 300 rows, three splits
# each, NLL is within .001 of that of normal priors with a standard deviation of .65, the best of these. On 3000 rows of
# electricity, two splits, it is lower by .02 to .06, of covtype by .01: a few features matter much more than others.)
DEFAULT_SPREAD = 0.6
# Degrees of freedom of Student's t distribution of these logarithms. (With 1.5 and 6, NLL of few rows is within .002.)
DEGREES = 3.0
# Standard deviation of the mean log length scale of the default kernel about its start: within a factor of four with
# probability .95. Without it, active learning from ten rows takes every length scale to a hundred spreads.
DEFAULT_LEVEL = 0.7


@dataclass(frozen=True, eq=False)
class LengthScalePrior:
    """Prior of the length scales of each kernel: of their ratios, and of their geometric mean.

    With u_j = log(l_j / s_j) for length scales l_1 .. l_k and spreads s_j of their features, and t_j = (u_j - mean(u))
    / spread, the log density is, up to a constant, -2 sum_j log(1 + t_j^2 / 3) - 1/2 (mean(u) - log sqrt(k / 2))^2 /
    level^2: Student's t distributions, so that a few features may differ much, and a normal one. An axis-aligned
    kernel has ``ratio_of_distances(k)`` times as long a mean. If several features share a length scale, as the levels
    of a column may, s_j belongs to the first; all levels have the same.
    """

    spread: float = np.inf  # infinity: no prior of the ratios
    unit: np.ndarray = field(default_factory=lambda: np.empty(0))  # (d,) spreads of the features
    level: float = np.inf  # infinity: no prior of the mean

    @cached_property
    def is_flat(self) -> bool:
        return math.isinf(self.spread) and math.isinf(self.level)

    def _parts(self, spec: KernelSpec) -> Iterator[tuple[slice, np.ndarray, np.ndarray, float, float]]:
        """For each factor with a prior: the place of its k length scales in ``theta``, the logarithms of their units
        (k,), the ratios t_j (k,), and the logarithm of the geometric mean, here and where learning starts."""
        for place, kernel in spec.length_scales:
            k = place.stop - place.start
            if self.is_flat or (k == 1 and np.isinf(self.level)):
                continue
            start = START_LENGTH_SCALE * np.sqrt(k) * (ratio_of_distances(k) if isinstance(kernel, AxisMatern) else 1.0)
            log_unit = np.log(self.unit[[0 if features is None else features[0] for features in spec.features[place]]])
            u = spec.theta[place] - log_unit
            # ``np.mean`` of few numbers would take five times as long.
            mean = u.sum() / k
            yield place, log_unit, (u - mean) / self.spread, mean, np.log(start)

    def at(self, spec: KernelSpec) -> tuple[float, np.ndarray]:
        """Log density of a kernel, and its gradient in ``theta``."""
        value, gradient = 0.0, np.zeros(len(spec.theta))
        for place, _, ratio, mean, log_start in self._parts(spec):
            level = (mean - log_start) / self.level
            value -= 0.5 * float((DEGREES + 1.0) * np.sum(np.log1p(ratio**2 / DEGREES)) + level**2)
            pull = (DEGREES + 1.0) * ratio / (DEGREES + ratio**2)
            gradient[place] -= (pull - pull.sum() / len(pull)) / self.spread + level / (self.level * len(ratio))
        return value, gradient

    def normal_at(self, spec: KernelSpec) -> tuple[np.ndarray, np.ndarray]:
        """Precision (p, p) and linear term (p,) of the normal density of ``theta`` that touches this one from below.

        log(1 + x) is concave, so that its tangent at t_j^2 bounds the density (Lange, Little, Taylor. JASA 84, 1989).
        """
        precision, linear = np.zeros((len(spec.theta), len(spec.theta))), np.zeros(len(spec.theta))
        for place, log_unit, ratio, _, log_start in self._parts(spec):
            k, weight = len(ratio), (DEGREES + 1.0) / (DEGREES + ratio**2)
            deviation = (np.eye(k) - 1.0 / k) / self.spread
            precision[place, place] = deviation.T @ (weight[:, None] * deviation) + 1.0 / (k * self.level) ** 2
            linear[place] = precision[place, place] @ log_unit + log_start / (k * self.level**2)
        return precision, linear

    def n_effective(self, spec: KernelSpec) -> float:
        """Effective number of learned parameters: a length scale counts as spread^2 / (1 + spread^2), any other as one.

        This is tr(H (H + H_prior)^-1) if the rows inform about a ratio of length scales about as much as a prior of
        spread 1.
        """
        if np.isinf(self.spread):
            return float(len(spec.theta))
        # The square of a large spread would overflow.
        share = (self.spread / math.hypot(1.0, self.spread)) ** 2
        n_ratios = sum(place.stop - place.start - 1 for place, _ in spec.length_scales)
        return float(len(spec.theta) - n_ratios * (1.0 - share))


NO_PRIOR = LengthScalePrior()
