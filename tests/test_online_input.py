"""Batches of a stream that are refused or cut short, and what is said of them."""

import numpy as np
import pytest
from support.fits import quietly
from support.online import FIRST, SECOND, X, model, y

# What is refused, and leaves the estimator as it was.


BATCH = {"X": X[SECOND], "y": y[SECOND]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"y": np.full(60, 7)}, r"labels \[7\] that are not in classes_ \[0, 1\]"),
        ({"y": y[SECOND].astype(str)}, r"labels \['0', '1'\] that are not in"),
        ({"y": np.array([0, "1"] * 30, dtype=object)}, r"an array of objects with labels such as 0 \(int\)"),
        ({"y": y[SECOND] + 0.5}, "the label 0.5, which looks like a measurement"),
        ({"y": y[SECOND][:-1]}, "inconsistent numbers of samples"),
        ({"X": X[SECOND][:, :1]}, "X has 1 features, but GPClassifier is expecting 2"),
        ({"X": np.full((60, 2), "a")}, "could not convert string"),
        ({"X": X[SECOND] * np.nan}, "NaN"),
        ({"X": X[:0], "y": y[:0]}, "0 sample"),
        ({"classes": [0, 1, 2]}, r"classes must be None or those of the first call, \[0, 1\]"),
        ({"classes": ["0", "1"]}, "those of the first call"),
        ({"classes": [0]}, "two or more"),
        ({"sample_weight": np.zeros(60)}, "positive weight|non-zero"),
        ({"sample_weight": -np.ones(60)}, "must not be negative"),
        ({"forgetting_factor": 1.5}, "forgetting_factor must be a number from 0 to 1; got 1.5"),
        ({"forgetting_factor": True}, "forgetting_factor"),
        ({"n_new_inducing": -1}, "n_new_inducing must be an integer that is not negative"),
    ],
)
def test_bad_batches_leave_the_model_as_it_was(given, said):
    one = model().partial_fit(X[FIRST], y[FIRST])
    before = dict(vars(one))
    with pytest.raises(ValueError, match=said):
        one.partial_fit(**BATCH | given)
    assert vars(one) == before


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"n_neighbors": 5}, "n_neighbors=5 needs all rows at once"),
        ({"inducing_points": "all"}, "full Gaussian process"),
        ({"class_weight": "balanced"}, "'balanced' needs the number of rows of each class"),
        ({"max_iter": 0}, "max_iter must be"),
    ],
)
def test_parameters_that_need_all_rows_are_refused_in_every_call(params, said):
    fresh = model(**params)
    with pytest.raises(ValueError, match=said):
        fresh.partial_fit(X[FIRST], y[FIRST])
    assert not hasattr(fresh, "classes_")
    one = model().partial_fit(X[FIRST], y[FIRST]).set_params(**params)
    with pytest.raises(ValueError, match=said):
        one.partial_fit(X[SECOND], y[SECOND])


def test_fits_that_keep_rows_cannot_go_on():
    full = model(inducing_points="all").fit(X, y).set_params(inducing_points="kmeans")
    with pytest.raises(ValueError, match="full Gaussian process"):
        full.partial_fit(X, y)
    near = quietly(model(n_neighbors=5, n_inducing=8, optimizer="profile", max_iter=5, tol=1e-2), X, y)
    with pytest.raises(ValueError, match="predicts with 5 neighbours"):
        near.set_params(n_neighbors=0).partial_fit(X, y)


def test_rows_that_promise_less_than_the_tolerance_count_all_the_same():
    one, other = (model(tol=0.1).partial_fit(X, y) for _ in range(2))
    p = one.predict_proba(X)
    sure = np.argmax(np.max(p, axis=1))
    row, label = X[sure : sure + 1], one.classes_[np.argmax(p[sure : sure + 1], axis=1)]
    before = np.min(one.predict_proba(row))
    for _ in range(30):
        one.partial_fit(row, label)
    other.partial_fit(np.repeat(row, 30, axis=0), np.repeat(label, 30))
    assert np.min(one.predict_proba(row)) < 0.9 * before
    assert np.min(one.predict_proba(row)) == pytest.approx(np.min(other.predict_proba(row)), rel=0.1)
