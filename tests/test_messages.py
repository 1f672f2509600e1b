"""What users are told of a fit: parameters at their bounds, by the names of features; and what nobody need be told."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import warnings_of
from support.reference import moons, twonorm

from xgpc import GPClassifier
from xgpc.gibbs import GibbsClassifier


def test_a_fit_names_the_columns_of_a_data_frame():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    # The second feature says nothing: each row is there with both of its values.
    signal = np.tile(rng.normal(size=100), 2)
    frame = pd.DataFrame({"signal": signal, "worst area": np.repeat([-1.0, 1.0], 100)})
    y = np.sin(2.0 * signal) + 0.3 * np.tile(rng.normal(size=100), 2) > 0.0
    kernel = ConstantKernel(2.0) * RBF([1.0, 1.0], (1e-2, 50.0))
    [message] = warnings_of(GPClassifier(kernel, n_inducing=20, random_state=0), frame, y)
    assert message.startswith("The length scale of 'worst area' (k2__length_scale[1] = 50) is at its upper bound")
    [message] = warnings_of(GPClassifier(kernel, n_inducing=20, random_state=0), frame.to_numpy(), y)
    assert message.startswith("The length scale of feature 1 (k2__length_scale[1] = 50)")


def test_a_fit_that_neither_optimizer_nor_posterior_ends_is_told_of_once():
    X, y = moons(200)
    model = GPClassifier(n_inducing=8, bound="polya-gamma", max_iter=2, tol=1e-12, random_state=0)
    (message,) = warnings_of(model, X, y)
    assert message.count("max_iter=2 was reached before tol=1e-12") == 2
    assert message.count("raise max_iter") == 1
    assert model.warnings_ == [message]


def test_parameters_of_no_kernel_cannot_be_set():
    for model in (GPClassifier(), GibbsClassifier()):
        with pytest.raises(ValueError, match=r"k2__length_scale cannot be set: kernel is None, .* Give one first"):
            model.set_params(n_jobs=2, kernel__k2__length_scale=2.0)
        assert model.n_jobs is None
        model.set_params(kernel=ConstantKernel() * RBF(), kernel__k2__length_scale=2.0)
        assert model.kernel.k2.length_scale == 2.0
        assert model.set_params(kernel=None).kernel is None


def test_one_warning_names_the_parameters_that_ran_to_their_bounds_and_what_to_do():
    X, y = twonorm(300, np.random.default_rng(0))
    kernel = ConstantKernel(2.0, (1.9, 2.1)) * RBF(np.ones(4), [*[(1e-2, 1e2)] * 3, (0.9, 1.1)])
    [message] = warnings_of(GPClassifier(kernel, n_inducing=20, random_state=0), X[:, :4], y)
    for text in ("k1__constant_value = 2.1 is at its upper bound", "k2__length_scale[3] = 1.1 is at its upper bound"):
        assert text in message
    assert "k2__length_scale[0]" not in message
    assert "widen their bounds, or fix them" in message
