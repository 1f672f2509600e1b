"""Gradients by x of predictions, drawn functions and acquisition scores, against central differences and integrals."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, Matern, WhiteKernel
from support.dense import (
    KERNELS,
    KERNELS_OF_COLUMNS,
    SOME_KERNELS,
    assert_near,
    compiled,
    kernel_trees,
    row_differences,
)
from support.fits import quietly, refuses, reloaded
from support.latents import RECORDS, every
from support.posteriors import LABELS, POSTERIORS, labelled, model_of, stretched
from support.sites import expectation_over_classes

from xgpc import BayesianLinearClassifier, GPClassifier, GPOrdinalClassifier, acquisition
from xgpc.data.encoding import Encoding
from xgpc.data.tails import Limit, Warp
from xgpc.kernels import ActiveDims, AxisMatern
from xgpc.likelihoods import LIKELIHOODS

D = 3
KERNEL = ConstantKernel(2.0) * Matern([0.8, 1.1, 1.7], nu=1.5)
ROWS = np.random.default_rng(1).normal(size=(5, D))
fitted = partial(model_of, kernel=KERNEL, d=D)


def assert_latent_gradients(model, X=ROWS, h=1e-4):
    *moments, by_mean, by_variance = model.predict_latent(X, return_grad=True)
    np.testing.assert_array_equal(moments, model.predict_latent(X))
    assert by_mean.shape == by_variance.shape == (*moments[0].shape, X.shape[1])
    for at, gradient in enumerate((by_mean, by_variance)):
        assert_near(gradient, row_differences(lambda rows, at=at: model.predict_latent(rows)[at], X, h), 1e-6)


def assert_gradient(function, X=ROWS, h=1e-4, tolerance=1e-6):
    """Of a function that returns its values, or with ``return_grad`` also their gradients by the rows."""
    values, gradient = function(X, return_grad=True)
    np.testing.assert_array_equal(values, function(X))
    assert gradient.shape == (*values.shape, X.shape[1])
    assert_near(gradient, row_differences(function, X, h), tolerance)


@pytest.mark.parametrize("kernels", [kernel_trees(D), *map(st.just, KERNELS_OF_COLUMNS.values())])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_covariances_by_rows(kernels, data, seed):
    kernel, random = data.draw(kernels), np.random.default_rng(seed)
    X, Z, G = random.normal(size=(3, D)), random.normal(size=(4, D)), random.normal(size=(2, 4, 3))
    # Differences across a kink, where a row and a point are equal in a feature, are no derivatives.
    assume(np.abs(X[:, None] - Z).min() > 1e-4)
    core = compiled(kernel, Z)
    found = core.row_gradients(X, G)
    expected = row_differences(lambda rows: np.einsum("gkn,nk->ng", G, core.cross(rows)), X, 1e-5)
    size = np.abs(core.cross(X)).max() + np.abs(expected).max()
    np.testing.assert_allclose(found, np.swapaxes(expected, 0, 1), atol=1e-7 * size)
    diagonal = row_differences(core.diagonals, X, 1e-4)
    np.testing.assert_allclose(core.diagonal_gradient(X), diagonal, atol=1e-8 * (1.0 + np.abs(diagonal).max()))


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("name", SOME_KERNELS)
def test_latent_moments_by_rows(name, posterior):
    kernel = KERNELS[name](np.array([1.1, 0.8, 1.7]), 1.5, 0.2)
    for n_classes in (2, 3):
        assert_latent_gradients(fitted(n_classes, posterior, kernel=kernel))


@pytest.mark.parametrize(
    ("n_classes", "posterior", "share"), [(3, "sparse", "none"), (3, "full", "none"), (2, "local", "auto")]
)
def test_learned_kernels(n_classes, posterior, share):
    """One for each class, or one with a variance of its own beside neighbours."""
    model = fitted(n_classes, posterior=posterior, share=share, optimizer="profile", max_iter=3)
    assert len(model.kernel_) == 3 if share == "none" else model.n_neighbors_ > 0
    assert_latent_gradients(model)


@every(RECORDS)
def test_probabilities_of_every_likelihood(record):
    n_classes = 3 if record.is_multi_class else 2
    rates = {"guess_rate": 0.3, "lapse_rate": 0.05} if record.has_rates else {}
    weight = {label: 1.0 + c for c, label in enumerate(LABELS[:n_classes])}
    options = {"likelihood": record.likelihood, "bound": record.bound, "class_weight": weight, **rates}
    model = fitted(n_classes, max_iter=20, **options)
    assert_latent_gradients(model)
    if record.slopes is None:
        with pytest.raises(ValueError, match=r"averages over points.*predict_latent\(X, return_grad=True\)"):
            model.predict_proba(ROWS, return_grad=True)
    else:
        # Interpolation in the tables of softmax, not smooth, changes its differences by its error over the step.
        is_table = record.likelihood == "softmax"
        assert_gradient(model.predict_proba, h=1e-2 if is_table else 1e-3, tolerance=1e-5 if is_table else 1e-6)


@pytest.mark.parametrize("posterior", ["full", "local"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_of_every_posterior(posterior, n_classes):
    step, tolerance = (1e-3, 1e-6) if n_classes == 2 else (1e-2, 1e-5)
    assert_gradient(fitted(n_classes, posterior=posterior).predict_proba, h=step, tolerance=tolerance)


def test_softmax_slopes_are_expectations():
    """dp_y / dm_c = E[p_y (1{c = y} - p_c)] and dp_y / dv_c half its derivative."""
    mean, variance = np.array([[0.3, -1.0, 0.8], [2.0, 0.1, -0.5]]), np.array([[0.5, 1.0, 0.2], [1.5, 0.7, 1.0]])
    by_mean, by_variance = LIKELIHOODS["softmax"]["exact"].probability_slopes(mean, variance)

    def slopes(f, y, c, order):
        p = softmax(f, axis=0)
        first = p[y] * ((c == y) - p[c])
        return first if order == 1 else 0.5 * (first * ((c == y) - p[c]) - p[y] * p[c] * (1.0 - p[c]))

    for i, y, c in np.ndindex(by_mean.shape):
        for order, slope in ((1, by_mean), (2, by_variance)):
            expected, _ = expectation_over_classes(partial(slopes, y=y, c=c, order=order), mean[i], variance[i])
            assert slope[i, y, c] == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("record", RECORDS[:3], ids=lambda record: record.bound)
def test_tails_of_the_logistic_link_keep_their_digits(record):
    mean = np.array([-30.0, -12.0, 12.0, 30.0])
    by_mean, _ = record.probability_slopes(mean, np.full(4, 0.5))
    # Far out the less probable class has exp(-|m| + v / 2), and the same slope.
    np.testing.assert_allclose(by_mean[:, 1, 0], np.exp(-np.abs(mean) + 0.25), rtol=1e-3)
    np.testing.assert_array_equal(by_mean[:, 0], -by_mean[:, 1])


def test_a_step_without_variance_has_no_slope():
    assert not np.any(LIKELIHOODS["step"]["additive-noise"].at(0.01).probability_slopes(np.ones(2), np.zeros(2)))


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_warped_features_and_a_prior_mean(posterior, tmp_path):
    # A given kernel is one of the features as they are.
    model = fitted(2, posterior, kernel=None, change=stretched, mean=0.7)
    assert [one.feature for one in model.encoding_.warps] == [2]
    rows = stretched(labelled(2, D)[0])[:4] + 0.01
    assert_latent_gradients(model, rows, 1e-3)
    assert_gradient(model.predict_proba, rows, 1e-3)
    loaded = reloaded(model, tmp_path)
    np.testing.assert_equal(loaded.predict_latent(rows, return_grad=True), model.predict_latent(rows, return_grad=True))


def test_far_values_count_as_their_limits():
    """Limits on both sides and on one, with and without a warp."""
    limits = Limit(0, -2.0, 2.0), Limit(1, -2.0, 2.0), Limit(3, -np.inf, 3.0)
    encoding = Encoding((), "", limits, (Warp(0, 0.2, 0.7), Warp(2, 0.0, 1.5)))
    near = np.array([0.4, -0.6, 1.1, 0.9])
    rows = np.array([near, [50.0, *near[1:]], [0.4, 50.0, 1.1, 0.9], [50.0, 50.0, -9.0, 0.9], [*near[:3], 70.0]])
    weight = np.random.default_rng(0).normal(size=rows.shape)
    expected = row_differences(lambda X: np.sum(weight * encoding.transform(X), axis=1), rows)
    np.testing.assert_allclose(encoding.transform_vjp(rows, weight), expected, atol=1e-8)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_other_kinds_of_rows(posterior):
    model = fitted(3, posterior=posterior)
    many = np.random.default_rng(2).normal(size=(1100, D))
    moments = partial(model.predict_latent, return_grad=True)
    found, single = moments(many), many[:6].astype(np.float32)
    model.set_params(n_jobs=2)
    np.testing.assert_equal(moments(many), found)
    pairs = [*zip(moments(many[-40:]), (each[-40:] for each in found), strict=True)]
    for one, other in (*pairs, *zip(moments(single), moments(single.astype(np.float64)), strict=True)):
        assert_near(one, other, 1e-12)
    frame = fitted(posterior=posterior, change=pd.DataFrame)
    assert frame.predict_proba(pd.DataFrame(ROWS), return_grad=True)[1].shape == (5, 2, D)
    empty = model.predict_latent(many[:0], return_grad=True)
    assert [one.shape for one in empty] == [(0, 3), (0, 3), (0, 3, D), (0, 3, D)]
    assert model.predict_proba(many[:0], return_grad=True)[1].shape == (0, 3, D)


@pytest.mark.parametrize(
    ("kernel", "is_kink"),
    [
        (Matern(1.0, nu=0.5), [True, True, True]),
        (AxisMatern(2.0), [True, True, True]),
        (RBF(1.0) + Matern(1.0, nu=0.5) * RBF(2.0), [True, True, True]),
        (RBF(1.0) * ActiveDims(Matern(1.0, nu=0.5), [2, 0]), [True, False, True]),
        (RBF(1.0) + ActiveDims(AxisMatern(2.0), [1]), [False, True, False]),
        (AxisMatern(2.0, nu=1.5) * Matern(1.0, nu=1.5), [False, False, False]),
    ],
    ids=str,
)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_gradients_at_points_are_nan_where_a_kernel_has_a_kink(posterior, kernel, is_kink):
    model = fitted(2, posterior, kernel=kernel)
    near = model.posterior_.X if posterior == "local" else model.inducing_points_
    for point in (model.inducing_points_[:1], near[:1]):
        # A point twice, and one that agrees with it in the second feature alone.
        rows = np.repeat(point, 3, axis=0)
        rows[2, [0, 2]] += 0.1
        apart = np.array([is_kink, is_kink, [False, is_kink[1] and "AxisMatern" in str(kernel), False]])
        if posterior == "local":
            # Neighbours of a moved row may agree with it in other features, never here.
            assert not np.any(np.isin(rows[2, [0, 2]], model.posterior_.X))
        for at, gradient in enumerate(model.predict_latent(rows, return_grad=True)[2:]):
            np.testing.assert_array_equal(np.isnan(gradient), apart, err_msg=("mean", "variance")[at])
            expected = row_differences(lambda rows, at=at: model.predict_latent(rows)[at], rows)
            np.testing.assert_allclose(gradient[~apart], expected[~apart], atol=1e-5)
        assert np.array_equal(np.isnan(model.predict_proba(rows, return_grad=True)[1][:, 1]), apart)
    if posterior == "sparse":
        assert np.array_equal(np.isnan(model.draw_functions(2).gradient(rows)[:, 1]), apart)


@pytest.mark.parametrize("kernel", [Matern(1.0, nu=0.5), AxisMatern(2.0)])
def test_gradients_next_to_a_kink_are_exact(kernel):
    z, G = np.zeros((1, D)), np.ones((1, 1, 1))
    for offset in (1e-6, -1e-4):
        row = np.array([[offset, 0.5, -0.3]]) if isinstance(kernel, AxisMatern) else offset * np.eye(1, D)
        found = compiled(kernel, z).row_gradients(row, G)[0, 0, 0]
        scale = -np.sign(offset) / kernel.length_scale
        np.testing.assert_allclose(found, scale * kernel(row, z)[0, 0], rtol=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("shape", [(60, 4), (12, 30)])
def test_linear_classifier(intercept, shape):
    random = np.random.default_rng(3)
    X = random.normal(size=shape)
    model = quietly(BayesianLinearClassifier(fit_intercept=intercept), X, X[:, 0] + random.normal(size=len(X)) > 0.0)
    rows = random.normal(size=(4, shape[1]))
    assert_latent_gradients(model, rows)
    assert_gradient(model.predict_proba, rows, 1e-3)
    np.testing.assert_allclose(model.predict_latent(rows, return_grad=True)[2], np.repeat(model.coef_, 4, axis=0))
    moments = partial(model.predict_latent, return_grad=True)
    for one, other in zip(moments(csr_array(rows)), moments(rows), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("posterior", ["sparse", "full"])
@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL + WhiteKernel(0.1),
        RBF(1.0) * AxisMatern([1.0, 2.0, 3.0], nu=1.5) + ConstantKernel(0.3),
        DotProduct(0.5) ** 2 * ActiveDims(ExpSineSquared(1.2, 2.0), [1]) + ActiveDims(DotProduct(), [0, 2]),
    ],
    ids=["matern and noise", "sum of products", "linear and periodic"],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_drawn_functions(n_classes, kernel, posterior):
    X, y = labelled(n_classes, D)
    model = fitted(n_classes, posterior, kernel=kernel, mean=([0.5, -0.2, 0.1] if n_classes == 3 else 0.5))
    rows, n_draws = X[:6] + 0.01, 18
    draws = model.draw_functions(n_draws, random_state=4)
    values = draws(rows)
    assert values.shape == ((6, n_draws) if n_classes == 2 else (6, 3, n_draws))
    np.testing.assert_allclose(draws(rows[2:3]), values[2:3], rtol=1e-10)
    assert_near(draws.gradient(rows), row_differences(draws, rows), 1e-6)
    # A later fit changes the model, and not its draws.
    quietly(model, X[::-1] + 3.0, y)
    np.testing.assert_array_equal(draws(rows), values)


def test_drawn_functions_of_warped_features():
    model, rows = fitted(kernel=None, change=stretched), stretched(labelled(2, D)[0])[:4]
    draws = model.draw_functions(2, random_state=0)
    assert model.encoding_.warps
    assert_near(draws.gradient(rows), row_differences(draws, rows, 1e-3), 1e-6)


def test_drawn_functions_are_pathwise_draws():
    model = fitted(3)
    sample = model.sample_latent(ROWS, 20, random_state=5, method="pathwise")
    np.testing.assert_allclose(model.draw_functions(20, random_state=5)(ROWS), sample, rtol=1e-12)


@pytest.mark.parametrize("name", ["predictive_entropy", "mutual_information", "latent_variance"])
@pytest.mark.parametrize(
    ("n_classes", "options"),
    [(2, {}), (2, {"likelihood": "probit", "bound": "additive-noise"}), (3, {}), (2, {"likelihood": "softmax"})],
)
def test_scores(name, n_classes, options):
    model = fitted(n_classes, max_iter=30, **options)
    # The information's integral and softmax's tables are interpolated, and the sites of softmax have an error of 1e-3.
    is_table = n_classes == 3 or "softmax" in options.values()
    tolerance = 1e-3 if is_table and name == "mutual_information" else 1e-4
    assert_gradient(partial(getattr(acquisition, name), model), h=1e-2, tolerance=tolerance)


def objective(X):
    """Mean and standard deviation of an objective, with their gradients."""
    mean, std = np.sum((X - 0.5) ** 2, axis=1), np.exp(0.3 * X[:, 0])
    return mean, std, 2.0 * (X - 0.5), 0.3 * std[:, None] * np.eye(D)[0]


@pytest.mark.parametrize("name", ["constrained_expected_improvement", "log_constrained_expected_improvement"])
@pytest.mark.parametrize("best", [0.7, np.inf])
@pytest.mark.parametrize(
    ("options", "quantile"),
    [({}, None), ({}, 0.1), ({"likelihood": "probit"}, 0.9), ({"likelihood": "step"}, None), ({"n_classes": 3}, None)],
    ids=str,
)
def test_constrained_improvement(name, best, options, quantile):
    model, improvement = fitted(**options), getattr(acquisition, name)

    def score(X):
        return improvement(model, X, "good", *objective(X)[:2], best, quantile=quantile)

    *moments, mean_grad, std_grad = objective(ROWS)
    gradients = {} if best == np.inf else {"mean_grad": mean_grad, "std_grad": std_grad}
    options = gradients | {"return_grad": True, "quantile": quantile}
    values, gradient = improvement(model, ROWS, "good", *moments, best, **options)
    np.testing.assert_allclose(values, score(ROWS), rtol=1e-14)
    assert_near(gradient, row_differences(score, ROWS, 1e-3), 1e-6)


@pytest.mark.parametrize("grade", ["bad", "odd"])
def test_a_quantile_of_the_first_and_last_of_ordered_classes(grade):
    model = GPOrdinalClassifier(KERNEL, n_inducing=12, optimizer=None, random_state=0)
    quietly(model, *labelled(3, D), classes=LABELS)
    assert_gradient(model.predict_proba)
    score = partial(acquisition.log_probability_of_feasibility, model, feasible=grade, quantile=0.2)
    assert_gradient(score, h=1e-3)
    # The mean over the posterior is no quantile, but lies between a low and a high one.
    low, high = (acquisition.probability_of_feasibility(model, ROWS, grade, quantile=q) for q in (0.01, 0.99))
    mean = acquisition.probability_of_feasibility(model, ROWS, grade)
    assert np.all((low < mean) & (mean < high))
    with pytest.raises(ValueError, match="quantile is for two classes and the first and last of ordered ones"):
        acquisition.probability_of_feasibility(model, ROWS, "good", quantile=0.2)


def test_improvement():
    *moments, mean_grad, std_grad = objective(ROWS)
    _, gradient = acquisition.expected_improvement(*moments, 0.7, True, mean_grad, std_grad)
    expected = row_differences(lambda X: acquisition.expected_improvement(*objective(X)[:2], 0.7), ROWS)
    assert_near(gradient, expected, 1e-6)
    # Without uncertainty it is the gain, or nothing.
    value, gradient = acquisition.expected_improvement([0.5, 0.9], [0.0, 0.0], 0.7, True, *np.ones((2, 2, 1)))
    np.testing.assert_allclose(value, [0.2, 0.0])
    np.testing.assert_array_equal(gradient, [[-1.0], [0.0]])


def test_refusals():
    for call in (GPClassifier().predict_latent, GPClassifier().predict_proba, BayesianLinearClassifier().predict_proba):
        refuses("not fitted", call, ROWS, return_grad=True, error=NotFittedError)
    refuses("not fitted", GPClassifier().draw_functions, error=NotFittedError)
    model = fitted()
    for options in ({"return_cov": True}, {"corrected": True}):
        refuses("return_grad is for means and variances", model.predict_latent, ROWS, return_grad=True, **options)
    X, y = labelled(2, D)
    table = pd.DataFrame({"number": X[:, 0], "level": pd.Categorical(np.where(X[:, 1] > 0.0, "a", "b"))})
    of_table = quietly(GPClassifier(n_inducing=5, n_neighbors=0, max_iter=2, random_state=0), table, y)
    draws = of_table.draw_functions(random_state=0)
    for method in (
        partial(of_table.predict_latent, return_grad=True),
        partial(of_table.predict_proba, return_grad=True),
        draws.gradient,
        partial(acquisition.latent_variance, of_table, return_grad=True),
    ):
        refuses(r"levels or missing numbers.*Fit to the columns of numbers alone", method, table)
    assert draws(table).shape == (len(table), 1)
    for other in (fitted(posterior="local"), fitted(kernel=Matern(nu=2.2))):
        refuses(r"draw_functions is .*sample_latent\(X, method='exact'\)", other.draw_functions)
    refuses("n_draws", model.draw_functions, 0)
    several = fitted(3, likelihood="multinomial-probit", max_iter=5)
    with pytest.raises(ValueError, match=r"mutual_information has no gradient.*predictive_entropy"):
        acquisition.mutual_information(several, ROWS, return_grad=True)
    refuses("give mean_grad and std_grad", acquisition.expected_improvement, [1.0], [1.0], 0.5, return_grad=True)
    with pytest.raises(ValueError, match=r"must be \(n, d\) with n = 1"):
        acquisition.expected_improvement([1.0], [1.0], 0.5, True, np.ones((2, 3)), np.ones((2, 3)))
