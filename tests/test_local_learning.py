"""Learning with neighbours: the query score's gradient, what is decided, and what a fit with them keeps."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.model_selection import GroupKFold, TimeSeriesSplit
from support.fits import quietly, rows_of
from support.gradients import derivative
from support.local import KERNELS, Problem
from support.reference import moons

from xgpc import GPClassifier, _local
from xgpc.approximations.local import local_rows, predicted
from xgpc.inference.local_sites import converged_sites, start_sites
from xgpc.learning.query_score import QueryScore, standard_error
from xgpc.rows.source import ArraySource


def score_of(kernel, link="logit", weighted=False, n=150, n_queries=60, k=8, tol=1e-10):
    """Query rows beside a problem's rows, with sites that have converged at its kernel."""
    rng = np.random.default_rng(5)
    weight = np.exp(rng.normal(size=n)) if weighted else None
    problem = Problem(kernel, n=n, m=6, k=k, link=link, weight=weight)
    sweeps = converged_sites(problem.executor, problem.local, start_sites(problem.source), tol, 1000)
    assert sweeps.converged
    problem.sites = sweeps.sites
    T = rng.normal(size=(n_queries, 2))
    y = np.where(np.sin(3.0 * T[:, 0]) + 0.5 * rng.normal(size=n_queries) > 0.0, 1.0, -1.0)
    queries = ArraySource(T, y, np.exp(rng.normal(size=n_queries)) if weighted else np.empty(0))
    index = problem.neighbourhoods(T).index
    score = QueryScore(
        problem.executor, problem.prior, problem.source, queries, problem.index, index, problem.sites, problem.link
    )
    return problem, score


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(("link", "weighted"), [("logit", False), ("probit", False), ("logit", True)])
def test_gradient_is_that_of_the_score(kernel, link, weighted):
    problem, score = score_of(kernel, link, weighted, tol=1e-3)
    rng = np.random.default_rng(1)
    theta = problem.prior.spec.theta + 0.2 * rng.normal(size=len(problem.prior.spec.theta))
    gradient = score.at(theta).gradient()
    expected = [
        derivative(lambda h, step=step: score.at(theta + h * step).scores.mean, 1e-3) for step in np.eye(len(theta))
    ]
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["rbf", "matern-1/2", "sum"])
@pytest.mark.parametrize("link", _local.LINKS)
def test_gradient_is_nearly_that_of_the_score_with_converged_sites(name, link):
    """One sweep tells how the sites move with the kernel, but for what further sweeps would add."""
    problem, score = score_of(KERNELS[name], link)
    theta = problem.prior.spec.theta

    def converged(theta):
        spec = problem.prior.spec.with_theta(theta)
        prior = problem.prior.rebuilt([spec], problem.prior.Z)
        rows = local_rows(problem.executor, prior, problem.source)
        local = replace(problem.local, core=prior.core, rows=rows)
        sweeps = converged_sites(problem.executor, local, problem.sites, 1e-10, 1000)
        assert sweeps.converged
        return replace(score, sites=sweeps.sites).at(theta).scores.mean

    expected = np.array([(converged(theta + h) - converged(theta - h)) / 2e-3 for h in 1e-3 * np.eye(len(theta))])
    error = np.linalg.norm(score.at(theta).gradient() - expected)
    assert error < 0.05 * np.linalg.norm(expected)


def test_scores_are_weighted_means():
    problem, score = score_of(KERNELS["rbf"], weighted=True)
    scores, at = score.at(problem.prior.spec.theta).scores, problem.neighbourhoods(score.queries.X)
    mean, variance = predicted(problem.executor, at)
    values = _local.cavity_scores(problem.link, mean[0], variance[0], score.queries.y)[0]
    # At converged sites another sweep changes nothing.
    assert_allclose(scores.values, values, rtol=1e-7, atol=1e-9)
    w = score.queries.weight
    assert scores.mean == pytest.approx(w @ values / w.sum())


def test_standard_error_of_equal_weights_is_that_of_the_mean():
    values = np.random.default_rng(0).normal(size=50)
    for factor in (1.0, 7.0):
        expected = values.std(ddof=1) / np.sqrt(50)
        assert standard_error(values, np.full(50, factor)) == pytest.approx(expected)
    assert standard_error(values[:1], np.ones(1)) == 0.0


# Fits.

ROWS, LABELS = moons(300)
FRESH, _ = moons(80, seed=1)
SMALL = {"n_inducing": 8, "random_state": 0}


def small(X=ROWS, y=LABELS, groups=None, sample_weight=None, **params):
    model = GPClassifier(**{**SMALL, "n_neighbors": 10, **params})
    return quietly(model, X, y, groups=groups, sample_weight=sample_weight)


@pytest.fixture(scope="module")
def fitted():
    return small()


def bits(model, X=FRESH):
    mean, covariance = model.predict_latent(X, return_cov=True)
    parts = [model.predict_proba(X), *model.predict_latent(X), mean, covariance]
    return [part.tobytes() for part in parts], str(model.kernel_), model.elbo_, model.query_score_


def nll(model, X, y):
    """Of rows, in nats."""
    return -model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]


def decision_of(model):
    return str(rows_of(model, "decision")["decision"][-1])


def test_a_fit_has_neighbours(fitted):
    local = fitted.local_posterior_
    assert fitted.n_neighbors_ == local.n_neighbors == 10
    assert np.array_equal(local.X, ROWS)
    assert local.prior is fitted.posterior_.prior or str(local.prior.spec.kernel) == str(fitted.kernel_)
    mean, variance = local.marginals(FRESH)
    assert np.array_equal([mean, variance], fitted.predict_latent(FRESH))
    score, error = fitted.query_score_
    assert -np.log(2.0) < score < 0.0
    assert error > 0.0
    assert fitted.score(FRESH, moons(80, seed=1)[1]) > 0.9


def test_given_rows_stay_the_users():
    """They can be written to, and what is written does not change the model."""
    X = ROWS.copy()
    model = small(X)
    before = bits(model)
    X[:] = 0.0
    assert bits(pickle.loads(pickle.dumps(model))) == bits(model) == before
    with pytest.raises(ValueError, match="read-only"):
        model.local_posterior_.X[0] = 0.0


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_any_number_of_threads_gives_the_same_bits(likelihood):
    """In several blocks of rows, with rows at equal distances."""
    rng = np.random.default_rng(0)
    X = np.round(2.0 * rng.normal(size=(2500, 6)))
    y = (np.sin(X[:, 0]) + X[:, 1] + rng.normal(size=2500) > 0.0).astype(int)
    one, two = (small(X, y, likelihood=likelihood, n_jobs=n_jobs, max_iter=3) for n_jobs in (1, 2))
    assert one.n_neighbors_ == 10
    assert bits(one, X[:200]) == bits(two, X[:200])
    for n_jobs in (2, 3):
        one.set_params(n_jobs=n_jobs)
        assert np.array_equal(one.predict_proba(X), two.predict_proba(X))


def test_copies_and_pickles(fitted):
    assert bits(pickle.loads(pickle.dumps(fitted))) == bits(fitted)
    parameters = {"n_neighbors": 7, "query_split": GroupKFold(3)}
    copied = clone(GPClassifier(**parameters))
    assert copied.get_params()["n_neighbors"] == 7
    assert copied.get_params()["query_split"].n_splits == 3
    assert bits(quietly(clone(fitted), ROWS, LABELS)) == bits(fitted)


def test_files(fitted, tmp_path):
    """The same bits; with rows in half the space nearly the same."""
    names = {None: "whole.npz", "float32": "half.npz"}
    sizes = {}
    for dtype, name in names.items():
        fitted.save(tmp_path / name, dtype)
        sizes[dtype] = np.load(tmp_path / name)["rows"].nbytes
    loaded, half = (GPClassifier.load(tmp_path / name) for name in names.values())
    assert bits(loaded) == bits(fitted)
    assert loaded.n_neighbors_ == half.n_neighbors_ == 10
    assert sizes["float32"] == sizes[None] / 2
    assert half.local_posterior_.X.dtype == np.float32
    assert_allclose(half.predict_proba(FRESH), fitted.predict_proba(FRESH), atol=1e-4)
    with pytest.raises(ValueError, match="rows_dtype must be"):
        fitted.save(tmp_path / "whole.npz", "float16")


def test_files_lose_splitters_alone(tmp_path):
    model = small(query_split=TimeSeriesSplit(4))
    model.save(tmp_path / "model.npz")
    loaded = GPClassifier.load(tmp_path / "model.npz")
    assert loaded.query_split is None
    assert bits(loaded) == bits(model)


@pytest.mark.parametrize("layout", ["columns", "every other", "list"])
def test_any_layout_of_the_rows(layout, fitted):
    layouts = {
        "columns": np.asfortranarray(ROWS),
        "every other": np.repeat(np.repeat(ROWS, 2, axis=0), 2, axis=1)[::2, ::2],
        "list": ROWS.tolist(),
    }
    assert bits(small(layouts[layout])) == bits(fitted)
    assert np.array_equal(fitted.predict_proba(np.asfortranarray(FRESH)), fitted.predict_proba(FRESH))


GIVEN = {"kernel": C(4.0) * RBF(0.5), "optimizer": None}


def test_rows_of_single_precision_stay_so():
    single, double = small(ROWS.astype(np.float32), **GIVEN), small(**GIVEN)
    assert single.local_posterior_.X.dtype == np.float32
    assert double.local_posterior_.X.dtype == np.float64
    assert_allclose(single.predict_proba(FRESH), double.predict_proba(FRESH), atol=1e-4)
