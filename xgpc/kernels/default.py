"""The kernel of a fit that is given none."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel

from .spec import Groups, KernelSpec

# Length scales start at sqrt(d / 2) standard deviations, where the scaled squared distance of two rows is 4 on average.
# (With sqrt(d), where it is 2, learning missed a feature of sixteen samples' ten: the longer start is nearly linear.)
START_LENGTH_SCALE = np.sqrt(0.5)
# In units of sqrt(d) standard deviations: a thousand times as long, a length scale has switched its feature off, and a
# hundredth tells apart any two rows.
LENGTH_SCALE_RANGE = (1e-2, 1e3)
# Those of levels may become so many times as long. Each has its own, as some levels of a column may tell
# more than others; but a fit that may switch off each of hundreds overfits by that, and levels whose length scales
# become much longer are one level. (Mean NLL of rows kept apart, of six parts of splice and five draws of others:
# twice, three times, a thousand times, and with length scales that levels share:
# splice .113, .112, .140, .129; adult .316, .315, .317, .318; german .503, .504, .516, .500; made pairs of levels .515,
# .516, .535, .528, motifs .472, .471, .479, .498, and sums of levels .484, .482, .479, .476.)
LONGEST_OF_LEVELS = 2.0
# The latent standard deviation starts at 1.4, probabilities of .06 to .94 within two; at 100 it says certainty.
START_VARIANCE, VARIANCE_BOUNDS = 2.0, (1e-2, 1e5)
# Of few rows, learning begins where the bound of fixed kernels is highest: factors of all length scales and of the
# variance, the first of which is the start itself. Classes in a disk or a ball need the shorter and larger ones.
STARTS = ((1.0, 1.0), (1.0, 10.0), (0.6, 1.0), (0.6, 10.0))


def default_kernel(scale: np.ndarray, groups: Groups | None = None) -> Kernel:
    """ConstantKernel * RBF with a length scale for each of the d features.

    Parameters
    ----------
    scale : (d,)
        Standard deviations of the features. Times the root of half the number of groups, or of d without any, they are
        where length scales start.
    groups : Groups, default=None
        Features of a group with others are levels.
    """
    n_groups = len(scale) if groups is None else len(groups.names)
    unit = np.sqrt(n_groups) * scale
    low, high = LENGTH_SCALE_RANGE
    longest = high if groups is None else np.where(groups.are_shared, LONGEST_OF_LEVELS, high)
    bounds = np.column_stack([low * unit, longest * unit])
    return ConstantKernel(START_VARIANCE, VARIANCE_BOUNDS) * RBF(START_LENGTH_SCALE * unit, bounds)


def other_start(spec: KernelSpec, factors: tuple[float, float]) -> KernelSpec:
    """A default kernel with all length scales and its variance multiplied by two factors."""
    step = np.full(len(spec.theta), np.log(factors[0]))
    step[0] = np.log(factors[1])
    return spec.with_theta(spec.theta + step).within_bounds()
