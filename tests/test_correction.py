"""The perturbative correction and the bound gap: against explicit inverses, quadrature and the true posterior."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit
from scipy.stats import norm
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.dense import SMOOTH, smooth_part
from support.dense import classifier as dense_classifier
from support.fits import quietly, refuses, reloaded
from support.gibbs import TruePosterior
from support.latents import REGISTERED, symmetric
from support.reference import DenseModel, moons

from xgpc.likelihoods import MULTI_CLASS

NOISY = SMOOTH + WhiteKernel(0.5)
X, Y = moons(60)
NEW = np.random.default_rng(1).normal(size=(20, 2))
INDUCING = X[::5] + 0.05
# Errors of the exact logit and svm sites' ell (tests/test_sites.py, ERRORS).
SITE_ERROR = 1.6e-8
classifier = partial(dense_classifier, bound="polya-gamma")


def dense(model, rows):
    """The fitted q at rows, with the inverses of the textbook."""
    kernel, (P, h) = model.kernel_, (part[0] for part in model.posterior_.eta)
    at = DenseModel(smooth_part(kernel), kernel.diag, model.jitter_, rows, model.inducing_points_, None)
    if P.ndim == 1:
        at.eta_1, at.eta_2 = h, -0.5 * (at.K_inverse + np.diag(P))
    else:
        at.unwhiten(symmetric(P), h)
    return at


def corrected_moments(model, rows, weight, new):
    """MATH.md, section 7."""
    at, there = dense(model, rows), dense(model, new)
    (m, v), (mean, variance) = at.marginals(), there.marginals()
    c = np.sqrt(m**2 + v)
    spread = weight * (np.tanh(c / 2) / c - 0.5 / np.cosh(c / 2) ** 2) / (2 * c**2)
    C = there.kappa @ at.moments[1] @ at.kappa.T
    shift = C @ (m * v * spread)
    return mean + shift, variance - shift**2 + C**2 @ (c**2 * spread)


REPEATED = np.arange(60) % 45
FITS = {
    "full": {},
    "full with noise": {"kernel": NOISY},
    "sparse": {"inducing_points": INDUCING},
    "sparse with noise": {"kernel": NOISY, "inducing_points": INDUCING},
    "sparse at the rows": {"inducing_points": np.unique(X, axis=0)},
    "mini-batches": {"inducing_points": INDUCING, "batch_size": 10, "max_iter": 30, "tol": 1e-3},
}


@pytest.mark.parametrize("rows", ["distinct", "repeated"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", FITS)
def test_equals_the_dense_formulas(name, weighted, rows):
    """Repeated rows have labels of either class; those of a full Gaussian process share a latent value."""
    here = X if rows == "distinct" else X[REPEATED]
    weight = np.random.default_rng(2).uniform(0.1, 3.0, 60) if weighted else None
    model = quietly(classifier(**FITS[name]), here, Y, sample_weight=weight)
    new = np.vstack([NEW, here[:5]])
    plain, actual = (np.array(model.predict_latent(new, corrected=corrected)) for corrected in (False, True))
    assert_allclose(plain, dense(model, new).marginals(), rtol=0, atol=1e-8)
    assert_allclose(actual, corrected_moments(model, here, 1.0 if weight is None else weight, new), rtol=0, atol=1e-8)
    assert np.abs(actual - plain).max(axis=1).min() > 1e-3


ROWS = np.array([[-1.0], [0.3], [0.8]])
AT = np.array([[-1.0], [0.3], [-0.2], [2.0]])
every_labelling = pytest.mark.parametrize("signs", [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0)])


def few_rows(kernel, signs, inducing_points="all", **options):
    """A fit to two or three rows, and their true posterior. A fit needs two classes: one more row has no weight."""
    rows, signs = ROWS[: len(signs)], np.array(signs)
    model = classifier(kernel, inducing_points=rows if inducing_points == "rows" else inducing_points, **options)
    X, y = np.vstack([rows, [[9.0]]]), np.append(signs, -signs[0])
    model.fit(X, y, sample_weight=np.append(np.ones(len(signs)), 1e-12))
    return model, TruePosterior(kernel, kernel, rows, signs, rows)


def errors(model, true):
    """Largest errors of mean and variance, without the correction and with it: (2, 2)."""
    both = np.array([model.predict_latent(AT, corrected=corrected) for corrected in (False, True)])
    return np.abs(both - true.at(AT)[:2]).max(axis=2)


@every_labelling
@pytest.mark.parametrize("variance", [0.5, 4.0])
@pytest.mark.parametrize("inducing_points", ["all", "rows"])
def test_it_is_nearer_to_the_true_posterior(variance, signs, inducing_points):
    before, after = errors(*few_rows(ConstantKernel(variance) * RBF(1.0), signs, inducing_points))
    assert np.all(after < 0.5 * before)


@every_labelling
def test_it_is_of_second_order(signs):
    """Errors are of order variance^3 without it, variance^4 with it: the order is the slope of their logarithms."""
    large, small = (errors(*few_rows(ConstantKernel(v) * RBF(1.0), signs, tol=1e-15)) for v in (0.1, 0.05))
    orders = np.log2(large / small)
    assert_allclose(orders[0], 3.0, atol=0.3)
    assert np.all(orders[1] > 3.6)


def test_probabilities_are_the_link_at_the_corrected_moments():
    model = classifier().fit(X, Y)
    mean, variance = model.predict_latent(NEW, corrected=True)
    positive = expectation(expit, mean, variance)
    probabilities = model.predict_proba(NEW, corrected=True)
    assert_allclose(probabilities, np.column_stack([1.0 - positive, positive]), rtol=0, atol=1e-7)
    assert np.array_equal(np.exp(model.predict_log_proba(NEW, corrected=True)), probabilities)
    assert np.abs(probabilities - model.predict_proba(NEW)).max() > 1e-3
    assert np.array_equal(model.predict_proba(NEW, corrected=False), model.predict_proba(NEW))


def fitted_marginals(name, weighted, **options):
    """A fit to repeated rows; mean and variance, labels -1 and +1, and weights, (60,) each."""
    weight = np.random.default_rng(2).uniform(0.1, 2.0, 60) if weighted else np.ones(60)
    model = quietly(classifier(**FITS[name] | options), X[REPEATED], Y, sample_weight=weight)
    return model, *model.predict_latent(X[REPEATED]), np.where(Y == 1, 1.0, -1.0), weight


def expectation(function, mean, variance):
    """E[function(f)] of smooth functions by the trapezoidal rule."""
    t = np.linspace(-12.0, 12.0, 961)
    weight = np.exp(-0.5 * t**2)
    return function(mean[:, None] + np.sqrt(variance)[:, None] * t) @ (weight / weight.sum())


def log_cosh(x):
    return np.logaddexp(x, -x) - np.log(2.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", FITS)
def test_gap_is_the_expected_divergence_of_the_polya_gamma_variables(name, weighted):
    """E_q(f)[KL(PG(1, c) || PG(1, f))], and what the bound lacks of the one with E[log sigma(y f)]."""
    model, mean, variance, y, w = fitted_marginals(name, weighted)
    c = np.sqrt(mean**2 + variance)[:, None]
    theta = np.tanh(c / 2) / (2 * c)
    expected = expectation(lambda f: log_cosh(c / 2) - log_cosh(f / 2) + 0.5 * (f**2 - c**2) * theta, mean, variance)
    assert np.all(expected > 0.0)
    tolerance = np.sum(w) * SITE_ERROR
    assert model.bound_gap() == pytest.approx(np.sum(w * expected), abs=tolerance)
    exact = np.sum(w * expectation(lambda f: log_expit(y[:, None] * f), mean, variance)) - model.posterior_.kl
    assert model.elbo_ + model.bound_gap() == pytest.approx(exact, abs=tolerance)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", FITS)
def test_gap_of_the_svm_is_the_expected_loss_that_its_augmentation_adds(name, weighted):
    """-2 E[max(0, 1 - y f)] - (y m - 1 - sqrt((1 - y m)^2 + v)), the expectation in closed form."""
    model, mean, variance, y, w = fitted_marginals(name, weighted, likelihood="svm", bound="augmented")
    short, sd = 1.0 - y * mean, np.sqrt(variance)
    hinge = short * norm.cdf(short / sd) + sd * norm.pdf(short / sd)
    gap = -2.0 * hinge - (y * mean - 1.0 - np.sqrt(short**2 + variance))
    assert np.all(gap > 0.0)
    assert model.bound_gap() == pytest.approx(np.sum(w * gap), rel=1e-9)


@every_labelling
@pytest.mark.parametrize("variance", [0.5, 4.0, 30.0])
def test_the_bound_and_its_gap_stay_below_the_evidence(variance, signs):
    model, true = few_rows(ConstantKernel(variance) * RBF(1.0), signs)
    assert model.elbo_ < model.elbo_ + model.bound_gap() < true.log_evidence
    best = few_rows(ConstantKernel(variance) * RBF(1.0), signs, bound="exact")[0].elbo_
    assert model.elbo_ + model.bound_gap() < best + 1e-7 < true.log_evidence + 1e-7


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    variance=st.floats(0.05, 1e4),
    length_scale=st.floats(0.1, 10.0),
    choice=st.sampled_from([("logit", "polya-gamma"), ("svm", "augmented")]),
    inducing_points=st.sampled_from(["all", "kmeans"]),
)
def test_gap_is_positive(seed, variance, length_scale, choice, inducing_points):
    random = np.random.default_rng(seed)
    rows, y = random.normal(size=(15, 2)), np.append(random.permutation([0, 1]), random.integers(0, 2, 13))
    likelihood, bound = choice
    model = classifier(
        variance * RBF(length_scale), inducing_points=inducing_points, likelihood=likelihood, bound=bound,
        n_inducing=5, tol=1e-4, max_iter=20,
    )  # fmt: skip
    assert quietly(model, rows, y, sample_weight=random.uniform(0.1, 3.0, 15)).bound_gap() > 0.0


AUGMENTED = {("logit", "polya-gamma"), ("svm", "augmented")}


@pytest.mark.parametrize("inducing_points", ["all", "kmeans"])
@pytest.mark.parametrize(("likelihood", "bound"), REGISTERED)
def test_other_bounds_have_no_gap_or_none_that_is_known(likelihood, bound, inducing_points, tmp_path):
    X, y = (part[::5] for part in load_iris(return_X_y=True))
    options = {"likelihood": likelihood, "bound": bound, "n_inducing": 5, "max_iter": 5, "tol": 1e-3}
    for n_classes in (2, 3) if likelihood in MULTI_CLASS else (2,):
        model = quietly(classifier(inducing_points=inducing_points, **options), X, np.minimum(y, n_classes - 1))
        for one in (model, reloaded(model, tmp_path)):
            if bound == "exact":
                assert one.bound_gap() == 0.0
            elif (likelihood, bound) in AUGMENTED:
                assert one.bound_gap() > 0.0
            else:
                refuses(f"this fit has '{bound}' of '{likelihood}'", one.bound_gap)
