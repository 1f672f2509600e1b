"""Rows in batches: read ahead by a thread, cut into blocks, and drawn from in one reading."""

import itertools
import threading
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xgpc.data.batches import reading
from xgpc.data.draw import Draw
from xgpc.data.survey import Summary
from xgpc.data.training import training_batch
from xgpc.rows.batches import BatchSource, Rows, in_blocks, read_ahead
from xgpc.rows.block import BLOCK_ROWS
from xgpc.rows.source import NONE, ArraySource


def rows(n, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    return Rows(np.arange(2.0 * n).reshape(n, 2), rng.integers(n_classes, size=n), np.ones(n))


def cut(all_rows, sizes):
    """Batches of these sizes and the rest."""
    places = np.minimum(np.cumsum([0, *sizes]), len(all_rows.X))
    stops = [*places[1:], len(all_rows.X)]
    return [all_rows.part(slice(*place)) for place in zip(places, stops, strict=True)]


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("xgpc-reader")]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3 * BLOCK_ROWS), max_size=8))
def test_blocks_do_not_depend_on_batches(sizes):
    everything = rows(2 * BLOCK_ROWS + 17)
    blocks = list(in_blocks(cut(everything, sizes)))
    assert [len(block.X) for block in blocks] == [BLOCK_ROWS, BLOCK_ROWS, 17]
    for array, parts in zip(everything, zip(*blocks, strict=True), strict=True):
        np.testing.assert_array_equal(array, np.concatenate(parts))


def test_items_are_read_in_order_by_one_other_thread_which_ends():
    threads = set()

    def items():
        for i in range(20):
            threads.add(threading.current_thread())
            yield i

    assert list(read_ahead(items)) == list(range(20))
    assert len(threads) == 1
    assert threading.main_thread() not in threads
    assert not readers()


def test_one_item_is_read_ahead_and_no_more():
    made = []
    wanted = threading.Semaphore(0)

    def items():
        for i in range(5):
            made.append(i)
            wanted.release()
            yield i

    with closing(read_ahead(items)) as ahead:
        assert next(ahead) == 0
        # The second is made though nobody has asked for it.
        assert wanted.acquire(timeout=60)
        assert wanted.acquire(timeout=60)
        assert made == [0, 1]
    assert made == [0, 1]


@pytest.mark.parametrize("n_used", [0, 1, 3])
def test_whoever_stops_early_leaves_no_thread_and_no_open_iterator(n_used):
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(threading.current_thread().name)

    with closing(read_ahead(items)) as ahead:
        for _ in range(n_used):
            next(ahead)
    assert not readers()
    # What belongs to a thread, as connections of SQLite do, is closed in it.
    assert all(name.startswith("xgpc-reader") for name in closed)
    assert len(closed) == min(n_used, 1)


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt(), MemoryError()])
def test_what_the_reader_raises_is_raised_in_the_caller(error):
    def items():
        yield 1
        raise error

    ahead = read_ahead(items)
    assert next(ahead) == 1
    with pytest.raises(type(error)) as caught:
        next(ahead)
    assert caught.value is error
    assert not readers()


class Anew:
    def __iter__(self):
        return iter([1, 2])


class Counted:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        # Without an IndexError, which would end an iteration that does not ask for the length.
        return i + 1


@pytest.mark.parametrize("source", [[1, 2], (1, 2), Anew(), Counted(), lambda: iter([1, 2]), lambda: [1, 2]])
def test_what_can_be_read_again(source):
    read = reading(source)
    assert list(read()) == list(read()) == [1, 2]


@pytest.mark.parametrize("source", [iter([1]), (i for i in range(3)), map(str, [1])])
def test_what_can_be_read_once(source):
    with pytest.raises(ValueError, match=r"read only once.*a function that returns a new iterator"):
        reading(source)
    assert len(list(reading(source, again=False)())) > 0


@pytest.mark.parametrize("source", ["rows.csv", 3, np.zeros((3, 2)), None, {"X": 1}])
def test_what_is_no_source(source):
    with pytest.raises(ValueError, match="must be a function or an iterable"):
        reading(source)
    with pytest.raises(ValueError, match="must return an iterator"):
        reading(lambda: source)()


def source_of(all_rows, sizes):
    return BatchSource(lambda: iter(cut(all_rows, sizes)), len(all_rows.X), 2, float(len(all_rows.X)))


@pytest.mark.parametrize("weight", [True, False])
def test_a_source_of_batches_is_one_of_rows(weight):
    everything = rows(2 * BLOCK_ROWS + 5)
    if not weight:
        everything = everything._replace(weight=NONE)
    source, memory = source_of(everything, [3, 1000, 1300]), ArraySource(*everything)
    assert len(source.blocks()) == len(memory.blocks()) == 3
    for one, other in zip(source.blocks(), memory.blocks(), strict=True):
        assert (one.start, len(one)) == (other.start, len(other))
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.weight, other.weight)
    np.testing.assert_array_equal(source.labels(), memory.labels())
    numbers = np.array([5, 2000, 17, 2000])
    for scale in (1.0, 2.0):
        one, other = source.sample(numbers, scale), memory.sample(numbers, scale)
        for name in ("X", "y", "weight"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


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
    assert (total.columns, total.dtype, total.n_rows) == (whole.columns, whole.dtype, 60)
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


def test_a_class_may_have_rows_of_weight_zero_alone():
    everything = rows(5000, 3)
    everything.weight[everything.y == 2] = 0.0
    assert set(drawn(everything, 1000).y.tolist()) == {0, 1}


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


@settings(deadline=None)
@given(st.lists(st.integers(0, 9000), max_size=5))
def test_a_sample_does_not_depend_on_batches(sizes):
    everything = rows(9000, 3)
    for one, other in zip(drawn(everything, 700), drawn(everything, 700, sizes), strict=True):
        np.testing.assert_array_equal(one, other)
