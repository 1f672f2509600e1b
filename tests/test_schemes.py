"""The papers' ways to learn hyperparameters: their bounds and gradients, what they converge to, what they are for."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White
from support.dense import KERNELS as ALL_KERNELS
from support.dense import differences
from support.fits import assert_same_bits, quietly, rows_of
from support.internals import (
    DEFAULT_LEVEL,
    DEFAULT_SPREAD,
    FixedSitesBound,
    JointBound,
    KernelSpec,
    LengthScalePrior,
    ProfiledBound,
    SparsePrior,
    update,
)
from support.latents import Problem
from support.local import Problem as LocalProblem
from support.reference import jaakkola_jordan_bound, moons, standardised, twonorm
from support.training import ascended, options, sites_of, training

from xgpc import GPClassifier
from xgpc.likelihoods import LIKELIHOODS, record_of

OPTIONS = options(1e-4, 100, learn_inducing=True)
TAYLOR = record_of("logit", "taylor").site()

KERNELS = {
    "ard": C(2.0) * RBF([0.8, 1.3]),
    "matern": C(1.5) * Matern([1.1, 0.7], nu=1.5) + White(0.2),
    "dot product": C(0.5) * DotProduct(0.9) + Matern(0.8, nu=2.5),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def fixed_sites(problem, rows, kind=FixedSitesBound):
    """The function at the sites of a posterior far from the optimum."""
    return kind(rows, update(rows, problem.arbitrary_posterior(), problem.site()), OPTIONS)


def somewhere_else(problem, function):
    """The start moved, but for the xi, which are anything of either sign."""
    vector = function.start + 0.1 * problem.random.normal(size=len(function.start))
    size = len(function.coordinates.pack(problem.arbitrary_posterior().prior))
    xi = problem.random.uniform(0.02, 6.0, len(vector) - size) * problem.random.choice([-1, 1], len(vector) - size)
    # Where the slopes of the sites' precisions are a series, about its end, and far.
    xi[:6] = [1e-6, -0.01, 0.049, 0.051, -40.0, 900.0][: len(xi)]
    return np.concatenate([vector[:size], xi])


def matrices(X, prior):
    """K_mm with the jitter, K_nm and k_ii by scikit-learn's kernel."""
    kernel = prior.spec.kernel
    K_mm = kernel(prior.Z, np.array(prior.Z))
    K_mm += prior.jitter * np.mean(np.diag(K_mm)) * np.eye(len(K_mm))
    return K_mm, kernel(X, prior.Z), kernel.diag(X)


def check_gradient(function, vector, tolerance=1e-6):
    gradient, expected = function(vector)[1], differences(lambda at: function(at)[0], vector, 1e-3)
    np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=tolerance * max(1.0, np.abs(gradient).max()))


@every_kernel
def test_joint_bound_is_jaakkola_jordans_equation_14(kernel):
    problem = Problem(kernel=kernel, bound="polya-gamma", n=30, m=5)
    function = fixed_sites(problem, problem.training(), JointBound)
    for _ in range(5):
        vector = somewhere_else(problem, function)
        prior = function.coordinates.prior(vector[: -len(problem.y)])
        expected = jaakkola_jordan_bound(*matrices(problem.X, prior), problem.y, vector[-len(problem.y) - 1 : -1])
        assert -function(vector)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("bound", ["polya-gamma", "taylor"])
@weighted_or_not
@every_kernel
def test_fixed_sites_give_the_collapsed_bound_of_their_quadratics(kernel, weighted, bound):
    """sum_i c_i + log of the integral of exp(r.f - f.Lambda f / 2) over the sparse prior, - tr(Lambda K_tilde) / 2."""
    problem = Problem(kernel=kernel, bound=bound, weighted=weighted, n=30, m=5)
    rows = problem.training()
    function = fixed_sites(problem, rows)
    m, v, precision, linear = sites_of(rows, function.point.q, problem.site())
    weight = np.ones(len(m)) if problem.weight is None else problem.weight
    if bound == "taylor":
        ell = log_expit(problem.y * m) - 0.5 * expit(m) * expit(-m) * v
    else:
        ell = 0.5 * problem.y * m - np.log(2.0 * np.cosh(0.5 * np.sqrt(m**2 + v)))
    constants = weight * ell - linear * m + 0.5 * precision * (m**2 + v)
    vector = somewhere_else(problem, function)
    value = -function(vector)[0]
    K_mm, K_nm, diagonal = matrices(problem.X, function.coordinates.prior(vector))
    B = K_mm + K_nm.T @ (precision[:, None] * K_nm)
    left = diagonal - np.sum(K_nm * np.linalg.solve(K_mm, K_nm.T).T, axis=1)
    h = K_nm.T @ linear
    log_integral = 0.5 * (h @ np.linalg.solve(B, h) + np.linalg.slogdet(K_mm)[1] - np.linalg.slogdet(B)[1])
    assert value == pytest.approx(np.sum(constants) + log_integral - 0.5 * precision @ left, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "bound"), [(FixedSitesBound, "polya-gamma"), (FixedSitesBound, "taylor"), (JointBound, "polya-gamma")]
)
@weighted_or_not
@every_kernel
def test_gradient_at_given_sites(kernel, weighted, kind, bound):
    problem = Problem(kernel=kernel, bound=bound, weighted=weighted, n=20, m=5)
    function = fixed_sites(problem, problem.training(), kind)
    check_gradient(function, somewhere_else(problem, function))


@weighted_or_not
def test_taylors_fixed_point_is_the_mode_of_the_posterior(weighted):
    """At it the gradient of sum_i log sigma(y_i a_i.w) - w.w / 2 vanishes; on the way to it every iterate raises it."""
    problem = Problem(kernel=C(400.0) * RBF(0.7), bound="taylor", seed=1, n=60, m=12, weighted=weighted)
    weight = np.ones(60) if problem.weight is None else problem.weight
    prior = problem.prior
    A = np.linalg.solve(prior.L, prior.core.cross(problem.X).T).T
    far = prior.posterior((np.eye(12)[None], 30.0 * problem.random.normal(size=(1, 12))))

    def log_joint(w):
        return np.sum(weight * log_expit(problem.y * (A @ w))) - 0.5 * w @ w

    rows = problem.training()
    for start in (prior.at_prior(), far):
        values = [log_joint(start.w[0])]
        for steps in range(1, 60):
            # Each from the same start: the iterates of one ascent.
            q, *_ = ascended(rows, start, TAYLOR, tol=0.0, max_iter=steps)
            values.append(log_joint(q.w[0]))
            point = update(rows, q, TAYLOR)
            assert point.value == pytest.approx(values[-1], rel=1e-9)
        assert np.all(np.diff(values) >= -1e-10 * abs(values[-1]))
        f = A @ q.w[0]
        assert_allclose(A.T @ (weight * problem.y * expit(-problem.y * f)) - q.w[0], 0.0, atol=1e-6)
        expected = np.tril(np.eye(12) + A.T @ ((weight * expit(f) * expit(-f))[:, None] * A))
        assert_allclose(point.target[0][0], expected, rtol=1e-9, atol=1e-12)


def fit(X, y, optimizer, bound="polya-gamma", kernel=None, Z=None, **params):
    """With inducing points that stay, and silence about bounds of the kernel."""
    Z = KMeans(15, n_init=1, random_state=0).fit(X).cluster_centers_ if Z is None else Z
    params = {"tol": 1e-8, "max_iter": 2000, "learn_inducing": False, "random_state": 0, **params}
    return quietly(GPClassifier(kernel, optimizer=optimizer, bound=bound, inducing_points=Z, **params), X, y)


MOONS = *moons(120), C(2.0) * RBF([1.0, 1.0])
TWONORM = *twonorm(120, np.random.default_rng(0)), C(2.0) * RBF(5.0)


@pytest.fixture(scope="module", params=[MOONS, TWONORM], ids=["moons", "twonorm"])
def small(request):
    """Data, a kernel, and the maximum that the profile scheme finds."""
    X, y, kernel = request.param
    return X, y, kernel, fit(X, y, "profile", kernel=kernel)


@pytest.mark.parametrize(("optimizer", "tol"), [("alternate", 1e-3), ("hybrid", 1e-3), ("joint", 1e-2), ("adam", 1e-2)])
def test_all_schemes_reach_the_same_maximum(small, optimizer, tol):
    X, y, kernel, profile = small
    model = fit(X, y, optimizer, kernel=kernel, tol=1e-6 if optimizer == "adam" else 1e-8)
    assert model.elbo_ == pytest.approx(profile.elbo_, abs=tol)
    assert model.elbo_ > fit(X, y, None, kernel=kernel).elbo_ + 1.0
    np.testing.assert_allclose(model.predict_proba(X), profile.predict_proba(X), atol=0.02)


@pytest.mark.parametrize("optimizer", ["alternate", "hybrid"])
@pytest.mark.parametrize("learn_inducing", [False, True])
def test_polya_gamma_alternation_never_lowers_the_bound(small, optimizer, learn_inducing):
    """Site updates maximise over the sites, L-BFGS keeps the best of what it saw."""
    X, y, kernel, _ = small
    model = fit(X, y, optimizer, kernel=kernel, learn_inducing=learn_inducing, max_iter=20)
    bounds = model.history_["elbo"][np.isfinite(model.history_["evaluation"])]
    assert len(bounds) >= 5
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))


def test_equation_14_and_the_profiled_bound_have_the_same_maximum():
    """JJ's bound by dense formulas, maximised over theta and xi with JointBound's gradients; this library's over q."""
    X, y = standardised(load_breast_cancer, slice(0, 5), 200)
    y = np.where(y, 1.0, -1.0)
    Z = KMeans(20, n_init=1, random_state=0).fit(X).cluster_centers_
    kernel = C(2.0, (1e-2, 1e5)) * RBF(np.full(5, 5**0.5), (1e-2, 1e3))
    model = fit(X, y, "profile", kernel=kernel, Z=Z)
    rows, site = training(X, y), record_of("logit", "polya-gamma").site()
    start = SparsePrior.build(KernelSpec(kernel, 5), Z).at_prior()
    # From the best xi for the start: others send length scales to their bounds, where the gradient vanishes.
    start, *_ = ascended(rows, start, site, tol=1e-12, max_iter=1000)
    function = JointBound(rows, update(rows, start, site), options(0.0, 1, learn_inducing=False))

    def negative(vector):
        prior = function.coordinates.prior(vector[:-200])
        return -jaakkola_jordan_bound(*matrices(X, prior), y, vector[-201:-1]), function(vector)[1]

    steps = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-14, "gtol": 1e-7, "maxcor": 50}
    end = minimize(negative, function.start, jac=True, method="L-BFGS-B", bounds=function.limits, options=steps)
    assert model.elbo_ == pytest.approx(-end.fun, abs=1e-6)
    theta = end.x[:6]
    # The variance and those length scales that are not at their bounds, where the bound is flat.
    inside = theta < kernel.bounds[:, 1] - 1.0
    assert np.count_nonzero(inside) >= 3
    np.testing.assert_allclose(model.kernel_.theta[inside], theta[inside], atol=1e-3)


SCHEMES = ("profile", "alternate", "joint", "hybrid", "adam", "stochastic")


@pytest.mark.parametrize("bound", LIKELIHOODS["logit"])
def test_a_scheme_that_is_not_for_a_bound_names_those_that_are(bound):
    refused = {}
    for optimizer in SCHEMES:
        model = GPClassifier(optimizer=optimizer, bound=bound, n_inducing=5, max_iter=2, random_state=0)
        try:
            assert np.isfinite(quietly(model, *MOONS[:2]).elbo_)
        except ValueError as error:
            refused[optimizer] = str(error)
    allowed = [optimizer for optimizer in SCHEMES if optimizer not in refused]
    for optimizer, message in refused.items():
        assert f"optimizer='{optimizer}' is not for the bound '{bound}'" in message
        assert f"choose one of {allowed}, or another bound" in message


SEVERAL = ["ard", "sum", "fixed ard", "matern 3/2", "product", "power", "power with noise", "noise by everything"]
UNIT = np.array([1.0, 0.1, 30.0, 2.0])


def spec_of(name):
    return KernelSpec(ALL_KERNELS[name](np.random.default_rng(0).uniform(0.5, 2.0, 4), 1.3, 0.2), 4)


def check_density_gradient(prior, spec, h, **tolerance):
    value, gradient = prior.at(spec)
    expected = differences(lambda theta: prior.at(spec.with_theta(theta))[0], spec.theta, h)
    assert_allclose(gradient, expected, **tolerance)
    return value, gradient


def noisy(n, d=10, seed=0):
    """Two features of d that classes depend on, in units that differ."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=n) > 0.0).astype(int)
    return X * 10.0 ** rng.integers(-2, 3, d), y


def ratios(kernel, X):
    """Logarithms of length scales, in units of the features' deviations, about their mean."""
    (scale,) = (v for k, v in kernel.get_params().items() if k.endswith("length_scale"))
    u = np.log(scale / np.std(X, axis=0))
    return u - u.mean()


@pytest.mark.parametrize("name", SEVERAL)
def test_gradient_of_the_log_density(name):
    value, _ = check_density_gradient(LengthScalePrior(0.7, UNIT), spec_of(name), 1e-2, rtol=1e-9, atol=1e-9)
    assert value < 0.0


@pytest.mark.parametrize("name", SEVERAL)
def test_a_normal_density_touches_that_of_the_prior_from_below(name):
    """Steps of mini-batches have its gradient."""
    spec, prior = spec_of(name), LengthScalePrior(0.7, UNIT, 0.9)
    precision, linear = prior.normal_at(spec)
    assert_allclose(linear - precision @ spec.theta, prior.at(spec)[1], rtol=1e-10, atol=1e-12)

    def normal(theta):
        return linear @ theta - 0.5 * theta @ precision @ theta

    for step in np.random.default_rng(0).normal(size=(20, len(spec.theta))):
        other = spec.with_theta(spec.theta + step)
        assert normal(other.theta) - normal(spec.theta) <= prior.at(other)[0] - prior.at(spec)[0] + 1e-10


def test_density_is_students_in_the_ratios():
    scale, unit, density = np.array([0.5, 2.0, 7.0]), np.array([1.0, 3.0, 0.2]), stats.t(3.0).logpdf
    u = np.log(scale / unit)
    value, _ = LengthScalePrior(0.4, unit).at(KernelSpec(C(2.0) * RBF(scale), 3))
    assert value == pytest.approx(np.sum(density((u - np.mean(u)) / 0.4) - density(0.0)))


@pytest.mark.parametrize("name", ["ard", "matern 3/2"])
def test_a_common_factor_of_length_scales_or_units_costs_nothing(name):
    spec, prior = spec_of(name), LengthScalePrior(0.7, UNIT)
    value, gradient = prior.at(spec)
    longer = spec.with_theta(spec.theta + 5.0 * np.array(["length_scale" in each for each in spec.names]))
    for each, other in ((prior, longer), (LengthScalePrior(0.7, 100.0 * UNIT), spec)):
        moved, slope = each.at(other)
        assert moved == pytest.approx(value, rel=1e-12)
        assert_allclose(slope, gradient, rtol=1e-12, atol=1e-12)
    assert abs(gradient.sum()) < 1e-12


@pytest.mark.parametrize("name", ["isotropic", "matern 1/2 isotropic", "rational quadratic", "ard"])
def test_the_common_factor_is_held_near_the_start(name):
    """The density of the mean logarithm is normal about that of sqrt(k / 2) spreads, whatever the ratios are."""
    prior, ratios_only = LengthScalePrior(np.inf, UNIT, 0.7), LengthScalePrior(0.5, UNIT)
    both, spec = LengthScalePrior(0.5, UNIT, 0.7), spec_of(name)
    [place] = {leaf.theta["length_scale"].start: leaf.theta["length_scale"] for _, leaf in spec.factors}.values()
    k = place.stop - place.start
    u = spec.theta[place] - np.log(UNIT[:k])
    value, gradient = check_density_gradient(prior, spec, 1e-4, atol=1e-7)
    assert value == pytest.approx(-0.5 * ((np.mean(u) - 0.5 * np.log(k / 2.0)) / 0.7) ** 2)
    assert both.at(spec)[0] == pytest.approx(value + ratios_only.at(spec)[0])
    assert_allclose(both.at(spec)[1], gradient + ratios_only.at(spec)[1])


PRIOR = LengthScalePrior(0.2, np.array([1.0, 2.0]))


def check_climbed(climbed, plain, vector, spec, share=1.0, tolerance=1e-6, nats=None):
    """The gradient of a function with the prior, and that it is a function without and a share of the log density."""
    check_gradient(climbed, vector, tolerance)
    log_prior, _ = PRIOR.at(spec.with_theta(vector[: len(spec.theta)]))
    assert climbed(vector)[0] - plain(vector)[0] == pytest.approx(-share * log_prior, abs=nats)


def test_gradient_of_what_profile_climbs():
    problem = Problem(kernel="ard", n=60, m=5)
    rows, start = problem.training(), problem.prior.at_prior()

    def bound(vector, **others):
        # Inner solves that each begin at the same sites and end tightly are smooth enough to difference.
        function = ProfiledBound(rows, problem.site(), start, options(1e-9, 100, learn_inducing=True, **others))
        for _ in range(9):
            function.tightening *= 0.1
        return function(vector)

    vector = ProfiledBound(rows, problem.site(), start, options(1e-9, 1, learn_inducing=True)).vector
    vector = vector + 0.1 * np.random.default_rng(1).normal(size=len(vector))
    check_climbed(partial(bound, length_scale_prior=PRIOR), bound, vector, problem.prior.spec, 1.0, 1e-5, 1e-6)


@pytest.mark.parametrize("kind", [FixedSitesBound, JointBound])
def test_gradient_of_what_fixed_sites_climb(kind):
    problem = Problem(kernel="ard", bound="polya-gamma", n=20, m=5)
    rows = problem.training()
    point, how = update(rows, problem.prior.at_prior(), problem.site()), options(1e-9, 100, learn_inducing=True)
    plain, climbed = kind(rows, point, how), kind(rows, point, replace(how, length_scale_prior=PRIOR))
    vector = plain.start + 0.05 * np.random.default_rng(1).normal(size=len(plain.start))
    check_climbed(climbed, plain, vector, problem.prior.spec)


def test_gradient_of_what_rounds_with_neighbours_climb():
    """The prior counts as a row's share of the mean score."""
    problem = LocalProblem(C(2.0) * RBF([0.7, 1.2]), n=100, m=6, k=8)
    problem.swept(1e-8)
    T = np.random.default_rng(5).normal(size=(40, 2))
    plain = problem.score_of(T, np.where(np.sin(3.0 * T[:, 0]) > 0.0, 1.0, -1.0))
    climbed = replace(plain, length_scale_prior=PRIOR)
    vector = np.append(problem.prior.spec.theta + 0.1, -0.2)
    check_climbed(lambda at: climbed.objective(at)[:2], plain.objective, vector, problem.prior.spec, 1.0 / len(T))


FREE = {
    "hardly any": {"kernel": C() * RBF([1.0, 1.0]), "length_scale_prior": 1e200},
    "isotropic": {"kernel": C() * RBF(1.0), "length_scale_prior": 0.01},
    "given kernel": {"kernel": C() * RBF([1.0, 1.0])},
    "nothing learned": {"length_scale_prior": 0.5, "optimizer": None},
}


@pytest.mark.parametrize("kind", FREE)
def test_where_there_is_nothing_to_hold_together_fits_have_the_same_bits(kind):
    X, y = moons(150)
    model = quietly(GPClassifier(n_inducing=12, random_state=0, **FREE[kind]), X, y)
    without = quietly(clone(model).set_params(length_scale_prior=None), X, y)
    assert_same_bits(without, model, X)
    assert np.array_equal(model.posterior_.h, without.posterior_.h)
    assert "log_prior" not in without.history_


WAYS = [{}, {"inducing_points": "all"}, {"n_restarts_optimizer": 1}, {"n_neighbors": 5}, {"n_inducing": "auto"}]
WAYS += [{"optimizer": "adam"}, {"optimizer": "adam", "batch_size": 20}, {"optimizer": "alternate"}]
WAYS += [{"bound": "polya-gamma", "optimizer": optimizer} for optimizer in ("joint", "hybrid")]


@pytest.mark.parametrize("params", WAYS, ids=str)
def test_every_way_to_learn_has_the_prior(params):
    X, y = noisy(120, d=5)
    shared = {"n_inducing": 12, "random_state": 0, "max_iter": 50, **params}
    free, held = (quietly(GPClassifier(length_scale_prior=p, **shared), X, y) for p in (None, 0.05))
    assert np.std(ratios(held.kernel_, X)) < min(0.15, 0.3 * np.std(ratios(free.kernel_, X)))


def test_the_bound_is_reported_and_its_sum_with_the_prior_climbed():
    X, y = noisy(80)
    # With fewer than eight iterations no other kernel is tried.
    model = quietly(GPClassifier(n_inducing=12, max_iter=7, random_state=0), X, y)
    assert model.elbo_ == pytest.approx(model.elbo(X, y), rel=1e-6)
    found = rows_of(model, "evaluation")
    spec = KernelSpec(model.kernel_, X.shape[1])
    prior = LengthScalePrior(DEFAULT_SPREAD, np.std(X, axis=0), DEFAULT_LEVEL)
    expected = [prior.at(spec.with_theta(theta))[0] for theta in found["theta"]]
    assert_allclose(found["log_prior"], expected, rtol=1e-9, atol=1e-9)
    assert_allclose(model.kernel_.theta, found["theta"][np.argmax(found["elbo"] + found["log_prior"])])
