"""Any kernel that is supported, and what is compared with scikit-learn's."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.gaussian_process.kernels import (
    RBF,
    DotProduct,
    Exponentiation,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
)
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White

from .internals import KernelSpec

MATERN = {"1/2": 0.5, "3/2": 1.5, "5/2": 2.5, "infinity": np.inf}


def compiled(kernel, Z, groups=None):
    """The core's kernel at inducing points."""
    return KernelSpec(kernel, np.shape(Z)[1], groups).at(Z)


def magnitude(kernel, X, Z):
    """The kernel with |x|.|z| for x.z: a sum of absolute values wherever terms of opposite sign may cancel."""
    if isinstance(kernel, Sum):
        return magnitude(kernel.k1, X, Z) + magnitude(kernel.k2, X, Z)
    if isinstance(kernel, Product):
        return magnitude(kernel.k1, X, Z) * magnitude(kernel.k2, X, Z)
    if isinstance(kernel, Exponentiation):
        return magnitude(kernel.kernel, X, Z) ** kernel.exponent
    return kernel(np.abs(X), np.abs(Z)) if isinstance(kernel, DotProduct) else kernel(X, Z)


def assert_equals_scikit_learn(kernel, X, Z, spec=None, rtol=1e-12):
    """Values and diagonals, each relative to its magnitude."""
    core = (spec or KernelSpec(kernel, Z.shape[1])).at(Z)
    rows, points = np.asarray(X, dtype=np.float64), np.asarray(Z, dtype=np.float64)
    error = np.abs(core.cross(X) - kernel(rows, points))
    assert np.all(error <= rtol * magnitude(kernel, rows, points) + 1e-300)
    np.testing.assert_allclose(core.diagonals(X), kernel.diag(rows), rtol=1e-13)


def elementary_kernels(d):
    """Any leaf of d features, free or fixed, with values at which rows a few units apart still have covariances."""
    value, scale = st.floats(0.25, 3.0), st.floats(0.7, 4.0)
    length = st.one_of(scale, arrays(np.float64, d, elements=scale))
    limits = st.sampled_from([(1e-5, 1e5), (1e-2, 1e3), "fixed"])
    return st.one_of(
        st.builds(RBF, length, limits),
        st.builds(Matern, length, limits, nu=st.sampled_from(list(MATERN.values()))),
        st.builds(RationalQuadratic, scale, value, limits, limits),
        st.builds(DotProduct, value, limits),
        st.builds(C, value, limits),
        st.builds(White, value, limits),
        st.builds(Exponentiation, st.builds(C, value, limits), st.floats(-2.0, 2.0)),
    )


@st.composite
def trees(draw, d, depth):
    """Compositions at most ``depth`` deep; at three they multiply out to no more factors than are allowed."""
    composition = draw(st.sampled_from([None, Sum, Sum, Product, Exponentiation])) if depth else None
    if composition is None:
        return draw(elementary_kernels(d))
    first = draw(trees(d, depth - 1))
    if composition is Exponentiation:
        return first ** draw(st.integers(1, 2 if isinstance(first, Sum | Product | Exponentiation) else 3))
    return composition(first, draw(trees(d, depth - 1)))


def kernel_trees(d, depth=3):
    """Trees that are not white noise alone, whose covariance of different rows is nothing."""
    return trees(d, depth).filter(lambda kernel: np.any(kernel(np.zeros((1, d)), np.ones((1, d)))))
