"""Calls under ``numpy.errstate(all="raise")``: numbers below the range of a double are 0, as without it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly, refuses, reloaded

from xgpc import BayesianLinearClassifier, GPClassifier, GPOrdinalClassifier, GPPreference, acquisition, metrics
from xgpc.explain import shapley_values
from xgpc.gibbs import GibbsClassifier
from xgpc.kernels import ActiveDims, AxisMatern, Sphere
from xgpc.plotting import CoverageDisplay, ImportanceDisplay, ReliabilityDisplay, ShapleyDisplay


class Called(RBF):
    """A kernel that is not compiled."""


RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
# Covariances with the rows are tiny, zero, and products of both.
FAR = np.concatenate([X, X + 0.03, 1e3 * X, 1e100 * X])
TWO, THREE = (X[:, 0] > 0.0).astype(int), np.digitize(X[:, 0], [-0.5, 0.5])
# Half of the squared distance of two rows is some hundred times the square of the length scale.
SHORT = ConstantKernel(4.0) * RBF([0.03, 0.03])
FEW = {"n_inducing": 20, "max_iter": 5, "random_state": 0}
FIXED = {"kernel": SHORT, "optimizer": None, "n_neighbors": 0, **FEW}
MODELS = {
    "two classes": (GPClassifier(**FIXED), TWO),
    "three classes": (GPClassifier(**FIXED), THREE),
    "ordered classes": (GPOrdinalClassifier(**FIXED), THREE),
    "a full process": (GPClassifier(SHORT, optimizer=None, inducing_points="all", random_state=0), TWO),
    "neighbours": (GPClassifier(**{**FIXED, "n_neighbors": 5}), TWO),
    "a kernel that is called": (GPClassifier(**{**FIXED, "kernel": Called(0.03)}), TWO),
    "a learned kernel": (GPClassifier(**FEW), THREE),
    "linear": (BayesianLinearClassifier(prior_variance=1e4), TWO),
    "draws": (GibbsClassifier(SHORT, n_samples=10, n_warmup=5, n_chains=2, random_state=0), TWO),
}
METHODS = ("predict_proba", "predict", "predict_latent", "decision_function")
SCORES = (
    "predictive_entropy", "latent_variance", "mutual_information", "straddle", "misclassification_probability",
)  # fmt: skip
# Calls of a model with its rows and its labels, for the models that have the methods.
CALLS = {name: lambda m, X, y, name=name: getattr(m, name)(X) for name in METHODS}
CALLS |= {name: lambda m, X, y, name=name: getattr(acquisition, name)(m, X, return_grad=True) for name in SCORES}
CALLS |= {
    "score": lambda m, X, y: m.score(X[:60], y),
    "predict_proba with gradients": lambda m, X, y: m.predict_proba(X, return_grad=True),
    "predict_proba_batches": lambda m, X, y: list(m.predict_proba_batches([X[:50], X[50:]])),
    "predict_latent with covariances": lambda m, X, y: m.predict_latent(X, return_cov=True),
    "sample_latent": lambda m, X, y: m.sample_latent(X, 2, random_state=0),
    "draw_functions": lambda m, X, y: m.draw_functions(2, random_state=0)(X),
    "gradients of draw_functions": lambda m, X, y: m.draw_functions(2, random_state=0).gradient(X),
    "summary": lambda m, X, y: str(m.summary()),
    "feature_importances_": lambda m, X, y: m.feature_importances_,
    "elbo": lambda m, X, y: m.elbo(X[:60], y),
    "to_arrays": lambda m, X, y: m.to_arrays(),
    "posterior_": lambda m, X, y: [m.posterior_.marginals(X), m.posterior_.covariance(X)],
    "shapley_values": lambda m, X, y: vars(shapley_values(m, X[:80:20])),
    "scores": lambda m, X, y: metrics.scores(y, m.predict_log_proba(X[:60])),
    "select": lambda m, X, y: acquisition.select(m, X, 3),
    "expected_misclassification_reduction": lambda m, X, y: acquisition.expected_misclassification_reduction(
        m, X[:70:9], X[:9]
    ),
    "probability_of_failure": lambda m, X, y: acquisition.probability_of_failure(m, X, y[0], random_state=0),
    "constrained_expected_improvement": lambda m, X, y: acquisition.constrained_expected_improvement(
        m, X, y[0], np.arange(len(X)) - 30.0, np.full(len(X), 0.1), 0.0
    ),
    "CoverageDisplay": lambda m, X, y: CoverageDisplay.from_estimator(m, X[:60], y).coverage,
    "ReliabilityDisplay": lambda m, X, y: ReliabilityDisplay.from_estimator(m, X[:60], y).bins,
    "ShapleyDisplay": lambda m, X, y: ShapleyDisplay.from_estimator(m, X[61:62]).values,
    "ImportanceDisplay": lambda m, X, y: ImportanceDisplay.from_estimator(m).importances,
}
# What a model does not have: an error that says so, with and without ``errstate``.
LACKS = (AttributeError, TypeError, ValueError)


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except LACKS as error:
        return str(error)


@pytest.mark.parametrize("name", MODELS)
def test_fits_and_calls_of_a_model_are_as_without_errors_of_numpy(name):
    model, y = MODELS[name]
    plain = quietly(clone(model), X, y)
    with np.errstate(all="raise"):
        strict = quietly(clone(model), X, y)
    for name, call in CALLS.items():
        expected = outcome(call, plain, FAR, y)
        with np.errstate(all="raise"):
            np.testing.assert_equal(outcome(call, strict, FAR, y), expected, err_msg=name)


def of_a_stream_and_its_file(folder):
    model = quietly(GPClassifier(**FIXED), X, TWO).partial_fit(X[:5] + 0.03, TWO[:5])
    return reloaded(model, folder).fit_batches([(X, TWO)]).predict_proba(FAR)


def of_preferences(folder):
    model = reloaded(GPPreference(SHORT, n_inducing=10, optimizer=None, random_state=0).fit(X[:30], X[30:]), folder)
    return [model.predict_proba(FAR, FAR[::-1]), *model.predict_latent(FAR, return_cov=True)]


FUNCTIONS = {
    "streams and files": of_a_stream_and_its_file,
    "preferences": of_preferences,
    "expected_improvement": lambda _: acquisition.expected_improvement(
        [0.0, 1.0, 2.0, -300.0, 300.0], [1e-3, 1e3, 0.0, 1e-300, 1e-3], 1.5
    ),
    "expected_calibration_error": lambda _: metrics.expected_calibration_error([0, 1], [1e-300, 1.0 - 1e-16]),
    "ReliabilityDisplay": lambda _: ReliabilityDisplay.from_predictions([0, 1], [1e-300, 1.0]).bins[""],
    "AxisMatern": lambda _: AxisMatern(1e-3)(X, eval_gradient=True),
    "ActiveDims": lambda _: ActiveDims(RBF(1e-3), [0])(X, X),
    "Sphere": lambda _: Sphere(RBF(1e-3))(X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_without_errors_of_numpy(name, tmp_path):
    expected = FUNCTIONS[name](tmp_path)
    with np.errstate(all="raise"):
        np.testing.assert_equal(FUNCTIONS[name](tmp_path), expected)


def test_numbers_below_the_range_of_a_double_are_zero_during_calls_alone():
    """Arithmetic with them is slow. They come back at the end of a call, and after an error, too."""

    class Watched(RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            products.append(np.float64(1e-308) * 0.1)
            return factor * super().__call__(X, Y, eval_gradient)

    products, factor = [], 1.0
    model = GPClassifier(Watched(1.0), optimizer=None, n_inducing=5, random_state=0).fit(X, TWO)
    model.predict_proba(X)
    assert len(products) > 2
    assert not np.any(products)
    factor = -1.0
    refuses("covariance matrix", model.fit, X, TWO)
    assert np.float64(1e-308) * 0.1 > 0.0
