"""Sites of several classes: derivatives, closed forms, bounds and symmetries; the nodes of the exact softmax."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import digamma, gammaln, log_expit, log_softmax, logsumexp, ndtr, softmax

from xgpc import _engine
from xgpc.quasi_random import normal_nodes

NOISE = {"multinomial-step": 0.0, "multinomial-probit": 1.0, "multinomial-logit": 1.702**2}
SITES = [("softmax", "exact"), ("softmax", "additive-noise"), ("logistic-softmax", "polya-gamma")]
SITES += [(likelihood, "additive-noise") for likelihood in NOISE]
every_site = pytest.mark.parametrize(("likelihood", "bound"), SITES)
# The nodes of the exact softmax differ from class to class, so that permuting classes changes it by their error.
every_symmetric_site = pytest.mark.parametrize(("likelihood", "bound"), SITES[1:])
# The step's likelihood is no smooth function of f: test_label_probabilities has it.
every_smooth_site = pytest.mark.parametrize(("likelihood", "bound"), [s for s in SITES if s[0] != "multinomial-step"])
repeatable = settings(deadline=None, derandomize=True, max_examples=40)
seeds = st.integers(0, 2**32 - 1)
class_numbers = st.sampled_from([2, 3, 5, 11, 40])
DELTA = 0.02
shared_nodes = cache(normal_nodes)


def evaluate(likelihood, bound, m, v, y, nodes=None, weight=None):
    """ell (n,), lambda (C, n) and r (C, n); m and v (C, n)."""
    m, v = (np.array(a, dtype=np.float64) for a in np.broadcast_arrays(m, v))
    y = np.array(np.broadcast_to(y, m.shape[1:]), dtype=np.float64)
    nodes = shared_nodes(len(m)) if nodes is None else nodes
    site = _engine.Site(likelihood, bound, n_latents=len(m), parameter=DELTA, nodes=nodes)
    ell, precision, linear = np.empty(len(y)), np.empty_like(m), np.empty_like(m)
    _engine.sites(site, m, v, y, np.empty(0) if weight is None else weight, ell, precision, linear)
    return ell, precision, linear


def problem(seed, n_classes, n=25, spread=3.0, least=0.3, most=10.0):
    """Means, variances and labels of n points."""
    random = np.random.default_rng(seed)
    m = spread * random.normal(size=(n_classes, n))
    return m, np.exp(random.uniform(np.log(least), np.log(most), size=m.shape)), random.integers(n_classes, size=n)


def label_probability(likelihood, m, v, y):
    """p_y of a multinomial site from its ell = log(1 - delta) p_y + log(delta / (C - 1)) (1 - p_y)."""
    wrong = np.log(DELTA / (len(m) - 1))
    return (evaluate(likelihood, "additive-noise", m, v, y)[0] - wrong) / (np.log1p(-DELTA) - wrong)


STEPS = 1e-3 * np.array([-2.0, -1.0, 1.0, 2.0])
# Five-point differences, exact to about 1e-9.
STENCIL = np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * 1e-3)


@every_site
@repeatable
@given(seed=seeds, n_classes=class_numbers)
def test_natural_gradients(likelihood, bound, seed, n_classes):
    """lambda_c = -2 d ell / d v_c, r_c = d ell / d m_c + lambda_c m_c."""
    m, v, y = problem(seed, n_classes, n=1, most=100.0)
    shifts = np.kron(np.eye(n_classes), STEPS)
    by_mean = evaluate(likelihood, bound, m + shifts, v, y)[0].reshape(n_classes, 4) @ STENCIL
    by_variance = evaluate(likelihood, bound, m, v + shifts, y)[0].reshape(n_classes, 4) @ STENCIL
    _, precision, linear = evaluate(likelihood, bound, m, v, y)
    assert_allclose(precision[:, 0], -2.0 * by_variance, rtol=0.0, atol=1e-8)
    assert_allclose(linear[:, 0], by_mean + precision[:, 0] * m[:, 0], rtol=0.0, atol=1e-8)


@every_site
@pytest.mark.parametrize("n_classes", [2, 3, 100])
def test_extreme_arguments_give_finite_sites(likelihood, bound, n_classes):
    random = np.random.default_rng(n_classes)
    size = np.concatenate([[0.0], 10.0 ** np.arange(-320.0, 9.0)])
    m, v = random.choice(np.concatenate([-size, size]), (n_classes, 5000)), random.choice(size, (n_classes, 5000))
    m[:, :2000], v[:, :1000] = m[0, :2000], v[0, :1000]
    ell, precision, linear = evaluate(likelihood, bound, m, v, random.integers(n_classes, size=5000))
    assert np.all(np.isfinite(np.vstack([ell, precision, linear])))
    assert np.all(ell <= 1e-7)


@every_site
@pytest.mark.parametrize("n_classes", [2, 7, 60])
def test_a_site_depends_on_its_point_alone(likelihood, bound, n_classes):
    """Over several chunks of points; weights multiply."""
    m, v, y = problem(0, n_classes, n=150)
    weight = np.random.default_rng(0).gamma(1.0, size=150)
    together = evaluate(likelihood, bound, m, v, y, weight=weight)
    alone = [evaluate(likelihood, bound, m[:, [i]], v[:, [i]], y[i]) for i in range(150)]
    for value, values in zip(together, zip(*alone, strict=True), strict=True):
        assert_allclose(value, weight * np.concatenate(values, axis=-1), rtol=1e-13, atol=1e-13)


@every_symmetric_site
@repeatable
@given(seed=seeds, n_classes=class_numbers)
def test_classes_are_exchangeable(likelihood, bound, seed, n_classes):
    m, v, y = problem(seed, n_classes, most=1e3)
    order = np.random.default_rng(seed).permutation(n_classes)
    ell, precision, linear = evaluate(likelihood, bound, m, v, y)
    permuted = evaluate(likelihood, bound, m[order], v[order], np.argsort(order)[y])
    for value, expected in zip(permuted, (ell, precision[order], linear[order]), strict=True):
        assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@every_smooth_site
@repeatable
@given(seed=seeds, n_classes=st.sampled_from([2, 3]))
def test_expected_log_likelihood_is_not_exceeded(likelihood, bound, seed, n_classes):
    """By tensor quadrature; the exact softmax equals it up to the error of its nodes."""
    m, v, y = problem(seed, n_classes, n=1, spread=1.0, most=2.0)
    y = y[0]

    def log_likelihood(f):
        if likelihood == "softmax":
            return log_softmax(f, axis=0)[y]
        if likelihood == "logistic-softmax":
            return log_expit(f[y]) - logsumexp(log_expit(f), axis=0)
        probability = label_probability(likelihood, f, 0.0, y)
        return np.log(DELTA / (n_classes - 1) * (1.0 - probability) + (1.0 - DELTA) * probability)

    z, weights = np.polynomial.hermite_e.hermegauss(24)
    f = m + np.sqrt(v) * np.reshape(np.meshgrid(*[z] * n_classes), (n_classes, -1))
    weights = np.prod(np.meshgrid(*[weights / weights.sum()] * n_classes), axis=0).ravel()
    expected = log_likelihood(f) @ weights
    ell = evaluate(likelihood, bound, m, v, y)[0][0]
    assert ell <= expected + (0.02 if bound == "exact" else 1e-4)
    if bound == "exact":
        assert ell == pytest.approx(expected, abs=0.02)


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
    """E[log sigma(f)] and E[sigma'(f)] with f ~ N(m_y - m_o, v_y + v_o)."""
    m, v, y = problem(2, 2, n=200, most=5.0)
    points, (z, weights) = np.arange(200), np.polynomial.hermite_e.hermegauss(100)
    f = (m[y, points] - m[1 - y, points])[:, None] + np.sqrt(v.sum(axis=0))[:, None] * z
    weights /= weights.sum()
    ell, precision, linear = evaluate("softmax", "exact", m, v, y, normal_nodes(2, n_rows))
    assert np.abs(ell - log_expit(f) @ weights).max() < limit
    assert np.abs((linear - precision * m)[y, points] - np.exp(log_expit(-f)) @ weights).max() < limit
    assert np.abs(precision - np.exp(log_expit(f) + log_expit(-f)) @ weights).max() < 3.0 * limit


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
