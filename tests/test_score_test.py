"""The score test that decides whether neighbours are tried."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly
from support.internals import ArraySource, Metric, metric, score_test

from xgpc import GPClassifier

FIXED = {"kernel": RBF([1.0, 1.0]), "optimizer": None, "n_inducing": 10, "n_neighbors": 0, "random_state": 0}


def z_of(X, y, n_neighbors):
    """The model without neighbours, its probabilities, and z."""
    model = quietly(GPClassifier(**FIXED), X, y)
    p, labels = model.predict_proba(X), np.searchsorted(model.classes_, y).astype(float)
    source = ArraySource(np.ascontiguousarray(X), labels, np.empty(0))
    return p, score_test(metric(model.posterior_.prior.core), p, source, n_neighbors, 1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_the_ratio_of_the_score_to_its_standard_deviation(n_classes):
    """By sums over all pairs of rows, the covariances of the labels as matrices."""
    rng, k = np.random.default_rng(0), 5
    X, y = rng.normal(size=(80, 2)), rng.integers(0, n_classes, 80)
    p, z = z_of(X, y, k)
    distance = np.linalg.norm(X[:, None] - X, axis=2)
    order = np.argsort(distance, axis=1)[:, 1 : k + 1]
    scale = np.median(np.take_along_axis(distance, order, axis=1)[:, -1])
    e, score, variance = np.eye(n_classes)[y] - p, 0.0, 0.0
    for i in range(80):
        for j in order[i]:
            R = np.exp(-distance[i, j] / scale)
            S_i, S_j = (np.diag(p[row]) - np.outer(p[row], p[row]) for row in (i, j))
            score += R * e[i] @ e[j]
            variance += 2.0 * R**2 * np.trace(S_i @ S_j)
    assert z == pytest.approx(score / np.sqrt(variance), rel=1e-10)


def test_it_is_about_standard_normal_if_labels_do_not_depend_on_place():
    rng = np.random.default_rng(1)
    found = [z_of(rng.normal(size=(300, 2)), rng.integers(0, 2, 300), 24)[1] for _ in range(40)]
    # Inducing points explain a part of the labels, so that the mean is below zero.
    assert -1.5 < np.mean(found) < 0.5
    assert np.std(found) < 1.3


def test_classes_that_no_row_has_change_nothing():
    """As in a sample of many rows that misses a rare class."""
    rng = np.random.default_rng(2)
    X, y, p = rng.normal(size=(60, 2)), rng.integers(0, 2, 60), rng.dirichlet(np.ones(3), 60)
    one = Metric(np.ones(2))

    def z(classes):
        source = ArraySource(X, np.asarray(classes)[y].astype(float), np.empty(0))
        return score_test(one, p[:, np.argsort([*classes, 3 - sum(classes)])], source, 5, 1)

    assert z([0, 2]) == pytest.approx(z([0, 1]), rel=1e-12)
    of_signs = score_test(one, p[:, :2], ArraySource(X, np.ones(60), np.empty(0)), 5, 1)
    both = score_test(one, p[:, 1::-1], ArraySource(X, -np.ones(60), np.empty(0)), 5, 1)
    assert of_signs == pytest.approx(both, rel=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e140])
def test_few_rows_and_large_features_have_a_finite_value(size):
    X = size * np.random.default_rng(3).normal(size=(8, 2))
    y = np.repeat([-1.0, 1.0], 4)
    assert np.isfinite(score_test(Metric(np.full(2, 1e5)), np.full((8, 2), 0.5), ArraySource(X, y, np.empty(0)), 24, 1))


def fields(n, size, seed=0):
    """Labels that alternate over the fields of a board."""
    X = np.random.default_rng(seed).uniform(0.0, 1.0, (n, 2))
    return X, np.sum(np.floor(X * size).astype(int), axis=1) % 2


@pytest.mark.parametrize(("n_rows", "size"), [(1000, 6), (2500, 12)])
def test_a_fit_tries_neighbours_only_if_near_rows_know_more(n_rows, size):
    X, y = fields(n_rows, size)
    local = quietly(GPClassifier(n_inducing=20, random_state=0), X, y)
    assert np.nanmax(local.history_["score_test"]) > 5.0
    assert any("neighbours are tried" in text for text in local.decisions_)
    assert local.n_neighbors_ > 0
    smooth = quietly(GPClassifier(n_inducing=20, random_state=0), X, (X[:, 0] > 0.5).astype(int))
    assert np.nanmax(smooth.history_["score_test"]) < 2.0
    assert any("neighbours are not tried" in text for text in smooth.decisions_)
    assert smooth.n_neighbors_ == 0
    assert "held_out_score" not in smooth.history_


def test_few_rows_of_several_classes_have_neighbours_if_these_predict_held_out_rows_better():
    """Classes of forty clusters, and classes that straight lines separate; the score test says little on both."""
    rng = np.random.default_rng(3)
    centre, cluster = rng.uniform(0.0, 1.0, (40, 4)), rng.integers(40, size=500)
    X, y = centre[cluster] + 0.05 * rng.standard_normal((500, 4)), cluster % 5
    local = quietly(GPClassifier(random_state=0), X, y)
    assert local.n_neighbors_ > 0
    assert "taken" in local.decisions_[-1]
    y = np.sum(X[:, :2] > [0.4, 0.6], axis=1)
    smooth = quietly(GPClassifier(random_state=0), X, y)
    assert smooth.n_neighbors_ == 0
    assert any("exchanged" in text and "not taken" in text for text in smooth.decisions_)
    without = quietly(GPClassifier(n_neighbors=0, random_state=0), X, y)
    np.testing.assert_allclose(smooth.predict_proba(X), without.predict_proba(X), atol=5e-3)


def test_a_number_of_neighbours_is_followed_without_a_test():
    X, y = fields(300, 2)
    model = quietly(GPClassifier(n_inducing=10, n_neighbors=8, random_state=0), X, y)
    assert model.n_neighbors_ == 8
    assert "score_test" not in model.history_
