"""Sites: the contract that every registered likelihood keeps with each of its bounds, through to whole fits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support.dense import derivative
from support.latents import REGISTERED
from support.sites import DELTA, LOG_LIKELIHOODS, build, evaluate, expectation_of_likelihood, problem

from xgpc.likelihoods import MULTI_CLASS, expected_log_likelihood, record_of

# What ell is of E[log p(y | f)], by bound unless the likelihood is an exception: itself; a lower bound, as any bound
# missing here must be; or the expectation of an expansion about the mean, which is neither, and whose lambda
# and r belong to the expansion with its place fixed.
KINDS = {"exact": "exact", "additive-noise": "exact", ("softmax", "additive-noise"): "lower bound", "taylor": "local"}
# The svm's is a pseudo log likelihood.
LOG_LIKELIHOODS = LOG_LIKELIHOODS | {"svm": lambda f, y: -2.0 * np.maximum(1.0 - y * f, 0.0)}
# Largest errors of ell, absolute and relative, beyond round-off: those of coefficients.inc.h and softmax.h, with the
# logit's a little above as they are of the softplus without averaging.
ERRORS = {("logit", "exact"): (1.6e-8, 0.0), ("probit", "exact"): (1.6e-7, 5.5e-7), ("softmax", "exact"): (1e-5, 0.0)}
# Twice that of the softplus, of which it is a difference.
ERRORS |= {("psychometric", "exact"): (3.2e-8, 0.0)}

SEVERAL = (2, 3, 7, 100)
CASES = [(*site, n) for site in REGISTERED for n in (SEVERAL if site[0] in MULTI_CLASS else (2,))]
every_case = pytest.mark.parametrize(("name", "bound", "n_classes"), CASES)
seeds = st.integers(0, 2**32 - 1)

# Steps of five-point differences, and the largest errors of those. The integral of the exact softmax has as many nodes
# as a point needs, which changes ell by some 1e-8 of its scale.
DIFFERENCES = {("softmax", "exact"): (0.05, 4e-5)}


def kind(name, bound):
    return KINDS.get((name, bound), KINDS.get(bound, "lower bound"))


@every_case
@settings(max_examples=4)
@given(seed=seeds)
def test_precision_and_linear_term_are_derivatives(name, bound, n_classes, seed):
    """lambda_c = -2 d ell / dv_c and r_c = d ell / dm_c + lambda_c m_c."""
    site = build(name, bound, n_classes)
    step, limit = DIFFERENCES.get((name, bound), (1e-3, 1e-8))
    for spread, most in ((2.0, 100.0), (10.0, 1e3)):
        m, v, y = problem(site.n_latents, seed, max(1, 40 // n_classes), spread, 0.5, most)
        _, precision, linear = evaluate(site, m, v, y)
        # Each point once for each latent value, which alone moves.
        means, variances, labels = (np.repeat(a, site.n_latents, axis=-1) for a in (m, v, y))
        units = np.tile(np.eye(site.n_latents), len(y))

        def ell(m_step, v_step, means=means, variances=variances, labels=labels, units=units):
            return evaluate(site, means + m_step * units, variances + v_step * units, labels)[0]

        by_variance = derivative(lambda h, ell=ell: ell(0.0, h), step).reshape(m.T.shape).T
        assert_allclose(precision, -2.0 * by_variance, rtol=0.0, atol=limit)
        if kind(name, bound) != "local":
            by_mean = derivative(lambda h, ell=ell: ell(h, 0.0), step).reshape(m.T.shape).T
            assert_allclose(linear, by_mean + precision * m, rtol=0.0, atol=limit)


@pytest.mark.parametrize(
    ("name", "bound", "n_classes"), [case for case in CASES if case[2] <= 7 and kind(*case[:2]) != "local"]
)
@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0, 100.0])
def test_expected_log_likelihood_is_not_exceeded(name, bound, n_classes, variance):
    """An exact site equals it, up to the errors stated of either side."""
    site = build(name, bound, n_classes)
    m, v, y = problem(site.n_latents, CASES.index((name, bound, n_classes)), 2, 2.0, 0.5 * variance, 2.0 * variance)
    ell = evaluate(site, m, v, y)[0]
    absolute, relative = ERRORS.get((name, bound), (1e-12, 1e-12))
    for i in range(2):
        at = m[:, i], v[:, i], y[i]
        expected, error = expectation_of_likelihood(name, bound, DELTA, *at, lambda log_p: log_p, LOG_LIKELIHOODS)
        error += absolute + relative * abs(expected)
        assert ell[i] <= expected + error
        if kind(name, bound) == "exact":
            assert ell[i] == pytest.approx(expected, rel=0.0, abs=error)


@every_case
@settings(max_examples=10)
@given(seed=seeds, size=st.floats(-8.0, 8.0))
def test_classes_are_exchangeable(name, bound, n_classes, seed, size):
    """Labels -1 and +1 bit for bit; several classes to round-off."""
    site = build(name, bound, n_classes)
    if site.n_latents == 1:
        m, v, y = problem(site.n_latents, seed, 10, spread=10.0**size, least=1e-8, most=1e8)
        ell, precision, linear = evaluate(site, m, v, y)
        assert np.array_equal(np.vstack(evaluate(site, -m, v, -y)), np.vstack([ell, precision, -linear]))
        return
    m, v, y = problem(site.n_latents, seed, 10, 2.0, 0.1, 1e3)
    order = np.random.default_rng(seed).permutation(n_classes)
    ell, precision, linear = evaluate(site, m, v, y)
    permuted = evaluate(site, m[order], v[order], np.argsort(order)[y])
    for value, expected in zip(permuted, (ell, precision[order], linear[order]), strict=True):
        assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@every_case
def test_extreme_arguments_give_finite_sites(name, bound, n_classes):
    """Whatever the likelihood, ell is no more than certainty's zero, up to round-off."""
    site = build(name, bound, n_classes)
    random = np.random.default_rng(n_classes)
    size = np.concatenate([[0.0, 1.0 - 1e-12, 1.0 + 1e-12], 10.0 ** np.arange(-320.0, 9.0)])
    signed = np.concatenate([-size, size])
    if site.n_latents == 1:
        m, v = (np.tile(a.ravel(), 2)[None] for a in np.meshgrid(signed, size))
        y = np.repeat([-1.0, 1.0], m.size // 2)
    else:
        n = 5000 if n_classes < 100 else 1000
        m, v = random.choice(signed, (n_classes, n)), random.choice(size, (n_classes, n))
        m[:, : n // 2], v[:, : n // 4] = m[0, : n // 2], v[0, : n // 4]
        y = random.integers(n_classes, size=n)
    ell, precision, linear = evaluate(site, m, v, y)
    assert np.all(np.isfinite(np.vstack([ell, precision, linear])))
    assert np.all(ell <= (0.0 if site.n_latents == 1 else 1e-7))
    # Mislabelled points have negative precisions with additive noise.
    if not record_of(name, bound).has_wrong_labels:
        assert np.all(precision >= 0.0)


@every_case
@settings(max_examples=10)
@given(seed=seeds, size=st.floats(-8.0, 8.0), weight=st.floats(0.0, 1e8))
def test_weights_multiply_the_site(name, bound, n_classes, seed, size, weight):
    site = build(name, bound, n_classes)
    m, v, y = problem(site.n_latents, seed, 5, spread=10.0**size, least=1e-8, most=1e8)
    weighted = evaluate(site, m, v, y, np.full(5, weight))
    assert np.array_equal(np.vstack(weighted), weight * np.vstack(evaluate(site, m, v, y)))


@every_case
def test_a_site_does_not_depend_on_its_neighbours(name, bound, n_classes):
    """Over several chunks of points; vectorised bodies and scalar remainders of the loops agree to an ulp or so."""
    site = build(name, bound, n_classes)
    m, v, y = problem(site.n_latents, 0, 149, 5.0, 0.3, 50.0)
    weight = np.random.default_rng(0).gamma(1.0, size=149)
    alone = [np.vstack(evaluate(site, m[:, [i]], v[:, [i]], y[i])) for i in range(149)]
    together = np.vstack(evaluate(site, m, v, y, weight))
    assert_allclose(together, weight * np.hstack(alone), rtol=1e-13, atol=1e-14 if site.n_latents == 1 else 1e-13)


@every_case
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_moments_that_are_not_finite_change_no_other_site(name, bound, n_classes, number):
    """Nor do integrals of them have endless many nodes, or nodes outside of a table."""
    site = build(name, bound, n_classes)
    m, v, y = problem(site.n_latents, 2, 16, 2.0, 0.5, 1e3)
    # The label's mean is the first: differences of means are NaN and both infinities.
    broken = [3, 7, 11, 14]
    y[broken] = 0 if site.n_latents > 1 else -1
    expected = np.vstack(evaluate(site, m, v, y))
    m[:, 3], v[:, 11], m[1:, 14], v[0, 14] = number, abs(number), number, abs(number)
    m[:, 7] = np.where(np.arange(site.n_latents) < max(1, site.n_latents - 1), number, -number)
    found = np.vstack(evaluate(site, m, v, y))
    assert_allclose(np.delete(found, broken, axis=1), np.delete(expected, broken, axis=1), rtol=1e-13, atol=1e-13)


@every_case
def test_expected_log_likelihood_sums_the_sites(name, bound, n_classes):
    site = build(name, bound, n_classes)
    m, v, y = problem(site.n_latents, 1, 50, 2.0, 0.5, 1e3)
    y = y.astype(np.float64)
    total = expected_log_likelihood(site, *((m[0], v[0]) if site.n_latents == 1 else (m, v)), y)
    assert total == pytest.approx(np.sum(evaluate(site, m, v, y)[0]), rel=1e-14)
    nothing = np.empty((site.n_latents, 0))
    assert expected_log_likelihood(site, nothing, nothing, np.empty(0)) == 0.0
