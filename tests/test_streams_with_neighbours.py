"""Streams whose model keeps its rows: sites of all rows between the calls that learn anew, and these calls."""

import pickle

import numpy as np
import pytest
from scipy.special import xlogy
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.archives import read
from support.fits import without_warnings

from xgpc import GPClassifier, GPOrdinalClassifier

KERNEL = ConstantKernel(4.0) * RBF([0.5, 0.5])
N = 400


def problem(n_classes=2, n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    score = np.sin(4.0 * X[:, 0]) * np.cos(4.0 * X[:, 1]) + 0.2 * rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))


X, Y = problem()
FRESH, _ = problem(seed=1, n=100)


def fixed(**options):
    """A model whose kernel and inducing points are given."""
    given = {"kernel": KERNEL, "optimizer": None, "n_neighbors": 8, "inducing_points": FRESH[:10], "random_state": 0}
    return GPClassifier(**{**given, **options})


def streamed(model, X, y, size, **options):
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        without_warnings(model.partial_fit, X[part], y[part], classes=np.unique(y), **options if start else {})
    return model


def assert_same_bits(one, other):
    np.testing.assert_array_equal(one.predict_proba(FRESH), other.predict_proba(FRESH))


@pytest.fixture
def exact_sweeps(monkeypatch):
    """Sites that agree with each other do not depend on where the sweeps began."""
    monkeypatch.setattr("xgpc.inference.local_sites.TOLERANCE", 1e-9)
    monkeypatch.setattr("xgpc.inference.local_sites.CLASSES_TOLERANCE", 1e-9)
    monkeypatch.setattr("xgpc.inference.local_sites.MAX_SWEEPS", 300)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("size", [80, 133])
def test_a_stream_ends_where_one_fit_ends(exact_sweeps, n_classes, size):
    rows, y = problem(n_classes)
    once = fixed().fit(rows, y)
    of_stream = streamed(fixed(), rows, y, size)
    np.testing.assert_allclose(of_stream.predict_proba(FRESH), once.predict_proba(FRESH), atol=1e-6)
    np.testing.assert_array_equal(of_stream.posterior_.X, once.posterior_.X)
    np.testing.assert_allclose(of_stream.elbo_, once.elbo_, rtol=1e-6)
    assert of_stream.n_samples_seen_ == N
    np.testing.assert_array_equal(of_stream.class_count_, once.class_count_)


@pytest.mark.parametrize("n_neighbors", ["auto", 8])
def test_all_is_learned_anew_once_the_rows_pass_a_power_of_two(n_neighbors):
    options = {"n_neighbors": n_neighbors, "feature_transform": None, "random_state": 0, "max_iter": 20}
    model = streamed(GPClassifier(**options), X[:300], Y[:300], 150)
    anew = without_warnings(GPClassifier(**options).fit, X[:300], Y[:300])
    assert_same_bits(model, anew)
    assert "300 rows of the stream" in model.decisions_[0]
    before = model.kernel_
    without_warnings(model.partial_fit, X[300:350], Y[300:350])
    assert model.kernel_ == before


def test_what_forgets_all_is_a_fit_of_the_last_batch(exact_sweeps):
    model = fixed().partial_fit(X[:200], Y[:200]).partial_fit(X[200:], Y[200:], forgetting_factor=0.0)
    last = fixed().fit(X[200:], Y[200:])
    np.testing.assert_allclose(model.predict_proba(FRESH), last.predict_proba(FRESH), atol=1e-6)


def test_earlier_rows_lose_weight_in_each_call(exact_sweeps):
    model = streamed(fixed(), X[:300], Y[:300], 100, forgetting_factor=0.5)
    np.testing.assert_array_equal(model.posterior_.weight, np.repeat([0.25, 0.5, 1.0], 100))
    weighted = fixed().fit(X[:300], Y[:300], np.repeat([0.25, 0.5, 1.0], 100))
    np.testing.assert_allclose(model.predict_proba(FRESH), weighted.predict_proba(FRESH), atol=1e-6)


@pytest.mark.parametrize("n_kept", [250, 60])
def test_the_latest_rows_stay(n_kept):
    model = streamed(fixed(max_rows_in_model=n_kept), X, Y, 100)
    expected = X[-max(100, n_kept) :]
    np.testing.assert_array_equal(model.posterior_.X, expected)
    assert model.n_samples_seen_ == N


def test_a_stream_does_not_drop_rows_of_a_larger_fit(monkeypatch):
    monkeypatch.setattr("xgpc.config.MOST_CLASS_ROWS", 1000)
    model = fixed().fit(X[:300], Y[:300]).partial_fit(X[300:], Y[300:])
    np.testing.assert_array_equal(model.posterior_.X, X[100:])


def test_label_noise_cut_points_and_mean_are_learned_anew():
    X, y = problem(3, n=140)
    for options in ({"bound": "additive-noise"}, {"mean": "base-rate"}):
        model = streamed(GPClassifier(random_state=0, max_iter=5, feature_transform=None, **options), X, y > 0, 70)
        anew = without_warnings(
            GPClassifier(random_state=0, max_iter=5, feature_transform=None, **options).fit, X, y > 0
        )
        assert_same_bits(model, anew)
        np.testing.assert_array_equal(model.mean_, anew.mean_)
    ordered = GPOrdinalClassifier(random_state=0, max_iter=5, feature_transform=None)
    anew = without_warnings(clone(ordered).fit, X, y)
    streamed(ordered, X, y, 70)
    assert_same_bits(ordered, anew)
    np.testing.assert_array_equal(ordered.cut_points_, anew.cut_points_)


def test_rows_that_come_again_are_one_row():
    model = fixed().partial_fit(X[:100], Y[:100]).partial_fit(X[50:150], Y[50:150])
    assert len(model.posterior_.X) == 150
    np.testing.assert_array_equal(model.posterior_.weight, np.repeat([1.0, 2.0, 1.0], 50))


@pytest.mark.parametrize("n_neighbors", ["auto", 8])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_stream_goes_on_after_a_file_or_a_pickle(tmp_path, n_neighbors, n_classes):
    rows, y = problem(n_classes)
    options = {"n_neighbors": n_neighbors, "random_state": 0, "max_iter": 5, "n_inducing": 10}
    model = streamed(GPClassifier(**options), rows[:200], y[:200], 100)
    model.save(tmp_path / "model.npz")
    others = [GPClassifier.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))]
    for start in (200, 270, 340):
        for one in (model, *others):
            without_warnings(one.partial_fit, rows[start : start + 70], y[start : start + 70])
    for other in others:
        assert_same_bits(other, model)


def test_no_rows_are_kept_without_neighbours(tmp_path):
    for model in (
        streamed(GPClassifier(n_neighbors=0, random_state=0, max_iter=5), X[:200], Y[:200], 100),
        without_warnings(GPClassifier(n_inducing=5, max_iter=5, random_state=0).fit, X[:200], Y[:200]),
    ):
        model.save(tmp_path / "model.npz")
        assert "rows" not in read((tmp_path / "model.npz").read_bytes())[1]


def test_a_model_of_a_fit_without_neighbours_is_not_learned_anew_from_a_part_of_its_rows():
    model = without_warnings(GPClassifier(random_state=0, max_iter=5).fit, X[:200], Y[:200])
    before = model.kernel_
    without_warnings(model.partial_fit, X[200:], Y[200:])
    assert model.kernel_ == before
    assert model.n_samples_seen_ == N


@pytest.mark.parametrize("n_neighbors", [0, 8])
def test_drift_compares_labels_with_what_the_model_claimed(n_neighbors):
    model = fixed(n_neighbors=n_neighbors).partial_fit(X[:300], Y[:300])
    p, labels, weight = model.predict_proba(X[300:]), Y[300:], np.linspace(0.5, 2.0, 100)
    model.partial_fit(X[300:], labels, sample_weight=weight)
    entropy = -np.sum(xlogy(p, p), axis=1)
    surprise = -np.log(p[np.arange(100), labels]) - entropy
    spread = np.sum(p * np.log(p) ** 2, axis=1) - entropy**2
    expected = weight @ surprise / np.sqrt(weight**2 @ spread)
    assert model.drift_ == pytest.approx(expected, rel=1e-9)
    model.partial_fit(X[:100], 1 - Y[:100])
    assert model.drift_ > 2.0


@pytest.mark.parametrize("n_neighbors", ["auto", 8])
def test_a_call_that_fails_changes_nothing(n_neighbors):
    model = streamed(GPClassifier(n_neighbors=n_neighbors, random_state=0, max_iter=5), X[:200], Y[:200], 100)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="label"):
        model.partial_fit(X[200:300], np.full(100, 7))
    with pytest.raises(ValueError, match="missing"):
        model.partial_fit(np.full((5, 2), np.nan), Y[:5])
    again = pickle.loads(before)
    for one in (model, again):
        without_warnings(one.partial_fit, X[200:300], Y[200:300])
    assert_same_bits(model, again)
