"""A classifier as a module of PyTorch: values are the classifier's, and gradients pass PyTorch's own check."""

import copy
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from support.fits import clone_of, quietly, refuses, reloaded
from support.posteriors import POSTERIORS, model_of, stretched
from torch.func import grad, hessian, jacfwd, jacrev, vmap

from xgpc import BayesianLinearClassifier
from xgpc.kernels import AxisMatern
from xgpc.torch import FeasibilityModel

pytestmark = pytest.mark.nightly
KERNEL = ConstantKernel(2.0) * Matern([0.8, 1.1], nu=2.5)
X = torch.as_tensor(np.random.default_rng(1).normal(size=(3, 2, 2)))
fitted = partial(model_of, kernel=KERNEL)


def assert_gradients(module, at=X):
    """Of probabilities, and of the latent moments.

    Softmax's tables are smooth over steps that are not too small, and over too large ones neighbours change.
    """
    several = len(module.model.classes_) > 2
    step, tolerance = (2e-3, 1e-3) if several else (1e-4, 1e-6)
    at = at.clone().requires_grad_()
    assert torch.autograd.gradcheck(module, at, eps=step, atol=tolerance, rtol=1e-3)
    assert torch.autograd.gradcheck(module.latent, at, eps=1e-4, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_values_and_gradients_are_those_of_the_classifier(posterior, n_classes):
    model = fitted(n_classes, posterior)
    rows = X.reshape(-1, 2).numpy()
    for column, label in enumerate(model.classes_):
        module = FeasibilityModel(model, label)
        np.testing.assert_array_equal(module(X).numpy(), model.predict_proba(rows)[:, column].reshape(3, 2))
        assert_gradients(module)
    mean, variance = module.latent(X)
    for found, expected in zip((mean, variance), model.predict_latent(rows), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.reshape(3, 2, *expected.shape[1:]))


def test_loaded_models_with_a_prior_mean_and_warps(tmp_path):
    model = fitted(kernel=None, change=stretched, mean=0.7)
    assert model.encoding_.warps
    module = FeasibilityModel(reloaded(model, tmp_path), "good")
    at = X + torch.tensor([0.0, 10.0], dtype=torch.float64)
    assert_gradients(module, at)
    np.testing.assert_array_equal(module(at), FeasibilityModel(model, "good")(at))


@pytest.mark.parametrize("likelihood", ["probit", "step", "svm"])
def test_other_likelihoods(likelihood):
    assert_gradients(FeasibilityModel(fitted(likelihood=likelihood, max_iter=20), "bad"))


def test_linear_classifiers():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    module = FeasibilityModel(BayesianLinearClassifier().fit(rows, rows[:, 0] > 0.2), True)
    assert_gradients(module)
    refuses(r"BayesianLinearClassifier has none. Pickle the module", module.state_dict)


@pytest.mark.parametrize("shape", [(2,), (5, 2), (0, 2), (2, 0, 2), (4, 1, 2), (2, 3, 4, 2)])
def test_batches_of_any_shape(shape):
    module = FeasibilityModel(fitted(3), "good")
    at = torch.as_tensor(np.random.default_rng(2).normal(size=shape)).requires_grad_()
    found, (mean, variance) = module(at), module.latent(at)
    assert found.shape == shape[:-1]
    assert mean.shape == variance.shape == (*shape[:-1], 3)
    (found.sum() + (mean * variance).sum()).backward()
    assert at.grad.shape == shape
    np.testing.assert_array_equal(found.detach().reshape(-1), module(at.detach().reshape(-1, 2)).detach())


def test_chains_of_functions_and_single_precision():
    """As an optimiser uses the module: scaled variables, and a score that is a product."""
    module = FeasibilityModel(fitted(), "good")
    unit = torch.rand(4, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def score(unit):
        return (module(3.0 * unit - 1.5) * torch.exp(-unit.sum(-1))).prod(-1)

    assert torch.autograd.gradcheck(score, unit, eps=1e-4, atol=1e-6)
    single = X.to(torch.float32).requires_grad_()
    found = module(single)
    found.sum().backward()
    assert found.dtype == single.grad.dtype == torch.float32
    at = X.clone().requires_grad_()
    module(at).sum().backward()
    torch.testing.assert_close(single.grad.double(), at.grad, atol=1e-5, rtol=1e-5)


def test_constraints_are_negative_where_settings_are_feasible():
    model = fitted()
    good, strict = FeasibilityModel(model, "good"), FeasibilityModel(model, "good", threshold=0.9)
    assert torch.equal(good.constraint(X) < 0.0, good(X) > 0.5)
    assert torch.equal(strict.constraint(X), 0.9 - good(X))
    torch.testing.assert_close(FeasibilityModel(model, "bad")(X), 1.0 - good(X))


def test_without_gradients_nothing_is_kept():
    module = FeasibilityModel(fitted(), "good")
    at = X.clone().requires_grad_()
    with torch.no_grad():
        assert not module(at).requires_grad
    assert not list(module.parameters())


# PyTorch's own forward mode warns of itself.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_transformations_have_the_values_and_gradients_of_loops(n_classes):
    module, rows = FeasibilityModel(fitted(n_classes), "good"), X.reshape(-1, 2)
    at = rows.clone().requires_grad_()
    (by_x,) = torch.autograd.grad(module(at).sum(), at)
    for values in (vmap(module)(rows), vmap(module, in_dims=1)(rows.T), vmap(vmap(module))(X).reshape(-1)):
        torch.testing.assert_close(values, module(rows), rtol=1e-12, atol=0.0)
    each = [
        vmap(grad(module))(rows),
        vmap(jacrev(module))(rows),
        vmap(jacfwd(module))(rows),
        grad(lambda rows: vmap(module)(rows).sum())(rows),
        torch.einsum("iid->id", jacrev(module)(rows)),
        torch.einsum("iid->id", jacfwd(module)(rows)),
        torch.einsum("iid->id", torch.autograd.functional.jacobian(module, rows, vectorize=True)),
        vmap(jacrev(module), in_dims=1)(rows.T),
    ]
    for found in each:
        torch.testing.assert_close(found, by_x, rtol=1e-12, atol=1e-14)
    mean, variance = module.latent(at)
    for number, moment in enumerate((mean, variance)):
        (expected,) = torch.autograd.grad(moment.sum(), at, retain_graph=True)
        found = vmap(jacrev(lambda x, number=number: module.latent(x)[number].sum()))(rows)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


# PyTorch's compiler looks at the gradients of all tensors, and its forward mode warns of itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:`torch.jit.script` is deprecated")
def test_compiled_functions_call_the_classifier():
    module = FeasibilityModel(fitted(), "good")

    def score(X):
        return (module(2.0 * X) * torch.exp(-X.sum(-1))).sum()

    by_x = []
    for function in (score, torch.compile(score, backend="eager")):
        at = X.clone().requires_grad_()
        function(at).backward()
        by_x.append(at.grad)
    torch.testing.assert_close(*by_x)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_second_derivatives_are_refused_and_never_zero():
    module, row = FeasibilityModel(fitted(), "good"), X[0, 0]
    again = [hessian, lambda f: jacrev(jacrev(f)), lambda f: jacfwd(jacfwd(f)), lambda f: jacrev(jacfwd(f))]
    for transform in (*again, lambda f: partial(torch.autograd.functional.hessian, f)):
        for function in (module, lambda x: module.latent(x)[0]):
            with pytest.raises(RuntimeError, match="first derivatives by X, and no second ones: leave out"):
                transform(function)(row)
    at, weight = X.clone().requires_grad_(), torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    (by_x,) = torch.autograd.grad(weight**2 * module(at).sum(), at, create_graph=True)
    refuses("first derivatives by X", torch.autograd.grad, by_x.sum(), at, error=RuntimeError, retain_graph=True)
    # The gradient by other variables is known.
    (by_weight,) = torch.autograd.grad(by_x.sum(), weight)
    torch.testing.assert_close(by_weight, 2.0 / 3.0 * by_x.sum().detach())


def test_gradients_are_nan_where_the_kernel_has_a_kink():
    model = fitted(kernel=AxisMatern([0.8, 1.1]))
    at = torch.as_tensor(model.inducing_points_[:1]) + torch.tensor([0.0, 0.01], dtype=torch.float64)
    at.requires_grad_()
    FeasibilityModel(model, "good")(at).sum().backward()
    assert torch.isnan(at.grad).tolist() == [[True, False]]


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_copies_and_states_restore_the_model(posterior, tmp_path):
    model = fitted(3, posterior)
    module, of_file = (FeasibilityModel(m, "odd", 0.8) for m in (model, reloaded(model, tmp_path)))
    text = repr(module)
    assert text.startswith("FeasibilityModel(\n  GPClassifier(")
    assert all(part in text for part in ("kernel=", "feasible='odd', threshold=0.8"))
    torch.save(module.state_dict(), tmp_path / "state.pt")
    loaded = FeasibilityModel(fitted(), "bad")
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for other, same in (loaded, of_file), (copy.deepcopy(module), module), (clone_of(module), module):
        assert torch.equal(other.constraint(X), same.constraint(X))
        assert repr(other) == text
    # A file's posterior is computed from its natural parameters, which rounds the mean of several classes.
    torch.testing.assert_close(of_file.constraint(X), module.constraint(X), rtol=1e-12, atol=1e-14)
    state = FeasibilityModel(fitted(), "good").get_extra_state()
    for bad, message in (
        (state | {"model": torch.zeros(9, dtype=torch.uint8)}, "^The state's tensor of bytes is not a model saved by"),
        (state | {"model": "x"}, "model with load.*, and the bytes that state_dict made; got GPClassifier and 'x'"),
        (state | {"column": 7}, r"column must be a position in the classes \['bad', 'good'\]; got 7"),
        (state | {"threshold": 5.0}, "threshold must be a number between 0 and 1; got 5"),
        (state["model"], r"must be a dict of model, column and threshold; got tensor"),
    ):
        refuses(message, loaded.load_state_dict, {"_extra_state": bad})
        assert torch.equal(loaded.constraint(X), of_file.constraint(X))


def test_a_later_fit_does_not_change_a_module():
    model = fitted()
    module = FeasibilityModel(model, "good")
    before = module(X)
    rows = np.random.default_rng(0).normal(size=(40, 2))
    quietly(model, rows, np.array(["good", "zero"])[(rows[:, 0] > 0.0).astype(int)])
    assert torch.equal(module(X), before)


def test_bad_requests_are_refused():
    model, floats = fitted(), r"X must be a tensor of floating point numbers \(\.\.\., q, d\); got"
    module, averaged = FeasibilityModel(model, "good"), FeasibilityModel(fitted(likelihood="logistic-softmax"), "good")
    for call, rows, message in (
        *((module, rows, floats) for rows in (X.numpy(), X.long(), torch.tensor(0.5))),
        (module, torch.zeros(4, 3, dtype=torch.float64), "features"),
        (module, torch.full((4, 2), torch.nan, dtype=torch.float64), "NaN"),
        (averaged, X.clone().requires_grad_(), "averages over points"),
    ):
        refuses(message, call, rows)
    refuses(r"feasible must be one of the labels \['bad', 'good'\]; got 'fine'", FeasibilityModel, model, "fine")
    refuses("feasible must be one of the labels .*; got array", FeasibilityModel, model, np.array(["bad", "good"]))
    refuses("threshold must be a number between 0 and 1; got 1", FeasibilityModel, model, "good", threshold=1.0)
