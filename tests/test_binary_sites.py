"""Sites of probit, Bayesian support vector machine and additive noise: closed forms against quadrature."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx, log_ndtr, ndtr

from xgpc import _engine

DELTA = 0.1
NOISE = {"step": 0.0, "probit": 1.0, "logit": 1.702**2}
SITES = {key: _engine.SITES[key] for key in [("probit", "exact"), ("svm", "augmented"), ("svm", "exact")]}
SITES |= {(link, "additive-noise"): _engine.Site(link, "additive-noise", parameter=DELTA) for link in NOISE}
every_site = pytest.mark.parametrize("key", SITES, ids="-".join)
every_link = pytest.mark.parametrize(("link", "nu"), NOISE.items())
repeatable = settings(deadline=None, derandomize=True, max_examples=100)

# The largest errors of the mixture that stands for (log Phi)'', see coefficients.h: of -log Phi and of its first and
# second derivative, absolute above -10, relative from -60 to -10 and below.
NEAR, MIDDLE, FAR = [1.6e-7, 3.2e-7, 9.1e-7], [1.8e-8, 9.1e-8, 1.6e-6], [5.5e-7, 6.8e-7, 2.4e-6]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)

means = st.floats(-50.0, 50.0)
variances = st.one_of(st.just(0.0), st.floats(0.0, 1e4), st.floats(-8.0, 4.0).map(lambda e: 10.0**e))
labels = st.sampled_from([-1.0, 1.0])


def evaluate(key, m, v, y, weight=()):
    """ell, lambda and r as (3, n)."""
    m, v, y = (np.array(a, dtype=np.float64) for a in np.broadcast_arrays(*np.atleast_1d(m, v, y)))
    out = np.empty((3, len(m)))
    _engine.sites(key if isinstance(key, _engine.Site) else SITES[key], m, v, y, np.array(weight, np.float64), *out)
    return out


def expectation(function, m, v):
    """E[function(f)], f ~ N(m, v), of a function that jumps or bends at whole numbers only."""
    if v == 0.0:
        return function(np.array([m]))[0]
    sd = np.sqrt(v)
    bends = np.clip((np.arange(-60.0, 61.0) - m) / sd, -14.0, 14.0)
    edges = np.unique(np.concatenate([np.linspace(-14.0, 14.0, 57), bends]))
    half = 0.5 * np.diff(edges)[:, None]
    z = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * NODES
    return np.sum(half * WEIGHTS * function(m + sd * z) * np.exp(-0.5 * z**2)) / np.sqrt(2.0 * np.pi)


def probit_loss(f):
    """-log Phi and its first two derivatives."""
    w = np.sqrt(2.0 / np.pi) / erfcx(-f / np.sqrt(2.0))
    return np.array([-log_ndtr(f), -w, w * (w + f)])


STEPS = 1e-3 * np.array([-2.0, -1.0, 1.0, 2.0])
STENCIL = np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * 1e-3)  # exact to about 1e-9


@every_site
@repeatable
@given(m=st.floats(-30.0, 30.0), v=st.floats(0.5, 1e3), y=labels)
def test_precision_and_linear_term_are_derivatives(key, m, v, y):
    """lambda = -2 d ell / dv and r = d ell / dm + lambda m."""
    _, precision, linear = evaluate(key, m, v, y)[:, 0]
    by_variance, by_mean = (STENCIL @ evaluate(key, m + dm, v + dv, y)[0] for dm, dv in ((0, STEPS), (STEPS, 0)))
    assert precision == pytest.approx(-2.0 * by_variance, abs=2e-8)
    assert linear == pytest.approx(by_mean + precision * m, abs=2e-8)


@every_site
@repeatable
@given(m=st.floats(-1e8, 1e8), v=st.floats(0.0, 1e8), y=labels)
def test_sites_are_symmetric_in_the_label(key, m, v, y):
    ell, precision, linear = evaluate(key, m, v, y)[:, 0]
    assert np.array_equal(evaluate(key, -m, v, -y)[:, 0], [ell, precision, -linear])


@every_site
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_extreme_arguments_give_finite_sites(key, y):
    size = np.concatenate([[0.0, 1.0 - 1e-12, 1.0 + 1e-12], 10.0 ** np.arange(-320.0, 9.0)])
    m, v = (a.ravel() for a in np.meshgrid(np.concatenate([-size, size]), size))
    ell, precision, linear = evaluate(key, m, v, y)
    assert np.all(np.isfinite([ell, precision, linear]))
    assert np.all(ell <= 0.0)
    assert np.all((precision >= 0.0) | ((key[1] == "additive-noise") & (y * m < 0.0)))


@every_site
def test_a_site_does_not_depend_on_its_neighbours(key):
    """Vectorised bodies and scalar remainders of the loop agree to an ulp or so; weights multiply."""
    random = np.random.default_rng(0)
    m, v, weight = 5.0 * random.normal(size=37), random.gamma(1.0, 5.0, size=37), random.random(37)
    y = random.choice([-1.0, 1.0], size=37)
    alone = np.hstack([evaluate(key, *point) for point in zip(m, v, y, strict=True)])
    np.testing.assert_allclose(evaluate(key, m, v, y), alone, rtol=1e-13, atol=1e-14)
    assert np.array_equal(evaluate(key, m, v, y, weight), weight * evaluate(key, m, v, y))


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_probit_mixture_errors_are_those_stated(y):
    """Without variance the site is the mixture itself."""
    f = np.concatenate([-np.geomspace(60.0, 1e4, 100_000)[::-1], np.linspace(-60.0, 40.0, 200_001)])
    ell, precision, linear = evaluate(("probit", "exact"), y * f, 0.0, y)
    exact = probit_loss(f)
    errors = np.abs([-ell, precision * f - y * linear, precision] - exact)
    near, middle, far = f >= -10.0, (f < -10.0) & (f >= -60.0), f < -60.0
    assert np.all(errors[:, near].max(axis=1) < NEAR)
    assert np.all(np.max(errors[:, middle] / np.abs(exact[:, middle]), axis=1) < MIDDLE)
    assert np.all(np.max(errors[:, far] / np.abs(exact[:, far]), axis=1) < FAR)


@repeatable
@given(m=means, v=variances, y=labels)
def test_probit_expectations(m, v, y):
    """Averaging does not enlarge the mixture's errors."""
    ell, precision, linear = evaluate(("probit", "exact"), m, v, y)[:, 0]
    loss, slope, curvature = (expectation(lambda f, k=k: probit_loss(f)[k], y * m, v) for k in range(3))
    assert abs(ell + loss) < NEAR[0] + FAR[0] * loss
    assert abs(y * (linear - precision * m) + slope) < NEAR[1] - FAR[1] * slope + 1e-14 * abs(precision * m)
    assert abs(precision - curvature) < NEAR[2] + FAR[2] * curvature


@pytest.mark.parametrize(("m", "v"), [(-10.0, 2000.0), (30.0, 1e4), (0.3, 1e-6), (-45.0, 3.0), (2.0, 40.0)])
def test_reference_quadrature_agrees_with_mpmath(m, v):
    with mp.workdps(25):
        sd = mp.sqrt(v)
        points = sorted({m + k * sd for k in range(-12, 13)} | ({mp.mpf(0)} if abs(m) < 12 * sd else set()))
        loss = mp.quad(lambda f: -mp.log(mp.ncdf(f)) * mp.npdf(f, m, sd), points)
    assert expectation(lambda f: -log_ndtr(f), m, v) == pytest.approx(float(loss), rel=1e-12)


@repeatable
@given(m=means, v=variances, y=labels)
def test_svm_exact_is_the_expected_hinge(m, v, y):
    ell, precision, linear = evaluate(("svm", "exact"), m, v, y)[:, 0]
    assert ell == pytest.approx(-expectation(lambda f: 2.0 * np.maximum(1.0 - f, 0.0), y * m, v), rel=1e-12, abs=1e-12)
    if v > 1e-6:
        wrong = expectation(lambda f: 2.0 * (f < 1.0), y * m, v)
        assert linear - precision * m == pytest.approx(y * wrong, abs=1e-12 * (1.0 + abs(precision * m)))
        density = mp.npdf(1.0, y * mp.mpf(m), mp.sqrt(mp.mpf(v)))  # of the margin at the hinge
        assert precision == pytest.approx(float(2 * density), rel=1e-10, abs=1e-300)


@repeatable
@given(m=means, v=variances, y=labels, ratio=st.floats(0.01, 100.0))
def test_svm_augmented_is_the_best_of_its_quadratic_bounds(m, v, y, ratio):
    """For each a > 0, -2 max(1 - u, 0) >= u - 1 - ((1 - u)^2 / a + a) / 2; in the mean a^2 = E[(1 - u)^2] is best."""
    ell, precision, linear = evaluate(("svm", "augmented"), m, v, y)[:, 0]
    a = np.sqrt(max((1.0 - y * m) ** 2 + v, 1e-24))
    assert ell == pytest.approx(y * m - 1.0 - a, abs=1e-13 * (1.0 + a))
    assert ell >= y * m - 1.0 - 0.5 * (a / ratio + a * ratio) - 1e-13 * (1.0 + a)
    assert precision == pytest.approx(1.0 / a, rel=1e-14)
    assert linear == pytest.approx(y * (1.0 + 1.0 / a), rel=1e-14)


@repeatable
@given(m=st.floats(-1e8, 1e8), v=st.floats(0.0, 1e8), y=labels)
def test_svm_augmented_stays_below_exact(m, v, y):
    lower, exact = (evaluate(("svm", bound), m, v, y)[0, 0] for bound in ("augmented", "exact"))
    assert lower <= exact + 1e-12 + 1e-15 * (abs(m) + np.sqrt(v))


@every_link
@repeatable
@given(m=means, v=variances, y=labels)
def test_additive_noise_is_an_expectation(link, nu, m, v, y):
    ell, precision, _ = evaluate((link, "additive-noise"), m, v, y)[:, 0]
    right, wrong = np.log1p(-DELTA), np.log(DELTA)
    if v + nu >= 1e-12:
        assert ell == pytest.approx(expectation(lambda g: np.where(g > 0.0, right, wrong), y * m, v + nu), abs=1e-12)
    if nu:  # the noise integrated out
        expected = expectation(lambda f: wrong + (right - wrong) * ndtr(f / np.sqrt(nu)), y * m, v)
        assert ell == pytest.approx(expected, abs=1e-12)
    assert precision * y * m >= 0.0


@every_link
@repeatable
@given(m=means, v=st.floats(1e-3, 1e4), y=labels, delta=st.floats(1e-6, 0.499))
def test_additive_noise_is_its_closed_form(link, nu, m, v, y, delta):
    """Liu et al. 2019, equation (8), in forty digits."""
    ell, precision, linear = evaluate(_engine.Site(link, "additive-noise", parameter=delta), m, v, y)[:, 0]
    with mp.workdps(40):
        right, wrong, square = mp.log(1 - mp.mpf(delta)), mp.log(mp.mpf(delta)), mp.mpf(v) + mp.mpf(nu)
        t = y * mp.mpf(m) / mp.sqrt(square)
        slope = (right - wrong) * mp.npdf(t)
        expected = [right * mp.ncdf(t) + wrong * mp.ncdf(-t)]
        expected += [slope * t / square, slope * y * (1 + t**2) / mp.sqrt(square)]
    np.testing.assert_allclose([ell, precision, linear], np.array(expected, np.float64), rtol=1e-12, atol=1e-14)
