"""One module for each library, all with the same functions.

make(threads, seed, **settings) : an estimator with fit(X, y) and predict_proba(X), classes 0, ..., C - 1
path(data, threads, seconds) : yields (seconds, model, details) while a model is trained on a Split, for at most
    that long; predictions are made between the steps and their time is not counted; of gpytorch and gpflow with
    settings, which are those of ``make``
"""

import importlib

# What pip installs for those that the package does without.
INSTALL = {
    "gpytorch": "torch gpytorch",
    "gpflow": "gpflow tensorflow tf-keras",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
    "gpboost": "gpboost",
}
NAMES = ("xgpc", "sklearn", *INSTALL)


def method(name):
    """The module of a library."""
    try:
        return importlib.import_module(f"methods.{name}")
    except ImportError as error:
        raise SystemExit(f"{error}: pip install {INSTALL.get(name, name)}") from None
