"""Weights of rows and classes through whole fits."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_class_weight
from support.fits import quietly
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier


def weighted_moons():
    X, y = moons(90)
    Z = KMeans(8, n_init=1, random_state=0).fit(X).cluster_centers_
    return X, y, Z, np.random.default_rng(3).integers(0, 4, len(X))


@pytest.mark.parametrize(
    ("optimizer", "bound", "tolerance"),
    [
        ("profile", "exact", 1e-5),
        # Its inner solves end early on Polya-Gamma's slow tail: the maximum is found to some 1e-4 nats.
        ("profile", "polya-gamma", 1e-3),
        ("alternate", "exact", 1e-9),
        ("alternate", "polya-gamma", 1e-9),
    ],
)
def test_integer_weights_are_repeated_rows_in_learning(optimizer, bound, tolerance):
    X, y, Z, weight = weighted_moons()
    kernel = ConstantKernel(2.0) * RBF([1.0, 1.0])
    # Alternating steps are the same ones, wherever they stop.
    max_iter = 1000 if optimizer == "profile" else 60
    model = GPClassifier(kernel, inducing_points=Z, optimizer=optimizer, bound=bound, tol=1e-8, max_iter=max_iter)
    weighted = quietly(clone(model), X, y, sample_weight=weight)
    repeated = quietly(clone(model), np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=0.1 * tolerance)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=tolerance)
    np.testing.assert_allclose(weighted.kernel_.theta, repeated.kernel_.theta, atol=10.0 * tolerance)


@pytest.mark.parametrize("optimizer", ["profile", "alternate", "adam"])
def test_class_weights_are_the_rows_weights_in_learning(optimizer):
    X, y, Z, weight = weighted_moons()
    model = GPClassifier(inducing_points=Z, optimizer=optimizer, max_iter=20, random_state=0)
    by_class = quietly(clone(model).set_params(class_weight={0: 2.0, 1: 0.5}), X, y, sample_weight=1.0 + weight)
    by_row = quietly(clone(model), X, y, sample_weight=(1.0 + weight) * np.where(y == 0, 2.0, 0.5))
    assert by_class.elbo_ == by_row.elbo_
    assert by_class.kernel_ == by_row.kernel_
    assert np.array_equal(by_class.predict_proba(X), by_row.predict_proba(X))


@pytest.mark.parametrize("make", [lambda w: 2.0, list, lambda w: w.astype(object), lambda w: np.where(w > 1.0, 2, 0)])
def test_weights_are_read_alike_of_rows_and_of_batches(make):
    X, y, Z, _ = weighted_moons()
    weight = make(np.linspace(0.5, 2.0, 90))
    model = GPClassifier(inducing_points=Z, optimizer=None, n_neighbors=0, random_state=0)
    of_rows = quietly(clone(model), X, y, sample_weight=weight)
    of_batches = clone(model).fit_batches([(X, y, weight)])
    np.testing.assert_array_equal(of_batches.predict_proba(X), of_rows.predict_proba(X))


@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array(["no", "yes"]), np.array(["no", "yes"], dtype=object)])
@pytest.mark.parametrize("classifier", [GPClassifier, BayesianLinearClassifier])
def test_balanced_classes_are_scikit_learns_whatever_the_rows_weigh(labels, classifier):
    """Unequal classes and weights; some rows of weight zero, which count in scikit-learn as rows too."""
    X, y = moons(90)
    X, y = X[y <= np.arange(90) % 3], y[y <= np.arange(90) % 3]
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(y)) * np.where(y == 1, 4.0, 1.0)
    weight[::7] = 0.0
    support = SVC(class_weight="balanced").fit(X, labels[y], sample_weight=weight)
    balanced = compute_class_weight("balanced", classes=labels, y=labels[y])
    np.testing.assert_allclose(support.class_weight_, balanced, rtol=1e-12)
    model = classifier(max_iter=5, random_state=0)
    by_class = quietly(clone(model).set_params(class_weight="balanced"), X, labels[y], sample_weight=weight)
    by_row = quietly(clone(model), X, labels[y], sample_weight=weight * balanced[y])
    by_totals = quietly(clone(model), X, labels[y], sample_weight=weight * (weight.sum() / np.bincount(y, weight))[y])
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    assert np.max(np.abs(by_class.predict_proba(X) - by_totals.predict_proba(X))) > 0.01
