"""The factors of kernels: scikit-learn's classes, the compiled families they map to, and their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, mul
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import RBF, DotProduct, ExpSineSquared, Kernel, Matern, RationalQuadratic

from .._kernels import FAMILIES, InducingKernel
from .axis import AxisMatern

# Number of a family in the core -> its name
NAMES = {number: name for name, number in FAMILIES.items()}
Size = tuple[int, ...]
# An array of NumPy or PyTorch, or a tensor of ``xgpc.onnx.graph``; and the module with its functions
Values = Any
Module = Any
# (module, scaled distances along features) -> logarithms of the factors; see ``PROFILES`` for the module
LogFactor = Callable[[Module, Values], Values]


@dataclass(frozen=True)
class Factor:
    """How a kernel maps to a family of ``src/xgpc/profiles.h``."""

    family: Callable[[Kernel], str]  # a key of ``PROFILES``, or "" for parameters that have no family
    shape: str | None = None  # name of the parameter whose ``power`` is the shape of the family
    power: float = 1.0
    # Name of the parameter that differences are divided by; None for kernels of the inner product x.z.
    scale: str | None = "length_scale"
    # Draws of frequencies (..., d), in units of 1 / scale, from the spectrum of a kernel and its shape, by a random
    # state and their size. None for kernels of the inner product.
    spectrum: Callable[[Kernel, float, np.random.RandomState, Size], np.ndarray] | None = None


def _student_t(
    kernel: Kernel, shape: float, random_state: np.random.RandomState, size: Size, by_feature: bool = False
) -> np.ndarray:
    """Normal draws, whose precisions are draws from a gamma distribution of mean 1, one for all features or each.

    RBF is the limit of Matern for an infinite nu, at which all precisions are 1.
    """
    nu = getattr(kernel, "nu", math.inf)
    if math.isinf(nu):
        return random_state.standard_normal(size)
    tau = random_state.standard_gamma(nu, size if by_feature else (*size[:-1], 1))
    return np.sqrt(nu / tau) * random_state.standard_normal(size)


def _scale_mixture(kernel: Kernel, alpha: float, random_state: np.random.RandomState, size: Size) -> np.ndarray:
    """Normal draws, whose variances are draws from a gamma distribution of mean 1."""
    tau = random_state.standard_gamma(alpha, (*size[:-1], 1)) / alpha
    return np.sqrt(tau) * random_state.standard_normal(size)


def _harmonics(kernel: Kernel, length_scale: float, random_state: np.random.RandomState, size: Size) -> np.ndarray:
    """exp(-2 sin^2(pi t) / l^2) is the sum over whole numbers j of exp(-a) I_j(a) cos(2 pi j t), with a = 1 / l^2: the
    weights are those of a difference of two Poisson numbers with mean a / 2 (Skellam 1946)."""
    half = 0.5 / length_scale**2
    return 2.0 * np.pi * (random_state.poisson(half, size) - random_state.poisson(half, size))


def _by_nu(families: dict[float, str], kernel: Kernel) -> str:
    """The family of a kernel's smoothness, "" if it has none; ValueError unless that is a positive number."""
    try:
        nu = float(kernel.nu)
    except (TypeError, ValueError):
        nu = math.nan
    if not nu > 0.0:
        raise ValueError(f"{type(kernel).__name__} must have nu positive; got {kernel.nu!r}.")
    return families.get(nu, "")


AXIS_FAMILIES = {0.5: "axis-matern-1/2", 1.5: "axis-matern-3/2"}
MATERN_FAMILIES = {0.5: "matern-1/2", 1.5: "matern-3/2", 2.5: "matern-5/2", math.inf: "rbf"}
# Spectra: Rasmussen & Williams 2006, section 4.2.1, with equations (4.15) of Matern and (4.20) of RationalQuadratic.
FACTORS = {
    RBF: Factor(lambda kernel: "rbf", spectrum=_student_t),
    Matern: Factor(partial(_by_nu, MATERN_FAMILIES), spectrum=_student_t),
    RationalQuadratic: Factor(lambda kernel: "rational-quadratic", "alpha", spectrum=_scale_mixture),
    DotProduct: Factor(lambda kernel: "dot-product", "sigma_0", 2.0, scale=None),
    ExpSineSquared: Factor(lambda kernel: "periodic", "length_scale", scale="periodicity", spectrum=_harmonics),
    AxisMatern: Factor(partial(_by_nu, AXIS_FAMILIES), spectrum=partial(_student_t, by_feature=True)),
}


def _matern(xp: Module, a: Values, square: float) -> Values:
    return (1.0 + a * (1.0 + square * a)) * xp.exp(-a)


def _periodic(xp: Module, sine: Values, shape: float) -> Values:
    return xp.exp((-2.0 / shape**2) * sine * sine)


# The covariance of each family as a function of (xp, h, shape), as in ``src/xgpc/profiles.h``: h = -r^2 / 2, or x.z for
# a dot product, or a sum over features, see ``LOG_FACTORS``. The module xp has exp, log, sin and sqrt of h: NumPy,
# PyTorch, or ``xgpc.onnx.graph``.
PROFILES: dict[str, Callable[[Module, Values, float], Values]] = {
    "rbf": lambda xp, h, shape: xp.exp(h),
    "matern-1/2": lambda xp, h, shape: xp.exp(-xp.sqrt(-2.0 * h)),
    "matern-3/2": lambda xp, h, shape: _matern(xp, xp.sqrt(-6.0 * h), 0.0),
    "matern-5/2": lambda xp, h, shape: _matern(xp, xp.sqrt(-10.0 * h), 1.0 / 3.0),
    "rational-quadratic": lambda xp, h, shape: xp.exp(-shape * xp.log(1.0 - h / shape)),
    "periodic": lambda xp, h, shape: _periodic(xp, xp.sin(math.pi * xp.sqrt(-2.0 * h)), shape),
    "dot-product": lambda xp, h, shape: shape + h,
    **{family: lambda xp, h, shape: xp.exp(h) for family in AXIS_FAMILIES.values()},
}
# Of families that are products over features, the logarithm of a feature's factor as a function of (xp, t), with t the
# scaled distance along it; axis-aligned ones have the sum of these as h. ``xgpc.explain`` can explain all of them.
LOG_FACTORS: dict[str, LogFactor] = {
    "rbf": lambda xp, t: -0.5 * t * t,
    "axis-matern-1/2": lambda xp, t: -t,
    "axis-matern-3/2": lambda xp, t: xp.log(1.0 + math.sqrt(3.0) * t) - math.sqrt(3.0) * t,
}


@dataclass
class Pairs:
    """Pairs of rows x and z: ``features(j)`` are the values of feature j in all x and in all z, which broadcast to the
    shape of the covariances, that of ``zeros``."""

    features: Callable[[int], tuple[Values, Values]]
    zeros: Values

    def products(self, scale: np.ndarray) -> Values:
        """x.z of the features of which ``scale`` is 1 and not 0."""
        return reduce(add, [mul(*self.features(j)) for j in map(int, np.flatnonzero(scale))])

    def differences(self, scale: np.ndarray) -> list[Values]:
        """Scaled x_j - z_j. One feature at a time, because all at once would take much memory."""
        values = ((*self.features(j), float(scale[j])) for j in map(int, np.flatnonzero(scale)))
        return [(x - z) * size for x, z, size in values]

    def half_squares(self, scale: np.ndarray, family: str) -> Values:
        """-|x - z|^2 / 2 of scaled rows."""
        return -0.5 * reduce(add, [difference * difference for difference in self.differences(scale)])


def covariances(core: InducingKernel, pairs: Pairs, module: Callable[[str], Module], is_own: bool = False) -> Values:
    """A compiled kernel of pairs of rows without its noise, or with it of pairs of each row with itself.

    ``module`` gives the functions for the values of a family.
    """

    def factor(f: int) -> Values:
        family, scale = NAMES[int(core.family[f])], core.inverse_length_scale[f]
        xp = module(family)
        if family == "dot-product":
            h = pairs.products(scale)
        elif family in AXIS_FAMILIES.values():
            distances = (xp.sqrt(difference * difference) for difference in pairs.differences(scale))
            h = reduce(add, [LOG_FACTORS[family](xp, distance) for distance in distances])
        else:
            h = pairs.half_squares(scale, family)
        return PROFILES[family](xp, h, float(core.shape[f]))

    total = pairs.zeros
    for t in range(core.n_terms) if is_own else np.flatnonzero(np.asarray(core.noise) == 0):
        # Of a row with itself, all other factors are 1.
        counted = (core.term == t) & ((core.family == FAMILIES["dot-product"]) if is_own else True)
        total = total + reduce(mul, [factor(int(f)) for f in np.flatnonzero(counted)], float(core.variance[t]))
    return total


class Logarithms(NamedTuple):
    """Logarithms of a kernel's variances (n_terms), shapes (n_factors) and length scales (n_factors, d), concatenated,
    as linear functions of ``theta``: ``offset``, plus ``power`` times theta[``column``] at position ``row``."""

    offset: np.ndarray
    row: np.ndarray
    column: np.ndarray
    power: np.ndarray
