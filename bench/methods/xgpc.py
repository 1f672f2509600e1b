"""xgpc's estimator; its path is a fit from scratch for each number of iterations, of inducing points alone."""

from measure import timed_fit

from xgpc import GPClassifier

N_INDUCING = 100
MAX_ITERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200)


def make(threads=2, seed=0, **settings):
    return GPClassifier(n_jobs=threads, random_state=seed, **settings)


def path(data, threads, seconds):
    """Fits, until one converges or takes longer than the others may."""
    for max_iter in MAX_ITERS:
        model = make(threads, n_inducing=N_INDUCING, n_neighbors=0, max_iter=max_iter)
        spent = timed_fit(model, data.X, data.y)
        yield spent, model, {"max_iter": max_iter}
        # More iterations would be the same fit.
        if model.converged_ or spent > seconds:
            return
