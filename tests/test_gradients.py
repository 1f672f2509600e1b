"""Gradients of the bound by kernel parameters and inducing points against central finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White

from xgpc import _engine
from xgpc.blocks import BLOCK_ROWS
from xgpc.hyperparameters import bound_gradient
from xgpc.inference import History, Passes, coordinate_ascent
from xgpc.kernels import KernelSpec
from xgpc.posterior import Prior, SparsePosterior

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
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
every_bound = pytest.mark.parametrize("bound", ["exact", "polya-gamma"])
STENCIL = [(-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12)]


class Problem:
    """Overlapping classes, inducing points that are well apart, and a kernel of moderate length scales."""

    def __init__(self, kernel, bound, seed=0, n=30, m=5, d=2, weighted=False):
        self.random = random = np.random.default_rng(seed)
        self.X = random.normal(size=(n, d))
        self.y = np.where(np.sin(2.0 * self.X[:, 0]) + 0.5 * random.normal(size=n) > 0.0, 1.0, -1.0)
        self.weight = random.uniform(0.2, 3.0, n) if weighted else None
        self.Z = random.uniform(-2.0, 2.0, size=(m, d))
        self.Z[:, 0] = np.linspace(-2.0, 2.0, m) + random.uniform(-0.1, 0.1, m)
        length, variance, white = random.uniform(0.5, 1.5, d), random.uniform(0.5, 4.0), random.uniform(0.05, 0.5)
        self.spec = KernelSpec(KERNELS[kernel](length, variance, white), d)
        self.site = _engine.SITES["logit", bound]

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
            return elbo, bound_gradient(passes, q, passes.target)

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
        by_theta, by_Z = bound_gradient(passes, q, passes.target)
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
    kernel=st.sampled_from(["isotropic", "ard", "sum", "distributed", "fixed white"]),
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
    kernel=st.sampled_from(["isotropic", "ard", "sum", "distributed", "fixed white"]),
    bound=st.sampled_from(["exact", "polya-gamma"]),
    seed=st.integers(0, 2**20),
    n=st.integers(1, 40),
    m=st.integers(1, 6),
    d=st.integers(1, 3),
    weighted=st.booleans(),
)
def test_gradient_at_any_fixed_posterior(kernel, bound, seed, n, m, d, weighted):
    check_gradient_at_fixed_q(Problem(kernel, bound, seed, n, m, d, weighted))


@every_bound
def test_gradient_adds_up_over_blocks_and_tiles(bound):
    check_gradient_at_fixed_q(Problem("sum", bound, n=BLOCK_ROWS + 300, m=4, weighted=True))


@every_bound
def test_gradient_without_the_cache_of_whitened_rows(bound):
    """The same bits whether the whitened rows are kept or formed anew."""
    problem = Problem("sum", bound, n=700)
    q = problem.arbitrary_posterior()
    gradients = []
    for cache_bytes in (2**29, 0):
        with Passes(problem.X, problem.y, None, len(problem.Z), cache_bytes=cache_bytes) as passes:
            passes.update(q, problem.site)
            gradients.append(np.concatenate([part.ravel() for part in bound_gradient(passes, q, passes.target)]))
    assert np.array_equal(*gradients)
