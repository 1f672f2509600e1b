"""Inner solves of softmax: what bends the bound, how long steps are, where they end, and how many there are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, load_wine
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.preprocessing import StandardScaler
from support.full import full_prior, labelled
from support.internals import (
    History,
    KernelSpec,
    Options,
    ProfiledBound,
    SparsePrior,
    coordinate_ascent,
    natural_step,
    starting_posterior,
    steps_from,
    update,
)
from support.latents import Problem, cases, symmetric
from support.training import training

from xgpc.likelihoods import record_of

SOFTMAX = [("softmax", bound, share) for bound in ("exact", "additive-noise") for share in ("kernel", "none")]
DATA = {"iris": load_iris, "wine": load_wine}


def rows_of(name):
    X, y = DATA[name](return_X_y=True)
    return StandardScaler().fit_transform(X), y.astype(np.float64)


def hard_problem(name, variance, bound, n_inducing=25):
    """Rows, a prior with so large a variance that classes separate, and a site."""
    X, y = rows_of(name)
    kernel = ConstantKernel(variance) * RBF(0.5 * np.sqrt(X.shape[1]))
    prior = SparsePrior.build(KernelSpec(kernel, X.shape[1]), X[:: len(X) // n_inducing])
    return training(X, y, n_latents=3), prior, record_of("softmax", bound).site(3)


# The curvature by the means.


# Lengths of steps.


def slope_of_bound(rows, point, target, step=1e-4):
    """Derivative of the bound at the beginning of the way to a target, by central differences."""
    ends = [update(rows, natural_step(point.q, target, rate), point.site).elbo for rate in (step, -step)]
    return (ends[0] - ends[1]) / (2.0 * step)


@cases(SOFTMAX)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_gains_what_it_promises_to_first_order(likelihood, bound, share, weighted):
    several = Problem(likelihood, bound, share, seed=7, weighted=weighted)
    q, rows = several.arbitrary_posterior(), several.training()
    point = update(rows, q, several.site(None))
    target = several.arbitrary_posterior().natural
    trial = natural_step(q, target, 1e-5)
    assert q.first_order_gain(point.target, q) == 0.0
    assert 1e5 * q.first_order_gain(point.target, trial) == pytest.approx(slope_of_bound(rows, point, target), rel=1e-3)


@cases([case for case in SOFTMAX if case[1] == "exact"])
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


# Where ascents end.


def slow_ascent(rows, q, site, iterations, rate=0.1):
    """A tenth of each unit step of the sites: no coupling, no safeguard, no measured lengths."""
    for _ in range(iterations):
        q = natural_step(q, update(rows, q, site).target, rate)
    return update(rows, q, site).elbo


@pytest.mark.parametrize(
    ("name", "variance", "bound"),
    [
        ("iris", 3.0, "exact"),
        ("iris", 3.0, "additive-noise"),
        ("wine", 3.0, "additive-noise"),
        ("wine", 300.0, "exact"),
    ],
)
def test_ascents_end_where_slow_ones_do_and_never_fall(name, variance, bound):
    rows, prior, site = hard_problem(name, variance, bound)
    history = History()
    start = starting_posterior(rows, None, prior, site)
    end = coordinate_ascent(rows, start, site, tol=1e-9, max_iter=500, history=history)
    assert end.converged
    assert np.all(np.diff(history.arrays()["elbo"]) >= 0.0)
    assert end.elbo == pytest.approx(slow_ascent(rows, start, site, 1500), abs=1e-6)


@pytest.mark.parametrize(("variance", "bound"), [(300.0, "exact"), (3.0, "additive-noise")])
def test_what_a_stopped_ascent_leaves_is_about_its_tolerance(variance, bound):
    rows, prior, site = hard_problem("wine", variance, bound)
    start = starting_posterior(rows, None, prior, site)
    best = coordinate_ascent(rows, start, site, tol=1e-10, max_iter=2000, history=History()).elbo
    for tol in (1.0, 0.1, 0.01, 0.001):
        end = coordinate_ascent(rows, start, site, tol=tol, max_iter=500, history=History())
        assert end.converged
        assert 0.0 <= best - end.elbo < 10.0 * tol


def test_gradients_of_stopped_inner_solves_are_those_of_the_profiled_bound():
    """By the kernel's parameters, against differences of bounds that are solved to the end."""
    rows, prior, site = hard_problem("wine", 100.0, "exact")
    start = starting_posterior(rows, None, prior, site)
    function = ProfiledBound(rows, site, start, Options(False, 1e-4, 100, History()))
    vector = function.vector + np.array([0.1, -0.05, 0.0])
    for _ in range(3):
        gradient = -function(vector)[1]

    def solved(vector):
        prior = function.coordinates.prior(vector)
        q = starting_posterior(rows, function.q, prior, site)
        return coordinate_ascent(rows, q, site, tol=1e-11, max_iter=2000, history=History()).elbo

    step = 1e-3
    differences = [(solved(vector + e) - solved(vector - e)) / (2.0 * step) for e in step * np.eye(3)]
    assert_allclose(gradient, differences, rtol=0.0, atol=0.02 * np.abs(differences).max())


# How many passes they take.
