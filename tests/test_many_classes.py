"""Fits to many classes: the memory that they take, and what is said of it."""

import tracemalloc

import numpy as np
import pytest
from support.fits import quietly
from support.internals import fit_bytes

from xgpc import GPClassifier


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
