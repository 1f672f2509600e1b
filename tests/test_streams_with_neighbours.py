"""Streams whose model keeps its rows: sites of all rows between the calls that learn anew, and these calls."""

from functools import partial

import numpy as np
import pytest
from scipy.special import expit, xlogy
from scipy.stats import gamma, norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.archives import read
from support.fits import assert_same_bits, clone_of, refuses, reloaded, without_warnings

from xgpc import GPClassifier

KERNEL = ConstantKernel(4.0) * RBF([0.5, 0.5])
N = 400


def problem(n_classes=2, n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    score = np.sin(4.0 * X[:, 0]) * np.cos(4.0 * X[:, 1]) + 0.2 * rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))


X, Y = problem()
FRESH, _ = problem(seed=1, n=100)
GIVEN = {"kernel": KERNEL, "optimizer": None, "n_neighbors": 8, "inducing_points": FRESH[:10], "random_state": 0}
fixed = partial(GPClassifier, **GIVEN)


def streamed(model, X, y, size, **options):
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        without_warnings(model.partial_fit, X[part], y[part], classes=np.unique(y), **options if start else {})
    return model


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


@pytest.mark.parametrize("mean", [0.0, "base-rate"])
@pytest.mark.parametrize("n_neighbors", ["auto", 8])
def test_all_is_learned_anew_once_the_rows_pass_a_power_of_two(n_neighbors, mean):
    y = problem(3)[1] > 0
    options = {"n_neighbors": n_neighbors, "mean": mean, "feature_transform": None, "random_state": 0, "max_iter": 10}
    model = streamed(GPClassifier(**options), X[:300], y[:300], 150)
    anew = without_warnings(GPClassifier(**options).fit, X[:300], y[:300])
    assert_same_bits(model, anew, FRESH, ("kernel_", "mean_"))
    assert any("learned anew from the latest 300 rows" in text for text in model.decisions_)
    before = model.kernel_
    without_warnings(model.partial_fit, X[300:350], y[300:350])
    assert model.kernel_ == before


# What the calls keep of 300 rows, a hundred each, and their weights.
KEPT = {
    "forgets all": ({}, 0.0, 100, [1.0]),
    "earlier rows lose weight": ({}, 0.5, 300, [0.25, 0.5, 1.0]),
    "rows that weigh almost nothing leave": ({}, 0.05, 200, [0.05, 1.0]),
    "a limit": ({"max_rows_in_model": 150}, 1.0, 150, [1.0]),
    "a limit below the size of a batch": ({"max_rows_in_model": 60}, 1.0, 60, [1.0]),
}


@pytest.mark.parametrize(("params", "forgetting_factor", "n_kept", "weights"), KEPT.values(), ids=KEPT)
def test_a_stream_is_a_fit_of_the_rows_that_it_keeps(exact_sweeps, params, forgetting_factor, n_kept, weights):
    model = streamed(fixed(**params), X[:300], Y[:300], 100, forgetting_factor=forgetting_factor)
    rows, weight = slice(300 - n_kept, 300), np.repeat(weights, n_kept // len(weights))
    np.testing.assert_array_equal(model.posterior_.X, X[rows])
    np.testing.assert_array_equal(model.posterior_.weight, weight)
    assert model.n_samples_seen_ == 300
    kept = without_warnings(fixed().fit, X[rows], Y[rows], weight)
    np.testing.assert_allclose(model.predict_proba(FRESH), kept.predict_proba(FRESH), atol=1e-6)


@pytest.mark.parametrize(("is_full", "expected"), [(True, [1, 2, 3, 5, 7]), (False, [1, 3, 7])])
def test_when_all_is_learned_anew(is_full, expected):
    """A full model each time that all its rows are new: after 50 rows, 64, multiples of 100, 128 and 256.

    Not each time that rows repeat, but past 256, 512 and 1024 rows.
    """
    batches = [slice(start, start + 50) for start in range(0, N, 50)] if is_full else [slice(130)] * 8
    params = {"max_rows_in_model": 100} if is_full else {}
    model, anew = GPClassifier(n_neighbors=8, max_iter=2, random_state=0, **params), []
    for number, batch in enumerate(batches):
        without_warnings(model.partial_fit, X[batch], Y[batch])
        anew += [number] * any("learned anew" in text for text in model.decisions_)
    assert anew == expected
    assert len(model.posterior_.X) == (100 if is_full else 130)


@pytest.mark.parametrize("options", [{"max_time": 1e-3}, {"callback": lambda state: state.stage == "learning"}])
def test_a_call_without_time_to_learn_anew_keeps_the_kernel(options):
    model = without_warnings(GPClassifier(n_neighbors=8, random_state=0).fit, X[:200], Y[:200])
    before = model.kernel_
    model.set_params(**options)
    with pytest.warns(ConvergenceWarning, match="keeps the kernel that it had"):
        model.partial_fit(X[200:300], Y[200:300])
    assert model.kernel_ == before
    np.testing.assert_array_equal(model.posterior_.X, X[:300])
    assert not model.converged_


def test_a_stream_with_neighbours_stays_one():
    models = [GPClassifier(n_neighbors=k, random_state=0, max_iter=2) for k in (8, 0)]
    with_neighbours, without = (streamed(model, X[:200], Y[:200], 100) for model in models)
    for changed in ({"n_neighbors": 0}, {"batch_size": 10}):
        with pytest.raises(ValueError, match=r"keep none\. Set them back"):
            clone_of(with_neighbours).set_params(**changed).partial_fit(X[200:], Y[200:])
    with pytest.warns(UserWarning, match="n_neighbors=8 is not followed"):
        without.set_params(n_neighbors=8, max_iter=200).partial_fit(X[200:300], Y[200:300])


def test_a_stream_does_not_drop_rows_of_a_larger_fit(tuned):
    tuned(kept_rows=1000)
    np.testing.assert_array_equal(fixed().fit(X[:300], Y[:300]).partial_fit(X[300:], Y[300:]).posterior_.X, X[100:])


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
    others = reloaded(model, tmp_path), clone_of(model)
    for start in (200, 270, 340):
        for one in (model, *others):
            without_warnings(one.partial_fit, rows[start : start + 70], y[start : start + 70])
    for other in others:
        assert_same_bits(other, model, FRESH, ())


def test_no_rows_are_kept_without_neighbours(tmp_path):
    for model in (
        streamed(GPClassifier(n_neighbors=0, random_state=0, max_iter=5), X[:200], Y[:200], 100),
        streamed(GPClassifier(likelihood="svm", random_state=0, max_iter=5), X[:200], Y[:200], 100),
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
def test_drift_compares_labels_with_what_the_model_claimed(n_neighbors, tmp_path):
    model = fixed(n_neighbors=n_neighbors).partial_fit(X[:300], Y[:300])
    p, labels, weight = model.predict_proba(X[300:]), Y[300:], np.linspace(0.5, 2.0, 100)
    mean, covariance = model.predict_latent(X[300:], return_cov=True)
    nodes, node_weight = np.polynomial.hermite_e.hermegauss(60)
    latent = mean[:, None] + np.sqrt(np.diag(covariance))[:, None] * nodes
    slope = (expit(latent) * expit(-latent)) @ node_weight / np.sum(node_weight)
    model.partial_fit(X[300:], labels, sample_weight=weight)
    entropy = -np.sum(xlogy(p, p), axis=1)
    surprise = -np.log(p[np.arange(100), labels]) - entropy
    spread = np.sum(p * np.log(p) ** 2, axis=1) - entropy**2
    # What the model is unsure of, all rows of the batch share.
    g = weight * slope * np.log(p[:, 1] / p[:, 0])
    together = g @ (covariance - np.diag(np.diag(covariance))) @ g
    assert together > 0.0
    error = np.sqrt(weight**2 @ spread + together)
    skewness = weight**3 @ np.sum(p * (-np.log(p) - entropy[:, None]) ** 3, axis=1) / error**3
    # About the z score of a gamma variable with this skewness.
    shape = 4.0 / skewness**2
    of_gamma = norm.isf(gamma.sf(shape + np.sqrt(shape) * (weight @ surprise / error), shape))
    assert model.drift_ == pytest.approx(of_gamma, abs=0.01)
    model.partial_fit(X[:100], 1 - Y[:100])
    assert model.drift_ > 2.0
    assert reloaded(model, tmp_path).drift_ == model.drift_
    assert not hasattr(model.fit(X, Y), "drift_")


@pytest.mark.parametrize(("first", "batch", "options"), [(100, 400, {"optimizer": None}), (200, 100, {})])
def test_drift_without_drift_is_standard_normal(first, batch, options):
    """Over 200 streams of functions that the prior draws."""
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows, frequencies = rng.normal(size=(first + batch, 2)), rng.normal(size=(2, 300))
        waves = np.cos(rows @ frequencies + rng.uniform(0.0, 2.0 * np.pi, 300))
        f = np.sqrt(8.0 / 300.0) * waves @ rng.normal(size=300)
        labels = (rng.uniform(size=len(f)) < expit(f)).astype(int)
        model = GPClassifier(ConstantKernel(4.0) * RBF(1.0), n_inducing=40, n_neighbors=0, random_state=0, **options)
        without_warnings(model.partial_fit, rows[:first], labels[:first], classes=[0, 1])
        without_warnings(model.partial_fit, rows[first:], labels[first:])
        found.append(model.drift_)
    assert 0.9 < np.std(found) < 1.15
    assert np.mean(np.array(found) > 3.0) <= 0.005


def test_labels_far_from_all_rows_are_no_drift():
    """Both classes are as probable, up to rounding."""
    model = fixed(n_neighbors=0).partial_fit(X, Y)
    for distance in (5.0, 6.0, 8.0, 100.0):
        assert abs(clone_of(model).partial_fit(X[:100] + distance, Y[:100]).drift_) < 5.0


@pytest.mark.parametrize("n_neighbors", ["auto", 8])
def test_a_call_that_fails_changes_nothing(n_neighbors):
    model = streamed(GPClassifier(n_neighbors=n_neighbors, random_state=0, max_iter=5), X[:200], Y[:200], 100)
    again = clone_of(model)
    refuses("label", model.partial_fit, X[200:300], np.full(100, 7))
    refuses("missing", model.partial_fit, np.full((5, 2), np.nan), Y[:5])
    for one in (model, again):
        without_warnings(one.partial_fit, X[200:300], Y[200:300])
    assert_same_bits(model, again, FRESH, ())
