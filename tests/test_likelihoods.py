"""Every likelihood, bound and system of the papers through the estimator; the label noise."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.fits import assert_same_bits, assert_weights_are_copies, fit, losses, quietly, reloaded
from support.latents import CASES, NOISY, NOISY_CASES, SEVERAL, cases
from support.reference import standardised

from xgpc import BayesianLinearClassifier, GPClassifier, systems
from xgpc.likelihoods import LIKELIHOODS, MULTI_CLASS, expected_log_likelihood, record_of

SEVERAL_NAMES = ["GPC-I-mc", "GPC-II-mc", "GPC-III-mc", "GPCsm", "GPCaug-mc"]
TWO = [name for name in LIKELIHOODS if name not in MULTI_CLASS]
CANCER, IRIS, WINE = standardised(load_breast_cancer, n=200), standardised(load_iris), standardised(load_wine)
learned = partial(fit, n_inducing=10, max_iter=15)


def data_of(likelihood):
    return CANCER if likelihood in TWO else IRIS


def fixed(likelihood, bound, share="kernel", **params):
    X, _ = data_of(likelihood)
    params = {"inducing_points": X[:: len(X) // 12], "tol": 1e-6, "max_iter": 3000, "random_state": 0, **params}
    kernel = ConstantKernel(3.0) * RBF(np.sqrt(X.shape[1])) + WhiteKernel(0.05)
    return GPClassifier(kernel, likelihood=likelihood, bound=bound, share=share, optimizer=None, **params)


@pytest.mark.parametrize(
    ("name", "share"), [(name, "kernel") for name in systems] + [(name, "none") for name in SEVERAL_NAMES]
)
def test_systems_of_the_papers(name, share):
    params = systems[name]
    several = name in SEVERAL_NAMES
    X, y = CANCER if not several else IRIS if share == "none" else WINE
    if name == "linear-BSVM":
        model = quietly(BayesianLinearClassifier(random_state=0, **params), X, y)
    else:
        model = learned(X, y, **params | {"n_inducing": 10, "max_iter": 2, "share": share})
    assert model.score(X, y) > 0.93
    assert model.classes_.tolist() == list(range(3 if several else 2))
    proba, decision = model.predict_proba(X), model.decision_function(X)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=0.0, atol=1e-12)
    assert np.array_equal(model.predict(X), np.argmax(proba, axis=1))
    assert decision.shape == ((len(X), 3) if several else (len(X),))
    assert np.array_equal(model.predict(X), np.argmax(decision, axis=1) if several else decision > 0.0)
    assert hasattr(model, "label_noise_") == ((params["likelihood"], params["bound"]) in NOISY)
    assert np.isfinite(model.elbo_)
    assert model.n_iter_ >= 1
    assert isinstance(getattr(model, "kernel_", None), list) == (several and share == "none")


@cases(CASES)
def test_saved_models_say_the_same(likelihood, bound, share, tmp_path):
    X, y = data_of(likelihood)
    labels = np.array(["first", "second", "third"])[y]
    model = quietly(fixed(likelihood, bound, share, max_iter=5), X, labels)
    other = reloaded(model, tmp_path)
    assert_same_bits(model, other, X, ("inducing_points_", "kernel_", "label_noise_", "elbo_", "share"))
    assert np.array_equal(other.predict_latent(X, return_cov=True)[1], model.predict_latent(X, return_cov=True)[1])
    assert other.elbo(X, labels) == model.elbo(X, labels)
    # Labels are names: numbers give the same bits.
    assert np.array_equal(quietly(clone(model), X, y).predict_proba(X), model.predict_proba(X))


@cases(CASES)
def test_integer_weights_are_repeated_rows(likelihood, bound, share):
    X, y = data_of(likelihood)
    X, y = X[::2], y[::2]
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    model = fixed(likelihood, bound, share, tol=1e-9)
    weighted, repeated = assert_weights_are_copies(model, X, y, weight, 1e-6, 1e-4)
    if hasattr(weighted, "label_noise_"):
        assert weighted.label_noise_ == pytest.approx(repeated.label_noise_, rel=1e-3)


@pytest.mark.parametrize("share", ["kernel", "none"])
@pytest.mark.parametrize(("likelihood", "bound"), SEVERAL)
def test_a_class_without_weight_stays_a_class(likelihood, bound, share):
    """It is less probable where there are rows than for a guess, and where its rows are does not matter."""
    X, y = IRIS
    present = y != 1
    models = [
        quietly(fixed(likelihood, bound, share), np.where(present[:, None], X, rows), y, sample_weight=1.0 * present)
        for rows in (X, 7.0 - X)
    ]
    proba = models[0].predict_proba(X)
    assert models[0].classes_.tolist() == [0, 1, 2]
    assert np.array_equal(models[1].predict_proba(X), proba)
    assert proba[present, 1].max() < 1.0 / 3.0
    assert np.array_equal(models[0].predict(X)[present], y[present])


@pytest.mark.parametrize(("likelihood", "bound"), SEVERAL)
def test_permuted_classes_permute_the_probabilities(likelihood, bound):
    """To 1e-3, for the fixed points of the logistic softmax's link."""
    X, y = IRIS
    names = np.array([1, 2, 0])
    model, other = (quietly(fixed(likelihood, bound, tol=1e-12), X, labels) for labels in (y, names[y]))
    assert other.elbo_ == pytest.approx(model.elbo_, rel=1e-7)
    assert_allclose(np.array(other.predict_latent(X))[..., names], model.predict_latent(X), atol=1e-4)
    assert_allclose(other.predict_proba(X)[:, names], model.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("likelihood", [name for name in TWO if name != "logit"])
def test_likelihoods_of_two_classes_refuse_three(likelihood):
    with pytest.raises(ValueError, match=rf"likelihood='{likelihood}' is for two classes; for 3 take one of \['softm"):
        GPClassifier(likelihood=likelihood).fit(*IRIS)


# Each of these optimizers with every site, and with every way of sharing.
OPTIMIZED = [
    (*site, share, optimizer)
    for i, site in enumerate(SEVERAL)
    for j, share in enumerate(("kernel", "none"))
    for optimizer in (None, ("profile", "adam")[(i + j) % 2])
]


@pytest.mark.parametrize(("likelihood", "bound", "share", "optimizer"), OPTIMIZED)
def test_mini_batches_of_several_classes(likelihood, bound, share, optimizer):
    """About as good as all rows at a time: some per cent of the bound of guessing."""
    X, y = (array if optimizer == "adam" else array[::2] for array in IRIS)
    # An iteration of Adam has many steps.
    max_iter = {"adam": 4, "profile": 15, None: 50}[optimizer]
    params = {"likelihood": likelihood, "bound": bound, "share": share, "optimizer": optimizer, "max_iter": max_iter}
    full, batches = (learned(X, y, batch_size=size, length_scale_prior=None, **params) for size in (None, 15))
    assert batches.score(X, y) > max(0.85, full.score(X, y) - 0.04)
    assert batches.elbo_ > full.elbo_ - 0.1 * len(X) * np.log(3.0)


@cases(NOISY_CASES)
def test_label_noise_is_what_was_given_or_the_best(likelihood, bound, share):
    """No other delta has a higher bound, with the same posterior or with one of its own; none for other bounds."""
    X, y = data_of(likelihood)
    y = np.where(np.arange(len(y)) % 9, y, (y + 1) % (y.max() + 1))
    model = quietly(fixed(likelihood, bound, share, tol=1e-10), X, y)
    delta, q = model.label_noise_, model.posterior_
    labels = y.astype(np.float64) if q.n_latents > 1 else np.where(y > 0, 1.0, -1.0)
    for factor in (0.99, 1.01):
        site = record_of(likelihood, bound).at(factor * delta).site(len(model.classes_))
        assert expected_log_likelihood(site, *q.marginals(X), labels) - q.kl < model.elbo_
        other = quietly(clone(model).set_params(label_noise=factor * delta), X, y)
        assert other.label_noise_ == factor * delta
        assert other.elbo_ < model.elbo_
    model.set_params(likelihood="softmax", bound="exact")
    assert not hasattr(quietly(model, X, y), "label_noise_")


@pytest.mark.parametrize(
    ("load", "params"),
    [
        (load_iris, {}),
        (load_wine, {}),
        (load_wine, {"share": "none"}),
        (load_iris, {"inducing_points": "all"}),
        (load_wine, {"batch_size": 30, "max_iter": 100}),
        *((load_iris, {"likelihood": f"multinomial-{name}"}) for name in ("logit", "probit", "step")),
        (load_wine, {"bound": "additive-noise", "likelihood": "softmax"}),
        (load_wine, {"likelihood": "multinomial-probit", "label_noise": 0.01}),
        (load_iris, {"likelihood": "multinomial-step", "optimizer": "profile", "learn_inducing": False}),
    ],
)
def test_fits_end_where_they_do_from_softmaxs_posterior(load, params):
    """With a large variance the prior leads logistic-softmax to an optimum at which every class is as likely."""
    X, y = standardised(load)
    kernel = ConstantKernel(300.0) * RBF(2.5 * np.sqrt(X.shape[1]))
    common = {"kernel": kernel, "optimizer": None, "n_inducing": 30, "max_iter": 1000, "random_state": 0}
    own = {"likelihood": "logistic-softmax", **params}
    model = quietly(GPClassifier(**common | own), X, y)
    softmax = {"likelihood": "softmax", "bound": "exact", "label_noise": "learn", "batch_size": None, "optimizer": None}
    other = quietly(GPClassifier(warm_start=True, **common | own | softmax), X, y)
    defaults = {"bound": "auto", "label_noise": "learn", "optimizer": None}
    quietly(other.set_params(**defaults | {name: own[name] for name in own if name != "batch_size"}), X, y)
    tolerance = 0.05 if "batch_size" in params else 0.01 if "likelihood" in params else 1e-4
    assert model.elbo_ >= other.elbo_ - tolerance * abs(other.elbo_)
    assert losses(model, X, y).mean() < 0.2 < np.log(3.0)
