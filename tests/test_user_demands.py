"""What users of neighbouring libraries ask for or complain of: one test for each demand, the most frequent first.

Each names the demand, and asserts the answer on a small case of it; other tests look at the same things in depth.
"""

import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.optimize import approx_fprime
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly
from threadpoolctl import threadpool_info, threadpool_limits

from xgpc import GPClassifier

X, y = make_moons(300, noise=0.2, random_state=0)


def small(**given):
    return GPClassifier(**{"n_inducing": 12, "n_neighbors": 0, "random_state": 0, **given})


def test_1_a_covariance_matrix_that_is_singular_but_for_rounding_needs_no_luck():
    """Heard: "Matrix is not positive definite": equal rows, equal points, a length scale far beyond the data."""
    rows, labels = np.repeat(X[:40], 5, axis=0), np.repeat(y[:40], 5)
    points = np.repeat(X[:6], 4, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GPClassifier(100.0 * RBF(1e4), inducing_points=points, optimizer=None, n_neighbors=0).fit(rows, labels)
    assert 0.0 < model.jitter_ < 0.1
    mean, variance = model.predict_latent(X)
    assert np.all(np.isfinite(mean))
    assert np.all(variance >= 0.0)
    # In whitened coordinates no eigenvalue of the precision is below one, whatever the kernel matrix.
    precision = np.tril(model.posterior_.natural[0])
    assert np.min(np.linalg.eigvalsh(precision + np.tril(precision, -1).T)) > 1.0 - 1e-9


def test_2_memory_does_not_grow_with_the_square_of_the_rows():
    """Heard: "The process was killed": an n by n matrix of these rows would take 7 GB."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30_000, 2))
    labels = rows[:, 0] + 0.3 * rng.normal(size=len(rows)) > 0

    def most_memory(n):
        model = small(kernel=2.0 * RBF(1.0), optimizer=None, inducing_points=rows[:12])
        tracemalloc.start()
        try:
            model.fit(rows[:n], labels[:n])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    half, all_rows = most_memory(15_000), most_memory(30_000)
    assert all_rows < 50e6
    assert all_rows < 2.5 * half


def test_3_threads_are_used_change_no_bit_and_leave_the_blas_as_it_was():
    """Heard: "Slow fits, idle hardware", and results that depend on the machine's cores."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 4))
    labels = rows[:, 0] * rows[:, 1] > 0
    with threadpool_limits(2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        models = [
            small(kernel=2.0 * RBF(1.0), optimizer=None, n_jobs=n_jobs).fit(rows, labels) for n_jobs in (None, 2, -1)
        ]
        assert [pool["num_threads"] for pool in threadpool_info()] == before
    for model in models[1:]:
        assert model.elbo_ == models[0].elbo_
        assert_array_equal(model.predict_proba(rows[:50]), models[0].predict_proba(rows[:50]))


def test_4_several_classes_with_labels_of_any_kind_need_no_setting():
    """Heard: "How do I do multi-class": names of classes in, a column for each out, in the order of classes_."""
    flowers, names = load_iris(return_X_y=True)[0], load_iris().target_names[load_iris().target]
    model = quietly(small(max_iter=20), flowers, names)
    p = model.predict_proba(flowers)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert p.shape == (150, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert np.mean(model.predict(flowers) == names) > 0.93


def test_5_the_optimiser_names_parameters_at_their_bounds_and_does_not_depend_on_the_features_units():
    """Heard: "The optimiser fails silently": and its gradient is that of the bound."""
    narrow = ConstantKernel(1.0, (0.5, 2.0)) * RBF(1.0, (0.9, 1.1))
    with pytest.warns(ConvergenceWarning, match=r"run to their bounds: k1__constant_value = 2 is at its upper bound"):
        small(kernel=narrow).fit(X, y)

    metres, miles = small().fit(X, y), small().fit(X * 1609.344, y)
    assert miles.elbo_ == pytest.approx(metres.elbo_, abs=0.05)

    # At the optimum of the kernel's parameters the bound, maximised over the posterior, is flat in each.
    model = small(kernel=ConstantKernel(1.0) * RBF(1.0), learn_inducing=False, tol=1e-9).fit(X, y)

    def bound(theta):
        kernel = model.kernel_.clone_with_theta(theta)
        return small(kernel=kernel, inducing_points=model.inducing_points_, optimizer=None, tol=1e-10).fit(X, y).elbo_

    assert np.max(np.abs(approx_fprime(model.kernel_.theta, bound, 1e-4))) < 0.05


def test_6_rows_that_come_later_are_learned_without_the_earlier_ones():
    """Heard: "Online updates": next to a fit of all rows at the same kernel and points, a nat or two are lost."""
    rows, labels = make_moons(1200, noise=0.25, random_state=1)
    model = small().partial_fit(rows[:400], labels[:400])
    for start in (400, 800):
        model.partial_fit(rows[start : start + 400], labels[start : start + 400])
    fixed = {"kernel": model.kernel_, "inducing_points": model.inducing_points_, "optimizer": None}
    at_once, first = small(**fixed).fit(rows, labels), small(**fixed).fit(rows[:400], labels[:400])
    lost = at_once.elbo_ - model.elbo(rows, labels)
    assert 0.0 <= lost < 3.0
    assert lost < 0.2 * (at_once.elbo_ - first.elbo(rows, labels))


def test_7_float32_rows_stay_so_and_lose_next_to_nothing():
    """Heard: "float32": no copy in float64 of rows that were given in half of that, and sums of doubles."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 16)).astype(np.float32)
    labels = rows[:, 0] + rows[:, 1] ** 2 > 1.0
    fixed = {"kernel": 2.0 * RBF(4.0), "inducing_points": rows[:12].astype(float), "optimizer": None}
    tracemalloc.start()
    try:
        single = small(**fixed).fit(rows, labels)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    double = small(**fixed).fit(rows.astype(np.float64), labels)
    # All of them in float64 would take 2.56 MB by themselves, and again where they are checked.
    assert most < 2 * rows.nbytes + 40 * 12 * 12 * 8 + 8 * 12 * len(rows) + 100 * len(rows)
    assert single.elbo_ == pytest.approx(double.elbo_, rel=1e-5)
    assert single.predict_proba(rows[:5]).dtype == np.float64


def test_8_a_table_with_text_categories_and_missing_numbers_is_fitted_as_it_is():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"town": pandas.Categorical(np.where(X[:, 0] > 0.5, "Rome", "Oslo")), "height": X[:, 1]})
    table.loc[::7, "height"] = np.nan
    model = quietly(small(), table, y)
    assert model.score(table, y) > max(np.mean(y), 1.0 - np.mean(y)) + 0.2
    # A town that no training row had is as far from either.
    unseen = model.predict_latent(table.assign(town="Lima"))[1]
    assert np.all(unseen > model.predict_latent(table)[1])
