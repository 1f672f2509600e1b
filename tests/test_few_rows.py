"""Default fits to few rows: no poor optimum in silence."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from support.fits import losses, quietly, refuses, warnings_of
from support.frames import named
from support.latents import cases
from support.online import CASES, FLOWERS, KINDS, X, y

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.acquisition import latent_variance, mutual_information, predictive_entropy, probability_of_feasibility
from xgpc.gibbs import GibbsClassifier
from xgpc.likelihoods import MULTI_CLASS


def disk(X):
    return (np.sum(X**2, axis=1) < 0.8).astype(int)


@pytest.mark.parametrize("seed", range(4))
def test_no_feature_is_missed(seed):
    """A linear effect, a wave and an interaction of ten features: nearly as good as the probabilities themselves."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3700, 10))
    f = 2.0 * X[:, 0] + 1.5 * np.sin(2.0 * X[:, 1]) + X[:, 2] * X[:, 3]
    y = (f + rng.logistic(scale=0.5, size=len(f)) > 0.0).astype(int)
    model = quietly(GPClassifier(random_state=0), X[:700], y[:700])
    assert losses(model, X[700:], y[700:]).mean() < log_loss(y[700:], 1.0 / (1.0 + np.exp(-2.0 * f[700:]))) + 0.1


@pytest.mark.parametrize(
    ("kernel", "seed", "n", "shape", "f"),
    [
        (None, 106, 60, (600, 8), lambda X: X[:, 0] * X[:, 1]),
        (ConstantKernel() * RBF(np.ones(20)), 3, 60, (700, 20), lambda X: X[:, 0] + np.sin(2.0 * X[:, 1])),
        (ConstantKernel() * RBF([30.0, 30.0]), 4, 100, (700, 2), lambda X: 2.0 * np.sin(3.0 * X[:, 0])),
    ],
    ids=["default", "many features", "long scales"],
)
def test_learning_goes_on_where_the_bound_is_still_that_of_the_frequencies(kernel, seed, n, shape, f):
    """Several iterations gain little there before a feature is found."""
    rng = np.random.RandomState(seed)
    X = rng.randn(*shape)
    y = (f(X) + 0.3 * rng.randn(len(X)) > 0.0).astype(int)
    model = quietly(GPClassifier(kernel, random_state=0), X[:n], y[:n])
    assert losses(model, X[n:], y[n:]).mean() < 0.9 * np.log(2.0)


def test_few_of_many_features_are_found(tuned):
    X, y = make_classification(
        1600, 100, n_informative=5, n_redundant=15, n_clusters_per_class=8, class_sep=1.5, random_state=0
    )
    model = quietly(GPClassifier(random_state=0, n_neighbors=0), X[:600], y[:600])
    tuned(many_features=101)
    other = quietly(GPClassifier(random_state=0, n_neighbors=0), X[:600], y[:600])
    assert "features that trees split by" in model.summary()
    gains = losses(other, X[600:], y[600:]) - losses(model, X[600:], y[600:])
    assert np.mean(gains) > 3.0 * np.std(gains) / np.sqrt(len(gains))


@pytest.mark.parametrize("n_rows", [60, 200])
def test_copies_among_rows_of_many_features(n_rows):
    """All distinct rows are inducing points of 60 rows, and of a full process."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (n_rows, 40)).astype(float)
    some = rng.integers(0, n_rows, n_rows)
    for params in ({}, {"inducing_points": "all"}):
        model = quietly(GPClassifier(n_neighbors=0, **params), rows[some], rows[some, 0] > rng.random(n_rows) - 0.5)
        assert np.all(np.isfinite(model.predict_log_proba(rows)))


def test_active_learning_from_ten_rows_finds_what_random_rows_do():
    """It asks where the model is unsure: a kernel that is far too smooth asks for the corners alone."""
    pool, test = np.split(np.random.default_rng(0).uniform(-1.0, 1.0, size=(1400, 2)), [400])
    asked = list(range(10))

    def fit(rows):
        return quietly(GPClassifier(random_state=0), pool[rows], disk(pool[rows]))

    while len(asked) < 50:
        unsure = mutual_information(fit(asked), pool)
        unsure[asked] = -1.0
        asked.append(int(np.argmax(unsure)))
    by_choice, at_random = (losses(fit(rows), test, disk(test)).mean() for rows in (asked, np.arange(50)))
    assert by_choice < at_random


def test_inducing_points_at_all_rows_stay_there():
    """The bound is highest there, as they leave nothing of the rows' variances."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(50, 2)), 2, axis=0)
    y = disk(X)
    model = quietly(GPClassifier(random_state=0), X, y)
    assert np.array_equal(np.unique(model.inducing_points_, axis=0), np.unique(X, axis=0))
    elsewhere = rng.normal(size=(60, 2))
    moved = quietly(GPClassifier(inducing_points=elsewhere, random_state=0), X, y)
    assert not np.array_equal(moved.inducing_points_, elsewhere)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_given_kernel_needs_no_choice_of_points(n_classes):
    """Up to 256 rows are all inducing points, however often they are there, and the fit is the full process."""
    X = np.random.default_rng(0).normal(size=(306, 2))
    y = disk(X) + (n_classes - 2) * (X[:, 0] > 0.0)
    rows, labels = np.repeat(X[50:], 2, axis=0), np.repeat(y[50:], 2)
    given = {"kernel": ConstantKernel(2.0) * RBF(0.7), "optimizer": None}
    points, full = (GPClassifier(**given, **each).fit(rows, labels) for each in ({}, {"inducing_points": "all"}))
    np.testing.assert_array_equal(points.inducing_points_, np.unique(X[50:], axis=0))
    assert points.elbo_ == pytest.approx(full.elbo_, abs=1e-3)
    np.testing.assert_allclose(points.predict_proba(X[:50]), full.predict_proba(X[:50]), rtol=0.0, atol=1e-5)


def test_a_bound_below_the_classes_frequencies_is_warned_of():
    """Few rows often show nothing, and a user cannot change that: then it is only a decision."""
    X, y = np.random.default_rng(0).normal(size=(120, 3)), (np.arange(120) % 10 == 0).astype(int)
    model = GPClassifier(random_state=0)
    with pytest.warns(ConvergenceWarning, match="class frequencies .* has not shown that the features separate"):
        model.fit(X, y)
    assert model.elbo_ <= 108 * np.log(0.9) + 12 * np.log(0.1)
    assert warnings_of(GPClassifier(random_state=0), X, (X[:, 0] > 1.0).astype(int)) == []
    assert warnings_of(model, X[:60], y[:60]) == []
    assert "no better than the log likelihood" in model.decisions_[-1]


def chess(X):
    return (np.floor(2.0 * X).sum(axis=1) % 2).astype(int)


@pytest.mark.parametrize("seed", range(2))
def test_warm_starts_gain_inducing_points_with_the_rows(seed):
    """Up to 128 rows all are points, as in a cold fit; later the points become more while that pays."""
    rng = np.random.default_rng(seed)
    X, new = rng.uniform(-1.0, 1.0, size=(400, 2)), rng.uniform(-1.0, 1.0, size=(500, 2))
    warm = GPClassifier(warm_start=True, random_state=0)
    for n in range(8, 101, 4):
        quietly(warm, X[:n], chess(X[:n]))
        assert len(warm.inducing_points_) == n
    cold = quietly(GPClassifier(random_state=0), X[:100], chess(X[:100]))
    assert warm.elbo_ > cold.elbo_ - 1.0
    assert losses(warm, new, chess(new)).mean() < losses(cold, new, chess(new)).mean() + 0.02
    quietly(warm, X, chess(X))
    assert any("inducing points in place of 100. The bound changes" in text for text in warm.decisions_)


def test_a_warm_start_after_labels_without_a_pattern_learns_those_that_have_one():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    model = GPClassifier(n_neighbors=0, warm_start=True, random_state=0)
    quietly(model, rows, rng.permutation(np.arange(300) % 2))
    quietly(model, rows, (rows[:, 0] > 0.0).astype(int))
    assert model.score(rows, rows[:, 0] > 0.0) > 0.95


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_no_kernel_is_learned_where_no_two_rows_are_of_one_class():
    X = np.random.default_rng(0).normal(size=(140, 3))
    model = quietly(GPClassifier(ConstantKernel(2.0) * RBF(1.5), random_state=0, max_iter=3), X, np.arange(140))
    assert str(model.kernel_) == str(ConstantKernel(2.0) * RBF(1.5))
    assert any("No two rows are of one class" in text for text in model.decisions_)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-9)


LEVELS = named(X).assign(b=np.where(X[:, 1] > 0.0, "up", "down")).astype({"b": "category"})
FEW = {"max_iter": 3, "n_inducing": 8, "random_state": 0}
MODELS = {
    "two classes": (GPClassifier(**FEW), X, y), "several": (GPClassifier(**FEW), FLOWERS, KINDS),
    "their own kernels": (GPClassifier(share="none", **FEW), FLOWERS, KINDS),
    "full": (GPClassifier(inducing_points="all", max_iter=3), X, y),
    "neighbours": (GPClassifier(n_neighbors=5, **FEW), X, y),
    "neighbours, several": (GPClassifier(n_neighbors=5, **FEW), FLOWERS, KINDS),
    "corrected": (GPClassifier(bound="polya-gamma", **FEW), X, y),
    "float32": (GPClassifier(**FEW), X.astype(np.float32), y), "sparse": (GPClassifier(**FEW), sparse.csr_matrix(X), y),
    "frame": (GPClassifier(**FEW), named(X), y), "levels": (GPClassifier(**FEW), LEVELS, y),
    "linear": (BayesianLinearClassifier(), X, y),
    "gibbs": (GibbsClassifier(n_samples=10, n_warmup=2, thin=1, n_chains=2, random_state=0), X[:40], y[:40]),
}  # fmt: skip
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "predict_latent")
CALLS = [(method, {}) for method in METHODS]
CALLS += [("predict_latent", {"return_cov": True}), ("sample_latent", {"n_samples": 2, "random_state": 0})]
# Another number than those of classes and features.
SOME = 7


@pytest.mark.parametrize("name", MODELS)
def test_predictions_of_no_rows(name):
    """Such as a filter leaves: arrays of no rows, of the type and width that others have."""
    model, rows, labels = MODELS[name]
    fitted = quietly(model, rows, labels)
    for method, options in CALLS:
        # Other classifiers' options have other names.
        if not isinstance(model, GPClassifier) and (options or not hasattr(model, method)):
            continue
        both = [getattr(fitted, method)(rows[:n], **options) for n in (SOME, 0)]
        for one, other in zip(*both, strict=True) if isinstance(both[0], tuple) else [both]:
            assert other.shape == tuple(0 if size == SOME else size for size in one.shape)
            assert other.dtype == one.dtype


def test_scores_of_no_rows():
    fitted = quietly(*MODELS["several"])
    for score in (predictive_entropy, latent_variance, mutual_information):
        assert score(fitted, FLOWERS[:0]).shape == (0,)
    assert probability_of_feasibility(fitted, FLOWERS[:0], 1).shape == (0,)


# Fits to rows that lack classes, or are of a single one: what is learned, predicted and told.

ONES = np.ones(len(X), dtype=int)
FAR = np.array([[1e4, -1e4]])


@cases(CASES)
def test_one_class_is_predicted_near_its_rows_and_guessed_far_away(likelihood, bound, share):
    classes = [0, 1, 2] if likelihood in MULTI_CLASS else [0, 1]
    optimizer = "alternate" if bound == "taylor" else "profile"
    model = GPClassifier(likelihood=likelihood, bound=bound, share=share, optimizer=optimizer)
    proba = model.fit(X, ONES, classes=classes).predict_proba(np.concatenate([X, FAR]))
    assert model.classes_.tolist() == classes
    np.testing.assert_allclose(np.sum(proba, axis=1), 1.0)
    assert np.all(proba[:-1, 1] > 0.5)
    assert np.all(proba[:, 0] > 0.0)
    np.testing.assert_allclose(proba[-1], 1.0 / len(classes), atol=1e-4)
    if len(classes) == 3:
        # Alike, but for the integrals' points.
        np.testing.assert_allclose(proba[:, 0], proba[:, 2], atol=1e-3)


@pytest.mark.parametrize(
    "params", [{}, {"optimizer": "adam", "batch_size": 50}, {"inducing_points": "all"}, {"n_neighbors": 5}], ids=str
)
def test_rows_of_one_class_teach_no_kernel(params):
    kernel = ConstantKernel(2.0, (2.0, 1e5)) * RBF([0.8, 1.1], (0.8, 10.0))
    model = GPClassifier(kernel, n_inducing=16, random_state=0, **params).fit(X, ONES, classes=[0, 1])
    np.testing.assert_allclose(model.kernel_.theta, kernel.theta)
    assert model.n_neighbors_ == 0
    assert model.converged_
    assert any("one class, which does not determine the kernel" in text for text in model.history_["decision"])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_first_rows_of_a_search(n):
    model = GPClassifier(random_state=0).fit(X[:n], ONES[:n], classes=[0, 1])
    assert np.all(model.predict_proba(X[:n])[:, 1] > 0.5)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 2.0, 2: 5.0, 3: 1.0}], ids=str)
def test_a_class_without_rows_is_improbable_where_others_are(class_weight):
    labels = 2 * (X[:, 0] > 0.0)
    model = GPClassifier(class_weight=class_weight, n_inducing=16, max_iter=20, random_state=0)
    quietly(model, X, labels, classes=[0, 1, 2, 3])
    proba = model.predict_proba(X)
    assert model.kernel_.theta.shape == (3,)
    assert np.all(proba[:, [1, 3]] < 0.2)
    assert np.mean(model.predict(X) == labels) > 0.8


def test_one_class_without_classes_is_an_error_that_tells_of_them():
    for fit, options, message in (
        (GPClassifier().fit, {}, r"two classes.*are of 1 class: \[1\]\. Give classes="),
        (GPClassifier().partial_fit, {}, r"two classes.*are of 1 class: \[1\]\. Give classes="),
        (BayesianLinearClassifier().fit, {}, r"are of 1 class: \[1\]\.$"),
        (GPClassifier().fit, {"classes": [1]}, "classes must be a list of all labels"),
        (GPClassifier().fit, {"classes": [0, 2]}, "not in classes"),
    ):
        refuses(message, fit, X, ONES, **options)
