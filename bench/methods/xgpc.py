"""xgpc's estimator. The path has a new fit for each limit of time, with inducing points alone."""

from measure import timed_fit

from xgpc import GPClassifier

N_INDUCING = 100
# Seconds of the first limit, and how many times longer each is than the one before.
FIRST_LIMIT, LONGER = 0.05, 1.25


def make(threads, seed, **settings):
    return GPClassifier(n_jobs=threads, random_state=seed, **settings)


def path(data, threads, seconds):
    """Fits, until one ends by itself or takes longer than the others may."""
    limit = FIRST_LIMIT
    while True:
        model = make(threads, 0, n_inducing=N_INDUCING, n_neighbors=0, max_time=limit)
        spent = timed_fit(model, data.X, data.y)
        yield spent, model
        # A fit that was not cut would be the same with more time.
        if not any("no time left" in words for words in model.decisions_) or spent > seconds:
            return
        limit *= LONGER
