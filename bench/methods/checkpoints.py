"""Training that stops for an evaluation now and then: what GPyTorch and GPflow share."""

import time

import numpy as np
from sklearn.cluster import KMeans

N_INDUCING = 100
# Rows of a mini-batch: after 12 s on electricity, GPyTorch with 256 rows reached an NLL of .439, with 1024 rows .421;
# at 170 steps a second against 140, smaller ones save no time.
BATCH_ROWS = 1024
# Evaluations after this many seconds of training, and each time after so much more: a time to a target is too long by
# a tenth at most; that of xgpc, whose limits grow by a quarter, by a quarter.
FIRST_EVALUATION, EVALUATION_FACTOR = 0.1, 1.1
# Rows predicted at a time; of several classes, draws of the latent values that probabilities are means of.
PREDICTED_ROWS, DRAWS = 4096, 256


def start_centres(X, m, seed=0):
    """Centres of k-means on at most 10 000 rows: the procedure, and the cost, of xgpc's own start."""
    rows = X if len(X) <= 10_000 else np.random.default_rng(seed).permutation(X)[:10_000]
    m = min(m, len(np.unique(rows, axis=0)))
    return KMeans(m, n_init=1, max_iter=30, random_state=seed).fit(rows).cluster_centers_


class Trained:
    """A sparse variational Gaussian process, trained for some seconds: ``_start(X, y)`` builds it, ``_step()`` trains.

    ``_step()`` may raise RuntimeError or ArithmeticError where the library fails: the run ends there for a user, too.
    """

    def __init__(self, threads, seed, seconds=10.0, batch_rows=BATCH_ROWS, **settings):
        self.threads, self.seed, self.seconds, self.batch_rows = threads, seed, seconds, batch_rows
        self.settings = settings

    def train(self, X, y):
        """Yields the seconds when an evaluation is due; only the start and the steps count."""
        before = time.perf_counter()
        self._start(X, y)
        seconds, due = time.perf_counter() - before, FIRST_EVALUATION
        while True:
            before = time.perf_counter()
            try:
                self._step()
            except (RuntimeError, ArithmeticError) as error:
                print(f"training failed after {seconds:.1f} s: {error}")
                return
            seconds += time.perf_counter() - before
            if seconds >= due:
                yield seconds
                if seconds >= self.seconds:
                    return
                due = min(max(due, seconds) * EVALUATION_FACTOR, self.seconds)

    def fit(self, X, y):
        for _ in self.train(X, y):
            pass
        return self
