"""Exceptions that come from outside at any moment: none may leave anything behind.

    python tools/interrupts.py [--call CALL ...] [--by KIND ...] [--times N] [--rows N] [--seed N]

For each call and kind of exception a process of its own makes the call with two threads again and again, and stops it
at random moments: by a signal, whose handler raises KeyboardInterrupt, as Ctrl-C does, or TimeoutError; or by an
exception between two lines of the package (``line``). A leftover is: another exception than the one that was raised, or
none; a thread that is still at work; another number of threads of BLAS; another handler of signals; an undisturbed call
afterwards with another result; the end of the process. The exit status is 0 if there is none.
"""

import argparse
import copy
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from itertools import product
from pathlib import Path

CALLS = ("fit", "predict", "partial_fit", "fit_batches")
SIGNALS = {"interrupt": KeyboardInterrupt, "timeout": TimeoutError}
# Exceptions of each kind in each call: 304 by signals, and 1000 at lines.
TIMES = {"interrupt": 38, "timeout": 38, "line": 250}


def make_call(name, n_rows):
    """A function that makes the call, and returns bytes of its result."""
    import numpy as np
    from sklearn.gaussian_process.kernels import RBF

    import xgpc.learning.stages
    import xgpc.rows.executor
    from xgpc import GPClassifier

    # Threads for little work, and files that are too large to be kept.
    xgpc.rows.executor.MIN_PARALLEL_WORK, xgpc.learning.stages.LAST_ROWS = 0.0, n_rows // 3
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 2))
    y = (np.sin(3.0 * X[:, 0]) > X[:, 1]).astype(int)
    options = {"n_inducing": 20, "n_jobs": 2, "max_iter": 3, "random_state": 0}
    learning = GPClassifier(n_neighbors=10, keep_on_interrupt=False, **options)
    if name == "fit":
        return lambda: learning.fit(X, y).predict_proba(X[:1000]).tobytes()
    if name == "fit_batches":
        reading = GPClassifier(n_neighbors=0, max_rows_in_model=n_rows // 3, **options)
        parts = np.array_split(np.arange(n_rows), 10)
        return lambda: reading.fit_batches(lambda: ((X[p], y[p]) for p in parts)).predict_proba(X[:1000]).tobytes()
    model = GPClassifier(4.0 * RBF(), optimizer=None, n_neighbors=10, **options).fit(X[::3], y[::3])
    if name == "predict":
        return lambda: model.predict_proba(X).tobytes()
    return lambda: copy.deepcopy(model).partial_fit(X[1::3], y[1::3]).predict_proba(X[:1000]).tobytes()


def state():
    """What a call must leave as it was."""
    from threadpoolctl import threadpool_info

    return [one["num_threads"] for one in threadpool_info()], signal.getsignal(signal.SIGINT)


def threads_at_work():
    """Where other threads are; one without a frame waits for work."""
    me = threading.get_ident()
    return [traceback.extract_stack(frame)[-1] for thread, frame in sys._current_frames().items() if thread != me]


def is_blas_locked():
    """Whether another thread would wait for ever for the limit of BLAS."""
    from xgpc.rows.blas import single_threaded_blas

    def hold_and_release():
        with single_threaded_blas():
            pass

    other = threading.Thread(target=hold_and_release, daemon=True)
    other.start()
    other.join(60)
    return other.is_alive()


class Moments:
    """Raises an exception at random moments of a call, the next one each time: ``raised``, with where it was."""

    def __init__(self, kind, seed):
        self.kind, self.random, self.raised, self.is_on = kind, random.Random(seed), None, False

    def learn(self, call):
        """Make the call once, and return its result."""
        if self.kind in SIGNALS:
            call()
            start = time.perf_counter()
            result = call()
            self.seconds = time.perf_counter() - start
            signal.signal(signal.SIGALRM, lambda number, frame: self._raise(SIGNALS[self.kind]))
            return result
        self.lines, self.left = Counter(), None
        sys.settrace(self._trace)
        result = call()
        sys.settrace(None)
        return result

    def _raise(self, kind):
        if self.is_on:
            self.raised = kind("from outside")
            raise self.raised

    def _trace(self, frame, event, argument):
        place = frame.f_code.co_filename, frame.f_lineno
        if "/xgpc/" not in place[0]:
            return None
        if event == "line" and self.left is None:
            self.lines[place] += 1
        elif event == "line" and place == self.place:
            self.left -= 1
            if not self.left:
                self._raise(RuntimeError)
        return self._trace

    def __enter__(self):
        self.raised, self.is_on = None, True
        if self.kind in SIGNALS:
            signal.setitimer(signal.ITIMER_REAL, self.random.uniform(0.0, self.seconds))
        else:
            # Any line is as likely, however often it runs.
            self.place = self.random.choice(sorted(self.lines))
            self.left = self.random.randint(1, self.lines[self.place])
            sys.settrace(self._trace)

    def __exit__(self, *error):
        self.is_on = False
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def stopped(call, moments, times):
    """Numbers of exceptions that came while the call was at work, and of leftovers, which are told."""
    expected, before, n_met, leftovers = moments.learn(call), state(), 0, []
    while n_met < times:
        told = []
        try:
            with moments:
                call()
            if moments.raised is not None:
                told.append("no exception came out")
        except BaseException as error:
            # Here, because the frames of the call, which the traceback has, may keep alive what should end.
            if error is not moments.raised:
                told.append(f"another exception came out: {error!r}")
            told += [f"at work: {place}" for place in threads_at_work()]
            told += ["the limit of BLAS stays locked"] if is_blas_locked() else []
            if state() != before:
                told.append(f"changed: {before} to {state()}")
        if moments.raised is not None:
            n_met += 1
            where = traceback.extract_tb(moments.raised.__traceback__)
            leftovers += [f"{one}; raised at {[f'{p.filename}:{p.lineno}' for p in where[-5:-1]]}" for one in told]
    if call() != expected:
        leftovers.append("the result is another one afterwards")
    for one in leftovers:
        print(one, file=sys.stderr)
    return n_met, len(leftovers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--call", choices=CALLS, action="append", help="what is stopped (default: all)")
    parser.add_argument("--by", choices=TIMES, action="append", help="what stops it (default: all)")
    parser.add_argument("--times", type=int, help="exceptions of each kind in each call (default: 38, 38, 250)")
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="in this process, one call and kind")
    given = parser.parse_args()
    if given.here:
        warnings.simplefilter("ignore")
        (name,), (kind,) = given.call, given.by
        n_met, n_left = stopped(make_call(name, given.rows), Moments(kind, given.seed), given.times)
        print(f"{name} by {kind}: {n_met} exceptions, {n_left} leftovers", flush=True)
        return n_left != 0
    start, failed = time.perf_counter(), 0
    for name, kind in product(given.call or CALLS, given.by or TIMES):
        options = ["--call", name, "--by", kind, "--times", str(given.times or TIMES[kind]), "--here"]
        more = ["--rows", str(given.rows), "--seed", str(given.seed)]
        status = subprocess.run([sys.executable, Path(__file__), *options, *more]).returncode
        if status:
            failed += 1
            print(f"{name} by {kind}: exit status {status}", flush=True)
    print(f"{failed} of the processes failed; {time.perf_counter() - start:.0f} s")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
