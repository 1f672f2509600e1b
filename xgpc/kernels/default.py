"""The default kernel."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel

from .spec import Groups, KernelSpec

# Length scales start at sqrt(d / 2) standard deviations, where the mean scaled squared distance of two rows is 4: from
# sqrt(d), where the kernel is nearly linear, learning missed a feature in ten of sixteen samples.
START_LENGTH_SCALE = np.sqrt(0.5)
# Bounds in units of sqrt(d) standard deviations: a feature is without effect at the upper bound, and any two rows
# differ at the lower one.
LENGTH_SCALE_RANGE = (1e-2, 1e3)
# The upper bound of levels, in the same units: a fit that may switch off each of hundreds of levels overfits, and
# levels with long length scales merge.
LONGEST_OF_LEVELS = 2.0
# The latent standard deviation starts at 1.4, where two of them are probabilities of .06 and .94; at the upper bound
# nearly all probabilities are 0 or 1.
START_VARIANCE, VARIANCE_BOUNDS = 2.0, (1e-2, 1e5)
# Factors of all length scales and of the variance: with few rows, learning starts from the fixed kernel with the
# highest bound. Classes in a disk or a ball need short scales and large variances.
STARTS = ((1.0, 1.0), (1.0, 10.0), (0.6, 1.0), (0.6, 10.0))


def default_kernel(scale: np.ndarray, groups: Groups | None = None) -> Kernel:
    """ConstantKernel * RBF with a length scale for each of the d features, of standard deviations ``scale`` (d,).

    The length scales start at ``scale`` times the root of half the number of groups, or of d / 2 without groups.
    """
    n_groups = len(scale) if groups is None else len(groups.names)
    unit = np.sqrt(n_groups) * scale
    low, high = LENGTH_SCALE_RANGE
    longest = high if groups is None else np.where(groups.are_shared, LONGEST_OF_LEVELS, high)
    bounds = np.column_stack([low * unit, longest * unit])
    return ConstantKernel(START_VARIANCE, VARIANCE_BOUNDS) * RBF(START_LENGTH_SCALE * unit, bounds)


def other_start(spec: KernelSpec, factors: tuple[float, float]) -> KernelSpec:
    """A default kernel whose length scales and variance are multiplied by the two factors."""
    step = np.full(len(spec.theta), np.log(factors[0]))
    step[0] = np.log(factors[1])
    return spec.with_theta(spec.theta + step).within_bounds()
