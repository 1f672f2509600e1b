"""Links: predictive log probabilities against quadrature, closed forms and limits."""

from functools import partial

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, log_softmax, ndtr, roots_hermitenorm

from xgpc import links
from xgpc.links import logistic_softmax_log_probabilities, multinomial_log_probabilities, softmax_log_probabilities

repeatable = settings(deadline=None, derandomize=True, max_examples=40)
NOISE_VARIANCES = [0.0, 1.0, 1.702**2]
probit = partial(multinomial_log_probabilities, noise_variance=1.0, delta=0.0)
step = partial(multinomial_log_probabilities, noise_variance=0.0, delta=0.0)
noisy = partial(multinomial_log_probabilities, noise_variance=1.702**2, delta=0.02)
MULTI_CLASS = [softmax_log_probabilities, probit, step, noisy, logistic_softmax_log_probabilities]
every_multi_class = pytest.mark.parametrize("link", MULTI_CLASS)


def points(n_classes, n=200, seed=0):
    """Means and variances of all sizes, 1e-3 to 1e4."""
    random = np.random.default_rng(seed)
    variance = 10.0 ** random.uniform(-3.0, 4.0, (n, 1)) * random.gamma(1.0, 1.0, (n, n_classes))
    return 2.0 * random.normal(size=(n, n_classes)) * np.sqrt(variance + 1.0), variance


def tensor_mean(function, mean, variance, reach=7.5, step=0.15):
    """E[function(f)], f (C, N), by the trapezoidal rule, C = 3, nodes ``step`` standard deviations apart."""
    z = np.arange(-reach, reach + step, step)
    grid = np.stack(np.meshgrid(z, z, z, indexing="ij")).reshape(3, -1)
    weights = np.exp(-0.5 * np.sum(grid**2, axis=0))
    return function(mean[:, None] + np.sqrt(variance)[:, None] * grid) @ (weights / weights.sum())


def assert_probabilities(value, expected, error):
    np.testing.assert_allclose(np.exp(value), expected, rtol=0.0, atol=error)


def softmax(f):
    return np.exp(log_softmax(f, axis=0))


def logistic_softmax(f):
    return softmax(-np.logaddexp(0.0, -f))


@repeatable
@given(m=st.floats(-300.0, 300.0), v=st.floats(0.0, 1e4))
def test_probit_is_its_closed_form_in_both_tails(m, v):
    with mp.workdps(40):
        small = mp.erfc(mp.fabs(m) / mp.sqrt(2 * (1 + mp.mpf(v)))) / 2
        expected = [float(mp.log(small)), float(mp.log1p(-small))]
    value = links.probit_log_probabilities(np.array([m]), np.array([v]))[0]
    np.testing.assert_allclose(np.sort(value), expected, rtol=1e-11, atol=0.0)
    assert m * (value[1] - value[0]) >= 0.0


@pytest.mark.parametrize("noise_variance", NOISE_VARIANCES)
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.3])
def test_noisy_is_its_formula(noise_variance, delta):
    m, v = np.meshgrid(np.linspace(-6.0, 6.0, 41), [0.1, 1.0, 30.0])
    m, v = m.ravel(), v.ravel()
    kept = ndtr(m / np.sqrt(v + noise_variance))
    positive = (1.0 - delta) * kept + delta * (1.0 - kept)
    value = links.noisy_log_probabilities(m, v, noise_variance, delta)
    assert_probabilities(value, np.column_stack([1.0 - positive, positive]), 1e-15)


def test_noisy_without_noise_is_probit():
    m, v = points(1)
    value = links.noisy_log_probabilities(m[:, 0], v[:, 0], 1.0, 0.0)
    np.testing.assert_allclose(value, links.probit_log_probabilities(m[:, 0], v[:, 0]), rtol=1e-13)


def test_noisy_step_without_variance_is_its_limit():
    m, v = np.array([-3.0, 0.0, 1e-300]), np.zeros(3)
    negative = np.array([0.9, 0.5, 0.1])
    value = links.noisy_log_probabilities(m, v, 0.0, 0.1)
    np.testing.assert_allclose(np.exp(value), np.column_stack([negative, 1.0 - negative]), rtol=1e-15)
    certain = links.noisy_log_probabilities(m, v, 0.0, 0.0)
    assert np.array_equal(certain, [[0.0, -np.inf], [-np.log(2.0)] * 2, [-np.inf, 0.0]])


@every_multi_class
@pytest.mark.parametrize("n_classes", [2, 3, 10, 30])
def test_probabilities_sum_to_one(link, n_classes):
    value = link(*points(n_classes, 60))
    assert value.shape == (60, n_classes)
    assert np.all(value <= 1e-15)
    np.testing.assert_allclose(np.exp(value).sum(axis=1), 1.0, rtol=0.0, atol=2e-15)


@every_multi_class
def test_classes_may_be_permuted(link):
    """Quasi-random points are not symmetric in the classes."""
    error = 6e-3 if link is logistic_softmax_log_probabilities else 1e-12
    m, v = points(5)
    order = np.array([3, 0, 4, 1, 2])
    assert_probabilities(link(m[:, order], v[:, order]), np.exp(link(m, v))[:, order], error)


@every_multi_class
def test_equal_classes_are_equally_probable(link):
    error = 3e-3 if link is logistic_softmax_log_probabilities else 1e-12
    for variance in (0.0, 1.0, 1e4, 1e8):
        assert_probabilities(link(np.zeros((2, 7)), np.full((2, 7), variance)), 1.0 / 7.0, error)


@pytest.mark.parametrize("link", [softmax_log_probabilities, probit, step])
@repeatable
@given(shift=st.floats(-1e3, 1e3))
def test_common_shifts_do_not_matter(link, shift):
    m, v = points(4, 20)
    assert_probabilities(link(m + shift, v), np.exp(link(m, v)), 1e-8)


@every_multi_class
def test_rows_do_not_depend_on_their_neighbours(link):
    m, v = points(3, 500)
    alone = np.vstack([link(m[i : i + 1], v[i : i + 1]) for i in range(0, 500, 25)])
    np.testing.assert_allclose(link(m, v)[::25], alone, rtol=1e-10, atol=1e-11)
    assert np.array_equal(link(m, v), link(m, v))
    assert link(m[:0], v[:0]).shape == (0, 3)


@every_multi_class
@pytest.mark.parametrize("n_classes", [2, 3, 26])
def test_extreme_arguments_give_finite_logarithms(link, n_classes):
    random = np.random.default_rng(2)
    size = 10.0 ** np.arange(-12.0, 9.0)
    m = random.choice(np.concatenate([[0.0], size, -size]), (300, n_classes))
    value = link(m, random.choice(np.concatenate([[0.0], size]), (300, n_classes)))
    assert np.all(np.isfinite(value))
    np.testing.assert_allclose(np.exp(value).sum(axis=1), 1.0, rtol=0.0, atol=2e-15)


@repeatable
@given(st.floats(-8.0, 10.0), st.sampled_from([1e-4, 0.03, 1.0, 7.0, 150.0, 1e4]))
def test_gumbel_normal_agrees_with_mpmath(x, v):
    """H = E[exp(-exp(f - t))] at x standard deviations from the mean of t."""
    scale = np.sqrt(v + np.pi**2 / 6.0)
    u = np.euler_gamma + scale * x
    log_cdf, log_hazard = links._gumbel_normal_logs(np.array([u]), np.array([scale]))
    with mp.workdps(20):
        sd, breaks = mp.sqrt(v), [-12, -8, -4, 0, 4, 8, 12]
        breaks = sorted({*map(mp.mpf, breaks), *(b for b in (u / sd - 4 / sd, u / sd + 3 / sd) if abs(b) < 12)})

        def expectation(function):
            return float(mp.quad(lambda z: function(mp.exp(sd * z - u)) * mp.npdf(z), breaks))

        cdf, density = expectation(lambda y: mp.exp(-y)), expectation(lambda y: y * mp.exp(-y))
    assert np.exp(log_cdf[0]) == pytest.approx(cdf, abs=2e-8)
    assert np.exp(log_cdf[0] + log_hazard[0]) * scale == pytest.approx(density * scale, abs=3e-8)


def test_softmax_of_two_classes_is_the_logit_of_the_difference():
    m, v = points(2, 3000)
    value = softmax_log_probabilities(m, v)
    expected = links.logit_log_probabilities(m[:, 1] - m[:, 0], v.sum(axis=1))
    assert_probabilities(value, np.exp(expected), 2e-8)
    likely = expected > -30.0
    np.testing.assert_allclose(value[likely], expected[likely], rtol=1e-3, atol=1e-7)
    assert np.all(value[~likely] < -29.0)


@pytest.mark.parametrize(
    ("mean", "variance"), [([0.0, 1.0, -2.0], [1.0, 4.0, 0.1]), ([3.0, -9.0, 0.0], [9.0, 9.0, 25.0])]
)
def test_softmax_of_three_classes_agrees_with_a_tensor_rule(mean, variance):
    mean, variance = np.array(mean), np.array(variance)
    value = softmax_log_probabilities(mean[None], variance[None])[0]
    assert_probabilities(value, tensor_mean(softmax, mean, variance), 2e-8)


@pytest.mark.parametrize("link", [softmax_log_probabilities, probit, step])
def test_finer_panels_change_nothing(link, monkeypatch):
    for n_classes in (2, 3, 10, 30):
        m, v = points(n_classes, 100, seed=3)
        value = link(m, v)
        with monkeypatch.context() as patch:
            patch.setattr(links, "PANEL", 0.7)
            patch.setattr(links, "CORE", 12.0)
            assert_probabilities(value, np.exp(link(m, v)), 3e-8)


def test_softmax_without_variance_is_softmax():
    m = np.array([[0.0, 1.0, -3.0], [800.0, 0.0, -800.0], [1e8, -1e8, 0.0]])
    np.testing.assert_allclose(softmax_log_probabilities(m, np.zeros((3, 3))), log_softmax(m, axis=1), rtol=1e-15)
    tiny = softmax_log_probabilities(m[:2], np.full((2, 3), 1e-12))
    np.testing.assert_allclose(tiny, log_softmax(m[:2], axis=1), rtol=1e-6)


def test_tiny_softmax_probabilities_are_tilted_expectations():
    """For a class far below certain others, E[exp(f_y)] is exp(m + v / 2)."""
    m, v = np.array([[-100.0, 0.0, -200.0]]), np.array([[3.0, 0.0, 8.0]])
    np.testing.assert_allclose(softmax_log_probabilities(m, v)[0], [-98.5, 0.0, -196.0], rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("noise_variance", NOISE_VARIANCES)
def test_multinomial_of_two_classes_is_a_probit(noise_variance):
    m, v = points(2, 2000)
    value = multinomial_log_probabilities(m, v, noise_variance, 0.0)
    t = (m[:, 1] - m[:, 0]) / np.sqrt(v.sum(axis=1) + 2.0 * noise_variance)
    expected = np.column_stack([log_ndtr(-t), log_ndtr(t)])
    assert_probabilities(value, np.exp(expected), 2e-9)
    likely = expected > -30.0
    np.testing.assert_allclose(value[likely], expected[likely], rtol=1e-3, atol=1e-8)


def test_multinomial_agrees_with_hermite_quadrature():
    random = np.random.default_rng(4)
    m, v = random.normal(size=(50, 4)), random.uniform(0.5, 2.0, (50, 4))
    z, weights = roots_hermitenorm(120)
    s = np.sqrt(v + 1.0)
    t = m[:, :, None] + s[:, :, None] * z
    below = ndtr((t[:, :, None, :] - m[:, None, :, None]) / s[:, None, :, None])
    below[:, np.arange(4), np.arange(4)] = 1.0
    p = below.prod(axis=2) @ (weights / weights.sum())
    assert_probabilities(multinomial_log_probabilities(m, v, 1.0, 0.0), p, 1e-9)
    flipped = 0.9 * p + 0.1 / 3.0 * (1.0 - p)
    assert_probabilities(multinomial_log_probabilities(m, v, 1.0, 0.1), flipped, 1e-9)


def test_multinomial_step_without_variance_is_a_step():
    m = np.array([[1.0, 0.0, -5.0], [2.0, 2.0, 1.0], [-1e8, 0.0, 1e8]])
    assert_probabilities(step(m, np.zeros((3, 3))), [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], 1e-12)


def test_logistic_softmax_agrees_with_a_tensor_rule():
    mean, variance = np.array([0.0, 1.0, -2.0]), np.array([1.0, 4.0, 0.1])
    value = logistic_softmax_log_probabilities(mean[None], variance[None])[0]
    assert_probabilities(value, tensor_mean(logistic_softmax, mean, variance), 2e-4)


def test_logistic_softmax_without_variance_is_its_formula():
    m = np.array([[0.0, 1.0, -3.0], [30.0, 2.0, -30.0], [-900.0, -905.0, -920.0]])
    value = logistic_softmax_log_probabilities(m, np.zeros((3, 3)))
    assert_probabilities(value, logistic_softmax(m.T).T, 1e-7)


def test_logistic_softmax_far_below_zero_is_softmax():
    m, v = points(4, 50, seed=5)
    m, v = np.clip(m, -20.0, 20.0), np.minimum(v, 50.0)
    value = logistic_softmax_log_probabilities(m - 1000.0, v)
    assert_probabilities(value, np.exp(softmax_log_probabilities(m, v)), 2e-3)
