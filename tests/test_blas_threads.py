"""One set of bits, and BLAS as it was: whatever its number of threads, and whichever threads fit."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly
from support.threads import threads_at_work, threads_of_blas
from threadpoolctl import ThreadpoolController, threadpool_limits

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc._threads import BlasLimit, Numerics
from xgpc.rows import blas
from xgpc.rows.batches import read_ahead
from xgpc.rows.blas import single_threaded_blas
from xgpc.rows.executor import Executor
from xgpc.rows.source import ArraySource

# Large enough that BLAS would take threads of its own: without the limit every model has other bits with 4 threads
# than with 1.
M, ROWS = 150, 400
MODELS = {
    "given kernel": GPClassifier(n_inducing=M, optimizer=None, random_state=0),
    "learned": GPClassifier(n_inducing=M, max_iter=2, n_jobs=2, random_state=0),
    "mini-batches": GPClassifier(n_inducing=M, optimizer=None, batch_size=200, max_iter=2, random_state=0),
    "full": GPClassifier(inducing_points="all", optimizer=None),
    "softmax": GPClassifier(n_inducing=M, likelihood="softmax", optimizer=None, max_iter=2, random_state=0),
    "linear": BayesianLinearClassifier(),
}


def bits(name):
    X, y = load_digits(return_X_y=True)
    X, y = X[:ROWS], y[:ROWS] % 2
    model = quietly(clone(MODELS[name]), X, y)
    return np.float64(model.elbo_).tobytes() + model.predict_log_proba(X).tobytes()


def run_everywhere():
    """Fits in the main thread, a worker and a pool, one after the other and at the same time; prints their bits."""
    before, found = threads_of_blas(), set()
    for name in MODELS:
        found.add((name, bits(name)))
        assert threads_of_blas() == before
        worker = threading.Thread(target=lambda name=name: found.add((name, bits(name))))
        worker.start()
        worker.join()
        assert threads_of_blas() == before
    with ThreadPoolExecutor(3) as pool:
        at_once = [pool.submit(bits, name) for name in MODELS]
        found.add(("learned", bits("learned")))
        found |= {(name, future.result()) for name, future in zip(MODELS, at_once, strict=True)}
    assert threads_of_blas() == before
    assert len(found) == len(MODELS)
    for name, content in sorted(found):
        print(name, np.frombuffer(content, dtype=np.uint64).sum(dtype=np.uint64))


def test_fits_in_any_thread_have_one_set_of_bits(tmp_path):
    outputs = set()
    for number in ("1", "4"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": number, "PYTHONPATH": os.path.dirname(__file__)}
        command = [sys.executable, "-c", "import test_blas_threads; test_blas_threads.run_everywhere()"]
        # Elsewhere than in the checkout, whose sources would hide the installed package.
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == len(MODELS)


@pytest.fixture(scope="module", autouse=True)
def one_thread_of_blas():
    """Here as many as there are."""


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield threads_of_blas()


def hold_and_release():
    with single_threaded_blas():
        pass


def test_overlapping_users_leave_the_limits_as_they_were(two_threads):
    """The first to enter leaves first, in another thread than the second."""
    inside, leave = threading.Event(), threading.Event()

    def first():
        with single_threaded_blas():
            inside.set()
            leave.wait(60)

    worker = threading.Thread(target=first)
    worker.start()
    assert inside.wait(60)
    with single_threaded_blas():
        assert set(threads_of_blas()) == {1}
        leave.set()
        worker.join()
        assert set(threads_of_blas()) == {1}
    assert threads_of_blas() == two_threads


def test_a_pass_outside_the_executors_context_leaves_the_limits_as_they_were(two_threads):
    """A pass that fails, too; within one, BLAS has one thread."""
    before = threads_of_blas()
    source, executor, state = ArraySource(np.zeros((3000, 1))), Executor(1), SimpleNamespace(work=1.0)
    assert set(executor.reduce(lambda block, state: [max(threads_of_blas())], source, state)) == {1}
    assert threads_of_blas() == before
    with pytest.raises(ZeroDivisionError):
        executor.reduce(lambda block, state: 1 / 0, source, state)
    assert threads_of_blas() == before


def test_an_interrupt_on_the_way_in_or_out_leaves_the_limits_as_they_were(two_threads):
    """At each call that sets a number, before it and after it."""
    interrupted_at, calls = (), itertools.count(1)

    def interrupted(set_number, number):
        call = next(calls)
        if interrupted_at == (call, False):
            raise KeyboardInterrupt
        set_number(number)
        if interrupted_at == (call, True):
            raise KeyboardInterrupt

    libraries = map(blas.thread_functions, ThreadpoolController().select(user_api="blas").lib_controllers)
    limit = BlasLimit([(get, partial(interrupted, set_number)) for get, set_number in libraries])
    # One call for each library on the way in, and one on the way out.
    for at in itertools.product(range(1, 2 * len(two_threads) + 1), (False, True)):
        interrupted_at, calls = at, itertools.count(1)
        with pytest.raises(KeyboardInterrupt), Numerics(limit.hold, limit.release, limit.lock):
            pass
        assert threads_of_blas() == two_threads
    # Before the way out has begun: all that is left of it is the object.
    single_threaded_blas().__enter__()
    assert threads_of_blas() == two_threads


# Interrupts while threads work: none ends the process, and none leaves threads behind.

CAMPAIGN = Path(__file__).resolve().parents[1] / "tools" / "interrupts.py"
needs_signals = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="interrupts of this system")


@needs_signals
def test_predictions_with_neighbours_survive_interrupts():
    """As ``tools/interrupts.py`` has it, in short: no thread is left at work, and predictions have the same bits."""
    options = ["--call", "predict", "--by", "interrupt", "--times", "10", "--here"]
    done = subprocess.run([sys.executable, CAMPAIGN, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_signals
@pytest.mark.parametrize("kind", ["executor", "reader"])
def test_threads_have_ended_where_an_interrupt_leaves_though_the_wait_for_them_is_interrupted_too(kind):
    raised, left, is_alone = [threading.Event(), threading.Event()], threading.Event(), []

    def interrupt(number, frame):
        for event in raised:
            if not event.is_set():
                event.set()
                raise KeyboardInterrupt

    def work(item):
        for event in raised:
            # Again, if it came just before the main thread began to wait.
            while not event.wait(0.05):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        # Long for a thread, if nobody waits for this one.
        is_alone.append(left.wait(0.3))
        return item

    def run():
        if kind == "reader":
            list(read_ahead(lambda: map(work, [0])))
        else:
            with Executor(2) as executor:
                executor.each(lambda item: work(item) if item else item, [0, 1])

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
        left.set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert is_alone == [False]


def lines_of(call, at=None):
    """Make a call, and raise an exception at a line of its threads and fit, where that has begun for the n-th time.

    Returns the lines, a name and a number, with the numbers of times.
    """
    lines = Counter()

    def trace(frame, event, argument):
        name = frame.f_code.co_filename
        if "/xgpc/rows/" not in name and not name.endswith(("pipeline.py", "classifier.py", "predict.py")):
            return None
        if event == "line":
            lines[name, frame.f_lineno] += 1
            if at is not None and lines[at[0]] == at[1]:
                raise OSError("from outside")
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return lines


@pytest.mark.parametrize("kind", ["fit", "fit_batches", "predict", "predict_proba_batches"])
def test_an_exception_between_any_two_lines_leaves_nothing_behind(kind, two_threads, tuned):
    """No thread at work, the limits of BLAS and the handler as before, and this exception; then the same bits."""
    tuned(parallel_work=0.0, block_rows=50, kept_rows=100)
    X = np.random.default_rng(0).normal(size=(200, 2))
    y, parts = (X[:, 0] > 0.0).astype(int), np.array_split(np.arange(200), 4)
    few = {"n_inducing": 5, "optimizer": None, "max_iter": 2, "random_state": 0, "n_jobs": 2}
    model = GPClassifier(4.0 * RBF(), n_neighbors=0, max_rows_in_model=100, keep_on_interrupt=True, **few)
    calls = {
        "fit": lambda: model.fit(X, y),
        "fit_batches": lambda: model.fit_batches(lambda: ((X[part], y[part]) for part in parts)),
        "predict": lambda: fitted.predict_proba(X),
        "predict_proba_batches": lambda: list(fitted.predict_proba_batches(X[part] for part in parts)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = clone(model).fit(X, y)
        call, handler = calls[kind], signal.getsignal(signal.SIGINT)
        lines, expected = lines_of(call), np.array(fitted.predict_proba(X))
        assert any(name.endswith("executor.py") for name, _ in lines)
        # The first time that a line begins, and another one: that of a ``with`` may be its end.
        for at in [(line, time) for line, times in lines.items() for time in {1, min(2, times)}]:
            with pytest.raises(OSError, match="from outside") as caught:
                lines_of(call, at)
            assert caught.tb is not None
            assert not threads_at_work(), at
            assert threads_of_blas() == two_threads, at
            assert signal.getsignal(signal.SIGINT) is handler, at
            # Another thread would wait for ever for a lock that was left.
            other = threading.Thread(target=hold_and_release, daemon=True)
            other.start()
            other.join(60)
            assert not other.is_alive(), at
        call()
    np.testing.assert_array_equal(fitted.predict_proba(X), expected)


def test_a_pass_that_fails_leaves_no_thread_at_work_and_the_executor_to_use(tuned):
    """The blocks are used again, while the same threads are."""
    tuned(parallel_work=0.0)
    source, state = ArraySource(np.zeros((3000, 1))), SimpleNamespace(work=1.0)
    begun, left, is_alone = threading.Event(), threading.Event(), []

    def fail_beside_another(block, state):
        if block.start:
            begun.set()
            # Long for a thread, if nobody waits for this one.
            is_alone.append(left.wait(0.3))
        assert begun.wait(60)
        return 1 / 0

    with Executor(2) as executor:
        with pytest.raises(ZeroDivisionError):
            executor.reduce(fail_beside_another, source, state)
        left.set()
        assert executor.reduce(lambda block, state: len(block), source, state) == 3000
    assert is_alone
    assert not any(is_alone)
