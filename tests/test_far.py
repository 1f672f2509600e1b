"""Predictions far from the data: probabilities of every likelihood and kernel, or an error that names the row."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic, WhiteKernel
from support.fits import quietly, refuses
from support.latents import REGISTERED
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.gibbs import GibbsClassifier
from xgpc.likelihoods import MULTI_CLASS

LARGEST_FEATURE, LARGEST_MEAN = 1e140, 1e150

X, TWO = moons(24)
THREE = TWO + (X[:, 0] > 1.0)
DIRECTIONS = np.array([[1.0, 0.0], [0.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-0.3, -0.7]])
MAGNITUDES = [0.0, 1e-300, 1e-150, 1e-8, 1.0, 1e8, 1e20, 1e40, 1e49, 1e60, 1e74, 1e80, 1e100, 1e120, 1e139, 1e140]
BOUNDED = {
    "rbf": RBF(), "matern 1/2": Matern(nu=0.5), "matern 3/2": Matern(nu=1.5), "matern 5/2": Matern(nu=2.5),
    "rational quadratic": RationalQuadratic(alpha=0.01), "short": Matern(1e-16, nu=1.5) * Matern(1e-20, nu=2.5) + RBF(),
    "noise": RBF() + WhiteKernel(),
}  # fmt: skip
GROWING = {
    "linear": DotProduct(), "quadratic": DotProduct() ** 2, "cubic": DotProduct() ** 3,
    "local": DotProduct() * RBF(), "large": ConstantKernel(1e3) * DotProduct() + RBF(),
}  # fmt: skip
TOO_LARGE = "grows too large at row"


def fit(likelihood, bound, kernel, points):
    y = THREE if likelihood in MULTI_CLASS else TWO
    options = {"optimizer": None, "max_iter": 2, "random_state": 0}
    return quietly(GPClassifier(kernel, likelihood=likelihood, bound=bound, **options, **points), X, y)


def sampler(kernel):
    return quietly(GibbsClassifier(kernel, n_samples=50, n_chains=2, random_state=0), X, TWO)


def assert_proper(model, rows):
    log_proba = model.predict_log_proba(rows)
    assert np.all(np.isfinite(log_proba))
    np.testing.assert_allclose(np.exp(log_proba).sum(axis=1), 1.0, rtol=0, atol=1e-9)
    assert np.all(np.isfinite(model.decision_function(rows)))


@pytest.mark.parametrize(("likelihood", "bound"), REGISTERED)
def test_log_probabilities_are_finite_wherever_there_are_any(likelihood, bound):
    """Each kernel with a few inducing points for one half of the sites, with all for the other."""
    for i, (name, kernel) in enumerate((BOUNDED | GROWING).items(), REGISTERED.index((likelihood, bound))):
        model = fit(likelihood, bound, kernel, ({"n_inducing": 6}, {"inducing_points": "all"})[i % 2])
        if name in BOUNDED:
            assert_proper(model, np.multiply.outer(MAGNITUDES, DIRECTIONS).reshape(-1, 2))
            continue
        refused = []
        for size in MAGNITUDES:
            try:
                assert_proper(model, size * DIRECTIONS)
            except ValueError:
                refuses(TOO_LARGE, model.predict, size * DIRECTIONS)
                refused.append(size)
        assert refused == [size for size in MAGNITUDES if size >= min(refused, default=np.inf)]
        degree = {"quadratic": 2, "cubic": 3}.get(name, 1)
        assert all(degree * np.log10(size) > np.log10(LARGEST_MEAN) - 2.0 for size in refused)


@pytest.mark.parametrize("likelihood", ["logit", "probit", "step", "softmax", "multinomial-step", "logistic-softmax"])
@pytest.mark.parametrize("points", [{"n_inducing": 6}, {"inducing_points": "all"}], ids=str)
@pytest.mark.parametrize("kernel", ["linear", "quadratic", "large"])
def test_a_kernel_that_grows_predicts_the_same_all_along_a_ray(likelihood, points, kernel):
    """The latent function is then homogeneous, and its mean grows as its standard deviation does."""
    model = fit(likelihood, "auto", GROWING[kernel], points)
    near = model.predict_proba(1e12 * DIRECTIONS)
    for size in (1e20, 1e40, 1e60, 1e70):
        np.testing.assert_allclose(model.predict_proba(size * DIRECTIONS), near, rtol=0, atol=1e-8)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, np.inf])
@pytest.mark.parametrize("length_scale", [1e-16, 1e-100, 1e-290])
def test_beyond_any_number_of_length_scales_there_is_the_prior(nu, length_scale):
    model = fit("logit", "auto", Matern(length_scale, "fixed", nu=nu) + 2.0 * RBF(), {"n_inducing": 6})
    mean, variance = model.predict_latent(1e139 * DIRECTIONS)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(variance, 3.0, rtol=1e-12)


@pytest.fixture(scope="module")
def estimators():
    return [
        fit("logit", "auto", None, {"n_inducing": 4}),
        fit("logit", "polya-gamma", DotProduct(), {"inducing_points": "all"}),
        BayesianLinearClassifier().fit(X, TWO),
        sampler(RBF()),
    ]


@pytest.mark.parametrize("value", [1.01 * LARGEST_FEATURE, -1e200, 1e290])
def test_prediction_refuses_the_features_that_fit_refuses(estimators, value):
    rows = np.array([[0.0, 1.0], [value, 0.0]])
    for model in estimators:
        said = [model.predict, model.predict_proba, model.predict_log_proba, model.predict_latent]
        if isinstance(model, GPClassifier):
            said += [model.decision_function, lambda X, model=model: model.predict_latent(X, return_cov=True)]
            said += [lambda X, model=model: model.elbo(X, [0, 1])]
        if isinstance(model, GibbsClassifier):
            said += [model.sample_latent]
        for function in (*said, lambda X, model=model: model.fit(X, [0, 1])):
            refuses(r"X has a value of size .*; scale the features to at most 1e\+140", function, rows)
        if isinstance(model, BayesianLinearClassifier):
            refuses("scale the features to at most", model.predict, sparse.csr_array(rows))


@pytest.mark.parametrize("n", [3, 3000])
def test_the_error_names_the_row_and_its_largest_feature(n):
    model = fit("probit", "auto", DotProduct() ** 2, {"n_inducing": 6})
    rows = np.tile(X, (n, 1))[:n]
    rows[n - 1] = 1e90, -1e100
    corrected = fit("logit", "polya-gamma", DotProduct() ** 2, {"n_inducing": 6})
    linear = BayesianLinearClassifier(prior_variance=1e90).fit(1e-90 * X, TWO)
    chains = sampler(DotProduct() ** 2)
    for say in (
        model.predict_proba, model.predict, model.predict_latent,
        lambda rows: model.predict_latent(rows[-2:], return_cov=True) if n == 3 else model.predict_latent(rows),
        lambda rows: corrected.predict_proba(rows, corrected=True), lambda rows: linear.predict_proba(1e20 * rows),
        chains.predict_proba, chains.predict_latent, chains.sample_latent,
    ):  # fmt: skip
        refuses(rf"{TOO_LARGE} ({n - 1}|1) of X, which has a feature of size 1e\+1[02]0", say, rows)
    assert_proper(model, rows[:-1])
