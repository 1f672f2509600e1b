"""Fits of tables by default: a length scale for each level, their bounds, and what users are told of them."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly, warnings_of
from support.kernels import compiled

from xgpc import GPClassifier

pd = pytest.importorskip("pandas")

LETTERS = ("A", "C", "G", "T")


def letters(n=150, n_columns=4, seed=0):
    """Columns of four levels, with a number: the first column's "A" tells, and the number a little; and labels."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({f"pos{j}": rng.choice(LETTERS, n) for j in range(n_columns)})
    table["size"] = rng.normal(size=n)
    score = np.where(table["pos0"] == "A", 2.0, -1.0) + table["size"]
    return table, (score + 0.5 * rng.normal(size=n) > 0.0).astype(int)


def fitted(table, y, **parameters):
    return quietly(GPClassifier(**{"n_inducing": 20, "max_iter": 30, "random_state": 0, **parameters}), table, y)


def test_the_kernel_starts_where_that_of_a_length_scale_for_each_column_does():
    table, y = letters()
    model = fitted(table, y, optimizer=None)
    groups, scales = model.encoding_.groups, model.kernel_.k2.length_scale
    first = np.unique(groups.index, return_index=True)[1]
    rows = model.encoding_.encode(table)
    own, shared = (compiled(k, rows, groups) for k in (model.kernel_, model.kernel_.k1 * RBF(scales[first])))
    np.testing.assert_allclose(own.cross(rows), shared.cross(rows), rtol=1e-12)


def test_length_scales_tell_levels_that_matter_from_those_that_do_not():
    table, y = letters(400)
    model = fitted(table, y)
    names, kernel = model.encoding_.matrix_names, model.kernel_.k2
    low, high = (kernel.length_scale_bounds * (1.0 + np.array([-1e-9, 1e-9]))).T
    assert np.all((low <= kernel.length_scale) & (kernel.length_scale <= high))
    scales = dict(zip(names, kernel.length_scale, strict=True))
    longest = dict(zip(names, high, strict=True))
    assert scales["pos0=A"] < 0.7 * min(scales[f"pos0={letter}"] for letter in "CGT")
    # What tells nothing is held where it is no longer than twice its start.
    others = [name for name in names if name.startswith(("pos1", "pos2", "pos3")) and "unknown" not in name]
    assert np.mean([scales[name] > 0.99 * longest[name] for name in others]) > 0.5


def test_the_order_of_columns_does_not_matter():
    table, y = letters(80)
    other = table[["size", "pos2", "pos0", "pos3", "pos1"]]
    models = [fitted(X, y, inducing_points="all", max_iter=100, tol=1e-6) for X in (table, other)]
    assert models[0].elbo_ == pytest.approx(models[1].elbo_, abs=1e-3)
    np.testing.assert_allclose(models[0].predict_proba(table), models[1].predict_proba(other), atol=1e-3)


def test_bounds_of_the_default_kernel_are_nobodys_concern():
    """Many levels tell nothing, and their length scales end at the bounds that the fit chose."""
    table, y = letters(200)
    model = GPClassifier(n_inducing=20, random_state=0)
    assert warnings_of(model, table, y) == []
    kernel = model.kernel_.k2
    assert np.any(np.isclose(kernel.length_scale, kernel.length_scale_bounds[:, 1]))


def test_a_fit_names_the_levels_of_a_given_kernel():
    table, y = letters()
    width = len(fitted(table, y, optimizer=None).encoding_.matrix_names)
    bounds = np.tile([0.5, 2.0], (width, 1))
    bounds[0] = 0.9, 1.1
    kernel = ConstantKernel(2.0) * RBF(np.ones(width), bounds)
    messages = warnings_of(GPClassifier(kernel, n_inducing=20, random_state=0), table, y)
    assert "k2__length_scale[0] = 0.9 is at its lower bound (level 'A' of column 'pos0')" in "\n".join(messages)
