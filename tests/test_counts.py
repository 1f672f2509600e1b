"""Counts and probabilities of classes as labels."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly

from xgpc import GPClassifier, GPOrdinalClassifier

FIXED = {"kernel": ConstantKernel(2.0) * RBF(1.0), "optimizer": None, "tol": 1e-12, "n_neighbors": 0, "max_iter": 500}
NAMES = np.array(["a", "b", "c"])


def problem(n_classes, n=40):
    random = np.random.default_rng(n_classes)
    X = random.normal(size=(n, 2))
    counts = random.integers(0, 4, (n, n_classes))
    counts[:, 0] += np.where(X[:, 0] > 0.0, 3, 0)
    counts[0] = 0
    return X, counts


def repeated(X, counts):
    row, label = np.nonzero(counts)
    times = counts[row, label]
    return np.repeat(X[row], times, axis=0), NAMES[np.repeat(label, times)]


@pytest.mark.parametrize("kind", [GPClassifier, GPOrdinalClassifier])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("sparse", [True, False])
def test_counts_are_equal_rows(kind, n_classes, sparse):
    X, counts = problem(n_classes)
    model = kind(**FIXED, inducing_points=X[:15] if sparse else "all")
    counted = quietly(model, X, counts, classes=NAMES[:n_classes]).predict_proba(X)
    assert_allclose(counted, quietly(model, *repeated(X, counts)).predict_proba(X), rtol=0.0, atol=1e-10)


def test_probabilities_with_weights_are_counts():
    X, counts = problem(3)
    total = counts.sum(axis=1)
    shares = counts / np.maximum(total, 1)[:, None]
    model = GPClassifier(**FIXED, inducing_points=X[:15])
    counted = quietly(model, X, counts, classes=NAMES).predict_proba(X)
    shared = quietly(model, X, shares, sample_weight=total, classes=NAMES).predict_proba(X)
    assert_allclose(shared, counted, rtol=0.0, atol=1e-10)


def test_columns_are_in_the_order_of_classes():
    X, counts = problem(3)
    model = GPClassifier(**FIXED, inducing_points=X[:15])
    sorted_ = quietly(model, X, counts, classes=NAMES).predict_proba(X)
    other = quietly(model, X, counts[:, [2, 0, 1]], classes=NAMES[[2, 0, 1]])
    assert_array_equal(other.classes_, NAMES)
    assert_array_equal(other.predict_proba(X), sorted_)
    again = [
        quietly(GPClassifier(**FIXED, inducing_points=X[:15]), X, counts, classes=NAMES).partial_fit(X, y, classes)
        for y, classes in ((counts, None), (counts[:, [2, 0, 1]], NAMES[[2, 0, 1]]))
    ]
    assert_array_equal(again[0].predict_proba(X), again[1].predict_proba(X))


def test_a_learned_fit_takes_counts_and_groups():
    X, counts = problem(2, 400)
    model = quietly(GPClassifier(n_inducing=10, random_state=0), X, counts, classes=[0, 1], groups=np.arange(400) % 20)
    assert model.class_count_.tolist() == counts.sum(axis=0).tolist()
    balanced = quietly(GPClassifier(**FIXED, class_weight="balanced"), X, counts, classes=[0, 1])
    assert_allclose(balanced.class_count_[0], balanced.class_count_[1])


@pytest.mark.parametrize(
    ("change", "classes", "message"),
    [
        (lambda y: y, None, r"y should be a 1d array .* need classes="),
        (lambda y: y, [0, 1], "shape"),
        (lambda y: -y, [0, 1, 2], "not negative"),
        (lambda y: np.where(y > 2, np.nan, y), [0, 1, 2], "not negative"),
        (lambda y: 0 * y, [0, 1, 2], "positive weight"),
        (lambda y: y[:5], [0, 1, 2], "shape"),
        (lambda y: y[:, 0] / 7.0, [0, 1], "measurement"),
        (lambda y: y.astype(str), [0, 1, 2], "dense array of numbers"),
        (lambda y: 1j * y, [0, 1, 2], "dense array of numbers"),
        (csr_array, [0, 1, 2], "dense array of numbers"),
        (lambda y: pd.DataFrame(y, columns=["b", "a", "c"]), ["a", "b", "c"], r"columns of y are .*the same order"),
        (lambda y: pd.DataFrame(y, columns=[1, 0, 2]), [0, 1, 2], r"columns of y are .*the same order"),
    ],
)
def test_what_is_no_count_is_an_error(change, classes, message):
    X, counts = problem(3)
    with pytest.raises(ValueError, match=message):
        GPClassifier().fit(X, change(counts), classes=classes)


def test_counts_of_a_frame_and_those_that_other_methods_refuse():
    X, counts = problem(3)
    model, names = GPClassifier(**FIXED, inducing_points=X[:15]), ["c", "a", "b"]
    plain = quietly(model, X, counts, classes=names).predict_proba(X)
    assert_array_equal(quietly(model, X, pd.DataFrame(counts, columns=names), classes=names).predict_proba(X), plain)
    for call in (lambda: model.elbo(X, counts), lambda: GPClassifier().fit_batches([(X, counts)], classes=names)):
        with pytest.raises(ValueError, match="Counts or probabilities of classes are for fit and partial_fit"):
            call()
