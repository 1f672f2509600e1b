"""Predictions of rows that are read in batches."""

import threading

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from support.frames import named

from xgpc import GPClassifier


def problem(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    return X, (X[:, 0] + np.sin(2.0 * X[:, 1]) > 0.0).astype(int)


def model():
    return GPClassifier(RBF(1.0), n_inducing=20, optimizer=None, n_neighbors=0, random_state=0)


def reader_is_gone():
    return not [thread for thread in threading.enumerate() if thread.name.startswith("xgpc-reader")]


@pytest.mark.parametrize("kind", ["arrays", "with labels", "iterator", "names"])
def test_predictions_of_batches(kind):
    X, y = problem(700)
    given = named(X) if kind == "names" else X
    fitted = model().fit(given, y)
    parts = [slice(0, 300), slice(300, 300), slice(300, 700)]
    source = [(given[part], y[part]) if kind == "with labels" else given[part] for part in parts]
    found = list(fitted.predict_proba_batches(iter(source) if kind == "iterator" else source))
    assert [len(probability) for probability in found] == [300, 0, 400]
    # A row's last bit may depend on where its block ends: the tiles' last rows do not fill a vector.
    for part, probability in zip(parts[::2], found[::2], strict=True):
        np.testing.assert_array_equal(probability, fitted.predict_proba(given[part]))
    np.testing.assert_allclose(np.vstack(found), fitted.predict_proba(given), rtol=1e-13)


def test_predictions_name_a_bad_batch_and_end_the_reader():
    X, y = problem(700)
    for given, bad, message in (
        (named(X), named(X)[["b", "a"]], "feature names should match"),
        (X, X[:, :1], "X has 1 features, .* expecting 2"),
        (X, np.full((3, 2), np.nan), r"X has 6 missing numbers \(NaN\): 3 in feature 0"),
    ):
        fitted = model().fit(given, y)
        found = fitted.predict_proba_batches([given[:5], bad])
        assert next(found).shape == (5, 2)
        with pytest.raises(ValueError, match=message) as caught:
            next(found)
        assert caught.value.__notes__ == ["(batch 1 of the source, counted from 0)"]
        assert reader_is_gone()
    with pytest.raises(ValueError, match="must be a function or an iterable"):
        fitted.predict_proba_batches(X)
    found = fitted.predict_proba_batches(lambda: (X for _ in range(100)))
    next(found)
    found.close()
    assert reader_is_gone()
