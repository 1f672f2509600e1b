"""Samples of streams: what they keep, and that they stand for all rows."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xgpc import GPClassifier
from xgpc.rows import Reservoir


def batch(n, number=0):
    """Rows whose first feature is their number in the stream, if all batches have n rows."""
    rng = np.random.default_rng(number)
    X = np.column_stack([n * number + np.arange(n), rng.normal(size=n)])
    return X, X[:, 1] > 0.0, rng.uniform(0.5, 2.0, n)


def filled(size, sizes, factor=1.0, seed=0):
    reservoir = Reservoir(size, factor, seed)
    for number, n in enumerate(sizes):
        reservoir.add(*batch(n, number))
    return reservoir


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(1, 20), min_size=1, max_size=6), st.sampled_from([1.0, 0.5]))
def test_it_has_rows_of_the_stream_with_their_labels_in_their_order(size, sizes, factor):
    X, y, weight = filled(size, sizes, factor).rows()
    everything = [np.concatenate(parts) for parts in zip(*map(batch, sizes, range(len(sizes))), strict=True)]
    assert len(X) == len(y) == len(weight) == min(size, sum(sizes))
    places = [int(np.flatnonzero((everything[0] == row).all(axis=1))[0]) for row in X]
    assert places == sorted(set(places))
    np.testing.assert_array_equal(y, everything[1][places])
    ages = np.repeat(np.arange(len(sizes))[::-1], sizes)[places]
    # What a row counts for; rows that were left out are part of the others' weights.
    least = everything[2][places] * factor**ages
    assert np.all(weight >= least * (1.0 - 1e-12))
    if size >= sum(sizes):
        np.testing.assert_allclose(weight, least, rtol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_weighted_sums_are_unbiased(factor):
    n, n_batches, repeats = 20, 6, 3000
    rows = [np.concatenate(parts) for parts in zip(*(batch(n, i) for i in range(n_batches)), strict=True)]
    counts = rows[2] * np.repeat(factor ** np.arange(n_batches)[::-1], n)
    found = np.zeros((repeats, n * n_batches))
    for seed in range(repeats):
        X, _, weight = filled(30, [n] * n_batches, factor, seed).rows()
        found[seed, X[:, 0].astype(int)] = weight
    errors = found.std(axis=0) / np.sqrt(repeats)
    # Five standard errors of 120 means.
    assert np.all(np.abs(found.mean(axis=0) - counts) < 5.0 * errors)
    sums = found.sum(axis=1)
    assert abs(sums.mean() - counts.sum()) < 5.0 * sums.std() / np.sqrt(repeats)


def test_rows_of_weight_0_and_rows_long_forgotten_are_left_out():
    reservoir = Reservoir(100, forgetting_factor=0.1, random_state=0)
    X, y, _ = batch(10)
    reservoir.add(X, y, np.arange(10) % 2)
    assert len(reservoir.rows()[0]) == 5
    for _ in range(7):
        reservoir.add(X[:1], y[:1])
    assert len(reservoir.rows()[0]) == 7


def test_copies_go_on_with_the_same_rows():
    one = filled(15, [10, 10])
    other = pickle.loads(pickle.dumps(one))
    for reservoir in (one, other):
        reservoir.add(*batch(10, 2))
    for mine, theirs in zip(one.rows(), other.rows(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_kernel_learned_again_serves_the_stream():
    """Of a first batch that tells little; the model goes on with all classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0.0, "up", "down")
    reservoir, labels = Reservoir(300, random_state=0), ["down", "level", "up"]
    model, again = (GPClassifier(n_inducing=20, random_state=0) for _ in range(2))
    model.partial_fit(X[:20], y[:20], labels)
    reservoir.add(X[:20], y[:20])
    for start in range(20, 900, 220):
        reservoir.add(X[start : start + 220], y[start : start + 220])
    rows, kinds, weight = reservoir.rows()
    again.partial_fit(rows, kinds, labels, weight).partial_fit(X[:100], y[:100])
    assert again.classes_.tolist() == labels
    assert np.mean(again.predict(X) == y) > np.mean(model.predict(X) == y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size must be a number of rows, 1 or more; got 0"),
        ({"size": 2.5}, "size must be"),
        ({"size": True}, "size must be"),
        ({"size": 3, "forgetting_factor": 0.0}, "forgetting_factor must be above 0"),
        ({"size": 3, "forgetting_factor": 1.1}, "forgetting_factor must be above 0"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(ValueError, match=message):
        Reservoir(**given)


def test_bad_rows_leave_it_as_it_was():
    reservoir = filled(10, [8])
    before = reservoir.rows()
    X, y, weight = batch(4)
    for bad, message in (
        ((X[:, 0], y), r"Expected 2D array"),
        ((X[:3], y), "one label for each of the batch's 3 rows"),
        ((X, y, weight[:3]), r"sample_weight must be \(n,\), for the 4 rows"),
        ((X, y, -weight), "sample_weight must be 0, or from"),
        ((X, y, np.full(4, np.nan)), "sample_weight must be 0, or from"),
        ((X[:, :1], y), "1 features; the batches before have 2"),
    ):
        with pytest.raises(ValueError, match=message):
            reservoir.add(*bad)
    for mine, theirs in zip(reservoir.rows(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ValueError, match="has no rows yet"):
        Reservoir(3).rows()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[np.nan, 0.0]], [True], "contains NaN"),
        ([[0.0, 0.0]], [None], "a missing label"),
        ([[0.0, 0.0]], [np.nan], "a missing label"),
        ([[0.0, 0.0]], [0.5], "the label 0.5, which looks like a measurement"),
        ([[0.0, 0.0]], [b"a"], "Labels must be text, whole numbers or truth values"),
        ([[0.0, 0.0]], np.array([b"a"], dtype=object), "Unknown label type"),
        ([[0.0, 0.0]], ["a"], "labels that are text, such as 'a'; those before are numbers"),
    ],
)
def test_batches_that_do_not_go_with_those_before_are_refused(X, y, message):
    reservoir = filled(5, [3])
    before = reservoir.rows()
    with pytest.raises(ValueError, match=message):
        reservoir.add(X, y)
    for one, other in zip(reservoir.rows(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_batch_with_other_names_is_refused():
    frame = pytest.importorskip("pandas").DataFrame([[0.0, 1.0]], columns=["b", "a"])
    reservoir = filled(5, [3])
    before = reservoir.rows()
    with pytest.raises(ValueError, match=r"columns of X are \['b', 'a'\]"):
        reservoir.add(frame, [True])
    for one, other in zip(reservoir.rows(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_labels_that_would_be_rounded_with_those_before_are_refused():
    reservoir = Reservoir(5, random_state=0)
    reservoir.add(np.zeros((2, 1)), [2**60 + 1, 0])
    with pytest.raises(ValueError, match=r"integers as large as 1152921504606846977 and floating point numbers"):
        reservoir.add(np.zeros((1, 1)), [1.0])
    assert reservoir.rows()[1].tolist() == [2**60 + 1, 0]


def test_a_batch_without_rows_makes_those_before_older():
    reservoir = Reservoir(5, forgetting_factor=0.5, random_state=0)
    reservoir.add(np.empty((0, 1)), [])
    reservoir.add(np.zeros((2, 1)), np.array(["a", "b"], dtype=object))
    reservoir.add(np.empty((0, 1)), [])
    _, y, weight = reservoir.rows()
    assert y.tolist() == ["a", "b"]
    assert weight.tolist() == [0.5, 0.5]
