"""Weights of classes: predictions alone count them, after a fit that is the same as without."""

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score, roc_auc_score
from sklearn.svm import SVC
from support.fits import quietly
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier, GPOrdinalClassifier
from xgpc.acquisition import predictive_entropy

X, TWO = moons(90)
THREE = TWO + (X[:, 1] > 0.6)
LATER = moons(20, seed=1)
SHORT = {"n_inducing": 10, "max_iter": 5, "random_state": 0}
FIXED = {"kernel": RBF(), "inducing_points": X[:9], "optimizer": None, "random_state": 0}
MODELS = {
    "logit": (GPClassifier(**SHORT), TWO),
    "stream": (GPClassifier(n_neighbors=0, **FIXED), TWO),
    "stream with neighbours": (GPClassifier(n_neighbors=4, **FIXED), TWO),
    "svm": (GPClassifier(likelihood="svm", mean="base-rate", **SHORT), TWO),
    "label noise": (GPClassifier(likelihood="step", **SHORT), TWO),
    "linear": (BayesianLinearClassifier(), TWO),
    "softmax": (GPClassifier(**SHORT), THREE),
    "logistic-softmax": (GPClassifier(likelihood="logistic-softmax", **SHORT), THREE),
    "ordered": (GPOrdinalClassifier(**SHORT), THREE),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_fit_is_that_without_and_odds_are_multiplied(name):
    model, y = MODELS[name]
    weight = np.array([0.2, 1.0, 30.0])[: y.max() + 1]
    given = [None, dict.fromkeys(range(len(weight)), 3.0), dict(enumerate(weight))]
    sample_weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    models = [quietly(clone(model).set_params(class_weight=w), X, y, sample_weight=sample_weight) for w in given]
    if "stream" in name:
        assert len({one.partial_fit(*LATER).drift_ for one in models}) == 1
    plain, alike, weighted = models
    np.testing.assert_array_equal(alike.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(np.ptp(alike.class_weight_), 0.0)
    np.testing.assert_array_equal(weighted.class_weight_, weight)
    assert weighted.elbo_ == plain.elbo_
    np.testing.assert_array_equal(weighted.predict_latent(X), plain.predict_latent(X))
    np.testing.assert_array_equal(predictive_entropy(weighted, X), predictive_entropy(plain, X))
    if name != "linear":
        assert (weighted.kernel_, weighted.elbo(X, y)) == (plain.kernel_, plain.elbo(X, y))
        np.testing.assert_array_equal(weighted.class_count_, plain.class_count_)
    log_p, log_q = (one.predict_log_proba(X) for one in (plain, weighted))
    np.testing.assert_allclose(log_q, log_softmax(log_p + np.log(weight), axis=1), rtol=1e-12, atol=1e-12)
    # No other probabilities have a smaller expected loss of labels with these weights.
    nearby = log_softmax(log_q + 0.1 * np.random.default_rng(1).normal(size=log_q.shape), axis=1)
    assert np.all(np.sum(weight * np.exp(log_p) * (log_q - nearby), axis=1) > 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_class_is_found_and_the_ranking_stays(seed):
    kind = {"n_informative": 3, "weights": [0.94], "class_sep": 0.7, "flip_y": 0.03, "random_state": seed}
    rows, y = make_classification(3000, 10, **kind)
    models = [GPClassifier(random_state=0, class_weight=weight) for weight in (None, "balanced")]
    for model in (*models, linear := LogisticRegression(class_weight="balanced")):
        model.fit(rows[:1000], y[:1000])
    assert models[0].kernel_ == models[1].kernel_
    np.testing.assert_array_equal(*(model.inducing_points_ for model in models))
    ranking = [roc_auc_score(y[1000:], model.decision_function(rows[1000:])) for model in models]
    assert ranking[1] == pytest.approx(ranking[0], abs=1e-12)
    recall = [recall_score(y[1000:], model.predict(rows[1000:])) for model in (*models, linear)]
    assert recall[1] > max(recall[0], recall[2] - 0.1)


@pytest.mark.parametrize("kept_rows", [30, 1000])
@pytest.mark.parametrize("how", ["rows", "linear", "counts", "batches"])
def test_balanced_classes_are_scikit_learns_whatever_the_rows_weigh(how, kept_rows, tuned):
    """Unequal classes and weights; rows of weight zero do not count."""
    tuned(kept_rows=kept_rows)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 90) * ((TWO == 1) | (np.arange(90) % 4 == 0))
    y, given = np.array(["no", "yes"])[TWO], weight > 0.0
    kind = {"linear": BayesianLinearClassifier()}.get(how, GPClassifier(n_neighbors=0, **FIXED))
    model = kind.set_params(class_weight="balanced")
    if how == "batches":
        model.fit_batches([(X, y, weight)])
    elif how == "counts":
        model.fit(X, np.eye(2)[TWO], weight, classes=["no", "yes"])
    else:
        model.fit(X, y, weight)
    support = SVC(class_weight="balanced").fit(X[given], y[given], sample_weight=weight[given])
    np.testing.assert_allclose(model.class_weight_, support.class_weight_, rtol=1e-12)
