"""The default kernel."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Product

from .axis import AxisMatern, ratio_of_distances
from .features import Groups
from .spec import KernelSpec, check_kernel
from .wrappers import Precomputed

# Length scales start at sqrt(d / 2) standard deviations, where the mean scaled squared distance of two rows is 4: from
# sqrt(d), where the kernel is nearly linear, learning missed a feature in ten of sixteen samples.
START_LENGTH_SCALE = np.sqrt(0.5)
# Bounds in units of sqrt(d) standard deviations: a feature is without effect at the upper bound, and any two rows
# differ at the lower one.
LENGTH_SCALE_RANGE = (1e-2, 1e3)
# The upper bound of levels, in the same units: a fit that may switch off each of hundreds of levels overfits, and
# levels with long length scales merge. (With 4, mean NLL of splice, three splits, is higher by .003, of adult by .001.)
LONGEST_OF_LEVELS = 2.0
# The latent standard deviation starts at 1.4, where two of them are probabilities of .06 and .94; at the upper bound
# nearly all probabilities are 0 or 1.
START_VARIANCE, VARIANCE_BOUNDS = 2.0, (1e-2, 1e5)
# Factors of all length scales and of the variance: with few rows, learning starts from the fixed kernel with the
# highest bound. Classes in a disk or a ball need short scales and large variances.
STARTS = ((1.0, 1.0), (1.0, 10.0), (0.6, 1.0), (0.6, 10.0))
# Smoothness of the axis-aligned kernel that may replace the default one: a few inducing points carry it, while the
# rougher one needs neighbours.
SMOOTH = 1.5


def default_kernel(scale: np.ndarray, groups: Groups | None = None) -> Kernel:
    """ConstantKernel * RBF with a length scale for each of the d features, of standard deviations ``scale`` (d,).

    The length scales start at ``scale`` times the root of half the number of groups, or of d / 2 without groups.
    """
    unit = np.sqrt(len(scale) if groups is None else len(groups.names)) * scale
    low, high = LENGTH_SCALE_RANGE
    longest = high if groups is None else np.where(groups.are_shared, LONGEST_OF_LEVELS, high)
    bounds = np.column_stack([low * unit, longest * unit])
    return ConstantKernel(START_VARIANCE, VARIANCE_BOUNDS) * RBF(START_LENGTH_SCALE * unit, bounds)


def checked_kernel(kernel: Kernel | str | None) -> Kernel | None:
    """The constructor argument ``kernel``, where "precomputed" stands for a matrix with a variance to be learned.

    ValueError for anything else but a kernel of moderately many kernels.
    """
    if isinstance(kernel, str) and kernel == "precomputed":
        return ConstantKernel(START_VARIANCE, VARIANCE_BOUNDS) * Precomputed()
    if kernel is not None:
        check_kernel(kernel)
    return kernel


def other_start(spec: KernelSpec, factors: tuple[float, float]) -> KernelSpec:
    """A default kernel whose length scales and variance are multiplied by the two factors."""
    step = np.full(len(spec.theta), np.log(factors[0]))
    step[0] = np.log(factors[1])
    return spec.with_theta(spec.theta + step).within_bounds()


def axis_aligned(spec: KernelSpec) -> KernelSpec:
    """The product over features of Matern kernels with nu = 3/2 that starts like a default kernel.

    Its length scales are longer, as are sums of absolute differences. So are the bounds of levels, or they would be
    below these starting values; those of numbers are far away.
    """
    kernel, groups, ratio = spec.kernel, spec.groups, ratio_of_distances(len(spec.theta) - 1)
    longer = 1.0 if groups is None else np.where(groups.are_shared, ratio, 1.0)[:, None]
    factor = AxisMatern(kernel.k2.length_scale, longer * kernel.k2.length_scale_bounds, nu=SMOOTH)
    return other_start(spec.compiled(kernel.k1 * factor), (ratio, 1.0))


def without_features(spec: KernelSpec) -> KernelSpec:
    """A default kernel whose functions hardly change: its length scales are those of features without effect."""
    kernel, longest = spec.kernel, LENGTH_SCALE_RANGE[1] / START_LENGTH_SCALE
    return spec.compiled(kernel.k1 * RBF(longest * kernel.k2.length_scale, "fixed"))


def is_of_default_kind(spec: KernelSpec, kind: type[Kernel] = RBF) -> bool:
    """Whether a kernel is a product of a constant and an RBF, or another ``kind``, as the default kernel is."""
    kernel = spec.kernel
    return type(kernel) is Product and type(kernel.k1) is ConstantKernel and type(kernel.k2) is kind


def is_axis_aligned(spec: KernelSpec) -> bool:
    """Whether a kernel is one that ``axis_aligned`` made, with any parameters."""
    return is_of_default_kind(spec, AxisMatern) and spec.kernel.k2.nu == SMOOTH
