"""Closed forms of the sites of several classes, their reductions to two, and the nodes of the exact softmax."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import digamma, gammaln, log_expit, logsumexp, ndtr, softmax
from support.sites import DELTA, build, evaluate_one
from support.sites import evaluate as evaluate_site

from xgpc import _engine
from xgpc.likelihoods.quasi_random import normal_nodes

NOISE = {"multinomial-step": 0.0, "multinomial-probit": 1.0, "multinomial-logit": 1.702**2}
repeatable = settings(deadline=None, derandomize=True, max_examples=40)
seeds = st.integers(0, 2**32 - 1)
class_numbers = st.sampled_from([2, 3, 5, 11, 40])


def evaluate(likelihood, bound, m, v, y, nodes=None):
    """ell (n,), lambda (C, n) and r (C, n); m (C, n)."""
    if nodes is not None:
        return evaluate_site(_engine.Site(likelihood, bound, n_latents=len(m), nodes=nodes), m, v, y)
    return evaluate_site(build(likelihood, bound, len(m)), m, v, y)


def problem(seed, n_classes, n=25, spread=3.0, least=0.3, most=10.0):
    """Means, variances and labels of n points."""
    random = np.random.default_rng(seed)
    m = spread * random.normal(size=(n_classes, n))
    return m, np.exp(random.uniform(np.log(least), np.log(most), size=m.shape)), random.integers(n_classes, size=n)


def label_probability(likelihood, m, v, y):
    """p_y of a multinomial site from its ell = log(1 - delta) p_y + log(delta / (C - 1)) (1 - p_y)."""
    wrong = np.log(DELTA / (len(m) - 1))
    return (evaluate(likelihood, "additive-noise", m, v, y)[0] - wrong) / (np.log1p(-DELTA) - wrong)


def assert_is_site_of_difference(value, site, m, v, y, limits):
    """Of two classes: ell, lambda and d ell / dm of a site of one latent value f_1 - f_0, whose variance is v."""
    ell, precision, linear = value
    difference = m[1] - m[0]
    expected = evaluate_one(site, difference, v, 2.0 * y - 1.0)
    by_mean = expected[2] - expected[1] * difference
    assert_allclose(ell, expected[0], rtol=0.0, atol=limits[0])
    assert_allclose(precision, np.stack([expected[1]] * 2), rtol=0.0, atol=limits[1])
    assert_allclose(linear - precision * m, np.stack([-by_mean, by_mean]), rtol=0.0, atol=limits[2])


@repeatable
@given(seed=seeds, n_classes=class_numbers)
def test_additive_noise_softmax_is_its_closed_form(seed, n_classes):
    """Liu et al. 2019, equation (25)."""
    m, v, y = problem(seed, n_classes, spread=30.0, least=1e-6, most=1e4)
    label, points = np.arange(n_classes)[:, None] == y, np.arange(len(y))
    exponent = np.where(label, 0.0, m - m[y, points] + 0.5 * (v + v[y, points]))
    share = np.where(label, 0.0, softmax(exponent, axis=0))
    gradient = np.where(label, share.sum(axis=0), -share)
    ell, precision, linear = evaluate("softmax", "additive-noise", m, v, y)
    assert_allclose(ell, -logsumexp(exponent, axis=0), rtol=1e-12, atol=1e-12)
    assert_allclose(precision, np.abs(gradient), rtol=1e-11, atol=1e-12)
    assert_allclose(linear, gradient + np.abs(gradient) * m, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize(("n_rows", "limit"), [(None, 0.02), (4096, 5e-4)])
def test_softmax_of_two_classes_is_a_logit(n_rows, limit):
    """log softmax_y(f) = log sigma(f_y - f_o), up to the error of the nodes."""
    m, v, y = problem(2, 2, n=200, most=5.0)
    value = evaluate("softmax", "exact", m, v, y, normal_nodes(2, n_rows))
    limits = limit, 3.0 * limit, limit
    assert_is_site_of_difference(value, build("logit", "exact", 2), m, v.sum(axis=0), y, limits)


def test_additive_noise_softmax_of_two_classes_is_its_formula():
    """log sigma(m_y - m_o - (v_y + v_o) / 2)."""
    m, v, y = problem(5, 2, n=200)
    x = (2 * y - 1) * (m[1] - m[0]) - 0.5 * v.sum(axis=0)
    ell, precision, _ = evaluate("softmax", "additive-noise", m, v, y)
    assert_allclose(ell, log_expit(x), rtol=1e-13)
    assert_allclose(precision, np.exp(log_expit(-x)) * np.ones((2, 1)), rtol=1e-12)


@pytest.mark.parametrize("likelihood", NOISE)
def test_multinomial_of_two_classes_is_binary_with_the_noise_of_both(likelihood):
    """The one likelihood's noise is in v, so that the other's is the step. Variances within a factor of four have the
    quadrature's error at 1e-10 in p_y, and ell multiplies it by four."""
    m, v, y = problem(6, 2, n=200, least=0.5, most=2.0)
    step = build("step", "additive-noise", 2)
    both = v.sum(axis=0) + 2.0 * NOISE[likelihood]
    value = evaluate(likelihood, "additive-noise", m, v, y)
    assert_is_site_of_difference(value, step, m, both, y, (1e-9, 1e-8, 1e-8))
    if likelihood == "multinomial-probit":
        probit = build("probit", "additive-noise", 2)
        assert_is_site_of_difference(value, probit, m, both - 1.0, y, (1e-9, 1e-8, 1e-8))


@pytest.mark.parametrize("n_classes", [2, 10, 30])
def test_softmax_without_variance(n_classes):
    """log softmax and its curvature p (1 - p): what unit second moments of the nodes are for."""
    m, _, y = problem(3, n_classes)
    p = softmax(m, axis=0)
    for v in (0.0, 1e-12, 1e-9, 1e-7):
        ell, precision, linear = evaluate("softmax", "exact", m, v, y)
        assert_allclose(ell, np.log(p[y, np.arange(25)]), rtol=0.0, atol=1e-7)
        assert_allclose(precision, p * (1.0 - p), rtol=0.0, atol=1e-6)
        assert_allclose(linear - precision * m, (np.arange(n_classes)[:, None] == y) - p, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("bound", ["exact", "additive-noise"])
@repeatable
@given(seed=seeds, n_classes=class_numbers, shift=st.floats(-1e3, 1e3))
def test_softmax_ignores_a_common_shift(bound, seed, n_classes, shift):
    m, v, y = problem(seed, n_classes)
    ell, precision, linear = evaluate("softmax", bound, m, v, y)
    shifted = evaluate("softmax", bound, m + shift, v, y)
    for value, expected in zip(shifted, (ell, precision, linear + shift * precision), strict=True):
        assert_allclose(value, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", NOISE)
@repeatable
@given(seed=seeds, n_classes=st.sampled_from([2, 3, 4, 10, 30]))
def test_label_probabilities(likelihood, seed, n_classes):
    """P(noisy f_y is the largest) by a fine rule, for two classes as for binary labels with the noise of both."""
    m, v, y = problem(seed, n_classes, n=3, least=0.5, most=4.0)
    x = np.linspace(-9.0, 9.0, 3001)
    weights = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    variance = v + NOISE[likelihood]
    probability = label_probability(likelihood, m, v, y)
    for i, label in enumerate(y):
        z = (m[label, i] + np.sqrt(variance[label, i]) * x - m[:, i, None]) / np.sqrt(variance[:, i, None])
        expected = weights @ ndtr(np.delete(z, label, axis=0)).prod(axis=0)
        assert probability[i] == pytest.approx(expected, abs=1e-6)
        if n_classes == 2:
            t = (m[label, i] - m[1 - label, i]) / np.sqrt(variance[:, i].sum())
            assert probability[i] == pytest.approx(ndtr(t), abs=1e-9)
    total = sum(label_probability(likelihood, m, v, np.full(3, c)) for c in range(n_classes))
    assert_allclose(total, 1.0, rtol=0.0, atol=1e-5)


@repeatable
@given(seed=seeds, n_classes=class_numbers, factor=st.floats(0.2, 5.0), offset=st.floats(-15.0, 5.0))
def test_logistic_softmax_site_is_stationary(seed, n_classes, factor, offset):
    """Galy-Fajou et al. 2019: no other shape alpha of their Gamma variable has a higher bound."""
    m, v, y = problem(seed, n_classes, least=1e-3)
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


@pytest.mark.parametrize("n_classes", [1, 2, 3, 10, 26, 100])
def test_nodes_have_unit_second_moments(n_classes):
    nodes = normal_nodes(n_classes)
    assert len(nodes) >= max(32, 2 * n_classes)
    assert_allclose(nodes.T @ nodes / len(nodes), np.eye(n_classes), rtol=0.0, atol=1e-12)
    with pytest.raises(ValueError, match="n_rows must be at least n_classes"):
        normal_nodes(n_classes, n_classes - 1)


@pytest.mark.parametrize("n_classes", [2, 3, 6, 10])
@pytest.mark.parametrize(("variance", "limit"), [(0.1, 5e-4), (1.0, 0.015), (10.0, 0.15)])
def test_nodes_are_accurate(n_classes, variance, limit):
    m, _, y = problem(4, n_classes, n=200, spread=2.0)
    few, many = (evaluate("softmax", "exact", m, variance, y, normal_nodes(n_classes, k)) for k in (None, 8192))
    assert np.sqrt(np.mean((few[0] - many[0]) ** 2)) < limit
    assert np.sqrt(np.mean((few[1] - many[1]) ** 2) / np.mean(many[1] ** 2)) < 0.15
    assert np.abs((few[2] - few[1] * m) - (many[2] - many[1] * m)).max() < limit
