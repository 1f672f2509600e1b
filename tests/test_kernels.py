"""Compiled kernels against scikit-learn's: rows of any layout, type, place and size."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.gaussian_process.kernels import RBF, DotProduct, ExpSineSquared, Matern, RationalQuadratic
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White
from support import dense
from support.dense import MATERN, assert_equals_scikit_learn, compiled, kernel_trees
from support.fits import clone_of, refuses

from xgpc._kernels import InducingKernel
from xgpc.kernels import ActiveDims, AxisMatern
from xgpc.kernels.spec import MAX_FACTORS, MAX_NOISE, KernelSpec

EPS = np.finfo(np.float64).eps
ARD = np.array([0.7, 2.0, 1.3])
X, Z = (np.random.default_rng(seed).normal(size=(n, 3)) for seed, n in enumerate((300, 17)))

KERNELS = {name: make(ARD, 2.0, 0.1) for name, make in dense.KERNELS.items()}
KERNELS |= {
    "isotropic in an array": RBF(np.array([1.3])),
    "scaled from the right": RBF(ARD) * C(2.0),
    "scaled twice": C(2.0) * (C(0.25) * RBF(0.8)),
    "constant alone": C(1.5),
    "constant and white": White(0.1) + C(1.5),
    "several whites": White(0.2) + RBF(1.0) + White(0.3),
    "both sides distributed": (C(1.0) + C(2.0)) * (RBF(1.0) + RBF(ARD) + White(0.5)) * C(0.4),
    "long": C(1e4) * RBF(1e3) + C(1e-4),
    "long periods": ActiveDims(ExpSineSquared(0.4, 30.0), [0]) * RBF(ARD),
    "dot product alone": DotProduct(0.6),
    "axis by dot product": RBF(ARD) * AxisMatern(2.0) + C(0.3) * DotProduct(0.6) * AxisMatern(ARD, "fixed", nu=1.5),
    "powers": Matern(ARD, nu=2.5) ** 3 + C(0.7) ** -1.5 * RBF(2.0) ** 2 * DotProduct(0.6) ** 2,
    "product of many sums": (Matern(ARD) + DotProduct(0.6) + C(0.3)) * (RationalQuadratic(1.3, 0.7) + DotProduct(1.5)),
}
KERNELS |= dense.KERNELS_OF_COLUMNS
STATIONARY = {name: KERNELS[name] for name in ("sum", "rational quadratic", "axis 1/2", "axis 3/2")}
STATIONARY |= {name: KERNELS[name] for name in (f"matern {nu}" for nu in MATERN)}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
every_stationary = pytest.mark.parametrize("kernel", STATIONARY.values(), ids=STATIONARY)


@every_kernel
def test_cross_covariance_and_diagonal(kernel):
    """Also of one row or point. k(Z, Z) with Z given twice has no noise, as in scikit-learn."""
    for rows, points in ((X, Z), (Z, Z), (X[:1], Z), (X, Z[:1])):
        assert_equals_scikit_learn(kernel, rows, points)
    core = compiled(kernel, Z)
    assert core.cross(X[:0]).shape == (0, 17)
    assert core.diagonals(X[:0]).shape == (0,)


@every_kernel
def test_float32_rows_are_taken_as_they_are(kernel):
    """Converted one by one: the same bits as from a converted copy."""
    single, core = X.astype(np.float32), compiled(kernel, Z)
    for function in (core.cross, core.diagonals):
        assert np.array_equal(function(single), function(single.astype(np.float64)))
    assert_equals_scikit_learn(kernel, single, Z)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", ["sum", "product of sums", "power of a sum"])
def test_memory_layout_does_not_matter(kernel, dtype):
    rows = X.astype(dtype)
    wide = np.zeros((600, 9), dtype=dtype)
    wide[::2, 1::3] = rows
    read_only = rows.copy()
    read_only.flags.writeable = False
    core = compiled(KERNELS[kernel], Z)
    for view in (np.asfortranarray(rows), wide[::2, 1::3], read_only, rows[::-1].copy()[::-1]):
        np.testing.assert_equal([core.cross(view), core.diagonals(view)], [core.cross(rows), core.diagonals(rows)])


@every_stationary
def test_a_row_does_not_depend_on_the_others(kernel):
    core = compiled(kernel, Z)
    np.testing.assert_allclose(np.vstack([core.cross(row[None]) for row in X]), core.cross(X), rtol=1e-13)


@pytest.mark.parametrize("offset", [1e3, -1e6, 1e9])
@every_stationary
def test_an_offset_costs_no_digits(kernel, offset):
    """The origin is moved to the inducing points; scikit-learn is given the differences, which are exact."""
    rows, points = X + offset, Z + offset
    np.testing.assert_allclose(compiled(kernel, points).cross(rows), kernel(rows - offset, points - offset), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e4, 1e9, 1e100])
@pytest.mark.parametrize(
    "kernel", [RBF(1.0), C(2.5) * RBF(ARD), Matern(1.0, nu=0.5), Matern(ARD, nu=2.5), AxisMatern(ARD, nu=1.5)], ids=str
)
def test_distances_of_huge_rows_do_not_cancel(scale, kernel):
    """Equal rows have exactly the variance, all others none."""
    rows = X * scale
    expected = kernel.diag(rows)[:, None] * np.eye(300, 17)
    np.testing.assert_allclose(compiled(kernel, rows[:17]).cross(rows), expected, rtol=0.0, atol=1e-30)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 300.0])
@every_stationary
def test_close_pairs_among_distant_rows(kernel, scale):
    """Expanded squares lose eps times the squared norm in length scales, 1e-10 before differences are formed."""
    rows = X * scale
    near = np.vstack([rows[:8] + np.array([0.5, -0.5, 0.5]), rows[8:100]])
    assert_equals_scikit_learn(kernel, rows, near, rtol=1e-13 + EPS * np.sum((np.ptp(rows, axis=0) / 0.7) ** 2))


@every_stationary
def test_covariance_never_exceeds_the_variance(kernel):
    """Squared distances that rounding makes negative are clipped."""
    variance = kernel(X[:1], X[:1])[0, 0]
    for scale in 10.0 ** np.arange(-3.0, 3.0):
        covariance = compiled(kernel, scale * X).cross(scale * X)
        assert covariance.max() <= variance * (1.0 + 2 * EPS)
        np.testing.assert_allclose(np.diag(covariance), variance, rtol=4 * EPS * (1.0 + 20.0 * scale**2))


@pytest.mark.parametrize("value", [-1.0, np.nan])
@pytest.mark.parametrize(
    "make",
    [
        lambda value: C(value, "fixed") * RBF(1.0),
        lambda value: RBF(value, "fixed") + C(1.0),
        lambda value: RBF(np.array([1.0, value]), "fixed"),
        lambda value: RBF(1.0) + White(value, "fixed"),
        lambda value: RationalQuadratic(1.0, value, "fixed", "fixed"),
        lambda value: DotProduct(value, "fixed"),
    ],
    ids=["constant", "length scale", "length scales", "white", "alpha", "sigma_0"],
)
def test_fixed_parameters_are_checked_too(make, value):
    """They are not in theta."""
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="positive"):
        compiled(make(value), np.zeros((1, 2)))


@every_kernel
def test_pickle(kernel):
    core = compiled(kernel, Z)
    copy = clone_of(core)
    assert isinstance(copy, InducingKernel)
    np.testing.assert_equal([copy.cross(X), copy.diagonals(X)], [core.cross(X), core.diagonals(X)])
    for name in ("n_terms", "n_factors", "n_inducing", "n_features"):
        assert getattr(copy, name) == getattr(core, name)


@pytest.mark.parametrize(
    "bounds", [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.1), (np.nan, 1.0), "free", [(1.0, 2.0), (3.0, 4.0)]], ids=str
)
def test_bounds_without_an_interval_of_logarithms_are_refused(bounds):
    with pytest.raises(ValueError, match=r"RBF must have length_scale_bounds 'fixed', or a pair .* got \["):
        compiled(C(1.0) * RBF(1.0, bounds), np.zeros((1, 2)))


@st.composite
def problems(draw):
    """A kernel, rows, and inducing points of one to four features, some of which are rows or close to one."""
    d = draw(st.integers(1, 4))
    X, Z = (draw(arrays(np.float64, (draw(st.integers(1, 9)), d), elements=st.floats(-2.0, 2.0))) for _ in range(2))
    shared = draw(st.integers(0, min(len(X), len(Z))))
    Z[:shared] = X[:shared] + draw(st.sampled_from([0.0, 1e-12, 1e-8, 1e-4]))
    return draw(kernel_trees(d)), X, Z


@settings(max_examples=60)
@given(problems(), st.floats(-0.3, 0.3))
def test_any_tree(problem, step):
    """Before and after moving its free parameters, each by another amount; the largest error found is 1e-14."""
    kernel, X, Z = problem
    spec = KernelSpec(kernel, X.shape[1])
    assert_equals_scikit_learn(kernel, X, Z, spec, rtol=1e-13)
    theta = kernel.theta + step * np.cos(np.arange(kernel.n_dims))
    moved = spec.with_theta(theta)
    assert_equals_scikit_learn(kernel.clone_with_theta(theta), X, Z, moved, rtol=1e-13)
    assert moved.kernel == kernel.clone_with_theta(theta)


@settings(max_examples=25)
@given(kernel_trees(3))
def test_parameters_of_any_tree_are_in_scikit_learns_order(kernel):
    spec = KernelSpec(kernel, 3)
    assert spec.kernel is kernel
    assert np.array_equal(spec.theta, kernel.theta)
    assert np.array_equal(spec.bounds, np.reshape(kernel.bounds, (-1, 2)))
    free = [parameter for parameter in kernel.hyperparameters if not parameter.fixed]
    assert [re.sub(r"\[\d+\]$", "", name) for name in spec.names] == [p.name for p in free for _ in range(p.n_elements)]


@pytest.mark.parametrize("nu", MATERN.values(), ids=MATERN)
@pytest.mark.parametrize("length_scale", [1.3, ARD], ids=["isotropic", "ard"])
def test_matern_of_coincident_and_nearly_coincident_rows(nu, length_scale):
    """There the profiles have their kink, or a higher derivative's."""
    kernel = C(2.5) * Matern(length_scale, nu=nu)
    core = KernelSpec(kernel, 3).at(Z)
    np.testing.assert_allclose(np.diag(core.cross(Z)), 2.5, rtol=1e-12)
    assert core.cross(Z).max() <= 2.5
    for distance in (0.0, 1e-300, 1e-16, 1e-12, 1e-9, 1e-8, 1e-7, 1e-5, 1e-3):
        assert_equals_scikit_learn(kernel, np.vstack([Z + distance, Z - distance]), Z)


NO_POWER = r"The exponent \S+ of .* is not supported: give a finite number"
TOO_MANY = rf"multiplies out to more than {MAX_FACTORS} factors; simplify it"
REFUSED = {
    "Matern must have nu positive; got": [Matern(nu=-1.0), Matern(nu=None), RBF() + Matern(nu="rough")],
    "Only a constant may have a negative exponent": [RBF() ** -1, C(2.0) * RBF() ** -0.5],
    NO_POWER: [DotProduct() ** np.inf, Matern() ** np.nan, C(2.0) ** np.nan * RBF(1.0)],
    r"single feature only, but sees 2: give ActiveDims\(ExpSineSquared": [C(2.0) * ExpSineSquared()],
    TOO_MANY: [
        (RBF(1.0) + C(1.0)) ** 5, (RBF(1.0) + C(1.0)) ** 65, ((RBF(1.0) + C(1.0)) ** 3) ** 2, RBF(1.0) ** 65,
        (RBF(1.0) + Matern()) ** 3 * (DotProduct() + C(1.0)) ** 3, RBF(1.0) ** 40 + RBF(2.0) ** 25,
        (RBF(1.0) ** 8) ** 9, (C(1.0) + C(2.0)) ** 6 + RBF(1.0),
        ((White() ** MAX_NOISE) ** MAX_NOISE) ** MAX_NOISE + RBF(),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("message", "kernel"), [(text, kernel) for text, some in REFUSED.items() for kernel in some])
def test_kernels_are_refused_with_the_reason(message, kernel):
    refuses(message, KernelSpec, kernel, 2)


@pytest.mark.parametrize(("depth", "compose"), [(60, lambda k: k + k), (3000, lambda k: k + RBF()), (300, C().__mul__)])
def test_trees_of_too_many_kernels_are_refused_without_walking_over_them(depth, compose):
    """2^61 kernels, and trees that are deeper than Python's limit of recursion."""
    kernel = RBF()
    for _ in range(depth):
        kernel = compose(kernel)
    refuses("composed of more than 256 kernels, or nested more than 100 deep", KernelSpec, kernel, 2)
