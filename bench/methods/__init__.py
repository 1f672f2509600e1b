"""The methods that are measured: estimators with ``fit(X, y)`` and ``predict_proba(X)`` for classes 0, ..., C - 1.

Adding a method takes its line in ``METHODS`` and a module with ``make(threads, seed, **settings)``, which returns the
estimator. An estimator that is trained step by step also has ``train(X, y)``, which yields the seconds of training when
it is time to look at the model.
"""

import functools
import importlib
from typing import NamedTuple

import problems
from measure import timed_fit

# Threads of every method.
THREADS = 2
# Boosted trees end after so many rounds without gain. So many trees are out of reach, so that this decides: electricity
# takes 1600 trees of LightGBM (NLL .160, after 1000 of them .168).
PATIENCE, MOST_TREES = 50, 10_000


class CannotFit(Exception):
    """A method is not for a data set, for the reason given."""


class Method(NamedTuple):
    """The title in tables, the library, its module here and what that is told."""

    title: str
    library: str
    module: str
    settings: dict


METHODS = {
    "xgpc": Method("xgpc", "xgpc", "xgpc", {}),
    "lightgbm": Method("LightGBM", "lightgbm", "lightgbm", {}),
    "catboost": Method("CatBoost", "catboost", "catboost", {}),
    "xgboost": Method("XGBoost", "xgboost", "xgboost", {}),
    "histogram": Method("HistGradientBoosting", "sklearn", "sklearn", {"name": "histogram"}),
    "forest": Method("random forest", "sklearn", "sklearn", {"name": "forest"}),
    "logistic": Method("logistic regression", "sklearn", "sklearn", {"name": "logistic"}),
    "svm": Method("support vector machine", "sklearn", "sklearn", {"name": "svm"}),
    "laplace": Method("GaussianProcessClassifier", "sklearn", "sklearn", {"name": "laplace"}),
    "gpytorch": Method("GPyTorch", "gpytorch", "gpytorch", {}),
    "gpflow": Method("GPflow", "gpflow", "gpflow", {}),
    "tabm": Method("TabM", "pytabkit", "pytabkit", {"name": "tabm"}),
    "realmlp": Method("RealMLP", "pytabkit", "pytabkit", {"name": "realmlp"}),
    "xrfm": Method("xRFM", "xrfm", "xrfm", {}),
    "gpboost": Method("GPBoost", "gpboost", "gpboost", {}),
    "explainable": Method("explainable boosting", "interpret", "interpret", {}),
}


def module(name):
    """The adapter of a method."""
    return importlib.import_module(f"methods.{METHODS[name].module}")


def make(name, threads=THREADS, seed=0, **settings):
    """A method's estimator."""
    return module(name).make(threads, seed, **METHODS[name].settings, **settings)


def path(name, data, seconds, threads=THREADS, **settings):
    """Yields (seconds, model) while a method is trained for at most that long; predictions between do not count."""
    if name == "xgpc":
        yield from module(name).path(data, threads, seconds)
        return
    model = make(name, threads, seconds=seconds, **settings)
    for spent in model.train(data.X, data.y):
        yield spent, model


@functools.cache
def warm_up(name, threads=THREADS, **settings):
    """A first fit: imports, threads and first calls cost time once in a process."""
    data = problems.split(problems.load(None, "breast-cancer"), seed=0)
    timed_fit(make(name, threads, **settings), data.X, data.y)
