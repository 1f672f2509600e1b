"""Sites: a contract that every registered likelihood and bound keeps, then the logit's closed forms."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_expit, logsumexp

from xgpc import _engine
from xgpc.likelihoods import LIKELIHOODS, resolve
from xgpc.links import logit_log_probabilities

REGISTERED = [(name, bound) for name, likelihood in LIKELIHOODS.items() for bound in likelihood.bounds]
# What ell is of E[log p(y | f)]: itself, a lower bound, or the expectation of an expansion about m, which is neither,
# and whose lambda and r belong to the expansion with its place fixed.
KINDS = {("logit", "exact"): "exact", ("logit", "polya-gamma"): "lower bound", ("logit", "taylor"): "local"}
BOUNDING = [site for site in REGISTERED if KINDS.get(site) != "local"]
every_site = pytest.mark.parametrize(("likelihood", "bound"), REGISTERED)
every_bounding_site = pytest.mark.parametrize(("likelihood", "bound"), BOUNDING)
repeatable = settings(deadline=None, derandomize=True, max_examples=100)

# The largest errors of the mixture that stands for the logistic function, see coefficients.h.
SIGMA_ERROR, SOFTPLUS_ERROR, SLOPE_ERROR = 3.9e-9, 1.51e-8, 1.61e-8
# Points and weights on [-1, 1] of each panel of the reference quadrature.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)

means = st.floats(-50.0, 50.0)
variances = st.one_of(st.just(0.0), st.floats(0.0, 1e4), st.floats(-8.0, 4.0).map(lambda e: 10.0**e))
labels = st.sampled_from([-1.0, 1.0])


def evaluate(likelihood, bound, m, v, y, weight=None):
    """ell, lambda and r as (3, n)."""
    m, v, y = (np.array(a, dtype=np.float64) for a in np.broadcast_arrays(*np.atleast_1d(m, v, y)))
    out = np.empty((3, len(m)))
    weight = np.empty(0) if weight is None else weight
    _engine.sites(_engine.SITES[likelihood, bound], m, v, y, weight, *out)
    return out


def log_likelihood(likelihood, y):
    """f -> log p(y | f): the predictive probability without uncertainty."""
    column = int(y > 0)
    return lambda f: LIKELIHOODS[likelihood].log_probabilities(f.ravel(), np.zeros(f.size))[:, column].reshape(f.shape)


def panels(centre, sd):
    """Nodes and weights in units of sd around ``centre``, split for a function that bends around zero."""
    bends = np.clip((np.linspace(-45.0, 45.0, 46) - centre) / sd, -14.0, 14.0)
    edges = np.unique(np.concatenate([np.linspace(-14.0, 14.0, 57), bends]))
    half = 0.5 * np.diff(edges)[:, None]
    return 0.5 * (edges[1:] + edges[:-1])[:, None] + half * NODES, half * WEIGHTS


def expectation(function, m, v):
    """E[function(f)], f ~ N(m, v)."""
    if v == 0.0:
        return function(np.array([m]))[0]
    z, weights = panels(m, np.sqrt(v))
    return np.sum(weights * function(m + np.sqrt(v) * z) * np.exp(-0.5 * z**2)) / np.sqrt(2.0 * np.pi)


def log_mean_sigma(m, v):
    """log E[sigma(f)] without underflow: panels around the mode of sigma(f) N(f; m, v)."""
    if v == 0.0:
        return -np.logaddexp(0.0, -m)
    sd = np.sqrt(v)
    low, high = 0.0, v
    for _ in range(200):
        shift = 0.5 * (low + high)
        low, high = (shift, high) if expit(-(m + shift)) > shift / v else (low, shift)
    z, weights = panels(m + shift, sd)
    log_integrand = -np.logaddexp(0.0, -(m + shift + sd * z)) - 0.5 * (z + shift / sd) ** 2
    return logsumexp(log_integrand + np.log(weights)) - 0.5 * np.log(2.0 * np.pi)


@pytest.mark.parametrize(("m", "v"), [(-10.0, 2000.0), (30.0, 1e4), (0.3, 1e-6), (-45.0, 3.0), (2.0, 40.0)])
def test_reference_quadrature_agrees_with_mpmath(m, v):
    with mp.workdps(25):
        root = mp.sqrt(v)
        points = sorted({m + k * root for k in range(-12, 13)} | ({mp.mpf(0)} if abs(m) < 12 * root else set()))

        def integral(function):
            density = mp.mpf(1) / (root * mp.sqrt(2 * mp.pi))
            return density * mp.quad(lambda f: function(f) * mp.exp(-((f - m) ** 2) / (2 * v)), points)

        softplus = float(integral(lambda f: mp.log1p(mp.exp(-f))))
        log_sigma = float(mp.log(integral(lambda f: 1 / (1 + mp.exp(-f)))))
    assert expectation(lambda f: np.logaddexp(0.0, -f), m, v) == pytest.approx(softplus, rel=1e-12)
    assert log_mean_sigma(m, v) == pytest.approx(log_sigma, abs=1e-10)


# The contract.


def test_registries_agree():
    assert set(REGISTERED) == set(_engine.SITES) == set(KINDS)
    for name, likelihood in LIKELIHOODS.items():
        assert resolve(name, "auto") == (likelihood, likelihood.bounds[0])


STEPS = 1e-3 * np.array([-2.0, -1.0, 1.0, 2.0])
# Five-point differences, exact to about 1e-9.
STENCIL = np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * 1e-3)


@every_site
@repeatable
@given(m=st.floats(-30.0, 30.0), v=st.floats(0.5, 1e3), y=labels)
def test_precision_is_a_derivative_by_the_variance(likelihood, bound, m, v, y):
    """lambda = -2 d ell / dv."""
    by_variance = STENCIL @ evaluate(likelihood, bound, m, v + STEPS, y)[0]
    assert evaluate(likelihood, bound, m, v, y)[1, 0] == pytest.approx(-2.0 * by_variance, abs=1e-8)


@every_bounding_site
@repeatable
@given(m=st.floats(-30.0, 30.0), v=st.floats(0.5, 1e3), y=labels)
def test_linear_term_is_a_natural_gradient(likelihood, bound, m, v, y):
    """r = d ell / dm + lambda m."""
    by_mean = STENCIL @ evaluate(likelihood, bound, m + STEPS, v, y)[0]
    _, precision, linear = evaluate(likelihood, bound, m, v, y)[:, 0]
    assert linear == pytest.approx(by_mean + precision * m, abs=1e-8)


@every_bounding_site
@repeatable
@given(m=means, v=variances, y=labels)
def test_expected_log_likelihood_is_not_exceeded(likelihood, bound, m, v, y):
    """A bound stays below E[log p(y | f)] up to the mixture's error; an exact site equals it."""
    ell = evaluate(likelihood, bound, m, v, y)[0, 0]
    expected = expectation(log_likelihood(likelihood, y), m, v)
    round_off = 1e-14 * (abs(m) + np.sqrt(v))
    assert ell <= expected + 2.5e-8 + round_off
    if KINDS[likelihood, bound] == "exact":
        assert ell == pytest.approx(expected, abs=1e-6)


@every_site
@repeatable
@given(m=st.floats(-1e8, 1e8), v=st.floats(0.0, 1e8), y=labels)
def test_sites_are_symmetric_in_the_label(likelihood, bound, m, v, y):
    ell, precision, linear = evaluate(likelihood, bound, m, v, y)[:, 0]
    assert np.array_equal(evaluate(likelihood, bound, -m, v, -y)[:, 0], [ell, precision, -linear])


@every_site
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_extreme_arguments_give_finite_sites(likelihood, bound, y):
    size = np.concatenate([[0.0], 10.0 ** np.arange(-320.0, 9.0)])
    m, v = (a.ravel() for a in np.meshgrid(np.concatenate([-size, size]), size))
    site = evaluate(likelihood, bound, m, v, y)
    assert np.all(np.isfinite(site))
    assert np.all(site[1] >= 0.0)


@every_site
@repeatable
@given(m=st.floats(-1e8, 1e8), v=st.floats(0.0, 1e8), y=labels, weight=st.floats(0.0, 1e8))
def test_weights_multiply_the_site(likelihood, bound, m, v, y, weight):
    site = evaluate(likelihood, bound, m, v, y)
    assert np.array_equal(evaluate(likelihood, bound, m, v, y, np.array([weight])), weight * site)


@every_site
def test_a_site_does_not_depend_on_its_neighbours(likelihood, bound):
    """Vectorised bodies and scalar remainders of the loop agree to an ulp or so."""
    random = np.random.default_rng(0)
    m, v = 5.0 * random.normal(size=37), random.gamma(1.0, 5.0, size=37)
    y = random.choice([-1.0, 1.0], size=37)
    alone = np.hstack([evaluate(likelihood, bound, *point) for point in zip(m, v, y, strict=True)])
    np.testing.assert_allclose(evaluate(likelihood, bound, m, v, y), alone, rtol=1e-14, atol=1e-15)


@every_site
def test_expected_log_likelihood_sums_the_sites(likelihood, bound):
    random = np.random.default_rng(1)
    m, v, y = random.normal(size=50), random.gamma(1.0, size=50), random.choice([-1.0, 1.0], size=50)
    total = LIKELIHOODS[likelihood].expected_log_likelihood(bound, m, v, y)
    assert total == pytest.approx(np.sum(evaluate(likelihood, bound, m, v, y)[0]), rel=1e-14)


def test_no_points_are_no_work():
    empty = np.empty(0)
    for number in _engine.SITES.values():
        _engine.sites(number, empty, empty, empty, empty, empty, empty, empty)
    assert _engine.logistic_normal_mean(empty, empty).shape == (0,)


# The logit.


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_mixture_errors_are_those_stated(y):
    """Without variance the exact site is the mixture itself; ell, wrong-class probability and slope, over all f."""
    f = np.linspace(-60.0, 60.0, 240_001)
    ell, precision, linear = evaluate("logit", "exact", f, 0.0, y)
    assert np.abs(ell + np.logaddexp(0.0, -y * f)).max() < SOFTPLUS_ERROR
    assert np.abs(precision - expit(f) * expit(-f)).max() < SLOPE_ERROR
    assert np.abs(y * (linear - precision * f) - expit(-y * f)).max() < SIGMA_ERROR
    assert np.abs(_engine.logistic_normal_mean(f, np.zeros_like(f)) - expit(f)).max() < SIGMA_ERROR


def logit_errors(m, v):
    """Errors of E[softplus], E[sigma] and E[sigma'] against quadrature."""
    ell, precision, _ = evaluate("logit", "exact", m, v, 1.0)[:, 0]
    probability = _engine.logistic_normal_mean(np.array([m]), np.array([v]))[0]
    return (
        abs(ell + expectation(lambda f: np.logaddexp(0.0, -f), m, v)),
        abs(probability - expectation(expit, m, v)),
        abs(precision - expectation(lambda f: expit(f) * expit(-f), m, v)),
    )


def test_logit_expectations_on_a_grid():
    """Averaging does not enlarge the mixture's errors; 1e-12 is the quadrature's."""
    errors = [
        logit_errors(m, v)
        for m in np.linspace(-50.0, 50.0, 81)
        for v in np.concatenate([[0.0], 10.0 ** np.linspace(-6.0, 4.0, 21)])
    ]
    limits = np.array([SOFTPLUS_ERROR, SIGMA_ERROR, SLOPE_ERROR])
    assert np.all(np.max(errors, axis=0) < limits + 1e-12)


@repeatable
@given(means, variances)
def test_logit_expectations(m, v):
    assert max(logit_errors(m, v)) < 1e-6


@repeatable
@given(m=st.floats(-1e8, 1e8), v=st.floats(0.0, 1e8), y=labels)
def test_polya_gamma_stays_below_exact(m, v, y):
    lower = evaluate("logit", "polya-gamma", m, v, y)[0, 0]
    assert lower <= evaluate("logit", "exact", m, v, y)[0, 0] + 2e-8 + 1e-15 * (abs(m) + np.sqrt(v))


@repeatable
@given(m=means, v=st.floats(0.0, 1e4), y=labels)
def test_polya_gamma_site_is_its_closed_form(m, v, y):
    ell, precision, linear = evaluate("logit", "polya-gamma", m, v, y)[:, 0]
    c = np.sqrt(m * m + v)
    assert ell == pytest.approx(0.5 * y * m - np.logaddexp(0.5 * c, -0.5 * c), abs=1e-13 * (1.0 + c))
    assert precision == pytest.approx(0.25 if c < 1e-8 else np.tanh(0.5 * c) / (2.0 * c), rel=1e-14)
    assert linear == 0.5 * y


@repeatable
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


@repeatable
@given(m=means, v=variances, y=labels)
def test_taylor_site_is_the_papers_formula(m, v, y):
    """As printed, with sigma in double precision."""
    ell, precision, linear = evaluate("logit", "taylor", m, v, y)[:, 0]
    slope = expit(m) * expit(-m)
    assert precision == pytest.approx(slope, rel=1e-14)
    assert linear == pytest.approx(0.5 * (y + 1.0) - expit(m) + slope * m, abs=1e-14)
    assert ell == pytest.approx(log_expit(y * m) - 0.5 * slope * v, rel=1e-14)


@repeatable
@given(m=st.floats(-20.0, 20.0), v=st.floats(0.0, 1e4), y=labels)
def test_taylor_site_is_the_expectation_of_the_expansion(m, v, y):
    """log sigma(y f) = c_0 + c_1 (f - m) + c_2 (f - m)^2 + ... has lambda, r as its coefficients of -f^2 / 2 and f."""
    ell, precision, linear = evaluate("logit", "taylor", m, v, y)[:, 0]
    with mp.workdps(30):
        c = [float(value) for value in mp.taylor(lambda f: -mp.log1p(mp.exp(-y * f)), mp.mpf(m), 2)]
    expanded = expectation(lambda f: c[0] + c[1] * (f - m) + c[2] * (f - m) ** 2, m, v)
    assert ell == pytest.approx(expanded, rel=1e-11, abs=1e-11)
    assert precision == pytest.approx(-2.0 * c[2], rel=1e-8, abs=1e-14)
    assert linear == pytest.approx(c[1] - 2.0 * c[2] * m, rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_taylor_site_of_means_whose_exponential_underflows(y):
    """Precision vanishes, so that even the largest variance counts for nothing."""
    m = np.array([-1e300, -1e8, -709.0, 709.0, 1e8, 1e300])
    ell, precision, linear = evaluate("logit", "taylor", m, 1e300, y)
    assert np.array_equal(ell, np.minimum(y * m, 0.0))
    assert np.array_equal(precision, np.zeros(6))
    assert np.array_equal(linear, np.where(y * m < 0.0, y, 0.0))


# Predictive log probabilities.

# The mixture's relative error is SIGMA_ERROR over the probability: it serves down to 0.04, other formulas below.
LOG_ERROR = 1e-7


@repeatable
@given(m=st.floats(-1e8, 1e8), v=st.one_of(st.just(0.0), st.floats(0.0, 1e6)))
def test_log_probabilities_are_those_of_two_classes(m, v):
    value = logit_log_probabilities(np.array([m, -m]), np.array([v, v]))
    assert np.all(value <= 0.0)
    np.testing.assert_allclose(np.exp(value).sum(axis=1), 1.0, rtol=0.0, atol=4e-16)
    assert np.array_equal(value[0], value[1, ::-1])


@pytest.mark.parametrize("v", np.concatenate([[0.0], 10.0 ** np.linspace(-6.0, 4.0, 31)]))
def test_log_probabilities_agree_with_quadrature(v):
    m = np.concatenate([np.linspace(-200.0, 0.0, 161), [-1e-3, -0.1, -v if v < 200.0 else -1.0]])
    negative, positive = logit_log_probabilities(m, np.full_like(m, v)).T
    reference = np.array([log_mean_sigma(mean, v) for mean in m])
    assert np.abs(positive - reference).max() < LOG_ERROR
    assert np.abs(negative - np.log1p(-np.exp(reference))).max() < SIGMA_ERROR


def test_log_probabilities_without_variance_are_log_sigma():
    m = np.concatenate([np.linspace(-700.0, 0.0, 20_001), [-1e5, -1e8, -1e300]])
    _, positive = logit_log_probabilities(m, np.zeros_like(m)).T
    np.testing.assert_allclose(positive, -np.logaddexp(0.0, -m), rtol=1e-7)


@pytest.mark.parametrize("v", [0.0, 1e-6, 1.0, 1e2, 1e4, 9e4, 1e5, 1.1e5])
@pytest.mark.parametrize("m", [-1e5, 1e5])
def test_log_probabilities_of_far_means_are_finite(m, v):
    """sigma < exp bounds the smaller probability by exp(v / 2 - |m|)."""
    value = logit_log_probabilities(np.array([m]), np.array([v]))[0]
    assert np.all(np.isfinite(value))
    assert value.min() <= 0.5 * v - 1e5 + 1e-6
    assert value.max() <= 0.0
