"""Where an ascent starts does not tell where it ends: likelihoods of several classes from two starts."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.preprocessing import StandardScaler
from support.latents import SEVERAL
from support.training import training

from xgpc.approximations.sparse import SparsePrior
from xgpc.inference.ascent import coordinate_ascent
from xgpc.inference.history import History
from xgpc.inference.starts import START_UPDATES, start_site, starting_posterior
from xgpc.kernels.spec import KernelSpec
from xgpc.learning.profile import Options, profile
from xgpc.likelihoods import has_label_noise, record_of

CASES = [(*key, noise) for key in SEVERAL for noise in ((None, 0.01) if has_label_noise(*key) else (None,))]
LOADERS = {"iris": load_iris, "wine": load_wine, "digits": load_digits}


def problem(name, variance, n=200, m=40, length_scale=1.0):
    """Rows and a prior of m inducing points; the length scale in units of sqrt(d)."""
    X, y = LOADERS[name](return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))[:n]
    X, y = StandardScaler().fit_transform(X[rows]), y[rows].astype(float)
    d = X.shape[1]
    kernel = ConstantKernel(variance) * RBF(np.full(d, length_scale * np.sqrt(d)))
    prior = SparsePrior.build(KernelSpec(kernel, d), X[np.random.default_rng(3).permutation(len(X))[:m]])
    return training(X, y, n_latents=int(y.max()) + 1), prior


def ascended(rows, q, site):
    return coordinate_ascent(rows, q, site, tol=1e-7, max_iter=1000, history=History())


def exact_softmax(rows, prior):
    return ascended(rows, prior.at_prior(rows.n_latents), record_of("softmax", "exact").site(rows.n_latents)).q


@pytest.mark.parametrize(("likelihood", "bound", "noise"), CASES)
@pytest.mark.parametrize("name", ["iris", "wine"])
@pytest.mark.parametrize("variance", [1.0, 10.0, 30.0])
def test_inference_ends_where_the_exact_softmax_posterior_leads(likelihood, bound, noise, name, variance):
    rows, prior = problem(name, variance)
    site = record_of(likelihood, bound).site(rows.n_latents, noise)
    starts = starting_posterior(rows, None, prior, site), exact_softmax(rows, prior)
    bounds = [ascended(rows, start, site).elbo for start in starts]
    assert bounds[0] == pytest.approx(bounds[1], rel=0.01)


@pytest.mark.parametrize(("likelihood", "bound", "noise"), CASES)
def test_learning_ends_where_it_ends_from_the_exact_softmax_posterior(likelihood, bound, noise):
    rows, prior = problem("iris", 10.0, n=150, m=15)
    site = record_of(likelihood, bound).site(rows.n_latents, noise)
    options = Options(learn_inducing=False, tol=1e-5, max_iter=100, history=History())
    starts = starting_posterior(rows, None, prior, site), exact_softmax(rows, prior)
    bounds = [profile(rows, start, site, options).point.elbo for start in starts]
    assert bounds[0] == pytest.approx(bounds[1], rel=0.01)


@pytest.mark.parametrize(
    ("n", "variance", "length_scale", "loss"),
    [(200, 300.0, 4.0, 0.01), (250, 1000.0, 4.0, 0.007), (400, 300.0, 4.0, 0.003)],
)
def test_logistic_softmax_takes_the_better_of_two_starts(n, variance, length_scale, loss):
    """Where the updates of softmax's bound alone lead to an optimum at which the classes are more alike."""
    rows, prior = problem("digits", variance, n, length_scale=length_scale)
    site = record_of("logistic-softmax", "polya-gamma").site(rows.n_latents)
    at_prior = prior.at_prior(rows.n_latents)
    first = coordinate_ascent(rows, at_prior, start_site(site), tol=0.0, max_iter=START_UPDATES, history=History())
    single = ascended(rows, first.q, site).elbo
    other = ascended(rows, exact_softmax(rows, prior), site).elbo
    best = ascended(rows, starting_posterior(rows, None, prior, site), site).elbo
    assert single < other - loss * abs(other)
    assert best > max(single, other) - 0.001 * abs(other)


def test_a_previous_posterior_is_kept_as_the_start():
    rows, prior = problem("iris", 10.0)
    site = record_of("logistic-softmax", "polya-gamma").site(rows.n_latents)
    q = exact_softmax(rows, prior)
    assert starting_posterior(rows, q, prior, site) is q
