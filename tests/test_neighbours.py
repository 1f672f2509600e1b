"""The nearest rows, and which rows ask which."""

from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GroupKFold, PredefinedSplit, TimeSeriesSplit
from support.fits import quietly, refuses
from support.splitters import recording

from xgpc import GPClassifier
from xgpc.learning.hold_out import HoldOut
from xgpc.rows.neighbours import Metric, Neighbours


def distances(rows, points, index, power=2):
    return np.linalg.norm(rows[index] - points[:, None], ord=power, axis=2)


def nearest_distances(rows, points, k, power=2):
    """Of the k nearest, by comparing all."""
    return np.sort(np.linalg.norm(points[:, None] - rows, ord=power, axis=2), axis=1)[:, :k]


def assert_distinct(index):
    assert all(len(np.unique(found)) == index.shape[1] for found in index)


def assert_nearest(rows, points, index, power):
    """Which of equally near rows they are does not matter."""
    assert_distinct(index)
    expected = nearest_distances(rows, points, index.shape[1], power)
    assert_allclose(distances(rows, points, index, power), expected, rtol=1e-7, atol=1e-7)


def rows_of(n, d, kind):
    rng = np.random.default_rng(n + d)
    rows = rng.normal(size=(n, d))
    if kind == "repeated":
        return rows[rng.integers(3, size=n)]
    return {"distinct": rows, "rounded": np.round(rows), "constant": np.full((n, d), 1.5)}[kind]


every_kind = pytest.mark.parametrize("kind", ["distinct", "rounded", "repeated", "constant"])
every_power = pytest.mark.parametrize("power", [2, 1])


@every_kind
# More features than there are principal directions, and fewer.
@pytest.mark.parametrize("d", [1, 3, 25, 70])
@pytest.mark.parametrize("k", [1, 2, 24])
@every_power
def test_the_nearest_are_found(kind, d, k, power):
    rows, points = rows_of(700, d, kind), np.random.default_rng(1).normal(size=(30, d))
    assert_nearest(rows, points, Neighbours(rows, Metric(power=power)).of(points, k), power)


@pytest.mark.parametrize("n", [1, 2, 127, 129, 2048, 2049, 5000])
@pytest.mark.parametrize("d", [2, 30])
@every_power
def test_the_nearest_of_any_number_of_rows(n, d, power):
    """Of rows whose features are multiplied."""
    rows, points = rows_of(n, d, "distinct"), np.random.default_rng(1).normal(size=(9, d))
    scale = np.linspace(0.5, 4.0, d)
    near, k = Neighbours(rows, Metric(scale, power)), min(n, 13)
    assert_nearest(scale * rows, scale * points, near.of(points, k), power)
    assert_allclose(near.metric.distances(rows[:1], points), np.linalg.norm(scale * (rows[0] - points), power, axis=1))
    assert np.array_equal(near.of(rows, 1)[:, 0], np.arange(n))


@every_power
def test_of_equally_near_rows_the_first_are_found(power):
    """Whole numbers have exact distances."""
    rows = np.random.default_rng(0).integers(-3, 4, size=(3000, 3)).astype(float)
    points, index = rows[:50] + 0.5, Neighbours(rows, Metric(power=power)).of(rows[:50] + 0.5, 20)
    sums = np.sum(np.abs(points[:, None] - rows) ** power, axis=2)
    assert np.array_equal(index, np.argsort(sums, axis=1, kind="stable")[:, :20])


@every_power
def test_the_nearest_are_found_if_the_singular_value_decomposition_fails(power, monkeypatch):
    """LAPACK's fast routine did on rows of sixty columns with levels, in one of its builds."""

    rows, points = rows_of(300, 20, "distinct"), rows_of(40, 20, "distinct")
    monkeypatch.setattr(np.linalg, "svd", Mock(side_effect=np.linalg.LinAlgError("SVD did not converge")))
    assert_nearest(rows, points, Neighbours(rows, Metric(power=power)).of(points, 7), power)


@every_power
def test_near_rows_far_from_others(power):
    """Their distances are below the rounding errors of single precision, which compares rows first."""
    rows = 1e-9 * rows_of(500, 5, "distinct")
    rows[7] = 1e3
    index = Neighbours(rows, Metric(power=power)).of_rows(6)
    sums = np.sum(np.abs(rows[:, None] - rows) ** power, axis=2)
    np.fill_diagonal(sums, np.inf)
    assert_allclose(np.take_along_axis(sums, index, axis=1), np.sort(sums, axis=1)[:, :6], rtol=1e-7)


@every_kind
@pytest.mark.parametrize("d", [2, 25])
@pytest.mark.parametrize("k", [1, 7, 299])
def test_a_row_is_not_among_its_neighbours(kind, d, k):
    """Not even if more than k rows are equal to it; with k = n - 1 all others are."""
    rows = rows_of(300, d, kind)
    index = Neighbours(rows, Metric()).of_rows(k)
    assert index.shape == (300, k)
    assert index.dtype == np.int32
    assert not np.any(index == np.arange(300)[:, None])
    assert_distinct(index)
    assert_allclose(distances(rows, rows, index), nearest_distances(rows, rows, k + 1)[:, 1:], rtol=1e-7, atol=1e-7)
    if k == 299:
        assert np.array_equal(np.sort(index, axis=1), [np.delete(np.arange(300), i) for i in range(300)])


@every_power
def test_if_few_rows_are_compared_most_of_the_nearest_are_found(tuned, power):
    tuned(compared_rows=3000)
    rows = rows_of(31_000, 12, "distinct")
    some = np.random.default_rng(0).choice(len(rows), 40, replace=False)
    found = Neighbours(rows, Metric(power=power)).of(rows[some], 24)
    exact, found_distances = nearest_distances(rows, rows[some], 24, power), distances(rows, rows[some], found, power)
    assert 0.7 < np.mean(found_distances <= exact[:, -1:]) < 1.0
    assert np.array_equal(found[:, 0], some)
    assert_distinct(found)
    assert np.all(np.diff(found_distances, axis=1) >= 0.0)


@pytest.mark.parametrize("exact", [1, 30_000])
def test_neighbours_of_equal_rows(exact, tuned):
    """As many as are asked for, however few rows are compared."""
    tuned(all_compared_rows=exact, compared_rows=1)
    rows = rows_of(400, 25, "distinct")
    rows[100:300] = rows[0]
    near = Neighbours(rows, Metric())
    for k in (1, 12, 60, 399):
        index = near.of_rows(k)
        assert not np.any(index == np.arange(400)[:, None])
        assert_distinct(index)
        twins = np.concatenate([[0], np.arange(100, 300)])
        assert np.all(np.isin(index[twins][:, : min(k, 60)], twins))


@pytest.mark.parametrize("exact", [500, 30_000])
@pytest.mark.parametrize("d", [2, 25])
@every_power
def test_any_number_of_threads_finds_the_same(d, exact, power, tuned):
    """Whatever other points are given with them."""
    tuned(all_compared_rows=exact, compared_rows=500)
    rows = rows_of(2500, d, "rounded")
    near, points = Neighbours(rows, Metric(power=power)), rows[:1300] + 0.3
    one, others = near.of_rows(20, 1), near.of(points, 20)
    for n_threads in (2, 3):
        assert np.array_equal(one, near.of_rows(20, n_threads))
        assert np.array_equal(others, near.of(points, 20, n_threads))
    assert all(np.array_equal(others[i : i + 1], near.of(points[i : i + 1], 20)) for i in range(0, 1300, 100))


@pytest.mark.parametrize("d", [2, 25])
@pytest.mark.parametrize("scale", [1e-300, 1e100, 1e160, 1e300])
@every_power
def test_neighbours_of_far_points_are_rows(d, scale, power):
    """Whatever overflows: the compiled predictions read the rows that they are told to."""
    rows, metric = rows_of(300, d, "distinct"), Metric(power=power)
    for near, points in ((Neighbours(rows, metric), scale * rows[:5]), (Neighbours(scale * rows, metric), rows[:5])):
        for index in (near.of(points, 7), near.of_rows(7)):
            assert np.all((index >= 0) & (index < 300))
            assert_distinct(index)


def holding_out(groups=None, splitter=None):
    return HoldOut(groups, splitter, np.where(np.arange(1000) % 3, 1.0, -1.0), np.random.RandomState(0))


def assert_parts(one, n, size=np.inf):
    """Ascending numbers of rows below n, of two sides that have no row in common, at most ``size``."""
    for rows in one:
        assert len(rows)
        assert np.all(np.diff(rows, prepend=-1, append=n) > 0)
    assert not len(np.intersect1d(*one))
    assert sum(map(len, one)) <= size


@pytest.mark.parametrize("size", [8, 400, 1000, 5000])
def test_rows_ask_at_random(size):
    source = holding_out()
    draws = [one for _ in range(2) for one in source.draw(size)]
    n, decision = min(size, 1000), source.decision()
    for one, sizes in (*((one, [n - n // 2, n // 2]) for one in draws), (decision, [900, 100])):
        assert_parts(one, 1000)
        assert [len(rows) for rows in one] == sizes
    assert not np.array_equal(draws[0][1], draws[1][1])


@pytest.mark.parametrize("sizes", [[1] * 1000, [10] * 100, [990, 10], [10, 990], [500, 499, 1], [970, 10, 10, 10]])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_groups_stay_on_one_side(sizes, share, tuned):
    tuned(decision_share=share)
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    source = holding_out(groups=groups)
    splits = [one for _ in range(5) for size in (100, 1000) for one in source.draw(size)]
    decisions = [source.decision() for _ in range(5)]
    # A decision needs the standard error of a mean over groups.
    assert all(len(held_out) > 0 for _, held_out in decisions) == (len(sizes) > 3)
    if len(sizes) > 3:
        assert all(len(np.unique(groups[rows])) > 1 for one in decisions for rows in one)
        splits += decisions
    for one in splits:
        assert_parts(one, 1000)
        assert not len(np.intersect1d(*(groups[rows] for rows in one)))
        # However unequal the groups are, there are rows to learn from.
        assert len(one[0]) >= (50 if len(sizes) != 4 else 20)


@pytest.mark.parametrize("size", [50, 400, 1000])
def test_time_runs_one_way(size):
    """Every row that asks is later than all that answer."""
    source = holding_out(splitter=TimeSeriesSplit(5))
    draws = source.draw(size)
    # Each of the splitter's splits has an equal part of the rows.
    assert len({one[1][0] // 166 for one in draws}) == len(draws) == 5
    assert sum(len(rows) for one in draws for rows in one) <= size
    for one in [source.decision(), *draws, *source.folds(None)]:
        assert_parts(one, 1000)
        assert one[0][-1] < one[1][0]
    assert source.decision()[1][-1] == 999
    # What is decided by is later than what is learned from, however that is divided again.
    others, kept = source.decision()
    for again in source.among(others).draw(size):
        assert_parts(again, len(others))
        assert again[0][-1] < again[1][0]
        assert others[again[1][-1]] < kept[0]


@pytest.mark.parametrize("splitter", [TimeSeriesSplit(5, gap=150), TimeSeriesSplit(3, test_size=280, gap=20)])
def test_rows_too_few_for_the_splitter_have_the_parts_of_its_splits(splitter):
    """The gap stays, however often the rows are divided again."""
    source = holding_out(splitter=splitter)
    rows = source.decision()[0]
    refuses("Too many splits", list, splitter.split(rows))
    again = source.among(rows)
    for one in [again.decision(), *again.draw(300), *again.folds(None)]:
        assert_parts(one, len(rows))
        assert rows[one[1][0]] - rows[one[0][-1]] > splitter.gap
    third = again.among(again.decision()[0])
    for one in third.draw(100):
        assert_parts(one, third.n_rows)


@pytest.mark.parametrize("n_folds", [4, 1])
def test_rows_left_by_predefined_folds_have_the_other_folds_or_are_divided_at_random(n_folds):
    fold = np.where(np.arange(1000) % 5 < 1, np.arange(1000) // 5 % n_folds, -1)
    source = holding_out(splitter=PredefinedSplit(fold))
    rows, held_out = source.decision()
    assert set(fold[held_out]) == {n_folds - 1}
    splits = source.among(rows).draw(800)
    assert len(splits) == max(1, n_folds - 1)
    for number, one in enumerate(splits):
        assert_parts(one, 800 if n_folds == 1 else 950)
        assert n_folds == 1 or set(fold[rows[one[1]]]) == {number}


def test_splits_of_some_rows_are_parts_of_those_of_all():
    some = np.sort(np.random.default_rng(0).choice(1000, 300, replace=False))
    groups = np.random.default_rng(1).integers(0, 40, 1000)
    for source in (holding_out(groups=groups), holding_out(splitter=TimeSeriesSplit(5))):
        for (support, held_out), whole in zip(source.folds(some), source.folds(None), strict=True):
            assert_parts((support, held_out), 300)
            assert np.all(np.isin(some[support], whole[0]))
            assert np.all(np.isin(some[held_out], whole[1]))
    # Each group is held out once.
    held_out = np.concatenate([rows for _, rows in holding_out(groups=groups).folds(None)])
    assert np.array_equal(np.sort(held_out), np.arange(1000))
    assert holding_out().folds(some) == holding_out(groups=np.zeros(1000)).folds(some) == []


def test_names_of_groups_change_no_split():
    groups, names = np.random.default_rng(0).integers(0, 40, 1000), np.random.default_rng(1).permutation(40)
    sources = holding_out(groups=groups), holding_out(groups=names[groups])
    np.testing.assert_equal(*([one.decision(), *one.draw(300), *one.folds(None)] for one in sources))


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"]])
def test_what_splitters_are_given(labels):
    """Zeros in place of the rows, numbers of the classes and groups; all rows, or those that are not kept apart."""
    X, group = np.random.default_rng(0).normal(size=(60, 2)), np.repeat(np.arange(12), 5)
    y = np.arange(60) % len(labels)
    splitter, calls = recording(GroupKFold(3))
    model = GPClassifier(n_neighbors=5, n_inducing=4, held_out_split=splitter, max_iter=2, random_state=0)
    quietly(model, X, np.array(labels)[y], groups=group)
    # Each set of rows once.
    assert len({len(rows) for rows, *_ in calls}) == len(calls)
    for rows, codes, groups, _ in calls:
        assert np.array_equal(rows, np.zeros((len(codes), 1)))
        assert codes.dtype.kind == "i"
        # Rows of a group are kept apart together.
        chosen = np.isin(group, groups)
        assert np.array_equal(codes, y[chosen])
        assert np.array_equal(groups, group[chosen])
