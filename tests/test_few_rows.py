"""Default fits to few rows: no poor optimum in silence."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from support.fits import quietly, warnings_of

from xgpc import GPClassifier
from xgpc.acquisition import mutual_information


def disk(X):
    return (np.sum(X**2, axis=1) < 0.8).astype(int)


def ball(X):
    return (np.sum(X**2, axis=1) < 0.82).astype(int)


@pytest.mark.parametrize("seed", range(16))
def test_no_feature_is_missed(seed):
    """A linear effect, a wave and an interaction of ten features: nearly as good as the probabilities themselves."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3700, 10))
    f = 2.0 * X[:, 0] + 1.5 * np.sin(2.0 * X[:, 1]) + X[:, 2] * X[:, 3]
    y = (f + rng.logistic(scale=0.5, size=len(f)) > 0.0).astype(int)
    model = quietly(GPClassifier(random_state=0), X[:700], y[:700])
    best = log_loss(y[700:], 1.0 / (1.0 + np.exp(-2.0 * f[700:])))
    assert log_loss(y[700:], model.predict_proba(X[700:])) < best + 0.1


@pytest.mark.parametrize(("labels", "d", "seed"), [(disk, 2, 0), (disk, 2, 1), (ball, 3, 3)])
def test_active_learning_from_ten_rows_finds_what_random_rows_do(labels, d, seed):
    """It asks where the model is unsure: a kernel that is far too smooth asks for the corners alone."""
    rng = np.random.default_rng(seed)
    pool, test = (rng.uniform(-1.0, 1.0, size=(n, d)) for n in (400, 1000))
    asked = list(range(10))
    while len(asked) < 50:
        model = quietly(GPClassifier(random_state=0), pool[asked], labels(pool[asked]))
        unsure = mutual_information(model, pool)
        unsure[asked] = -1.0
        asked.append(int(np.argmax(unsure)))
    loss = [
        log_loss(
            labels(test), quietly(GPClassifier(random_state=0), pool[rows], labels(pool[rows])).predict_proba(test)
        )
        for rows in (asked, np.arange(50))
    ]
    assert loss[0] < loss[1]


def test_inducing_points_at_all_rows_stay_there():
    """The bound is highest there, as they leave nothing of the rows' variances."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(50, 2)), 2, axis=0)
    y = disk(X)
    model = quietly(GPClassifier(random_state=0), X, y)
    assert np.array_equal(np.unique(model.inducing_points_, axis=0), np.unique(X, axis=0))
    elsewhere = rng.normal(size=(60, 2))
    moved = quietly(GPClassifier(inducing_points=elsewhere, random_state=0), X, y)
    assert not np.array_equal(moved.inducing_points_, elsewhere)


def test_a_bound_below_the_classes_frequencies_is_warned_of():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), (np.arange(60) < 6).astype(int)
    model = GPClassifier(random_state=0)
    with pytest.warns(ConvergenceWarning, match="no better than the log likelihood .* frequencies"):
        model.fit(X, y)
    assert model.elbo_ <= 54 * np.log(0.9) + 6 * np.log(0.1)
    clear = (X[:, 0] > 1.0).astype(int)
    assert warnings_of(GPClassifier(random_state=0), X, clear) == []
