"""scikit-learn's kernel objects, compiled for the core, and gradients in their parameters ``theta``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    CompoundKernel,
    ConstantKernel,
    Exponentiation,
    ExpSineSquared,
    Hyperparameter,
    Kernel,
    Product,
    Sum,
    WhiteKernel,
)

from .._kernels import FAMILIES, InducingKernel, KernelGradient, vjp
from ..names import listed
from ..ranges import LEAST_DIVISOR
from .called import CalledKernel
from .factors import FACTORS, Factor, Logarithms
from .features import Features, Groups
from .wrappers import ActiveDims, Precomputed, Sphere, Tanimoto

# Kernels whose values do not depend on the rows, and the parameters that are their variances.
VARIANCES = {ConstantKernel: "constant_value", WhiteKernel: "noise_level"}
# All supported kernel classes by name; saved models may contain these only.
KERNELS = {kind.__name__: kind for kind in (*VARIANCES, *FACTORS, Sum, Product, Exponentiation)}
KERNELS |= {kind.__name__: kind for kind in (ActiveDims, Precomputed, Sphere, Tanimoto)}
# Most factors in all terms of a kernel, each of which costs an exponential per row and inducing point, and most white
# kernels in a term, which cost only the time to multiply out a power.
MAX_FACTORS, MAX_NOISE = 64, 1000
# Most kernels in a composed kernel, and its depth. A sum of MAX_FACTORS products of two has 255 kernels and a depth of
# 65; recursion over deeper ones, here and in scikit-learn, would approach Python's limit.
MAX_KERNELS, MAX_DEPTH = 256, 100
Node = TypeVar("Node")
# All parameters of a kernel, and their places in ``theta``; those of fixed ones mean nothing.
PlacedParameters = list[tuple[Hyperparameter, slice]]


class NotCompiled(ValueError):
    """A kernel is not compiled; the reason."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """An elementary kernel, and the positions of its free parameters in ``theta``."""

    kernel: Kernel
    theta: dict[str, slice]
    places: np.ndarray  # (d,) which of its length scales each feature has; -1 for features that it does not see
    family: str  # a key of ``PROFILES``, or "" for a constant or noise

    # Not cached: a pickle would hold the record's functions.
    @property
    def factor(self) -> Factor:
        return FACTORS[type(self.kernel)]

    def value(self, name: str, theta: np.ndarray | None) -> np.ndarray:
        """A parameter (1,) or (d,), from ``theta`` if it is free, otherwise from the kernel."""
        if theta is None or name not in self.theta:
            return np.atleast_1d(np.asarray(getattr(self.kernel, name), dtype=np.float64))
        return np.exp(theta[self.theta[name]])

    def shape(self, theta: np.ndarray | None) -> float:
        """The parameter whose power is the shape of the family; 1 without one."""
        return 1.0 if self.factor.shape is None else float(self.value(self.factor.shape, theta)[0])

    def length_scale(self, theta: np.ndarray | None) -> np.ndarray:
        """What features (d,), or their differences, are divided by: infinite for those that the factor does not see, 1
        for the others of a kernel of the inner product."""
        scales = np.ones(1) if self.factor.scale is None else self.value(self.factor.scale, theta)
        return np.where(self.places < 0, np.inf, scales[self.places])


# Factors of a term, with their shapes and length scales (d,).
ValuedFactors = list[tuple[Leaf, float, np.ndarray]]


@dataclass(frozen=True)
class Term:
    """A product of powers of variances, some of which may be of noise, and of factors that depend on the rows."""

    variances: tuple[tuple[Leaf, float], ...] = ()
    factors: tuple[Leaf, ...] = ()
    n_noise: int = 0

    def __mul__(self, other: Term) -> Term:
        return Term(self.variances + other.variances, self.factors + other.factors, self.n_noise + other.n_noise)

    def variance(self, theta: np.ndarray | None) -> float:
        values = [leaf.value(VARIANCES[type(leaf.kernel)], theta)[0] for leaf, _ in self.variances]
        # An overflow gives infinity, and the Cholesky factorisation then reports it.
        with np.errstate(over="ignore"):
            return float(np.prod(np.power(values, [power for _, power in self.variances])))


def _check_parameter(kernel: Kernel, name: str, parameter: Hyperparameter) -> None:
    """ValueError unless the value and the bounds of a parameter have finite logarithms and reciprocals."""
    must_have, value = f"{type(kernel).__name__} must have", np.asarray(getattr(kernel, name))
    # A fixed sigma_0 = 0 makes a linear function through the origin.
    least = 0.0 if parameter.fixed and name == "sigma_0" else LEAST_DIVISOR
    if value.dtype.kind not in "iuf" or not np.all(np.isfinite(value) & (value >= least)):
        raise ValueError(f"{must_have} {name} positive and finite; got {value.tolist()!r}.")
    if value.ndim > 1 or value.size != parameter.n_elements:
        form = "a number or a flat list" if name == "length_scale" else "a number"
        raise ValueError(f"{must_have} {form} as {name}; got {value.tolist()}.")
    if parameter.fixed:
        return
    bounds = np.asarray(parameter.bounds)
    numbers = bounds.dtype.kind in "iuf" and bounds.shape == (parameter.n_elements, 2)
    if not numbers or not np.all((bounds[:, 0] >= LEAST_DIVISOR) & (bounds[:, 0] <= bounds[:, 1])):
        raise ValueError(
            f"{must_have} {name}_bounds 'fixed', or a pair (low, high) of positive numbers, low <= high, or one for "
            f"each element; got {bounds.tolist()}."
        )


def _elementary(kernel: Kernel, prefix: str, parameters: PlacedParameters, features: Features) -> Term:
    """An elementary kernel as a term; the names of its parameters begin with a prefix."""
    family = FACTORS[type(kernel)].family(kernel) if type(kernel) in FACTORS else ""
    if not family and type(kernel) not in VARIANCES:
        raise NotCompiled(f"{type(kernel).__name__} is no compiled kernel")
    own = [(each.name.removeprefix(prefix), each, place) for each, place in parameters if each.name.startswith(prefix)]
    for name, parameter, _ in own:
        _check_parameter(kernel, name, parameter)
    leaf = Leaf(kernel, {name: at for name, each, at in own if not each.fixed}, features.places(kernel), family)
    n_seen = np.count_nonzero(leaf.places >= 0)
    if isinstance(kernel, ExpSineSquared) and n_seen > 1:
        raise ValueError(
            f"{kernel} is positive definite for a single feature only, but sees {n_seen}: "
            f"give ActiveDims({kernel}, [j]) for column j, or a product of such kernels."
        )
    return Term(factors=(leaf,)) if family else Term(((leaf, 1.0),), n_noise=int(type(kernel) is WhiteKernel))


def check_tree(root: Node, children: Callable[[Node], Iterable[Node]]) -> None:
    """ValueError for a tree of too many kernels, after a look at ``MAX_KERNELS`` of them at most."""
    waiting, count = [(root, 1)], 0
    while waiting:
        (node, depth), count = waiting.pop(), count + 1
        if count > MAX_KERNELS or depth > MAX_DEPTH:
            raise ValueError(
                f"The kernel is composed of more than {MAX_KERNELS} kernels, or nested more than {MAX_DEPTH} deep; "
                "simplify it."
            )
        waiting += [(child, depth + 1) for child in children(node)]


def check_kernel(kernel: Kernel | str) -> None:
    """ValueError for anything but a kernel of moderately many kernels."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a scikit-learn kernel object, 'precomputed' or None; got {kernel!r}.")

    def parts(whole: Kernel) -> list[Kernel]:
        children = [getattr(whole, name) for name in ("k1", "k2", "kernel") if hasattr(whole, name)]
        for child in children:
            if not isinstance(child, Kernel):
                raise ValueError(f"{type(whole).__name__} must have a scikit-learn kernel object; got {child!r}.")
        return children

    check_tree(kernel, parts)


def _active(kernel: Kernel) -> dict[str, ActiveDims]:
    """The ``ActiveDims`` in a kernel, by the prefixes of their parameters' names."""
    parts = {"": kernel, **{f"{name}__": part for name, part in kernel.get_params().items()}}
    return {prefix: part for prefix, part in parts.items() if type(part) is ActiveDims}


def with_numbers(kernel: Kernel, names: Sequence[str] | None) -> Kernel:
    """The kernel with the numbers of columns in the place of their names; ValueError for unknown names."""
    check_kernel(kernel)
    changed = {}
    for prefix, active in _active(kernel).items():
        if active.has_names:
            if unknown := [name for name in active.columns if name not in (names or ())]:
                has = "no names" if names is None else f"the columns {listed(names)}"
                raise ValueError(f"{active} has the names {unknown}, but X has {has}; give names of X, or numbers.")
            changed[f"{prefix}columns"] = [list(names or ()).index(str(name)) for name in active.columns]
    return clone(kernel).set_params(**changed) if changed else kernel


def _called(kernel: Kernel, features: Features) -> CalledKernel:
    """A kernel that is not compiled, of rows with the columns that those of a table become."""
    if isinstance(kernel, CompoundKernel):
        raise ValueError(f"{kernel} is several kernels side by side; give a single one, such as their sum.")
    if not np.all(np.isfinite(kernel.theta)):
        raise ValueError(f"The kernel {kernel} must have positive and finite parameters.")
    changed: dict[str, list[int]] = {}
    for prefix, active in _active(kernel).items():
        if features.groups is not None:
            if any(prefix.startswith(outer.removesuffix("columns")) for outer in changed):
                raise ValueError(f"{kernel} has ActiveDims within another, which a table with levels needs compiled.")
            changed[f"{prefix}columns"] = features.among(active).seen.tolist()
    return CalledKernel(clone(kernel).set_params(**changed) if changed else kernel)


def _variances(theta: np.ndarray) -> list[Term]:
    """Terms of a kernel that is not compiled: their variances are its free parameters, or a single 1."""
    values, no_places = np.exp(theta).tolist(), np.empty(0, dtype=np.intp)
    leaves = [Leaf(ConstantKernel(v), {"constant_value": slice(i, i + 1)}, no_places, "") for i, v in enumerate(values)]
    return [Term(((leaf, 1.0),)) for leaf in leaves] or [Term()]


def _counted(terms: list[Term], kernel: Kernel) -> list[Term]:
    """The terms; ValueError if they have too many factors."""
    if sum([max(1, len(term.factors)) for term in terms]) > MAX_FACTORS or any(t.n_noise > MAX_NOISE for t in terms):
        raise ValueError(f"The kernel {kernel} multiplies out to more than {MAX_FACTORS} factors; simplify it.")
    return terms


def _terms(kernel: Kernel, prefix: str, parameters: PlacedParameters, features: Features) -> list[Term]:
    """The kernel as a sum of terms; the names of its parameters begin with a prefix."""
    if type(kernel) in (Sum, Product):
        left = _terms(kernel.k1, f"{prefix}k1__", parameters, features)
        right = _terms(kernel.k2, f"{prefix}k2__", parameters, features)
        terms = left + right if type(kernel) is Sum else [a * b for a in left for b in right]
    elif type(kernel) is Exponentiation:
        terms = _power(_terms(kernel.kernel, f"{prefix}kernel__", parameters, features), kernel)
    elif type(kernel) is ActiveDims:
        terms = _terms(kernel.kernel, f"{prefix}kernel__", parameters, features.among(kernel))
    else:
        terms = [_elementary(kernel, prefix, parameters, features)]
    return _counted(terms, kernel)


def _power(terms: list[Term], kernel: Exponentiation) -> list[Term]:
    try:
        exponent = float(kernel.exponent)
    except (TypeError, ValueError, OverflowError):
        exponent = math.nan
    if not math.isfinite(exponent):
        raise ValueError(f"The exponent {kernel.exponent} of {kernel} is not supported: give a finite number.")
    if len(terms) == 1 and not terms[0].factors and not terms[0].n_noise:
        return [Term(tuple((leaf, power * exponent) for leaf, power in terms[0].variances))]
    if exponent < 0.0 and any(term.factors for term in terms):
        raise ValueError(f"Only a constant may have a negative exponent; got {exponent:g} in {kernel}.")
    if not (exponent.is_integer() and exponent >= 1.0):
        raise NotCompiled(f"{kernel.exponent} is no compiled exponent")
    product = terms
    # One factor too many ends the loop: no power needs more steps.
    for _ in range(int(min(exponent, MAX_NOISE + 1.0)) - 1):
        product = _counted([a * b for a in product for b in terms], kernel)
    return product


class KernelSpec:
    """A scikit-learn kernel, compiled for d features.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        Values, bounds and fixed parameters; it is not modified.
    n_features : int
    groups : Groups, default=None
        Features that may share a length scale; None means no sharing.

    Attributes
    ----------
    theta, bounds : (n_theta,) and (n_theta, 2) arrays
        Logarithms of the free parameters and of their bounds, as in scikit-learn.
    names : list of str
        Names of the free parameters; elements of one parameter have an index.
    features : list of tuple or None
        For each element of ``theta``, the features whose length scale it is; None for other parameters.

    Raises
    ------
    ValueError
        If the kernel is not supported or its length scales do not fit ``n_features``.
    """

    def __init__(self, kernel: Kernel, n_features: int, groups: Groups | None = None):
        check_kernel(kernel)
        self.n_features, self.groups = n_features, groups
        self._template = kernel
        self._values: np.ndarray | None = None
        self.called: CalledKernel | None = None
        self.not_compiled = ""
        # Read once, as it takes a good part of the time.
        every_parameter = kernel.hyperparameters
        ends = accumulate([0 if p.fixed else p.n_elements for p in every_parameter])
        parameters = [(p, slice(end - p.n_elements, end)) for p, end in zip(every_parameter, ends, strict=True)]
        try:
            self.terms = _terms(kernel, "", parameters, Features(n_features, groups))
        except NotCompiled as reason:
            self.called, self.not_compiled = _called(kernel, Features(n_features, groups)), str(reason)
            self.terms = _variances(kernel.theta)
        if all(term.n_noise for term in self.terms):
            raise ValueError(f"The kernel {kernel} is white noise alone; add a covariance such as RBF().")
        free, values = [p for p in every_parameter if not p.fixed], kernel.get_params()
        # A kernel of a user may have a theta of its own; others would read all parameters again.
        theta = kernel.theta if self.called else np.log(np.hstack([[], *[values[p.name] for p in free]]))
        self.theta = np.asarray(theta, dtype=np.float64)
        # kernel.bounds would take twice as long with every further summand.
        self.bounds = np.log(np.vstack([p.bounds for p in free])) if free else np.empty((0, 2))
        self.names = [f"{p.name}[{i}]" if p.n_elements > 1 else p.name for p in free for i in range(p.n_elements)]
        self.features: list[tuple[int, ...] | None] = [None] * len(self.theta)
        for _, leaf in self.factors:
            # Length scales are the only parameters with several elements.
            places = range(len(self.theta))[leaf.theta.get("length_scale", slice(0))]
            for j, place in enumerate(places if len(places) > 1 else ()):
                self.features[place] = tuple(np.flatnonzero(leaf.places == j).tolist())

    @cached_property
    def factors(self) -> list[tuple[int, Leaf]]:
        """All factors, each with the number of its term."""
        return [(t, leaf) for t, term in enumerate(self.terms) for leaf in term.factors]

    @cached_property
    def length_scales(self) -> list[tuple[slice, Kernel]]:
        """Where free length scales of features are in ``theta``, and their kernels."""
        # A periodic kernel has periods instead. The factors of a power have the same positions.
        leaves = [leaf for _, leaf in self.factors if leaf.factor.scale == "length_scale"]
        places = [(leaf.theta["length_scale"], leaf.kernel) for leaf in leaves if "length_scale" in leaf.theta]
        return list({place.start: (place, kernel) for place, kernel in places}.values())

    @property
    def kernel(self) -> Kernel:
        """A scikit-learn kernel with the values of ``theta``."""
        return self._template if self._values is None else self._template.clone_with_theta(self._values)

    def has_kernel_of(self, other: KernelSpec) -> bool:
        """Whether the kernels are equal."""
        if self._template is other._template:
            return np.array_equal(self.theta, other.theta)
        return bool(self.kernel == other.kernel)

    def with_theta(self, theta: np.ndarray) -> KernelSpec:
        """The same kernel with other values of ``theta``."""
        values = np.array(theta, dtype=np.float64)
        if values.shape != self.theta.shape or not np.all(np.isfinite(values)):
            raise ValueError(f"theta must be {len(self.theta)} finite numbers; got {theta!r}.")
        other = object.__new__(type(self))
        vars(other).update(vars(self), theta=values, _values=values)
        return other

    def within_bounds(self) -> KernelSpec:
        """The same kernel with ``theta`` clipped to its bounds."""
        inside = np.clip(self.theta, *self.bounds.T)
        return self if np.array_equal(inside, self.theta) else self.with_theta(inside)

    def compiled(self, kernel: Kernel) -> KernelSpec:
        """Another kernel for the same features."""
        return KernelSpec(kernel, self.n_features, self.groups)

    def least_length_scales(self, otherwise: np.ndarray) -> np.ndarray:
        """Least length scales (d,) over the factors, or ``otherwise`` where no factor has length scales."""
        scales = [leaf.length_scale(self._values) for _, leaf in self.factors if leaf.factor.scale]
        least = np.min(scales, axis=0, initial=np.inf)
        return np.where(np.isinf(least), otherwise, least)

    @property
    def has_slopes(self) -> bool:
        """Whether inducing points can be learned: the gradient of k(x, z) in z is compiled, and does not jump where x
        and z agree in a feature, but are not equal."""
        return self.called is None and all(leaf.family != "axis-matern-1/2" for _, leaf in self.factors)

    def relevance(self, spread: np.ndarray) -> np.ndarray | str:
        """Root (d,) of the sum of variance (spread / length_scale)^2 over the factors, or why it is undefined.

        Under the prior of a term s prod_f k_f(|x - x'| / l_f), the slope along feature j has the variance s sum_f c_f /
        l_fj^2. The smoothness c_f counts as 1 for all kernels, because the Matern kernel with nu = 1/2 has no slope.
        """
        if self.called is not None:
            return f"it is not compiled, because {self.not_compiled}"
        if not all(leaf.factor.scale == "length_scale" for _, leaf in self.factors):
            return "it has a factor without length scales of features"
        if self.n_features > 1 and all(np.all(leaf.places == 0) for _, leaf in self.factors):
            return "it has one length scale for all features"
        total = np.zeros(self.n_features)
        for variance, factors in self.latent_terms():
            # A constant term has no factors.
            for _, _, length_scale in factors:
                total += variance * (spread / length_scale) ** 2
        return np.sqrt(total)

    def latent_terms(self) -> list[tuple[float, ValuedFactors]]:
        """Variance and factors of each term of the latent function's covariance, which has no noise."""
        terms = [term for term in self.terms if not term.n_noise]
        valued = [[(f, f.shape(self._values), f.length_scale(self._values)) for f in term.factors] for term in terms]
        return [(term.variance(self._values), factors) for term, factors in zip(terms, valued, strict=True)]

    def at(self, inducing_points: np.ndarray) -> InducingKernel:
        """The compiled kernel between rows and inducing points (m, d)."""
        logs, (noise, term, family, values) = self.logarithms, self._compiled
        n_terms, n_factors = len(noise), len(family)
        # An overflow gives infinity, and the Cholesky factorisation then reports it.
        with np.errstate(over="ignore", under="ignore"):
            if self._values is not None:
                by_theta = np.bincount(logs.row, logs.power * self.theta[logs.column], len(logs.offset))
                values = values.copy()
                values[logs.row] = np.exp(logs.offset + by_theta)[logs.row]
            scale = 1.0 / values[n_terms + n_factors :].reshape(n_factors, self.n_features)
        shape = values[n_terms : n_terms + n_factors]
        return InducingKernel(values[:n_terms], noise, term, family, shape, scale, inducing_points, self.called)

    @cached_property
    def _compiled(self) -> tuple[np.ndarray, ...]:
        """Which terms are noise, the term of each factor, and its number in ``FAMILIES``; and the parameters as the
        kernel has them, because exponentials would round them."""
        noise, term = [bool(term.n_noise) for term in self.terms], [t for t, _ in self.factors]
        family = [FAMILIES[leaf.family] for _, leaf in self.factors]
        return np.array(noise, np.intc), np.array(term, np.intp), np.array(family, np.intc), self._values_at(None)

    def _values_at(self, theta: np.ndarray | None) -> np.ndarray:
        """The compiled kernel's parameters in the order of ``Logarithms``."""
        variances = [term.variance(theta) for term in self.terms]
        shapes = [leaf.shape(theta) ** leaf.factor.power for _, leaf in self.factors]
        return np.concatenate([variances, shapes, *(leaf.length_scale(theta) for _, leaf in self.factors)])

    def gradient(
        self, core: InducingKernel, cross: KernelGradient, gram: KernelGradient
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (n_theta,) and (m, d) of F in ``theta`` and in the inducing points of ``core``.

        ``cross`` has the contractions of dF/dk(X, Z) and dF/dk_ii, and ``gram`` those of dF/dk(Z, Z).
        """
        by_value, by_points = vjp(core, cross, gram)
        logs = self.logarithms
        return np.bincount(logs.column, logs.power * by_value[logs.row], len(self.theta)), by_points

    @cached_property
    def logarithms(self) -> Logarithms:
        """The logarithms of the compiled kernel's parameters as a linear function of ``theta``."""
        n_terms, n_factors = len(self.terms), len(self.factors)
        variances = [(t, *variance) for t, term in enumerate(self.terms) for variance in term.variances]
        entries = [(t, place.start, power) for t, leaf, power in variances for place in leaf.theta.values()]
        for f, (_, leaf) in enumerate(self.factors):
            factor, first_scale = leaf.factor, n_terms + n_factors + f * self.n_features
            if factor.shape in leaf.theta:
                entries.append((n_terms + f, leaf.theta[factor.shape].start, factor.power))
            if factor.scale in leaf.theta:
                start, places = leaf.theta[factor.scale].start, enumerate(leaf.places.tolist())
                entries += [(first_scale + j, start + place, 1.0) for j, place in places if place >= 0]
        rows, columns, powers = np.array(entries).reshape(-1, 3).T
        # At theta = 0 the free parameters are 1, and only the logarithms of the fixed ones are left.
        with np.errstate(divide="ignore"):
            offset = np.log(self._values_at(np.zeros(len(self.theta))))
        return Logarithms(offset, rows.astype(np.intp), columns.astype(np.intp), np.ascontiguousarray(powers))
