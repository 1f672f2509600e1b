"""Elementary functions against mpmath.

The bounds hold with and without fused multiply-add, whose presence decides the last digit: the largest errors found
over 10^7 arguments are named beside each.
"""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RationalQuadratic
from support.dense import compiled
from support.sites import build, evaluate_one

from xgpc import _sites

EPS = np.finfo(np.float64).eps


def ulps(values, references):
    """Largest distance in units in the last place of the reference."""
    return max(
        abs(float((mp.mpf(float(value)) - reference) / mp.mpf(float(np.spacing(abs(float(reference)))))))
        for value, reference in zip(values, references, strict=True)
    )


def relative_errors(values, references):
    return np.array([abs(float(mp.mpf(float(v)) / r - 1)) for v, r in zip(values, references, strict=True)])


def normal_tail(x):
    return mp.erfc(mp.mpf(float(x)) / mp.sqrt(2)) / 2


def polya_gamma(m, v, y):
    """c, ell and lambda of the polya-gamma site, and what lambda should be."""
    c = mp.sqrt(mp.mpf(m) ** 2 + mp.mpf(v))
    mean = mp.mpf(1) / 4 - c**2 / 48 if c < mp.mpf("1e-12") else mp.tanh(c / 2) / (2 * c)
    return c, *evaluate_one(build("logit", "polya-gamma", 2), m, v, y)[:2], mean


@pytest.fixture(scope="module", autouse=True)
def forty_digits():
    with mp.workdps(40):
        yield


@pytest.fixture
def random():
    return np.random.default_rng(0)


# exp: 1.22 ulp without and 0.94 ulp with fused multiply-add.


@settings(max_examples=100)
@given(st.floats(-708.0, 0.0))
def test_exp_of_any_argument(x):
    assert ulps(_sites.exp(np.array([x])), [mp.exp(mp.mpf(x))]) < 1.33


def test_exp_at_the_ends():
    assert np.array_equal(_sites.exp(np.array([0.0, -0.0, -5e-324, -1e-300, -EPS / 8])), np.ones(5))
    assert _sites.exp(np.array([-708.0]))[0] == pytest.approx(float(mp.exp(-708)), rel=2 * EPS, abs=0.0)
    below = np.array([np.nextafter(-708.0, -np.inf), -709.0, -745.0, -746.0, -1e300, -np.inf])
    assert np.array_equal(_sites.exp(below), np.zeros(6))


def test_exp_never_returns_a_denormal():
    """Arguments around that of the smallest normal double, -708.396: zero or a normal number."""
    value = _sites.exp(np.linspace(-709.0, -707.9, 10_001))
    assert np.all((value == 0.0) | (value >= np.finfo(np.float64).tiny))


def test_exp_is_monotone(random):
    """Also across the ends of the intervals [(k - 1/2) log 2, (k + 1/2) log 2] of its polynomial."""
    x = np.sort(np.concatenate([-random.uniform(0.0, 709.0, 20_000), np.log(2) * (np.arange(-1000, 0) + 0.5)]))
    assert np.all(np.diff(_sites.exp(x)) >= 0.0)


# Phi: 5.0e-16 in the scaled tail; rounding x^2 / 2 before exp adds x^2 eps / 4 at most.


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.0, 4.0), (4.0, 10.0), (10.0, 25.0), (25.0, 37.6)])
def test_lower_tail_and_density_are_relatively_accurate(random, low, high):
    x = random.uniform(low, high, 800)
    cdf, pdf = _sites.normal(-x)
    allowed = 3.0 * EPS + x**2 * EPS / 4
    assert np.all(relative_errors(cdf, [normal_tail(t) for t in x]) < allowed)
    assert np.all(relative_errors(pdf, [mp.npdf(mp.mpf(float(t))) for t in x]) < allowed)


def test_scaled_tail_is_accurate_to_four_epsilon(random):
    """cdf / pdf is Mills' ratio: the error of the exponential cancels."""
    x = np.concatenate([random.uniform(0.0, 37.0, 3000), 10.0 ** random.uniform(-12, 0, 500), [0.0]])
    cdf, pdf = _sites.normal(-x)
    mills = [normal_tail(t) / mp.npdf(mp.mpf(float(t))) for t in x]
    assert relative_errors(cdf / pdf, mills).max() < 4 * EPS


@settings(max_examples=100)
@given(st.floats(-40.0, 40.0))
def test_distribution_function_and_density_are_symmetric(x):
    cdf, pdf = _sites.normal(np.array([x, -x]))
    assert abs(cdf.sum() - 1.0) <= EPS / 2
    assert pdf[0] == pdf[1]


def test_distribution_function_is_monotone_up_to_its_error():
    x = np.linspace(-40.0, 40.0, 80_001)
    cdf, _ = _sites.normal(x)
    assert np.all(np.diff(cdf) >= -6 * EPS * cdf[1:])
    assert np.all(np.diff(cdf[x < -1.0]) >= 0.0)
    assert cdf[[0, -1]].tolist() == [0.0, 1.0]


def test_normal_underflows_to_zero_and_one():
    cdf, pdf = _sites.normal(np.array([-1e300, -np.inf, -38.0, 38.0, np.inf, 1e300]))
    assert np.array_equal(cdf, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    assert np.array_equal(pdf, np.zeros(6))


# m = c, v = 0 and y = 1 leave ell = -log(1 + exp(-c)), and sqrt(m^2) is exact: the private functions themselves.
# log(1 + e): 2.83 ulp, with the error of e 3.56 ulp; tanh(c / 2) / (2 c): 3.54 ulp.


@pytest.mark.parametrize("v", [5e-324, 1e-300, 1e-100, 1e-30, 1e-16, 1e-8, 1e-3, 1.0, 1e8, 1e100, 1e300])
def test_polya_gamma_site_for_tiny_and_huge_variances(v):
    """The root of v adds half an ulp to c: one more ulp here."""
    c, ell, precision, mean = polya_gamma(0.0, v, 1.0)
    assert ulps(ell, [-c / 2 - mp.log1p(mp.exp(-c))]) < 5.0
    assert ulps(precision, [mean]) < 5.0


@settings(max_examples=100)
@given(st.floats(-60.0, 60.0), st.floats(0.0, 1e4), st.sampled_from([-1.0, 1.0]))
def test_polya_gamma_site_of_any_argument(m, v, y):
    """ell is a difference of y m / 2 and c / 2: its absolute error is a few ulp of these."""
    c, ell, precision, mean = polya_gamma(m, v, y)
    reference = y * mp.mpf(m) / 2 - c / 2 - mp.log1p(mp.exp(-c))
    assert abs(float(mp.mpf(float(ell[0])) - reference)) < 4 * EPS * float(1 + c)
    assert ulps(precision, [mean]) < 5.0


# log(1 + u), 2.5 ulp, in the rational quadratic (1 + u)^-alpha, u = r^2 / (2 alpha).


def rational_quadratic(alpha, distance):
    """k(r, 0); a single inducing point leaves the distances exact."""
    return compiled(RationalQuadratic(1.0, alpha), np.zeros((1, 1))).cross(np.reshape(distance, (-1, 1)))[:, 0]


@pytest.mark.parametrize("k", [0, 4, 6, 7, 8, 9, 10, 11, 13, 16, 24, 45])
def test_log1p_is_within_three_ulp(random, k):
    """alpha = 2^k and r of 26 bits make u exact; the exponent, 350 to 690, magnifies the logarithm's errors."""
    alpha = 2.0**k
    mantissa, exponent = np.frexp(np.sqrt(2.0 * alpha * np.expm1(random.uniform(350.0, 690.0, 800) / alpha)))
    distance = np.ldexp(np.round(mantissa * 2.0**26), exponent - 26)
    logarithms = [-mp.log(mp.mpf(float(value))) / alpha for value in rational_quadratic(alpha, distance)]
    references = [mp.log1p(mp.mpf(float(r)) ** 2 / (2 * alpha)) for r in distance]
    error = [abs(a - b) / mp.mpf(float(np.spacing(float(b)))) for a, b in zip(logarithms, references, strict=True)]
    assert max(error) < 3.0


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.7, 1.0, 3.0, 100.0, 1e3, 1e5])
def test_rational_quadratic_of_any_distance(random, alpha):
    """Rounding r^2, u and the product alpha log(1 + u) adds half an ulp each to the logarithm's three, exp the rest."""
    spread = np.concatenate([10.0 ** random.uniform(-12.0, 6.0, 800), random.uniform(0.0, 40.0, 400)])
    # Where u passes 1, 3, 7 ... the exponent of 1 + u changes, at 1 the branch of small arguments.
    ends = np.sqrt(2.0 * alpha * (2.0 ** np.arange(20) - 1.0))
    distance = np.concatenate([spread, ends, np.nextafter(ends, np.inf), np.nextafter(ends, 0.0)])
    for value, r in zip(rational_quadratic(alpha, distance), distance, strict=True):
        exponent = mp.mpf(alpha) * mp.log1p(mp.mpf(float(r)) ** 2 / (2 * mp.mpf(alpha)))
        if exponent < 708.0:
            error = mp.mpf(float(value)) * mp.exp(exponent) - 1
            assert abs(float(error)) < (4.5 * float(exponent) + 1.5) * EPS
        else:
            assert 0.0 <= value < 1e-307


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e5])
def test_rational_quadratic_at_zero_and_monotone(alpha):
    assert np.array_equal(rational_quadratic(alpha, [0.0, 5e-324, 1e-200, 1e-18]), np.ones(4))
    values = rational_quadratic(alpha, np.geomspace(1e-9, 1e6, 20_000))
    assert np.all(np.diff(values) <= 4 * EPS * values[:-1])
