"""Kernels, problems of two classes and full processes, with the dense formulas that results are compared with."""

import pickle

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
)
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White

from xgpc import GPClassifier
from xgpc.kernels import ActiveDims, AxisMatern

from .internals import FullPrior, KernelSpec, grouped

MATERN = {"1/2": 0.5, "3/2": 1.5, "5/2": 2.5, "infinity": np.inf}


def compiled(kernel, Z, groups=None):
    return KernelSpec(kernel, np.shape(Z)[1], groups).at(Z)


def smooth_part(kernel):
    """The kernel without the noise in its last terms."""
    is_noisy = isinstance(kernel, Sum) and "WhiteKernel" in str(kernel.k2)
    return smooth_part(kernel.k1) if is_noisy else kernel


def magnitude(kernel, X, Z):
    """The kernel with |x|.|z| for x.z: a sum of absolute values wherever terms of opposite sign may cancel."""
    if isinstance(kernel, Sum):
        return magnitude(kernel.k1, X, Z) + magnitude(kernel.k2, X, Z)
    if isinstance(kernel, Product):
        return magnitude(kernel.k1, X, Z) * magnitude(kernel.k2, X, Z)
    if isinstance(kernel, Exponentiation):
        return magnitude(kernel.kernel, X, Z) ** kernel.exponent
    if isinstance(kernel, ActiveDims):
        return magnitude(kernel.kernel, X[:, kernel.columns], Z[:, kernel.columns])
    return kernel(np.abs(X), np.abs(Z)) if isinstance(kernel, DotProduct) else kernel(X, Z)


def assert_equals_scikit_learn(kernel, X, Z, spec=None, rtol=1e-12):
    core = (spec or KernelSpec(kernel, Z.shape[1])).at(Z)
    rows, points = np.asarray(X, dtype=np.float64), np.asarray(Z, dtype=np.float64)
    error = np.abs(core.cross(X) - kernel(rows, points))
    assert np.all(error <= rtol * magnitude(kernel, rows, points) + 1e-300)
    np.testing.assert_allclose(core.diagonals(X), kernel.diag(rows), rtol=1e-13)


def leaves(d):
    """Any leaf of d features, free or fixed, with values at which rows a few units apart still have covariances."""
    value, scale = st.floats(0.25, 3.0), st.floats(0.7, 4.0)
    length = st.one_of(scale, arrays(np.float64, d, elements=scale))
    limits = st.sampled_from([(1e-5, 1e5), (1e-2, 1e3), "fixed"])
    return st.one_of(
        st.builds(RBF, length, limits),
        st.builds(Matern, length, limits, nu=st.sampled_from(list(MATERN.values()))),
        st.builds(AxisMatern, length, limits, nu=st.sampled_from([0.5, 1.5])),
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
        of_one = st.builds(ActiveDims, leaves(1), st.integers(0, d - 1).map(lambda column: [column]))
        return draw(st.one_of(leaves(d), of_one))
    first = draw(trees(d, depth - 1))
    if composition is Exponentiation:
        return first ** draw(st.integers(1, 2 if isinstance(first, Sum | Product | Exponentiation) else 3))
    return composition(first, draw(trees(d, depth - 1)))


def kernel_trees(d, depth=3):
    """Trees that are not white noise alone, whose covariance of different rows is nothing."""
    return trees(d, depth).filter(lambda kernel: np.any(kernel(np.zeros((1, d)), np.ones((1, d)))))


# Each takes a length scale (d,), a variance and a white variance.
KERNELS = {
    "isotropic": lambda length, s, w: C(s) * RBF(length[0]),
    "ard": lambda length, s, w: C(s) * RBF(length),
    "ard alone": lambda length, s, w: RBF(length),
    "white": lambda length, s, w: C(s) * RBF(length) + White(w),
    "constant": lambda length, s, w: C(0.5) + C(s) * RBF(length),
    "sum": lambda length, s, w: C(0.5) + C(s) * RBF(length) + C(0.3) * RBF(1.7) + White(w),
    "distributed": lambda length, s, w: C(s) * (C(0.8) * RBF(length) + RBF(2.0) + White(w)),
    "scaled white": lambda length, s, w: RBF(length) + C(s) * White(w),
    "fixed variance": lambda length, s, w: C(s, "fixed") * RBF(length) + White(w),
    "fixed isotropic": lambda length, s, w: C(s) * RBF(length[0], "fixed") + White(w),
    "fixed white": lambda length, s, w: White(w, "fixed") + C(s) * RBF(length) + C(0.5, "fixed"),
    "fixed ard": lambda length, s, w: C(s) * RBF(length, "fixed") + C(0.3) * RBF(length),
    "nothing free": lambda length, s, w: C(s, "fixed") * RBF(length, "fixed"),
    "matern 1/2": lambda length, s, w: C(s) * Matern(length, nu=0.5) + White(w),
    "matern 1/2 isotropic": lambda length, s, w: Matern(length[0], nu=0.5),
    "matern 3/2": lambda length, s, w: C(s) * Matern(length, nu=1.5) + White(w),
    "matern 5/2": lambda length, s, w: C(s) * Matern(length, nu=2.5) + White(w),
    "matern infinity": lambda length, s, w: C(s) * Matern(length, nu=np.inf),
    "rational quadratic": lambda length, s, w: C(s) * RationalQuadratic(length[0], w + 0.2) + White(w),
    "periodic": lambda length, s, w: (
        C(s) * ActiveDims(ExpSineSquared(1.0 + w, 2.0 * length[1]), [1]) * RBF(length) + White(w)
    ),
    "rational quadratic, fixed alpha": lambda length, s, w: RationalQuadratic(length[0], s, alpha_bounds="fixed"),
    "rational quadratic, fixed length": lambda length, s, w: RationalQuadratic(
        length[0], s, length_scale_bounds="fixed"
    ),
    "dot product": lambda length, s, w: C(s) * DotProduct(length[0]) + Matern(length),
    "dot product, fixed": lambda length, s, w: C(s) * DotProduct(length[0], "fixed") + C(0.5) * RBF(length),
    "product": lambda length, s, w: C(s) * Matern(length, nu=0.5) * RationalQuadratic(1.3, w + 0.5) * DotProduct(s),
    "product of sums": lambda length, s, w: (Matern(length) + C(w)) * (RBF(length[0]) + C(s) * DotProduct(0.6)),
    "power": lambda length, s, w: C(s) ** -0.5 * Matern(length, nu=2.5) ** 3 + C(w) ** 2,
    "power of a sum": lambda length, s, w: (C(w) + DotProduct(s)) ** 2 + Matern(length, nu=0.5),
    "power with noise": lambda length, s, w: (C(s) + RBF(length) + White(w)) ** 2,
    "noise by dot product": lambda length, s, w: White(w) * DotProduct(s) ** 2 + Matern(length) + C(0.3) * White(w),
    "noise by everything": lambda length, s, w: (
        C(s) * Matern(length, nu=0.5) + White(w) * RationalQuadratic(1.3, s) * RBF(length) * DotProduct(0.7, "fixed")
    ),
    "axis 1/2": lambda length, s, w: C(s) * AxisMatern(2.0 * length) + White(w),
    "axis 1/2 isotropic": lambda length, s, w: AxisMatern(2.0 * length[0]),
    "axis 3/2": lambda length, s, w: C(s) * AxisMatern(2.0 * length, nu=1.5),
    "axis, sum and product": lambda length, s, w: (
        C(s) * AxisMatern(2.0 * length) * RBF(2.0) + C(w) * Matern(length, nu=1.5) * AxisMatern(3.0, nu=1.5)
    ),
    "columns": lambda length, s, w: (
        C(s) * ActiveDims(Matern(length[:2], nu=1.5), [1, 0]) + ActiveDims(AxisMatern(2.0 * length[1]), [1]) + White(w)
    ),
    "columns, products": lambda length, s, w: (
        ActiveDims(RBF(length[0]) * DotProduct(s), [0]) * RBF(length) + ActiveDims(C(w) + DotProduct(s), [1]) ** 2
    ),
}
# Of some of three columns.
KERNELS_OF_COLUMNS = {
    "sum of groups": C(2.0) * ActiveDims(RBF([0.7, 2.0]), [2, 0]) + ActiveDims(Matern(1.3, nu=0.5), [1]),
    "product of groups": ActiveDims(RationalQuadratic(1.3, 0.7), [0, 2]) * ActiveDims(AxisMatern([2.0, 1.0]), [1, 2]),
    "linear in one": C(0.5) * ActiveDims(DotProduct(0.6), [2]) * RBF([1.0, 2.0, 1.5]) + White(0.1),
    "linear and power": ActiveDims(DotProduct(0.6, "fixed") ** 2 * DotProduct(0.3), [0, 1]) + DotProduct(1.1),
    "composed inside": ActiveDims(C(2.0) * Matern([0.8, 1.1], "fixed", nu=2.5) + AxisMatern(1.5, nu=1.5), [0, 2]) ** 2,
    "within another": ActiveDims(RBF(1.5) + ActiveDims(RBF([0.7, 1.1]), [2, 0]), [2, 0, 1]) + RBF(2.0),
}
SOME_KERNELS = ["isotropic", "ard", "sum", "distributed", "fixed white", "matern 1/2", "rational quadratic", "product"]
SOME_KERNELS += ["dot product", "power of a sum", "noise by dot product", "axis 1/2", "axis, sum and product"]
STENCIL = [(-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12)]


def points_apart(random, m, d):
    """Inducing points (m, d) at distances, along each feature, that no step of a finite difference comes near."""
    Z = np.linspace(-2.0, 2.0, m)[:, None] + min(0.1, 1.0 / m) * random.uniform(-1.0, 1.0, size=(m, d))
    Z[:, 1:] = random.permuted(Z[:, 1:], axis=0)
    return Z


def derivative(function, h):
    """Five-point central difference of a function of the step at zero."""
    return sum(weight * function(k * h) for k, weight in STENCIL) / h


def differences(function, at, h):
    return np.array([derivative(lambda step, unit=unit: function(at + step * unit), h) for unit in np.eye(len(at))])


def row_differences(function, X, h=1e-4):
    """Gradient (n, ..., d) of values (n, ...) by the rows of X."""
    return np.stack([derivative(lambda step, e=e: function(X + step * e), h) for e in np.eye(X.shape[1])], axis=-1)


def assert_is_a_kernel_of_scikit_learn(kernel, X, tolerance=1e-8):
    """Copies, the diagonal, and the gradient by its parameters."""
    for copy in (clone(kernel), pickle.loads(pickle.dumps(kernel))):
        assert copy is not kernel
        assert copy == kernel
    free = sum(parameter.n_elements for parameter in kernel.hyperparameters if not parameter.fixed)
    assert len(kernel.theta) == len(kernel.bounds) == free
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(np.diag(K), kernel.diag(X), rtol=1e-12)
    assert gradient.shape == (*K.shape, free)
    expected = differences(lambda theta: kernel.clone_with_theta(theta)(X), kernel.theta, 1e-3)
    np.testing.assert_allclose(np.moveaxis(gradient, -1, 0), expected.reshape(-1, *K.shape), rtol=0.0, atol=tolerance)


SMOOTH = C(2.0) * Matern(1.2, nu=0.5)


def assert_near(actual, expected, tolerance):
    """To ``tolerance`` of the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance * np.abs(expected).max())


def assert_all_near(actual, expected, tolerance):
    for one, other in zip(actual, expected, strict=True):
        assert_near(one, other, tolerance)


def dense_optimum(L, expected_log_likelihood):
    """The highest bound over normal distributions of f with prior N(0, L L^T), and the mean of the best one.

    The expectation is a function of a mean (n,) and a root R (n, n) of the covariance R R^T.
    """
    n, lower = len(L), np.tril_indices(len(L))

    def loss(parameters):
        root = np.zeros((n, n))
        root[lower] = parameters[n:]
        log_det = 2.0 * np.sum(np.log(np.abs(np.diag(root))))
        kl = 0.5 * (np.sum(root**2) + parameters[:n] @ parameters[:n] - n - log_det)
        return kl - expected_log_likelihood(L @ parameters[:n], L @ root)

    options = {"ftol": 1e-14, "gtol": 1e-8}
    best = minimize(loss, np.r_[np.zeros(n), np.eye(n)[lower]], method="L-BFGS-B", options=options)
    return -best.fun, L @ best.x[:n]


def full_prior(Z, kernels):
    return grouped([FullPrior.build(KernelSpec(kernel, Z.shape[1]), Z) for kernel in kernels])


def labelled(n, seed=0, n_classes=3, d=2):
    """Rows that are apart and overlapping classes."""
    random = np.random.default_rng(seed)
    X = points_apart(random, n, d)
    f = np.sin(2.0 * X[:, 0] + np.linspace(0.0, 6.0, n_classes + 1)[:n_classes, None])
    return random.permuted(X, axis=1), np.argmax(f + 0.4 * random.normal(size=f.shape), axis=0)


def classifier(kernel=SMOOTH, **options):
    fixed = {"inducing_points": "all", "optimizer": None, "tol": 1e-12, "max_iter": 5000, "random_state": 0}
    return GPClassifier(kernel, **fixed | options)


def gibbs_mackay(c, K, y, weight=1.0, noise=0.0):
    """sum log sigma(c) - c / 2 + theta c^2 / 2, plus log integral N(f; 0, K) exp(y.f / 2 - f^T Theta f / 2) df.

    Noise e of each row that keeps its prior N(0, noise) takes E[theta e^2] / 2 away. Also the mean and variance of the
    normal distribution under the integral.
    """
    theta = weight * (expit(c) - 0.5) / c
    linear = 0.5 * weight * y
    scaled = np.eye(len(K)) + K * theta
    Sigma = np.linalg.inv(scaled) @ K
    terms = weight * (log_expit(c) - 0.5 * c) + 0.5 * theta * (c**2 - noise)
    value = np.sum(terms) + 0.5 * linear @ Sigma @ linear - 0.5 * np.linalg.slogdet(scaled)[1]
    return value, Sigma @ linear, np.diag(Sigma)


def fixed_point(K, y, weight=1.0, noise=0.0):
    """The maximum of Gibbs and MacKay's bound, by c^2 = mean^2 + variance + noise in turn with the posterior."""
    c = np.ones(len(y))
    for _ in range(1000):
        value, mean, variance = gibbs_mackay(c, K, y, weight, noise)
        c = np.sqrt(mean**2 + variance + noise)
    return value, mean, variance
