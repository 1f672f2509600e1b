"""Fits and what their histories tell."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator

from xgpc import GPClassifier


def without_warnings(method, *given, **named):
    """A call whose warnings of convergence are not what the test is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return method(*given, **named)


def quietly(model, X, y, **options):
    return without_warnings(model.fit, X, y, **options)


def fit(X, y, kernel=None, *, sample_weight=None, groups=None, **params):
    """A fit that is the same whenever it is made."""
    model = GPClassifier(kernel, **{"random_state": 0, **params})
    return quietly(model, X, y, sample_weight=sample_weight, groups=groups)


def clone_of(model):
    return pickle.loads(pickle.dumps(model))


def reloaded(model, folder):
    model.save(folder / "model.npz")
    return type(model).load(folder / "model.npz")


def kept(model, folder, X):
    """The model that a file keeps of another, with the same kernel and predictions at X."""
    loaded = reloaded(model, folder)
    assert loaded.kernel_ == model.kernel_
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    return loaded


def assert_same_bits(one, other, X, names=("elbo_", "kernel_", "inducing_points_"), other_X=None):
    """Two models predict the same of rows, which the other may have in another form, and have the same attributes."""
    other_X = X if other_X is None else other_X
    for method in ("predict_log_proba", "predict_latent", "predict"):
        np.testing.assert_equal(getattr(other, method)(other_X), getattr(one, method)(X), err_msg=method)
    for name in names:
        np.testing.assert_equal(getattr(other, name, None), getattr(one, name, None), err_msg=name)


def refuses(message, function, /, *given, error=ValueError, **named):
    """A call ends in an error, which is returned, whose text has a pattern; an estimator is what it was before."""
    estimator = getattr(function, "__self__", None)
    before = dict(vars(estimator)) if isinstance(estimator, BaseEstimator) else None
    with pytest.raises(error, match=message) as caught:
        function(*given, **named)
    assert before is None or vars(estimator) == before
    return caught.value


def peak_bytes(function, *given):
    """Most bytes that a call takes at a time, and what it returns."""
    tracemalloc.start()
    try:
        result = without_warnings(function, *given)
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def failed_checks(estimator):
    """Names of those of scikit-learn's own checks that an estimator fails."""
    with warnings.catch_warnings():
        # Raised by scikit-learn where its array-API switch is off; the check says nothing of this estimator.
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = check_estimator(estimator, on_fail=None)
    skipped = [result["check_name"] for result in results if result["status"] == "skipped"]
    assert set(skipped) <= {"check_array_api_input"}
    return {result["check_name"] for result in results if result["status"] not in ("passed", "skipped")}


def assert_weights_are_copies(model, X, y, weight, elbo, probability):
    """A row of weight w counts as w rows, up to a relative error of the bound and one of probabilities: both fits."""
    weighted = quietly(clone(model), X, y, sample_weight=weight)
    repeated = quietly(clone(model), np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=elbo)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=0.0, atol=probability)
    return weighted, repeated


def losses(model, X, y):
    return -model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]


def rows_of(model, column):
    """The history's rows that have a value in a column: a table of arrays."""
    values = model.history_[column]
    chosen = values != "" if values.dtype.kind == "U" else np.isfinite(values)
    return {name: array[chosen] for name, array in model.history_.items()}


def warnings_of(model, X, y, **options):
    """Texts of the warnings of a fit, which all are of convergence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, **options)
    assert all(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return [str(warning.message) for warning in caught]
