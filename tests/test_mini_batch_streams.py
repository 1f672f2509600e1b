"""Mini-batches that learn from streams, and go on from checkpoints; rows in random order."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import xgpc
from xgpc import GPClassifier
from xgpc.learning import stages


def waves(n, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 4))
    return X, (np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * random.logistic(size=n) > 0).astype(int)


def log_score(model, X, y):
    return float(np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y])))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_sorted_by_class_is_learned_as_rows_in_memory(monkeypatch, weighted):
    monkeypatch.setattr(stages, "LAST_ROWS", 2000)
    X, y = waves(20_000, 0)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(y))

    class Source:
        def __iter__(self):
            for first in range(0, len(X), 1000):
                part = slice(first, first + 1000)
                yield (X[part], y[part], weight[part]) if weighted else (X[part], y[part])

    params = {**xgpc.systems["X-GPC"], "n_inducing": 50, "random_state": 0}
    streamed = GPClassifier(**params).fit_batches(Source())
    in_memory = GPClassifier(**params).fit(X, y, weight if weighted else None)
    test = waves(4000, 1)
    assert streamed.converged_
    assert log_score(streamed, *test) > log_score(in_memory, *test) - 0.01
    # The bound is that of all rows.
    assert streamed.elbo_ == pytest.approx(in_memory.elbo_, rel=0.03)


def test_mini_batches_go_on_from_a_checkpoint_where_they_were(tmp_path):
    X, y = waves(3000, 0)
    params = {**xgpc.systems["X-GPC"], "n_inducing": 30, "random_state": 0}
    whole = GPClassifier(**params).fit(X, y)
    path, seen = tmp_path / "fit.npz", []

    def stop(state):
        return state.stage == "learning" and state.iteration == 5

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        GPClassifier(**params, checkpoint=path, callback=stop).fit(X, y)
    assert path.exists()

    def look(state):
        if state.stage == "learning":
            seen.append(state.iteration)

    resumed = GPClassifier(**params, checkpoint=path, callback=look).fit(X, y)
    assert min(number for number in seen if number) == 6
    assert not path.exists()
    # Adam's rates and the window are those of the fit that was killed: as many iterations as one has that was not.
    assert resumed.n_iter_ == pytest.approx(whole.n_iter_, rel=0.2)
    assert resumed.elbo_ == pytest.approx(whole.elbo_, abs=0.002 * len(y))
