"""Shapley values: all subsets of the features by brute force, and what the values must satisfy."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.fits import quietly, refuses

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.explain import relevance, shapley_values
from xgpc.gibbs import GibbsClassifier
from xgpc.kernels import ActiveDims, AxisMatern

D = 6
SCALES = np.array([1.0, 2.0, 0.7, 3.0, 1.5, 1.0])


def data(n=150, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, D))
    return X, X[:, 0] * X[:, 1] + np.sin(2.0 * X[:, 2]) + 0.3 * X[:, 4]


def fitted(kernel=None, classes=2, n=150, **settings):
    X, score = data(n)
    y = np.searchsorted(np.quantile(score, np.linspace(0.0, 1.0, classes + 1)[1:-1]), score)
    kernel = 2.0 * RBF(SCALES) if kernel is None else kernel
    given = {"n_inducing": 15, "n_neighbors": 0, "max_iter": 20, "random_state": 0, "optimizer": None, **settings}
    return quietly(GPClassifier(kernel, **given), X, y), X


def by_subsets(x, baseline, players):
    """Rows (2^p b, d) that take the players in each subset from x and the others from a row of ``baseline``, and the
    weights (p, 2^p b) with which the latent function there makes the Shapley values."""
    p = players.max() + 1
    subsets = np.array(list(itertools.product([False, True], repeat=p)))
    rows = np.concatenate([np.where(subsets[:, players], x, row) for row in baseline])
    size = subsets.sum(axis=1)[:, None]
    factorial = np.vectorize(math.factorial, otypes=[float])
    joined = factorial(np.maximum(size - 1, 0)) * factorial(p - size) / math.factorial(p)
    left = factorial(size) * factorial(np.maximum(p - 1 - size, 0)) / math.factorial(p)
    return rows, np.tile(np.where(subsets, joined, -left).T, len(baseline)) / len(baseline)


def assert_brute_force(found, i, model, x, baseline, players):
    """The values and deviations of row i, which is x (d,) after encoding, are those of all subsets."""
    rows, weights = by_subsets(x, baseline, players)
    mean, _ = model.posterior_.marginals(rows)
    np.testing.assert_allclose(found.values[i], (mean @ weights.T).T, atol=1e-8, rtol=0.0)
    variance = np.einsum("ja,...ab,jb->j...", weights, model.posterior_.covariance(rows), weights)
    np.testing.assert_allclose(found.std[i] ** 2, variance, atol=1e-8, rtol=0.0)


X, SCORE = data()
KERNELS = {
    "a length scale each": 2.0 * RBF(SCALES),
    "one length scale": ConstantKernel(3.0) * RBF(2.0),
    "Matern": 2.0 * Matern(SCALES, nu=math.inf),
    "axis-aligned": 2.0 * AxisMatern(SCALES, nu=1.5) + AxisMatern(2.0 * SCALES),
    "sums, products, powers": 2.0 * RBF(SCALES) + RBF(2.0) * RBF(4.0 * SCALES) ** 2 + ConstantKernel(0.3),
    "some columns": 4.0 * ActiveDims(RBF(), [0]) * RBF(np.full(D, 3.0)) + ActiveDims(RBF([1.0, 2.0]), [3, 1]),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"classes": 3, "share": "kernel"}, {"classes": 3, "share": "none", "optimizer": "profile", "max_iter": 3},
     {"inducing_points": "all", "n": 60}, {"classes": 3, "inducing_points": "all", "n": 40}],
    ids=["sparse", "shared", "own kernels", "full", "full, three classes"],
)  # fmt: skip
def test_values_and_deviations_are_those_of_all_subsets(kernel, settings):
    model, X = fitted(kernel, **settings)
    for baseline in (None, X[10], X[10:13]):
        found = shapley_values(model, X[:2], baseline)
        rows = np.atleast_2d(model.feature_mean_ if baseline is None else baseline)
        for i in range(2):
            assert_brute_force(found, i, model, X[i], rows, np.arange(D))
        np.testing.assert_allclose(found.baseline_value, np.mean(model.predict_latent(rows)[0], axis=0), atol=1e-12)
        total = found.baseline_value + found.values.sum(axis=1)
        np.testing.assert_allclose(total, model.predict_latent(X[:2])[0], atol=1e-10)
        assert np.array_equal(found.residual, np.zeros_like(total))


def test_a_prior_mean_belongs_to_the_baseline_and_noise_to_nobody():
    model, X = fitted(2.0 * RBF(SCALES) + WhiteKernel(0.5), mean=0.7)
    found = shapley_values(model, X[:3], X[5])
    assert found.baseline_value == pytest.approx(model.predict_latent(X[5:6])[0][0], abs=1e-12)
    mean = model.predict_latent(X[:3])[0]
    np.testing.assert_allclose(found.baseline_value + found.values.sum(axis=1), mean, atol=1e-10)
    # A row that is the baseline differs by nothing, whatever noise there is.
    same = shapley_values(model, X[5:6], X[5])
    assert np.array_equal(same.values, np.zeros((1, D)))
    np.testing.assert_allclose(same.std, 0.0, atol=1e-7)


def test_one_feature_has_the_whole_difference():
    model = GPClassifier(2.0 * RBF(1.0), optimizer=None, n_inducing=10, n_neighbors=0).fit(X[:, :1], SCORE > 0.0)
    found = shapley_values(model, X[:3, :1], X[7, :1])
    mean, covariance = model.predict_latent(X[[0, 1, 2, 7], :1], return_cov=True)
    np.testing.assert_allclose(found.values[:, 0], mean[:3] - mean[3], atol=1e-12)
    variance = np.diag(covariance)[:3] + covariance[3, 3] - 2.0 * covariance[3, :3]
    np.testing.assert_allclose(found.std[:, 0] ** 2, variance, atol=1e-10)


@pytest.mark.parametrize("p", [31, 120])
def test_values_of_many_features_sum_to_the_difference_also_where_factors_are_zero(p):
    X = np.random.default_rng(0).normal(size=(60, p))
    kernel = 2.0 * RBF(np.full(p, math.sqrt(p)))
    model = GPClassifier(kernel, optimizer=None, n_inducing=21, n_neighbors=0).fit(X, X[:, 0] > 0.0)
    rows = X[:5].copy()
    rows[1, 3], rows[2, :2], rows[3] = 1e6, -1e9, 1e3
    found = shapley_values(model, rows)
    mean = model.predict_latent(rows)[0]
    np.testing.assert_allclose(found.baseline_value + found.values.sum(axis=1), mean, atol=1e-10)
    assert np.all(np.isfinite(found.std))
    # Far from all rows a value's variance is at most the prior's, which is 2 for each of two uncorrelated rows.
    assert np.all(found.std**2 <= 4.0 + 1e-9)


def test_squares_of_distances_may_be_beyond_the_range_of_numbers():
    model = GPClassifier(2.0 * RBF(1e-20), optimizer=None, n_inducing=10, n_neighbors=0).fit(X, SCORE > 0.0)
    found = shapley_values(model, [[1e139] * D])
    np.testing.assert_allclose(found.values, 0.0, atol=1e-12)
    assert np.all(np.isfinite(found.std))


def test_columns_of_a_table_are_players():
    random = np.random.default_rng(0)
    table = pd.DataFrame({
        "width": X[:, 0],
        "colour": pd.Categorical(random.choice(["red", "green", "blue"], len(X))),
        "height": np.where(random.random(len(X)) < 0.2, np.nan, X[:, 1]),
        "shape": pd.Categorical(random.choice(["round", "flat"], len(X))),
    })  # fmt: skip
    y = (SCORE > 0.0) ^ (table["colour"] == "red")
    model = quietly(GPClassifier(n_inducing=15, n_neighbors=0, max_iter=10, random_state=0), table, y)
    players = model.encoding_.features_of(0)
    assert len(players) > 4
    encoded = model.encoding_.encode(table)
    for baseline in (None, table.iloc[:1], table.iloc[2:4]):
        found = shapley_values(model, table.iloc[5:8], baseline)
        assert found.values.shape == (3, 4)
        typical = model.encoding_.typical(model.feature_mean_)[None]
        rows = typical if baseline is None else model.encoding_.encode(baseline)
        for i in range(3):
            assert_brute_force(found, i, model, encoded[5 + i], rows, players)
    # A row of a data frame, whose values have no common type, is a baseline, too, and so is a list of them.
    row = table.iloc[0]
    as_table, *others = (shapley_values(model, table[5:8], one).values for one in (table[:1], row, row.tolist()))
    assert all(np.array_equal(values, as_table) for values in others)


@pytest.mark.parametrize("classes", [2, 3])
def test_with_neighbours_the_values_are_those_of_the_inducing_values_and_the_rest_is_the_residual(classes):
    model, X = fitted(classes=classes, n_neighbors=8)
    q = model.posterior_
    assert q.n_neighbors == 8
    found = shapley_values(model, X[:3], X[20:22])
    total = np.array(found.baseline_value) + found.values.sum(axis=1) + found.residual
    np.testing.assert_allclose(total, model.predict_latent(X[:3])[0], atol=1e-10)
    assert np.max(np.abs(found.residual)) > 1e-3
    # f(x) = a(x).z with z ~ N(w, V), and variances times a factor.
    for i in range(3):
        rows, weights = by_subsets(X[i], X[20:22], np.arange(D))
        a = weights @ q.prior.core.cross(rows) @ q.prior.Linv.T
        np.testing.assert_allclose(found.values[i].reshape(D, -1), a @ q.w.T, atol=1e-8)
        variance = q.variance_scale * np.einsum("jm,cmn,jn->jc", a, q.V, a)
        np.testing.assert_allclose(found.std[i].reshape(D, -1) ** 2, variance, atol=1e-8)


def test_a_linear_model_has_its_closed_form():
    model = BayesianLinearClassifier().fit(X, SCORE > 0.0)
    found = shapley_values(model, X[:4], X[10:30])
    difference = X[:4] - X[10:30].mean(axis=0)
    np.testing.assert_allclose(found.values, difference * model.coef_[0], atol=1e-12)
    np.testing.assert_allclose(found.std, np.abs(difference) * np.sqrt(np.diag(model.coef_covariance_)[:D]), atol=1e-12)
    total = found.baseline_value + found.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict_latent(X[:4])[0], atol=1e-10)
    refuses(r"keeps no mean of its features: give baseline, such as X_train.mean", shapley_values, model, X)


def test_the_bits_do_not_depend_on_threads_and_no_rows_have_no_values():
    model, X = fitted(classes=3, n=400, n_inducing=60)
    alone = shapley_values(model.set_params(n_jobs=1), X)
    for name in ("values", "std", "residual"):
        assert np.array_equal(getattr(alone, name), getattr(shapley_values(model.set_params(n_jobs=2), X), name))
    none = shapley_values(model, X[:0])
    assert none.values.shape == none.std.shape == (0, D, 3)
    assert none.residual.shape == (0, 3)


def test_what_cannot_be_explained_is_refused_with_what_can():
    (model, X), names = fitted(), {"Matern": Matern(SCALES, nu=1.5), "DotProduct": RBF(SCALES) + DotProduct()}
    chains = quietly(GibbsClassifier(RBF(), n_samples=4, n_warmup=0, n_chains=2), X[:20], X[:20, 0] > 0.0)
    refused = [
        *((fitted(kernel)[0], (X,), rf"{name}.* is no product over features, .*RBF\(np.ones\(6\)\)")
          for name, kernel in names.items()),
        (model, (X, X[:0]), "baseline must have at least one row"),
        (model, (X[:, :5],), "X has 5 features"),
        (model, (X, X[0, :5]), "X has 5 features"),
        (make_pipeline(StandardScaler(), BayesianLinearClassifier()).fit(X, X[:, 0] > 0.0), (X,),
         r"got Pipeline\. For a pipeline give the last step"),
        *((other, (X,), "must be a fitted GPClassifier")
          for other in (None, "model", StandardScaler(), chains)),
    ]  # fmt: skip
    for explained, rows, message in refused:
        refuses(message, shapley_values, explained, *rows)


def test_the_deviation_of_a_mean_size_is_at_most_what_relevance_says():
    model, _ = fitted(n_inducing=8)
    size, most = relevance(model)
    # Shapley values of draws of the function at all rows that the games need.
    points, baseline = model.inducing_points_, model.feature_mean_[None]
    each = [by_subsets(x, baseline, np.arange(D)) for x in points]
    rows, index = np.unique(np.concatenate([rows for rows, _ in each]), axis=0, return_inverse=True)
    draws = model.sample_latent(rows, 400, random_state=0)[index].reshape(len(points), -1, 400)
    values = np.stack([weights @ one for (_, weights), one in zip(each, draws, strict=True)])
    error = np.sqrt(np.mean((np.mean(np.abs(values), axis=0) - size[:, None]) ** 2, axis=1))
    assert np.all(error < 1.1 * most)
    assert np.max(error) > 0.1 * np.max(most)
