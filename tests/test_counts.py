"""Counts and probabilities of classes as labels."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import log_expit, logsumexp, roots_hermitenorm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import clone_of, quietly, refuses

from xgpc import GPClassifier, GPOrdinalClassifier
from xgpc.kernels import ActiveDims

FIXED = {"kernel": ConstantKernel(2.0) * RBF(1.0), "optimizer": None, "tol": 1e-12, "n_neighbors": 0, "max_iter": 500}
NAMES = np.array(["a", "b", "c"])


def problem(n_classes, n=40):
    random = np.random.default_rng(n_classes)
    X = random.normal(size=(n, 2))
    counts = random.integers(0, 4, (n, n_classes))
    counts[:, 0] += np.where(X[:, 0] > 0.0, 3, 0)
    counts[0] = 0
    return X, counts


def repeated(X, counts):
    row, label = np.nonzero(counts)
    times = counts[row, label]
    return np.repeat(X[row], times, axis=0), NAMES[np.repeat(label, times)]


X, COUNTS = problem(3)


@pytest.mark.parametrize("kind", [GPClassifier, GPOrdinalClassifier])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("sparse", [True, False])
def test_counts_are_equal_rows(kind, n_classes, sparse):
    X, counts = problem(n_classes)
    model = kind(**FIXED, inducing_points=X[:15] if sparse else "all")
    for columns in (np.arange(n_classes), np.roll(np.arange(n_classes), 1)):
        names = NAMES[columns]
        counted = quietly(model, X, counts[:, columns], classes=names).predict_proba(X)
        rows = quietly(model, *repeated(X, counts), classes=names)
        assert_array_equal(rows.classes_, NAMES[:n_classes])
        assert_allclose(counted, rows.predict_proba(X), rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("kind", [GPClassifier, GPOrdinalClassifier])
def test_probabilities_with_weights_are_counts(kind):
    total = COUNTS.sum(axis=1)
    shares = COUNTS / np.maximum(total, 1)[:, None]
    model = kind(**FIXED, inducing_points=X[:15])
    counted = quietly(model, X, COUNTS, classes=NAMES).predict_proba(X)
    shared = quietly(model, X, shares, sample_weight=total, classes=NAMES).predict_proba(X)
    assert_allclose(shared, counted, rtol=0.0, atol=1e-10)


def test_columns_of_a_batch_are_in_the_order_of_classes():
    model = quietly(GPClassifier(**FIXED, inducing_points=X[:15]), X, COUNTS, classes=NAMES)
    orders = (COUNTS, None), (COUNTS[:, [2, 0, 1]], NAMES[[2, 0, 1]])
    first, second = (clone_of(model).partial_fit(X, *order).predict_proba(X) for order in orders)
    assert_array_equal(first, second)


def test_a_learned_fit_takes_counts_and_groups():
    X, counts = problem(2, 400)
    model = quietly(GPClassifier(n_inducing=10, random_state=0), X, counts, classes=[0, 1], groups=np.arange(400) % 20)
    assert model.class_count_.tolist() == counts.sum(axis=0).tolist()
    balanced = quietly(GPClassifier(**FIXED, class_weight="balanced"), X, counts, classes=[0, 1])
    assert_allclose(*(balanced.class_weight_ * balanced.class_count_))


@pytest.mark.parametrize(
    ("change", "classes", "message"),
    [
        (lambda y: y, None, r"y should be a 1d array .* if classes= names the columns"),
        (lambda y: y, [0, 1], "shape"),
        (lambda y: -y, [0, 1, 2], "not negative"),
        (lambda y: np.where(y > 2, np.nan, y), [0, 1, 2], "not negative"),
        (lambda y: 0 * y, [0, 1, 2], "or each count in y, is zero"),
        (lambda y: y[:5], [0, 1, 2], "shape"),
        (lambda y: y[:, 0] / 7.0, [0, 1], "measurement"),
        (lambda y: y.astype(str), [0, 1, 2], "dense array of numbers"),
        (lambda y: 1j * y, [0, 1, 2], "dense array of numbers"),
        (csr_array, [0, 1, 2], "dense array of numbers"),
        (lambda y: pd.DataFrame(y, columns=["b", "a", "c"]), ["a", "b", "c"], r"columns of y are .*the same order"),
        (lambda y: pd.DataFrame(y, columns=[1, 0, 2]), [0, 1, 2], r"columns of y are .*the same order"),
    ],
)
def test_what_is_no_count_is_an_error(change, classes, message):
    refuses(message, GPClassifier().fit, X, change(COUNTS), classes=classes)


def test_counts_of_a_frame_and_those_that_other_methods_refuse():
    model, names = GPClassifier(**FIXED, inducing_points=X[:15]), ["c", "a", "b"]
    plain = quietly(model, X, COUNTS, classes=names).predict_proba(X)
    assert_array_equal(quietly(model, X, pd.DataFrame(COUNTS, columns=names), classes=names).predict_proba(X), plain)
    message = "fit and partial_fit of .* take counts or probabilities"
    refuses(message, model.elbo, X, COUNTS)
    refuses(message, GPClassifier().fit_batches, [(X, COUNTS)], classes=names)


# More variable than the binomial distribution: each row has an effect of its own, a kernel of the row's number.

TRIALS = 20
NODES, SHARES = roots_hermitenorm(100)
SHARES = SHARES / SHARES.sum()


def log_evidence(successes, variance):
    """The sum over the rows of log E[p(labels | f)], f ~ N(0, variance), without the binomial coefficients."""
    latent = np.sqrt(variance) * NODES
    terms = successes[:, None] * log_expit(latent) + (TRIALS - successes)[:, None] * log_expit(-latent)
    return np.sum(logsumexp(terms, axis=1, b=SHARES))


def successes_of(effects, rng):
    return rng.binomial(TRIALS, np.exp(log_expit(effects)))


def columns(successes):
    return np.column_stack([TRIALS - successes, successes])


def of_each_row(column, variance, bounds="fixed"):
    return ConstantKernel(variance, bounds) * ActiveDims(RBF(1e-3, "fixed"), [column])


@pytest.mark.parametrize("variance", [0.1, 1.0, 4.0])
def test_effects_of_rows_are_integrated_out(variance):
    """Of effects alone, the evidence is a product of integrals, and its maximum that of the bound."""
    rng = np.random.default_rng(3)
    successes = successes_of(np.sqrt(variance) * rng.normal(size=200), rng)
    rows = np.arange(200.0)[:, None]
    process = partial(GPClassifier, inducing_points="all")
    fixed = quietly(process(of_each_row(0, variance)), rows, columns(successes), classes=[0, 1])
    evidence = log_evidence(successes, variance)
    assert evidence - 0.02 * len(rows) < fixed.elbo_ < evidence
    learned = quietly(process(of_each_row(0, 1.0, (1e-4, 1e3))), rows, columns(successes), classes=[0, 1])
    candidates = np.geomspace(1e-3, 100.0, 400)
    best = candidates[np.argmax([log_evidence(successes, one) for one in candidates])]
    assert learned.kernel_.k1.constant_value == pytest.approx(best, rel=0.1)
    # A row that is not among the training rows has an effect from the prior.
    mean, prior_variance = learned.predict_latent([[-1.0]])
    assert_allclose([mean[0], prior_variance[0]], [0.0, learned.kernel_.k1.constant_value], atol=1e-9)


@pytest.mark.parametrize(("deviation", "low", "high"), [(0.0, 0.0, 0.25), (1.0, 0.8, 1.25)])
def test_effects_of_rows_are_learned_besides_a_function(deviation, low, high):
    """And they vanish where the labels are binomial."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, 100)
    successes = successes_of(1.5 * np.sin(x) + deviation * rng.normal(size=100), rng)
    kernel = ConstantKernel(1.0) * ActiveDims(RBF(1.0), [0]) + of_each_row(1, 1.0, (1e-6, 1e3))
    rows = np.column_stack([x, np.arange(100)])
    model = quietly(GPClassifier(kernel, inducing_points="all"), rows, columns(successes), classes=[0, 1])
    assert low <= np.sqrt(model.kernel_.k2.k1.constant_value) < high
    plain = GPClassifier(1.0 * RBF(1.0), inducing_points="all")
    gain = model.elbo_ - quietly(plain, x[:, None], columns(successes), classes=[0, 1]).elbo_
    assert abs(gain) < 0.5 if deviation == 0.0 else gain > 5.0
