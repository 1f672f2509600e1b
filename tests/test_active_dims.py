"""Kernels of some columns: values and gradients against scikit-learn's kernels of slices, fits, tables and files."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, Matern
from support.dense import KERNELS_OF_COLUMNS, assert_is_a_kernel_of_scikit_learn
from support.fits import kept, quietly, refuses
from support.internals import Groups, KernelSpec
from support.reference import additive

from xgpc import GPClassifier
from xgpc.kernels import ActiveDims, Sphere

X, Y = additive(200, d=4)
FRAME = pd.DataFrame(X, columns=list("abcd"))


def test_values_are_those_of_slices():
    X = np.random.default_rng(0).normal(size=(40, 3))
    expected = 2.0 * RBF([0.7, 2.0])(X[:, [2, 0]]) + Matern(1.3, nu=0.5)(X[:, [1]])
    np.testing.assert_allclose(KERNELS_OF_COLUMNS["sum of groups"](X), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS_OF_COLUMNS.values(), ids=KERNELS_OF_COLUMNS)
def test_it_is_a_kernel_of_scikit_learn(kernel):
    assert_is_a_kernel_of_scikit_learn(kernel, np.random.default_rng(0).normal(size=(8, 3)), 1e-7)


def test_scikit_learns_process_takes_it():
    X, y = additive(60, d=4)
    model = quietly(GaussianProcessClassifier(ActiveDims(RBF(), [0]) + ActiveDims(RBF(), [1]), random_state=0), X, y)
    assert model.score(X, y) > 0.9
    assert model.kernel_.get_params()["k2__columns"] == [1]
    assert str(model.kernel_.k1).startswith("ActiveDims(RBF(length_scale=")


@pytest.mark.parametrize("options", [{"n_neighbors": 0}, {"inducing_points": "all"}, {"n_neighbors": 8}], ids=str)
def test_fits_are_the_same_after_a_file(options, tmp_path):
    kernel = 4.0 * (ActiveDims(RBF(), [0]) + ActiveDims(Matern(nu=1.5), [1]))
    model = quietly(GPClassifier(kernel, max_iter=15, random_state=0, n_inducing=25, **options), X, Y)
    T, labels = additive(400, seed=1, d=4)
    assert model.score(T, labels) > 0.85
    kept(model, tmp_path, T)
    # Two features have no effect.
    moved = T + np.array([0.0, 0.0, 3.0, -3.0])
    np.testing.assert_allclose(model.predict_proba(moved), model.predict_proba(T), rtol=1e-12)
    assert np.array_equal(model.feature_importances_ > 0.0, [True, True, False, False])
    _, _, gradient, _ = model.predict_latent(T[:5], return_grad=True)
    assert np.all(gradient[:, 2:] == 0.0)
    assert np.all(gradient[:, :2] != 0.0)
    assert "ActiveDims" in model.summary()


def test_columns_of_a_table_by_name():
    """The kernel sees all columns of the matrix that a column becomes, with one length scale or one for each column."""
    table = FRAME[["a", "b"]].copy()
    table["colour"] = np.where(X[:, 2] > 0.0, "red", np.where(X[:, 3] > 0.0, "blue", "green"))
    table.loc[:9, "b"] = np.nan
    parts = [ActiveDims(RBF(), ["b"]), ActiveDims(RBF([1.0, 2.0]), ["colour", "a"])]
    options = {"n_neighbors": 0, "n_inducing": 20, "max_iter": 3, "random_state": 0}
    model = quietly(GPClassifier(parts[0] + parts[1], categorical_features=["colour"], **options), table, Y)
    assert model.kernel_.get_params()["k1__columns"] == [1]
    assert model.kernel_.get_params()["k2__columns"] == [2, 0]
    names = list(model.encoding_.matrix_names)
    seen = [names.index(name) for name in ("b", "missingindicator_b")]
    colours = [j for j, name in enumerate(names) if name.startswith("colour=")]
    one, (own, shared) = np.exp(model.kernel_.k1.theta)[0], np.exp(model.kernel_.k2.theta)[::-1]
    Z = model.inducing_points_
    expected = RBF(one)(Z[:, seen]) + RBF(shared)(Z[:, colours]) * RBF(own)(Z[:, [names.index("a")]])
    np.testing.assert_allclose(model.posterior_.prior.core.cross(Z), expected, rtol=1e-10)
    assert quietly(GPClassifier(model.kernel_, optimizer=None, **options), table, Y).kernel_ == model.kernel_
    assert "colour" in model.summary()


def test_names_of_a_frame_of_numbers_become_numbers():
    options = {"n_neighbors": 0, "n_inducing": 10, "max_iter": 3, "random_state": 0}
    kernel = 2.0 * ActiveDims(RBF(), ["b", "a"])
    by_name = quietly(GPClassifier(kernel, **options), FRAME, Y)
    by_number = quietly(GPClassifier(2.0 * ActiveDims(RBF(), [1, 0]), **options), X, Y)
    assert kernel.k2.columns == ["b", "a"]
    of_index = quietly(GPClassifier(2.0 * ActiveDims(RBF(), FRAME.columns[[1, 0]]), **options), FRAME, Y)
    assert of_index.kernel_ == by_name.kernel_
    assert by_name.kernel_ == by_number.kernel_
    np.testing.assert_array_equal(by_name.predict_proba(FRAME), by_number.predict_proba(X))


@pytest.mark.parametrize("columns", [[0, 0], [4], [-1], [], [0.5], [[0, 1]], None, [True, False], "ab", {0}], ids=str)
def test_wrong_columns_are_refused(columns):
    kernel = RBF() + ActiveDims(RBF(), columns)
    for function, given in ((kernel, np.ones((2, 4))), (partial(KernelSpec, kernel), 4)):
        refuses("must have different columns: numbers 0 to 3, or a list of names", function, given)


def test_wrong_names_and_length_scales_are_refused():
    for kernel, rows, message in (
        (ActiveDims(RBF(), ["a", "e"]), FRAME, r"has the names \['e'\], but X has the columns a, b, c, d"),
        (ActiveDims(RBF(), ["a"]), X, r"has the names \['a'\], but X has no names"),
        (ActiveDims(RBF(), ["a", 1]), FRAME, r"has the names \[1\], but X has the columns a, b, c, d"),
        (ActiveDims("rbf", ["a"]), FRAME, "must have a scikit-learn kernel object; got"),
        (RBF() + Sphere(RBF), FRAME, "must have a scikit-learn kernel object; got"),
        (ActiveDims(RBF(np.ones(3)), [0, 1]), X, "has 3 length scales but its columns are 2 features"),
    ):
        refuses(message, GPClassifier(kernel).fit, rows, Y)
    refuses("need a fit to a data frame", ActiveDims(RBF(), ["a"]), X)
    groups = Groups(np.array([0, 1, 1, 2]), ("a", "b", "c"), np.arange(3))
    message = r"but its columns are 2 features \(c, b\); .*; or 3, one per column"
    refuses(message, KernelSpec, ActiveDims(RBF(np.ones(4)), [2, 1]), 4, groups)
