"""Closed forms of the sites of two classes: logit, probit, Bayesian support vector machine, additive noise."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx, expit, log_ndtr
from support.sites import NOISE, build, evaluate_one, expectation

from xgpc import _sites

# The largest errors of the mixture that stands for the logistic function, see coefficients.inc.h.
SIGMA_ERROR, SOFTPLUS_ERROR, SLOPE_ERROR = 3.9e-9, 1.51e-8, 1.61e-8
# And of the one that stands for (log Phi)'': of -log Phi and of its first and second derivative, absolute above -10,
# relative from -60 to -10 and below.
NEAR, MIDDLE, FAR = [1.6e-7, 3.2e-7, 9.1e-7], [1.8e-8, 9.1e-8, 1.6e-6], [5.5e-7, 6.8e-7, 2.4e-6]

means = st.floats(-50.0, 50.0)
variances = st.one_of(st.just(0.0), st.floats(0.0, 1e4), st.floats(-8.0, 4.0).map(lambda e: 10.0**e))
labels = st.sampled_from([-1.0, 1.0])


def evaluate(likelihood, bound, m, v, y):
    """ell, lambda and r as (3, n)."""
    return evaluate_one(build(likelihood, bound, 2), m, v, y)


def probit_loss(f):
    """-log Phi and its first two derivatives."""
    w = np.sqrt(2.0 / np.pi) / erfcx(-f / np.sqrt(2.0))
    return np.array([-log_ndtr(f), -w, w * (w + f)])


def test_logit_expectations_on_a_grid():
    """Averaging does not enlarge the mixture's errors; 1e-12 is the quadrature's."""
    for m, v in itertools.product(np.linspace(-50.0, 50.0, 41), [0.0, *10.0 ** np.linspace(-6.0, 4.0, 21)]):
        ell, precision, _ = evaluate("logit", "exact", m, v, 1.0)[:, 0]
        probability = _sites.logistic_normal_mean(np.array([m]), np.array([v]))[0]
        assert abs(ell + expectation(lambda f: np.logaddexp(0.0, -f), m, v)) < SOFTPLUS_ERROR + 1e-12
        assert abs(probability - expectation(expit, m, v)) < SIGMA_ERROR + 1e-12
        assert abs(precision - expectation(lambda f: expit(f) * expit(-f), m, v)) < SLOPE_ERROR + 1e-12


@settings(max_examples=50)
@given(m=st.one_of(means, st.floats(-700.0, 700.0)), v=variances, y=labels)
def test_taylor_site_is_its_closed_form(m, v, y):
    """Izmailov & Kropotov 2016, section 4.2, in forty digits; no terms here nearly cancel."""
    ell, precision, linear = evaluate("logit", "taylor", m, v, y)[:, 0]
    with mp.workdps(40):
        mean = mp.mpf(m)
        wrong = 1 / (1 + mp.exp(y * mean))
        slope = wrong * (1 - wrong) if y * mean > 0 else mp.exp(y * mean) * wrong**2
        expansion = -mp.log1p(mp.exp(-y * mean)) - slope * mp.mpf(v) / 2
        assert precision == pytest.approx(float(slope), rel=1e-14, abs=0.0)
        assert linear == pytest.approx(float(y * wrong + slope * mean), rel=1e-14, abs=0.0)
        assert ell == pytest.approx(float(expansion), rel=1e-14, abs=0.0)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_taylor_site_of_means_whose_exponential_underflows(y):
    """Precision vanishes, so that even the largest variance counts for nothing."""
    m = np.array([-1e300, -1e8, -709.0, 709.0, 1e8, 1e300])
    ell, precision, linear = evaluate("logit", "taylor", m, 1e300, y)
    assert np.array_equal(ell, np.minimum(y * m, 0.0))
    assert np.array_equal(precision, np.zeros(6))
    assert np.array_equal(linear, np.where(y * m < 0.0, y, 0.0))


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_probit_mixture_errors_are_those_stated(y):
    """Without variance the site is the mixture itself."""
    f = np.concatenate([-np.geomspace(60.0, 1e4, 100_000)[::-1], np.linspace(-60.0, 40.0, 200_001)])
    ell, precision, linear = evaluate("probit", "exact", y * f, 0.0, y)
    exact = probit_loss(f)
    errors = np.abs([-ell, precision * f - y * linear, precision] - exact)
    near, middle, far = f >= -10.0, (f < -10.0) & (f >= -60.0), f < -60.0
    assert np.all(errors[:, near].max(axis=1) < NEAR)
    assert np.all(np.max(errors[:, middle] / np.abs(exact[:, middle]), axis=1) < MIDDLE)
    assert np.all(np.max(errors[:, far] / np.abs(exact[:, far]), axis=1) < FAR)


@settings(max_examples=50)
@given(m=means, v=variances, y=labels)
def test_probit_expectations(m, v, y):
    ell, precision, linear = evaluate("probit", "exact", m, v, y)[:, 0]
    loss, slope, curvature = (expectation(lambda f, k=k: probit_loss(f)[k], y * m, v) for k in range(3))
    assert abs(ell + loss) < NEAR[0] + FAR[0] * loss
    assert abs(y * (linear - precision * m) + slope) < NEAR[1] - FAR[1] * slope + 1e-14 * abs(precision * m)
    assert abs(precision - curvature) < NEAR[2] + FAR[2] * curvature


@settings(max_examples=50)
@given(m=means, v=variances, y=labels)
def test_svm_exact_is_the_expected_hinge(m, v, y):
    ell, precision, linear = evaluate("svm", "exact", m, v, y)[:, 0]
    assert ell == pytest.approx(-expectation(lambda f: 2.0 * np.maximum(1.0 - f, 0.0), y * m, v), rel=1e-12, abs=1e-12)
    if v > 1e-6:
        wrong = expectation(lambda f: 2.0 * (f < 1.0), y * m, v)
        assert linear - precision * m == pytest.approx(y * wrong, abs=1e-12 * (1.0 + abs(precision * m)))
        density = mp.npdf(1.0, y * mp.mpf(m), mp.sqrt(mp.mpf(v)))  # of the margin at the hinge
        assert precision == pytest.approx(float(2 * density), rel=1e-10, abs=1e-300)


@settings(max_examples=50)
@given(m=means, v=variances, y=labels, ratio=st.floats(0.01, 100.0))
def test_svm_augmented_is_the_best_of_its_quadratic_bounds(m, v, y, ratio):
    """For each a > 0, -2 max(1 - u, 0) >= u - 1 - ((1 - u)^2 / a + a) / 2; in the mean a^2 = E[(1 - u)^2] is best."""
    ell, precision, linear = evaluate("svm", "augmented", m, v, y)[:, 0]
    a = np.sqrt(max((1.0 - y * m) ** 2 + v, 1e-24))
    assert ell == pytest.approx(y * m - 1.0 - a, abs=1e-13 * (1.0 + a))
    assert ell >= y * m - 1.0 - 0.5 * (a / ratio + a * ratio) - 1e-13 * (1.0 + a)
    assert precision == pytest.approx(1.0 / a, rel=1e-14)
    assert linear == pytest.approx(y * (1.0 + 1.0 / a), rel=1e-14)


@pytest.mark.parametrize("likelihood", ["step", "probit", "logit"])
@settings(max_examples=50)
@given(m=means, v=st.floats(1e-3, 1e4), y=labels, delta=st.floats(1e-6, 0.499))
def test_additive_noise_is_its_closed_form(likelihood, m, v, y, delta):
    """Liu et al. 2019, equation (8), in forty digits."""
    site = _sites.Site(likelihood, "additive-noise", parameter=delta)
    with mp.workdps(40):
        right, wrong, square = mp.log(1 - mp.mpf(delta)), mp.log(mp.mpf(delta)), mp.mpf(v) + mp.mpf(NOISE[likelihood])
        t = y * mp.mpf(m) / mp.sqrt(square)
        slope = (right - wrong) * mp.npdf(t)
        expected = [right * mp.ncdf(t) + wrong * mp.ncdf(-t)]
        expected += [slope * t / square, slope * y * (1 + t**2) / mp.sqrt(square)]
    value = evaluate_one(site, m, v, y)[:, 0]
    np.testing.assert_allclose(value, np.array(expected, np.float64), rtol=1e-12, atol=1e-14)
