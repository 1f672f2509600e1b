"""Likelihoods with cut points or rates: sites and predictions against integrals, gradients against differences."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.dense import dense_optimum, derivative
from support.fits import quietly, refuses
from support.internals import KernelSpec, SparsePrior
from support.local import LINKS
from support.reference import in_levels
from support.sites import evaluate_one, expectation
from support.training import check_parameter_gradient, training

from xgpc import GPClassifier, GPOrdinalClassifier, _sites
from xgpc.likelihoods import record_of

RATES = [(0.5, 0.02), (0.1, 0.0), (0.0, 0.3), (1e-4, 0.9), (0.0, 0.0)]
CUTS = (-1.5, -1.2, 2.0, 7.0)
CASES = [*((f"ordinal-{link}", CUTS) for link in LINKS), *(("psychometric", rates) for rates in RATES)]
every_case = pytest.mark.parametrize(("name", "parameter"), CASES, ids=str)


def likelihood(name, parameter):
    return record_of(name, "exact").at(np.array(parameter))


def n_classes(name, parameter):
    return 2 if name == "psychometric" else len(parameter) + 1


def site_of(name, parameter):
    return likelihood(name, parameter).site(n_classes(name, parameter))


def log_p(name, parameter, f, c):
    """log p(y = c | f) to round-off in either tail, for any f."""
    if name == "psychometric":
        least, most = parameter if c == 1 else parameter[::-1]
        y = 2.0 * c - 1.0
        with np.errstate(divide="ignore"):
            logs = [np.log(least) + np.zeros_like(f), np.log1p(-most) + y * f]
        return logsumexp(logs, axis=0) - np.logaddexp(0.0, y * f)
    # From the smaller two of four tails.
    low, high = np.r_[-np.inf, parameter, np.inf][c : c + 2]
    log_cdf = LINKS[name.removeprefix("ordinal-")]
    with np.errstate(divide="ignore", invalid="ignore"):
        below = log_cdf(high - f), log_cdf(low - f)
        above = log_cdf(f - low), log_cdf(f - high)
        larger = np.where(below[0] < above[0], below[0], above[0])
        smaller = np.where(below[0] < above[0], below[1], above[1])
        return larger + np.log(-np.expm1(smaller - larger))


def evaluate(name, parameter, m, v, c):
    """ell, lambda and r (3, n) of the labels of classes c."""
    return evaluate_one(site_of(name, parameter), m, v, 2.0 * c - 1.0)


def expected_log_p(name, parameter, m, v, c):
    points = zip(m, v, c, strict=True)
    return [expectation(lambda f, c=c: log_p(name, parameter, f, c), m, v) for m, v, c in points]


def marginals(n_classes, n=60):
    random = np.random.default_rng(3)
    m, v = random.normal(scale=4.0, size=n), np.exp(random.uniform(np.log(0.01), np.log(400.0), n))
    return m, v, random.integers(n_classes, size=n)


@every_case
def test_sites_are_expectations_and_their_derivatives(name, parameter):
    m, v, c = marginals(n_classes(name, parameter))
    ell, precision, linear = evaluate(name, parameter, m, v, c)
    assert_allclose(ell, expected_log_p(name, parameter, m, v, c), rtol=0.0, atol=4e-8)
    by_mean = derivative(lambda h: evaluate(name, parameter, m + h, v, c)[0], 1e-3)
    by_log_variance = derivative(lambda h: evaluate(name, parameter, m, v * (1.0 + h), c)[0], 1e-3)
    assert_allclose(linear - precision * m, by_mean, atol=1e-9)
    # Of the probit link, precisions have the error of a mixture.
    rtol = 1e-7 if name == "psychometric" else 1e-6
    assert_allclose(precision * v, -2.0 * by_log_variance, rtol=rtol, atol=1e-8)
    assert np.all(precision >= 0.0) or name == "psychometric"


@every_case
def test_sites_are_finite_in_both_tails(name, parameter):
    classes = np.arange(n_classes(name, parameter))
    for v in (0.0, 1e-300, 1e-12, 1.0, 1e8):
        m, c = np.meshgrid([-1e8, -1e6, -1e3, 0.0, 1e3, 1e6, 1e8], classes)
        sites = evaluate(name, parameter, m.ravel(), v, c.ravel())
        assert np.all(np.isfinite(sites))
        assert np.all(sites[0] <= 0.0)


@every_case
def test_the_gradient_by_the_parameter_is_that_of_differences(name, parameter):
    m, v, c = marginals(n_classes(name, parameter))
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(m))
    gradient = _sites.parameter_gradient(site_of(name, parameter), m[None], v[None], 2.0 * c - 1.0, weight)
    sizes = parameter if name == "psychometric" else np.ones(len(parameter))
    for slope, size, unit in zip(gradient, sizes, np.eye(len(parameter)), strict=True):
        by = partial(lambda unit, h: weight @ evaluate(name, parameter + h * unit, m, v, c)[0], unit)
        # A rate of 0 stays, and has no gradient.
        assert slope == pytest.approx(derivative(by, 1e-4 * size) if size else 0.0, rel=1e-5, abs=1e-5)


def test_other_sites_have_no_gradient_by_a_parameter():
    site, one = record_of("logit", "exact").site(), np.ones((1, 1))
    refuses("neither cut points nor rates", _sites.parameter_gradient, site, one, one, one[0], np.empty(0))


@every_case
def test_probabilities_are_expectations_and_have_their_slopes(name, parameter):
    m, v, _ = marginals(n_classes(name, parameter))

    def p(m, v):
        return np.exp(likelihood(name, parameter).log_probabilities(m, v))

    expected = [
        [expectation(lambda f, c=c: np.exp(log_p(name, parameter, f, c)), *point) for c in range(p(m, v).shape[1])]
        for point in zip(m, v, strict=True)
    ]
    assert_allclose(p(m, v), expected, rtol=0.0, atol=1e-8 if name == "psychometric" else 3e-8)
    assert_allclose(p(m, v).sum(axis=1), 1.0, rtol=1e-12)
    given = likelihood(name, parameter).log_probabilities_given(m)
    of_classes = [log_p(name, parameter, m, c) for c in range(given.shape[1])]
    assert_allclose(np.exp(given), np.exp(of_classes).T, rtol=0.0, atol=1e-8)
    by_mean, by_variance = likelihood(name, parameter).probability_slopes(m, v)
    assert_allclose(by_mean[..., 0], derivative(lambda h: p(m + h, v), 1e-4), atol=1e-6)
    assert_allclose(by_variance[..., 0], derivative(lambda h: p(m, v * (1.0 + h)), 1e-3) / v[:, None], atol=1e-5)


@pytest.mark.parametrize("link", LINKS)
def test_levels_far_out_are_certain(link):
    far = likelihood(f"ordinal-{link}", CUTS).log_probabilities(np.array([-1e4, 1e4]), np.ones(2))
    assert np.all(np.isfinite(far))
    assert_array_equal(np.argmax(far, axis=1), [0, 4])


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_the_other_class_has_the_rates_the_other_way_round(rates):
    m, v, c = marginals(2)
    ell, precision, linear = evaluate("psychometric", rates, m, v, c)
    assert_array_equal(evaluate("psychometric", rates[::-1], -m, v, 1 - c), [ell, precision, -linear])


def test_without_rates_the_site_is_that_of_the_logit():
    m, v, c = marginals(2)
    logit = evaluate_one(record_of("logit", "exact").site(), m, v, 2.0 * c - 1.0)
    assert_allclose(evaluate("psychometric", (0.0, 0.0), m, v, c), logit, rtol=1e-15)


MODELS = {f"ordinal-{link}": GPOrdinalClassifier(likelihood=link) for link in LINKS}
MODELS["psychometric"] = GPClassifier(likelihood="psychometric", guess_rate=0.3, lapse_rate=0.1, feature_transform=None)


@pytest.mark.parametrize("name", MODELS)
def test_a_full_process_is_the_optimum_of_the_dense_bound(name):
    X, y = in_levels(9, 1, 2 if name == "psychometric" else 4)
    kernel = ConstantKernel(2.0) * RBF(1.3)
    model = quietly(MODELS[name].set_params(kernel=kernel, inducing_points="all", optimizer=None, tol=1e-10), X, y)
    parameter = (0.3, 0.1) if name == "psychometric" else model.cut_points_
    elbo, mean = dense_optimum(
        np.linalg.cholesky(kernel(X)),
        lambda mean, root: np.sum(evaluate(name, parameter, mean, np.sum(root**2, axis=1), y)[0]),
    )
    assert_allclose(model.elbo_, elbo, atol=2e-5)
    assert_allclose(model.predict_latent(X)[0], mean, atol=3e-3)
    at = *model.predict_latent(X), y
    assert_allclose(evaluate(name, parameter, *at)[0], expected_log_p(name, parameter, *at), rtol=0.0, atol=4e-8)
    assert name != "psychometric" or (model.guess_rate_, model.lapse_rate_) == parameter


COORDINATES = [(f"ordinal-{link}", (-1.0, 0.3, 1.0), {}) for link in LINKS]
COORDINATES += [
    ("psychometric", (0.2, 0.1), {"learned_rates": learned}) for learned in ((True, True), (True, False), (False, True))
]


@pytest.mark.parametrize(("name", "parameter", "learned"), COORDINATES, ids=str)
def test_the_gradient_by_coordinates_is_that_of_differences(name, parameter, learned):
    X, y = in_levels(60, 2, 2 if name == "psychometric" else 4)
    rows, site = training(X, 2.0 * y - 1.0), site_of(name, parameter)
    prior = SparsePrior.build(KernelSpec(ConstantKernel(2.0) * RBF(1.0), 2), X[:12])
    is_learned = np.array(learned.get("learned_rates", (True, True, True)))
    far = check_parameter_gradient(rows, prior, site, **learned)
    assert len(far) == np.count_nonzero(is_learned)
    for moved in far:
        assert_array_equal(moved[~is_learned], site.parameter[~is_learned])
