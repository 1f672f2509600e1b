"""The sampler's chains against integration over a grid, and what is made of their draws."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from polyagamma import random_polyagamma
from scipy.special import expit, log_expit, logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from support.fits import failed_checks, refuses
from support.gibbs import DATA, GRID, NEW, SMOOTH, TruePosterior, short_chains, small
from support.internals import effective_sample_size, split_r_hat
from support.reference import moons

from xgpc.gibbs import GibbsClassifier

X, Y = DATA
THREE = np.array([[-1.0, 0.0], [0.3, 0.5], [0.8, -0.4]])
AGAIN = np.array([[0.5, 0.5], [0.5, 0.5], [-0.6, 0.5]])
WIDE = ConstantKernel(6.0) * RBF(1.0)
WIDE_NOISY = WIDE + WhiteKernel(1.5)
PROBLEMS = {
    "three rows": (WIDE, THREE, (1.0, -1.0, 1.0), None),
    "a repeated row": (WIDE, AGAIN, (1.0, -1.0, 1.0), None),
    "noise": (WIDE_NOISY, THREE, (1.0, 1.0, -1.0), None),
    "noise at a repeated row": (WIDE_NOISY, AGAIN, (1.0, -1.0, -1.0), None),
    "two inducing points": (WIDE, THREE, (1.0, -1.0, 1.0), THREE[:2] + 0.3),
    "an inducing point and noise": (WIDE_NOISY, THREE, (1.0, 1.0, -1.0), THREE[1:2]),
    "four inducing points": (WIDE, AGAIN[1:], (1.0, -1.0), np.vstack([THREE, AGAIN[:1]])),
}


# With proposals every problem; without, when a sweep is all there is, those that differ in what it draws.
@pytest.mark.parametrize(
    ("name", "n_proposals"),
    [(name, 30) for name in PROBLEMS]
    + [(name, 0) for name in ("three rows", "noise at a repeated row", "an inducing point and noise")],
)
def test_the_chain_is_stationary_at_the_true_posterior(name, n_proposals):
    """At training rows and new ones, to 3.9 standard errors, which are as many units as five of 20 000 draws."""
    kernel, X, y, Z = PROBLEMS[name]
    new = np.vstack([X, NEW[:2]])
    sampler = GibbsClassifier(
        kernel, inducing_points="all" if Z is None else Z, n_samples=12_000 if n_proposals else 1200, thin=1,
        n_proposals=n_proposals, random_state=1,
    ).fit(X, y)  # fmt: skip
    assert sampler.ess_ > 1500
    true = TruePosterior(kernel, WIDE, X, np.array(y), np.unique(X, axis=0) if Z is None else Z)
    mean, variance, positive = true.at(new)
    draws = sampler.sample_latent(new)

    def within(actual, expected, quantity):
        error = quantity.std(axis=(0, 1)) / np.sqrt(effective_sample_size(quantity))
        assert np.all(np.abs(actual - expected) < 3.9 * error)

    actual_mean, actual_variance = sampler.predict_latent(new)
    within(actual_mean, mean, draws)
    within(actual_variance, variance, (draws - mean) ** 2)
    within(sampler.predict_proba(new)[:, 1], positive, expit(draws))
    assert np.isnan(sampler.acceptance_rate_) if n_proposals == 0 else 0.2 < sampler.acceptance_rate_ < 1.0


@pytest.mark.parametrize("Z", ["all", GRID], ids=["all", "inducing points"])
@short_chains
def test_results_depend_on_random_state_alone(Z):
    options = {"inducing_points": Z, "n_chains": 3}
    runs = (1, 0), (2, 0), (3, np.random.RandomState(0)), (2, 1)
    one, *same, other = (small(n_jobs=n_jobs, random_state=seed, **options).fit(X, Y) for n_jobs, seed in runs)
    for each in same:
        assert np.array_equal(each.predict_latent(GRID), one.predict_latent(GRID))
        for name in ("samples_", "r_hat_", "ess_", "acceptance_rate_"):
            assert np.array_equal(getattr(each, name), getattr(one, name))
    chains = [*one.samples_, *other.samples_]
    assert len({chain.tobytes() for chain in chains}) == len(chains)


@pytest.mark.parametrize(("n_proposals", "thin", "n_samples"), [(0, 4, 6), (3, 7, 5), (50, 3, 9), (3, 1, 8), (4, 9, 5)])
@short_chains
def test_thinning_keeps_every_so_many_of_the_states_and_all_are_averaged(n_proposals, thin, n_samples):
    options = {"n_proposals": n_proposals, "n_chains": 2}
    thinned = small(thin=thin, n_samples=n_samples, **options).fit(X, Y)
    every = small(thin=1, n_samples=thin * n_samples, **options).fit(X, Y)
    assert thinned.samples_.shape == (2, n_samples, len(X))
    assert np.array_equal(thinned.samples_, every.samples_[:, thin - 1 :: thin])
    assert np.array_equal(thinned.predict_latent(GRID), every.predict_latent(GRID))
    _, residual = every._whitening.rows(GRID)
    states = every.sample_latent(GRID).reshape(-1, len(GRID))
    mean, variance = thinned.predict_latent(GRID)
    assert_allclose(mean, states.mean(axis=0), rtol=0, atol=1e-10)
    assert_allclose(variance, residual + states.var(axis=0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("Z", ["all", GRID], ids=["all", "inducing points"])
def test_latent_draws_are_the_whitened_ones_and_agree_with_the_predictions(Z):
    new = np.vstack([NEW, X[:3]])
    model = GibbsClassifier(SMOOTH, inducing_points=Z, n_samples=1000, random_state=3).fit(X, Y)
    Z = model.inducing_points_
    draws = model.sample_latent(new)
    # f = k(x, Z) K_mm^-1 u, u = L z, with a root L of K_mm, which is K of a full process.
    if isinstance(model.get_params()["inducing_points"], str):
        assert np.array_equal(Z, np.unique(X, axis=0))
        root, _ = model._whitening.rows(Z)
        assert_allclose(root @ root.T, SMOOTH(Z), rtol=0, atol=1e-12)
    else:
        root = np.linalg.cholesky(SMOOTH(Z) + 1e-6 * 3.0 * np.eye(len(Z)))
    u = model.samples_ @ root.T
    weights = np.linalg.solve(root @ root.T, SMOOTH(Z, new))
    assert draws.shape == (4, 1000, len(new))
    assert_allclose(draws, u @ weights, rtol=0, atol=1e-7 * np.abs(weights).max())
    mean, variance = model.predict_latent(new)
    residual = SMOOTH.diag(new) - np.sum(weights * SMOOTH(Z, new), axis=0)
    least = effective_sample_size(draws).min()
    sd = draws.reshape(-1, len(new)).std(axis=0)
    assert np.all(np.abs(draws.mean(axis=(0, 1)) - mean) < 5 * sd / np.sqrt(least))
    fourth = np.mean((draws - mean) ** 4, axis=(0, 1)) - sd**4
    assert np.all(np.abs(sd**2 + residual - variance) < 5 * np.sqrt(fourth / least))
    assert np.all(variance >= residual)

    f = draws[..., None] + np.sqrt(np.maximum(residual, 0.0))[:, None] * np.linspace(-8.0, 8.0, 81)
    weight = np.exp(-0.5 * np.linspace(-8.0, 8.0, 81) ** 2)
    positive = np.mean(expit(f) @ (weight / weight.sum()), axis=(0, 1))
    assert_allclose(model.predict_proba(new), np.column_stack([1 - positive, positive]), rtol=0, atol=1e-7)
    assert_allclose(model.predict_log_proba(new), np.log(model.predict_proba(new)), rtol=0, atol=1e-13)
    assert np.array_equal(model.predict(new), model.classes_[np.argmax(model.predict_proba(new), axis=1)])


@short_chains
def test_diagnostics_are_those_of_the_log_likelihood_and_the_latent_values():
    model = small(n_samples=200, thin=2).fit(X, Y)
    f = model.sample_latent(X)
    watched = np.concatenate([log_expit(np.where(Y == 1, 1.0, -1.0) * f).sum(axis=2, keepdims=True), f], axis=2)
    assert model.r_hat_ == pytest.approx(split_r_hat(watched).max(), rel=1e-9)
    assert model.ess_ == pytest.approx(effective_sample_size(watched).min(), rel=1e-6)


@short_chains
def test_acceptance_rate_is_the_share_of_proposals_that_move_the_chain():
    """Of six states the first is a sweep's. Sweeps before the warm-up's end do not count."""
    model = small(thin=1, n_proposals=5, n_samples=120, n_warmup=7).fit(X, Y)
    states = np.concatenate([model.samples_, model.samples_[:, :1]], axis=1)
    moves = np.any(np.diff(states, axis=1) != 0.0, axis=2).reshape(2, 20, 6)
    assert model.acceptance_rate_ == pytest.approx(moves[:, :, :5].mean(), rel=1e-12)
    assert 0.1 < model.acceptance_rate_ < 1.0
    assert np.all(moves[:, :-1, 5])


def exact_residuals(X, new):
    """Variances of 100 (1 + x . x') + exp(-|x - x'|^2 / 2) at new rows given those at X, in fifty digits."""
    with mpmath.workdps(50):
        X, new = ([[mpmath.mpf(float(value)) for value in row] for row in rows] for rows in (X, new))

        def k(a, b):
            square = sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
            return 100 * (1 + sum(p * q for p, q in zip(a, b, strict=True))) + mpmath.exp(-square / 2)

        K = mpmath.matrix([[k(a, b) for b in X] for a in X])
        crosses = [mpmath.matrix([k(row, b) for b in X]) for row in new]
        return np.array(
            [float(k(row, row) - (c.T * mpmath.lu_solve(K, c))[0]) for row, c in zip(new, crosses, strict=True)]
        )


@pytest.mark.parametrize("smooth", [False, True], ids=["closed form", "quadrature"])
@short_chains
def test_log_probabilities_are_accurate_in_the_tails(smooth):
    """The logarithm of the mean over draws of the logistic function, or of its mean given z by quadrature."""
    random = np.random.default_rng(0)
    y = np.arange(20) % 2
    X = random.normal(size=(20, 2)) + 2.0 * (2 * y - 1)[:, None]
    kernel = 100.0 * DotProduct(1.0) + RBF(1.0) if smooth else 100.0 * DotProduct(1.0)
    model = small(kernel, n_samples=100).fit(X, y)
    new = np.outer([-18.0, -1.0, 1.0, 18.0], [1.0, 1.0])
    draws = model.sample_latent(new).reshape(-1, 4).T
    # Of a linear function nothing is left.
    residual = exact_residuals(X, new) if smooth else np.zeros(4)
    assert_allclose(model._whitening.rows(new)[1], residual, rtol=1e-7, atol=0)
    t = np.linspace(-14.0, 14.0, 561)
    log_weight = -0.5 * t**2 - logsumexp(-0.5 * t**2)
    f = draws[..., None] + np.sqrt(residual)[:, None, None] * t
    expected = np.column_stack([logsumexp(log_expit(s * f) + log_weight, axis=(1, 2)) for s in (-1.0, 1.0)])
    expected -= np.log(draws.shape[1])
    actual = model.predict_log_proba(new)
    assert_allclose(actual, expected, rtol=1e-7, atol=1e-7)
    assert -85.0 < expected[0, 1] < -55.0
    assert -85.0 < expected[3, 0] < -55.0
    assert_allclose(model.predict_proba(new).sum(axis=1), 1.0, rtol=0, atol=1e-14)
    assert_allclose(logsumexp(actual, axis=1), 0.0, rtol=0, atol=1e-14)
    # Much farther they are finite still.
    farther = model.predict_log_proba(1e4 * new)
    assert np.all(np.isfinite(farther))
    assert farther.min() < -30.0


shapes = {"seed": st.integers(0, 2**20), "c": st.integers(1, 5), "s": st.integers(4, 61)}


def autoregression(rho, shape, random):
    """Stationary chains (c, s, ...) of variance one, each value rho times the one before plus noise."""
    x = random.normal(size=shape)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1.0 - rho**2) * x[:, t]
    return x


def by_definition(chains):
    """R-hat and the effective sample size of chains (c, s).

    Bayesian data analysis, third edition, equations 11.1 to 11.4; Vehtari et al. 2021, equations (10) to (13).
    """
    n = chains.shape[1] // 2
    halves = np.concatenate([chains[:, :n], chains[:, chains.shape[1] - n :]])
    m, variances = len(halves), halves.var(axis=1, ddof=1)
    W = variances.mean()
    total = (n - 1) / n * W + halves.mean(axis=1).var(ddof=1)
    centred = halves - halves.mean(axis=1, keepdims=True)
    rho = [np.sum(centred[:, : n - t] * centred[:, t:], axis=1) / np.sum(centred**2, axis=1) for t in range(n)]
    correlations = 1.0 - (W - rho @ variances / m) / total
    correlations[0] = 1.0
    pairs = correlations[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = itertools.takewhile(lambda pair: pair > 0.0, np.minimum.accumulate(pairs))
    return np.sqrt(total / W), m * n / max(2.0 * sum(positive) - 1.0, 1.0 / np.log10(m * n))


@settings(max_examples=40)
@given(rho=st.floats(-0.9, 0.97), shift=st.sampled_from([0.0, 0.5, 10.0]), **shapes)
def test_diagnostics_equal_their_definitions(seed, c, s, rho, shift):
    chains = autoregression(rho, (c, s), np.random.default_rng(seed)) + shift * np.arange(c)[:, None]
    r_hat, size = by_definition(chains)
    assert split_r_hat(chains) == pytest.approx(r_hat, rel=1e-10)
    assert effective_sample_size(chains) == pytest.approx(size, rel=1e-8)


@settings(max_examples=40)
@given(**shapes)
def test_diagnostics_take_trailing_axes_as_quantities_of_their_own(seed, c, s):
    random = np.random.default_rng(seed)
    chains = autoregression(0.5, (c, s, 2, 3), random) * random.uniform(0.1, 10.0, (2, 3))
    chains[:, :, 1, 1] = 4.0
    for diagnostic in (split_r_hat, effective_sample_size):
        each = [[diagnostic(chains[:, :, i, j]) for j in range(3)] for i in range(2)]
        assert diagnostic(chains).shape == (2, 3)
        assert_allclose(diagnostic(chains), each, rtol=1e-10)
        assert np.array_equal(np.isnan(diagnostic(chains)), [[False] * 3, [False, True, False]])
    assert effective_sample_size(chains[..., :0, :]).shape == (0, 3)


def test_scikit_learns_own_checks():
    assert failed_checks(small(RBF(1.0), n_samples=4, thin=1, n_proposals=2)) == set()


FAULTS = {
    "three classes": ({}, {"y": np.arange(40) % 3}, "two classes|binary classification"),
    "one class": ({}, {"y": np.ones(40)}, "rows of two classes"),
    "NaN": ({}, {"X": np.where(np.arange(80).reshape(40, 2) == 7, np.nan, X)}, "NaN"),
    "lengths": ({}, {"y": Y[:-1]}, "inconsistent"),
    "k-means": ({"inducing_points": "kmeans"}, {}, "'all' or a numeric array \\(m, d\\); got 'kmeans'"),
    "shape": ({"inducing_points": np.ones((3, 5))}, {}, "inducing_points"),
    "kernel": ({"kernel": "rbf"}, {}, "kernel must be a scikit-learn kernel"),
}
INTEGER = "(an integer of at least 4|an integer that is not negative|a positive integer)"
FAULTS |= {
    f"{name}={value}": ({name: value}, {}, f"{name} must be {INTEGER}")
    for name, least in (("n_samples", 4), ("thin", 1), ("n_warmup", 0), ("n_chains", 1), ("n_proposals", 0))
    for value in (least - 1, float(least), True, None, "2")
}


@pytest.mark.parametrize("fault", FAULTS)
@short_chains
def test_faults_are_named_and_leave_the_estimator_as_it_was(fault):
    parameters, data, message = FAULTS[fault]
    model = small().fit(X[:, :1], Y).set_params(**parameters)
    refuses(message, model.fit, **{"X": X, "y": Y} | data)


def test_chains_that_disagree_warn_where_fit_was_called(tuned):
    tuned(largest_r_hat=np.inf)
    agreeing = small().fit(X, Y)
    tuned(largest_r_hat=0.5)
    message = rf"R-hat is {agreeing.r_hat_:.4g}, above 0\.5: the chains disagree.* n_samples=20 or thin=10; .* n_warmup"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        model = small().fit(X, Y)
    assert [warning.filename for warning in caught] == [__file__]
    assert np.array_equal(model.samples_, agreeing.samples_)


@short_chains
def test_an_interrupt_ends_all_chains_and_leaves_the_estimator_as_it_was(monkeypatch):
    """After one chain fails, the others stop at their next sweep, of the million that they have before them."""
    X, y = moons(30)
    model = small(RBF(1.0), thin=1, n_proposals=0).fit(X[:, :1], y)
    sweeps, honest = [], random_polyagamma

    def draw(*given, **named):
        sweeps.append(None)
        if len(sweeps) == 20:
            raise KeyboardInterrupt
        return honest(*given, **named)

    monkeypatch.setattr("polyagamma.random_polyagamma", draw)
    model.set_params(n_samples=1_000_000, n_jobs=2)
    refuses(None, model.fit, X, y, error=KeyboardInterrupt)
    assert len(sweeps) < 1000
