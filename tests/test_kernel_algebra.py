"""Sums, products and powers of kernels against scikit-learn's: chosen ones, their limits, and random trees."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
)
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White
from support.kernels import MATERN, assert_equals_scikit_learn, kernel_trees

from xgpc.kernels.spec import MAX_FACTORS, MAX_NOISE, KernelSpec

ARD = np.array([0.7, 2.0, 1.3])
repeatable = settings(deadline=None, derandomize=True, max_examples=60)


@st.composite
def problems(draw):
    """A kernel, rows, and inducing points of one to four features, some of which are rows or close to one."""
    d = draw(st.integers(1, 4))
    X, Z = (draw(arrays(np.float64, (draw(st.integers(1, 9)), d), elements=st.floats(-2.0, 2.0))) for _ in range(2))
    shared = draw(st.integers(0, min(len(X), len(Z))))
    Z[:shared] = X[:shared] + draw(st.sampled_from([0.0, 1e-12, 1e-8, 1e-4]))
    return draw(kernel_trees(d)), X, Z


@repeatable
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


@settings(repeatable, max_examples=25)
@given(kernel_trees(3))
def test_parameters_of_any_tree_are_in_scikit_learns_order(kernel):
    spec = KernelSpec(kernel, 3)
    assert spec.kernel is kernel
    assert np.array_equal(spec.theta, kernel.theta)
    assert np.array_equal(spec.bounds, np.reshape(kernel.bounds, (-1, 2)))
    free = [parameter for parameter in kernel.hyperparameters if not parameter.fixed]
    assert [re.sub(r"\[\d+\]$", "", name) for name in spec.names] == [p.name for p in free for _ in range(p.n_elements)]


def test_names_bounds_and_values_of_parameters():
    kernel = C(2.0, (0.1, 10.0)) * RBF(ARD, (0.2, 20.0)) + (
        C(0.5, "fixed") + RationalQuadratic(1.5, 0.3, (0.3, 30.0), (0.4, 40.0))
    ) ** 2 * (DotProduct(0.6, (0.5, 50.0)) + White(0.1, (0.05, 5.0)))
    spec = KernelSpec(kernel, 3)
    assert spec.names == [
        "k1__k1__constant_value",
        *(f"k1__k2__length_scale[{j}]" for j in range(3)),
        "k2__k1__kernel__k2__alpha",
        "k2__k1__kernel__k2__length_scale",
        "k2__k2__k1__sigma_0",
        "k2__k2__k2__noise_level",
    ]
    np.testing.assert_allclose(np.exp(spec.theta), [2.0, *ARD, 0.3, 1.5, 0.6, 0.1], rtol=1e-14)
    lowest = [0.1, 0.2, 0.2, 0.2, 0.4, 0.3, 0.5, 0.05]
    np.testing.assert_allclose(np.exp(spec.bounds), np.outer(lowest, [1.0, 100.0]), rtol=1e-14)


# Matern's profiles have their kink, or a higher derivative's, where rows coincide.


@pytest.mark.parametrize("nu", MATERN.values(), ids=MATERN)
@pytest.mark.parametrize("length_scale", [1.3, ARD], ids=["isotropic", "ard"])
def test_matern_of_coincident_and_nearly_coincident_rows(nu, length_scale):
    Z = np.random.default_rng(1).normal(size=(17, 3))
    kernel = C(2.5) * Matern(length_scale, nu=nu)
    core = KernelSpec(kernel, 3).at(Z)
    np.testing.assert_allclose(np.diag(core.cross(Z)), 2.5, rtol=1e-12)
    assert core.cross(Z).max() <= 2.5
    for distance in (0.0, 1e-300, 1e-16, 1e-12, 1e-9, 1e-8, 1e-7, 1e-5, 1e-3):
        assert_equals_scikit_learn(kernel, np.vstack([Z + distance, Z - distance]), Z)


# Constants and noise.


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        (White(0.1) * White(0.3), 0.03),
        (White(0.1) ** 3, 0.001),
        (C(4.0) ** 0.5 * White(0.1), 0.2),
        (White(0.1) * RBF(2.0), 0.1),
        (RBF(ARD) * (White(0.1) + White(0.2)), 0.3),
        (Matern(ARD, nu=0.5) * RationalQuadratic(0.5, 2.0) ** 2 * White(0.1), 0.1),
        ((C(2.0) + White(0.1)) ** 2, 4.41),
        (DotProduct(0.5) * White(0.1), 1.425),
        (White(2.0) * DotProduct(0.5) ** 2, 406.125),
        ((DotProduct(0.5) + White(2.0)) ** 2, 16.25**2),
        (White(0.9) ** 65, 0.9**65),
    ],
    ids=str,
)
def test_noise_of_a_row_by_itself(noise, expected):
    """Noise counts on the diagonal of k(X, X) alone, times the other factors there."""
    x = np.array([[1.0, 2.0, 3.0]])
    kernel = RBF(ARD) + noise
    core = KernelSpec(kernel, 3).at(x)
    assert core.diagonals(x)[0] == pytest.approx(1.0 + expected, rel=1e-14)
    np.testing.assert_allclose(core.cross(x), kernel(x, x), rtol=1e-13)
    assert_equals_scikit_learn(kernel, np.random.default_rng(3).normal(size=(20, 3)), x)


# What is refused.


class Doubled(RBF):
    """A user's kernel, which is no RBF for having been made from it."""

    def __call__(self, X, Y=None, eval_gradient=False):
        return 2.0 * super().__call__(X, Y, eval_gradient)


UNSUPPORTED = r"not supported\. Supported: ConstantKernel, RBF, Matern.* and WhiteKernel"
NO_POWER = r"The exponent \S+ of .* is not supported\. Supported: .* integer exponent"
TOO_MANY = rf"multiplies out to more than {MAX_FACTORS} factors; simplify it"
REFUSED = {
    UNSUPPORTED: [
        Matern(nu=1.0), RBF(1.0) + Matern(nu=3.5), C(2.0) * ExpSineSquared(), CompoundKernel([RBF(1.0), RBF(2.0)]),
        PairwiseKernel(), Doubled(1.0), C(2.0) * (Doubled(1.0) + C(1.0)) ** 2,
    ],
    NO_POWER: [
        RBF(1.0) ** 0.5, RBF(1.0) ** -1, RBF(1.0) ** 0, DotProduct() ** np.inf, Matern() ** np.nan,
        C(2.0) ** np.nan * RBF(1.0), White(1.0) ** 0.5 + RBF(1.0), (RBF(1.0) + C(1.0)) ** 1.5, (C(1.0) + C(2.0)) ** 0.5,
    ],
    TOO_MANY: [
        (RBF(1.0) + C(1.0)) ** 5, (RBF(1.0) + C(1.0)) ** 65, ((RBF(1.0) + C(1.0)) ** 3) ** 2, RBF(1.0) ** 65,
        (RBF(1.0) + Matern()) ** 3 * (DotProduct() + C(1.0)) ** 3, RBF(1.0) ** 40 + RBF(2.0) ** 25,
        (RBF(1.0) ** 8) ** 9, (C(1.0) + C(2.0)) ** 6 + RBF(1.0),
        ((White() ** MAX_NOISE) ** MAX_NOISE) ** MAX_NOISE + RBF(),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("message", "kernel"), [(text, kernel) for text, some in REFUSED.items() for kernel in some])
def test_kernels_are_refused_with_the_reason(message, kernel):
    with pytest.raises(ValueError, match=message):
        KernelSpec(kernel, 2)


@pytest.mark.parametrize(("depth", "compose"), [(60, lambda k: k + k), (3000, lambda k: k + RBF()), (300, C().__mul__)])
def test_trees_of_too_many_kernels_are_refused_without_walking_over_them(depth, compose):
    """2^61 kernels, and trees that are deeper than Python's limit of recursion."""
    kernel = RBF()
    for _ in range(depth):
        kernel = compose(kernel)
    with pytest.raises(ValueError, match="composed of more than 256 kernels, or nested more than 100 deep"):
        KernelSpec(kernel, 2)
