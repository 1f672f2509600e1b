"""A classifier as a model of BoTorch: joint posteriors are the classifier's, and derivatives pass PyTorch's checks."""

import copy
from functools import partial

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("botorch")
import torch
from botorch.acquisition import qLogExpectedImprovement, qSimpleRegret
from botorch.acquisition.objective import GenericMCObjective, LinearMCObjective, ScalarizedPosteriorTransform
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from support.fits import clone_of, quietly, refuses
from support.posteriors import kernels, model_of, stretched

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.botorch import LatentModel
from xgpc.kernels import Tanimoto

pytestmark = pytest.mark.nightly
KERNELS = kernels(
    [0.8, 1.1], "matern 5/2", "white", "axis 3/2", "matern 3/2", "rational quadratic", "periodic", "columns, products",
    "matern 1/2", "axis 1/2",
)  # fmt: skip
POSTERIORS = ("sparse", "full")
X = torch.as_tensor(np.random.default_rng(1).normal(size=(3, 2, 2)))
BOUNDS = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)
fitted = partial(model_of, kernel=KERNELS["matern 5/2"])


def moments(model, X):
    """Means (..., q) and covariances (..., q, q), the latent functions one after the other."""
    each = [model.posterior(X, output_indices=[c]) for c in range(model.num_outputs)]
    parts = [(one.mean[..., 0], one.distribution.covariance_matrix) for one in each]
    return tuple(torch.stack(part, -1) for part in zip(*parts, strict=True))


def assert_joint_posterior(classifier, X=X):
    mean, covariance = moments(LatentModel(classifier), X)
    for rows, *found in zip(X.reshape(-1, *X.shape[-2:]), mean.flatten(0, -3), covariance.flatten(0, -4), strict=True):
        for one, expected in zip(found, classifier.predict_latent(rows.numpy(), return_cov=True), strict=True):
            np.testing.assert_allclose(one.reshape(expected.shape), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_joint_posterior_is_that_of_predict_latent(name, posterior):
    assert_joint_posterior(fitted(2, posterior, kernel=KERNELS[name]))


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_several_latent_functions_are_independent_outcomes(posterior):
    classifier = fitted(3, posterior)
    assert_joint_posterior(classifier)
    model = LatentModel(classifier)
    joint, alone = model.posterior(X), model.posterior(X, output_indices=[2])
    assert joint.mean.shape == joint.variance.shape == (3, 2, model.num_outputs) == (3, 2, 3)
    torch.testing.assert_close(joint.mean[..., 2:], alone.mean)
    torch.testing.assert_close(joint.variance[..., 2:], alone.variance)
    weights = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    transformed = model.posterior(X, posterior_transform=ScalarizedPosteriorTransform(weights))
    torch.testing.assert_close(transformed.mean[..., 0], joint.mean @ weights)
    torch.testing.assert_close(transformed.variance[..., 0], joint.variance @ weights**2)


def test_a_kernel_for_each_class():
    classifier = fitted(3, share="none", optimizer="profile", max_iter=3)
    assert len(classifier.kernel_) == 3
    assert_joint_posterior(classifier)


def test_prior_means_warps_and_limits():
    warped = fitted(kernel=None, change=stretched, mean=0.7)
    assert warped.encoding_.warps
    assert_joint_posterior(warped, X + torch.tensor([0.0, 10.0], dtype=torch.float64))
    code = (np.arange(70)[:, None] < 2) & [True, False]
    limited = fitted(kernel=None, change=lambda rows: np.where(code, -9999.0, rows))
    assert limited.encoding_.limits
    assert_joint_posterior(limited, X)
    assert_joint_posterior(limited, X - torch.tensor([5000.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("name", KERNELS)
def test_first_and_second_derivatives(name):
    model = LatentModel(fitted(kernel=KERNELS[name]))
    at = X[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda X: moments(model, X), at, eps=1e-5, atol=1e-6)
    assert torch.autograd.gradgradcheck(lambda X: moments(model, X), at, eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("parameters", [{}, {"n_classes": 3}, {"likelihood": "softmax"}], ids=["one", "three", "two"])
def test_second_derivatives_of_joint_covariances_and_samples(parameters):
    model, at = LatentModel(fitted(**parameters)), X[:2].clone().requires_grad_()
    base = torch.as_tensor(np.random.default_rng(0).normal(size=(2, *model.posterior(at).base_sample_shape)))
    for function in (
        lambda X: model.posterior(X).distribution.covariance_matrix,
        lambda X: model.posterior(X).rsample_from_base_samples(base.shape[:1], base),
    ):
        assert torch.autograd.gradgradcheck(function, at, eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives_at_a_point_are_limits_or_nan(name):
    classifier = fitted(kernel=KERNELS[name])
    model, point = LatentModel(classifier), torch.tensor(classifier.inducing_points_[:1])

    def mean(row):
        return model.posterior(row).mean.sum()

    at = point.clone().requires_grad_()
    (by_x,) = torch.autograd.grad(mean(at), at)
    expected = classifier.predict_latent(point.numpy(), return_grad=True)[2]
    np.testing.assert_allclose(by_x, expected, rtol=1e-9, atol=1e-11)
    assert bool(torch.isnan(by_x).any()) == ("1/2" in name)
    if "1/2" not in name:
        here, near = (torch.autograd.functional.hessian(mean, point + step) for step in (0.0, 1e-6))
        torch.testing.assert_close(here, near, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 2), (4, 2), (5, 1, 2), (2, 3, 4, 2)])
def test_batches_and_single_precision(shape):
    model, at = LatentModel(fitted()), torch.as_tensor(np.random.default_rng(2).normal(size=shape))
    posterior = model.posterior(at)
    assert posterior.mean.shape == (*shape[:-1], 1)
    assert posterior.rsample(torch.Size([5])).shape == (5, *shape[:-1], 1)
    single = model.posterior(at.float())
    assert single.mean.dtype == torch.float32
    torch.testing.assert_close(single.mean.double(), posterior.mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("likelihood", ["logit", "probit", "step", "svm", "softmax"])
def test_the_mean_of_the_probabilities_is_that_of_predict_proba(likelihood):
    """By quadrature over independent latent values of single rows; the step is one between two of its points."""
    classifier = fitted(3 if likelihood == "softmax" else 2, likelihood=likelihood, max_iter=20)
    model, rows = LatentModel(classifier), X.reshape(-1, 1, 2)
    posterior = model.posterior(rows)
    n, nodes = model.num_outputs, np.linspace(-7.0, 7.0, 2001 if likelihood == "step" else 57)
    weights = np.exp(-0.5 * nodes**2)
    grid, mass = (np.stack(np.meshgrid(*n * [one], indexing="ij"), -1).reshape(-1, n) for one in (nodes, weights))
    latent = posterior.mean + posterior.variance.sqrt() * torch.as_tensor(grid)
    expected = torch.as_tensor(np.prod(mass / weights.sum(), axis=1)) @ model.probability(latent)
    tolerance = 2e-3 if likelihood == "step" else 1e-5
    np.testing.assert_allclose(classifier.predict_proba(rows[:, 0].numpy()), expected, atol=tolerance)


# The factorisation of equal points takes jitter, which BoTorch's does by itself.
@pytest.mark.filterwarnings("ignore:A not p.d.")
def test_acquisition_functions_find_what_they_look_for():
    """The greatest mean of the latent function, and joint improvements by two points."""
    model = LatentModel(fitted())
    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=0)
    torch.manual_seed(0)
    options = {"bounds": BOUNDS, "num_restarts": 3, "raw_samples": 32}
    objective = GenericMCObjective(lambda samples, X: model.probability(samples)[..., 1])
    chosen, value = optimize_acqf(qSimpleRegret(model, sampler, objective), q=1, **options)
    grid = torch.cartesian_prod(*2 * [torch.linspace(-2.0, 2.0, 41, dtype=torch.float64)])
    assert value > fitted().predict_proba(grid.numpy())[:, 1].max() - 2e-3
    assert torch.all((chosen >= BOUNDS[0]) & (chosen <= BOUNDS[1]))
    improvement = qLogExpectedImprovement(model, best_f=1.0, sampler=sampler)
    pair, of_pair = optimize_acqf(improvement, q=2, **options)
    assert of_pair > improvement(pair[:, None]).max()


def test_pending_points_count_as_points_of_the_batch():
    model = LatentModel(fitted())
    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=0)
    pending = torch.tensor([[0.3, 0.2]], dtype=torch.float64)
    expected = qLogExpectedImprovement(model, best_f=0.5, sampler=sampler)(torch.cat([X[:1, :1], pending[None]], -2))
    torch.testing.assert_close(qLogExpectedImprovement(model, 0.5, sampler, X_pending=pending)(X[:1, :1]), expected)


def test_objectives_of_several_latent_functions():
    model = LatentModel(fitted(3))
    weights = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)
    value = qSimpleRegret(model, SobolQMCNormalSampler(torch.Size([512]), seed=0), LinearMCObjective(weights))(X[:, :1])
    torch.testing.assert_close(value, model.posterior(X[:, 0]).mean @ weights, atol=0.02, rtol=0.0)


def test_further_labels_make_another_model():
    classifier = fitted()
    model = LatentModel(classifier)
    before, place = moments(model, X), torch.tensor([[3.0, -3.0], [3.1, -3.0]], dtype=torch.float64)
    updated = model.condition_on_observations(place, torch.tensor([[1.0], [1.0]]))
    assert all(map(torch.equal, moments(model, X), before))
    assert classifier.n_samples_seen_ == 70
    # Far from all other points, so that only new ones can tell.
    (old, prior), (new, less) = moments(model, place), moments(updated, place)
    assert torch.all(new > old + 0.5)
    assert torch.all(torch.diagonal(less[..., 0]) < 0.8 * torch.diagonal(prior[..., 0]))
    assert_joint_posterior(updated.model)
    expected = classifier.partial_fit(place.numpy(), ["good", "good"], n_new_inducing=2)
    np.testing.assert_array_equal(updated.model.predict_proba(X[0]), expected.predict_proba(X[0]))


def test_copies_and_states_have_the_same_posterior(tmp_path):
    model = LatentModel(fitted(3))
    torch.save(model.state_dict(), tmp_path / "state.pt")
    loaded = LatentModel(fitted())
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    expected = moments(model, X)
    for bad in ("x", {"model": model.get_extra_state()}, torch.zeros(9)):
        refuses("the bytes that state_dict made; got GPClassifier and", loaded.load_state_dict, {"_extra_state": bad})
    for other in (loaded, copy.deepcopy(model), clone_of(model)):
        assert all(map(torch.equal, moments(other, X), expected))
        assert repr(other) == repr(model)
    assert repr(model).startswith("LatentModel(\n  GPClassifier(kernel=")


def test_a_later_fit_does_not_change_a_model():
    classifier = fitted()
    model = LatentModel(classifier)
    before = moments(model, X)
    quietly(classifier, X[0].numpy(), ["a", "b"])
    assert all(map(torch.equal, moments(model, X), before))


def test_models_that_cannot_be_one_are_refused():
    rows, y = X.reshape(-1, 2).numpy(), ["a", "b", "a", "b", "a", "b"]
    table = pd.DataFrame({"number": rows[:, 0], "level": pd.Categorical(y)})
    of_levels = quietly(GPClassifier(n_inducing=3, n_neighbors=0, max_iter=2), table, y)
    called = quietly(GPClassifier(Tanimoto(), optimizer=None, n_inducing=3), np.abs(rows), y)
    for classifier, message in (
        (BayesianLinearClassifier(), "must be a fitted GPClassifier; got BayesianLinearClassifier"),
        (fitted(n_inducing=6, n_neighbors=5), r"predicts with 5 neighbours.*fit with n_neighbors=0"),
        (called, "compiled kernels only; Tanimoto is no compiled kernel"),
        (of_levels, "fitted to a table with levels or missing numbers"),
    ):
        refuses(message, LatentModel, classifier)


def test_bad_requests_are_refused():
    model = LatentModel(fitted())
    for bad in (X[..., :1], X[0, 0], X.long(), X.to(torch.complex128), X.numpy(), None):
        refuses(r"X must be a tensor of floating point numbers \(\.\.\., q, 2\); got", model.posterior, bad)
    for dtype in (torch.float32, torch.float64):
        infinite = torch.tensor([[0.0, 0.0], [0.0, torch.inf]], dtype=dtype)
        assert model.posterior(infinite).mean.isnan().flatten().tolist() == [False, True]
    assert model.posterior(X, output_indices=(0,)).mean.equal(torch.vmap(lambda x: model.posterior(x).mean)(X[None])[0])
    for chosen in ([], [1], [0.0], 0):
        refuses(r"output_indices must be a list of one or more of \[0\]; got", model.posterior, X, chosen)
    for several, given in ((model, X), (LatentModel(fitted(3)), X[..., :1]), (model, None)):
        refuses(r"samples must be a tensor of floating point numbers \(\.\.\., [13]\)", several.probability, given)
    refuses("labels have no normal noise", model.posterior, X, observation_noise=True)
    for at, label in ((X, torch.zeros(3, 2, 1)), (X[0], torch.zeros(2)), (X[0], torch.tensor([[0.0], [0.5]]))):
        refuses(r"positions 0 to 1 in classes_; got shapes", model.condition_on_observations, at, label)
    of_noise = LatentModel(fitted(3, likelihood="multinomial-probit", max_iter=5))
    values = torch.zeros(2, 3)
    refuses("is for two classes and for softmax; the model has 'multinomial-probit'", of_noise.probability, values)
