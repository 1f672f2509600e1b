"""The estimator: scikit-learn's contract, weights, warm starts, predictions, interrupts, threads."""

import signal
import threading
import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning, SkipTestWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
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
