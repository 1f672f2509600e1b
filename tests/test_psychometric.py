"""Guess and lapse rates: sites against integrals, learned rates, and what else a model with rates does."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.dense import dense_optimum
from support.fits import quietly
from support.internals import KernelSpec, SparsePrior
from support.sites import evaluate, evaluate_one, expectation
from support.training import check_parameter_gradient, training

from xgpc import GPClassifier, _sites
from xgpc.likelihoods import record_of

RECORD = record_of("psychometric", "exact")
RATES = [(0.5, 0.02), (0.1, 0.0), (0.0, 0.3), (1e-4, 0.9), (0.0, 0.0)]
every_rates = pytest.mark.parametrize("rates", RATES, ids=str)
LEARN = {"likelihood": "psychometric", "guess_rate": "learn", "lapse_rate": "learn", "random_state": 0}


def site_of(rates):
    return RECORD.at(rates).site()


def log_p(f, y, guess, lapse):
    """log p(y | f) to round-off in either tail."""
    least, most = (guess, lapse) if y > 0 else (lapse, guess)
    with np.errstate(divide="ignore"):
        return logsumexp([np.log(least) + np.zeros_like(f), np.log1p(-most) + y * f], axis=0) - np.logaddexp(0.0, y * f)


def marginals(n=60):
    random = np.random.default_rng(3)
    m, v = random.normal(scale=4.0, size=n), np.exp(random.uniform(np.log(0.01), np.log(400.0), n))
    return m, v, random.choice([-1.0, 1.0], n)


def observers(n=400, guess=0.25, lapse=0.05, seed=0):
    """Answers of an observer to stimuli of one feature."""
    random = np.random.default_rng(seed)
    X = random.uniform(-3.0, 3.0, (n, 1))
    return X, (random.random(n) < guess + (1.0 - guess - lapse) * expit(3.0 * X[:, 0] - 1.0)).astype(int)


# Sites.


@every_rates
def test_sites_are_expectations_and_their_derivatives(rates):
    m, v, y = marginals()
    ell, precision, linear = evaluate_one(site_of(rates), m, v, y)
    expected = [expectation(lambda f, y=y[i]: log_p(f, y, *rates), m[i], v[i]) for i in range(len(m))]
    assert_allclose(ell, expected, rtol=0.0, atol=4e-8)
    step = 1e-3

    def slope(m_step, v_step):
        there = (evaluate_one(site_of(rates), m + k * m_step, v + k * v_step, y)[0] for k in (-2, -1, 1, 2))
        return np.array([1.0, -8.0, 8.0, -1.0]) @ list(there) / (12.0 * step)

    assert_allclose(linear - precision * m, slope(step, 0.0), atol=1e-9)
    assert_allclose(precision * v, -2.0 * slope(0.0, step * v), atol=1e-8)


@every_rates
def test_the_other_class_has_the_rates_the_other_way_round(rates):
    m, v, y = marginals()
    ell, precision, linear = evaluate_one(site_of(rates), m, v, y)
    mirrored = evaluate_one(site_of(rates[::-1]), -m, v, -y)
    assert_array_equal(mirrored, [ell, precision, -linear])


def test_without_rates_the_site_is_that_of_the_logit():
    m, v, y = marginals()
    logit = evaluate_one(record_of("logit", "exact").site(), m, v, y)
    assert_allclose(evaluate_one(site_of((0.0, 0.0)), m, v, y), logit, rtol=1e-15)


@every_rates
def test_sites_are_finite_in_both_tails(rates):
    m = np.array([-1e8, -1e3, 0.0, 1e3, 1e8] * 2)
    for v in (0.0, 1e-300, 1.0, 1e8):
        found = evaluate_one(site_of(rates), m, v, np.repeat([-1.0, 1.0], 5))
        assert np.all(np.isfinite(found))


@every_rates
def test_the_gradient_by_rates_is_that_of_differences(rates):
    m, v, y = marginals()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(m))
    found = _sites.parameter_gradient(site_of(rates), m[None], v[None], y, weight)
    for j, step in enumerate(1e-4 * np.array(rates)):
        ends = (np.array(rates) + sign * step * np.eye(2)[j] for sign in (1.0, -1.0))
        high, low = (np.sum(evaluate(site_of(end), m[None], v[None], y, weight)[0]) for end in ends)
        assert found[j] == pytest.approx((high - low) / (2.0 * step) if step else 0.0, rel=1e-5, abs=1e-5)


# Predictions.


@every_rates
def test_probabilities_and_their_slopes(rates):
    m, v, _ = marginals()
    found = np.exp(RECORD.at(np.array(rates)).log_probabilities(m, v))
    expected = [expectation(lambda f: np.exp(log_p(f, 1.0, *rates)), *point) for point in zip(m, v, strict=True)]
    assert_allclose(found[:, 1], expected, rtol=0.0, atol=1e-8)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)

    def p(m, v):
        return np.exp(RECORD.at(np.array(rates)).log_probabilities(m, v))

    by_mean, by_variance = RECORD.at(np.array(rates)).probability_slopes(m, v)
    assert_allclose(by_mean[..., 0], (p(m + 1e-4, v) - p(m - 1e-4, v)) / 2e-4, atol=1e-6)
    assert_allclose(by_variance[..., 0], (p(m, 1.001 * v) - p(m, 0.999 * v)) / (0.002 * v)[:, None], atol=1e-5)


# Fits.


def test_a_full_process_is_the_optimum_of_the_dense_bound():
    X, y = observers(9)
    kernel, rates = ConstantKernel(2.0) * RBF(1.3), (0.3, 0.1)
    same = {"likelihood": "psychometric", "guess_rate": 0.3, "lapse_rate": 0.1, "optimizer": None, "tol": 1e-10}
    model = quietly(GPClassifier(kernel, inducing_points="all", feature_transform=None, **same), X, y)

    def expected(mean, root):
        return np.sum(evaluate_one(site_of(rates), mean, np.sum(root**2, axis=1), 2.0 * y - 1.0)[0])

    elbo, mean = dense_optimum(np.linalg.cholesky(kernel(X)), expected)
    assert_allclose(model.elbo_, elbo, atol=2e-5)
    assert_allclose(model.predict_latent(X)[0], mean, atol=3e-3)
    assert (model.guess_rate_, model.lapse_rate_) == rates


def test_rates_of_zero_are_the_logistic_likelihood():
    X, y = observers(80)
    same = {"n_inducing": 15, "optimizer": None, "tol": 1e-10, "random_state": 0}
    plain, other = (quietly(GPClassifier(RBF(), likelihood=name, **same), X, y) for name in ("logit", "psychometric"))
    assert other.elbo_ == pytest.approx(plain.elbo_, rel=1e-7)
    assert_allclose(other.predict_proba(X), plain.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("learned", [(True, True), (True, False), (False, True)])
def test_the_gradient_by_coordinates_of_rates_is_that_of_differences(learned):
    X, y = observers(60)
    rows, site = training(X, 2.0 * y - 1.0), site_of((0.2, 0.1))
    prior = SparsePrior.build(KernelSpec(ConstantKernel(2.0) * RBF(1.0), 1), X[:12])
    far, stays = check_parameter_gradient(rows, prior, site, learned_rates=learned), ~np.array(learned)
    assert len(far) == sum(learned)
    for moved in far:
        assert_array_equal(moved[stays], site.parameter[stays])


@pytest.mark.parametrize("truth", [(0.25, 0.05), (0.1, 0.0), (0.02, 0.15)], ids=str)
def test_learned_rates_are_near_the_truth_and_raise_the_bound(truth):
    X, y = observers(400, *truth)
    model = quietly(GPClassifier(**LEARN), X, y)
    assert_allclose([model.guess_rate_, model.lapse_rate_], truth, atol=0.07)
    plain = quietly(GPClassifier(random_state=0), X, y)
    noisy = quietly(GPClassifier(bound="additive-noise", random_state=0), X, y)
    assert model.elbo_ > max(plain.elbo_, noisy.elbo_) + 0.5
    low, high = model.predict_proba([[-3.0], [3.0]])[:, 1]
    assert model.guess_rate_ < low < model.guess_rate_ + 0.1
    assert 1.0 - model.lapse_rate_ - 0.1 < high < 1.0 - model.lapse_rate_


def test_learned_rates_maximise_the_bound_and_given_ones_stay():
    X, y = observers()
    model = quietly(GPClassifier(ConstantKernel() * RBF(), **LEARN | {"lapse_rate": 0.04}, tol=1e-7), X, y)
    mean, variance = (one[None] for one in model.posterior_.marginals(X))
    rates = model.guess_rate_, model.lapse_rate_
    gradient = _sites.parameter_gradient(site_of(rates), mean, variance, 2.0 * y - 1.0, np.empty(0))
    assert abs(gradient[0]) < 0.2
    assert model.lapse_rate_ == 0.04
    assert abs(gradient[1]) > 1.0


def test_wrong_labels_of_one_class_bend_nothing():
    """A fifth of the labels 0 became 1: an even label noise cannot say so."""
    random = np.random.default_rng(0)
    X = random.normal(size=(600, 2))
    true = (X[:, 0] + X[:, 1] > 0.0).astype(int)
    y = np.where(random.random(600) < 0.2, 1, true)
    model = quietly(GPClassifier(**LEARN | {"lapse_rate": 0.0}), X, y)
    plain, even = (quietly(GPClassifier(bound=bound, random_state=0), X, y) for bound in ("auto", "additive-noise"))
    assert model.guess_rate_ == pytest.approx(0.2, abs=0.05)
    assert model.elbo_ > max(plain.elbo_, even.elbo_) + 5.0
    assert np.mean((model.predict_latent(X)[0] > 0.0) == true) > 0.95


# Models.


def test_saved_copied_and_warm_models_predict_alike(tmp_path):
    X, y = observers(120)
    model = quietly(GPClassifier(**LEARN, n_inducing=10, warm_start=True), X, y)
    model.save(tmp_path / "model.npz")
    for other in (GPClassifier.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        assert_array_equal(other.predict_proba(X), model.predict_proba(X))
        assert (other.guess_rate_, other.lapse_rate_) == (model.guess_rate_, model.lapse_rate_)
        assert other.summary() == model.summary()
    assert f"guess rate {model.guess_rate_:.3g} lapse rate {model.lapse_rate_:.3g}" in " ".join(model.summary().split())
    before = model.elbo_
    quietly(model, X, y)
    assert model.elbo_ > before - 0.5
    # The start need not be allowed by what is given now.
    quietly(model.set_params(lapse_rate=0.0), X, y)
    assert model.lapse_rate_ == 0.0
    quietly(model.set_params(lapse_rate=0.9, guess_rate="learn", max_iter=3), X, y)
    assert model.guess_rate_ + model.lapse_rate_ < 1.0
    # A model of another likelihood has no rates.
    quietly(model.set_params(likelihood="step", guess_rate=0.0, lapse_rate=0.0), X, y)
    assert not hasattr(model, "guess_rate_")
    quietly(model.set_params(likelihood="psychometric"), X, y)
    assert (model.guess_rate_, model.lapse_rate_) == (0.0, 0.0)


def test_batches_continue_with_the_learned_rates():
    X, y = observers(300)
    model = quietly(GPClassifier(**LEARN, n_inducing=10), X, y)
    rates = model.guess_rate_, model.lapse_rate_
    model.partial_fit(*observers(50, seed=1))
    assert (model.guess_rate_, model.lapse_rate_) == rates
    assert model.n_samples_seen_ == 350


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"likelihood": "logit", "guess_rate": 0.1},
            r"guess_rate=0.1, lapse_rate=0.0 are for likelihood='psychometric'",
        ),
        ({"likelihood": "step", "lapse_rate": "learn"}, "are for likelihood='psychometric'; got 'step'. Leave both"),
        (
            {"guess_rate": 0.6, "lapse_rate": 0.4},
            "sum of guess_rate and lapse_rate must be below 1; got guess_rate=0.6",
        ),
        ({"guess_rate": "learn", "optimizer": None}, "alone learns rates; got guess_rate='learn'.* and optimizer=None"),
        ({"lapse_rate": "learn", "optimizer": "adam"}, "alone learns rates; got .* and optimizer='adam'"),
        ({"guess_rate": 0.1, "optimizer": "alternate"}, "optimizer='alternate' is not for the bound 'exact'"),
        ({"guess_rate": 0.1, "n_neighbors": 5}, "n_neighbors=5 is for likelihood"),
        ({"guess_rate": 0.1, "mean": "base-rate"}, "wrong labels are part of every prediction"),
    ],
)
def test_what_rates_do_not_allow_is_an_error(params, message):
    X, y = observers(40)
    model = GPClassifier(**{"likelihood": "psychometric", "n_inducing": 5, **params})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "posterior_")
