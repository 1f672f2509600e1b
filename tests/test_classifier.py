"""The estimator: scikit-learn's contract, weights, warm starts, predictions, interrupts, threads."""

import signal
import threading
import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning, SkipTestWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from support.fits import without_warnings
from support.reference import moons, ringnorm, waveform
from threadpoolctl import threadpool_limits

import xgpc
from xgpc import GPClassifier

ROWS, LABELS = moons(40)


def test_scikit_learns_own_checks():
    with warnings.catch_warnings():
        # Raised by scikit-learn where its array-API switch is off; the check says nothing of this estimator.
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = check_estimator(GPClassifier(max_iter=1), on_fail=None)
    failed = [result["check_name"] for result in results if result["status"] not in ("passed", "skipped")]
    assert failed == []
    assert [r["check_name"] for r in results if r["status"] == "skipped"] in ([], ["check_array_api_input"])


def test_as_good_as_scikit_learns_laplace_approximation_with_its_kernel():
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(StandardScaler().fit_transform(X), y, test_size=0.3, random_state=0)
    kernel = 1.0 * RBF(5.0)
    model = GPClassifier(kernel, random_state=0).fit(X, y)
    # Its many small calls of BLAS wait for each other's threads on a busy machine.
    with threadpool_limits(1):
        laplace = GaussianProcessClassifier(kernel, random_state=0).fit(X, y)
    assert log_loss(y_test, model.predict_proba(X_test)) <= log_loss(y_test, laplace.predict_proba(X_test))
    assert model.score(X_test, y_test) >= laplace.score(X_test, y_test) - 1.5 / len(y_test)


def test_learned_hyperparameters_raise_the_bound_and_the_accuracy():
    X, y = ringnorm(3000, np.random.default_rng(0))
    given = GPClassifier(n_inducing=50, optimizer=None, n_neighbors=0, random_state=0).fit(X[:2000], y[:2000])
    learned = GPClassifier(n_inducing=50, random_state=0, n_neighbors=0, max_iter=1000).fit(X[:2000], y[:2000])
    assert learned.elbo_ > given.elbo_ + 100
    losses = [log_loss(y[2000:], model.predict_proba(X[2000:])) for model in (learned, given)]
    assert losses[0] < losses[1]
    # Bounds of fewer rows, those that decide on neighbours left out, are another function.
    bounds = learned.history_["elbo"][learned.history_["n_rows"] == 2000]
    assert learned.elbo_ >= np.nanmax(bounds) - 1e-6 * abs(learned.elbo_)
    assert not np.allclose(learned.inducing_points_, given.inducing_points_)


def test_a_warning_says_why_learning_stopped_short():
    X, y = moons()
    # The posterior, which has as many iterations, may have a warning of its own.
    with pytest.warns(ConvergenceWarning) as caught:
        assert not GPClassifier(n_inducing=10, max_iter=2, random_state=0).fit(X, y).converged_
    assert "max_iter=2 was reached before tol=0.0001 by the optimizer" in str(caught[0].message)


@pytest.mark.parametrize("params", [{}, {"batch_size": 50}], ids=str)
def test_n_jobs_does_not_change_a_bit(params):
    # Three blocks of rows.
    X, y = waveform(2400, np.random.default_rng(0))
    models = [GPClassifier(n_inducing=70, max_iter=5, random_state=0, n_jobs=n_jobs, **params) for n_jobs in (1, 2, 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = [model.fit(X, y).predict_proba(X) for model in models]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    assert models[0].elbo_ == models[1].elbo_ == models[2].elbo_


def test_warm_start_converges_at_once_and_to_the_same_posterior():
    X, y = moons(300)
    model = GPClassifier(n_inducing=25, optimizer=None, warm_start=True, tol=1e-8, random_state=0).fit(X, y)
    first, steps = model.predict_proba(X), model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < steps
    # A bound within 1e-8 nats of the optimum fixes the posterior to some 1e-4 of its standard deviations.
    np.testing.assert_allclose(model.predict_proba(X), first, atol=1e-4)
    model.set_params(optimizer="profile", max_iter=300).fit(X, y)
    bound = model.elbo_
    evaluations = len(model.history_["elbo"])
    model.fit(X, y)
    assert model.elbo_ >= bound - 1e-3
    assert len(model.history_["elbo"]) < evaluations


def test_warm_start_with_other_features_starts_afresh():
    X, y = moons(100)
    model = GPClassifier(n_inducing=10, optimizer=None, warm_start=True, random_state=0).fit(X, y)
    assert "decision" not in model.history_
    model.fit(X[:, :1], y)
    assert model.inducing_points_.shape == (10, 1)
    assert "begins anew" in model.history_["decision"][0]
    # It goes on where it can, without a word.
    assert "decision" not in model.fit(X[:, :1], y).history_


def test_predictions_agree_with_each_other():
    X, y = moons()
    y = np.array(["no", "yes"])[y]
    model = GPClassifier(n_inducing=20, random_state=0).fit(X, y)
    far = np.vstack([X, 50 * X])
    proba = model.predict_proba(far)
    mean, variance = model.predict_latent(far)
    assert np.array_equal(model.predict(far), model.classes_[np.argmax(proba, axis=1)])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(np.log(proba), model.predict_log_proba(far), atol=1e-12)
    np.testing.assert_allclose(expit(model.decision_function(far)), proba[:, 1], atol=1e-12)
    clear = np.abs(mean) > 1e-12
    assert np.array_equal(mean[clear] > 0, proba[clear, 1] > 0.5)
    assert np.all(variance >= 0)


def test_joint_covariance_of_the_latent_function():
    X, y = moons()
    kernel = ConstantKernel(2.0) * RBF(0.7) + WhiteKernel(0.1)
    model = GPClassifier(kernel, n_inducing=15, optimizer=None, random_state=0).fit(X, y)
    mean, covariance = model.predict_latent(X[:30], return_cov=True)
    alone, variance = model.predict_latent(X[:30])
    assert np.array_equal(mean, alone)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-9)
    assert np.linalg.eigvalsh(covariance).min() > 0.09
    q = model.posterior_
    a = np.linalg.solve(q.prior.L, kernel.k1(q.prior.Z, X[:30])).T
    expected = kernel(X[:30]) - a @ a.T + a @ np.linalg.inv(q.R @ q.R.T) @ a.T
    np.testing.assert_allclose(covariance, expected, atol=1e-9)


def test_far_from_the_data_the_prior_returns():
    X, y = moons()
    model = GPClassifier(ConstantKernel(3.0) * RBF(1.0), n_inducing=20, optimizer=None, random_state=0).fit(X, y)
    mean, variance = model.predict_latent(X + 100)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    np.testing.assert_allclose(variance, 3.0, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X + 100), 0.5, atol=1e-12)


def test_full_gaussian_process_has_the_highest_bound():
    X, y = moons(120)
    kernel = ConstantKernel(3.0) * RBF(0.6)
    params = {"optimizer": None, "random_state": 0}
    bounds = [GPClassifier(kernel, n_inducing=m, **params).fit(X, y).elbo_ for m in (5, 20, 60)]
    full = GPClassifier(kernel, inducing_points="all", **params).fit(X, y)
    assert np.all(np.diff([*bounds, full.elbo_]) > 0)
    assert full.inducing_points_.shape == X.shape


@pytest.mark.parametrize("method", ["kmeans", "random"])
def test_mini_batches_through_the_estimator(method):
    X, y = moons(400)
    model = GPClassifier(
        n_inducing=30, inducing_points=method, batch_size=40, max_iter=20, tol=1e-12, optimizer=None, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="max_iter=20 was reached"):
        model.fit(X, y)
    full = clone(model).set_params(batch_size=None, max_iter=200, tol=1e-6).fit(X, y)
    assert full.elbo_ - model.elbo_ < 2e-3 * abs(full.elbo_)
    assert not model.converged_
    assert full.converged_
    assert np.nanmax(model.history_["epoch"]) == 20


def test_mini_batches_learn_hyperparameters_on_a_subset():
    X, y = ringnorm(3000, np.random.default_rng(0))
    given = GPClassifier(n_inducing=30, batch_size=100, optimizer=None, tol=1e-3, random_state=0).fit(X, y)
    learned = clone(given).set_params(optimizer="profile", subset_sizes=[500]).fit(X, y)
    assert learned.elbo_ > given.elbo_ + 100
    table = learned.history_
    assert np.all(table["n_rows"][np.isfinite(table["evaluation"])] == 500)
    assert np.all(table["n_rows"][np.isfinite(table["epoch"])] == 3000)


def test_jitter_escalates_is_reported_and_ends_in_an_error(monkeypatch):
    model = GPClassifier(random_state=0, optimizer=None)
    assert model.fit(ROWS, LABELS).jitter_ == 1e-6
    honest, failures = xgpc.approximations.sparse.cholesky_and_inverse, [2]

    def failing(matrix):
        failures[0] -= 1
        return None if failures[0] >= 0 else honest(matrix)

    monkeypatch.setattr("xgpc.approximations.sparse.cholesky_and_inverse", failing)
    assert model.fit(ROWS, LABELS).jitter_ == pytest.approx(1e-4)
    failures[0] = 10**6
    with pytest.raises(ValueError, match=r"not positive definite, even with a relative jitter of 0\.1"):
        model.fit(ROWS, LABELS)


@pytest.mark.parametrize("params", [{}, {"batch_size": 100}], ids=str)
def test_a_signal_stops_a_fit_that_would_not_end(params):
    """Another thread raises it in the midst of the fourth iteration or epoch."""
    X, y = ringnorm(20_000, np.random.default_rng(0))
    bound = {"bound": "polya-gamma", "kernel": ConstantKernel(5000.0) * RBF(13.4), "max_iter": 10**6, "tol": 0.0}
    recorded, under_way = [], threading.Event()
    before, started = set(threading.enumerate()), set()

    def told(state):
        recorded.append(state.stage)
        started.update(threading.enumerate())
        if recorded.count("posterior") == 4:
            under_way.set()

    def interrupt():
        if under_way.wait(60):
            signal.raise_signal(signal.SIGINT)

    model = GPClassifier(n_inducing=100, optimizer=None, random_state=0, n_jobs=2, callback=told, **bound, **params)
    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    other.join()
    assert recorded.count("posterior") >= 4
    assert "posterior_" not in vars(model)
    workers = started - before - {other}
    # Mini-batches are too small to share among threads.
    assert workers or params
    assert not any(worker.is_alive() for worker in workers)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("params", [{"optimizer": None}, {"max_iter": 3}], ids=str)
def test_bits_do_not_depend_on_the_threads_of_blas(tmp_path, params):
    """With m where LAPACK takes threads of its own: fits, loaded models and covariances under any limit."""
    X, y = waveform(600, np.random.default_rng(0))
    results = []
    for limit in (1, 2):
        with threadpool_limits(limit), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = GPClassifier(n_inducing=200, random_state=0, **params).fit(X, y)
            model.save(tmp_path / "model.npz")
            loaded = GPClassifier.load(tmp_path / "model.npz")
            results += [(m.predict_proba(X), m.predict_latent(X[:200], return_cov=True)[1]) for m in (model, loaded)]
    for proba, covariance in results[1:]:
        assert np.array_equal(proba, results[0][0])
        assert np.array_equal(covariance, results[0][1])


def test_a_bound_no_better_than_a_coin_is_told():
    """Length scales of 1 on raw features: no row is near another, the model finds nothing."""
    X, y = moons(60)
    with pytest.warns(ConvergenceWarning, match="no better than the log likelihood of the labels"):
        GPClassifier(ConstantKernel() * RBF(1.0, (1e-3, 2.0)), random_state=0).fit(1e4 * X, y)


@pytest.mark.parametrize("optimizer", ["profile", "alternate", "adam"])
def test_a_start_outside_the_bounds_is_learned_within_them(optimizer):
    X, y = moons()
    kernel = ConstantKernel(1.0, (2.0, 3.0)) * RBF(1.0)
    model = without_warnings(
        GPClassifier(kernel, n_inducing=10, optimizer=optimizer, max_iter=5, random_state=0).fit, X, y
    )
    assert 2.0 * (1 - 1e-12) <= model.kernel_.k1.constant_value <= 3.0 * (1 + 1e-12)
