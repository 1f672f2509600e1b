"""Links of up to a thousand classes: dense quadrature, quasi-Monte Carlo, tails, and how the work grows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_ndtr, log_softmax, logsumexp, ndtri
from scipy.stats import qmc
from support.sites import GUMBEL_VARIANCE, normal_plus_gumbel

from xgpc.likelihoods import record_of


def normal(u, sd):
    log_cdf = log_ndtr(u / sd)
    return log_cdf, np.exp(-0.5 * (u / sd) ** 2 - log_cdf) / (sd * np.sqrt(2.0 * np.pi))


def largest(mean, sd, reach, least_scale, distribution):
    """log p_y (C,), p_y = integral of h_y prod_{c != y} H_c, by the trapezoidal rule with some thousand nodes.

    It is exact to round-off; the integrals add up to one, which says so.
    """
    low, high = np.max(mean - reach[0]), np.max(mean + reach[1])
    t = np.linspace(low, high, int((high - low) / (0.1 * least_scale)))
    terms = [distribution(t - m, s) for m, s in zip(mean, sd, strict=True)]
    total = sum(log_cdf for log_cdf, _ in terms)
    with np.errstate(divide="ignore"):
        value = np.array([logsumexp(np.log(hazard) + total) for _, hazard in terms]) + np.log(t[1] - t[0])
    assert logsumexp(value) == pytest.approx(0.0, abs=5e-8)
    return value - logsumexp(value)


def dense(mean, variance, noise):
    """The same for the noise of softmax, or normal noise of a variance."""
    if noise == "gumbel":
        sd = np.sqrt(variance)
        return largest(
            mean, sd, (4.0 + 9.0 * sd, 24.0 + 7.0 * sd), np.sqrt(sd.min() ** 2 + GUMBEL_VARIANCE), normal_plus_gumbel
        )
    sd = np.sqrt(variance + noise)
    return largest(mean, sd, (9.5 * sd, 8.0 * sd), sd.min(), normal)


def link(mean, variance, noise):
    if noise == "gumbel":
        return record_of("softmax", "exact").log_probabilities(mean, variance, None)
    name = {0.0: "multinomial-step", 1.0: "multinomial-probit"}[noise]
    return record_of(name, "additive-noise").log_probabilities(mean, variance, 0.0)


def classes(kind, n_classes, n=1, seed=0):
    """Means and variances (n, C): classes that are all alike, nearly, or not at all, or of scales that differ."""
    random = np.random.default_rng(seed)
    normal, uniform = random.normal(size=(n, n_classes)), random.uniform(0.5, 2.0, (n, n_classes))
    return {
        "alike": (0.0 * normal, np.full((n, n_classes), 2.0)),
        "near, certain": (0.3 * normal, 0.01 * uniform),
        "near": (0.3 * normal, uniform),
        "near, uncertain": (1.5 * normal, 30.0 * uniform),
        "spread": (4.0 * normal, random.gamma(1.0, 1.0, (n, n_classes))),
        "far": (40.0 * normal, uniform),
        "of all sizes": (4.0 * normal, 10.0 ** random.uniform(-2.0, 2.0, (n, n_classes))),
    }[kind]


KINDS = ("alike", "near, certain", "near", "near, uncertain", "spread", "far", "of all sizes")
# Errors as the links state them: of a probability, of a logarithm above log 1e-6, and below it as a share.
STATED = {"gumbel": (1e-8, 5e-4, 0.02), 1.0: (1e-8, 1e-5, 0.05), 0.0: (1e-8, 1e-5, 0.05)}


@pytest.mark.parametrize(
    ("kind", "noise", "n_classes"),
    [(kind, noise, (100, 300)[(i + j) % 2]) for i, kind in enumerate(KINDS) for j, noise in enumerate(STATED)],
)
def test_many_classes_agree_with_dense_quadrature(kind, noise, n_classes):
    mean, variance = classes(kind, n_classes)
    expected = dense(mean[0], variance[0], noise)
    value = link(mean, variance, noise)[0]
    of_probability, of_logarithm, share = STATED[noise]
    assert_allclose(np.exp(value), np.exp(expected), rtol=0.0, atol=of_probability)
    likely, possible = expected > np.log(1e-6), expected > -30.0
    assert_allclose(value[likely], expected[likely], rtol=0.0, atol=of_logarithm)
    assert_allclose(value[possible], expected[possible], rtol=share)
    if kind == "alike":
        assert_allclose(value, -np.log(n_classes), rtol=1e-12)


@pytest.mark.parametrize("kind", ["near", "near, uncertain", "spread"])
def test_a_hundred_classes_agree_with_quasi_monte_carlo(kind):
    """The mean of softmax itself, to six standard errors."""
    mean, variance = classes(kind, 100)
    means = []
    for seed in range(12):
        f = mean + np.sqrt(variance) * ndtri(qmc.Sobol(100, seed=seed).random(2048))
        means.append(np.exp(log_softmax(f, axis=1)).mean(axis=0))
    error = np.std(means, axis=0, ddof=1) / np.sqrt(12)
    probability = np.exp(link(mean, variance, "gumbel"))[0]
    likely = probability > 1e-3
    assert np.count_nonzero(likely) >= 10
    assert np.all(np.abs(probability - np.mean(means, axis=0))[likely] < 6.0 * error[likely])


def test_a_thousand_classes_that_are_alike():
    for noise in STATED:
        value = link(*classes("alike", 1000, 2), noise)
        assert_allclose(value, -np.log(1000.0), rtol=1e-12)
        # One that is more probable than the others, which stay alike.
        mean, variance = classes("alike", 1000)
        mean[0, 0] = 3.0
        value = link(mean, variance, noise)[0]
        assert_allclose(value[1:], value[1], rtol=1e-12)
        assert_allclose(value, dense(mean[0], variance[0], noise), rtol=0.0, atol=1e-5)


def best_bound(mean, scale, y):
    """max over t of log P(all others <= t < y) of normal values, of a dense set of t."""
    low = np.max(mean - 9.0 * scale)
    t = np.concatenate([low - np.geomspace(1e-6, 1.0, 1000) * (low - mean[y]), np.linspace(mean[y], low, 1000)])
    others = np.delete(np.arange(len(mean)), y)
    below = log_ndtr((t - mean[others, None]) / scale[others, None]).sum(axis=0)
    return np.max(below + log_ndtr((mean[y] - t) / scale[y]))


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("kind", ["far", "of all sizes", "alike but some"])
def test_probabilities_below_what_the_integral_reaches_have_the_best_bound(kind, n_classes):
    """To a twentieth of the logarithm, which is what the links state of the probability."""
    random = np.random.default_rng(n_classes)
    mean, scale = 300.0 * random.normal(size=n_classes), random.uniform(1.3, 4.0, n_classes)
    if kind == "of all sizes":
        scale = 10.0 ** random.uniform(0.12, 2.0, n_classes)
        mean *= np.sqrt(scale)
    elif kind == "alike but some":
        mean[n_classes // 2 :], scale[n_classes // 2 :] = 0.0, 2.0
    low = np.max(mean - 9.0 * scale)
    far = np.flatnonzero(mean < low - 3.0 * scale)[:12]
    assert len(far)
    expected = [best_bound(mean, scale, y) for y in far]
    assert_allclose(link(mean[None], scale[None] ** 2, 0.0)[0, far], expected, rtol=0.05)


def test_tiny_probabilities_of_many_classes_are_tilted_expectations():
    """For classes far below a certain one, E[exp(f_y)] is exp(m + v / 2), below the range of a double, too."""
    mean, variance = np.linspace(-3000.0, -100.0, 200)[None], np.linspace(0.1, 5.0, 200)[None]
    mean[0, -1], variance[0, -1] = 0.0, 0.0
    value = link(mean, variance, "gumbel")[0]
    assert_allclose(value[:-1], (mean + 0.5 * variance)[0, :-1], rtol=1e-4)
    assert value[-1] == pytest.approx(0.0, abs=1e-12)
