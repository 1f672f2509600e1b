"""Gradients of the bound by kernel parameters and inducing points against central finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct, Kernel, Matern, RationalQuadratic
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White
from test_kernel_algebra import kernel_trees, magnitude
from xgpc.blocks import BLOCK_ROWS
from xgpc.passes import Passes
from xgpc.posterior import Prior, SparsePosterior

from xgpc import _engine
from xgpc.inference import History, coordinate_ascent
from xgpc.kernels.spec import KernelGradient, KernelSpec
from xgpc.likelihoods import LIKELIHOODS

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
}
SOME_KERNELS = ["isotropic", "ard", "sum", "distributed", "fixed white", "matern 1/2", "rational quadratic", "product"]
SOME_KERNELS += ["dot product", "power of a sum", "noise by dot product"]
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
every_bound = pytest.mark.parametrize("bound", ["exact", "polya-gamma"])
STENCIL = [(-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12)]


def points_apart(random, m, d):
    """Inducing points (m, d) at distances that no step of a finite difference comes near."""
    Z = random.uniform(-2.0, 2.0, size=(m, d))
    Z[:, 0] = np.linspace(-2.0, 2.0, m) + random.uniform(-0.1, 0.1, m)
    return Z


class Problem:
    """Overlapping classes, inducing points that are well apart from each other and, for Matern 1/2, from the rows.

    The kernel is one of ``KERNELS``, with moderate length scales, or an object.
    """

    def __init__(self, kernel, bound, seed=0, n=30, m=5, d=2, weighted=False):
        self.random = random = np.random.default_rng(seed)
        self.Z = points_apart(random, m, d)
        rows = random.normal(size=(8 * n + 40, d))
        self.X = rows[np.min(np.linalg.norm(rows[:, None] - self.Z, axis=2), axis=1) > 0.1][:n]
        assert len(self.X) == n
        self.y = np.where(np.sin(2.0 * self.X[:, 0]) + 0.5 * random.normal(size=n) > 0.0, 1.0, -1.0)
        self.weight = random.uniform(0.2, 3.0, n) if weighted else None
        length, variance, white = random.uniform(0.5, 1.5, d), random.uniform(0.5, 4.0), random.uniform(0.05, 0.5)
        if not isinstance(kernel, Kernel):
            kernel = KERNELS[kernel](length, variance, white)
        self.spec = KernelSpec(kernel, d)
        self.site = LIKELIHOODS["logit"].site(bound)

    def passes(self):
        return Passes(self.X, self.y, self.weight, len(self.Z))

    def profiled_bound(self, theta, Z):
        """max_q F, and its gradient as the library forms it."""
        with self.passes() as passes:
            start = SparsePosterior.at_prior(Prior.build(self.spec.with_theta(theta), Z))
            q, elbo, _, converged = coordinate_ascent(
                passes, start, self.site, tol=1e-12, max_iter=500, history=History()
            )
            assert converged
            passes.update(q, self.site)
            return elbo, passes.bound_gradient(q, passes.target)

    def bound_at(self, theta, Z, mean, covariance, jitter):
        """F with q(u) = N(mean, covariance) fixed, from dense matrices and scikit-learn's kernel."""
        kernel = self.spec.kernel.clone_with_theta(theta)
        K_mm, K_nm = kernel(Z, Z), kernel(self.X, Z)
        K_mm += jitter * np.mean(np.diag(K_mm)) * np.eye(len(Z))
        kappa = np.linalg.solve(K_mm, K_nm.T).T
        m = kappa @ mean
        v = kernel.diag(self.X) - np.sum(kappa * K_nm, axis=1) + np.sum(kappa @ covariance * kappa, axis=1)
        ell, precision, linear = np.empty((3, len(m)))
        weight = np.empty(0) if self.weight is None else self.weight
        _engine.sites(self.site, m, v, self.y, weight, ell, precision, linear)
        kl = 0.5 * (
            np.trace(np.linalg.solve(K_mm, covariance))
            + mean @ np.linalg.solve(K_mm, mean)
            - len(mean)
            + np.linalg.slogdet(K_mm)[1]
            - np.linalg.slogdet(covariance)[1]
        )
        return np.sum(ell) - kl

    def arbitrary_posterior(self):
        """A q far from the optimum, of about the precision that the data would give."""
        m = len(self.Z)
        B = self.random.normal(size=(m, m))
        prior = Prior.build(self.spec, self.Z)
        return SparsePosterior.from_natural(prior, np.eye(m) + B @ B.T, 3.0 * self.random.normal(size=m))


def derivative(function, h):
    """Five-point central difference of a function of the step at zero."""
    return sum(weight * function(k * h) for k, weight in STENCIL) / h


def check_profiled_gradient(problem):
    """Relative to the gradient's size, 1e-5: the inner solves end about 1e-6 standard deviations from the optimum."""
    theta, Z, random = problem.spec.kernel.theta, problem.Z, problem.random
    _, (by_theta, by_Z) = problem.profiled_bound(theta, Z)
    tolerance = 1e-5 * max(1.0, np.abs(np.append(by_theta, by_Z)).max())
    for unit, analytic in zip(np.eye(len(theta)), by_theta, strict=True):
        expected = derivative(lambda h, unit=unit: problem.profiled_bound(theta + h * unit, Z)[0], 2e-3)
        assert analytic == pytest.approx(expected, abs=tolerance)
    direction = random.choice([-1.0, 1.0], size=Z.shape) / np.sqrt(Z.size)
    expected = derivative(lambda h: problem.profiled_bound(theta, Z + h * direction)[0], 2e-3)
    assert np.sum(by_Z * direction) == pytest.approx(expected, abs=tolerance)


def check_gradient_at_fixed_q(problem):
    """Every entry, to 1e-7 relative to the gradient's size."""
    theta, Z = problem.spec.kernel.theta, problem.Z
    q = problem.arbitrary_posterior()
    with problem.passes() as passes:
        elbo = passes.update(q, problem.site)[0] - q.kl
        by_theta, by_Z = passes.bound_gradient(q, passes.target)
    L = q.prior.L
    mean, covariance = L @ q.w, L @ q.Rinv.T @ q.Rinv @ L.T
    jitter = q.prior.jitter

    def F(theta, Z):
        return problem.bound_at(theta, Z, mean, covariance, jitter)

    assert elbo == pytest.approx(F(theta, Z), rel=1e-9)
    size = max(1.0, np.abs(np.append(by_theta, by_Z)).max())
    expected = [derivative(lambda h, unit=unit: F(theta + h * unit, Z), 1e-3) for unit in np.eye(len(theta))]
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-7 * size)
    units = np.eye(Z.size).reshape(-1, *Z.shape)
    expected = np.reshape([derivative(lambda h, unit=unit: F(theta, Z + h * unit), 1e-3) for unit in units], Z.shape)
    np.testing.assert_allclose(by_Z, expected, rtol=0.0, atol=1e-7 * size)


@every_bound
@every_kernel
def test_gradient_of_the_profiled_bound(kernel, bound):
    check_profiled_gradient(Problem(kernel, bound))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    kernel=st.sampled_from(SOME_KERNELS),
    bound=st.sampled_from(["exact", "polya-gamma"]),
    seed=st.integers(0, 2**20),
    n=st.integers(10, 40),
    m=st.integers(2, 6),
    d=st.integers(1, 3),
    weighted=st.booleans(),
)
def test_gradient_of_any_profiled_bound(kernel, bound, seed, n, m, d, weighted):
    check_profiled_gradient(Problem(kernel, bound, seed, n, m, d, weighted))


@every_bound
@pytest.mark.parametrize("weighted", [False, True])
@every_kernel
def test_gradient_at_a_fixed_posterior(kernel, weighted, bound):
    check_gradient_at_fixed_q(Problem(kernel, bound, d=3, weighted=weighted))


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    kernel=st.sampled_from(SOME_KERNELS),
    bound=st.sampled_from(["exact", "polya-gamma"]),
    seed=st.integers(0, 2**20),
    n=st.integers(1, 40),
    m=st.integers(1, 6),
    d=st.integers(1, 3),
    weighted=st.booleans(),
)
def test_gradient_at_any_fixed_posterior(kernel, bound, seed, n, m, d, weighted):
    check_gradient_at_fixed_q(Problem(kernel, bound, seed, n, m, d, weighted))


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    tree=st.integers(1, 3).flatmap(lambda d: st.tuples(kernel_trees(d, depth=2), st.just(d))),
    bound=st.sampled_from(["exact", "polya-gamma"]),
    seed=st.integers(0, 2**20),
    n=st.integers(1, 20),
    m=st.integers(1, 4),
    weighted=st.booleans(),
)
def test_gradient_of_any_tree_at_a_fixed_posterior(tree, bound, seed, n, m, weighted):
    """The Matern kernel makes k(Z, Z) invertible, which differences of the bound depend on, whatever the tree."""
    kernel, d = tree
    check_gradient_at_fixed_q(Problem(kernel + Matern(0.7, nu=0.5), bound, seed, n, m, d, weighted))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    tree=st.integers(1, 3).flatmap(lambda d: st.tuples(kernel_trees(d), st.just(d))),
    seed=st.integers(0, 2**20),
    m=st.integers(1, 6),
)
def test_contractions_with_any_tree(tree, seed, m):
    """sum_kl G_kl k(z_k, z_l): by theta as scikit-learn has it, by Z as differences of its values have it.

    White noise counts on the diagonal, where G is zero.
    """
    kernel, d = tree
    random = np.random.default_rng(seed)
    Z = 0.5 * points_apart(random, m, d)
    G = random.normal(size=(m, m))
    G += G.T
    np.fill_diagonal(G, 0.0)
    spec = KernelSpec(kernel, d)
    core = spec.at(Z)
    gram = KernelGradient.empty(core)
    _engine.gradient_of_gram(core, Z, G, *gram.arrays)
    by_theta, by_Z = spec.gradient(core, KernelGradient.empty(core), gram)
    size = np.sum(np.abs(G) * magnitude(kernel, Z, Z)) + 1e-300
    expected = np.einsum("kl,klt->t", G, kernel(Z, eval_gradient=True)[1]) if len(by_theta) else []
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-13 * size)

    def contraction(Z):
        return np.sum(G * kernel(Z, Z))

    units = np.eye(Z.size).reshape(-1, *Z.shape)
    expected = [derivative(lambda h, unit=unit: contraction(Z + h * unit), 2e-4) for unit in units]
    np.testing.assert_allclose(by_Z.ravel(), expected, rtol=0.0, atol=1e-7 * size)


@every_bound
@pytest.mark.parametrize("kernel", ["sum", "product of sums"])
def test_gradient_adds_up_over_blocks_and_tiles(kernel, bound):
    check_gradient_at_fixed_q(Problem(kernel, bound, n=BLOCK_ROWS + 300, m=4, weighted=True))


@every_bound
@pytest.mark.parametrize("kernel", ["sum", "product of sums"])
def test_gradient_without_the_cache_of_whitened_rows(kernel, bound):
    """The same bits whether the whitened rows are kept or formed anew."""
    problem = Problem(kernel, bound, n=700)
    q = problem.arbitrary_posterior()
    gradients = []
    for cache_bytes in (2**29, 0):
        with Passes(problem.X, problem.y, None, len(problem.Z), cache_bytes=cache_bytes) as passes:
            passes.update(q, problem.site)
            gradients.append(np.concatenate([part.ravel() for part in passes.bound_gradient(q, passes.target)]))
    assert np.array_equal(*gradients)
