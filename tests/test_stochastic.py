"""optimizer="stochastic": where mini-batches that learn end, for which models, and what they say of it."""

import itertools
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.preprocessing import StandardScaler
from support.fits import quietly, rows_of, warnings_of
from support.latents import CASES, NOISY, SEVERAL, cases
from support.reference import moons, ringnorm

from xgpc import GPClassifier, systems
from xgpc.approximations.sparse import SparsePrior
from xgpc.inference import ascent, fitting
from xgpc.learning import adam
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


def sizes_of_updates(monkeypatch):
    """Numbers of rows of the updates from now on: a list that grows."""
    sizes, honest = [], ascent.update

    def update(rows, q, site):
        sizes.append(len(rows))
        return honest(rows, q, site)

    for module in (ascent, fitting, adam):
        monkeypatch.setattr(module, "update", update)
    return sizes


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


def test_threads_change_no_bit():
    found = [outcomes(quietly(model(batch_size=50, max_iter=2, n_jobs=n_jobs), X, Y)) for n_jobs in (1, 2)]
    assert found[0] == found[1]


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


def test_it_goes_on_while_the_bound_rises():
    # A window that is always at rest: fields of a board are found one after the other.
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (3000, 2))
    y = (np.floor(X).sum(1) % 2).astype(int)
    params = {"kernel": C(1.0) * RBF([1.0, 1.0]), "batch_size": 100, "tol": 1.0, "inducing_points": X[:40]}
    first, last = (quietly(model(**params, max_iter=most), X, y) for most in (4, 100))
    assert last.converged_
    bounds = rows_of(last, "evaluation")["elbo"]
    assert np.mean(bounds[len(bounds) // 2 :]) - np.mean(bounds[len(bounds) // 4 : len(bounds) // 2]) < 0.01 * len(X)
    assert last.elbo_ > first.elbo_ + NATS_A_ROW * len(X)


def test_max_iter_is_obeyed_and_told():
    few = model(batch_size=50, max_iter=2, tol=1e-9)
    (message,) = warnings_of(few, X, Y)
    assert "max_iter=2 was reached before tol=1e-09 by the mini-batches" in message
    assert "raise max_iter" in message
    assert few.n_iter_ == 2
    assert not few.converged_
    assert few.warnings_ == [message]


def test_an_end_by_tol_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert model(batch_size=50).fit(X, Y).converged_


@pytest.mark.parametrize("batch_size", [None, 50])
def test_the_callback_ends_it(batch_size):
    calls = itertools.count()
    stopped = model(batch_size=batch_size, tol=0.0, max_iter=50, callback=lambda state: next(calls) > 20)
    quietly(stopped, X, Y)
    assert stopped.n_iter_ < 50
    assert not stopped.converged_
    assert np.isfinite(stopped.elbo_)


def test_max_time_ends_it():
    hurried = quietly(model(batch_size=50, tol=0.0, max_iter=100_000, max_time=0.3), X, Y)
    assert hurried.n_iter_ < 100_000
    assert not hurried.converged_
    assert np.isfinite(hurried.elbo_)


def test_an_epoch_is_an_iteration_of_the_history():
    fitted = quietly(model(batch_size=50, max_iter=3, tol=0.0), X, Y)
    epochs = rows_of(fitted, "evaluation")
    assert epochs["evaluation"].tolist() == [1, 2, 3]
    assert epochs["theta"].shape == (3, len(fitted.kernel_.theta))
    assert np.all(np.isfinite(epochs["elbo"]))


def test_the_learning_rate_is_honoured():
    bounds = {
        quietly(model(batch_size=10, max_iter=1, learning_rate=rate), X, Y).elbo_ for rate in ("adaptive", 0.01, 0.5)
    }
    assert len(bounds) == 3


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


def test_label_noise_is_learned():
    random = np.random.default_rng(0)
    flipped = np.where(random.uniform(size=len(Y)) < 0.15, 1 - Y, Y)
    clean, noisy = (
        quietly(model(likelihood="step", bound="additive-noise", batch_size=50, max_iter=10), X, y).label_noise_
        for y in (Y, flipped)
    )
    assert clean < 0.05 < noisy < 0.3


def test_one_kernel_is_shared_unless_told_otherwise():
    fitted = quietly(model(batch_size=50, max_iter=1), *blobs(1200))
    assert fitted.share_ == "kernel"


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


@pytest.mark.parametrize("batch_size", [None, 50])
def test_with_nothing_to_learn_the_posterior_alone_is_fitted(batch_size):
    kernel = C(2.0, "fixed") * RBF([1.0, 1.0], "fixed")
    params = {"kernel": kernel, "inducing_points": X[:10], "learn_inducing": False, "batch_size": batch_size}
    fitted = model(**params).fit(X, Y)
    given = model(optimizer=None, **{**params, "batch_size": None}).fit(X, Y)
    assert fitted.n_iter_ == given.n_iter_ or fitted.converged_
    assert fitted.elbo_ == pytest.approx(given.elbo_, abs=0.05)
    assert fitted.kernel_ == kernel
    assert np.array_equal(fitted.inducing_points_, X[:10])


def test_points_alone_are_learned_of_a_fixed_kernel():
    kernel = C(2.0, "fixed") * RBF([1.0, 1.0], "fixed")
    learned, given = (
        quietly(model(kernel=kernel, inducing_points=X[:5], optimizer=optimizer, batch_size=50, max_iter=3), X, Y)
        for optimizer in ("stochastic", None)
    )
    assert learned.kernel_ == kernel
    assert learned.elbo_ > given.elbo_ + 1.0


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


def test_groups_of_length_scales_are_learned_of_tables():
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    levels = random.choice(list("abcd"), 300)
    table = pandas.DataFrame({"x": X[:, 0], "level": pandas.Categorical(levels), "y": X[:, 1]})
    kernel = C(2.0) * RBF([1.0, 1.0, 1.0])
    learned, given = (
        quietly(model(kernel=kernel, optimizer=optimizer, batch_size=50, max_iter=2), table, Y)
        for optimizer in ("stochastic", None)
    )
    assert len(learned.kernel_.theta) == 4
    assert learned.elbo_ > given.elbo_ + 1.0


def test_the_number_of_points_is_chosen():
    fitted = quietly(model(n_inducing="auto", batch_size=100, max_iter=3), *ringnorm(500, np.random.default_rng(0)))
    assert len(fitted.inducing_points_) >= 32
    assert any("inducing points" in text for text in fitted.decisions_)


def test_one_class_teaches_nothing():
    fitted = model(kernel=KERNEL, batch_size=50).fit(X, np.ones(len(Y)), classes=[0, 1])
    np.testing.assert_allclose(fitted.kernel_.theta, KERNEL.theta)
    assert fitted.converged_


@pytest.mark.parametrize("n", [2, 3, 10, 60])
@pytest.mark.parametrize("batch_size", [None, 1, 100])
def test_few_rows(n, batch_size):
    y = np.arange(n) % 2
    fitted = quietly(model(batch_size=batch_size, max_iter=3), X[:n], y)
    assert np.isfinite(fitted.elbo_)
    assert np.all(np.isfinite(fitted.predict_proba(X)))
    assert np.all(np.isfinite(fitted.inducing_points_))


@pytest.mark.parametrize("batch_size", [None, 100])
def test_few_passes_come_before_and_after_the_steps(monkeypatch, batch_size):
    """Rows in memory may be many: logistic-softmax has two starts of dozens of updates each."""
    X, y = blobs(2500)
    sizes = sizes_of_updates(monkeypatch)
    params = {"likelihood": "logistic-softmax", "bound": "polya-gamma", "kernel": KERNEL, "max_iter": 2}
    quietly(model(batch_size=batch_size, **params), X, y)
    assert len([size for size in sizes if size == len(y)]) < 30
    assert len(sizes) > 80


def test_one_inducing_point_is_enough():
    """Of rows that are all equal there is no second one."""
    y = np.arange(40) % 2
    with pytest.warns(ConvergenceWarning, match="no better than the log likelihood of the labels"):
        model = GPClassifier(**systems["X-GPC"], random_state=0).fit(np.ones((40, 2)), y)
    assert len(model.inducing_points_) == 1
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 2))), 0.5, atol=0.01)
