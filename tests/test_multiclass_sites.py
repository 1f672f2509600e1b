"""Closed forms of the sites of several classes, their reductions to two, and the integral of the exact softmax."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import digamma, gammaln, logsumexp, ndtr, softmax
from support.latents import seeds
from support.sites import DELTA, NOISE, build, evaluate_one, normal_plus_gumbel, problem
from support.sites import evaluate as evaluate_site

from xgpc._sites import Values
from xgpc.likelihoods import record_of
from xgpc.likelihoods.softmax import X_HIGH, X_LOW, softmax_table

class_numbers = st.sampled_from([2, 3, 5, 11, 40])


def evaluate(likelihood, bound, m, v, y):
    """ell (n,), lambda (C, n) and r (C, n); m (C, n)."""
    return evaluate_site(build(likelihood, bound, len(m)), m, v, y)


def assert_is_site_of_difference(value, site, m, v, y, limits):
    """Of two classes: ell, lambda and d ell / dm of a site of one latent value f_1 - f_0, whose variance is v."""
    ell, precision, linear = value
    difference = m[1] - m[0]
    expected = evaluate_one(site, difference, v, 2.0 * y - 1.0)
    by_mean = expected[2] - expected[1] * difference
    assert_allclose(ell, expected[0], rtol=0.0, atol=limits[0])
    assert_allclose(precision, np.stack([expected[1]] * 2), rtol=0.0, atol=limits[1])
    assert_allclose(linear - precision * m, np.stack([-by_mean, by_mean]), rtol=0.0, atol=limits[2])


@settings(max_examples=40)
@given(seed=seeds, n_classes=class_numbers)
def test_additive_noise_softmax_is_its_closed_form(seed, n_classes):
    """Liu et al. 2019, equation (25)."""
    m, v, y = problem(n_classes, seed, spread=30.0, least=1e-6, most=1e4)
    label, points = np.arange(n_classes)[:, None] == y, np.arange(len(y))
    exponent = np.where(label, 0.0, m - m[y, points] + 0.5 * (v + v[y, points]))
    share = np.where(label, 0.0, softmax(exponent, axis=0))
    gradient = np.where(label, share.sum(axis=0), -share)
    ell, precision, linear = evaluate("softmax", "additive-noise", m, v, y)
    assert_allclose(ell, -logsumexp(exponent, axis=0), rtol=1e-12, atol=1e-12)
    assert_allclose(precision, np.abs(gradient), rtol=1e-11, atol=1e-12)
    assert_allclose(linear, gradient + np.abs(gradient) * m, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize(("least", "most"), [(1e-9, 1e-3), (0.3, 5.0), (1.0, 1e2), (1e-3, 1e4)])
def test_softmax_of_two_classes_is_a_logit(least, most):
    """log softmax_y(f) = log sigma(f_y - f_o), up to the errors of softmax.h."""
    m, v, y = problem(2, 2, n=200, least=least, most=most)
    value = evaluate("softmax", "exact", m, v, y)
    assert_is_site_of_difference(value, build("logit", "exact", 2), m, v.sum(axis=0), y, (1e-5, 3e-6, 1e-6))


@pytest.mark.parametrize("likelihood", ["multinomial-step", "multinomial-probit", "multinomial-logit"])
def test_multinomial_of_two_classes_is_binary_with_the_noise_of_both(likelihood):
    """The one likelihood's noise is in v, so that the other's is the step. The quadrature's error of p_y is 2e-10 for
    two classes, and ell multiplies it by four."""
    m, v, y = problem(2, 6, n=200, least=0.5, most=2.0)
    both, limits = v.sum(axis=0) + 2.0 * NOISE[likelihood], (1e-9, 1e-8, 1e-8)
    value = evaluate(likelihood, "additive-noise", m, v, y)
    assert_is_site_of_difference(value, build("step", "additive-noise", 2), m, both, y, limits)
    if likelihood == "multinomial-probit":
        assert_is_site_of_difference(value, build("probit", "additive-noise", 2), m, both - 1.0, y, limits)


@pytest.mark.parametrize("n_classes", [2, 10, 30])
def test_softmax_without_variance(n_classes):
    m, _, y = problem(n_classes, 3)
    p = softmax(m, axis=0)
    for v in (0.0, 1e-12, 1e-9, 1e-7):
        ell, precision, linear = evaluate("softmax", "exact", m, v, y)
        assert_allclose(ell, np.log(p[y, np.arange(25)]), rtol=0.0, atol=1e-7)
        assert_allclose(precision, p * (1.0 - p), rtol=0.0, atol=1e-6)
        assert_allclose(linear - precision * m, (np.arange(n_classes)[:, None] == y) - p, rtol=0.0, atol=1e-6)


def integral_of_largest(m, s, label, other=None, power=0):
    """P(the label's value is the largest), by adaptive quadrature between all points where a factor bends.

    With z^power phi(z) in place of another class's factor Phi(z), if there is one.
    """

    def integrand(t):
        z = (t - m) / s
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        factors = ndtr(z)
        factors[label] = density[label] / s[label]
        if other is not None:
            factors[other] = z[other] ** power * density[other]
        return np.prod(factors)

    low, high = np.max(m - 9.0 * s), m[label] + 9.0 * s[label]
    bends = (m[:, None] + np.outer(s, [-6.0, -3.0, 0.0, 3.0, 6.0])).ravel()
    edges = np.unique(np.clip(np.append(bends, [low, high]), low, high))
    return sum(quad(integrand, *ends, epsabs=1e-13, epsrel=1e-10)[0] for ends in pairwise(edges))


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("ratio", [1e-3, 1e-2, 0.1, 0.3, 0.6, 1.0, 3.0, 1e3])
@pytest.mark.parametrize("alike", [True, False])
def test_label_probabilities_at_any_ratio_of_standard_deviations(n_classes, ratio, alike):
    """Another class's standard deviation is so much of the label's; the rest the same, or of any size between."""
    random = np.random.default_rng([n_classes, int(1e4 * ratio), alike])
    label, other = 0, 1
    m, power = random.normal(size=n_classes), 1.0 if alike else random.uniform(size=n_classes - 2)
    s = 2.0 * ratio ** np.r_[0.0, 1.0, np.broadcast_to(power, n_classes - 2)]
    # Where neither 0 nor 1 is likely.
    m[label] = np.max((m + s * np.sqrt(2.0 * np.log(n_classes)))[1:])
    value = evaluate("multinomial-step", "additive-noise", m[:, None], s[:, None] ** 2, np.array([label]))
    ell, precision, linear = (a[..., 0] for a in value)
    wrong = np.log(DELTA / (n_classes - 1))
    gain = np.log1p(-DELTA) - wrong
    expected = integral_of_largest(m, s, label)
    assert 1e-2 < expected < 0.9999
    assert (ell - wrong) / gain == pytest.approx(expected, abs=3e-9)
    by_mean = s[other] * (precision * m - linear)[other] / gain
    assert by_mean == pytest.approx(integral_of_largest(m, s, label, other), abs=3e-9)
    by_variance = s[other] ** 2 * precision[other] / gain
    assert by_variance == pytest.approx(integral_of_largest(m, s, label, other, power=1), abs=3e-8)


@settings(max_examples=40)
@given(seed=seeds, n_classes=class_numbers, factor=st.floats(0.2, 5.0), offset=st.floats(-15.0, 5.0))
def test_logistic_softmax_site_is_stationary(seed, n_classes, factor, offset):
    """Galy-Fajou et al. 2019: no other shape alpha of their Gamma variable has a higher bound."""
    m, v, y = problem(n_classes, seed, least=1e-3)
    m += offset
    c = np.sqrt(m**2 + v)
    log_cosh = np.logaddexp(0.5 * c, -0.5 * c)
    mean_tail = np.exp(-0.5 * m - log_cosh).mean(axis=0)
    log_sigma = (0.5 * m - log_cosh)[y, np.arange(25)]

    def local_bound(alpha):
        entropy = alpha - np.log(n_classes) + gammaln(alpha) + (1.0 - alpha) * digamma(alpha)
        return log_sigma + entropy - alpha + mean_tail * np.exp(digamma(alpha))

    ell, precision, linear = evaluate("logistic-softmax", "polya-gamma", m, v, y)
    label = np.arange(n_classes)[:, None] == y
    gamma = label - 2.0 * linear
    alpha = 1.0 + gamma.sum(axis=0)
    assert_allclose(alpha - 1.0, mean_tail * np.exp(digamma(alpha)), rtol=1e-9)
    cancellation = 1e-10 + 1e-13 * alpha * np.log(alpha + 2.0)
    assert np.all(np.abs(ell - local_bound(alpha)) < cancellation)
    assert np.all(local_bound(1.0 + factor * (alpha - 1.0)) < ell + cancellation)
    assert_allclose(precision, (label + gamma) * np.tanh(0.5 * c) / (2.0 * c), rtol=1e-12)


def by_fine_rule(m, v, y, n_nodes=501):
    """ell and lambda (C,) of one point by their integrals, without the library's table."""
    sd = np.sqrt(v)
    low, high = np.max(m - 4.0 - 7.5 * sd), np.max(m + np.where(v < 72.0, 36.0 + 0.5 * v, np.sqrt(72.0 * v)))
    u = np.linspace(0.0, np.arcsinh(high - low), n_nodes)
    t = low + np.sinh(u)
    each = [normal_plus_gumbel(t - mean, deviation) for mean, deviation in zip(m, sd, strict=True)]
    log_H, hazard = (np.array(values) for values in zip(*each, strict=True))
    weight, R = np.cosh(u) * (u[1] - u[0]) * np.exp(log_H.sum(axis=0)), hazard.sum(axis=0)
    return m[y] + np.euler_gamma - weight @ (t * R), (hazard * (R - hazard)) @ weight


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("spread", [0.0, 2.0, 30.0])
@pytest.mark.parametrize(("least", "most"), [(1e-3, 2e-3), (0.5, 2.0), (15.0, 60.0), (5e3, 1e4), (1e-3, 1e4)])
def test_softmax_is_its_integral(n_classes, spread, least, most):
    """The errors that softmax.h states."""
    n = 4 if n_classes < 100 else 1
    m, v, y = problem(n_classes, 4, n=n, spread=spread, least=least, most=most)
    ell, precision, _ = evaluate("softmax", "exact", m, v, y)
    for i in range(n):
        expected = by_fine_rule(m[:, i], v[:, i], y[i])
        assert ell[i] == pytest.approx(min(expected[0], 0.0), rel=0.0, abs=1e-5)
        assert_allclose(precision[:, i], expected[1], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 300])
@pytest.mark.parametrize("variance", [0.1, 1.0, 30.0, 1e4])
def test_gradients_of_softmax_are_its_probabilities(n_classes, variance):
    """dell/dm_c = 1{c = y} - E[softmax_c], which sum up to zero; the latter by the predictions' quadrature."""
    m, v, y = problem(n_classes, 7, n=8, spread=2.0, least=0.5 * variance, most=2.0 * variance)
    _, precision, linear = evaluate("softmax", "exact", m, v, y)
    gradient = linear - precision * m
    p = np.exp(record_of("softmax", "exact").log_probabilities(*map(np.ascontiguousarray, (m.T, v.T)))).T
    assert_allclose(gradient, (np.arange(n_classes)[:, None] == y) - p, rtol=0.0, atol=1e-6)
    assert_allclose(gradient.sum(axis=0), 0.0, atol=1e-12 * (1.0 + np.abs(precision * m).max()))


def test_a_standard_deviation_that_is_no_number_is_not_looked_up_outside_of_the_table():
    mean, scale = np.zeros((2, 2)), np.full((2, 2), 2.0)
    row = np.array([[np.nan, np.nan], [60.0, 60.0]])
    ends = np.array([[-20.0, -20.0], [30.0, 30.0], [30.0, 30.0]])
    value = Values(softmax_table("gumbel_normal"), X_LOW, X_HIGH, mean, scale, row, ends).log_probabilities()
    assert np.all(np.isnan(value[0]))
    np.testing.assert_allclose(value[1], np.log(0.5), rtol=1e-8)
