"""Rows in a file that is mapped into memory are read where they are: fits and predictions make no copy of them."""

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from xgpc import GPClassifier

N, D = 12_000, 100


@pytest.fixture(params=[np.float32, np.float64])
def mapped(request, tmp_path, monkeypatch):
    """Features, whose start values are looked for among few rows, as the rows looked at are copied."""
    monkeypatch.setattr("xgpc.learning.inducing.SAMPLE_ROWS", 100)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(request.param)
    np.save(tmp_path / "X.npy", X)
    return np.load(tmp_path / "X.npy", mmap_mode="r"), (X[:, 0] > 0.0).astype(int)


def peak(function, *given):
    """Most bytes that a call takes at a time, and what it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tracemalloc.start()
        try:
            result = function(*given)
            return tracemalloc.get_traced_memory()[1], result
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "options", [{"optimizer": None}, {"optimizer": None, "batch_size": 500}, {"max_iter": 2, "learn_inducing": False}]
)
def test_a_fit_copies_no_mapped_rows(mapped, options):
    X, y = mapped
    model = GPClassifier(kernel=RBF(10.0), n_inducing=5, n_neighbors=0, random_state=0, subset_sizes=[500], **options)
    for weight in (None, np.full(N, 2.0)):
        most, _ = peak(model.fit, X, y, weight)
        assert most < 0.5 * X.nbytes


def test_predictions_copy_no_mapped_rows(mapped):
    X, y = mapped
    model = GPClassifier(kernel=RBF(10.0), n_inducing=5, optimizer=None, random_state=0).fit(X[:100], y[:100])
    for method in (model.predict_proba, model.predict, model.predict_log_proba, model.predict_latent):
        most, _ = peak(method, X)
        assert most < 0.5 * X.nbytes
    in_memory = np.array(X)
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(in_memory))
