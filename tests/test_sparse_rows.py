"""Rows of sparse matrices: the same as dense ones, a few of which are in memory at a time."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process.kernels import RBF
from support.fits import assert_same_bits, fit, peak_bytes, quietly, refuses, without_warnings

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.acquisition import predictive_entropy
from xgpc.explain import shapley_values
from xgpc.kernels import Tanimoto
from xgpc.plotting import ReliabilityDisplay

N, D = 300, 12
# Features of sparse rows are not transformed.
fitted = partial(fit, n_inducing=15, max_iter=4, feature_transform=None)


def rows(n=N, d=D, density=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=density, format="csr", random_state=seed)
    y = (X[:, [0, 1, 2]].sum(axis=1) + 0.2 * rng.normal(size=n) > 0.3).astype(int)
    return X, y


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_inducing": "auto", "subset_sizes": [100, 200]},
        {"inducing_points": "all"},
        {"batch_size": 40},
        {"batch_size": 40, "optimizer": "adam"},
        {"batch_size": 40, "optimizer": "stochastic"},
        {"bound": "polya-gamma"},
        {"likelihood": "softmax", "share": "none"},
    ],
    ids=str,
)
def test_sparse_rows_give_the_bits_of_dense_ones(parameters):
    X, y = rows()
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float)
    one, other = (fitted(A, y, sample_weight=weight, **parameters) for A in (X, X.toarray()))
    assert_same_bits(one, other, X, ("elbo_", "kernel_"), X.toarray())
    for method in ("predict_proba", "decision_function"):
        assert np.array_equal(getattr(one, method)(X), getattr(other, method)(X.toarray()))
    assert one.elbo(X, y) == other.elbo(X.toarray(), y)
    np.testing.assert_equal(one.predict_latent(X[:9], True), other.predict_latent(X[:9].toarray(), True))


def test_all_formats_and_types_are_rows():
    X, y = rows()
    expected = fitted(X, y).predict_proba(X)
    for form in ("csc", "coo", "lil", "dok"):
        assert np.array_equal(fitted(X.asformat(form), y).predict_proba(X.asformat(form)), expected)
    assert np.array_equal(fitted(sparse.csr_matrix(X), y).predict_proba(sparse.csr_matrix(X)), expected)
    narrow = X.astype(np.float32)
    assert np.array_equal(fitted(narrow, y).predict_proba(X), fitted(narrow.toarray(), y).predict_proba(X.toarray()))
    twice = sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(3, D))
    model = fitted(X, y)
    assert np.array_equal(model.predict_proba(twice), model.predict_proba(twice.toarray()))


def test_a_model_with_neighbours_predicts_sparse_rows():
    X, y = rows()
    model = fitted(X.toarray(), y, n_neighbors=5)
    assert np.array_equal(model.predict_proba(X), model.predict_proba(X.toarray()))
    refuses(r"n_neighbors=5 keeps and compares all rows as dense rows.*X.toarray\(\)", fitted, X, y, n_neighbors=5)


def test_what_is_no_sparse_matrix_of_numbers_is_refused():
    X, y = rows()
    refuses(r"categorical_features=\[0\] is not for a sparse X", fitted, X, y, categorical_features=[0])
    X.data[0] = np.nan
    refuses("NaN", fitted, X, y)
    refuses("size 1e\\+200", fitted, sparse.csr_array(np.full((4, 2), 1e200)), [0, 1, 0, 1])
    refuses("expecting 12 features", fitted(*rows()).predict, sparse.csr_array(np.ones((2, 3))))


BROKEN = {
    "a column outside": ("csr", "indices", 5, 10**6), "a negative column": ("csr", "indices", 5, -3),
    "a decreasing row": ("csr", "indptr", 7, 10**6), "an end beyond the values": ("csr", "indptr", -1, 10**6),
    "a row outside": ("csc", "indices", 5, 10**6), "a block outside": ("bsr", "indices", 0, 10**6),
    "a coordinate outside": ("coo", "coords", 5, 10**6), "a list outside": ("lil", "rows", 0, [10**6]),
}  # fmt: skip
CALLS = {
    "fit": lambda model, X, y: model.fit(X, y),
    "fit_batches": lambda model, X, y: model.fit_batches([(X, y)]),
    "partial_fit": lambda model, X, y: model.partial_fit(X, y),
    "predict": lambda model, X, y: model.predict(X),
    "predict_proba_batches": lambda model, X, y: list(model.predict_proba_batches([X])),
    "elbo": lambda model, X, y: model.elbo(X, y),
    "gradient": lambda model, X, y: predictive_entropy(model, X, return_grad=True),
    "baseline": lambda model, X, y: shapley_values(model, np.ones((1, D)), X),
    "picture": lambda model, X, y: ReliabilityDisplay.from_estimator(model, X, y),
    "called kernel": lambda model, X, y: Tanimoto()(X),
    "linear": lambda model, X, y: BayesianLinearClassifier().fit(X, y),
}


@pytest.mark.parametrize(("kind", "call"), [*product(BROKEN, ["fit"]), *product(["a column outside"], CALLS)])
def test_sparse_rows_that_point_outside_are_refused(kind, call):
    """Nothing is read from there, which could end the process."""
    (good, y), (form, part, at, value) = rows(), BROKEN[kind]
    good, X = good.asformat(form), good.asformat(form).copy()
    (X.coords[1] if part == "coords" else getattr(X, part))[at] = value
    model = fitted(good, y)
    refuses(r"sparse matrix of shape \(300, 12\) whose parts contradict each other", CALLS[call], model, X, y)
    np.testing.assert_array_equal(model.predict(good), fitted(good, y).predict(good))


def test_checks_leave_the_given_matrix_alone():
    X, y = rows()
    X.data, X.indices = given = np.append(X.data, 7.0), np.append(X.indices, 1)
    fitted(X, y).predict(X)
    assert X.data is given[0]
    assert X.indices is given[1]


def test_a_fit_does_not_make_the_rows_dense(tuned):
    tuned(start_rows=100, dense_values=2**18)
    X, y = rows(12_000, 200, 0.02)
    size = 8 * X.shape[0] * X.shape[1]
    model = GPClassifier(RBF(3.0), n_inducing=5, max_iter=2, subset_sizes=[500], learn_inducing=False, random_state=0)
    (at_fit, _), (at_predict, _) = peak_bytes(model.fit, X, y), peak_bytes(model.predict_proba, X)
    assert max(at_fit, at_predict) < 0.5 * size


@pytest.mark.parametrize("n_kept", [10_000, 200])
@pytest.mark.parametrize("form", ["csr", "coo"])
def test_sparse_batches_give_the_bits_of_dense_ones(tuned, n_kept, form):
    tuned(kept_rows=n_kept)
    X, y = rows()
    parts = [slice(0, 120), slice(120, 120), slice(120, N)]
    bits = []
    for rows_of in (lambda part: X[part].asformat(form), lambda part: X[part].toarray()):
        model = GPClassifier(n_inducing=15, max_iter=4, feature_transform=None, random_state=0)
        without_warnings(model.fit_batches, [(rows_of(part), y[part]) for part in parts])
        bits.append([model.elbo_, *model.predict_proba_batches(map(rows_of, parts))])
    np.testing.assert_equal(*bits)


def test_sparse_batches_are_not_transformed_either(tuned):
    X, y = rows()
    X.data = np.exp(9.0 * X.data)
    model = partial(GPClassifier, n_inducing=15, max_iter=4, random_state=0)
    batches = [(X[:120], y[:120]), (X[120:], y[120:])]
    in_memory, in_batches = quietly(model(), X, y), without_warnings(model().fit_batches, batches)
    assert_same_bits(in_memory, in_batches, X)
    assert without_warnings(model().fit_batches, [batches[0], (X[120:].toarray(), y[120:])]).encoding_.warps
    tuned(kept_rows=200)
    assert without_warnings(model().fit_batches, batches).encoding_ is None


def test_a_stream_of_sparse_rows_has_the_bits_of_dense_ones():
    X, y = rows()
    one, other = fitted(X[:200], y[:200]), fitted(X[:200].toarray(), y[:200])
    one.partial_fit(X[200:], y[200:], n_new_inducing=3)
    other.partial_fit(X[200:].toarray(), y[200:], n_new_inducing=3)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X.toarray()))
