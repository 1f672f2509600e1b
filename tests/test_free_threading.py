"""Threads that share a model or fit at the same time, with and without a global interpreter lock."""

import os
import signal
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from support.reference import moons

from xgpc import GPClassifier

THREADS = 8
X, TWO = moons(300)
MODELS = {
    "sparse": GPClassifier(4.0 * RBF(), n_inducing=30, optimizer=None, random_state=0),
    "several classes": GPClassifier(4.0 * RBF(), n_inducing=20, optimizer=None, random_state=0),
    "full": GPClassifier(4.0 * RBF(), inducing_points="all", optimizer=None),
    "neighbours": GPClassifier(4.0 * RBF(), n_inducing=20, n_neighbors=8, optimizer=None, random_state=0),
}


def at_once(function):
    """What each of some threads makes of the same call, all begun together."""
    barrier = Barrier(THREADS)

    def call(number):
        barrier.wait()
        return function()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, range(THREADS)))


@pytest.mark.parametrize("name", MODELS)
def test_threads_that_fit_at_the_same_time_or_share_a_model_make_the_same_bits(name):
    """The first predictions of a model, too, which make what is kept with it."""

    def fit():
        return clone(MODELS[name]).fit(X, TWO + (X[:, 0] > 1.0) if name == "several classes" else TWO)

    def bits(model):
        return np.float64(model.elbo_).tobytes() + model.predict_proba(X).tobytes()

    expected, shared = bits(fit()), fit()
    assert set(at_once(lambda: bits(fit()))) == {expected}
    assert set(at_once(lambda: bits(shared))) == {expected}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are forks on POSIX systems alone")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_process_that_is_forked_while_another_thread_predicts_can_predict():
    """Whatever locks that thread has: without care the child would wait for one that nobody releases."""
    model, done = MODELS["sparse"].fit(X, TWO), threading.Event()
    expected = model.predict_proba(X).tobytes()

    def busy():
        while not done.is_set():
            model.predict_proba(X)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        codes = []
        for _ in range(20):
            child = os.fork()
            if not child:
                signal.alarm(20)
                os._exit(model.predict_proba(X).tobytes() != expected)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        done.set()
        thread.join()
    assert codes == [0] * 20


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has the lock in any case")
def test_the_core_does_not_enable_the_lock(tmp_path):
    script = "import sys, xgpc, xgpc._local, xgpc._natural_gradient; sys.exit(sys._is_gil_enabled())"
    assert subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=tmp_path).returncode == 0
