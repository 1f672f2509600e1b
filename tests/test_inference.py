"""Inference at given hyperparameters against dense formulas, and its invariances."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.preprocessing import StandardScaler
from support.dense import assert_near
from support.internals import (
    LEAST_GAIN,
    ArraySource,
    Distinct,
    History,
    KernelSpec,
    Scores,
    SparsePrior,
    accept,
    correction,
    mini_batch_ascent,
    natural_step,
    projected,
    projected_sums,
    proper_posterior,
    starting_posterior,
    statistics,
)
from support.latents import symmetric
from support.online import X
from support.reference import ringnorm
from support.training import ascended, bound_gradient, options, sites_of, training, updated

from xgpc.likelihoods import record_of

EXACT, POLYA_GAMMA = record_of("logit", "exact").site(), record_of("logit", "polya-gamma").site()


def problem(seed, n, m, d, variance=2.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    Z = rng.uniform(-2, 2, size=(m, d))
    kernel = ConstantKernel(variance) * RBF(np.ones(d)) + WhiteKernel(0.1)
    return X, y, SparsePrior.build(KernelSpec(kernel, d), Z)


@pytest.mark.parametrize("variance", [1.0, 100.0, 1e4])
def test_polya_gamma_never_decreases_the_bound(variance):
    X, y, prior = problem(1, 600, 15, 2, variance=variance)
    rows, q, bounds = training(X, y), prior.at_prior(), []
    for _ in range(100):
        ell, *target = updated(rows, q, POLYA_GAMMA)
        bounds.append(ell - q.kl)
        q = natural_step(q, tuple(target), 1.0)
    assert np.all(np.diff(bounds) >= -1e-10 * np.abs(bounds[1:]))
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize("variance", [1.0, 25.0, 2500.0])
def test_the_first_posterior_is_far_better_than_the_prior(variance):
    X, y, prior = problem(3, 60, 8, 1, variance=variance)
    rows = training(X, y)
    at_prior, start = prior.at_prior(), starting_posterior(rows, None, prior, EXACT)
    worst, first = (ascended(rows, q, EXACT, max_iter=0)[1] for q in (at_prior, start))
    best = ascended(rows, start, EXACT)[1]
    assert best - first < 0.5 * (best - worst)


@pytest.mark.parametrize(("length_scale", "variance"), [(4.5, 4.0), (8.9, 100.0), (13.4, 5000.0)])
def test_exact_needs_at_most_twelve_iterations_and_its_bound_is_above_polya_gammas(length_scale, variance):
    X, y = ringnorm(3000, np.random.default_rng(0))
    X = StandardScaler().fit_transform(X)
    Z = KMeans(100, n_init=1, random_state=0).fit(X[:2000]).cluster_centers_
    prior = SparsePrior.build(KernelSpec(ConstantKernel(variance) * RBF(length_scale), X.shape[1]), Z)
    rows, start, history = training(X, np.where(y, 1.0, -1.0)), prior.at_prior(), History()
    _, best, _, converged = ascended(rows, start, EXACT, tol=1e-9, max_iter=100, history=history)
    _, polya_gamma, *_ = ascended(rows, start, POLYA_GAMMA, tol=1e-3, max_iter=60)
    assert converged
    assert np.argmax(history.arrays()["elbo"] > best - 0.01) <= 12
    assert best >= polya_gamma


def test_safeguard_recovers_from_sites_of_other_hyperparameters():
    """Sites far from any optimum: unit steps alone overshoot, halved ones and the fallback bring the bound up."""
    X, y, prior = problem(4, 400, 20, 2, variance=1e4)
    rows = training(X, y)
    _, best, *_ = ascended(rows, prior.at_prior(), EXACT)
    linear = 30.0 * np.random.default_rng(0).normal(size=len(X))
    far = statistics.FixedSites(np.full((1, len(X)), 1e-6), linear[None])
    stale = prior.posterior(projected(rows, far, prior))
    history = History()
    _, elbo, _, converged = ascended(rows, stale, EXACT, history=history)
    assert converged
    assert np.nanmin(history.arrays()["learning_rate"]) < 1.0
    assert np.all(np.diff(history.arrays()["elbo"]) >= 0)
    assert elbo == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("cache_bytes", [0, 2**29])
def test_passes_of_other_posteriors_and_priors_between_change_no_bit(cache_bytes):
    """What blocks and threads remember is told apart: whitened rows as wide of another kernel, sites of another q."""
    X, y, prior = problem(6, 5000, 64, 3)
    rows = training(X, y, cache_bytes=cache_bytes)
    other, small = (SparsePrior.build(KernelSpec(3.0 * RBF(0.7), 3), Z) for Z in (prior.Z + 0.1, prior.Z[:20]))
    q = proper_posterior(rows, statistics.SitesAtPosterior(prior.at_prior(), EXACT), prior)

    def everything():
        changed = proper_posterior(rows, statistics.SitesAtPosterior(q, EXACT), other)
        return [updated(rows, q, EXACT), sites_of(rows, q, EXACT), bound_gradient(rows, q, EXACT), changed.eta]

    expected = everything()
    for between in (other.at_prior(), small.at_prior(), prior.at_prior()):
        updated(rows, between, POLYA_GAMMA)
        np.testing.assert_equal(everything(), expected)


@pytest.mark.parametrize("rate", ["adaptive", 0.02, (2.0, 0.7)], ids=str)
def test_mini_batches_come_close_to_the_full_batch_bound_at_the_rates_that_are_given(rate):
    X, y = ringnorm(6000, np.random.default_rng(1))
    y = np.where(y, 1.0, -1.0)
    prior = SparsePrior.build(KernelSpec(ConstantKernel(4.0) * RBF(8.0), X.shape[1]), X[:50])
    rows, start, history = training(X, y), prior.at_prior(), History()
    _, best, *_ = ascended(rows, start, EXACT, tol=1e-6)
    how = options(0.0, 10, batch_size=100, learning_rate=rate, history=history)
    point, epochs, *_ = mini_batch_ascent(rows, start, EXACT, how)
    assert epochs == 10
    assert best - point.elbo < 1e-3 * abs(best)
    rates = history.arrays()["learning_rate"][:-1]
    assert np.all((rates >= 0) & (rates <= 1))
    if rate != "adaptive":
        np.testing.assert_allclose(rates, 0.02 if rate == 0.02 else (np.arange(len(rates)) + 2.0) ** -0.7, rtol=1e-14)


def test_a_batch_of_all_rows_takes_the_full_batch_steps():
    """With s = n and rate one each iterate is a coordinate step; the estimate is their average."""
    X, y, prior = problem(7, 200, 6, 1)
    rows, start = training(X, y), prior.at_prior()
    q, mean = start, (0.0, 0.0)
    for k in range(5):
        _, *target = updated(rows, q, POLYA_GAMMA)
        q = natural_step(q, tuple(target), 1.0)
        mean = [before + 4.0 / (k + 4.0) * (now - before) for before, now in zip(mean, target, strict=True)]
    point, *_ = mini_batch_ascent(rows, start, POLYA_GAMMA, options(0.0, 5, batch_size=10**6, learning_rate=1.0))
    assert_near(np.tril(point.q.P), np.tril(mean[0]), 1e-10)
    assert_near(point.q.h, mean[1], 1e-10)


# Small formulas and rules that fits are made of, which no fit tells by itself.


@settings(max_examples=200)
@given(st.floats(0.0, 1e3) | st.floats(0.9, 1.1).map(lambda c: c * correction.SMALL_TILT) | st.floats(0.0, 1e-3))
def test_polya_gamma_variance_is_mpmaths(c):
    with mpmath.workdps(60):
        x = max(mpmath.mpf(c), mpmath.mpf(1e-15))
        expected = (mpmath.tanh(x / 2) / x - mpmath.sech(x / 2) ** 2 / 2) / (2 * x**2)
    assert correction.polya_gamma_variance(np.array([c]))[0] == pytest.approx(float(expected), rel=1e-11)


def test_slope_of_the_sites_precision():
    """Near zero, where it is a series, about the change to the closed form, and far: to 3e-7, where the series ends."""
    xi = np.concatenate([[1e-300, 1e-12, 1e-6], np.geomspace(1e-3, 0.06, 40), [0.0499999, 0.05, 0.3, 1, 7, 40, 900]])
    both = np.concatenate([xi, -xi, [0.0]])
    slope = -both * correction.polya_gamma_variance(np.abs(both))

    def precision(t):
        return mpmath.tanh(t / 2) / (2 * t)

    with mpmath.workdps(60):
        expected = np.array([float(mpmath.diff(precision, mpmath.mpf(x)) if x > 1e-5 else -x / 24) for x in xi])
    np.testing.assert_allclose(slope, np.concatenate([expected, -expected, [0.0]]), rtol=3e-7)


def is_accepted(gains, weight):
    """Whether a model that gains so much for held-out rows is kept, and the sentence that says so."""
    history = History()
    found = accept(Scores(gains, weight).above(Scores(np.zeros(len(gains)), weight), is_costlier=True), "it", history)
    return found, history.arrays()["decision"][0]


def test_weights_count_in_the_comparison():
    gains = np.array([0.3, 0.1, -0.2, 0.05])
    assert is_accepted(gains, np.array([1.0, 1.0, 1e-6, 1.0]))[0]
    assert not is_accepted(gains, np.array([1.0, 1.0, 3.0, 1.0]))[0]
    # More than a standard error, and more than what it costs.
    assert not is_accepted(np.full(4, 0.9 * LEAST_GAIN), np.ones(4))[0]
    better, words = is_accepted(np.array([0.0, 2.0]), np.ones(2))
    assert not better
    assert words.startswith("Not taken: it. The mean log probability of 2 held-out rows changes by +1 +- 1 nats; it ")


def test_any_rise_is_enough_where_another_test_speaks_for_a_model():
    simpler, weight = Scores(np.zeros(4), np.ones(4)), np.ones(4)
    gains = np.array([0.3, 0.1, -0.3, 0.05])
    assert Scores(gains, weight).above(simpler)[0]
    assert not Scores(gains, weight).above(simpler, 0.1)[0]
    assert not Scores(gains, weight).above(simpler, is_costlier=True)[0]
    is_kept, words, required = Scores(gains - 0.5, weight).above(simpler)
    assert not is_kept
    assert words.startswith("The mean log probability of 4 held-out rows changes by -0.46")
    assert required == "it must rise"


@pytest.mark.parametrize("n_latents", [1, 3])
def test_sites_of_copies_are_shares_of_their_sum(n_latents):
    rng = np.random.default_rng(0)
    weight = rng.gamma(2.0, size=40)
    found = Distinct.of(ArraySource(rng.integers(0, 3, (40, 2)).astype(float), np.ones(40), weight))
    r = found.source.n_rows
    assert r < 10
    sites = np.array([rng.gamma(2.0, size=(n_latents, r)), rng.normal(size=(n_latents, r))])
    parts = found.parts(sites)
    for whole, part, again in zip(sites, parts, found.sums(parts), strict=True):
        assert_allclose(again, whole, rtol=1e-13)
        assert_allclose(part / weight, (whole / found.source.weight)[:, found.place], rtol=1e-13)


def test_sums_are_restated_where_the_jitter_is_another():
    """z = T z' with both jitters: the quadratic form and the linear term are those of the same inducing values."""
    spec = KernelSpec(DotProduct() + RBF(), 2)
    before = SparsePrior.build(spec, X[:6])
    prior = SparsePrior.build(spec, np.vstack([X[:6], 50.0 + X[6:8]]))
    rng = np.random.default_rng(0)
    half, h, later = rng.normal(size=(6, 6)), rng.normal(size=6), rng.normal(size=8)
    P = half @ half.T
    wide_P, wide_h = projected_sums((np.tril(P), h), before, prior)
    z = before.Linv @ (prior.L @ later)[:6]
    assert np.linalg.norm(z - later[:6]) > 0.0
    assert later @ symmetric(wide_P) @ later == pytest.approx(z @ P @ z)
    assert later @ wide_h == pytest.approx(z @ h)
