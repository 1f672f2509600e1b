"""What fits with neighbours are given: numbers of them, and splits into rows to learn from and rows to ask."""

import numpy as np
import pytest
from sklearn.model_selection import KFold
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier


def fit(X, y, **params):
    return quietly(GPClassifier(**{"n_inducing": 16, "random_state": 0, **params}), X, y)


def test_many_neighbours_are_warned_of_their_cost(monkeypatch):
    monkeypatch.setattr("xgpc.learning.learn.MANY_NEIGHBORS", 20)
    X, y = moons(40)
    params = {"max_iter": 1, "optimizer": None}
    with pytest.warns(
        UserWarning, match=r"n_neighbors=100: .*cube of the number of neighbours, here 40, .* 40 rows"
    ) as caught:
        assert fit(X, y, n_neighbors=100, **params).n_neighbors_ == 40
    assert [one.filename.rpartition("/")[2] for one in caught] == ["fits.py"]
    # Tens are not many, and of few rows there are no more.
    assert fit(X, y, n_neighbors=20, **params).n_neighbors_ == 20
    assert fit(X[:20], y[:20], n_neighbors=100, **params).n_neighbors_ == 20


class Repeating(KFold):
    """One side has a row twice, the last of it."""

    def __init__(self, n_splits, side):
        super().__init__(n_splits)
        self.side = side

    def split(self, X, y=None, groups=None):
        for split in super().split(X, y, groups):
            yield [np.append(rows, rows[-1]) if self.side == side else rows for side, rows in enumerate(split)]


@pytest.mark.parametrize("side", [0, 1])
def test_splits_have_each_row_once(side):
    X, y = moons(40)
    with pytest.raises(ValueError, match=r"cannot divide 40 rows: .* each row once, .* it gave row \d+ more than once"):
        fit(X, y, n_neighbors=5, query_split=Repeating(4, side))


def test_a_single_row_that_is_left_cannot_be_divided():
    with pytest.raises(ValueError, match=r"query_split=KFold.* leaves a single row to learn from .* Give more rows, a"):
        fit(np.eye(2), np.array([0, 1]), n_neighbors=1, query_split=KFold(2))
