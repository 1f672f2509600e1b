"""Products over the features of one-dimensional Matern kernels: the class, what is compiled of it, and fits with it."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel
from support.dense import assert_is_a_kernel_of_scikit_learn, compiled, derivative, differences, points_apart
from support.fits import kept, quietly, refuses
from support.internals import KernelSpec, metric
from support.local import Problem

from xgpc import GPClassifier, _engine
from xgpc._kernels import KernelGradient
from xgpc.kernels import ActiveDims, AxisMatern

NU = pytest.mark.parametrize("nu", [0.5, 1.5])


def formula(X, Z, length_scale, nu):
    """One feature at a time, by scikit-learn."""
    scales = np.broadcast_to(length_scale, X.shape[1])
    return np.prod([Matern(s, nu=nu)(X[:, [j]], Z[:, [j]]) for j, s in enumerate(scales)], axis=0)


def rules(n, seed=0, d=4):
    """Classes that are thresholds of single features."""
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, size=(n, d))
    return X, ((X[:, 0] > 0.2) ^ (X[:, 1] > -0.3)).astype(int)


@NU
@pytest.mark.parametrize("length_scale", [0.8, [0.8], [0.8, 2.0, 1.3]], ids=str)
def test_values_and_gradient(nu, length_scale):
    """Of rows of which some agree in a feature, or in all."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    X[6:9, 0], X[9] = X[:3, 0], X[0]
    kernel = AxisMatern(length_scale, nu=nu)
    assert_is_a_kernel_of_scikit_learn(kernel, X, 1e-9)
    np.testing.assert_allclose(kernel(X), formula(X, X, np.asarray(length_scale), nu), rtol=1e-13)
    assert np.array_equal(kernel(X, X[:5]), kernel(X)[:, :5])
    assert np.array_equal(kernel.diag(X), np.diag(kernel(X)))
    assert AxisMatern(length_scale, "fixed", nu)(X, eval_gradient=True)[1].shape == (12, 12, 0)
    assert kernel.is_stationary()


def test_it_is_shown_and_a_part_of_kernels_as_those_of_scikit_learn_are():
    kernel = AxisMatern([0.5, 2.0], (0.1, 10.0), nu=1.5)
    shown = [repr(one) for one in (AxisMatern(), kernel, AxisMatern(2.0, "fixed"))]
    assert shown == [f"AxisMatern(length_scale={rest})" for rest in ("1, nu=0.5", "[0.5, 2], nu=1.5", "2, nu=0.5")]
    assert kernel != AxisMatern(3.0)
    assert set(kernel.get_params()) == {"length_scale", "length_scale_bounds", "nu"}
    composed = 2.0 * kernel + WhiteKernel(0.1)
    assert len(composed.theta) == 2 + kernel.n_dims
    X, y = rules(60, d=2)
    model = quietly(GaussianProcessClassifier(composed, random_state=0), X, y)
    assert model.score(X, y) > 0.8
    assert type(model.kernel_.k1.k2) is AxisMatern


@NU
@pytest.mark.parametrize("d", [1, 2, 15, 16, 17, 40])
def test_compiled_values(nu, d):
    """Any number of rows and points, which fill registers or do not; some coordinates are shared."""
    rng = np.random.default_rng(d)
    scale = d * rng.uniform(0.5, 2.0, d)
    for n, m in ((1, 1), (3, 4), (8, 5), (13, 3), (16, 8), (61, 9)):
        X, Z = rng.normal(size=(n, d)), rng.normal(size=(m, d))
        Z[: min(n, m), ::2] = X[: min(n, m), ::2]
        core = compiled(2.5 * AxisMatern(scale, nu=nu), Z)
        np.testing.assert_allclose(core.cross(X), 2.5 * formula(X, Z, scale, nu), rtol=1e-12)
        single = X.astype(np.float32)
        np.testing.assert_allclose(core.cross(single), 2.5 * formula(single.astype(float), Z, scale, nu), rtol=1e-12)
        assert np.array_equal(core.cross(X[-1:]), core.cross(X)[-1:])


@NU
@pytest.mark.parametrize("scale", [1e4, 1e20, 1e100, 1e150, 1e155])
def test_far_rows_have_no_covariance(nu, scale):
    """Products of 1 + sqrt(3) t over features, and over points, overflow; slopes vanish."""
    X = scale * np.random.default_rng(0).normal(size=(20, 30))
    X[:, 0] = scale * (X[:, 1] > 0.0)
    core = compiled(AxisMatern(nu=nu), X)
    assert np.array_equal(core.cross(X), np.eye(20))
    gram = KernelGradient.empty(core)
    _engine.gradient_of_gram(core, np.ones((20, 20)), gram)
    assert not np.any(gram.arrays[3])


@NU
def test_gradient_where_rows_and_points_share_features(nu):
    """Central differences are the means of the slopes on both sides of a jump, which are opposite."""
    Z = points_apart(np.random.default_rng(0), 6, 3)
    Z[3:5, 1], Z[5, 2] = Z[:2, 1], Z[0, 2]
    G = np.random.default_rng(1).normal(size=(6, 6))
    G += G.T
    spec = KernelSpec(1.7 * AxisMatern([2.0, 3.0, 1.5], nu=nu), 3)
    core = spec.at(Z)
    gram = KernelGradient.empty(core)
    _engine.gradient_of_gram(core, G, gram)
    by_theta, by_Z = spec.gradient(core, KernelGradient.empty(core), gram)

    expected = differences(lambda theta: np.sum(G * spec.kernel.clone_with_theta(theta)(Z)), spec.theta, 1e-3)
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-8)
    expected = differences(lambda z: np.sum(G * spec.kernel(z.reshape(6, 3))), Z.ravel(), 1e-4)
    # At a jump of the second derivative, which nu = 3/2 has there, the error is in proportion to the step.
    np.testing.assert_allclose(by_Z.ravel(), expected, rtol=0.0, atol=1e-7 if nu == 0.5 else 1e-3)


@NU
def test_gradient_from_features_of_one_two_and_many_values(nu):
    """More rows than a tile has, more features than are worked on at a time; some are 0 or 1."""
    n, m, d = 401, 6, 70
    rng = np.random.default_rng(0)
    # No row is near a point, where slopes jump.
    X, Z = np.round(rng.normal(size=(n, d)), 2), np.round(rng.normal(size=(m, d)), 2) + 0.005
    G = rng.normal(size=(n, m))
    X[:, ::2] = X[:, ::2] > 0.5
    X[:, 2], X[0, 4] = 1.0, 0.5
    spec = KernelSpec(1.7 * AxisMatern(rng.uniform(20.0, 60.0, d), nu=nu), d)
    core = spec.at(Z)
    cross, work = KernelGradient.empty(core), _engine.workspace(n, m, d)
    _engine.kernel_gradient(core, X, G, np.zeros(n), work, cross)
    by_theta, by_Z = spec.gradient(core, cross, KernelGradient.empty(core))
    at = spec.kernel.clone_with_theta
    for _ in range(5):
        u, V = rng.normal(size=1 + d), rng.normal(size=(m, d))
        expected = derivative(lambda h, u=u, V=V: np.sum(G * at(spec.theta + h * u)(X, Z + h * V)), 1e-4)
        np.testing.assert_allclose(by_theta @ u + np.sum(by_Z * V), expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("kernel", "power", "scale"),
    [
        (AxisMatern([0.5, 3.0]), 1, [2.0, 1 / 3]),
        (2.0 * AxisMatern([0.5, 3.0], nu=1.5) + WhiteKernel(0.1), 1, [2.0, 1 / 3]),
        (RBF([0.5, 3.0]) + 0.5 * AxisMatern([2.0, 1.0]), 1, [2.5, 4 / 3]),
        (RBF([0.5, 3.0]), 2, [2.0, 1 / 3]),
        (ActiveDims(RBF([0.5, 3.0]), [1, 0]), 2, [1 / 3, 2.0]),
    ],
    ids=str,
)
def test_neighbours_are_those_in_the_metric_of_the_kernel(kernel, power, scale):
    problem = Problem(kernel, n=80, k=7)
    found = metric(problem.prior.core)
    assert found.power == power
    np.testing.assert_allclose(found.scale, scale)
    distance = np.sum((np.abs(problem.X[:, None] - problem.X) * scale) ** power, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert np.array_equal(np.sort(problem.index, axis=1), np.sort(np.argsort(distance, axis=1)[:, :7], axis=1))


@NU
@pytest.mark.parametrize("options", [{"n_neighbors": 0}, {"inducing_points": "all"}, {"n_neighbors": 8}], ids=str)
def test_fits_are_the_same_after_a_file(nu, options, tmp_path):
    X, y = rules(150)
    kernel = 4.0 * AxisMatern(np.full(4, 2.0), nu=nu)
    options = {"max_iter": 10, "random_state": 0, "n_inducing": 20, **options}
    model = quietly(GPClassifier(kernel, **options), X, y)
    T, labels = rules(400, seed=1)
    assert type(model.kernel_.k2) is AxisMatern
    assert model.kernel_.k2.nu == nu
    assert model.score(T, labels) > 0.85
    kept(model, tmp_path, T)
    single = T.astype(np.float32)
    assert np.array_equal(model.predict_proba(single), model.predict_proba(single.astype(float)))


@pytest.mark.parametrize("optimizer", ["profile", "adam"])
@pytest.mark.parametrize(("nu", "moves"), [(0.5, False), (1.5, True)])
def test_inducing_points_move_where_the_kernel_has_slopes(nu, moves, optimizer):
    X, y = rules(200)
    options = {"inducing_points": X[:10], "optimizer": optimizer, "n_neighbors": 0, "max_iter": 5, "random_state": 0}
    model = quietly(GPClassifier(4.0 * AxisMatern(np.full(4, 2.0), nu=nu), **options), X, y)
    assert np.any(model.kernel_.theta != np.log([4.0, 2.0, 2.0, 2.0, 2.0]))
    assert np.array_equal(model.inducing_points_, X[:10]) != moves


@pytest.mark.parametrize("scale", [-1.0, 0.0, np.nan, np.inf, [1, 0, 1], [], [1.0, 1.0], np.ones((3, 1))], ids=str)
def test_wrong_length_scales_are_refused_and_shown(scale):
    kernel = AxisMatern(scale)
    assert "AxisMatern(length_scale=" in repr(kernel)
    refuses("length_scale must be positive and finite: a number, or one for each of the 3", kernel, np.ones((2, 3)))


def test_what_it_refuses_can_be_shown():
    X, y, three_scales, other = np.zeros((3, 2)), [0, 1, 0], AxisMatern([1.0, 2.0, 3.0]), AxisMatern(nu=2.5)
    refuses(r"one for each of the 2 features; got \[1\.0, 2\.0, 3\.0\]", three_scales, X)
    refuses("3 length scales but X has 2 features", GPClassifier(three_scales).fit, X, y)
    refuses(r"nu must be 0\.5 or 1\.5; got 2\.5", other, X)
    refuses(r"nu must be 0\.5 or 1\.5", GPClassifier(other).fit, X, y)
    refuses("leave out Y", AxisMatern(), X, X, eval_gradient=True)
    refuses("same features; got 3 and 2", AxisMatern(), np.ones((2, 3)), np.ones((2, 2)))
    assert "nu='0.5'" in repr(AxisMatern(nu="0.5"))
    assert "length_scale='a'" in repr(AxisMatern("a"))
