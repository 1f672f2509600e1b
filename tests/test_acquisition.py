"""Acquisition: scores by quadrature and by random draws, batches by brute force, and constrained improvement."""

from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import entr
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from support.dense import derivative, labelled
from support.fits import quietly, refuses
from support.latents import RECORDS, every

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.acquisition import (
    constrained_expected_improvement,
    expected_improvement,
    latent_variance,
    log_expected_improvement,
    log_probability_of_feasibility,
    mutual_information,
    predictive_entropy,
    probability_of_feasibility,
    select,
)
from xgpc.acquisition.labels import _information, _information_slopes, entropy, expected_precision, likelihood_of
from xgpc.likelihoods import record_of

SEVERAL = [record for record in RECORDS if record.is_multi_class]


def information_by_rule(link, f, weight):
    """Entropy of the label less its expected entropy given f, (n,) or (n, C), by the nodes of a rule."""
    log_p = link.log_probabilities_given(f)
    return entropy(np.log(weight @ np.exp(log_p))) - weight @ entropy(log_p)


def assert_information(link, mean, variance, tolerance):
    """Of one latent function, against the trapezoidal rule."""
    z = np.linspace(-12.0, 12.0, 200_001)
    information = _information(link, mean, variance)
    for m, v, value in zip(mean, variance, information, strict=True):
        expected = information_by_rule(link, m + np.sqrt(v) * z, norm.pdf(z) * (z[1] - z[0]))
        assert value == pytest.approx(expected, abs=tolerance)


@every([record_of("logit", "exact"), record_of("probit", "exact"), record_of("logit", "additive-noise")])
def test_mutual_information_of_two_classes_is_that_of_a_dense_rule(record):
    mean, variance = np.array([[0.3, -1.5, 2.0, -8.0, 3.0], [1e-4, 1.0, 40.0, 3.0, 1e4]])
    assert_information(record.at(0.03), mean, variance, 1e-7)


@pytest.mark.parametrize(
    ("link", "cuts", "mean", "variance"),
    [
        *(("logit", [-1.0, 0.5, 3.0], [-2.0, 0.8, 3.0], v) for v in (0.3, 40.0)),
        *(("logit", [-70.0, -55.0, 90.0], [-71.0, -54.7, 90.0], v) for v in (0.3, 40.0)),
        *((link, [-800.0, -790.0, 10.0, 700.0], [0.0, -600.0], 1e6) for link in ("logit", "probit")),
    ],
    ids=str,
)
def test_mutual_information_of_ordered_classes_is_that_of_a_dense_rule(link, cuts, mean, variance):
    record = record_of(f"ordinal-{link}", "exact").at(np.array(cuts))
    assert_information(record, np.array(mean), np.full(len(mean), variance), 1e-6)


@pytest.mark.parametrize("mean", [30.0, -60.0, 0.5])
@pytest.mark.parametrize("variance", [100.0, 1.0])
def test_information_about_a_label_with_guesses_and_lapses_is_exact_far_from_ties(mean, variance):
    """Far below, a label tells whether it was guessed, and nothing of the latent value."""
    link, m, v = record_of("psychometric", "exact").at(np.array([0.2, 0.1])), np.array([mean]), np.array([variance])
    assert_information(link, m, v, 1e-6)
    by_mean, by_variance = _information_slopes(link, m, v)
    assert by_mean[0] == pytest.approx(derivative(lambda h: _information(link, m + h, v)[0], 1e-3), abs=1e-5)
    assert by_variance[0] == pytest.approx(derivative(lambda h: _information(link, m, v + h)[0], 1e-3), abs=1e-5)


@given(m=st.floats(-4.0, 4.0), log_v=st.floats(-12.0, 12.0), delta=st.floats(0.0, 0.5))
def test_a_step_tells_all_but_the_label_noise(m, log_v, delta):
    link, v = record_of("step", "additive-noise").at(delta), np.exp(log_v)
    t, kept = m / np.sqrt(v), 1.0 - 2.0 * delta
    p = delta + kept * norm.cdf(t)
    expected = entr(p) + entr(1.0 - p) - entr(delta) - entr(1.0 - delta)
    given = np.array([m]), np.array([v])
    assert _information(link, *given)[0] == pytest.approx(expected, abs=1e-14)
    slope = (np.log1p(-p) - np.log(p)) * kept * norm.pdf(t) if 0.0 < p < 1.0 else 0.0
    by_mean, by_variance = _information_slopes(link, *given)
    assert by_mean[0] * np.sqrt(v) == pytest.approx(slope, abs=1e-12)
    assert by_variance[0] * v == pytest.approx(-0.5 * slope * t, abs=1e-12)


def test_a_step_of_several_classes_tells_all_but_the_label_noise():
    link, mean, variance = record_of("multinomial-step", "additive-noise").at(0.03), np.ones((1, 3)), np.eye(3)[:1]
    # The first value is above or below the two others, which are equal: a label other than the first is one of these.
    p = np.array([0.5, 0.25, 0.25]) * (1.0 - 1.5 * 0.03) + 0.5 * 0.03
    left = np.array([0.97, 0.015, 0.015])
    assert _information(link, mean, variance + 1e-12)[0] == pytest.approx(np.sum(entr(p) - entr(left)), abs=1e-6)


@every([record for record in SEVERAL if not record.likelihood.startswith("multinomial")])
@pytest.mark.parametrize("v", [0.3, 20.0])
def test_mutual_information_of_several_classes_is_that_of_random_draws(record, v):
    link, random = record.at(0.03), np.random.default_rng(0)
    mean = np.sqrt(v) * random.normal(size=(4, 3))
    variance = v * random.uniform(0.5, 2.0, (4, 3))
    found = _information(link, mean, variance)
    for m, s, value in zip(mean, np.sqrt(variance), found, strict=True):
        f = m + s * random.normal(size=(40_000, 3))
        error = 4.0 * np.std(entropy(link.log_probabilities_given(f))) / 200.0
        assert value == pytest.approx(information_by_rule(link, f, np.full(40_000, 1 / 40_000)), abs=0.001 + error)


@every([record for record in SEVERAL if record.expected_entropy])
@pytest.mark.parametrize("v", [0.01, 1.0, 30.0, 1e3])
def test_mutual_information_in_closed_form_is_that_of_a_dense_rule(record, v):
    """Three classes' probabilities depend on two differences, integrated by the trapezoidal rule."""
    link, random = record.at(0.03), np.random.default_rng(1)
    mean = np.sqrt(v) * random.normal(size=(4, 3))
    variance = v * random.uniform(0.1, 2.0, (4, 3))
    z = np.linspace(-8.0, 8.0, 351)
    weight = np.outer(norm.pdf(z), norm.pdf(z)).ravel() * (z[1] - z[0]) ** 2
    z = np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2)
    for m, s, value in zip(mean, variance, _information(link, mean, variance), strict=True):
        factor = np.linalg.cholesky(np.diag(s[:2]) + s[2])
        f = np.column_stack([m[:2] - m[2] + z @ factor.T, np.zeros(len(z))])
        assert value == pytest.approx(information_by_rule(link, f, weight), abs=1e-4)


@every(RECORDS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**20))
def test_information_is_between_zero_and_the_entropy_of_the_label(record, seed):
    n_classes = 3 if record.is_multi_class else 2
    link, random = record.at(0.03), np.random.default_rng(seed)
    shape = (3, n_classes) if record.is_multi_class else (3,)
    variance = np.exp(random.normal(scale=4.0, size=shape))
    mean = np.exp(random.normal(scale=2.0)) * random.normal(size=shape)
    information, total = _information(link, mean, variance), entropy(link.log_probabilities(mean, variance))
    assert np.all(information >= 0.0)
    # Of several classes entropies are of 512 points.
    assert np.all(information <= total + (0.1 if record.is_multi_class else 1e-7))
    assert np.all(total <= np.log(n_classes) + 1e-9)
    # Nothing is left to be told of what is known.
    assert np.all(_information(link, mean, np.zeros(shape)) <= 1e-7)


X, Y = labelled(120, n_classes=2)
SMOOTH = ConstantKernel(4.0) * RBF(1.0)


def fit(n_classes=2, kernel=SMOOTH, **options):
    options = {"n_inducing": 30, "n_neighbors": 0, "optimizer": None, "random_state": 0} | options
    return quietly(GPClassifier(kernel, **options), *labelled(120, n_classes=n_classes))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_of_a_model(n_classes):
    model, X = fit(n_classes), np.vstack([labelled(30, seed=1)[0], [[30.0, 30.0]]])
    information, total = mutual_information(model, X), predictive_entropy(model, X)
    assert information.shape == total.shape == latent_variance(model, X).shape == (31,)
    np.testing.assert_allclose(total, entropy(model.predict_log_proba(X)))
    # Far away nothing is known: there is most to be told, and the variance is the prior's.
    assert np.argmax(information) == np.argmax(latent_variance(model, X)) == 30
    assert latent_variance(model, X)[30] == pytest.approx(4.0 * (n_classes if n_classes > 2 else 1), rel=1e-6)
    # Where classes overlap a label stays uncertain, however much is known.
    sure = fit(n_classes, ConstantKernel(1e-6) * RBF(1.0))
    assert np.all(predictive_entropy(sure, X) > 0.99 * np.log(n_classes))
    assert np.all(mutual_information(sure, X) < 1e-5)


NOISY = SMOOTH + WhiteKernel(0.3)
SUM = ConstantKernel(2.0) * Matern([0.8, 1.1], nu=0.5) + DotProduct(0.5) * ConstantKernel(0.1)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    ("n_classes", "options"),
    [
        (2, {}),
        (3, {}),
        (2, {"kernel": SUM}),
        (3, {"kernel": NOISY}),
        (3, {"kernel": None, "share": "none", "optimizer": "profile", "max_iter": 4}),
        (2, {"kernel": SUM, "likelihood": "step", "label_noise": 0.2}),
        (2, {"kernel": NOISY, "inducing_points": "all"}),
        (3, {"kernel": SUM, "inducing_points": "all"}),
        (2, {"kernel": SUM, "n_neighbors": 5}),
        (2, {"kernel": NOISY, "n_neighbors": 7}),
        (3, {"kernel": NOISY, "n_neighbors": 5}),
    ],
    ids=str,
)
def test_a_batch_is_that_of_dense_conditioning(n_classes, options, n_jobs):
    """Also of training rows, of a row twice, and of rows far away."""
    model, (rows, _) = fit(n_classes, n_jobs=n_jobs, **options), labelled(25, seed=1)
    new = np.vstack([rows, X[:6], rows[2:3], rows[:2] + 50.0])
    mean, covariance = model.predict_latent(new, return_cov=True)
    link, expected = likelihood_of(model), []
    covariance = covariance.reshape(len(new), len(new), -1)
    variances = [np.diagonal(covariance).T.reshape(mean.shape)]
    for _ in range(5):
        scores = _information(link, mean, variances[-1])
        scores[expected] = -1.0
        i = int(np.argmax(scores))
        expected.append(i)
        precision = np.ravel(expected_precision(link, mean[[i]], variances[-1][[i]]))
        covariance = covariance - covariance[:, [i]] * covariance[[i]] / (1.0 / precision + covariance[i, i])
        variances.append(np.diagonal(covariance).T.reshape(mean.shape))
    assert select(model, new, 5).tolist() == expected
    # The first two are asked for already.
    rest, pending = np.delete(np.arange(len(new)), expected[:2]), new[expected[:2]]
    assert rest[select(model, new[rest], 3, pending=pending)].tolist() == expected[2:]
    scores = _information(link, mean[rest], variances[2][rest])
    np.testing.assert_allclose(mutual_information(model, new[rest], pending=pending), scores, atol=1e-9)
    total = variances[2][rest].reshape(len(rest), -1).sum(axis=1)
    np.testing.assert_allclose(latent_variance(model, new[rest], pending=pending), total, rtol=1e-6)
    message = "Scores with pending rows have no gradient"
    refuses(message, predictive_entropy, model, new, return_grad=True, pending=pending)


def test_bad_requests_of_batches_are_refused():
    model = fit()
    refuses("n must be an integer from 1 to the number of candidates, 120; got 0", select, model, X, 0)
    refuses("candidates, 120", select, model, X, 121)
    refuses(r"score must be one of \[.*'latent_variance'\]; got 'bald'", select, model, X, 2, score="bald")
    linear = BayesianLinearClassifier().fit(X, Y)
    refuses("model must be a GPClassifier, which has joint covariances", select, linear, X, 2)


def test_expected_improvement_is_its_integral():
    mean, std = np.array([0.5, -1.0, 3.0, 0.2, 0.9, -300.0, 300.0]), np.array([1.0, 0.3, 2.0, 0.0, 0.0, 1e-300, 1e-3])
    found = expected_improvement(mean, std, 0.7)
    expected = [
        quad(lambda f, m=m, s=s: max(0.7 - f, 0.0) * norm.pdf(f, m, s), m - 12 * s, 0.7)[0]
        for m, s in zip(mean[:3], std[:3], strict=True)
    ]
    np.testing.assert_allclose(found, [*expected, 0.5, 0.0, 300.7, 0.0], atol=1e-9)
    refuses(r"must be \(n,\)", expected_improvement, mean, std[:2], 0.7)
    refuses("mean must be an array of numbers; got .'a'.", expected_improvement, ["a"], [1.0], 0.7)
    refuses("std must be an array of numbers; got .1j.", expected_improvement, [0.0], [1j], 0.7)
    refuses("mean_grad and std_grad must be arrays", expected_improvement, [0.0], [1.0], 0.7, True, "a", [[1.0]])


@given(z=st.floats(-1e4, 60.0), std=st.floats(1e-3, 1e3))
@example(z=-40.0, std=1.0)
@example(z=-99.99, std=1.0)
@example(z=-100.01, std=1.0)
def test_the_logarithm_of_expected_improvement_and_its_slopes_have_all_digits(z, std):
    with mpmath.workdps(60):
        mean = -z * std
        m, s = mpmath.mpf(mean), mpmath.mpf(std)
        t = -m / s
        phi, Phi = mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi), mpmath.erfc(-t / mpmath.sqrt(2)) / 2
        improvement = s * (phi + t * Phi)
        expected = [float(mpmath.log(improvement)), float(-Phi / improvement), float(phi / improvement)]
    units = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    value, gradient = log_expected_improvement([mean], [std], 0.0, True, *units)
    np.testing.assert_allclose([value[0], *gradient[0]], expected, rtol=1e-11, atol=1e-13)
    assert log_expected_improvement([mean], [std], 0.0)[0] == value[0]


def test_the_logarithm_of_expected_improvement_without_uncertainty_is_that_of_the_gain():
    units = np.array([[1.0, 0.0]] * 3), np.array([[0.0, 1.0]] * 3)
    value, gradient = log_expected_improvement([0.2, 0.7, 0.9], [0.0, 0.0, 0.0], 0.7, True, *units)
    np.testing.assert_allclose(value, [np.log(0.5), -np.inf, -np.inf])
    np.testing.assert_allclose(gradient, [[-2.0, 0.0], [0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("label", ["no", "yes"])
def test_a_quantile_of_feasibility_is_that_of_draws(label, q):
    model = fit()
    model.classes_ = np.array(["no", "yes"])
    f = model.sample_latent(X[:5], 40_000, random_state=0).ravel()
    draws = np.exp(likelihood_of(model).log_probabilities_given(f))
    expected = np.quantile(draws[:, ["no", "yes"].index(label)].reshape(5, -1), q, axis=1)
    found = probability_of_feasibility(model, X[:5], label, quantile=q)
    np.testing.assert_allclose(found, expected, atol=0.01)
    mean, std = X[:5, 0], np.full(5, 0.5)
    product = constrained_expected_improvement(model, X[:5], label, mean, std, 0.0, quantile=q)
    np.testing.assert_allclose(product, found * expected_improvement(mean, std, 0.0))


def test_only_probabilities_that_rise_or_fall_with_one_latent_function_have_quantiles():
    of_two = "quantile is for two classes and the first and last of ordered ones"
    for model, label in ((fit(3), 0), (fit(likelihood="softmax"), 1)):
        refuses(of_two, probability_of_feasibility, model, X, label, quantile=0.1)
    for q in (0.0, 1.0, "low"):
        refuses("quantile must be", log_probability_of_feasibility, fit(), X, 1, quantile=q)


def test_constrained_improvement_is_the_product():
    model = GPClassifier(RBF(1.0), n_inducing=10, n_neighbors=0, optimizer=None).fit(X, np.array(["no", "yes"])[Y])
    feasible = probability_of_feasibility(model, X, "yes")
    np.testing.assert_array_equal(feasible, model.predict_proba(X)[:, 1])
    mean, std = X[:, 0], np.full(len(X), 0.5)
    product = constrained_expected_improvement(model, X, "yes", mean, std, 0.0)
    logarithm = log_probability_of_feasibility(model, X, "yes") + log_expected_improvement(mean, std, 0.0)
    np.testing.assert_array_equal(product, np.exp(logarithm))
    # Far below the mean, the difference of two nearly equal terms has some of the improvement's digits.
    np.testing.assert_allclose(product, feasible * expected_improvement(mean, std, 0.0), rtol=1e-12)
    # Any classifier has probabilities; some have no logarithms of them.
    trees = HistGradientBoostingClassifier().fit(X, Y)
    np.testing.assert_allclose(probability_of_feasibility(trees, X, 1), trees.predict_proba(X)[:, 1], rtol=1e-12)
    refuses(r"one of the labels \['no', 'yes'\]; got 'maybe'", probability_of_feasibility, model, X, "maybe")
    refuses(r"'yes'\]; got array", probability_of_feasibility, model, X, np.array(["no", "yes"]))
    scores, column = partial(constrained_expected_improvement, model, X, "yes", mean, std, 0.0, True), X[:, :1]
    refuses(r"mean_grad and std_grad must be \(\d+, 2\), as X is; got \(\d+, 1\)", scores, column, column)


def test_where_nothing_is_feasible_yet_the_probability_of_feasibility_is_wanted():
    model = GPClassifier(RBF(1.0), optimizer=None).fit(X, np.full(len(X), "no"), classes=["no", "yes"])
    mean, std = np.linspace(-1.0, 1.0, len(X)), np.full(len(X), 0.5)
    found = constrained_expected_improvement(model, X, "yes", mean, std, np.inf)
    np.testing.assert_array_equal(found, probability_of_feasibility(model, X, "yes"))
    # What the scores of ever larger values come to.
    large = constrained_expected_improvement(model, X, "yes", mean, std, 1e9) / 1e9
    np.testing.assert_allclose(found, large, rtol=1e-8)
    scores = partial(constrained_expected_improvement, model, X, "yes")
    for m, best in ((mean, -np.inf), (mean, np.nan), (np.full(len(X), np.nan), np.inf)):
        refuses("mean and best must be finite", scores, m, std, best)
    refuses("inconsistent numbers of samples", scores, [0.0], [1.0], np.inf)
    for bad in (None, "1", [0.0], True):
        refuses(r"best must be a number, .* or infinity \(math\.inf\) where none .*; got", scores, mean, std, bad)
        refuses("best must be a number, the least value .*; got", expected_improvement, mean, std, bad)
