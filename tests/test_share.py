"""One kernel for all classes, or one for each: what share="auto" decides, and where there is nothing to decide."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly

from xgpc import GPClassifier

FEW = {"n_inducing": 30, "n_neighbors": 0, "max_iter": 40, "tol": 1e-3, "random_state": 0}
CHANGES = "With a kernel for each class in place of one for all, the mean log probability of "


def own_features(n=1200):
    """Class c depends on feature c alone, in waves: a kernel for all needs short length scales in all features."""
    random = np.random.default_rng(0)
    X = random.uniform(-2.0, 2.0, (n, 3))
    return X, np.argmax(3.0 * np.sin(2.0 * X) + 0.25 * random.gumbel(size=X.shape), axis=1)


def same_features(n=1200):
    """Three sectors of the plane: each class is a turn of the others."""
    random = np.random.default_rng(1)
    X = random.normal(size=(n, 2))
    turns = (np.arctan2(*X.T) + 0.8 * random.normal(size=n)) / (2.0 * np.pi)
    return X, np.floor(3.0 * (turns % 1.0)).astype(int)


def classifier(**params):
    return GPClassifier(**FEW | params)


def decision_of(model):
    found = [text for text in model.history_.get("decision", ()) if text.startswith(CHANGES)]
    assert len(found) <= 1
    return found[0] if found else ""


def assert_same_fit(one, other, X):
    assert one.elbo_ == other.elbo_
    assert one.kernel_ == other.kernel_
    assert one.n_iter_ == other.n_iter_
    assert np.array_equal(one.inducing_points_, other.inducing_points_)
    assert np.array_equal(one.predict_log_proba(X), other.predict_log_proba(X))


@pytest.fixture(scope="module")
def separate():
    return quietly(classifier(), *own_features())


def test_classes_that_depend_on_features_of_their_own_get_kernels_of_their_own(separate):
    X, y = own_features()
    assert separate.share_ == "none"
    assert decision_of(separate).endswith(" nats: taken.")
    assert f" of {len(X) // 2} held-out rows changes by +0." in decision_of(separate)
    assert len(separate.kernel_) == 3
    assert separate.inducing_points_.shape == (3, 30, 3)
    # Each class's own feature has the shortest length scale.
    scales = np.array([kernel.k2.length_scale for kernel in separate.kernel_])
    assert np.argmin(scales, axis=1).tolist() == [0, 1, 2]
    one = quietly(classifier(share="kernel"), X, y)
    assert one.share_ == "kernel"
    assert separate.elbo_ > one.elbo_ + 50.0
    new, labels = own_features(3000)
    scores = [model.predict_log_proba(new[1200:])[np.arange(1800), labels[1200:]].mean() for model in (separate, one)]
    assert scores[0] > scores[1] + 0.02


@pytest.mark.parametrize(
    "params",
    [{}, {"likelihood": "multinomial-probit", "max_iter": 20}, {"batch_size": 1200, "subset_sizes": [300, 900]}],
    ids=lambda params: next(iter(params.values()), "softmax"),
)
def test_classes_alike_share_a_kernel_as_if_nothing_had_been_decided(params):
    """The decision takes no random numbers from the fit, and leaves no trace but its reason."""
    X, y = same_features()
    model = quietly(classifier(**params), X, y)
    assert ": not taken, as it must rise by more than " in decision_of(model)
    assert model.share_ == "kernel"
    one = quietly(classifier(share="kernel", **params), X, y)
    assert_same_fit(model, one, X)
    others = ~np.char.startswith(model.history_["decision"].astype(str), CHANGES)
    assert np.array_equal(model.history_["theta"][others], one.history_["theta"], equal_nan=True)


@pytest.mark.parametrize(
    "params",
    [
        {"share": "none"},
        {"batch_size": 100},
        {"optimizer": None},
        {"kernel": ConstantKernel() * RBF([1.0, 1.0, 1.0])},
        {"n_neighbors": 5},
    ],
    ids=str,
)
def test_where_there_is_nothing_to_decide_fits_are_those_of_before(params):
    """Given values, mini-batches, few iterations, kernels that are given or not learned, and neighbours."""
    X, y = own_features()
    model = quietly(classifier(**{"max_iter": 10} | params), X, y)
    expected = "none" if params.get("share") == "none" else "kernel"
    assert model.share_ == expected
    assert not decision_of(model)
    assert_same_fit(model, quietly(clone(model).set_params(share=expected), X, y), X)


@pytest.mark.parametrize("params", [{}, {"likelihood": "softmax"}], ids=["one latent function", "two"])
def test_two_classes_have_nothing_to_decide(params):
    X, y = own_features()
    model = quietly(classifier(max_iter=10, **params), X, y > 0)
    assert model.share_ == "kernel"
    assert not decision_of(model)
    assert_same_fit(model, quietly(classifier(share="kernel", max_iter=10, **params), X, y > 0), X)
    if not params:
        assert quietly(classifier(share="none", max_iter=10), X, y > 0).share_ == "kernel"


def test_saved_models_know_what_was_decided(separate, tmp_path):
    X, _ = own_features()
    separate.save(tmp_path / "model.npz")
    loaded = GPClassifier.load(tmp_path / "model.npz")
    assert (loaded.share, loaded.share_) == ("auto", "none")
    assert_same_fit(loaded, separate, X)
    assert clone(loaded).share == "auto"
    assert not hasattr(clone(loaded), "share_")


def test_decisions_repeat_and_do_not_depend_on_threads(separate):
    X, y = own_features()
    again = quietly(classifier(n_jobs=2), X, y)
    assert decision_of(again) == decision_of(separate)
    assert_same_fit(again, separate, X)


def test_two_groups_of_which_none_can_be_kept_apart_share_a_kernel():
    X, y = own_features()
    assert quietly(classifier(max_iter=10), X, y, groups=np.arange(len(X)) > 50).share_ == "kernel"
