"""Warm starts: a refit never ends below where it began, whatever is learned from whichever rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.gaussian_process.kernels import RBF
from sklearn.preprocessing import StandardScaler
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X[:, :6]), y


def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


# What subsets of 40 or 50 rows teach is, refit by refit, as often worse as better for all rows.
SUBSET = {"subset_sizes": [50], "n_inducing": 12}
FEW = {"subset_sizes": [40], "n_inducing": 12, "tol": 1e-3, "max_iter": 40}


@pytest.mark.parametrize(
    ("data", "params"),
    [
        pytest.param(cancer, SUBSET, id="subset"),
        pytest.param(cancer, SUBSET | {"n_inducing": "auto"}, id="auto"),
        pytest.param(cancer, SUBSET | {"n_restarts_optimizer": 1}, id="restarts"),
        pytest.param(cancer, SUBSET | {"bound": "additive-noise"}, id="additive noise"),
        pytest.param(cancer, SUBSET | {"optimizer": "alternate"}, id="alternate"),
        pytest.param(cancer, SUBSET | {"precision": "mixed"}, id="single precision"),
        pytest.param(cancer, SUBSET | {"batch_size": 50}, id="mini-batches"),
        pytest.param(cancer, {"batch_size": 50, "n_inducing": 12}, id="mini-batches, all rows"),
        pytest.param(cancer, {"batch_size": 50, "n_inducing": 12, "optimizer": None}, id="mini-batches, posterior"),
        pytest.param(
            moons,
            {"batch_size": 50, "n_inducing": 12, "optimizer": None, "likelihood": "step", "max_iter": 5},
            id="mini-batches, additive noise",
        ),
        pytest.param(iris, FEW, id="softmax"),
        pytest.param(iris, FEW | {"share": "none"}, id="a kernel for each class"),
        pytest.param(iris, FEW | {"share": "none", "batch_size": 30}, id="a kernel for each class, mini-batches"),
        pytest.param(
            iris,
            {"inducing_points": "all", "optimizer": None, "bound": "additive-noise", "likelihood": "softmax"},
            id="full",
        ),
    ],
)
def test_refits_on_the_same_data_never_lower_the_bound(data, params):
    X, y = data()
    params = {"length_scale_prior": None, **params}
    model = GPClassifier(warm_start=True, random_state=np.random.RandomState(0), **params)
    bounds = [quietly(model, X, y).elbo_ for _ in range(4)]
    assert np.all(np.diff(bounds) >= -1e-10 * np.abs(bounds[1:]))
    # What is kept is the posterior of all rows and its bound, and the record ends with it.
    assert model.history_["elbo"][-1] == model.elbo_
    assert model.elbo_ == pytest.approx(model.elbo(X, y), rel=1e-6)


def test_new_rows_get_the_better_of_the_learned_and_the_previous_hyperparameters():
    """A subset of other rows teaches worse than the earlier ones did: the bound is that of the previous kernel."""
    X, y = cancer()
    model = GPClassifier(n_inducing=12, warm_start=True, random_state=0)
    quietly(model.set_params(subset_sizes=None), X[:300], y[:300])
    previous = {"kernel": model.kernel_, "inducing_points": model.inducing_points_, "optimizer": None}
    quietly(model.set_params(subset_sizes=[20]), X, y)
    at_previous = clone(model).set_params(warm_start=False, tol=1e-8, **previous).fit(X, y)
    assert model.elbo_ >= at_previous.elbo_ - 0.01
    assert model.kernel_ == previous["kernel"]
    assert np.array_equal(model.inducing_points_, previous["inducing_points"])
    decisions = model.history_["decision"]
    assert [text for text in decisions if text.endswith("the previous hyperparameters are kept.")]
    # Learning from all rows is better, and is taken.
    better = quietly(clone(model).set_params(subset_sizes=None), X, y)
    assert better.elbo_ > at_previous.elbo_ + 0.1
    assert "decision" not in better.history_


@pytest.mark.parametrize("share", ["kernel", "none"])
@pytest.mark.parametrize("then", ["all", "kmeans"])
def test_a_full_process_hands_its_sites_to_rows_that_it_does_not_have(then, share):
    """The refit ends at the optimum that a new fit finds."""
    X, y = iris()
    options = {"n_inducing": 10, "optimizer": None, "tol": 1e-9, "share": share, "random_state": 0}
    model = GPClassifier(2.0 * RBF(1.5), inducing_points="all", warm_start=True, **options).fit(X[::2], y[::2])
    model.set_params(inducing_points=then).fit(X[1::2], y[1::2])
    fresh = GPClassifier(2.0 * RBF(1.5), inducing_points=then, **options).fit(X[1::2], y[1::2])
    assert model.elbo_ == pytest.approx(fresh.elbo_, rel=1e-8)
