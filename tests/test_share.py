"""One kernel for all classes, or one for each."""

import numpy as np
import pytest
from sklearn.base import clone
from support.fits import quietly

from xgpc import GPClassifier

FEW = {"n_inducing": 30, "n_neighbors": 0, "max_iter": 40, "tol": 1e-3, "random_state": 0}


def own_features(n=1200):
    """Class c depends on feature c alone, in waves: a kernel for all needs short length scales in all features."""
    random = np.random.default_rng(0)
    X = random.uniform(-2.0, 2.0, (n, 3))
    return X, np.argmax(3.0 * np.sin(2.0 * X) + 0.25 * random.gumbel(size=X.shape), axis=1)


def classifier(**params):
    return GPClassifier(**FEW | params)


def assert_same_fit(one, other, X):
    assert one.elbo_ == other.elbo_
    assert one.kernel_ == other.kernel_
    assert one.n_iter_ == other.n_iter_
    assert np.array_equal(one.inducing_points_, other.inducing_points_)
    assert np.array_equal(one.predict_log_proba(X), other.predict_log_proba(X))


@pytest.fixture(scope="module")
def separate():
    return quietly(classifier(share="none"), *own_features())


def test_classes_that_depend_on_features_of_their_own_have_kernels_of_their_own(separate):
    X, y = own_features()
    assert separate.share_ == "none"
    assert len(separate.kernel_) == 3
    assert separate.inducing_points_.shape == (3, 30, 3)
    # Each class's own feature has the shortest length scale.
    scales = np.array([kernel.k2.length_scale for kernel in separate.kernel_])
    assert np.argmin(scales, axis=1).tolist() == [0, 1, 2]
    shared = quietly(classifier(share="kernel"), X, y)
    assert shared.share_ == "kernel"
    assert separate.elbo_ > shared.elbo_ + 50.0
    new, labels = own_features(3000)
    scores = [model.predict_log_proba(new[1200:])[np.arange(1800), labels[1200:]] for model in (separate, shared)]
    gains = scores[0] - scores[1]
    assert np.mean(gains) > 2.0 * np.std(gains) / np.sqrt(len(gains))


def test_a_new_fit_shares_its_kernel_by_default_and_a_warm_start_keeps_what_was():
    X, y = own_features(400)
    model, shared = (quietly(classifier(max_iter=10, **params), X, y) for params in ({}, {"share": "kernel"}))
    assert_same_fit(model, shared, X)
    own = quietly(classifier(max_iter=10, share="none", warm_start=True), X, y)
    assert quietly(own.set_params(share="auto"), X, y).share_ == "none"


@pytest.mark.parametrize("share", ["auto", "kernel", "none"])
def test_two_classes_have_one_kernel(share):
    X, y = own_features(400)
    assert quietly(classifier(share=share, max_iter=10), X, y > 0).share_ == "kernel"


def test_saved_models_have_the_kernels(separate, tmp_path):
    X, _ = own_features()
    separate.save(tmp_path / "model.npz")
    loaded = GPClassifier.load(tmp_path / "model.npz")
    assert (loaded.share, loaded.share_) == ("none", "none")
    assert_same_fit(loaded, separate, X)
    assert not hasattr(clone(loaded), "share_")


def test_fits_do_not_depend_on_threads(separate):
    X, y = own_features()
    assert_same_fit(quietly(classifier(share="none", n_jobs=2), X, y), separate, X)
