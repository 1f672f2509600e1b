"""Interrupts while threads work: none may end the process, or leave threads at work.

    python tools/interrupts.py [--call {fit,predict}] [--rows N] [--interrupts N] [--runs N]

Each run is a process of its own. It makes a call with neighbours and two threads, and interrupts it at random moments,
as Ctrl-C does; after each interrupt no thread of the package is at work, and at the end an undisturbed call has the
result of the one before. A run that fails, such as by a segmentation fault, is told with its exit status.
"""

import argparse
import concurrent.futures.thread
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings

CALLS = ("fit", "predict")
# Rows to fit to where the call is a prediction: what is interrupted is the search among them.
FITTED_ROWS = 5000

# Where a pool's thread that has nothing to do is.
WAITING = (concurrent.futures.thread.__file__, threading.__file__)


def make_call(name, n_rows):
    """A function that makes the call, and returns bytes of its result."""
    import numpy as np
    from sklearn.gaussian_process.kernels import RBF

    from xgpc import GPClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 2))
    y = (np.sin(3.0 * X[:, 0]) > X[:, 1]).astype(int)
    options = {"n_inducing": 30, "n_neighbors": 10, "n_jobs": 2, "random_state": 0}
    if name == "fit":
        learning = GPClassifier(max_iter=2, **options)
        return lambda: learning.fit(X, y).predict_proba(X[:1000]).tobytes()
    model = GPClassifier(4.0 * RBF(), optimizer=None, **options).fit(X[:FITTED_ROWS], y[:FITTED_ROWS])
    return lambda: model.predict_proba(X).tobytes()


def threads_at_work():
    """Names of other threads, but for those of a pool that have nothing to do and are about to end."""
    found = []
    for thread in threading.enumerate():
        # None just before the end.
        last = sys._current_frames().get(thread.ident)
        stack = () if last is None else traceback.walk_stack(last)
        is_idle = thread.name.startswith("xgpc") and all(frame.f_code.co_filename in WAITING for frame, _ in stack)
        if thread is not threading.main_thread() and not is_idle:
            found.append(thread.name)
    return found


def interrupted(call, n_interrupts):
    """How many of the interrupts came while the call was at work."""
    start = time.perf_counter()
    expected = call()
    seconds = time.perf_counter() - start
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    moments, n_met = random.Random(0), 0
    for _ in range(n_interrupts):
        try:
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.01, 0.99) * seconds)
            call()
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except KeyboardInterrupt:
            n_met += 1
            if left := threads_at_work():
                raise SystemExit(f"threads are at work after the interrupt: {left}") from None
    if call() != expected:
        raise SystemExit("the result is another one after interrupts")
    return n_met


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--call", choices=CALLS, action="append", help="what is interrupted (default: both)")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--interrupts", type=int, default=25)
    parser.add_argument("--runs", type=int, default=5, help="processes of each call; 0: here, in this one")
    given = parser.parse_args()
    calls, failed = given.call or CALLS, 0
    for name in calls:
        if not given.runs:
            warnings.simplefilter("ignore")
            print(f"{name}: {interrupted(make_call(name, given.rows), given.interrupts)} interrupts met", flush=True)
        for _ in range(given.runs):
            options = ["--call", name, "--rows", str(given.rows), "--interrupts", str(given.interrupts), "--runs", "0"]
            status = subprocess.run([sys.executable, __file__, *options]).returncode
            print(f"{name}: exit status {status}", flush=True)
            failed += status != 0
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
