"""Links: a contract of every registered likelihood's predictions, then quadrature, closed forms and limits of each."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, logsumexp
from support.sites import (
    DELTA,
    GUMBEL_VARIANCE,
    LOG_LIKELIHOODS,
    NOISE,
    expectation_of_likelihood,
    normal_plus_gumbel,
    panels,
)

from xgpc.likelihoods import LIKELIHOODS, MULTI_CLASS, record_of

# The contract: each likelihood with the first bound of each of its links. Several classes are also predicted without
# noise in the labels; two are not, as their step is certain where there is no variance.
LINKED = [
    (name, bound, delta)
    for name, bounds in LIKELIHOODS.items()
    for bound in {id(r.predictive): r.bound for r in reversed(bounds.values())}.values()
    for delta in ((0.0, DELTA) if name in MULTI_CLASS and record_of(name, bound).has_label_noise else (DELTA,))
]


def over(*numbers):
    cases = [(*c, n) for c in LINKED for n in (numbers if c[0] in MULTI_CLASS else (2,))]
    return pytest.mark.parametrize(("name", "bound", "delta", "n_classes"), cases)


# Of the svm by the link that its authors choose.
LOG_LIKELIHOODS = LOG_LIKELIHOODS | {"svm": LOG_LIKELIHOODS["probit"]}
# Largest errors of a probability as the links state them; of two classes without an entry, round-off.
ERRORS = {name: 1e-8 for name in ("logit", "psychometric", "softmax", *NOISE) if name not in ("step", "probit")}
# The logistic softmax has them by variance; by the last of these a class may be less probable for a larger mean.
FIXED_POINTS = {0.1: 4e-5, 1.0: 2e-4, 10.0: 6e-4, 100.0: 2e-3, 1e4: 3e-3}


def predict(name, bound, delta, m, v):
    """Log probabilities (n, classes) for m and v (L, n)."""
    record = record_of(name, bound)
    m, v = np.broadcast_arrays(m, v)
    m, v = (np.ascontiguousarray(a.T) if record.is_multi_class else a[0].copy() for a in (m, v))
    return record.at(delta).log_probabilities(m, v)


def latents(name, n_classes, n=40, seed=0, most=1e4):
    """Means and variances (L, n) of all sizes, from 1e-3."""
    random = np.random.default_rng(seed)
    shape = (n_classes if name in MULTI_CLASS else 1, n)
    v = 10.0 ** random.uniform(-3.0, np.log10(most), n) * random.gamma(1.0, 1.0, shape)
    return 2.0 * random.normal(size=shape) * np.sqrt(v + 1.0), v


@over(2, 5)
def test_classes_are_exchangeable(name, bound, delta, n_classes):
    """Bit for bit in the sign of one latent value; several classes to round-off, or the error of fixed points."""
    m, v = latents(name, n_classes, 200)
    if name not in MULTI_CLASS:
        value = predict(name, bound, delta, m, v)
        assert np.array_equal(predict(name, bound, delta, -m, v), value[:, ::-1])
        assert np.array_equal(value[:, 1] > value[:, 0], m[0] > 0.0)
        return
    error = 2.0 * FIXED_POINTS[1e4] if name == "logistic-softmax" else 1e-12
    order = np.random.default_rng(0).permutation(n_classes)[::-1]
    expected = np.exp(predict(name, bound, delta, m, v))[:, order]
    assert_probabilities(predict(name, bound, delta, m[order], v[order]), expected, error)


@over(2, 3, 7)
@pytest.mark.parametrize("label", [0, 1])
def test_a_class_is_more_probable_for_a_larger_mean(name, bound, delta, n_classes, label):
    m, v = latents(name, n_classes, 10, seed=1)
    # The only latent value of two classes is that of the second, and falls for the first.
    moved, sign = (label, 1.0) if name in MULTI_CLASS else (0, 2.0 * label - 1.0)
    m, v = np.repeat(m[:, None], 25, axis=1), np.repeat(v[:, None], 25, axis=1)
    m[moved] += sign * np.linspace(-6.0, 6.0, 25)[:, None] * np.sqrt(v[moved] + 3.0)
    value = predict(name, bound, delta, m.reshape(len(m), -1), v.reshape(len(v), -1))
    probability = np.exp(value[:, label]).reshape(25, 10)
    error = FIXED_POINTS[1e4] if name == "logistic-softmax" else 2.0 * ERRORS.get(name, 1e-15)
    assert np.all(np.diff(probability, axis=0) >= -error)
    assert np.all(probability[-1] > probability[0] + 0.1)


@over(2, 3, 7)
@pytest.mark.parametrize("variance", FIXED_POINTS)
def test_probabilities_are_expectations(name, bound, delta, n_classes, variance):
    random = np.random.default_rng(3)
    shape = (n_classes if name in MULTI_CLASS else 1, 2)
    m, v = np.sqrt(1.0 + variance) * random.normal(size=shape), variance * random.uniform(0.5, 2.0, shape)
    value = np.exp(predict(name, bound, delta, m, v))
    stated = FIXED_POINTS[variance] if name == "logistic-softmax" else ERRORS.get(name, 1e-13)
    for i, label in enumerate((1, 0)):
        y = label if name in MULTI_CLASS else 2 * label - 1
        expected, error = expectation_of_likelihood(name, bound, delta, m[:, i], v[:, i], y, np.exp, LOG_LIKELIHOODS)
        assert value[i, label] == pytest.approx(expected, rel=0.0, abs=error + stated)


@over(2, 3, 10, 30)
def test_probabilities_are_finite_and_sum_to_one(name, bound, delta, n_classes):
    """Of moments of all sizes, up to the largest that predictions have."""
    random, small = np.random.default_rng(2), 10.0 ** np.arange(-320.0, -12.0, 20.0)
    means = np.concatenate([[0.0], small, 10.0 ** np.arange(-12.0, 9.0), 10.0 ** np.arange(25.0, 151.0, 25.0)])
    variances, means = np.append(means, 10.0 ** np.arange(175.0, 301.0, 25.0)), np.concatenate([means, -means])
    if name in MULTI_CLASS:
        # A row of many classes has many pairs of arguments.
        shape = n_classes, 1000 if n_classes < 10 else 100
        m, v = random.choice(means, shape), random.choice(variances, shape)
        m[:, :4], v[:, :4] = [0.0, 0.0, 1e8, -1e8], [0.0, 1e8, 0.0, 1e8]
        v[:, 4::2] = v[0, 4::2]
    else:
        m, v = (moments.reshape(1, -1) for moments in np.meshgrid(means, variances))
    m, v = np.concatenate([(m, v), latents(name, n_classes, 60)], axis=2)
    near = np.all((np.abs(m) <= 1e8) | (v == 0.0) | (v >= 1e-300), axis=0)
    for rate in (delta, 1e-12, 0.49):
        # Others may be more standard deviations away than the largest number.
        predict(name, bound, rate, m[:, near], v[:, near])
        with np.errstate(over="ignore"):
            value = predict(name, bound, rate, m, v)
        assert value.shape == (m.shape[1], n_classes)
        assert np.all(np.isfinite(value))
        assert np.all(value <= 1e-15)
        np.testing.assert_allclose(np.exp(value).sum(axis=1), 1.0, rtol=0.0, atol=2e-15)


def link(name, bound, delta=0.0):
    return record_of(name, bound).at(delta).log_probabilities


logit, probit_of_two, softmax_link = (link(name, "exact") for name in ("logit", "probit", "softmax"))
probit, step = (link(f"multinomial-{name}", "additive-noise") for name in ("probit", "step"))
logistic_softmax = link("logistic-softmax", "polya-gamma")


def assert_probabilities(value, expected, error):
    np.testing.assert_allclose(np.exp(value), expected, rtol=0.0, atol=error)


@settings(max_examples=40)
@given(m=st.floats(-300.0, 300.0), v=st.floats(0.0, 1e4))
def test_probit_is_its_closed_form_in_both_tails(m, v):
    with mp.workdps(40):
        small = mp.erfc(mp.fabs(m) / mp.sqrt(2 * (1 + mp.mpf(v)))) / 2
        expected = [float(mp.log(small)), float(mp.log1p(-small))]
    value = probit_of_two(np.array([m]), np.array([v]))[0]
    # Numbers below the range of a double are 0.
    np.testing.assert_allclose(np.sort(value), expected, rtol=1e-11, atol=np.finfo(float).tiny)
    assert m * (value[1] - value[0]) >= 0.0


@pytest.mark.parametrize(("name", "bound", "delta"), [case for case in LINKED if case[0] in MULTI_CLASS])
def test_rows_do_not_depend_on_their_neighbours(name, bound, delta):
    m, v = latents("softmax", 3, 500)
    together = predict(name, bound, delta, m, v)
    alone = [predict(name, bound, delta, m[:, [i]], v[:, [i]])[0] for i in range(0, 500, 25)]
    np.testing.assert_allclose(together[::25], alone, rtol=1e-10, atol=1e-11)
    assert np.array_equal(predict(name, bound, delta, m, v), together)
    assert predict(name, bound, delta, m[:, :0], v[:, :0]).shape == (0, 3)


@pytest.mark.parametrize("name", ["softmax", "multinomial-step", "multinomial-probit", "multinomial-logit"])
def test_links_of_two_classes_are_those_of_their_difference(name):
    """The logit, or a probit with the noise of both."""
    m, v = (part.T.copy() for part in latents("softmax", 2, 3000))
    difference, variance = m[:, 1] - m[:, 0], v.sum(axis=1)
    if name == "softmax":
        value, expected, error = softmax_link(m, v), logit(difference, variance), 2e-8
    else:
        t = difference / np.sqrt(variance + 2.0 * NOISE[name])
        value, expected, error = link(name, "additive-noise")(m, v), log_ndtr(np.column_stack([-t, t])), 2e-9
    assert_probabilities(value, np.exp(expected), error)
    likely = expected > -30.0
    np.testing.assert_allclose(value[likely], expected[likely], rtol=1e-3, atol=5.0 * error)
    assert np.all(value[~likely] < -29.0)


def test_logistic_softmax_without_variance_is_its_formula():
    m = np.array([[0.0, 1.0, -3.0], [30.0, 2.0, -30.0], [-900.0, -905.0, -920.0]])
    value = logistic_softmax(m, np.zeros((3, 3)))
    assert_probabilities(value, np.exp([LOG_LIKELIHOODS["logistic-softmax"](m.T, c) for c in range(3)]).T, 1e-7)


def test_logistic_softmax_far_below_zero_is_softmax():
    m, v = (part.T.copy() for part in latents("softmax", 4, 50, seed=5))
    m, v = np.clip(m, -20.0, 20.0), np.minimum(v, 50.0)
    assert_probabilities(logistic_softmax(m - 1000.0, v), np.exp(softmax_link(m, v)), 2e-3)


# The mixture's relative error is SIGMA_ERROR over the probability: it serves down to 0.04, other formulas below.
SIGMA_ERROR, LOG_ERROR = 3.9e-9, 1e-7


def log_mean_sigma(m, v):
    """log E[sigma(f)] without underflow: panels around the mode of sigma(f) N(f; m, v)."""
    if v == 0.0:
        return -np.logaddexp(0.0, -m)
    sd = np.sqrt(v)
    shift = brentq(lambda shift: expit(-(m + shift)) - shift / v, 0.0, v)
    z, weights = panels(m + shift, sd)
    log_integrand = -np.logaddexp(0.0, -(m + shift + sd * z)) - 0.5 * (z + shift / sd) ** 2
    return logsumexp(log_integrand + np.log(weights)) - 0.5 * np.log(2.0 * np.pi)


@pytest.mark.parametrize("v", np.concatenate([[0.0], 10.0 ** np.linspace(-6.0, 4.0, 31)]))
def test_logit_agrees_with_quadrature(v):
    m = np.concatenate([np.linspace(-200.0, 0.0, 81), [-1e-3, -0.1, -v if v < 200.0 else -1.0]])
    negative, positive = logit(m, np.full_like(m, v)).T
    reference = np.array([log_mean_sigma(mean, v) for mean in m])
    assert np.abs(positive - reference).max() < LOG_ERROR
    assert np.abs(negative - np.log1p(-np.exp(reference))).max() < SIGMA_ERROR


def test_logit_of_a_point_has_the_same_bits_whatever_the_others_are():
    rng = np.random.default_rng(0)
    m, v = 10.0 * rng.normal(size=1003), rng.uniform(0.0, 60.0, size=1003)
    together = logit(m, v)
    a = np.abs(m)
    tilted, thin = a > v, (a <= v) & (np.exp(together.min(axis=1)) < 0.05)
    # The series of many points is a product of BLAS, whose order of sums is its own.
    assert min(np.count_nonzero(part) for part in (tilted, thin, ~(tilted | thin))) > 50
    alone = np.vstack([logit(m[i : i + 1], v[i : i + 1]) for i in range(len(m))])
    np.testing.assert_array_equal(together[~thin], alone[~thin])
    np.testing.assert_allclose(together[thin], alone[thin], rtol=1e-13)
    np.testing.assert_array_equal(logit(np.repeat(m, 2)[::2], np.repeat(v, 2)[::2]), together)


# Links of up to a thousand classes: dense quadrature, quasi-Monte Carlo, tails, and how the work grows.


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
        sd, least = np.sqrt(variance), np.sqrt(variance.min() + GUMBEL_VARIANCE)
        return largest(mean, sd, (4.0 + 9.0 * sd, 24.0 + 7.0 * sd), least, normal_plus_gumbel)
    sd = np.sqrt(variance + noise)
    return largest(mean, sd, (9.5 * sd, 8.0 * sd), sd.min(), normal)


LINK_OF_NOISE = {"gumbel": softmax_link, 0.0: step, 1.0: probit}


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
STATED = {"gumbel": (1e-8, 5e-4, 0.02), 1.0: (1e-8, 1e-5, 0.003), 0.0: (1e-8, 1e-5, 0.003)}


@pytest.mark.parametrize(
    ("kind", "noise", "n_classes"),
    [(kind, noise, (100, 300)[(i + j) % 2]) for i, kind in enumerate(KINDS) for j, noise in enumerate(STATED)],
)
def test_many_classes_agree_with_dense_quadrature(kind, noise, n_classes):
    mean, variance = classes(kind, n_classes)
    expected = dense(mean[0], variance[0], noise)
    value = LINK_OF_NOISE[noise](mean, variance)[0]
    of_probability, of_logarithm, share = STATED[noise]
    assert_allclose(np.exp(value), np.exp(expected), rtol=0.0, atol=of_probability)
    likely, possible = expected > np.log(1e-6), expected > -30.0
    assert_allclose(value[likely], expected[likely], rtol=0.0, atol=of_logarithm)
    assert_allclose(value[possible], expected[possible], rtol=share)
    if kind == "alike":
        assert_allclose(value, -np.log(n_classes), rtol=1e-12)


def test_a_thousand_classes_that_are_alike():
    for noise, of_noise in LINK_OF_NOISE.items():
        assert_allclose(of_noise(*classes("alike", 1000, 2)), -np.log(1000.0), rtol=1e-12)
        # One that is more probable than the others, which stay alike.
        mean, variance = classes("alike", 1000)
        mean[0, 0] = 3.0
        value = of_noise(mean, variance)[0]
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
    """To a twentieth of the logarithm: the bound itself is lower than the probability."""
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
    assert_allclose(step(mean[None], scale[None] ** 2)[0, far], [best_bound(mean, scale, y) for y in far], rtol=0.05)


@pytest.mark.parametrize(("n_classes", "seed", "y"), [(10, 69, 9), (10, 110, 2), (30, 66, 24)])
def test_probabilities_below_means_of_very_different_scales_have_nearly_the_best_bound(n_classes, seed, y):
    random = np.random.default_rng(seed)
    mean, scale = 300.0 * random.normal(size=n_classes), 10.0 ** random.uniform(-2.0, 2.0, n_classes)
    assert step(mean[None], scale[None] ** 2)[0, y] > 1.2 * best_bound(mean, scale, y)


@pytest.mark.parametrize("distance", [8.0, 20.0, 60.0])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-3, 10.0), (10.0, 1e-3), (1.0, 100.0)])
def test_far_probabilities_of_two_normal_values_have_a_closed_form(scales, distance):
    """P(f_0 > f_1) is Phi of the difference of the means in units of its standard deviation, here below exp(-30)."""
    apart = distance * np.hypot(*scales)
    assert step(np.array([[-apart, 0.0]]), np.square([scales]))[0, 0] == pytest.approx(log_ndtr(-distance), rel=1e-3)


@pytest.mark.parametrize("width", [1e3, 1e10, 1e40, 1e80])
def test_a_value_of_any_width_is_the_largest_half_of_the_time(width):
    for of_noise in LINK_OF_NOISE.values():
        value = of_noise(np.zeros((1, 3)), np.array([[width**2, 1.0, 1.0]]))[0]
        assert_allclose(np.exp(value), [0.5, 0.25, 0.25], rtol=2e-2 if width < 1e4 else 1e-3)


@pytest.mark.parametrize("n_classes", [3, 200])
def test_tiny_softmax_probabilities_are_tilted_expectations(n_classes):
    """For classes far below a certain one, E[exp(f_y)] is exp(m + v / 2), below the range of a double, too."""
    mean, variance = np.linspace(-3000.0, -100.0, n_classes)[None], np.linspace(0.1, 5.0, n_classes)[None]
    mean[0, -1], variance[0, -1] = 0.0, 0.0
    value = softmax_link(mean, variance)[0]
    assert_allclose(value[:-1], (mean + 0.5 * variance)[0, :-1], rtol=1e-4)
    assert value[-1] == pytest.approx(0.0, abs=1e-12)
