"""optimizer="stochastic": where mini-batches that learn end, for which models, and what they say of it."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import ConstantKernel as C
from support.fits import quietly
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


def outcomes(fitted):
    """What seeds decide."""
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


# Where it ends.


@pytest.mark.parametrize(("likelihood", "bound"), [("logit", "polya-gamma"), ("probit", "exact")])
@pytest.mark.parametrize("data", [waves(800), CANCER], ids=["waves", "cancer"])
def test_it_ends_near_profile(data, likelihood, bound):
    params = {"likelihood": likelihood, "bound": bound, "n_inducing": 20, "length_scale_prior": None, "tol": 5e-5}
    profile = quietly(model(optimizer="profile", **params), *data)
    for batch_size in (None, 100):
        learned = model(batch_size=batch_size, **params).fit(*data)
        assert learned.converged_
        assert learned.elbo_ > profile.elbo_ - NATS_A_ROW * len(data[1])


@pytest.mark.parametrize(("likelihood", "bound"), [("softmax", "exact"), ("multinomial-probit", "additive-noise")])
@pytest.mark.parametrize("share", ["kernel", "none"])
def test_several_classes_end_near_profile(likelihood, bound, share):
    X, y = blobs(600)
    params = {"likelihood": likelihood, "bound": bound, "share": share, "length_scale_prior": None, "tol": 5e-5}
    profile = quietly(model(optimizer="profile", **params), X, y)
    learned = model(batch_size=100, **params).fit(X, y)
    assert learned.elbo_ > profile.elbo_ - NATS_A_ROW * len(y)


def test_the_posterior_is_the_best_one_for_what_was_learned():
    """Not an average of mini-batches."""
    learned = quietly(model(batch_size=50, max_iter=5), X, Y)
    params = {"optimizer": None, "inducing_points": learned.inducing_points_, "tol": 1e-8, "max_iter": 1000}
    again = model(kernel=learned.kernel_, **params).fit(X, Y)
    assert learned.elbo_ == pytest.approx(again.elbo_, abs=0.2)


def test_it_is_determined_by_the_seed():
    found = [outcomes(quietly(model(batch_size=50, max_iter=2, random_state=seed), X, Y)) for seed in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.parametrize(
    ("likelihood", "share"), [("logit", "kernel"), ("softmax", "none"), ("logistic-softmax", "kernel")]
)
def test_threads_divide_large_mini_batches_and_change_no_bit(likelihood, share, tuned):
    rows, labels = waves(9000) if likelihood == "logit" else blobs(9000)
    params = {"likelihood": likelihood, "bound": "auto", "share": share, "batch_size": 4500, "max_iter": 1}
    one, two = (quietly(model(**params, n_jobs=n_jobs), rows, labels) for n_jobs in (1, 2))
    assert outcomes(one) == outcomes(two)
    tuned(parallel_batch_rows=len(rows))
    whole = quietly(model(**params), rows, labels)
    np.testing.assert_allclose(outcomes(one), outcomes(whole), rtol=1e-6, atol=1e-6)


# How long it takes.


@pytest.mark.parametrize("batch_size", [None, 50])
@pytest.mark.parametrize("optimizer", ["stochastic", "adam"])
def test_tol_and_max_iter_are_obeyed(optimizer, batch_size):
    given = {"optimizer": optimizer, "batch_size": batch_size}
    few = quietly(model(**given, max_iter=3, tol=0.0), X, Y)
    assert few.n_iter_ == 3
    assert not few.converged_
    loose, tight = (quietly(model(**given, tol=tol), X, Y) for tol in (1e-2, 1e-4))
    assert loose.converged_
    assert tight.converged_
    assert loose.n_iter_ < tight.n_iter_
    assert tight.elbo_ > loose.elbo_ - 0.1


# What it learns.


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
    moved, kept = (
        quietly(model(inducing_points=X[:10], learn_inducing=learn, batch_size=50, max_iter=2), X, Y)
        for learn in (True, False)
    )
    assert moved.inducing_points_.shape == (10, 2)
    assert not np.allclose(moved.inducing_points_, X[:10])
    assert np.array_equal(kept.inducing_points_, X[:10])
    start = quietly(model(optimizer=None, inducing_points=X[:10]), X, Y)
    assert not np.allclose(kept.kernel_.theta, start.kernel_.theta)
    assert kept.elbo_ > start.elbo_


def test_weights_count_as_repetitions():
    """Of rows that all are in each step."""
    counts = np.random.default_rng(0).integers(1, 4, size=len(Y))
    params = {"inducing_points": X[:10], "kernel": KERNEL, "tol": 1e-5}
    weighted = quietly(model(**params), X, Y, sample_weight=counts)
    repeated = quietly(model(**params), np.repeat(X, counts, axis=0), np.repeat(Y, counts))
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, abs=NATS_A_ROW * np.sum(counts))


@pytest.mark.parametrize("n", [2, 3, 10, 60])
@pytest.mark.parametrize("batch_size", [None, 1, 100])
def test_few_rows(n, batch_size):
    y = np.arange(n) % 2
    fitted = quietly(model(batch_size=batch_size, max_iter=3), X[:n], y)
    assert np.isfinite(fitted.elbo_)
    assert np.all(np.isfinite(fitted.predict_proba(X)))
    assert np.all(np.isfinite(fitted.inducing_points_))


# Mini-batches that learn from streams; rows in random order.


def noisy_waves(n, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 4))
    return X, (np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * random.logistic(size=n) > 0).astype(int)


def log_score(model, X, y):
    return float(np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y])))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_sorted_by_class_is_learned_as_rows_in_memory(tuned, weighted):
    tuned(kept_rows=2000)
    X, y = noisy_waves(20_000, 0)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(y))

    class Source:
        def __iter__(self):
            for first in range(0, len(X), 1000):
                part = slice(first, first + 1000)
                yield (X[part], y[part], weight[part]) if weighted else (X[part], y[part])

    params = {**xgpc.systems["X-GPC"], "n_inducing": 50, "random_state": 0}
    streamed = GPClassifier(**params).fit_batches(Source())
    in_memory = GPClassifier(**params).fit(X, y, weight if weighted else None)
    test = noisy_waves(4000, 1)
    assert streamed.converged_
    assert log_score(streamed, *test) > log_score(in_memory, *test) - 0.01
    # The bound is that of all rows.
    assert streamed.elbo_ == pytest.approx(in_memory.elbo_, rel=0.03)


# optimizer="adam": mini-batches that learn, and L-BFGS from where they end, which is where "profile" ends.

FEW, FEW_LABELS = moons(200)


def fit(X=FEW, y=FEW_LABELS, kernel=KERNEL, **params):
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


@pytest.mark.parametrize("bound", ["exact", "polya-gamma"])
def test_it_ends_where_profile_does(bound):
    X, y = (part[:150] for part in CANCER)
    kernel = C(2.0) * RBF(np.full(6, 6**0.5))
    profile = fit(X, y, kernel, bound=bound, optimizer="profile")
    for batch_size in (None, 30):
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
def test_tolerances_of_both_parts_are_obeyed(batch_size):
    loose, tight = (fit(batch_size=batch_size, tol=tol, max_iter=60) for tol in (1e-2, 1e-5))
    assert loose.n_iter_ < tight.n_iter_
    assert tight.elbo_ > loose.elbo_ - 0.1
