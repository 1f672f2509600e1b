"""Memory: fits and predictions do not copy rows of a file that is mapped, and fits by the hundred keep nothing."""

import gc
import tracemalloc

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from support.fits import peak_bytes, quietly
from support.reference import additive

from xgpc import BayesianLinearClassifier, GPClassifier

N, D = 12_000, 100


@pytest.fixture(params=[np.float32, np.float64])
def mapped(request, tmp_path, tuned):
    """Features, whose start values are looked for among few rows, as the rows looked at are copied."""
    tuned(start_rows=100)
    X = np.random.default_rng(0).normal(size=(N, D)).astype(request.param)
    np.save(tmp_path / "X.npy", X)
    return np.load(tmp_path / "X.npy", mmap_mode="r"), (X[:, 0] > 0.0).astype(int)


@pytest.mark.parametrize(
    "options", [{"optimizer": None}, {"optimizer": None, "batch_size": 500}, {"max_iter": 2, "learn_inducing": False}]
)
def test_a_fit_copies_no_mapped_rows(mapped, options):
    X, y = mapped
    model = GPClassifier(kernel=RBF(10.0), n_inducing=5, n_neighbors=0, random_state=0, subset_sizes=[500], **options)
    # A first fit imports modules, which are no copies of rows.
    quietly(model, X[:600], y[:600])
    for weight in (None, np.full(N, 2.0)):
        assert peak_bytes(model.fit, X, y, weight)[0] < 0.5 * X.nbytes


def test_predictions_copy_no_mapped_rows(mapped):
    X, y = mapped
    model = GPClassifier(kernel=RBF(10.0), n_inducing=5, optimizer=None, random_state=0).fit(X[:100], y[:100])
    for method in (model.predict_proba, model.predict, model.predict_log_proba, model.predict_latent):
        assert peak_bytes(method, X)[0] < 0.5 * X.nbytes
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(np.array(X)))


X, TWO = additive(100, d=3)
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
    "callback": (GPClassifier(**GIVEN, callback=lambda state: None), TWO),
    "linear": (BayesianLinearClassifier(), TWO),
    "failed": (GPClassifier(4.0 * RBF(), n_inducing=0), TWO),
}
# The first load modules and make tables. A model and its arrays are ten kB and more; NumPy's lists of free memory,
# which fill up over the first hundreds of fits and then grow no more, come to less than a kB for each.
FIRST, FITS, KEPT = 5, 35, 2000


def fit(model, y, times):
    for _ in range(times):
        try:
            quietly(model, X, y).predict_proba(X)
        except ValueError:
            assert model.n_inducing == 0


@pytest.mark.parametrize(("model", "y"), KINDS.values(), ids=KINDS)
def test_memory_does_not_grow_with_the_number_of_fits(model, y):
    """And what a fit needs is freed when it ends, not when Python searches for cycles of references."""
    fit(model, y, FIRST)
    sizes = []
    tracemalloc.start()
    try:
        for times in (2, FITS):
            gc.disable()
            fit(model, y, times)
            n_in_cycles = gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        gc.enable()
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < KEPT * FITS
    assert n_in_cycles < FITS
