"""Training that stops for an evaluation now and then: what the paths of the variational libraries share."""

import time

import numpy as np
from sklearn.cluster import KMeans

# Evaluations after this many seconds of training, and each time after so much more: a time to a target is too long by
# a tenth at most; that of xgpc, whose numbers of iterations grow by a half, may be too long by a third.
FIRST_EVALUATION = 0.1
EVALUATION_FACTOR = 1.1


def start_centres(X, m, seed=0):
    """Centres of k-means on at most 10 000 rows: the procedure, and the cost, of xgpc's own start."""
    rows = X if len(X) <= 10_000 else np.random.default_rng(seed).permutation(X)[:10_000]
    m = min(m, len(np.unique(rows, axis=0)))
    return KMeans(m, n_init=1, max_iter=30, random_state=seed).fit(rows).cluster_centers_


def checkpoints(start, step, limit):
    """Yields (seconds, steps) when an evaluation is due; only the start and the steps count.

    ``start()`` builds the model, ``step()`` trains it a little and may raise RuntimeError or ArithmeticError where the
    library fails: the run ends there for a user, too.
    """
    before = time.perf_counter()
    start()
    seconds, due, steps = time.perf_counter() - before, FIRST_EVALUATION, 0
    while True:
        before = time.perf_counter()
        try:
            step()
        except (RuntimeError, ArithmeticError) as error:
            print(f"training failed after {seconds:.1f} s: {error}")
            return
        seconds, steps = seconds + time.perf_counter() - before, steps + 1
        if seconds >= due:
            yield seconds, steps
            if seconds >= limit:
                return
            due = min(max(due, seconds) * EVALUATION_FACTOR, limit)
