"""Gradients of the bound by kernel parameters and inducing points against central finite differences."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, RationalQuadratic, WhiteKernel
from sklearn.gaussian_process.kernels import ConstantKernel as C
from support import internals
from support.dense import KERNELS, SOME_KERNELS, assert_near, differences, kernel_trees, magnitude, points_apart
from support.fits import clone_of
from support.latents import CASES, NOISY, SEVERAL, Problem, cases
from support.training import options, rebuilt, thetas

from xgpc import _engine
from xgpc._kernels import KernelGradient
from xgpc._natural_gradient import SCHEDULES, FreeParameters, MovingPrior
from xgpc.kernels.prior import NO_PRIOR
from xgpc.learning.adam import moving_priors
from xgpc.learning.optimizer import Coordinates

# Each kernel with one of the bounds, some with both: a gradient has them as factors.
EACH = [(name, ("exact", "polya-gamma")[i % 2], i % 4 < 2) for i, name in enumerate(KERNELS)]
EACH += [(name, ("polya-gamma", "exact")[i % 2], i % 4 < 2) for i, name in enumerate(KERNELS) if name in SOME_KERNELS]

# Those of two classes that a learned parameter or negative precisions set apart, and all of several.
MOST_CASES = [case for case in CASES if case[:2] in SEVERAL + NOISY]


def random_direction(problem):
    Z = problem.prior.Z
    return problem.random.choice([-1.0, 1.0], size=(1, *Z.shape)) / np.sqrt(Z.size)


def check_gradient(problem, function, analytic, step, tolerance, directions):
    """Every kernel parameter, and inducing points in directions (k, ..., m, d), relative to the gradient's size."""
    theta, Z = thetas(problem.prior), problem.prior.Z
    by_theta, by_Z = analytic
    tolerance *= max(1.0, np.abs(by_theta).max(initial=0.0), np.abs(by_Z).max())
    expected = differences(lambda theta: function(theta, Z), theta, step)
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=tolerance)
    expected = differences(
        lambda h: function(theta, Z + np.tensordot(h, directions, 1)), np.zeros(len(directions)), step
    )
    slopes = np.sum(by_Z * directions, axis=tuple(range(1, directions.ndim)))
    np.testing.assert_allclose(slopes, expected, rtol=0.0, atol=tolerance)


def check_profiled_gradient(problem):
    """To 1e-5: the inner solves end about 1e-6 standard deviations from the optimum."""
    analytic = problem.profiled_bound(thetas(problem.prior), problem.prior.Z)[1]
    check_gradient(problem, lambda *at: problem.profiled_bound(*at)[0], analytic, 2e-3, 1e-5, random_direction(problem))


def check_gradient_at_fixed_q(problem, tolerance=1e-7):
    q, rows, site = problem.arbitrary_posterior(), problem.training(), problem.site()
    point, F = internals.update(rows, q, site), partial(problem.bound_at, site, models=problem.dense(q))
    assert point.elbo == pytest.approx(F(thetas(problem.prior), problem.prior.Z), rel=1e-9)
    units = np.eye(problem.prior.Z.size).reshape(-1, *problem.prior.Z.shape)
    check_gradient(problem, F, q.gradient(rows, point.sites, point.target), 1e-3, tolerance, units)


@settings(max_examples=12)
@given(
    kernel=st.sampled_from(SOME_KERNELS),
    bound=st.sampled_from(["exact", "polya-gamma"]),
    seed=st.integers(0, 2**20),
    n=st.integers(10, 40),
    m=st.integers(2, 6),
    d=st.integers(1, 3),
    weighted=st.booleans(),
)
def test_gradient_of_any_profiled_bound(kernel, bound, **options):
    check_profiled_gradient(Problem(kernel=kernel, bound=bound, **options))


@cases(MOST_CASES)
def test_gradient_of_the_profiled_bound_of_each_likelihood(likelihood, bound, share):
    """Delta is learned where there is one, and need not be differentiated either."""
    problem = Problem(likelihood, bound, share, seed=2, n=40, m=4)
    rows = problem.training()
    end = problem.ascend(rows, label_noise=None)
    assert end.converged

    def F(theta, Z):
        start = internals.starting_posterior(rows, end.point.q, rebuilt(problem.prior, theta, Z), end.point.site)
        return problem.ascend(rows, start, label_noise=None).point.elbo

    assert F(thetas(problem.prior), problem.prior.Z) == pytest.approx(end.point.elbo, rel=1e-9)
    analytic = end.point.q.gradient(rows, end.point.sites, end.point.target)
    check_gradient(problem, F, analytic, 2e-3, 2e-5, random_direction(problem))


@pytest.mark.parametrize(("kernel", "bound", "weighted"), EACH)
def test_gradient_at_a_fixed_posterior(kernel, bound, weighted):
    check_gradient_at_fixed_q(Problem(kernel=kernel, bound=bound, n=30, m=4, d=3, weighted=weighted))


@cases(MOST_CASES)
def test_gradient_at_a_fixed_posterior_of_each_likelihood(likelihood, bound, share):
    problem = Problem(likelihood, bound, share, seed=1, n=40, m=5, weighted=share == "kernel", apart=False)
    # Differences of an integral are as good as that.
    check_gradient_at_fixed_q(problem, 1e-6 if (likelihood, bound) == ("softmax", "exact") else 1e-7)


@settings(max_examples=25)
@given(
    tree=st.integers(1, 3).flatmap(lambda d: st.tuples(kernel_trees(d, depth=2), st.just(d))),
    bound=st.sampled_from(["exact", "polya-gamma"]),
    seed=st.integers(0, 2**20),
    n=st.integers(1, 20),
    m=st.integers(1, 4),
    weighted=st.booleans(),
)
def test_gradient_of_any_tree_at_a_fixed_posterior(tree, bound, **options):
    """The Matern kernel makes k(Z, Z) invertible, which differences of the bound depend on, whatever the tree."""
    kernel, d = tree
    check_gradient_at_fixed_q(Problem(kernel=kernel + Matern(0.7, nu=0.5), bound=bound, d=d, **options))


@settings(max_examples=30)
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
    spec = internals.KernelSpec(kernel, d)
    core = spec.at(Z)
    gram = KernelGradient.empty(core)
    _engine.gradient_of_gram(core, G, gram)
    by_theta, by_Z = spec.gradient(core, KernelGradient.empty(core), gram)
    size = np.sum(np.abs(G) * magnitude(kernel, Z, Z)) + 1e-300
    expected = np.einsum("kl,klt->t", G, kernel(Z, eval_gradient=True)[1]) if len(by_theta) else []
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-13 * size)
    expected = differences(lambda z: np.sum(G * kernel(z.reshape(Z.shape))), Z.ravel(), 2e-4)
    np.testing.assert_allclose(by_Z.ravel(), expected, rtol=0.0, atol=1e-7 * size)


@pytest.mark.parametrize("bound", ["exact", "polya-gamma"])
@pytest.mark.parametrize("kernel", ["sum", "product of sums"])
def test_gradient_adds_up_over_blocks_and_tiles(kernel, bound):
    check_gradient_at_fixed_q(Problem(kernel=kernel, bound=bound, n=internals.BLOCK_ROWS + 300, m=4, weighted=True))


GROUPS = internals.Groups(np.array([0, 1, 1, 2, 1]), ("a", "b", "c"), np.arange(3))


def test_gradient_where_some_factors_have_a_length_scale_for_each_feature_and_some_for_each_group():
    kernel = C(1.3) * RBF([0.7, 1.1, 2.0, 0.9, 1.6]) + Matern([1.5, 0.8, 1.2], nu=1.5) * RBF(2.0)
    problem = Problem(kernel=kernel, n=30, m=5, d=5, groups=GROUPS)
    assert problem.prior.spec.features == [None, (0,), (1,), (2,), (3,), (4,), (0,), (1, 2, 4), (3,), None]
    check_profiled_gradient(problem)


def test_gradient_by_shared_length_scales_and_by_points():
    kernel = C(1.3) * RBF([0.7, 1.1, 2.0]) + Matern(1.5, nu=1.5) + DotProduct(0.5)
    problem = Problem(kernel=kernel, n=30, m=5, d=5, groups=GROUPS)
    assert [name[-15:] for name in problem.prior.spec.names[1:4]] == [f"length_scale[{j}]" for j in range(3)]
    check_profiled_gradient(problem)


def test_contractions_of_blocks_add_up_and_travel_as_bytes():
    """As records of other processes do: the sum of copies is that of the originals."""
    rng = np.random.default_rng(0)
    core = internals.KernelSpec(Matern(1.0, nu=1.5) * RationalQuadratic() + DotProduct(), 3).at(rng.normal(size=(4, 3)))
    parts = []
    for _ in range(2):
        parts.append(KernelGradient.empty(core))
        for array in parts[-1].arrays:
            array[...] = rng.normal(size=array.shape)
    assert [array.shape for array in parts[0].arrays] == [(2,), (3,), (3, 4), (3, 4, 3), (3, 3)]
    expected = [one + other for one, other in zip(parts[0].arrays, parts[1].arrays, strict=True)]
    total, other = (clone_of(part) for part in parts)
    total += other
    np.testing.assert_equal(list(total.arrays), expected)
    # A copy has memory of its own, which compiled functions add to.
    G = rng.normal(size=(4, 4))
    copied = clone_of(parts[0])
    before = parts[0].values.copy()
    _engine.gradient_of_gram(core, G + G.T, copied)
    np.testing.assert_array_equal(parts[0].values, before)
    _engine.gradient_of_gram(core, G + G.T, parts[0])
    np.testing.assert_array_equal(copied.values, parts[0].values)
    assert not np.array_equal(copied.values, before)


# A kernel and inducing points that Adam moves between mini-batches: gradients, steps, limits and averages.

LEARNED = options(0.0, 1, learn_inducing=True)
# The posterior hardly moves.
RESTING = (SCHEDULES["constant"], 1e-12, 0.0)


def steps(rows, q, site, moving, batches, schedule=RESTING):
    """Steps on batches of row numbers: the loop after them."""
    order = np.concatenate(batches).astype(np.intp)
    loop = internals.MiniBatches(q, len(batches[0]), rows.source, schedule, moving)
    loop.run(q, rows.source.sample(order), site, internals.Executor(1))
    return loop


def slopes(rows, q, site, batch=None):
    """Gradients by each kernel's vector, at the start, from one batch: of all rows by default."""
    moving = moving_priors(Coordinates(q.prior, LEARNED), NO_PRIOR, 1e-12)
    steps(rows, q, site, moving, [np.arange(rows.source.n_rows) if batch is None else batch])
    return [one.gradient for one in moving]


def moved(prior, vector, units):
    """A prior at a vector of log parameters and inducing points in units."""
    theta, Z = np.split(vector, [len(prior.spec.theta)])
    Z = (Z * units).reshape(prior.Z.shape) if len(units) else prior.Z
    return prior.rebuilt([prior.spec.with_theta(theta)], Z)


def check_slopes(problem, tolerance):
    """Against differences of the dense bound, with scikit-learn's kernel, at a fixed q of the whitened values."""
    q, site = problem.arbitrary_posterior(), problem.site()
    groups = q.prior.groups
    gradients = slopes(problem.training(), q, site)
    moving = moving_priors(Coordinates(q.prior, LEARNED), NO_PRIOR, 1.0)
    for number, (one, gradient) in enumerate(zip(moving, gradients, strict=True)):

        def bound_at(vector, number=number, units=one.units):
            others = [*groups[:number], moved(groups[number], vector, units), *groups[number + 1 :]]
            return problem.dense_bound(site, problem.dense(internals.grouped(others).posterior((q.P, q.h))))

        expected = differences(bound_at, one.vector, 1e-3)
        np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=tolerance * np.abs(expected).max())
    return gradients


# Kernels whose inducing points stay.
WITH_JUMPS = ("axis 1/2", "axis 1/2 isotropic", "axis, sum and product", "columns")


@pytest.mark.parametrize(("kernel", "bound", "weighted"), EACH[: len(KERNELS)])
def test_gradient_for_each_kernel(kernel, bound, weighted):
    problem = Problem(kernel=kernel, bound=bound, n=30, m=5, d=3, weighted=weighted)
    (gradient,) = check_slopes(problem, 1e-7)
    assert len(gradient) == len(problem.prior.spec.theta) + (0 if kernel in WITH_JUMPS else problem.prior.Z.size)


@cases([case for case in CASES if case[:2] in [*SEVERAL, ("step", "additive-noise")]])
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float64, True), (np.float32, False)], ids=["weighted", "single"])
def test_gradient_for_each_likelihood(likelihood, bound, share, dtype, weighted):
    """Of several classes with one kernel, or with one for each; of rows in single precision."""
    problem = Problem(likelihood, bound, share, n=40, weighted=weighted, dtype=dtype)
    assert len(check_slopes(problem, 1e-6)) == len(problem.prior.groups)


def test_a_batch_stands_for_all_rows():
    """Mean of the batches' gradients, each times as many rows as it stands for: the gradient of all rows."""
    problem = Problem("softmax", "exact", "none", n=60, weighted=True)
    q, site, rows = problem.arbitrary_posterior(), problem.site(), problem.training()
    whole = slopes(rows, q, site)
    parts = [slopes(rows, q, site, batch=np.arange(first, first + 15)) for first in range(0, 60, 15)]
    for number, gradient in enumerate(whole):
        assert_near(np.mean([part[number] for part in parts], axis=0), gradient, 1e-12)


@pytest.mark.parametrize("share", ["kernel", "none"])
@pytest.mark.parametrize("tile", [1, 7, 20, 64])
def test_tiles_change_nothing_but_rounding(tuned, share, tile):
    problem = Problem("multinomial-probit", "additive-noise", share, n=60, weighted=True)
    q, site, rows = problem.arbitrary_posterior(), problem.site(), problem.training()
    batches = [np.random.default_rng(step).permutation(60)[:40] for step in range(6)]
    found = []
    for size in (40, tile):
        tuned(batch_tile_rows=size)
        moving = moving_priors(Coordinates(q.prior, LEARNED), NO_PRIOR, 0.05)
        loop = steps(rows, q, site, moving, batches, schedule=(SCHEDULES["constant"], 0.3, 0.0))
        found.append(
            np.concatenate([loop.eta, loop.average, *(part for one in moving for part in (one.vector, one.gradient))])
        )
    assert_near(found[1], found[0], 1e-10)


def test_posterior_steps_under_a_prior_that_rests_are_those_without():
    problem = Problem("softmax", "exact", "none", n=60)
    q, site, rows = problem.arbitrary_posterior(), problem.site(), problem.training()
    batches = [np.arange(first, first + 20) for first in (0, 20, 40)]
    schedule = (SCHEDULES["constant"], 0.5, 0.0)
    loops = [
        steps(rows, q, site, moving, batches, schedule=schedule)
        for moving in (moving_priors(Coordinates(q.prior, LEARNED), NO_PRIOR, 1e-14), [])
    ]
    assert_near(loops[0].average, loops[1].average, 1e-9)


class Walk:
    """Steps of Adam one by one, with the gradient and the vector of each."""

    def __init__(self, rate, kernel=None, n_steps=5, limits=None, delay=3.0):
        self.problem = problem = Problem("logit", "exact", "kernel", n=60)
        spec = internals.KernelSpec(kernel or C(2.0) * RBF([1.0, 1.5]) + WhiteKernel(0.1), 2)
        prior = internals.SparsePrior.build(spec, problem.prior.Z)
        q = prior.at_prior()
        units = np.full(prior.Z.size, 0.7)
        self.start = np.append(spec.theta, prior.Z.ravel() / units)
        limits = np.array([[-np.inf], [np.inf]]) if limits is None else limits
        self.low, self.high = np.broadcast_to(limits, (2, len(self.start)))
        free = FreeParameters(self.start, np.array([self.low, self.high]), units, spec.logarithms)
        self.moving = MovingPrior(prior.core, prior.jitter, free, (np.empty((0, 0)), np.empty(0)), rate, delay)
        rows, self.gradients, self.vectors = problem.training(), [], []
        for step in range(n_steps):
            steps(rows, q, problem.site(), [self.moving], [np.arange(10 * step, 10 * step + 10)], schedule=RESTING)
            self.gradients.append(self.moving.gradient)
            self.vectors.append(self.moving.vector.copy())


def test_steps_are_kingmas_and_bas_with_a_falling_rate():
    """Kingma & Ba 2015, algorithm 1, within the limits, at the rate .05 / sqrt(1 + t / 3)."""
    limits = np.array([[-np.inf], [np.inf]]) * np.ones(18)
    limits[:, 0] = np.log(2.0) + np.array([-0.03, 0.03])
    walk = Walk(0.05, limits=limits)
    vector, mean, square = walk.start, 0.0, 0.0
    for t, (gradient, reached) in enumerate(zip(walk.gradients, walk.vectors, strict=True), 1):
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        rate = 0.05 / np.sqrt(1.0 + (t - 1) / 3.0)
        vector = vector + rate * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        vector = np.clip(vector, walk.low, walk.high)
        np.testing.assert_allclose(reached, vector, rtol=1e-9, atol=1e-12)
    assert vector[0] in walk.low[0] + np.array([0.0, 0.06])
    assert walk.moving.steps == 5
    assert walk.moving.failures == 0


def test_the_average_weighs_later_steps_more():
    """Step t with a weight in proportion to t (t + 1) (t + 2): Shamir & Zhang 2013, section 3.2, of degree 3."""
    walk = Walk(0.05, n_steps=6)
    t = np.arange(1.0, 7.0)
    expected = np.average(walk.vectors, axis=0, weights=t * (t + 1.0) * (t + 2.0))
    np.testing.assert_allclose(walk.moving.average, expected, rtol=1e-12)


def test_the_compiled_kernel_is_the_one_at_the_vector():
    kernel = C(2.0) * RBF([1.0, 1.5]) + C(0.5, "fixed") * RBF(0.8)
    walk = Walk(0.2, kernel=kernel)
    moving, n_theta = walk.moving, 4
    spec = internals.KernelSpec(kernel, 2).with_theta(moving.vector[:n_theta])
    prior = internals.SparsePrior.build(spec, (moving.vector[n_theta:] * moving.units).reshape(-1, 2))
    assert not np.allclose(moving.vector, walk.start)
    np.testing.assert_allclose(moving.Linv, prior.Linv, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moving.kernel.cross(walk.problem.X), prior.core.cross(walk.problem.X), rtol=1e-12)


def test_a_step_whose_matrix_cannot_be_factorised_is_refused():
    """Steps of 2000 in the logarithm of a variance, which overflows or vanishes."""
    walk = Walk(2000.0, n_steps=3)
    assert walk.moving.failures == walk.moving.steps == 3
    for vector in [*walk.vectors, walk.moving.average]:
        np.testing.assert_array_equal(vector, walk.start)
    assert np.all(np.isfinite(walk.moving.Linv))
