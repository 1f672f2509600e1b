"""A fit that predicts rows it has not learned from no better than the class frequencies says so, and is simpler."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.metrics import log_loss
from sklearn.model_selection import TimeSeriesSplit
from support.fits import fit, losses, quietly, warnings_of
from support.sites import build, evaluate_one

from xgpc import GPClassifier

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(200)


def noise(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), (rng.uniform(size=n) < 0.5).astype(int)


def persons(seed, n=16, n_rows=4, d=5):
    """Rows of a person are alike, and have the same label, of which the features say little."""
    rng = np.random.default_rng(seed)
    centre = 2.0 * rng.normal(size=(n, d))
    label = rng.uniform(size=n) < expit(0.8 - 0.3 * centre[:, 0])
    X = np.repeat(centre, n_rows, axis=0) + 0.3 * rng.normal(size=(n * n_rows, d))
    return X, np.repeat(label, n_rows).astype(int), np.repeat(np.arange(n), n_rows)


@pytest.mark.parametrize(("inducing_points", "noise_kernel"), [("kmeans", False), ("kmeans", True), ("all", False)])
def test_rows_are_predicted_without_their_own_labels(inducing_points, noise_kernel):
    """As a dense computation predicts them, with the posterior's precision less the site of one row at a time."""
    X, y = noise(130, 3)
    kernel = C(1.0, (0.3, 3.0)) * RBF(1.0, "fixed")
    kernel = kernel + WhiteKernel(0.2, "fixed") if noise_kernel else kernel
    model = fit(X, y, kernel, inducing_points=inducing_points, n_inducing=20, n_neighbors=0, tol=1e-9)
    told = next(text for text in model.decisions_ if "without their own labels" in text)
    (given,) = re.findall(r"mean log probability of (-[0-9.]+) nats", told)
    _, precision, linear = evaluate_one(build("logit", "exact", 2), *model.predict_latent(X), 2.0 * y - 1.0)
    if inducing_points == "all":
        a = np.linalg.cholesky(model.kernel_(X))
    else:
        a = model.kernel_(X, model.inducing_points_) @ model.to_arrays()["whitening"][0].T
    found, others = [], 1.0 - np.eye(len(X))
    for i, weight in enumerate(others):
        covariance = np.linalg.inv(np.eye(a.shape[1]) + (a.T * (weight * precision)) @ a)
        w = covariance @ a.T @ (weight * linear)
        residual = model.kernel_.diag(X[i : i + 1])[0] - a[i] @ a[i]
        f = a[i] @ w + np.sqrt(residual + a[i] @ covariance @ a[i]) * NODES
        found.append(expit(f) @ WEIGHTS / np.sum(WEIGHTS))
    assert_allclose(float(given), np.mean(np.log(np.where(y == 1, found, 1.0 - np.array(found)))), rtol=2e-3)


def test_a_fit_to_noise_is_of_class_frequencies_and_warns():
    X, y = noise(300, 120)
    with pytest.warns(ConvergenceWarning, match="has not shown that the features separate"):
        model = GPClassifier(random_state=0).fit(X[:200], y[:200])
    assert losses(model, X[200:], y[200:]).mean() < np.log(2.0) + 0.02
    assert any("A fit with a constant alone is tried" in text for text in model.decisions_)


@pytest.mark.parametrize("kind", ["rows", "groups", "a single group that is left out"])
def test_a_fit_with_a_signal_keeps_it(kind):
    """A single group has no standard error."""
    X, _, persons_of_rows = persons(0, n=40)
    groups = {"rows": None, "groups": persons_of_rows}.get(kind, np.arange(160) // 159)
    y = (X[:, 0] > 0.0).astype(int)
    model = GPClassifier(random_state=0)
    assert warnings_of(model, X, y, groups=groups) == []
    assert model.score(X, y) > 0.9


def test_a_given_kernel_stays_with_a_warning():
    kernel = C(10.0, (5.0, 1e3)) * RBF(2.0, (0.1, 5.0))
    with pytest.warns(ConvergenceWarning, match="has not shown that the features separate"):
        model = GPClassifier(kernel, random_state=0).fit(*noise(200, 30))
    assert model.kernel_.k2.length_scale <= 5.0


def test_few_groups_or_times_that_tell_nothing_of_others():
    found = []
    for seed in range(24):
        X, y, groups = persons(seed)
        new, labels, _ = persons(seed + 100, n=300)
        of_frequencies = log_loss(labels, np.full(len(labels), np.mean(y)))
        for params, told in ({}, {}), ({}, {"groups": groups}), ({"held_out_split": TimeSeriesSplit(4)}, {}):
            n_warnings = len(warnings_of(model := GPClassifier(random_state=0, **params), X, y, **told))
            found.append([losses(model, new, labels).mean() - of_frequencies, n_warnings])
    (ignored, _), *informed = np.mean(np.reshape(found, (24, 3, 2)), axis=0)
    for excess, n_warnings in informed:
        # Of sixteen persons three parts may agree by chance.
        assert excess < 0.8 * ignored
        assert n_warnings >= 0.5


def test_given_neighbours_that_mislead_are_said():
    """Both mean log probabilities, their difference, and how much would have been enough."""
    with pytest.warns(ConvergenceWarning, match=r"held-out rows have a mean log probability of -[0-9.]+ nats") as found:
        GPClassifier(random_state=0, n_neighbors=5).fit(*noise(240, 8))
    text = str(found[0].message)
    learned, base = (float(number) for number in re.findall(r"(?:of|is) (-[0-9]*\.[0-9]+)", text)[:2])
    (gain,) = (float(number) for number in re.findall(r"gain of ([+-][0-9.e-]+)", text))
    assert gain <= learned - base + 1e-3


def test_few_counts_are_no_groups():
    """All classes of a row are left out together, which makes no rows depend on others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    caught = warnings_of(GPClassifier(random_state=0), X, rng.integers(1, 5, size=(40, 2)), classes=[0, 1])
    assert not any("Left out in turn" in text for text in caught)


@pytest.mark.parametrize("n", [101, 200])
def test_a_wide_table_with_a_signal_keeps_it(n):
    """More length scales than rows: fits to parts show what the count of parameters hides."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + 500, 300))
    y = (X[:, 0] + X[:, 1] > 0.0).astype(int)
    assert losses(quietly(GPClassifier(random_state=0), X[:n], y[:n]), X[n:], y[n:]).mean() < 0.3
