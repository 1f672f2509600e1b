"""Fits to rows that lack classes, or are of a single one: what is learned, predicted and told."""

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.online import CASES, NAMES, X

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.likelihoods import MULTI_CLASS

ONES = np.ones(len(X), dtype=int)
FAR = np.array([[1e4, -1e4]])


def strictly(model, *rows, **options):
    """A fit that warns of nothing, whatever the test runner makes of warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model.fit(*rows, **options)


@pytest.mark.parametrize(("likelihood", "bound", "share"), CASES, ids=NAMES)
def test_one_class_is_predicted_near_its_rows_and_guessed_far_away(likelihood, bound, share):
    classes = [0, 1, 2] if likelihood in MULTI_CLASS else [0, 1]
    model = GPClassifier(
        likelihood=likelihood, bound=bound, share=share, optimizer="alternate" if bound == "taylor" else "profile"
    )
    proba = strictly(model, X, ONES, classes=classes).predict_proba(np.concatenate([X, FAR]))
    assert model.classes_.tolist() == classes
    np.testing.assert_allclose(np.sum(proba, axis=1), 1.0)
    assert np.all(proba[:-1, 1] > 0.5)
    assert np.all(proba[:, 0] > 0.0)
    np.testing.assert_allclose(proba[-1], 1.0 / len(classes), atol=1e-4)
    if len(classes) == 3:
        # Alike, but for the integrals' points.
        np.testing.assert_allclose(proba[:, 0], proba[:, 2], atol=1e-3)


@pytest.mark.parametrize(
    "params", [{}, {"optimizer": "adam", "batch_size": 50}, {"inducing_points": "all"}, {"n_neighbors": 5}], ids=str
)
def test_rows_of_one_class_teach_no_kernel(params):
    kernel = ConstantKernel(2.0, (2.0, 1e5)) * RBF([0.8, 1.1], (0.8, 10.0))
    model = strictly(GPClassifier(kernel, n_inducing=16, random_state=0, **params), X, ONES, classes=[0, 1])
    np.testing.assert_allclose(model.kernel_.theta, kernel.theta)
    assert model.n_neighbors_ == 0
    assert model.converged_
    assert any("one class, which does not determine the kernel" in text for text in model.history_["decision"])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_first_rows_of_a_search(n):
    model = strictly(GPClassifier(random_state=0), X[:n], ONES[:n], classes=[0, 1])
    assert np.all(model.predict_proba(X[:n])[:, 1] > 0.5)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 2.0, 2: 5.0, 3: 1.0}], ids=str)
def test_a_class_without_rows_is_improbable_where_others_are(class_weight):
    labels = 2 * (X[:, 0] > 0.0)
    options = {"class_weight": class_weight, "n_inducing": 16, "max_iter": 20, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPClassifier(**options).fit(X, labels, classes=[0, 1, 2, 3])
    proba = model.predict_proba(X)
    assert model.kernel_.theta.shape == (3,)
    assert np.all(proba[:, [1, 3]] < 0.2)
    assert np.mean(model.predict(X) == labels) > 0.8


def test_a_stream_may_begin_with_one_class():
    first = strictly(GPClassifier(n_inducing=16, n_neighbors=0, random_state=0), X, ONES, classes=[0, 1])
    stream = GPClassifier(n_inducing=16, random_state=0).partial_fit(X, ONES, classes=[0, 1])
    np.testing.assert_array_equal(stream.predict_proba(X), first.predict_proba(X))
    later = X + 2.0
    stream.partial_fit(later, np.zeros(len(later), dtype=int))
    assert np.mean(stream.predict(np.concatenate([X - 1.0, later + 1.0]))) == pytest.approx(0.5, abs=0.2)


def test_one_class_without_classes_is_an_error_that_tells_of_them():
    for fit in (GPClassifier().fit, GPClassifier().partial_fit):
        with pytest.raises(ValueError, match=r"two classes.*are of 1 class: \[1\]\. Give classes="):
            fit(X, ONES)
    with pytest.raises(ValueError, match=r"are of 1 class: \[1\]\.$"):
        BayesianLinearClassifier().fit(X, ONES)
    with pytest.raises(ValueError, match="classes must be a list of all labels"):
        GPClassifier().fit(X, ONES, classes=[1])
    with pytest.raises(ValueError, match="not in classes_"):
        GPClassifier().fit(X, ONES, classes=[0, 2])
