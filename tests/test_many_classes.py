"""Fits to many classes: the memory that they take, and what is said of it."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.multiclass import OneVsRestClassifier
from support.fits import quietly

from xgpc import GPClassifier
from xgpc.learning import memory


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
    assert peak < 1.3 * (memory.fit_bytes(n, n_classes, m, share == "none") + cache + X.nbytes) + 2e6


def test_a_fit_that_takes_much_memory_is_warned_of(monkeypatch):
    X, y = groups_of_rows(400, 20)
    monkeypatch.setattr(memory, "MOST_BYTES", 0.99 * memory.fit_bytes(400, 20, 20, False))
    with pytest.warns(UserWarning, match=r"400 rows to 20 classes with 20 inducing points takes about .* GB") as caught:
        quietly(classifier(optimizer=None), X, y)
    # ``fit`` is called there.
    assert [Path(one.filename).name for one in caught] == ["fits.py"]


def test_what_is_chosen_by_default_is_not(monkeypatch, recwarn):
    X, y = groups_of_rows(400, 20)
    monkeypatch.setattr(memory, "MOST_BYTES", 1.01 * memory.fit_bytes(400, 20, 64, False))
    model = classifier(n_inducing="auto", optimizer=None, kernel=None).fit(X, y)
    assert not [one for one in recwarn if "GB" in str(one.message)]
    assert len(model.inducing_points_) == 64


@pytest.mark.parametrize(("n_classes", "own"), [(3, False), (26, True), (1000, False), (1000, True)])
def test_added_points_have_room(n_classes, own):
    m = memory.most_points(100, n_classes, own)
    assert 32 <= m <= memory.MAX_INDUCING
    assert memory.fit_bytes(0, n_classes, m, own) <= 0.5 * memory.MOST_BYTES
    assert m == memory.MAX_INDUCING or memory.fit_bytes(0, n_classes, m + 1, own) > 0.5 * memory.MOST_BYTES


@pytest.mark.parametrize(("n", "n_classes", "most"), [(52_200, 7, 68), (18_000, 26, 53), (10**6, 10, 32)])
def test_points_of_many_rows_and_classes_are_few(n, n_classes, most):
    assert memory.most_points(n, n_classes, own_kernels=False) == most
    assert memory.most_points(n, None, own_kernels=False) == memory.MAX_INDUCING


def test_a_kernel_for_each_class_is_not_tried_without_room(monkeypatch):
    X, y = groups_of_rows(1200, 12)
    monkeypatch.setattr("xgpc.learning.share.MOST_BYTES", 1e6)
    model = quietly(classifier(share="auto", max_iter=10), X, y)
    assert model.share_ == "kernel"
    assert any("would take" in text and "not tried" in text for text in model.history_["decision"])


def test_one_class_against_the_rest_is_nearly_as_good():
    """What the warning names in place of a joint fit."""
    X, y = groups_of_rows(900, 8, n_features=3)
    train = np.arange(len(y)) < 600
    losses = []
    for model in (classifier(max_iter=20), OneVsRestClassifier(classifier(max_iter=20))):
        p = quietly(model, X[train], y[train]).predict_proba(X[~train])
        assert np.allclose(np.sum(p, axis=1), 1.0)
        losses.append(-np.mean(np.log(p[np.arange(len(p)), y[~train]])))
    assert losses[1] < losses[0] + 0.05


def test_a_thousand_classes():
    """Two rows of each, told apart by three deviations in four dimensions."""
    X, y = groups_of_rows(2000, 1000, n_features=4)
    model = quietly(classifier(n_inducing=8, optimizer=None), X, y)
    p = model.predict_proba(X[:20])
    assert p.shape == (20, 1000)
    assert np.allclose(np.sum(p, axis=1), 1.0)
    # By chance .001.
    assert np.mean(p[np.arange(20), y[:20]]) > 0.001
