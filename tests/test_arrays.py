"""Plain arrays of a model: the lines in the guide make the predictions of every kind of model from them."""

import re
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.fits import quietly, reloaded
from support.latents import RECORDS, every
from support.posteriors import POSTERIORS, kernels, labelled, model_of, stretched

from xgpc import GPOrdinalClassifier

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "deploying.md"
KERNELS = kernels(
    [0.8, 1.1, 1.7], "ard", "matern 1/2", "matern 5/2", "product of sums", "noise by everything", "power of a sum",
    "rational quadratic", "axis, sum and product", "periodic",
)  # fmt: skip
ROWS = np.random.default_rng(1).normal(size=(9, 3))
fitted = partial(model_of, kernel=KERNELS["ard"], d=3)


@pytest.fixture(scope="module")
def recipe():
    """The functions of the page, without its last lines about one model."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (lines,) = (block for block in blocks if "to_arrays()" in block)
    namespace = {}
    exec(compile(lines.partition("\narrays = ")[0], PAGE.name, "exec"), namespace)
    return namespace


def assert_same(recipe, model, X, has_probabilities=True):
    arrays = model.to_arrays()
    assert all(type(one) is np.ndarray and one.dtype != object for one in arrays.values())
    mean, variance = recipe["latent"](arrays, X)
    for found, expected in zip((mean, variance), model.predict_latent(X), strict=True):
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-6, atol=1e-7)
    if has_probabilities:
        p = recipe["probabilities"](arrays, mean, variance)
        # The tables of softmax have errors of 1e-6.
        np.testing.assert_allclose(p, model.predict_proba(X), atol=3e-6)


@pytest.mark.parametrize(
    ("kernel", "posterior"),
    [pair for pair in product(KERNELS, POSTERIORS) if pair != ("periodic", "local")],
    ids=" ".join,
)
def test_every_kernel_and_posterior(recipe, kernel, posterior):
    for n_classes in (2, 3):
        model = fitted(n_classes, posterior, kernel=KERNELS[kernel], mean=0.4 if n_classes == 2 else 0.0)
        assert_same(recipe, model, ROWS)


@every(RECORDS)
def test_every_likelihood(recipe, record):
    rates = {"guess_rate": 0.3, "lapse_rate": 0.05} if record.has_rates else {}
    weight = {"bad": 1.0, "good": 2.0, "odd": 3.0} if record.is_multi_class else {"bad": 1.0, "good": 2.0}
    names = {"likelihood": record.likelihood, "bound": record.bound, "class_weight": weight}
    model = fitted(len(weight), **names, **rates, max_iter=20)
    assert_same(recipe, model, ROWS, record.likelihood != "logistic-softmax")


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_ordered_classes(recipe, likelihood):
    X, _ = labelled(d=3)
    model = GPOrdinalClassifier(KERNELS["ard"], likelihood=likelihood, n_inducing=10, optimizer=None, random_state=0)
    names = np.array(["low", "medium", "high", "top"])
    quietly(model, X, names[np.digitize(X[:, 0], [-0.6, 0.1, 0.9])], classes=names)
    assert_same(recipe, model, ROWS)


@pytest.mark.parametrize("posterior", ["sparse", "full"])
def test_a_kernel_for_each_class(recipe, posterior):
    model = fitted(3, posterior=posterior, share="none", optimizer="profile", max_iter=3)
    assert len(model.kernel_) == 3
    assert_same(recipe, model, ROWS)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_warps_and_loaded_models(recipe, posterior, tmp_path):
    model, rows = fitted(kernel=None, posterior=posterior, change=stretched, mean=0.7), stretched(labelled(d=3)[0][:6])
    assert len(model.encoding_.warps) == 1
    for one in (model, reloaded(model, tmp_path)):
        assert_same(recipe, one, rows + 0.01)


def test_learned_neighbours(recipe):
    model = fitted(posterior="local", optimizer="profile", max_iter=3)
    assert model.to_arrays()["variance_scale"] != 1.0
    assert_same(recipe, model, ROWS)


def test_arrays_of_a_file_and_whitened_moments(recipe, tmp_path):
    """The moments of the whitened values are another way to the same mean and variance."""
    model = fitted(kernel=KERNELS["matern 1/2"])
    np.savez(tmp_path / "arrays.npz", **model.to_arrays())
    with np.load(tmp_path / "arrays.npz", allow_pickle=False) as file:
        a = dict(file)
    k = recipe["covariance"](a, 0, ROWS[:, None], a["points"][0]) @ a["whitening"][0].T
    mean, variance = model.predict_latent(ROWS)
    np.testing.assert_allclose(k @ a["whitened_mean"][0], mean, rtol=1e-8)
    left = recipe["covariance"](a, 0, ROWS, ROWS, noise=True) - np.sum(k**2, axis=1)
    np.testing.assert_allclose(left + np.sum(k @ a["whitened_covariance"][0] * k, axis=1), variance, rtol=1e-8)


def test_arrays_are_copies_or_cannot_be_written():
    model = fitted()
    before = model.predict_proba(ROWS)
    for one in model.to_arrays().values():
        if one.flags.writeable and one.dtype == np.float64:
            one += 1.0
    np.testing.assert_array_equal(model.predict_proba(ROWS), before)
