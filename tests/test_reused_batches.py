"""Sources that fill the memory of one batch with the next: what they make is what batches of their own memory make."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from xgpc import GPClassifier

N, SIZE = 6000, 700


def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, (np.sin(3.0 * X[:, 0]) > X[:, 1]).astype(int), rng.uniform(0.5, 2.0, N)


def parts():
    return [slice(start, min(start + SIZE, N)) for start in range(0, N, SIZE)]


class Frame:
    """A table of which X is a view, as those of other libraries may be."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.values


WRAPPED = {"array": lambda X: X, "frame": lambda X: pd.DataFrame(X, copy=False), "own type": Frame}


def reusing(arrays, wrap):
    """A function that gives the batches one after the other in the same memory, and clears it at the end."""

    def read():
        memory = [np.empty_like(array[:SIZE]) for array in arrays]
        for part in parts():
            n = part.stop - part.start
            for place, array in zip(memory, arrays, strict=True):
                place[:n] = array[part]
            yield wrap(memory[0][:n]), *(place[:n] for place in memory[1:])
        for place in memory:
            place[:] = 0

    return read


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("last_rows", [1500, N])
def test_fits_are_those_of_batches_that_stay(kind, last_rows, monkeypatch):
    """Whether all rows are kept, or each pass reads them."""
    monkeypatch.setattr("xgpc.learning.stages.LAST_ROWS", last_rows)
    arrays = problem()
    model = GPClassifier(RBF(1.0), n_inducing=20, n_neighbors=0, optimizer=None, random_state=0, n_jobs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        names = kind == "frame"
        kept = [
            (pd.DataFrame(arrays[0][part]) if names else arrays[0][part], *(a[part] for a in arrays[1:]))
            for part in parts()
        ]
        expected = model.fit_batches(kept).elbo_, model.predict_proba(arrays[0][:50]).tobytes()
        found = model.fit_batches(reusing(arrays, WRAPPED[kind])).elbo_, model.predict_proba(arrays[0][:50]).tobytes()
    assert found == expected


@pytest.mark.parametrize("kind", WRAPPED)
def test_predictions_are_those_of_batches_that_stay(kind):
    X, y, _ = problem()
    model = GPClassifier(RBF(1.0), n_inducing=20, n_neighbors=0, optimizer=None, random_state=0).fit(X[:500], y[:500])
    expected = list(model.predict_proba_batches([X[part] for part in parts()]))
    found = list(model.predict_proba_batches(reusing((X,), WRAPPED[kind])))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
