"""Gradients of the bound by kernel parameters and inducing points against central finite differences."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, RationalQuadratic
from sklearn.gaussian_process.kernels import ConstantKernel as C
from support.gradients import KERNELS, SOME_KERNELS, Problem, derivative, points_apart
from support.internals import BLOCK_ROWS, Groups, KernelGradient, KernelSpec, update
from support.kernels import kernel_trees, magnitude

from xgpc import _engine

# Each kernel with one of the bounds, some with both: a gradient has them as factors.
EACH = [(name, ("exact", "polya-gamma")[i % 2], i % 4 < 2) for i, name in enumerate(KERNELS)]
EACH += [(name, ("polya-gamma", "exact")[i % 2], i % 4 < 2) for i, name in enumerate(KERNELS) if name in SOME_KERNELS]
every_bound = pytest.mark.parametrize("bound", ["exact", "polya-gamma"])


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
    rows = problem.training()
    point = update(rows, q, problem.site)
    by_theta, by_Z = q.gradient(rows, point.sites, point.target)
    L = q.prior.L
    mean, covariance = L @ q.w, L @ q.Rinv.T @ q.Rinv @ L.T
    jitter = q.prior.jitter

    def F(theta, Z):
        return problem.bound_at(theta, Z, mean, covariance, jitter)

    assert point.elbo == pytest.approx(F(theta, Z), rel=1e-9)
    size = max(1.0, np.abs(np.append(by_theta, by_Z)).max())
    expected = [derivative(lambda h, unit=unit: F(theta + h * unit, Z), 1e-3) for unit in np.eye(len(theta))]
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-7 * size)
    units = np.eye(Z.size).reshape(-1, *Z.shape)
    expected = np.reshape([derivative(lambda h, unit=unit: F(theta, Z + h * unit), 1e-3) for unit in units], Z.shape)
    np.testing.assert_allclose(by_Z, expected, rtol=0.0, atol=1e-7 * size)


@settings(deadline=None, derandomize=True, max_examples=12)
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


@pytest.mark.parametrize(("kernel", "bound", "weighted"), EACH)
def test_gradient_at_a_fixed_posterior(kernel, bound, weighted):
    check_gradient_at_fixed_q(Problem(kernel, bound, m=4, d=3, weighted=weighted))


@settings(deadline=None, derandomize=True, max_examples=25)
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


@settings(deadline=None, derandomize=True, max_examples=30)
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
    _engine.gradient_of_gram(core, G, gram)
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


GROUPS = Groups(np.array([0, 1, 1, 2, 1]), ("a", "b", "c"))


def test_gradient_where_some_factors_have_a_length_scale_for_each_feature_and_some_for_each_group():
    kernel = C(1.3) * RBF([0.7, 1.1, 2.0, 0.9, 1.6]) + Matern([1.5, 0.8, 1.2], nu=1.5) * RBF(2.0)
    problem = Problem(kernel, "exact", d=5, groups=GROUPS)
    assert problem.spec.features == [None, (0,), (1,), (2,), (3,), (4,), (0,), (1, 2, 4), (3,), None]
    check_profiled_gradient(problem)


def test_gradient_by_shared_length_scales_and_by_points():
    kernel = C(1.3) * RBF([0.7, 1.1, 2.0]) + Matern(1.5, nu=1.5) + DotProduct(0.5)
    problem = Problem(kernel, "exact", d=5, groups=GROUPS)
    assert [name[-15:] for name in problem.spec.names[1:4]] == [f"length_scale[{j}]" for j in range(3)]
    check_profiled_gradient(problem)


def test_contractions_of_blocks_add_up_and_travel_as_bytes():
    """As records of other processes do: the sum of copies is that of the originals."""
    rng = np.random.default_rng(0)
    core = KernelSpec(Matern(1.0, nu=1.5) * RationalQuadratic() + DotProduct(), 3).at(rng.normal(size=(4, 3)))
    parts = []
    for _ in range(2):
        parts.append(KernelGradient.empty(core))
        for array in parts[-1].arrays:
            array[...] = rng.normal(size=array.shape)
    assert [array.shape for array in parts[0].arrays] == [(2,), (3,), (3, 4), (3, 4, 3), (3, 3)]
    expected = [one + other for one, other in zip(parts[0].arrays, parts[1].arrays, strict=True)]
    total, other = (pickle.loads(pickle.dumps(part)) for part in parts)
    total += other
    for array, sum_of_both in zip(total.arrays, expected, strict=True):
        np.testing.assert_array_equal(array, sum_of_both)
    # A copy has memory of its own, which compiled functions add to.
    G = rng.normal(size=(4, 4))
    copied = pickle.loads(pickle.dumps(parts[0]))
    before = parts[0].values.copy()
    _engine.gradient_of_gram(core, G + G.T, copied)
    np.testing.assert_array_equal(parts[0].values, before)
    _engine.gradient_of_gram(core, G + G.T, parts[0])
    np.testing.assert_array_equal(copied.values, parts[0].values)
    assert not np.array_equal(copied.values, before)
