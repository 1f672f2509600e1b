"""Rows in a file that is mapped into memory are read where they are: fits and predictions make no copy of them."""

import gc
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly
from support.internals import fit_bytes

from xgpc import BayesianLinearClassifier, GPClassifier

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


# Fits by the hundred in one process: memory does not grow with them.

rng = np.random.default_rng(0)
X = rng.normal(size=(100, 3))
TWO = (X[:, 0] + np.sin(2.0 * X[:, 1]) > 0.0).astype(int)
THREE = TWO + (X[:, 2] > 1.0)
GIVEN = {"kernel": 4.0 * RBF(), "n_inducing": 12, "optimizer": None, "random_state": 0}
KINDS = {
    "sparse": (GPClassifier(**GIVEN), TWO),
    "threads": (GPClassifier(**GIVEN, n_jobs=2), TWO),
    "full": (GPClassifier(4.0 * RBF(), inducing_points="all", optimizer=None), TWO),
    "several classes": (GPClassifier(**GIVEN), THREE),
    "mini-batches": (GPClassifier(**GIVEN, batch_size=40, max_iter=3), TWO),
    "neighbours": (GPClassifier(**GIVEN, n_neighbors=5), TWO),
    "learned": (GPClassifier(n_inducing=8, n_neighbors=0, max_iter=2, random_state=0), TWO),
    "linear": (BayesianLinearClassifier(), TWO),
    "failed": (GPClassifier(4.0 * RBF(), n_inducing=0), TWO),
}
# The first load modules and make tables. A model and its arrays are ten kB and more; NumPy's lists of free memory,
# which fill up over the first hundreds of fits and then grow no more, come to less than a kB for each.
FIRST, FITS, KEPT = 5, 35, 2000


def fit(model, y, times):
    for _ in range(times):
        try:
            model.fit(X, y).predict_proba(X)
        except ValueError:
            assert model.n_inducing == 0


@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_with_the_number_of_fits(kind):
    model, y = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit(model, y, FIRST)
        tracemalloc.start()
        try:
            fit(model, y, 2)
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            fit(model, y, FITS)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < KEPT * FITS


# Fits to many classes: the memory that they take, and what is said of it.


def groups_of_rows(n, n_classes, n_features=8):
    """A normal distribution for each class, around centres three of its deviations from 0."""
    random = np.random.default_rng(0)
    centres = random.normal(scale=3.0, size=(n_classes, n_features))
    y = np.arange(n) % n_classes
    return centres[y] + random.normal(size=(n, n_features)), y


def peak_bytes(model, X, y):
    quietly(model, X[:200], y[:200] % 3)
    tracemalloc.start()
    quietly(model, X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def classifier(**params):
    return GPClassifier(
        **{"n_neighbors": 0, "max_iter": 1, "n_inducing": 20, "share": "kernel", "random_state": 0} | params
    )


@pytest.mark.parametrize(
    ("n", "n_classes", "m", "share"),
    [(2000, 60, 10, "kernel"), (500, 30, 100, "kernel"), (500, 30, 60, "none")],
)
def test_memory_is_what_is_said(n, n_classes, m, share):
    X, y = groups_of_rows(n, n_classes)
    peak = peak_bytes(classifier(n_inducing=m, share=share), X, y)
    # Separate kernels' whitened rows are a cache with a limit of its own.
    cache = 8 * n * m * (n_classes if share == "none" else 1)
    assert peak < 1.3 * (fit_bytes(n, n_classes, m, share == "none") + cache + X.nbytes) + 2e6


def test_a_kernel_for_each_class_is_not_tried_without_room(monkeypatch):
    X, y = groups_of_rows(1200, 12)
    monkeypatch.setattr("xgpc.learning.learn.MOST_BYTES", 1e6)
    model = quietly(classifier(share="auto", max_iter=10), X, y)
    assert model.share_ == "kernel"
    assert any("would take" in text and "not tried" in text for text in model.history_["decision"])


def test_a_thousand_classes():
    """Two rows of each, told apart by three deviations in four dimensions."""
    X, y = groups_of_rows(2000, 1000, n_features=4)
    model = quietly(classifier(n_inducing=8, optimizer=None), X, y)
    p = model.predict_proba(X[:20])
    assert p.shape == (20, 1000)
    assert np.allclose(np.sum(p, axis=1), 1.0)
    # By chance .001.
    assert np.mean(p[np.arange(20), y[:20]]) > 0.001
