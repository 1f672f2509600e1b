"""Guess and lapse rates: learned ones, and what else a model with rates does."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import assert_same_bits, clone_of, quietly, refuses, reloaded

from xgpc import GPClassifier, _sites
from xgpc.likelihoods import record_of

LEARN = {"likelihood": "psychometric", "guess_rate": "learn", "lapse_rate": "learn", "random_state": 0}


def observers(n=400, guess=0.25, lapse=0.05, seed=0):
    random = np.random.default_rng(seed)
    X = random.uniform(-3.0, 3.0, (n, 1))
    return X, (random.random(n) < guess + (1.0 - guess - lapse) * expit(3.0 * X[:, 0] - 1.0)).astype(int)


def best_without_rates(X, y):
    return max(quietly(GPClassifier(bound=bound, random_state=0), X, y).elbo_ for bound in ("auto", "additive-noise"))


@pytest.mark.parametrize("truth", [(0.25, 0.05), (0.1, 0.0), (0.02, 0.15)], ids=str)
def test_learned_rates_are_near_the_truth_and_raise_the_bound(truth):
    X, y = observers(400, *truth)
    model = quietly(GPClassifier(**LEARN), X, y)
    assert_allclose([model.guess_rate_, model.lapse_rate_], truth, atol=0.07)
    assert model.elbo_ > best_without_rates(X, y) + 0.5
    low, high = model.predict_proba([[-3.0], [3.0]])[:, 1]
    assert model.guess_rate_ < low < model.guess_rate_ + 0.1
    assert 1.0 - model.lapse_rate_ - 0.1 < high < 1.0 - model.lapse_rate_


def test_learned_rates_maximise_the_bound_and_given_ones_stay():
    X, y = observers()
    model = quietly(GPClassifier(ConstantKernel() * RBF(), **LEARN | {"lapse_rate": 0.04}, tol=1e-7), X, y)
    mean, variance = (moment[None] for moment in model.posterior_.marginals(X))
    site = record_of("psychometric", "exact").at(np.array([model.guess_rate_, model.lapse_rate_])).site()
    gradient = _sites.parameter_gradient(site, mean, variance, 2.0 * y - 1.0, np.empty(0))
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
    assert model.guess_rate_ == pytest.approx(0.2, abs=0.05)
    assert model.elbo_ > best_without_rates(X, y) + 5.0
    assert np.mean((model.predict_latent(X)[0] > 0.0) == true) > 0.95


def test_saved_copied_and_warm_models_predict_alike(tmp_path):
    X, y = observers(120)
    model = quietly(GPClassifier(**LEARN, n_inducing=10, warm_start=True), X, y)
    for other in (reloaded(model, tmp_path), clone_of(model)):
        assert_same_bits(model, other, X, ("guess_rate_", "lapse_rate_"))
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


NOT_ALLOWED = {
    r"guess_rate=0.1, lapse_rate=0.0 are for likelihood='psychometric'": {"likelihood": "logit", "guess_rate": 0.1},
    "are for likelihood='psychometric'; got 'step'. Leave both": {"likelihood": "step", "lapse_rate": "learn"},
    "sum of guess_rate and lapse_rate must be below 1; got guess_rate=0.6": {"guess_rate": 0.6, "lapse_rate": 0.4},
    "alone learns rates; got guess_rate='learn'.* and optimizer=None": {"guess_rate": "learn", "optimizer": None},
    "alone learns rates; got .* and optimizer='adam'": {"lapse_rate": "learn", "optimizer": "adam"},
    "optimizer='alternate' is not for the bound 'exact'": {"guess_rate": 0.1, "optimizer": "alternate"},
    "n_neighbors=5 is for likelihood": {"guess_rate": 0.1, "n_neighbors": 5},
    "wrong labels are part of every prediction": {"guess_rate": 0.1, "mean": "base-rate"},
}


@pytest.mark.parametrize("message", NOT_ALLOWED)
def test_what_rates_do_not_allow_is_an_error(message):
    model = GPClassifier(**{"likelihood": "psychometric", "n_inducing": 5} | NOT_ALLOWED[message])
    refuses(message, model.fit, *observers(40))
