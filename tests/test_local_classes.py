"""Neighbours with several classes: softmax's variational sites."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from support.fits import quietly
from support.full import full_prior, labelled
from support.gradients import derivative
from support.internals import (
    ArraySource,
    History,
    KernelSpec,
    Local,
    Neighbourhoods,
    Neighbours,
    QueryScore,
    Softmax,
    SparsePrior,
    Threads,
    converged_sites,
    coordinate_ascent,
    in_order,
    local_rows,
    predicted,
    start_sites,
)
from support.local import KERNELS
from support.reference import moons
from support.training import training

from xgpc import GPClassifier
from xgpc.likelihoods import record_of


def three_classes(X):
    return np.floor(1.5 + 1.49 * np.sin(3.0 * X[:, 0]))


def score_of(kernel, weighted):
    rng = np.random.default_rng(0)
    k, executor, link = 8, Threads(1), Softmax.of(3)
    X, asked = rng.normal(size=(150, 2)), rng.normal(size=(50, 2))
    weight = rng.gamma(2.0, 1.0, len(X)) if weighted else np.empty(0)
    prior = SparsePrior.build(KernelSpec(kernel, 2), rng.normal(size=(6, 2)))
    near, source = Neighbours(X), ArraySource(X, three_classes(X), weight)
    local = Local(executor, source, prior.core, local_rows(executor, prior, X), *in_order(near.of_rows(k)), link)
    sweeps = converged_sites(local, start_sites(source, link))
    assert sweeps.converged
    queries = ArraySource(asked, three_classes(asked), weight[: len(asked)])
    among = local.index, local.n_earlier, near.of(asked, k)
    score = QueryScore(executor, prior, source, queries, *among, sweeps.sites, link)
    return np.append(prior.spec.theta, -0.4), score


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["rbf", "sum", "white"])
def test_gradient_is_that_of_the_score(name, weighted):
    point, score = score_of(KERNELS[name], weighted)
    expected = [
        derivative(lambda h, step=step: score.at(point + h * step).scores.mean, 1e-3) for step in np.eye(len(point))
    ]
    # The gradient is that of the expectations; differences are of their quadrature, good to about 1e-6.
    assert_allclose(score.at(point).gradient(), expected, rtol=1e-5, atol=1e-6)


def test_scores_and_sites_are_expectations_over_the_latent_values():
    """Against a hundred thousand draws, within four standard errors."""
    rng = np.random.default_rng(1)
    mean, variance, y = rng.normal(size=(4, 5)), rng.gamma(1.0, 0.3, (4, 5)), rng.integers(0, 4, 5).astype(float)
    values = mean[..., None] + np.sqrt(variance)[..., None] * rng.normal(size=(4, 5, 100_000))
    p = np.exp(values - values.max(axis=0))
    p /= p.sum(axis=0)
    link, n = Softmax.of(4), p.shape[2]

    def agrees(found, samples, nodes_error):
        error = samples.std(axis=-1) / np.sqrt(n)
        return np.all(np.abs(found - samples.mean(axis=-1)) < 4.0 * error + nodes_error)

    scores, _ = link.scores(mean, variance, y)
    assert agrees(np.exp(scores), p[y.astype(int), np.arange(5)], 5e-3)
    precision, linear = link.sites(mean, variance, y)
    assert agrees(precision, p * (1.0 - p), 5e-3)
    is_label = np.arange(4)[:, None] == y
    # Of latent values less their mean over the classes, which changes no probability.
    assert agrees(is_label - linear + precision * (mean - mean.mean(axis=0)), p, 5e-3)


# Sites.


def local_problem(kernel, X, y, Z, k, weight=None):
    """Rows with k neighbours, and a function: probabilities that sites and q(z) make at other rows."""
    executor, link = Threads(1), Softmax.of(int(y.max()) + 1)
    prior = SparsePrior.build(KernelSpec(kernel, X.shape[1]), Z)
    source, near = ArraySource(X, y.astype(float), np.empty(0) if weight is None else weight), Neighbours(X)
    rows = local_rows(executor, prior, X)
    local = Local(executor, source, prior.core, rows, *in_order(near.of_rows(min(k, len(X) - 1))), link)

    def moments_at(T, sweeps):
        of_T = local_rows(executor, prior, T)
        at = Neighbourhoods(prior.core, rows, sweeps.sites, of_T, near.of(T, min(k, len(X))))
        return predicted(executor, at, sweeps.q)

    return local, moments_at


@pytest.mark.parametrize("variance", [2.0, 1e3])
@pytest.mark.parametrize("m", [0, 6])
def test_with_all_neighbours_it_is_the_posterior_of_the_full_process(variance, m):
    """Whatever the inducing points: means and variances of the full bound's optimum."""
    X, classes = labelled(60, seed=3)
    weight, T = np.random.default_rng(0).uniform(0.3, 2.0, 60), np.random.default_rng(1).normal(size=(20, 2))
    kernel = ConstantKernel(variance) * Matern(0.8, nu=1.5)
    Z = X[:m] if m else np.full((1, 2), 1e6)
    local, moments_at = local_problem(kernel, X, classes, Z, 60, weight)
    sweeps = converged_sites(local, start_sites(local.source, local.link), 1e-7)
    assert sweeps.converged
    mean, variance_at = moments_at(T, sweeps)
    rows, site = training(X, classes.astype(float), weight, 3), record_of("softmax", "exact").site(3)
    prior = full_prior(X, [kernel])
    full = coordinate_ascent(rows, prior.at_prior(3), site, tol=1e-10, max_iter=3000, history=History()).q
    for mine, theirs in zip((mean, variance_at), full.marginals(T), strict=True):
        assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


def test_a_fit_with_a_number_of_neighbours():
    X, y = moons(300)
    y = y + (X[:, 0] > 1.0)
    model = quietly(GPClassifier(n_neighbors=5, n_inducing=10, max_iter=3, random_state=0), X, y)
    assert quietly(GPClassifier(n_inducing=10, max_iter=3, random_state=0), X, y).n_neighbors_ == 0
    assert model.n_neighbors_ == 5
    assert model.posterior_.precision.shape == (3, 300)
    mean, covariance = model.predict_latent(X[:20], return_cov=True)
    assert mean.shape == (20, 3)
    assert np.linalg.eigvalsh(np.moveaxis(covariance, -1, 0)).min() > -1e-9
    assert_allclose(np.einsum("iic->ic", covariance), model.predict_latent(X[:20])[1], rtol=1e-9)
    probabilities = model.predict_proba(X)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(probabilities.argmax(axis=1) == y) > 0.9


def fields(n, seed):
    """Three classes of the fields of a board of 6 by 6, no two alike side by side."""
    X = 6.0 * np.random.default_rng(seed).uniform(size=(n, 2))
    return X, (np.floor(X).sum(axis=1) % 3).astype(int)


def test_by_default_neighbours_are_taken_where_they_pay():
    X, y = fields(2400, 0)
    T, t = fields(1000, 1)
    model = quietly(GPClassifier(random_state=0, max_iter=30), X, y)
    assert (model.n_neighbors_, model.share_, model.inducing_points_.shape) == (24, "kernel", (32, 2))
    without = quietly(GPClassifier(n_neighbors=0, n_inducing=32, share="kernel", random_state=0, max_iter=30), X, y)
    found, otherwise = (fit.predict_log_proba(T)[np.arange(len(t)), t].mean() for fit in (model, without))
    assert found > otherwise + 0.3
