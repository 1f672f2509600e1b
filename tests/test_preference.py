"""Preferences: a known order, a dense oracle, and gradients."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy.special import log_ndtr
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern
from support import archives
from support.dense import assert_near, dense_optimum, differences, row_differences
from support.fits import clone_of, refuses, reloaded
from support.local import LINKS
from support.training import training

from xgpc import GPClassifier, GPPreference
from xgpc.acquisition import expected_best, pair_information
from xgpc.approximations.pairs import PairPrior
from xgpc.inference.ascent import coordinate_ascent
from xgpc.kernels import ActiveDims
from xgpc.kernels.spec import KernelSpec
from xgpc.likelihoods import record_of

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS /= WEIGHTS.sum()
KERNEL = ConstantKernel(2.0) * RBF(1.2)


def problem(n=60, n_items=15, seed=0):
    """Pairs of items, the one of larger value first, with some noise; and the items with their values."""
    random = np.random.default_rng(seed)
    items = random.normal(size=(n_items, 2))
    value = 2.0 * items[:, 0] - items[:, 1] ** 2
    i, j = random.integers(n_items, size=(2, n))
    j = np.where(i == j, (j + 1) % n_items, j)
    swap = value[i] + 0.3 * random.normal(size=n) < value[j]
    i, j = np.where(swap, j, i), np.where(swap, i, j)
    return items, value, i, j


def fitted(kernel=KERNEL, n=60, **options):
    """A model of the problem's pairs, the items, and both rows of the pairs."""
    items, _, i, j = problem(n)
    model = GPPreference(kernel, **{"optimizer": None, "random_state": 0, **options}).fit(items[i], items[j])
    return model, items, items[i], items[j]


def test_a_known_order_is_found():
    items, value, i, j = problem(200)
    model = GPPreference(random_state=0).fit(items[i], items[j])
    assert spearmanr(model.predict_latent(items)[0], value)[0] > 0.95
    p = model.predict_proba(items[i], items[j])
    assert_allclose(p + model.predict_proba(items[j], items[i]), 1.0, rtol=1e-6)
    assert np.mean(p > 0.5) > 0.9
    few = GPPreference(n_inducing=8, random_state=0).fit(items[i], items[j])
    assert few.inducing_points_.shape == (8, 2)
    assert spearmanr(few.predict_latent(items)[0], value)[0] > 0.9


@pytest.mark.parametrize("link", LINKS)
def test_the_posterior_is_the_optimum_of_the_dense_bound(link):
    items, _, i, j = problem(12, 5)
    model = GPPreference(KERNEL, likelihood=link, optimizer=None, tol=1e-12).fit(items[i], items[j])
    n = len(items)
    L, D = np.linalg.cholesky(KERNEL(items) + 2e-6 * np.eye(n)), np.eye(n)[i] - np.eye(n)[j]

    def expected(mean, root):
        sd = np.sqrt(np.sum((D @ root) ** 2, axis=1))
        return np.sum(LINKS[link]((D @ mean)[:, None] + sd[:, None] * NODES) @ WEIGHTS)

    elbo, mean = dense_optimum(L, expected)
    assert_allclose(model.elbo_, elbo, atol=1e-4)
    assert_allclose(model.predict_latent(items)[0], mean, atol=2e-3)


def test_pairs_have_the_joint_variance():
    model, *_ = fitted(likelihood="probit", n_inducing=8)
    X = np.random.default_rng(1).normal(size=(10, 2))
    mean, covariance = model.predict_latent(X, return_cov=True)
    assert_allclose(np.diag(covariance), model.predict_latent(X)[1], rtol=1e-6)
    minus = np.hstack([np.eye(5), -np.eye(5)])
    expected = np.exp(log_ndtr(minus @ mean / np.sqrt(1.0 + np.diag(minus @ covariance @ minus.T))))
    assert_allclose(model.predict_proba(X[:5], X[5:]), expected, atol=1e-6)


@pytest.mark.parametrize("link", LINKS)
def test_gradients_are_those_of_differences(link):
    items, _, i, j = problem(150)
    rows, site = training(np.hstack([items[i], items[j]]), np.ones(150)), record_of(link, "exact").site()
    Z, start = items[:7] + 0.1, KernelSpec(KERNEL, 2)

    def best(theta, points):
        prior = PairPrior.build(start.with_theta(theta), points)
        return coordinate_ascent(rows, prior.at_prior(), site, tol=1e-13, max_iter=200).point

    point = best(start.theta, Z)
    d_theta, d_Z = point.q.gradient(rows, point.sites, point.target)
    by_theta = differences(lambda theta: best(theta, Z).elbo, start.theta, 1e-3)
    assert_allclose(d_theta, by_theta, rtol=1e-4, atol=1e-4)
    by_point = differences(lambda z: best(start.theta, np.vstack([Z[:3], z, Z[4:]])).elbo, Z[3], 1e-3)
    assert_allclose(d_Z[3], by_point, rtol=1e-3, atol=1e-3)


GRADIENT_KERNELS = [ConstantKernel(2.0) * Matern([1.1, 0.8], nu=2.5), ConstantKernel(0.5) * DotProduct(0.3) + RBF(1.2)]


def asked(kernel, link="logit"):
    random = np.random.default_rng(1)
    return fitted(kernel, likelihood=link, n_inducing=10)[0], random.normal(size=(70, 2)), random.normal(size=(70, 2))


def by_rows(function, A, B, h=1e-4):
    """Central differences (n, 2, d) of values (n,)."""
    at_a, at_b = row_differences(lambda a: function(a, B), A, h), row_differences(lambda b: function(A, b), B, h)
    return np.stack([at_a, at_b], axis=1)


@pytest.mark.parametrize("kernel", GRADIENT_KERNELS, ids=str)
@pytest.mark.parametrize("link", LINKS)
def test_gradients_by_rows(kernel, link):
    model, A, B = asked(kernel, link)
    mean, variance, *by_x = model.predict_difference(A, B, return_grad=True)
    assert_array_equal((mean, variance), model.predict_difference(A, B))
    for k, gradient in enumerate(by_x):
        assert_near(gradient, by_rows(lambda a, b, k=k: model.predict_difference(a, b)[k], A, B), 1e-6)
    # The information's integral is interpolated.
    for function, h, tolerance in (
        (model.predict_proba, 1e-4, 1e-6),
        (partial(pair_information, model), 1e-2, 1e-4),
        (partial(expected_best, model), 1e-4, 1e-6),
    ):
        value, gradient = function(A, B, return_grad=True)
        assert_array_equal(value, function(A, B))
        assert_near(gradient, by_rows(function, A, B, h), tolerance)
    mean, variance, *by_x = model.predict_latent(A, return_grad=True)
    for k, gradient in enumerate(by_x):
        assert_near(gradient, row_differences(lambda rows, k=k: model.predict_latent(rows)[k], A), 1e-6)
    with pytest.raises(ValueError, match="return_grad is for means and variances: give it without return_cov"):
        model.predict_latent(A, return_cov=True, return_grad=True)


@pytest.mark.parametrize("link", LINKS)
def test_scores_of_pairs_are_means_over_draws(link):
    model, A, B = asked(KERNEL, link)
    mean, covariance = model.predict_latent(np.vstack([A[:4], B[:4]]), return_cov=True)
    a, b = np.split(np.random.default_rng(0).multivariate_normal(mean, covariance, 20_000).T, 2)
    assert_allclose(expected_best(model, A[:4], B[:4]), np.mean(np.maximum(a, b), axis=1), atol=0.03)
    log_p = np.stack([LINKS[link](a - b), LINKS[link](b - a)])
    known = -np.mean(np.sum(np.exp(log_p) * log_p, axis=0), axis=1)
    p = np.mean(np.exp(log_p), axis=2)
    assert_allclose(pair_information(model, A[:4], B[:4]), -np.sum(p * np.log(p), axis=0) - known, atol=0.01)
    # A row and itself: nothing is to be learned, and the better one is this row.
    assert_allclose(pair_information(model, A, A), 0.0, atol=1e-7)
    assert_allclose(expected_best(model, A, A), model.predict_latent(A)[0], atol=1e-5)
    few = model.draw_functions(2, random_state=0)
    assert_near(few.gradient(A[:2]), row_differences(few, A[:2]), 1e-6)
    # The better of two values has a kink where they are the same.
    assert np.all(np.isnan(expected_best(model, A, A, return_grad=True)[1]))
    refuses("model must be a fitted GPPreference; got GPClassifier", pair_information, GPClassifier(), A, B)
    refuses("is not fitted yet", pair_information, GPPreference(), A, B, error=NotFittedError)


def test_weights_threads_and_copies():
    items, _, i, j = problem(40)
    count = np.random.default_rng(0).integers(0, 3, 40)
    model = GPPreference(KERNEL, optimizer=None, tol=1e-10)
    weighted = clone(model).fit(items[i], items[j], sample_weight=count).predict_latent(items)[0]
    repeated = model.fit(*(np.repeat(items[side], count, axis=0) for side in (i, j)))
    assert_allclose(weighted, repeated.predict_latent(items)[0], atol=1e-6)
    assert_array_equal(clone_of(repeated).predict_proba(items[i], items[j]), repeated.predict_proba(items[i], items[j]))


def frames(X, Y, columns=("a", "b")):
    return pd.DataFrame(X, columns=columns), pd.DataFrame(Y, columns=columns)


def test_columns_of_frames_are_those_of_the_fit():
    items, _, i, j = problem(40)
    better, worse = frames(items[i], items[j])
    named = GPPreference(ConstantKernel(2.0) * ActiveDims(RBF(), ["b"]), optimizer=None).fit(better, worse)
    numbered = GPPreference(ConstantKernel(2.0) * ActiveDims(RBF(), [1]), optimizer=None).fit(items[i], items[j])
    assert_array_equal(named.predict_proba(better, worse), numbered.predict_proba(items[i], items[j]))
    assert_array_equal(named.feature_names_in_, ["a", "b"])
    for labels in (("a", "b"), (3, 4)):
        X, Y = frames(items[i], items[j], labels)
        model = GPPreference(KERNEL, optimizer=None).fit(X, Y)
        swapped = Y[[labels[1], labels[0]]]
        for call in (model.fit, model.predict_proba):
            error = refuses(r"same order|same columns", call, X, swapped)
            assert error.__notes__[0] in ("X is X_other here.", "X is B here.")
        refuses(r"same order|same columns", model.predict_latent, swapped)


def test_no_rows_have_empty_predictions():
    model, items, *_ = fitted(n=10)
    assert model.predict_proba(items[:0], items[:0]).shape == (0,)
    assert [one.shape for one in model.predict_latent(items[:0], return_cov=True)] == [(0,), (0, 0)]


def test_a_fit_that_max_iter_ends_warns():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 was reached before tol=0.0001 by the optimizer"):
        fitted(None, 40, optimizer="profile", max_iter=1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_an_error_leaves_a_fit_as_it_was(bad):
    model, items, better, worse = fitted(n=10)
    before = model.predict_latent(items)
    worse[0] = bad
    refuses(r"missing numbers|infinity|size 1e", model.fit, better, worse)
    assert_array_equal(model.predict_latent(items), before)


BAD = {
    "likelihood must be": ({"likelihood": "softmax"}, 5),
    "optimizer must be": ({"optimizer": "adam"}, 5),
    "n_inducing must be": ({"n_inducing": 0}, 5),
    "n_jobs must be": ({"n_jobs": "all"}, 5),
    "5 rows of X_preferred and 4 rows of X_other": ({}, 4),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_an_error(message):
    items, _, i, j = problem(5)
    options, rows = BAD[message]
    refuses(message, GPPreference(**options).fit, items[i], items[j][:rows])


@pytest.mark.parametrize("kind", ["default", "given", "frames"])
def test_a_file_keeps_all_that_predicts(tmp_path, kind):
    items, _, i, j = problem()
    given = {"kernel": ActiveDims(RBF(1.0), [0]) + KERNEL, "likelihood": "probit", "n_inducing": 8, "optimizer": None}
    model = GPPreference(**given if kind == "given" else {"random_state": 0})
    if kind == "frames":
        items = pd.DataFrame(items, columns=["width", "height"])
    first, second = (items.iloc[i], items.iloc[j]) if kind == "frames" else (items[i], items[j])
    again = reloaded(model.fit(first, second), tmp_path)
    assert_array_equal(again.predict_proba(first, second), model.predict_proba(first, second))
    assert_equal(again.predict_latent(items, return_cov=True), model.predict_latent(items, return_cov=True))
    assert str(again) == str(model)
    for name in ("elbo_", "n_iter_", "kernel_", "inducing_points_"):
        assert_equal(getattr(again, name), getattr(model, name))
    if kind == "frames":
        refuses("feature names", again.predict_latent, items[["height", "width"]])


def test_files_that_are_damaged_or_of_another_kind_are_refused(tmp_path):
    model, items, *_ = fitted(None, optimizer="profile")
    path = tmp_path / "model.npz"
    model.save(path)
    content = path.read_bytes()
    header, arrays = archives.read(content)
    changes = [
        (header | {"fitted_likelihood": "svm"}, arrays),
        (header | {"parameters": header["parameters"] | {"n_inducing": 0}}, arrays),
        (header | {"parameters": header["parameters"] | {"colour": "red"}}, arrays),
        (header | {"colour": "red"}, arrays),
        (header | {"full": True}, arrays),
        (header | {"neighbors": 3}, arrays),
        (header, arrays | {"eta": -arrays["eta"]}),
        (header, arrays | {"eta": arrays["eta"][:, :3]}),
        (header, arrays | {"h": np.full_like(arrays["h"], np.nan)}),
        (header, {name: array for name, array in arrays.items() if name != "elbo"}),
    ]
    for damaged in (content[: len(content) // 2], *(archives.write(*changed) for changed in changes)):
        path.write_bytes(damaged)
        refuses(r"is not a model saved by GPPreference\.save", GPPreference.load, path)
    GPClassifier(n_inducing=4, n_neighbors=0, optimizer=None).fit(items, items[:, 0] > 0).save(path)
    refuses("its format is 'xgpc model", GPPreference.load, path)
