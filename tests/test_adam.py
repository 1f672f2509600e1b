"""optimizer="adam": mini-batches that learn, and L-BFGS from where they end, which is where "profile" ends."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.preprocessing import StandardScaler
from support.fits import quietly
from support.reference import moons, ringnorm

from xgpc import GPClassifier

X, Y = moons(200)
KERNEL = C(2.0) * RBF([1.0, 1.0])


def fit(X=X, y=Y, kernel=KERNEL, **params):
    """With silence about iterations."""
    params = {"optimizer": "adam", "inducing_points": X[:15], "random_state": 0, **params}
    return quietly(GPClassifier(kernel, **params), X, y)


def test_mini_batches_learn_and_are_determined_by_the_seed():
    X, y = ringnorm(2000, np.random.default_rng(0))
    kernel, Z = C(2.0) * RBF(np.full(20, 6.0)), X[:30]
    given = fit(X, y, kernel, optimizer=None, inducing_points=Z)
    params = {"inducing_points": Z, "batch_size": 100, "max_iter": 3}
    models = [fit(X, y, kernel, **params, random_state=seed) for seed in (0, 0, 1)]
    assert min(model.elbo_ for model in models) > given.elbo_ + 50.0
    assert models[0].elbo_ == models[1].elbo_
    assert np.array_equal(models[0].inducing_points_, models[1].inducing_points_)
    assert models[0].elbo_ != models[2].elbo_


@pytest.mark.parametrize("batch_size", [None, 30])
@pytest.mark.parametrize("bound", ["exact", "polya-gamma"])
def test_it_ends_where_profile_does(bound, batch_size):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:150, :6], y[:150]
    kernel = C(2.0) * RBF(np.full(6, 6**0.5))
    profile = fit(X, y, kernel, bound=bound, optimizer="profile")
    model = fit(X, y, kernel, bound=bound, batch_size=batch_size)
    assert model.converged_
    assert model.elbo_ > profile.elbo_ - 1.0
    # The posterior is the best one for its kernel, not an average of mini-batches.
    params = {"optimizer": None, "inducing_points": model.inducing_points_, "tol": 1e-8, "max_iter": 1000}
    again = fit(X, y, model.kernel_, bound=bound, **params)
    assert model.elbo_ == pytest.approx(again.elbo_, abs=0.01)


@pytest.mark.parametrize("batch_size", [None, 30])
def test_it_ends_no_lower_than_mini_batches_alone(batch_size):
    adam, stochastic = (fit(optimizer=optimizer, batch_size=batch_size) for optimizer in ("adam", "stochastic"))
    assert adam.n_iter_ >= stochastic.n_iter_
    assert adam.elbo_ > stochastic.elbo_ - 0.01


@pytest.mark.parametrize("batch_size", [None, 30])
def test_tol_and_max_iter_are_obeyed(batch_size):
    few = fit(batch_size=batch_size, max_iter=3, tol=0.0)
    assert few.n_iter_ == 3
    assert not few.converged_
    loose, tight = (fit(batch_size=batch_size, tol=tol, max_iter=60) for tol in (1e-2, 1e-5))
    assert loose.n_iter_ < tight.n_iter_
    assert tight.elbo_ > loose.elbo_ - 0.1


def test_the_learning_rate_of_mini_batches_is_honoured():
    bounds = {fit(batch_size=10, max_iter=2, learning_rate=rate).elbo_ for rate in ("adaptive", 0.01, 0.5)}
    assert len(bounds) == 3


def test_label_noise_and_several_classes_are_learned_in_mini_batches():
    y = np.where(X[:, 0] > 1.0, 2, Y)
    params = {"batch_size": 50, "max_iter": 3}
    noisy = fit(likelihood="step", **params)
    assert 1e-6 < noisy.label_noise_ < 0.3
    for share in ("kernel", "none"):
        model, given = (fit(y=y, share=share, optimizer=optimizer, **params) for optimizer in ("adam", None))
        assert model.elbo_ > given.elbo_ + 1.0
