"""Fits without a given kernel try an axis-aligned one, and take it where classes are rules on single features."""

import re

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from support.fits import losses, quietly

from xgpc import GPClassifier
from xgpc.kernels import AxisMatern

D, THRESHOLD = 10, -2.26


def rules(n, seed):
    """Whether a sum of corners in pairs of the first six of ten features is large, as it is for half of the rows."""
    X, given = np.random.default_rng(seed).normal(size=(n, D)), np.random.default_rng(9)
    total = np.zeros(n)
    for _ in range(12):
        pair, threshold = given.choice(6, 2, replace=False), 0.7 * given.normal(size=2)
        side = given.choice([-1.0, 1.0], 2)
        total += given.normal() * np.all(side * (X[:, pair] - threshold) > 0.0, axis=1)
    return X, (total > THRESHOLD).astype(int)


@pytest.fixture(scope="module")
def on_rules():
    return quietly(GPClassifier(random_state=0), *rules(3000, 0))


def test_rules_on_single_features_have_an_axis_aligned_kernel(on_rules):
    assert isinstance(on_rules.kernel_.k2, AxisMatern)
    assert any(text.startswith("Taken: AxisMatern in place of RBF.") for text in on_rules.decisions_)
    start = ConstantKernel(2.0) * RBF(np.full(D, np.sqrt(D / 2.0)))
    others = [start, ConstantKernel(2.0) * Matern(np.full(D, np.sqrt(D / 2.0)), nu=0.5)]
    test = rules(4000, 1)
    for kernel in others:
        other = quietly(GPClassifier(kernel, random_state=0), *rules(3000, 0))
        assert losses(on_rules, *test).mean() < losses(other, *test).mean()


def test_oblique_borders_keep_the_default_kernel():
    """The classes are those of rows rotated at random: no feature is special."""
    X = np.random.default_rng(0).normal(size=(2000, D))
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(D, D)))
    y = (np.sin(1.5 * X @ rotation[0]) + X @ rotation[1] > 0.0).astype(int)
    model = quietly(GPClassifier(n_neighbors=0, random_state=0), X, y)
    assert isinstance(model.kernel_.k2, RBF)
    texts = [text for text in model.decisions_ if "AxisMatern" in text]
    assert texts
    assert all(text.startswith("Not taken: ") for text in texts)


def test_the_factor_of_a_feature_does_not_matter(on_rules):
    """Features in other units give the same kernel in these units."""
    X, y = rules(3000, 0)
    units = np.logspace(-3.0, 3.0, D)
    model = quietly(GPClassifier(random_state=0), X * units, y)
    assert type(model.kernel_.k2) is type(on_rules.kernel_.k2)
    T, _ = rules(500, 1)
    np.testing.assert_allclose(model.predict_proba(T * units), on_rules.predict_proba(T), atol=1e-3)


@pytest.mark.parametrize("params", [{"kernel": RBF(np.ones(D)), "n_inducing": 20}, {"max_iter": 2}], ids=str)
def test_no_kernel_is_tried_beside_a_given_one_or_in_few_iterations(params):
    model = quietly(GPClassifier(n_neighbors=0, random_state=0, **params), *rules(290, 0))
    assert not any("AxisMatern" in text for text in model.decisions_)
    assert isinstance(model.kernel_ if "kernel" in params else model.kernel_.k2, RBF)


def test_the_kernel_that_predicts_left_out_rows_better_is_taken():
    """The decision says by how much their mean log probability changes."""
    X, y = rules(120, 0)
    model = quietly(GPClassifier(n_inducing=120, tol=1e-6, random_state=0, feature_transform=None), X, y)
    (text,) = (text for text in model.decisions_ if "in place of RBF" in text)
    change = float(re.search(r"changes by ([-+.0-9e]+) ", text)[1])
    assert isinstance(model.kernel_.k2, AxisMatern) == (change > 0.0)


def test_a_warm_start_keeps_the_axis_aligned_kernel():
    X, y = rules(1500, 0)
    options = {"n_inducing": 64, "n_neighbors": 0, "random_state": 0}
    model = quietly(GPClassifier(**options, warm_start=True, max_iter=20), X, y)
    assert isinstance(model.kernel_.k2, AxisMatern)
    assert isinstance(quietly(model.set_params(max_iter=1), X, y).kernel_.k2, AxisMatern)


def test_a_fit_is_the_same_for_any_number_of_threads(on_rules):
    X, y = rules(3000, 0)
    other = quietly(GPClassifier(random_state=0, n_jobs=2), X, y)
    T, _ = rules(200, 1)
    assert np.array_equal(other.predict_proba(T), on_rules.predict_proba(T))


def test_evaluations_of_the_choice_have_their_rows_and_points(on_rules):
    history = on_rules.history_
    decided = next(i for i, text in enumerate(history["decision"]) if "AxisMatern in place" in text)
    tried = history["elbo"][:decided]
    # Each of both kernels has eight iterations.
    assert np.count_nonzero(np.isfinite(tried)) >= 16
    assert set(history["n_rows"][:decided][np.isfinite(tried)]) == {2700}


def test_restarts_have_the_family_that_was_chosen():
    X, y = rules(1500, 0)
    settings = {"n_neighbors": 0, "n_inducing": 64, "random_state": 0}
    one, more = (quietly(GPClassifier(n_restarts_optimizer=n, **settings), X, y) for n in (0, 1))
    assert isinstance(more.kernel_.k2, AxisMatern)
    assert more.elbo_ >= one.elbo_ - 1e-6 * abs(one.elbo_)
