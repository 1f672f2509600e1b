"""optimizer="stochastic": where mini-batches that learn end, for which models, and what they say of it."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.preprocessing import StandardScaler
from support.fits import quietly, rows_of
from support.latents import CASES, NOISY, SEVERAL, cases
from support.reference import moons

from xgpc import GPClassifier
from xgpc.approximations.sparse import SparsePrior
from xgpc.likelihoods import record_of

X, Y = moons(300)
KERNEL = C(2.0) * RBF([1.0, 1.0])
CANCER = StandardScaler().fit_transform(load_breast_cancer().data)[:, :6], load_breast_cancer().target
IRIS = StandardScaler().fit_transform(load_iris().data), load_iris().target
# Bounds that a posterior alone has at the start kernel are lower by far more than this.
NATS_A_ROW = 0.01


def model(**params):
    return GPClassifier(**{"optimizer": "stochastic", "n_inducing": 15, "n_neighbors": 0, "random_state": 0, **params})


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


@pytest.mark.parametrize("batch_size", [None, 100])
@pytest.mark.parametrize(("likelihood", "bound"), [("logit", "polya-gamma"), ("probit", "exact")])
@pytest.mark.parametrize("data", [moons(600), waves(800), CANCER], ids=["moons", "waves", "cancer"])
def test_it_ends_near_profile(data, likelihood, bound, batch_size):
    params = {"likelihood": likelihood, "bound": bound, "n_inducing": 20, "length_scale_prior": None, "tol": 5e-5}
    profile = quietly(model(optimizer="profile", **params), *data)
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
def test_threads_divide_large_mini_batches_and_change_no_bit(likelihood, share, monkeypatch):
    rows, labels = waves(9000) if likelihood == "logit" else blobs(9000)
    params = {"likelihood": likelihood, "bound": "auto", "share": share, "batch_size": 4500, "max_iter": 1}
    one, two = (quietly(model(**params, n_jobs=n_jobs), rows, labels) for n_jobs in (1, 2))
    assert outcomes(one) == outcomes(two)
    monkeypatch.setattr("xgpc.inference.mini_batch.PARALLEL_ROWS", len(rows))
    whole = quietly(model(**params), rows, labels)
    np.testing.assert_allclose(outcomes(one), outcomes(whole), rtol=1e-6, atol=1e-6)


# How long it takes.


@pytest.mark.parametrize("batch_size", [None, 50])
def test_tol_is_obeyed(batch_size):
    loose, tight = (quietly(model(batch_size=batch_size, tol=tol), X, Y) for tol in (1e-2, 1e-4))
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


def test_the_kernels_bounds_are_kept():
    kernel = C(2.0, (1.8, 2.2)) * RBF([1.0, 1.0], (0.9, 1.1)) + WhiteKernel(0.1, (0.05, 0.2)) + C(0.1) * DotProduct(1.0)
    fitted = quietly(model(kernel=kernel, batch_size=30, max_iter=3), X, Y)
    theta = rows_of(fitted, "evaluation")["theta"]
    assert np.all((theta >= kernel.bounds[:, 0] - 1e-12) & (theta <= kernel.bounds[:, 1] + 1e-12))
    assert not np.allclose(fitted.kernel_.theta, kernel.theta)


def test_an_average_whose_matrix_cannot_be_factorised_gives_way_to_the_one_before(monkeypatch):
    """All kernels that Adam came to can be factorised; what lies between need not be."""
    honest, refused = SparsePrior.build, []

    def build(spec, Z, dtype):
        if not np.allclose(spec.theta, start) and not refused:
            refused.append(spec.theta)
            raise ValueError("not positive definite")
        return honest(spec, Z, dtype)

    start = KERNEL.theta
    monkeypatch.setattr(SparsePrior, "build", build)
    fitted = quietly(model(kernel=KERNEL, batch_size=50, max_iter=2), X, Y)
    assert refused
    assert np.isfinite(fitted.elbo_)
    assert not np.allclose(fitted.kernel_.theta, start)


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
