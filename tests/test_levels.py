"""Levels and failures: scores by quadrature and central differences, shares of populations by draws and integrals."""

from functools import partial
from itertools import pairwise, permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from support.dense import assert_near, row_differences
from support.fits import fit, quietly, refuses
from support.latents import RECORDS, every
from support.posteriors import POSTERIORS

from xgpc import BayesianLinearClassifier, GPClassifier, GPOrdinalClassifier, GPPreference
from xgpc.acquisition import (
    expected_misclassification_reduction,
    latent_variance,
    misclassification_probability,
    probability_of_failure,
    straddle,
)
from xgpc.acquisition.labels import expected_precision, likelihood_of

KERNEL = ConstantKernel(4.0) * Matern([1.1, 0.8], nu=2.5)
ROWS = np.random.default_rng(1).uniform(-2.5, 2.5, (7, 2))


def fitted(posterior="sparse", n_classes=2, kernel=KERNEL, **options):
    random = np.random.default_rng(0)
    X = random.uniform(-2.0, 2.0, (80, 2))
    score = np.sum(X**2, axis=1) + 0.2 * random.normal(size=len(X))
    y = np.array(["fine", "warm", "wreck"])[np.digitize(score, [2.0, 4.0] if n_classes == 3 else [3.0, np.inf])]
    return fit(X, y, kernel, optimizer=None, **POSTERIORS[posterior] | {"n_inducing": 12} | options)


def graded(names=(0, 1, 2)):
    random = np.random.default_rng(0)
    X = random.uniform(-2.0, 2.0, (80, 2))
    y = np.digitize(X[:, 0] + 0.4 * random.normal(size=len(X)), [-0.7, 0.7])
    model = GPOrdinalClassifier(KERNEL, optimizer=None, n_inducing=12, random_state=0)
    return quietly(model, X, np.array(names)[y], classes=names)


@pytest.mark.parametrize("score", [straddle, misclassification_probability])
@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("level", [0.0, -1.3])
def test_scores_of_a_level(score, posterior, level):
    model = fitted(posterior, mean=0.4)
    mean, variance = model.predict_latent(ROWS)
    std, away = np.sqrt(variance), np.abs(mean - level)
    expected = 1.96 * std - away if score is straddle else norm.cdf(-away / std)
    np.testing.assert_allclose(score(model, ROWS, level), expected, rtol=1e-12)
    value, gradient = score(model, ROWS, level, return_grad=True)
    np.testing.assert_array_equal(value, score(model, ROWS, level))
    assert_near(gradient, row_differences(lambda rows: score(model, rows, level), ROWS), 1e-6)


def test_linear_classifiers_have_levels_too():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2))
    model = BayesianLinearClassifier().fit(X, X[:, 0] + random.normal(size=60) > 0.0)
    mean, variance = model.predict_latent(ROWS)
    np.testing.assert_allclose(straddle(model, ROWS, 0.2, width=1.0), np.sqrt(variance) - np.abs(mean - 0.2))


def joint(model, X, pending=None):
    """Mean and covariance of X, once pending rows have a label."""
    rows = X if pending is None else np.vstack([X, pending])
    mean, covariance = model.predict_latent(rows, return_cov=True)
    for i in range(len(X), len(rows)):
        precision = expected_precision(likelihood_of(model), mean[i : i + 1], np.diag(covariance)[i : i + 1])
        covariance = covariance - np.outer(covariance[i], covariance[i]) / (1.0 / precision + covariance[i, i])
    return mean[: len(X)], covariance[: len(X), : len(X)]


def reduction_by_quadrature(model, X, reference, level, pending=None):
    """From the joint normal distribution of two latent values, by the trapezoidal rule over that of the candidate."""
    mean, covariance = joint(model, np.vstack([X, reference]), pending)
    link, found = likelihood_of(model), np.zeros((len(X), len(reference)))
    for i in range(len(X)):
        m, s = mean[i], np.sqrt(covariance[i, i])
        # Likelihoods with a step have it at 0, between two points.
        ends = np.clip([m - 9.0 * s, 0.0, m + 9.0 * s], m - 9.0 * s, m + 9.0 * s)
        f = np.concatenate([np.linspace(a + 1e-12, b - 1e-12, 4001) for a, b in pairwise(ends)])
        p = np.exp(link.log_probabilities_given(f))
        for j in range(len(X), len(mean)):
            slope = covariance[i, j] / s**2
            left = np.sqrt(covariance[j, j] - slope * covariance[i, j])
            above = norm.cdf((mean[j] + slope * (f - m) - level) / left)
            sides = [np.trapezoid((norm.pdf(f, m, s) * side)[:, None] * p, f, axis=0) for side in (above, 1.0 - above)]
            now = norm.cdf(-np.abs(mean[j] - level) / np.sqrt(covariance[j, j]))
            found[i, j - len(X)] = now - np.sum(np.min(sides, axis=0))
    return found


def assert_reduction(model, reference, level=0.0, **options):
    """The expected reduction is that by quadrature, whose pairs of candidates and reference rows are returned."""
    found = expected_misclassification_reduction(model, ROWS, reference, level, **options)
    pairs = reduction_by_quadrature(model, ROWS, reference, level, **options)
    np.testing.assert_allclose(found, pairs.mean(axis=1), atol=1e-5)
    return pairs


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_pending_rows_count_as_labelled(posterior):
    model, pending, reference = fitted(posterior), ROWS[:2] + 0.1, np.random.default_rng(2).uniform(-3.0, 3.0, (4, 2))
    mean, covariance = joint(model, ROWS, pending)
    std, away = np.sqrt(np.diag(covariance)), np.abs(mean - 0.4)
    assert np.all(std[:2] < 0.95 * np.sqrt(model.predict_latent(ROWS)[1][:2]))
    np.testing.assert_allclose(straddle(model, ROWS, 0.4, pending=pending), 1.96 * std - away, rtol=1e-6)
    wrong = misclassification_probability(model, ROWS, 0.4, pending=pending)
    np.testing.assert_allclose(wrong, norm.cdf(-away / std), rtol=1e-6)
    assert_reduction(model, reference, 0.4, pending=pending)


@every(record for record in RECORDS if not record.is_multi_class)
def test_expected_reduction_for_every_likelihood_of_two_classes(record):
    noise = {"label_noise": 0.05} if record.has_label_noise else {"lapse_rate": 0.1} if record.has_rates else {}
    model = fitted(likelihood=record.likelihood, bound=record.bound, **noise)
    reference = np.random.default_rng(2).uniform(-3.0, 3.0, (5, 2))
    assert np.max(assert_reduction(model, reference, 0.4)) > 1e-3


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("n_reference", [3, 9])
def test_expected_reduction_for_every_posterior(posterior, n_reference):
    """With fewer reference rows than candidates and with more; also where a candidate is a reference row."""
    model = fitted(posterior, kernel=KERNEL + WhiteKernel(0.1))
    reference = np.vstack([ROWS[:1], np.random.default_rng(2).uniform(-3.0, 3.0, (n_reference - 1, 2))])
    assert_reduction(model, reference)


def test_levels_of_ordered_classes():
    """A label of three may tell of each boundary; of a level, the class between has no side."""
    model, reference = graded(), np.random.default_rng(2).uniform(-3.5, 3.5, (12, 2))
    for level in model.cut_points_:
        assert np.max(assert_reduction(model, reference, level)) > 1e-3
    above = probability_of_failure(model, ROWS, 2, level, random_state=0)
    mean, variance = model.predict_latent(ROWS)
    assert above.probability == pytest.approx(np.mean(norm.cdf((mean - level) / np.sqrt(variance))))
    message = r"failure=1 is on both sides of a level; give the first or the last of"
    refuses(message, probability_of_failure, model, ROWS, 1, 0.0)
    named = graded(["none", "some", "all"])
    found, expected = (expected_misclassification_reduction(each, ROWS, reference, level) for each in (named, model))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    same = probability_of_failure(named, ROWS, "all", named.cut_points_[1], random_state=0)
    assert same.probability == above.probability
    np.testing.assert_array_equal(same.draws, above.draws)
    with pytest.raises(ValueError, match=r"failure='some' is on both sides .* classes \['none', 'some', 'all'\]"):
        probability_of_failure(named, ROWS, "some", 0.0)


def test_a_label_far_from_all_reference_rows_would_tell_nothing():
    model, angle = fitted(), np.linspace(0.0, 6.0, 60)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) * np.linspace(1.6, 1.9, 60)[:, None]
    wrong = misclassification_probability(model, ring)
    near, far = expected_misclassification_reduction(model, [ring[np.argmax(wrong)], [90.0, 0.0]], ring)
    assert 1e-4 < near < np.mean(wrong)
    assert far < 1e-12
    assert expected_misclassification_reduction(model, ROWS[:0], ROWS).shape == (0,)


def share_of_draws(model, X, level, failure="wreck"):
    draws = model.sample_latent(X, 4000, random_state=1, method="exact")
    if level is not None:
        return np.mean(draws > level, axis=0)
    values = np.moveaxis(draws, -1, 1)
    p = np.exp(likelihood_of(model).log_probabilities_given(values.reshape(-1, *values.shape[2:])))
    return p[:, list(model.classes_).index(failure)].reshape(values.shape[:2]).mean(axis=0)


def assert_same_distribution(found, draws):
    assert found.probability == pytest.approx(np.mean(draws), abs=5.0 * np.std(draws) / np.sqrt(len(draws)))
    assert np.std(found.draws) == pytest.approx(np.std(draws), rel=0.12)
    np.testing.assert_allclose([found.low, found.high], np.quantile(draws, [0.025, 0.975]), atol=0.25 * np.std(draws))


@pytest.mark.parametrize("level", [None, 0.3])
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_share_is_distributed_as_that_of_joint_draws(posterior, level):
    model = fitted(posterior, kernel=KERNEL + WhiteKernel(0.05))
    assert model.classes_.tolist() == ["fine", "warm"]
    X = np.random.default_rng(3).normal(size=(300, 2))
    found = probability_of_failure(model, X, "warm", level, random_state=0)
    assert_same_distribution(found, share_of_draws(model, X, level, "warm"))


@pytest.mark.parametrize("level", [None, 0.3])
def test_the_sampling_deviation_is_that_of_many_populations(level):
    model, populations = fitted(), np.random.default_rng(3).normal(size=(400, 40, 2))
    shares = [probability_of_failure(model, X, "warm", level, n_draws=1, random_state=0) for X in populations]
    expected = np.std([share.probability for share in shares])
    assert np.mean([share.sampling_std for share in shares]) == pytest.approx(expected, rel=0.1)


def test_a_share_of_one_of_several_classes():
    model, X = fitted(n_classes=3), np.random.default_rng(3).normal(size=(300, 2))
    assert_same_distribution(probability_of_failure(model, X, "wreck", random_state=0), share_of_draws(model, X, None))
    everything = sum(probability_of_failure(model, X, label, n_draws=2).probability for label in model.classes_)
    assert everything == pytest.approx(1.0)


@pytest.mark.parametrize("level", [None, 0.0])
def test_a_sample_stands_for_a_large_population(level):
    """Of most rows the outcome is nearly certain; of more than are drawn jointly it is not."""
    model = fitted(kernel=ConstantKernel(30.0) * RBF(0.8))
    X = np.random.default_rng(4).normal(scale=0.7, size=(4000, 2))
    found = probability_of_failure(model, X, "warm", level, random_state=0)
    assert np.count_nonzero(misclassification_probability(model, X) > 1e-3) > 1000
    assert_same_distribution(found, share_of_draws(model, X, level, "warm"))
    mean, variance = model.predict_latent(X)
    p = model.predict_proba(X)[:, 1] if level is None else norm.cdf(mean / np.sqrt(variance))
    assert found.probability == pytest.approx(np.mean(p), rel=1e-12)


def test_variance_of_a_share_is_the_sum_of_covariances_of_sides():
    model, X = fitted(), np.random.default_rng(3).normal(scale=1.2, size=(12, 2))
    found = probability_of_failure(model, X, "warm", 0.0, n_draws=40_000, random_state=0)
    mean, covariance = model.predict_latent(X, return_cov=True)
    both = np.diag(norm.cdf(mean / np.sqrt(np.diag(covariance))))
    for pair in permutations(range(12), 2):
        both[pair] = multivariate_normal.cdf(mean[[*pair]], cov=covariance[np.ix_(pair, pair)], allow_singular=True)
    p = np.diag(both)
    assert found.probability == pytest.approx(np.mean(p), rel=1e-12)
    assert np.var(found.draws) == pytest.approx(np.mean(both - np.outer(p, p)), rel=0.04)


def test_the_other_label_has_the_rest_of_the_population():
    model, X = fitted(), pd.DataFrame(np.random.default_rng(3).normal(size=(50, 2)))
    model.fit(X, np.where(np.sum(X**2, axis=1) > 2.0, "warm", "fine"))
    for level in (None, 0.2):
        warm, fine = (probability_of_failure(model, X, label, level, random_state=0) for label in ("warm", "fine"))
        assert warm.probability + fine.probability == pytest.approx(1.0)
        np.testing.assert_allclose(warm.draws + fine.draws, 1.0)
        assert (warm.low, warm.high) == pytest.approx((1.0 - fine.high, 1.0 - fine.low))
        assert 0.0 <= warm.low <= warm.high <= 1.0


def test_a_certain_population_has_no_interval():
    model = GPClassifier(ConstantKernel(1e8) * RBF(1.0), likelihood="probit", optimizer=None, mean=1e5)
    quietly(model, ROWS, ["fine"] * 3 + ["warm"] * 4)
    found = probability_of_failure(model, ROWS + 50.0, "warm", -1e6, n_draws=5)
    assert (found.probability, found.low, found.high) == (1.0, 1.0, 1.0)


FAILURE = partial(probability_of_failure, population=ROWS, failure="warm")
BAD = {
    "level must be a finite number": partial(straddle, X=ROWS, level=np.nan),
    "width must be a number above 0; got 0": partial(straddle, X=ROWS, width=0),
    "reference must have at least one row": partial(expected_misclassification_reduction, X=ROWS, reference=ROWS[:0]),
    "population must have at least one row": partial(FAILURE, population=ROWS[:0]),
    r"failure must be one of the labels \['fine', 'warm'\]; got 'cold'": partial(FAILURE, failure="cold"),
    "confidence must be a number between 0 and 1; got 95": partial(FAILURE, confidence=95),
    "n_draws must be": partial(FAILURE, n_draws=0),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_requests_are_refused(message):
    refuses(message, BAD[message], fitted())


def test_models_without_a_level_or_joint_draws_are_refused():
    several, linear = fitted(n_classes=3), BayesianLinearClassifier(prior_variance=1.0).fit(ROWS, np.arange(7) % 2)
    pairs = GPPreference(KERNEL, optimizer=None).fit(ROWS[:3], ROWS[3:6])

    def reduction(model):
        return expected_misclassification_reduction(model, ROWS, ROWS)

    scores = [partial(score, X=ROWS) for score in (straddle, misclassification_probability, latent_variance)]
    for call in (*scores[:2], reduction, lambda model: probability_of_failure(model, ROWS, "wreck", 0.0)):
        refuses("a single latent function", call, several)
    for call in (reduction, lambda model: probability_of_failure(model, ROWS, 1)):
        refuses("joint covariances; got BayesianLinear", call, linear)
    for call in (*scores, reduction):
        refuses(r"must be a fitted GPClassifier or .*; got GPPreference", call, pairs)
