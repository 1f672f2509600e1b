"""The prior of the ratios of length scales: its density, what is climbed with it, and what it makes of noise."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly, rows_of
from support.gradients import KERNELS, Problem, derivative
from support.internals import (
    DEFAULT_LEVEL,
    DEFAULT_SPREAD,
    ArraySource,
    FixedSitesBound,
    History,
    JointBound,
    KernelSpec,
    LengthScalePrior,
    Options,
    ProfiledBound,
    QueryScore,
    SparsePrior,
    converged_sites,
    start_sites,
    update,
)
from support.local import Problem as LocalProblem
from support.reference import moons

from xgpc import GPClassifier

SEVERAL = ["ard", "sum", "fixed ard", "matern 3/2", "product", "power", "power with noise", "noise by everything"]
ONE = ["isotropic", "matern 1/2 isotropic", "rational quadratic", "nothing free"]


def spec_of(name, d=4):
    length = np.random.default_rng(0).uniform(0.5, 2.0, d)
    return KernelSpec(KERNELS[name](length, 1.3, 0.2), d)


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


# The density.


@pytest.mark.parametrize("name", SEVERAL)
def test_gradient_of_the_log_density(name):
    spec = spec_of(name)
    prior = LengthScalePrior(0.7, np.array([1.0, 0.1, 30.0, 2.0]))
    value, gradient = prior.at(spec)
    assert value < 0.0
    expected = [
        derivative(lambda h, step=step: prior.at(spec.with_theta(spec.theta + h * step))[0], 1e-2)
        for step in np.eye(len(spec.theta))
    ]
    assert_allclose(gradient, expected, rtol=1e-9, atol=1e-9)


def test_density_is_normal_in_the_ratios():
    scale, unit = np.array([0.5, 2.0, 7.0]), np.array([1.0, 3.0, 0.2])
    u = np.log(scale / unit)
    value, _ = LengthScalePrior(0.4, unit).at(KernelSpec(ConstantKernel(2.0) * RBF(scale), 3))
    assert value == pytest.approx(-0.5 * 3.0 * np.var(u) / 0.4**2)


@pytest.mark.parametrize("name", ["ard", "matern 3/2"])
def test_a_common_factor_of_length_scales_or_units_costs_nothing(name):
    spec, unit = spec_of(name), np.array([1.0, 0.1, 30.0, 2.0])
    is_length = np.array(["length_scale" in each for each in spec.names])
    value, gradient = LengthScalePrior(0.7, unit).at(spec)
    longer = spec.with_theta(spec.theta + 5.0 * is_length)
    for prior, other in ((LengthScalePrior(0.7, unit), longer), (LengthScalePrior(0.7, 100.0 * unit), spec)):
        moved, slope = prior.at(other)
        assert moved == pytest.approx(value, rel=1e-12)
        assert_allclose(slope, gradient, rtol=1e-12, atol=1e-12)
    assert abs(gradient.sum()) < 1e-12


@pytest.mark.parametrize("name", [*ONE[:-1], "ard"])
def test_the_common_factor_is_held_near_the_start(name):
    """The density of the mean logarithm is normal about that of sqrt(k / 2) spreads, whatever the ratios are."""
    unit = np.array([1.0, 0.1, 30.0, 2.0])
    prior, ratios_only = LengthScalePrior(np.inf, unit, 0.7), LengthScalePrior(0.5, unit)
    both = LengthScalePrior(0.5, unit, 0.7)
    spec = spec_of(name)
    [place] = {leaf.theta["length_scale"].start: leaf.theta["length_scale"] for _, leaf in spec.factors}.values()
    k = place.stop - place.start
    u = spec.theta[place] - np.log(unit[:k])
    value, gradient = prior.at(spec)
    assert value == pytest.approx(-0.5 * ((np.mean(u) - 0.5 * np.log(k / 2.0)) / 0.7) ** 2)
    numeric = [
        derivative(lambda h, e=e: prior.at(spec.with_theta(spec.theta + h * e))[0], 1e-4) for e in np.eye(len(gradient))
    ]
    assert_allclose(gradient, numeric, atol=1e-7)
    assert both.at(spec)[0] == pytest.approx(value + ratios_only.at(spec)[0])
    assert_allclose(both.at(spec)[1], gradient + ratios_only.at(spec)[1])


# What is climbed.


def check_gradient(function, vector, rtol=1e-6):
    gradient = function(vector)[1]
    expected = [derivative(lambda h, unit=unit: function(vector + h * unit)[0], 1e-3) for unit in np.eye(len(vector))]
    assert_allclose(gradient, expected, rtol=0.0, atol=rtol * max(1.0, np.abs(gradient).max()))


def test_gradient_of_what_profile_climbs():
    problem = Problem("ard", "exact", n=60)
    prior = LengthScalePrior(0.2, np.array([1.0, 2.0]))
    rows, start = problem.training(), SparsePrior.build(problem.spec, problem.Z).at_prior(None)

    def climbed(vector):
        # Inner solves that each begin at the same sites and end tightly are smooth enough to difference.
        function = ProfiledBound(
            rows, problem.site, start, Options(True, 1e-9, 100, History(), length_scale_prior=prior)
        )
        for _ in range(9):
            function.tighten()
        return function(vector)

    vector = ProfiledBound(rows, problem.site, start, Options(True, 1e-9, 1, History())).vector
    vector = vector + 0.1 * np.random.default_rng(1).normal(size=len(vector))
    check_gradient(climbed, vector, rtol=1e-5)
    plain = ProfiledBound(rows, problem.site, start, Options(True, 1e-9, 100, History()))
    spec = problem.spec.with_theta(vector[: len(problem.spec.theta)])
    assert climbed(vector)[0] - plain(vector)[0] == pytest.approx(-prior.at(spec)[0], abs=1e-4)


@pytest.mark.parametrize("kind", [FixedSitesBound, JointBound])
def test_gradient_of_what_fixed_sites_climb(kind):
    problem = Problem("ard", "polya-gamma", n=20)
    rows, start = problem.training(), SparsePrior.build(problem.spec, problem.Z).at_prior(None)
    point, prior = update(rows, start, problem.site), LengthScalePrior(0.2, np.array([1.0, 2.0]))
    options = Options(True, 1e-9, 100, History())
    plain, climbed = kind(rows, point, options), kind(rows, point, replace(options, length_scale_prior=prior))
    vector = plain.start + 0.05 * np.random.default_rng(1).normal(size=len(plain.start))
    check_gradient(climbed, vector)
    spec = problem.spec.with_theta(vector[: len(problem.spec.theta)])
    assert climbed(vector)[0] - plain(vector)[0] == pytest.approx(-prior.at(spec)[0])


def test_gradient_of_what_rounds_with_neighbours_climb():
    """The prior counts as a row's share of the mean score."""
    problem = LocalProblem(ConstantKernel(2.0) * RBF([0.7, 1.2]), n=100, m=6, k=8)
    sweeps = converged_sites(problem.local, start_sites(problem.source, problem.link), 1e-8, 1000)
    T = np.random.default_rng(5).normal(size=(40, 2))
    queries = ArraySource(T, np.where(np.sin(3.0 * T[:, 0]) > 0.0, 1.0, -1.0), np.empty(0))
    among = problem.index, problem.n_earlier, problem.neighbourhoods(T).index
    plain = QueryScore(problem.executor, problem.prior, problem.source, queries, *among, sweeps.sites, problem.link)
    prior = LengthScalePrior(0.2, np.array([1.0, 2.0]))
    climbed = replace(plain, length_scale_prior=prior)
    vector = np.append(problem.prior.spec.theta + 0.1, -0.2)
    check_gradient(climbed.objective, vector)
    spec = problem.prior.spec.with_theta(vector[:-1])
    assert climbed.objective(vector)[0] - plain.objective(vector)[0] == pytest.approx(-prior.at(spec)[0] / len(T))


# Fits.


def same_bits(one, other):
    assert one.elbo_ == other.elbo_
    assert np.array_equal(one.posterior_.h, other.posterior_.h)
    assert np.array_equal(one.kernel_.theta, other.kernel_.theta)


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        pytest.param(ConstantKernel() * RBF([1.0, 1.0]), {"length_scale_prior": 1e200}, id="hardly any"),
        pytest.param(ConstantKernel() * RBF(1.0), {"length_scale_prior": 0.01}, id="isotropic"),
        pytest.param(ConstantKernel() * RBF([1.0, 1.0]), {}, id="given kernel"),
        pytest.param(None, {"length_scale_prior": 0.5, "optimizer": None}, id="nothing learned"),
    ],
)
def test_where_there_is_nothing_to_hold_together_fits_have_the_same_bits(kernel, params):
    X, y = moons(150)
    shared = {"n_inducing": 12, "random_state": 0}
    without = quietly(GPClassifier(kernel, **(shared | params | {"length_scale_prior": None})), X, y)
    same_bits(quietly(GPClassifier(kernel, **shared, **params), X, y), without)
    assert "log_prior" not in without.history_


def test_ratios_of_noise_features_come_closer_to_one_as_the_prior_is_stronger():
    """Eight of ten features."""
    spread = {}
    for prior in (None, 1.0, 0.3):
        data = [noisy(80, seed=seed) for seed in range(3)]
        models = [quietly(GPClassifier(n_inducing=20, length_scale_prior=prior, random_state=0), *one) for one in data]
        spread[prior] = np.mean([np.std(ratios(m.kernel_, X)) for m, (X, _) in zip(models, data, strict=True)])
    assert spread[0.3] < spread[1.0] < 0.5 * spread[None]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"inducing_points": "all"},
        {"n_restarts_optimizer": 1},
        {"optimizer": "adam"},
        {"optimizer": "adam", "batch_size": 20},
        {"optimizer": "alternate"},
        {"bound": "polya-gamma", "optimizer": "joint"},
        {"bound": "polya-gamma", "optimizer": "hybrid"},
        {"n_neighbors": 5},
        {"n_inducing": "auto"},
    ],
    ids=str,
)
def test_every_way_to_learn_has_the_prior(params):
    X, y = noisy(120, d=5)
    shared = {"n_inducing": 12, "random_state": 0, "max_iter": 50, **params}
    free, held = (quietly(GPClassifier(length_scale_prior=p, **shared), X, y) for p in (None, 0.05))
    assert np.std(ratios(held.kernel_, X)) < 0.3 * np.std(ratios(free.kernel_, X))
    assert np.std(ratios(held.kernel_, X)) < 0.15


def test_the_bound_is_reported_and_its_sum_with_the_prior_climbed():
    X, y = noisy(80)
    model = quietly(GPClassifier(n_inducing=12, random_state=0), X, y)
    assert model.elbo_ == pytest.approx(model.elbo(X, y), rel=1e-6)
    found = rows_of(model, "evaluation")
    spec = KernelSpec(model.kernel_, X.shape[1])
    prior = LengthScalePrior(DEFAULT_SPREAD, np.std(X, axis=0), DEFAULT_LEVEL)
    expected = [prior.at(spec.with_theta(theta))[0] for theta in found["theta"]]
    assert_allclose(found["log_prior"], expected, rtol=1e-9, atol=1e-9)
    best = np.argmax(found["elbo"] + found["log_prior"])
    assert_allclose(model.kernel_.theta, found["theta"][best])
