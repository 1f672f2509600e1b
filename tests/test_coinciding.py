"""Rows that coincide, in features and label: as neighbours they are one row with the sum of their weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from support.fits import clone_of, kept, losses, quietly, without_warnings
from support.frames import named
from support.reference import moons

from xgpc import GPClassifier
from xgpc.acquisition import probability_of_failure, probability_of_feasibility

N = 90
X, Y = moons(N)
THREE = np.where(X[:, 0] > 1.0, 2, Y > 0)
FRESH, _ = moons(60, seed=1)
NUMBERS = np.random.default_rng(5).integers(1, 4, N)


@pytest.mark.parametrize("points", [np.full((1, 2), 1e4), X[60:66]], ids=["far", "near"])
@pytest.mark.parametrize("n_neighbors", [3, 10, N])
@pytest.mark.parametrize("y", [Y, THREE], ids=["two classes", "three"])
def test_a_row_is_its_copies_and_its_parts_whose_weights_sum_to_its_own(y, n_neighbors, points, exact_sweeps):
    """Wherever the parts stand behind the first of them."""
    rng = np.random.default_rng(0)
    model = GPClassifier(4.0 * RBF(0.5), inducing_points=points, optimizer=None, n_neighbors=n_neighbors)
    weighted = quietly(clone(model), X, y, sample_weight=NUMBERS)
    repeated = quietly(clone(model), np.repeat(X, NUMBERS, axis=0), np.repeat(y, NUMBERS))
    share, order = rng.uniform(0.1, 0.9, size=N), rng.permutation(N)
    parts = np.r_[share * NUMBERS, ((1.0 - share) * NUMBERS)[order]]
    split = quietly(clone(model), np.r_[X, X[order]], np.r_[y, y[order]], sample_weight=parts)
    for other in (repeated, split):
        assert other.n_neighbors_ == weighted.n_neighbors_ == n_neighbors
        assert_allclose(other.predict_proba(FRESH), weighted.predict_proba(FRESH), rtol=0.0, atol=1e-6)
        assert_allclose(other.predict_latent(FRESH), weighted.predict_latent(FRESH), rtol=0.0, atol=1e-5)
        assert_array_equal(other.posterior_.X, X)


@pytest.mark.parametrize("n_distinct", [1, 2, 3])
def test_few_distinct_rows(n_distinct):
    """Fewer than neighbours were asked for; of one place with both labels."""
    rows = np.repeat(np.arange(float(n_distinct)), 40)[:, None]
    model = quietly(GPClassifier(n_neighbors=20, random_state=0, max_iter=5), rows, np.arange(len(rows)) % 2)
    assert model.n_neighbors_ in (0, 2 * n_distinct)
    assert_allclose(model.predict_proba(rows), 0.5, atol=0.05)


def given_again(y, how, seed):
    rng, n = np.random.default_rng(seed), len(y)
    if how == "doubled":
        return np.repeat(np.arange(n), 2)
    if how == "bootstrap":
        return rng.integers(0, n, n)
    classes, counts = np.unique(y, return_counts=True)
    more = [rng.choice(np.flatnonzero(y == c), counts.max() - count) for c, count in zip(classes, counts, strict=True)]
    return np.concatenate([np.arange(n), *more])


def copies_and_weights(model, X, y, rows):
    """Fits to rows that repeat, and to each of them once with its number as weight."""
    _, first, count = np.unique(rows, return_index=True, return_counts=True)
    # In the order of their first places, for the same rows to be held out.
    once, weight = rows[np.sort(first)], count[np.argsort(first)]
    return quietly(clone(model), X[rows], y[rows]), quietly(clone(model), X[once], y[once], sample_weight=weight)


def smooth_labels(n, n_classes, seed=0):
    """Rows with three features, and labels drawn from smooth probabilities."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = [1.2 * (np.sin(1.5 * X[:, 0] + c) + (c - 1) * X[:, 1]) for c in range(n_classes)]
    return X, np.argmax(f + rng.gumbel(size=(n_classes, n)), axis=0)


@pytest.mark.parametrize("options", [{}, {"n_neighbors": 8}, {"kernel": 1.0 * RBF(2.0)}], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("how", ["doubled", "bootstrap", "oversampled"])
def test_copies_are_learned_from_as_rows_with_weights(how, n_classes, options):
    X, y = smooth_labels(240, n_classes)
    model, new = GPClassifier(random_state=0, max_iter=8, **options), smooth_labels(300, n_classes, seed=1)[0]
    copies, weighted = copies_and_weights(model, X, y, given_again(y, how, 0))
    assert copies.n_neighbors_ == weighted.n_neighbors_
    assert_allclose(copies.predict_proba(new), weighted.predict_proba(new), rtol=0.0, atol=5e-3)
    assert any("copies" in text or "sum of their weights" in text for text in copies.decisions_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_in_a_table(dtype):
    X, y = smooth_labels(320, 2)
    rows = np.repeat(np.arange(320), 2)

    def table(X):
        levels = np.where(X[:, 2] > 0.0, "u", "v")
        return named(X.astype(dtype), "abc").assign(d=levels).astype({"d": "category"})

    model, new = GPClassifier(random_state=0, max_iter=15), table(smooth_labels(300, 2, seed=1)[0])
    copies = quietly(clone(model), table(X[rows]), y[rows])
    weighted = quietly(clone(model), table(X), y, sample_weight=np.full(320, 2.0))
    assert_allclose(copies.predict_proba(new), weighted.predict_proba(new), rtol=0.0, atol=5e-3)


def test_copies_count_in_the_number_of_rows():
    X, y = smooth_labels(150, 2)
    model = quietly(GPClassifier(random_state=0, max_iter=3), np.r_[X, X], np.r_[y, y])
    assert model.n_samples_seen_ == model.history_["n_rows"][-1] == 300
    assert "of the last batch" not in model.summary()


def test_copies_in_a_stream():
    """Also where a batch makes the model learn everything anew."""
    X, y = smooth_labels(400, 3)
    new, _ = smooth_labels(300, 3, seed=1)
    model = GPClassifier(random_state=0, max_iter=10, n_neighbors=8)
    copies, weighted = clone(model), clone(model)
    for part in np.split(np.arange(400), 4):
        rows, weight = np.repeat(part, 2), np.full(100, 2.0)
        without_warnings(copies.partial_fit, X[rows], y[rows], classes=[0, 1, 2])
        without_warnings(weighted.partial_fit, X[part], y[part], classes=[0, 1, 2], sample_weight=weight)
    assert_allclose(copies.predict_proba(new), weighted.predict_proba(new), rtol=0.0, atol=5e-3)


def test_rows_of_equal_features_whose_labels_differ_are_no_copies():
    """They are measurements at the same place, each of which counts."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 2)), 12, axis=0)
    p = expit(2.0 * X[:, 0])
    model = quietly(GPClassifier(random_state=0, n_neighbors=5), X, (rng.uniform(size=len(X)) < p).astype(int))
    assert np.mean((model.predict_proba(X[::12], return_grad=True)[0][:, 1] - p[::12]) ** 2) < 0.02


def test_labels_of_rows_given_again_are_recalled_where_labels_of_copies_agree():
    """The posterior mode of the agreement of n pairs that all agree, by their probabilities."""
    X, y = smooth_labels(400, 2)
    new, _ = smooth_labels(50, 2, seed=1)
    model = quietly(GPClassifier(random_state=0, n_neighbors=8, max_iter=5), np.r_[X, X[:150]], np.r_[y, y[:150]])
    a = model.label_agreement_
    p = model.predict_proba(X, return_grad=True)[0]
    of_label = p[np.arange(150), y[:150]]
    grid = np.linspace(0.0, 1.0, 4001)[:-1, None]
    log_posterior = 2.0 * np.sum(np.log(grid + (1.0 - grid) * of_label), axis=1) + np.log1p(-grid[:, 0])
    assert abs(a - grid[np.argmax(log_posterior), 0]) < 1e-3
    assert_allclose(model.predict_proba(X), (1.0 - a) * p + a * np.eye(2)[y], rtol=1e-9)
    assert_allclose(model.predict_proba(new), model.predict_proba(new, return_grad=True)[0], rtol=1e-12)


def test_labels_that_copies_contradict_are_not_recalled():
    X = np.tile(smooth_labels(300, 2)[0], (2, 1))
    y = (np.random.default_rng(0).uniform(size=600) < expit(X[:, 0])).astype(int)
    model = GPClassifier(random_state=0, n_neighbors=8, max_iter=5)
    assert quietly(model, X, y).label_agreement_ < 0.2
    assert quietly(model, X[:300], y[:300]).label_agreement_ == 0.0


@pytest.fixture
def recalling():
    """A model with equal rows whose labels agree, and its rows, the first ninety of which were there twice."""
    X, y = smooth_labels(200, 2)
    model = GPClassifier(1.0 * RBF([1.0] * 3), random_state=0, n_neighbors=5, max_iter=3)
    return quietly(model, np.r_[X, X[:90]], np.r_[y, y[:90]]), X, y


def test_a_file_keeps_the_agreement(recalling, tmp_path):
    model, X, _ = recalling
    assert kept(model, tmp_path, X).label_agreement_ == model.label_agreement_ > 0.5


def test_copies_of_sparse_rows_are_one_row():
    """The bits of dense rows, and the sites of rows with weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * (rng.uniform(size=(300, 6)) < 0.4)
    y = (X[:, 0] + X[:, 1] > 0.0).astype(int)
    X, y = np.r_[X, X[:200]], np.r_[y, y[:200]]
    model = GPClassifier(random_state=0, max_iter=5, n_neighbors=0, feature_transform=None)
    dense, of_csr = quietly(clone(model), X, y), quietly(clone(model), sparse.csr_array(X), y)
    assert any("sum of their weights" in text for text in of_csr.decisions_)
    assert_array_equal(of_csr.predict_proba(X), dense.predict_proba(X))


def test_acquisition_takes_rows_that_equal_a_training_row_as_new(recalling):
    model, X, _ = recalling
    assert model.label_agreement_ > 0.5
    alone, (with_gradient, _) = (probability_of_feasibility(model, X, 1, return_grad=given) for given in (False, True))
    assert_allclose(alone, with_gradient, rtol=1e-9)
    failure = probability_of_failure(model, X, 1, random_state=0)
    assert failure.low <= failure.probability <= failure.high


@pytest.mark.parametrize("how", ["doubled", "bootstrap"])
def test_copies_where_features_have_few_levels(how):
    """Rows that are equal by chance have other labels now and then, and are few beside copies."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (1000, 5)).astype(float)
    f = 1.2 * (X[:, 0] - 2.5) + (X[:, 1] - 2.5) * (X[:, 2] - 2.5) / 2.0
    y = (rng.uniform(size=1000) < expit(f)).astype(int)
    rows = given_again(y[:600], how, 0)
    copies, weighted = copies_and_weights(GPClassifier(random_state=0, max_iter=15), X, y, rows)
    assert abs(np.mean(losses(copies, X[600:], y[600:]) - losses(weighted, X[600:], y[600:]))) < 0.02


def test_a_stream_remembers_how_often_labels_of_copies_agree(recalling):
    model, X, y = recalling
    before = model.label_agreement_
    without_warnings(model.partial_fit, X[:20] + 0.1, y[:20])
    assert model.label_agreement_ >= before > 0.5


def test_a_stream_learns_that_labels_of_copies_no_longer_agree(recalling):
    """Earlier rows that agree count as many as later ones that do not, or not at all once they are forgotten."""
    first, X, _ = recalling
    labels = np.random.default_rng(0).integers(0, 2, (2, 200))
    before, X = first.label_agreement_, X + 10.0
    added, alone = (clone_of(first) for _ in range(2))
    without_warnings(added.partial_fit, np.r_[X, X], labels.ravel())
    without_warnings(alone.partial_fit, np.r_[X, X], labels.ravel(), forgetting_factor=0.0)
    assert alone.label_agreement_ < 0.1 < added.label_agreement_ < 0.6 < before
    without_warnings(first.partial_fit, X, labels[0], forgetting_factor=0.0)
    assert first.label_agreement_ == 0.0


def test_rows_whose_labels_are_certain_tell_a_stream_nothing_of_agreement():
    rng = np.random.default_rng(0)
    certain = np.repeat(np.array([[5.0, 5.0], [-5.0, -5.0]]), 10, axis=0) + 0.1 * rng.normal(size=(20, 2))
    noise, labels = rng.uniform(-2.0, 2.0, (150, 2)), rng.integers(0, 2, 150)
    model = GPClassifier(RBF(), optimizer=None, n_neighbors=6, n_inducing=10, random_state=0)
    of_certain, of_noise = np.repeat(certain, 3, axis=0), np.repeat(noise, 2, axis=0)
    y = np.r_[of_certain[:, 0] > 0.0, np.repeat(labels, 2) > 0]
    at_once = quietly(clone_of(model), np.r_[of_certain, of_noise], y)
    without_warnings(model.partial_fit, of_certain, y[:60])
    without_warnings(model.partial_fit, of_noise, y[60:])
    assert abs(model.label_agreement_ - at_once.label_agreement_) < 0.005 < 0.5 < at_once.label_agreement_


def test_a_stream_that_finds_neighbours_counts_the_copies_before():
    rng = np.random.default_rng(0)
    squares = rng.uniform(0.0, 4.0, (560, 2))
    y = squares.astype(int).sum(axis=1) % 2
    first, flipped = squares[:60], y[:60] ^ (rng.uniform(size=60) < 0.3)
    model = GPClassifier(random_state=0, n_inducing=32)
    without_warnings(model.partial_fit, np.r_[first, first], np.r_[flipped, flipped])
    assert model.n_neighbors_ == 0
    without_warnings(model.partial_fit, squares[60:], y[60:])
    assert model.n_neighbors_ > 0
    assert model.label_agreement_ > 0.5
