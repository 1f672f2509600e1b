"""Rows in batches: read ahead by a thread, cut into blocks, and drawn from in one reading."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xgpc.data.survey import Draw, Summary
from xgpc.data.training import training_batch
from xgpc.rows.batches import Rows, in_blocks
from xgpc.rows.block import BLOCK_ROWS


def rows(n, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    return Rows(np.arange(2.0 * n).reshape(n, 2), rng.integers(n_classes, size=n), np.ones(n))


def cut(all_rows, sizes):
    """Batches of these sizes and the rest."""
    places = np.minimum(np.cumsum([0, *sizes]), len(all_rows.X))
    stops = [*places[1:], len(all_rows.X)]
    return [all_rows.part(slice(*place)) for place in zip(places, stops, strict=True)]


KINDS = (
    np.array([3, 1, 2]), np.array([3.0, 1.0, 2.0]), np.array(["c", "a", "bb"]), np.array(["c", "a"], dtype=object),
    np.array([True, False]),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=5), st.sampled_from(KINDS), st.integers(0, 9))
def test_summaries_of_parts_add_to_that_of_all_rows(cuts, labels, seed):
    rng = np.random.default_rng(seed)
    X, y, weight = rng.normal(size=(60, 2)), rng.choice(labels, 60), rng.integers(0, 4, 60)
    places = [0, *sorted(cuts), 60]
    batches = [training_batch((X[i:j], y[i:j], weight[i:j])) for i, j in itertools.pairwise(places) if i < j]
    total, *others = (Summary.of(*one)[0] for one in batches)
    for other in others:
        total = total + other
    whole, codes = Summary.of(*training_batch((X, y, weight)))
    # Whole numbers as weights: their sums have the same bits in any order.
    assert list(total.tally) == list(whole.tally)
    np.testing.assert_array_equal(total.counts, whole.counts)
    assert (total.columns, total.dtype, total.counts[0].sum()) == (whole.columns, whole.dtype, 60)
    classes, order = total.classes()
    np.testing.assert_array_equal(classes, np.unique(y))
    counts = [[np.sum(y == label), np.sum(weight[y == label] > 0), np.sum(weight[y == label])] for label in classes]
    np.testing.assert_array_equal(total.counts[:, order], np.transpose(counts))
    np.testing.assert_array_equal(np.asarray(list(total.tally))[codes], y)


def drawn(all_rows, size, sizes=(), seed=1):
    found, keys = Draw(size), np.random.default_rng(seed)
    for block in in_blocks(cut(all_rows, sizes)):
        found.add(block, keys.random(len(block.X)))
    return found.sample()


@pytest.mark.parametrize("n", [1, 500, 1000])
def test_few_rows_are_all_drawn(n):
    everything = rows(n)
    everything.weight[1::2] = 0.0
    for array, found in zip(everything, drawn(everything, 1000), strict=True):
        np.testing.assert_array_equal(array[::2], found)


@pytest.mark.parametrize("order", ["random", "one class after the other", "rare class last"])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_sample_has_the_classes_in_proportion_and_in_order(order, n_classes):
    everything = rows(30_000, n_classes)
    if order != "random":
        everything.y[:] = np.sort(everything.y)
    if order == "rare class last":
        everything.y[:-40], everything.y[-40:] = everything.y[:-40] % (n_classes - 1), n_classes - 1
    found = drawn(everything, 1000)
    assert len(found.X) == 1000
    assert np.all(np.diff(found.X[:, 0]) > 0.0)
    expected = np.bincount(everything.y) / 30.0
    assert np.all(np.abs(np.bincount(found.y) - expected) < 1.0)
    np.testing.assert_array_equal(found.y, everything.y[(found.X[:, 0] / 2).astype(int)])


def test_a_sample_is_of_rows_of_positive_weight():
    everything = rows(30_000)
    everything.weight[::3] = 0.0
    found = drawn(everything, 1000)
    assert len(found.X) == 1000
    assert np.all(found.weight > 0.0)
    # Fewer of them than asked.
    everything.weight[500:] = 0.0
    assert len(drawn(everything, 1000).X) == np.count_nonzero(everything.weight)


def test_every_row_is_as_likely_to_be_drawn():
    n, size, repetitions = 4 * BLOCK_ROWS, 400, 300
    everything = rows(n)
    counts = np.zeros(n)
    for seed in range(repetitions):
        counts[(drawn(everything, size, seed=seed).X[:, 0] / 2).astype(int)] += 1
    # Sums over tenths of the rows are near normal: within five standard deviations.
    tenths = counts[: n // 10 * 10].reshape(10, -1).sum(axis=1)
    mean = repetitions * size / 10
    assert np.all(np.abs(tenths - mean) < 5.0 * np.sqrt(mean))
