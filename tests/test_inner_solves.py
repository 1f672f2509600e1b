"""Inner solves of softmax: what bends the bound, how long steps are, where they end, and how many there are."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.dense import assert_near, full_prior, labelled
from support.fits import quietly
from support.internals import (
    DAMPED,
    History,
    KernelSpec,
    ProfiledBound,
    SparsePrior,
    coordinate_ascent,
    natural_step,
    projected,
    proper_posterior,
    starting_posterior,
    statistics,
    steps_from,
    update,
)
from support.latents import CASES, Problem, cases, symmetric
from support.reference import moons, standardised
from support.training import options, sites_of, training

from xgpc import GPClassifier
from xgpc.likelihoods import MULTI_CLASS, record_of

SETS = {
    "moons": lambda: moons(200),
    "300 moons": lambda: moons(300, 1),
    "cancer": lambda: standardised(load_breast_cancer, slice(0, 3), 200),
    "iris": lambda: standardised(load_iris),
    "wine": lambda: standardised(load_wine),
    "half of wine": lambda: tuple(part[::2] for part in standardised(load_wine, slice(0, 3))),
}


def problem(name, likelihood, bound, kernel, n_inducing):
    """Rows, a prior at every so many of them, and a site."""
    X, y = SETS[name]()
    several = likelihood in MULTI_CLASS
    y, n_latents = (y.astype(float), int(y.max()) + 1) if several else (np.where(y == 1, 1.0, -1.0), 1)
    prior = SparsePrior.build(KernelSpec(kernel, X.shape[1]), X[:: len(X) // n_inducing])
    return training(X, y, n_latents=n_latents), prior, record_of(likelihood, bound).site(max(2, n_latents))


def hard_problem(name, variance, bound):
    """Of so large a variance that classes separate."""
    kernel = ConstantKernel(variance) * RBF(0.5 * np.sqrt(SETS[name]()[0].shape[1]))
    return problem(name, "softmax", bound, kernel, 25)


@cases([case for case in CASES if case[0] == "softmax"])
@pytest.mark.parametrize("far", [0.1, 30.0])
def test_long_steps_promise_the_slope_of_the_bound_in_means_and_covariances(likelihood, bound, share, far):
    """However far they lead, by central differences on the line between means w and covariances V of both ends."""
    several = Problem(likelihood, bound, share, seed=3, weighted=True)
    q, rows, site = several.arbitrary_posterior(), several.training(), several.site()
    point = update(rows, q, site)
    direction = np.random.default_rng(0).normal(size=q.w.shape)
    end = several.arbitrary_posterior().at_mean((q.w + far * direction, q.w + far * direction))
    V, V_end = (np.linalg.inv(symmetric(each.P)) for each in (q, end))

    def bound_at(share):
        P = np.linalg.inv(V + share * (V_end - V))
        w = q.w + share * (end.w - q.w)
        return update(rows, q.prior.posterior((np.tril(P), np.einsum("cij,cj->ci", P, w))), site).elbo

    assert q.first_order_gain(point.target, q) == 0.0
    step = 1e-4 / far
    slope = (bound_at(step) - bound_at(-step)) / (2.0 * step)
    assert q.first_order_gain(point.target, end) == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("variance", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("kind", ["sparse", "full"])
def test_steps_promise_a_gain_of_any_length(variance, kind):
    """From the prior and from where its first steps lead; the bound rises, if the step is short enough."""
    X, classes = labelled(40, seed=6)
    kernel, y = ConstantKernel(variance) * RBF(1.0), classes.astype(np.float64)
    prior = full_prior(X, [kernel]) if kind == "full" else SparsePrior.build(KernelSpec(kernel, 2), X[:9])
    rows, site = training(X, y, n_latents=3), record_of("softmax", "exact").site(3)
    point = update(rows, prior.at_prior(3), site)
    for _ in range(4):
        trials = [steps_from(rows, point)(rate) for rate in 0.5 ** np.arange(12)]
        assert all(point.q.first_order_gain(point.target, trial) > 0.0 for trial in trials)
        best = max((update(rows, trial, site) for trial in trials), key=lambda reached: reached.elbo)
        assert best.elbo > point.elbo
        point = best


@pytest.mark.parametrize(
    ("name", "variance", "bound"), [("iris", 3.0, "exact"), ("wine", 3.0, "additive-noise"), ("wine", 300.0, "exact")]
)
def test_ascents_end_where_slow_ones_do_and_never_fall(name, variance, bound):
    rows, prior, site = hard_problem(name, variance, bound)
    history = History()
    start = starting_posterior(rows, None, prior, site)
    end = coordinate_ascent(rows, start, site, tol=1e-9, max_iter=500, history=history)
    assert end.converged
    assert np.all(np.diff(history.arrays()["elbo"]) >= 0.0)
    slow = start
    for _ in range(1500):
        # A tenth of each unit step of the sites: no coupling, no safeguard, no measured lengths.
        slow = natural_step(slow, update(rows, slow, site).target, 0.1)
    assert end.point.elbo == pytest.approx(update(rows, slow, site).elbo, abs=1e-6)


@pytest.mark.parametrize(("variance", "bound"), [(300.0, "exact"), (3.0, "additive-noise")])
def test_what_a_stopped_ascent_leaves_is_about_its_tolerance(variance, bound):
    rows, prior, site = hard_problem("wine", variance, bound)
    start = starting_posterior(rows, None, prior, site)
    best = coordinate_ascent(rows, start, site, tol=1e-10, max_iter=2000).point.elbo
    for tol in (1.0, 0.1, 0.01, 0.001):
        end = coordinate_ascent(rows, start, site, tol=tol, max_iter=500)
        assert end.converged
        assert 0.0 <= best - end.point.elbo < 10.0 * tol


def test_gradients_of_stopped_inner_solves_are_those_of_the_profiled_bound():
    """By the kernel's parameters, against differences of bounds that are solved to the end."""
    rows, prior, site = hard_problem("wine", 100.0, "exact")
    function = ProfiledBound(rows, site, starting_posterior(rows, None, prior, site), options(1e-4, 100))
    vector = function.vector + np.array([0.1, -0.05, 0.0])
    for _ in range(3):
        gradient = -function(vector)[1]

    def solved(vector):
        q = starting_posterior(rows, function.point.q, function.coordinates.prior(vector), site)
        return coordinate_ascent(rows, q, site, tol=1e-11, max_iter=2000).point.elbo

    assert_near(gradient, [(solved(vector + e) - solved(vector - e)) / 2e-3 for e in 1e-3 * np.eye(3)], 0.02)


def slopes(model, X, y, step=1e-3):
    """Central differences of the profiled bound by the kernel's theta; 0 where a bound keeps it from rising."""
    theta, (low, high) = model.kernel_.theta, model.kernel_.bounds.T

    def bound(theta):
        params = {"kernel": model.kernel_.clone_with_theta(theta), "optimizer": None, "warm_start": True}
        return copy.copy(model).set_params(**params, tol=1e-12, max_iter=5000).fit(X, y).elbo_

    found = np.array([(bound(theta + e) - bound(theta - e)) / (2.0 * step) for e in step * np.eye(len(theta))])
    return np.where(np.where(found > 0.0, theta > high - step, theta - step < low + step), 0.0, found)


ENDS = [("moons", "logit", "kmeans"), ("moons", "step", "all"), ("300 moons", "step", "kmeans")]
ENDS += [("cancer", "probit", "kmeans"), ("iris", "multinomial-logit", "kmeans")]


@pytest.mark.parametrize(("data", "likelihood", "points"), [*ENDS, ("half of wine", "multinomial-step", "all")])
def test_a_fit_that_says_so_ends_at_a_stationary_point(data, likelihood, points):
    """Five steps that gain 2.5e-6 nats in all: slopes of some 1e-3, with curvatures of the order of one."""
    X, y = SETS[data]()
    kernel = ConstantKernel(2.0) * RBF(np.sqrt(X.shape[1]))
    options = {"likelihood": likelihood, "bound": "additive-noise", "inducing_points": points, "n_inducing": 15}
    options |= {"learn_inducing": False, "tol": 1e-9, "max_iter": 500, "random_state": 0}
    model = quietly(GPClassifier(kernel, **options), X, y)
    assert model.converged_
    assert np.max(np.abs(slopes(model, X, y))) < 3e-3


@dataclass(frozen=True)
class ThirdsNegative:
    """Sites of a posterior, but for the precision of every third row."""

    stated: statistics.SitesAtPosterior

    @property
    def n_latents(self):
        return self.stated.n_latents

    def of(self, block, kind=""):
        sites = self.stated.of(block)
        precision = sites.precision.copy()
        precision[:, -block.start % 3 :: 3] = -50.0
        return sites._replace(precision=precision)


@pytest.mark.parametrize("likelihood", ["step", "multinomial-step"])
def test_sites_of_negative_precision_count_as_zero_where_they_leave_no_posterior(likelihood):
    """P = I + sum of max(lambda, 0) a a^T and h = sum of (r - min(lambda, 0) m) a: the gradients by the mean stay."""
    data = "iris" if likelihood.startswith("multinomial") else "moons"
    rows, prior, site = problem(data, likelihood, "additive-noise", ConstantKernel(2.0) * RBF(1.0), 10)
    sites = ThirdsNegative(update(rows, starting_posterior(rows, None, prior, site), site).sites)
    blocks = [sites.of(block) for block in rows.source.blocks()]
    mean, lam, r = (np.hstack([getattr(b, name) for b in blocks]) for name in ("mean", "precision", "linear"))
    assert prior.posterior(projected(rows, sites, prior)) is None
    q = proper_posterior(rows, sites, prior)
    A = np.linalg.solve(prior.L, prior.core.cross(rows.source.X).T).T
    above, gradient = np.maximum(lam, 0.0), r - lam * mean
    P = np.eye(A.shape[1]) + np.einsum("ci,ij,ik->cjk", above, A, A)
    h = np.einsum("ci,ij->cj", gradient + above * mean, A)
    assert_near(symmetric(q.P), P, 1e-9)
    assert_near(q.h, h, 1e-9)


@pytest.mark.parametrize("likelihood", ["step", "probit", "logit"])
@pytest.mark.parametrize("kind", ["sparse", "full"])
def test_damped_precisions_and_the_mean_of_a_newton_step(likelihood, kind):
    """The mean of the step goes by (damped precision)^-1 times the gradient of the bound."""
    X, classes = labelled(30, seed=4, n_classes=2)
    y, site = np.where(classes == 1, 1.0, -1.0), record_of(likelihood, "additive-noise").at(0.05).site()
    random, kernel, rows = np.random.default_rng(1), ConstantKernel(2.0) * RBF(1.0), training(X, y)
    if kind == "full":
        prior = full_prior(X, [kernel])
        q = prior.posterior((random.uniform(50.0, 60.0, (1, 30)), random.normal(size=(1, 30))))
    else:
        prior = SparsePrior.build(KernelSpec(kernel, 2), X[:6])
        q = prior.posterior((20.0 * np.eye(6)[None], random.normal(size=(1, 6))))
    point = update(rows, q, site)
    precision, linear = steps_from(rows, point)(1.0).eta
    mean, _, lam, r = sites_of(rows, q, point.site)
    gradient = r - lam * mean
    assert_near(precision, q.eta[0] + DAMPED.precision_rate * (point.target[0] - q.eta[0]), 1e-12)
    updated = prior.posterior((precision, linear))
    assert 0.01 <= q.kl_to(updated, 0.01) <= q.kl_to(updated)
    if kind == "full":
        K_inverse = np.linalg.inv(kernel(X))
        step = np.linalg.solve(K_inverse + np.diag(precision[0]), gradient - K_inverse @ q.mean[0])
        assert_near(updated.mean, q.mean + step, 1e-7)
    else:
        A = np.linalg.solve(prior.L, prior.core.cross(X).T).T
        assert_near(updated.w, q.w + np.linalg.solve(symmetric(precision)[0], A.T @ gradient - q.w[0]), 1e-9)


def test_a_weak_start_is_left():
    """From a variance so small that the first posterior is the prior, where the gradient vanishes."""
    X, y = moons(1000)
    shape = RBF([2.0, 2.0], (1e-5, 1e5))
    kernels = (ConstantKernel(variance, (1e-5, 1e5)) * shape for variance in (1e-4, 2.0))
    weak, usual = (quietly(GPClassifier(kernel, n_inducing=20, random_state=0), X, y).elbo_ for kernel in kernels)
    assert weak > usual - 10.0


@pytest.mark.parametrize(
    ("optimizer", "bound"), [("profile", "exact"), ("alternate", "exact"), ("joint", "polya-gamma"), ("adam", "exact")]
)
def test_hyperparameters_whose_matrix_cannot_be_factorised_are_turned_back_from(monkeypatch, optimizer, bound):
    X, y = moons()
    kernel = ConstantKernel(3.8) * RBF([1.0, 1.0])
    model = GPClassifier(kernel, n_inducing=15, optimizer=optimizer, bound=bound, max_iter=60, random_state=0)
    honest = SparsePrior.build
    refused = []

    def build(spec, Z, dtype):
        if spec.theta[0] > np.log(4.0):
            refused.append(spec.theta[0])
            raise ValueError("not positive definite")
        return honest(spec, Z, dtype)

    free = quietly(model, X, y).kernel_.k1.constant_value
    monkeypatch.setattr(SparsePrior, "build", staticmethod(build))
    quietly(model, X, y)
    given = quietly(clone(model).set_params(optimizer=None), X, y)
    assert free > 4.0
    assert refused
    assert model.kernel_.k1.constant_value <= 4.0
    assert model.elbo_ > given.elbo_ + 1.0
