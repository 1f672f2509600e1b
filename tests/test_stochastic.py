"""optimizer="stochastic" and "adam": where mini-batches that learn end, for which models, and what they say of it."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import ConstantKernel as C
from support.fits import losses, quietly
from support.latents import CASES, NOISY, SEVERAL, cases
from support.reference import moons, ringnorm, standardised

import xgpc
from xgpc import GPClassifier
from xgpc.likelihoods import record_of

X, Y = moons(300)
KERNEL = C(2.0) * RBF([1.0, 1.0])
CANCER, IRIS = standardised(load_breast_cancer, slice(0, 6)), standardised(load_iris)
# Bounds that a posterior alone has at the start kernel are lower by far more than this.
NATS_A_ROW = 0.01
model = partial(GPClassifier, optimizer="stochastic", n_inducing=15, n_neighbors=0, random_state=0)


def best_bound(learned, X, y):
    """That of a posterior alone, for the kernel and the inducing points of a model."""
    params = {"kernel": learned.kernel_, "inducing_points": learned.inducing_points_, "bound": learned.bound}
    return GPClassifier(optimizer=None, n_neighbors=0, tol=1e-8, max_iter=1000, **params).fit(X, y).elbo_


def outcomes(fitted):
    kernels = fitted.kernel_ if isinstance(fitted.kernel_, list) else [fitted.kernel_]
    return [fitted.elbo_, *fitted.inducing_points_.ravel(), *np.concatenate([kernel.theta for kernel in kernels])]


def blobs(n, seed=0):
    """Three classes on the plane that overlap."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n)
    angle = 2.0 * np.pi * y / 3.0 + 0.8 * random.normal(size=n)
    return (1.0 + 0.3 * random.normal(size=n))[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), y


def waves(n, seed=0):
    """Two classes that overlap, by three of five features."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 5))
    f = 2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, (random.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * f))).astype(int)


SETS = {"waves": waves(800), "cancer": CANCER, "blobs": blobs(600)}
NEAR = [(name, "logit", "polya-gamma", "kernel") for name in ("waves", "cancer")]
NEAR += [(name, "probit", "exact", "kernel") for name in ("waves", "cancer")]
NEAR += [("blobs", "softmax", "exact", share) for share in ("kernel", "none")]
NEAR += [("blobs", "multinomial-probit", "additive-noise", share) for share in ("kernel", "none")]


@pytest.mark.parametrize(("name", "likelihood", "bound", "share"), NEAR)
def test_it_ends_near_profile(name, likelihood, bound, share):
    data = SETS[name]
    params = {"likelihood": likelihood, "bound": bound, "share": share, "length_scale_prior": None, "tol": 5e-5}
    profile = quietly(model(optimizer="profile", **params), *data)
    for batch_size in (None, 100) if name != "blobs" else (100,):
        learned = model(batch_size=batch_size, **params).fit(*data)
        assert learned.converged_
        assert learned.elbo_ > profile.elbo_ - NATS_A_ROW * len(data[1])


def test_the_posterior_is_the_best_one_for_what_was_learned():
    """Not an average of mini-batches."""
    learned = quietly(model(batch_size=50, max_iter=5), X, Y)
    assert learned.elbo_ == pytest.approx(best_bound(learned, X, Y), abs=0.2)


@pytest.mark.parametrize("optimizer", ["stochastic", "adam"])
def test_mini_batches_learn_and_are_determined_by_the_seed(optimizer):
    rows, labels = ringnorm(2000, np.random.default_rng(0))
    params = {"kernel": C(2.0) * RBF(np.full(20, 6.0)), "inducing_points": rows[:30]}
    given = quietly(model(optimizer=None, **params), rows, labels)
    params |= {"optimizer": optimizer, "batch_size": 100, "max_iter": 3}
    models = [quietly(model(**params, random_state=seed), rows, labels) for seed in (0, 0, 1)]
    assert min(each.elbo_ for each in models) > given.elbo_ + 50.0
    assert outcomes(models[0]) == outcomes(models[1])
    assert models[0].elbo_ != models[2].elbo_


@pytest.mark.parametrize(
    ("likelihood", "share"), [("logit", "kernel"), ("softmax", "none"), ("logistic-softmax", "kernel")]
)
def test_threads_divide_large_mini_batches_and_change_no_bit(likelihood, share, tuned):
    rows, labels = waves(9000) if likelihood == "logit" else blobs(9000)
    params = {"likelihood": likelihood, "bound": "auto", "share": share, "batch_size": 4500, "max_iter": 1}
    one, two = (quietly(model(**params, n_jobs=n_jobs), rows, labels) for n_jobs in (1, 2))
    assert outcomes(one) == outcomes(two)
    tuned(parallel_batch_rows=len(rows))
    np.testing.assert_allclose(outcomes(one), outcomes(quietly(model(**params), rows, labels)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("batch_size", [None, 50])
@pytest.mark.parametrize("optimizer", ["stochastic", "adam"])
def test_tol_and_max_iter_are_obeyed(optimizer, batch_size):
    given = {"optimizer": optimizer, "batch_size": batch_size}
    few = quietly(model(**given, max_iter=3, tol=0.0), X, Y)
    loose, tight = (quietly(model(**given, tol=tol), X, Y) for tol in (1e-2, 1e-4))
    assert [each.converged_ for each in (few, loose, tight)] == [False, True, True]
    assert few.n_iter_ == 3
    assert loose.n_iter_ < tight.n_iter_
    assert tight.elbo_ > loose.elbo_ - 0.1


@cases([case for case in CASES if record_of(*case[:2]).is_bound])
def test_every_bound_is_learned(likelihood, bound, share):
    several = (likelihood, bound) in SEVERAL
    data = IRIS if several else (X, Y)
    params = {"likelihood": likelihood, "bound": bound, "share": share, "batch_size": 40, "max_iter": 2}
    learned, given = (quietly(model(optimizer=optimizer, **params), *data) for optimizer in ("stochastic", None))
    assert learned.elbo_ > given.elbo_ + 1.0
    assert learned.score(*data) > 0.9
    assert isinstance(learned.kernel_, list) == (several and share == "none")
    if (likelihood, bound) in NOISY:
        assert 1e-9 < learned.label_noise_ < 0.3


def test_given_points_are_where_it_starts_and_may_stay():
    given = {"inducing_points": X[:10], "batch_size": 50, "max_iter": 2}
    moved, kept = (quietly(model(learn_inducing=learn, **given), X, Y) for learn in (True, False))
    assert moved.inducing_points_.shape == (10, 2)
    assert not np.allclose(moved.inducing_points_, X[:10])
    assert np.array_equal(kept.inducing_points_, X[:10])
    start = quietly(model(optimizer=None, inducing_points=X[:10]), X, Y)
    assert not np.allclose(kept.kernel_.theta, start.kernel_.theta)
    assert kept.elbo_ > start.elbo_


@pytest.mark.parametrize("n", [2, 3, 10, 60])
@pytest.mark.parametrize("batch_size", [None, 1, 100])
def test_few_rows(n, batch_size):
    fitted = quietly(model(batch_size=batch_size, max_iter=3), X[:n], np.arange(n) % 2)
    assert np.isfinite(fitted.elbo_)
    assert np.all(np.isfinite(fitted.predict_proba(X)))
    assert np.all(np.isfinite(fitted.inducing_points_))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_sorted_by_class_is_learned_as_rows_in_memory(tuned, weighted):
    tuned(kept_rows=2000)
    X, y = waves(20_000)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(y))
    parts = [slice(first, first + 1000) for first in range(0, len(X), 1000)]
    batches = [(X[part], y[part], weight[part]) if weighted else (X[part], y[part]) for part in parts]
    params = {**xgpc.systems["X-GPC"], "n_inducing": 50, "random_state": 0}
    streamed = GPClassifier(**params).fit_batches(batches)
    in_memory = GPClassifier(**params).fit(X, y, weight if weighted else None)
    test = waves(4000, 1)
    assert streamed.converged_
    assert losses(streamed, *test).mean() < losses(in_memory, *test).mean() + 0.01
    # The bound is that of all rows.
    assert streamed.elbo_ == pytest.approx(in_memory.elbo_, rel=0.03)


def fit(X, y, kernel=KERNEL, **params):
    params = {"optimizer": "adam", "inducing_points": X[:15], "random_state": 0, **params}
    return quietly(GPClassifier(kernel, **params), X, y)


@pytest.mark.parametrize("bound", ["exact", "polya-gamma"])
def test_adam_ends_where_profile_does(bound):
    X, y = (part[:150] for part in CANCER)
    kernel = C(2.0) * RBF(np.full(6, 6**0.5))
    profile = fit(X, y, kernel, bound=bound, optimizer="profile")
    for batch_size in (None, 30):
        model = fit(X, y, kernel, bound=bound, batch_size=batch_size)
        assert model.converged_
        assert model.elbo_ > profile.elbo_ - 1.0
        assert model.elbo_ == pytest.approx(best_bound(model, X, y), abs=0.01)


@pytest.mark.parametrize("batch_size", [None, 30])
def test_adam_ends_no_lower_than_mini_batches_alone(batch_size):
    adam, stochastic = (fit(*moons(200), optimizer=each, batch_size=batch_size) for each in ("adam", "stochastic"))
    assert adam.n_iter_ >= stochastic.n_iter_
    assert adam.elbo_ > stochastic.elbo_ - 0.01
