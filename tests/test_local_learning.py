"""Learning with neighbours: the held-out score's gradient, what is decided, and what a fit with them keeps."""

import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import norm, sem
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit, TimeSeriesSplit
from support import fits
from support.dense import derivative, differences
from support.fits import losses, refuses, rows_of
from support.internals import LOG_SCALE_SPREAD, WORST_SCORE, converged_sites, inverse_diagonal
from support.local import KERNELS, Problem, three_classes
from support.reference import checkerboard, moons
from support.training import rebuilt

from xgpc import GPClassifier, _sites

fit = partial(fits.fit, n_inducing=16)


def score_of(kernel, link="logit", weighted=False, n=150, n_held_out=60, k=8, tol=1e-10):
    """Held-out rows beside a problem's rows, with sites that have converged at its kernel."""
    rng = np.random.default_rng(5)
    weight, of_held_out = (np.exp(rng.normal(size=size)) if weighted else None for size in (n, n_held_out))
    problem = Problem(kernel, n=n, m=6, k=k, name=link, weight=weight)
    problem.swept(tol)
    T = rng.normal(size=(n_held_out, 2))
    two = np.where(np.sin(3.0 * T[:, 0]) + 0.5 * rng.normal(size=n_held_out) > 0.0, 1.0, -1.0)
    return problem, problem.score_of(T, three_classes(T) if link == "softmax" else two, of_held_out)


TWO = [(name, *case) for name in KERNELS for case in (("logit", False), ("probit", False), ("logit", True))]


@pytest.mark.parametrize(
    ("name", "link", "weighted"), [*TWO, *product(["rbf", "sum", "white"], ["softmax"], [False, True])]
)
def test_gradient_is_that_of_the_score(name, link, weighted):
    """Of several classes it is that of the expectations; differences are of their quadrature, good to about 1e-6."""
    problem, score = score_of(KERNELS[name], link, weighted, tol=1e-3)
    theta = problem.prior.spec.theta
    point = np.append(theta + 0.2 * np.random.default_rng(1).normal(size=len(theta)), -0.4)
    # Short steps: the logistic mixture jumps by its error, 1e-8, where a row's mean passes minus half of its variance.
    step, rtol, atol = (1e-3, 1e-5, 1e-6) if link == "softmax" else (2e-4, 1e-6, 1e-8)
    expected = differences(lambda at: score.at(at).scores.mean, point, step)
    assert_allclose(score.at(point).gradient(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ["rbf", "matern-1/2", "sum"])
@pytest.mark.parametrize("link", _sites.LINKS)
def test_gradient_is_nearly_that_of_the_score_with_converged_sites(name, link):
    """One sweep tells how the sites move with the kernel, but for what further sweeps would add."""
    problem, score = score_of(KERNELS[name], link)
    theta = problem.prior.spec.theta

    def converged(theta):
        problem.prior = rebuilt(problem.prior, theta)
        sweeps = converged_sites(problem.local, problem.sites, 1e-10)
        assert sweeps.converged
        return replace(score, sites=sweeps.sites).at(np.append(theta, 0.0)).scores.mean

    expected = differences(converged, theta, 1e-3)
    error = np.linalg.norm(score.at(np.append(theta, 0.0)).gradient()[:-1] - expected)
    assert error < 0.05 * np.linalg.norm(expected)


def test_scores_have_the_order_of_the_held_out_rows():
    problem, score = score_of(KERNELS["rbf"], weighted=True)
    rows = np.random.default_rng(2).permutation(score.held_out.n_rows)
    other = replace(score, held_out=score.held_out.sample(rows), held_out_index=score.held_out_index[rows])
    point = np.append(problem.prior.spec.theta, 0.1)
    evaluated, permuted = score.at(point), other.at(point)
    assert_allclose(permuted.scores.values, evaluated.scores.values[rows], rtol=1e-12)
    assert np.array_equal(permuted.scores.weight, evaluated.scores.weight[rows])
    assert_allclose(permuted.gradient(), evaluated.gradient(), rtol=1e-10)


@pytest.mark.parametrize("deciding_rows", [131_072, 3000])
def test_neighbours_are_taken_where_classes_change_quickly(deciding_rows, tuned):
    tuned(learned_rows=deciding_rows)
    X, y = checkerboard(4000, 0)
    T, t = checkerboard(2000, 1)
    model = fit(X, y, n_inducing=32)
    assert model.n_neighbors_ == 24
    assert model.decisions_[-1].startswith("Taken: 24 neighbours of each row beside ")
    # The rows of the first comparison, and the tenth that was kept apart, decide together.
    first, last = (int(re.search(r"probability of (\d+)", text)[1]) for text in model.decisions_ if "24 neigh" in text)
    assert last == first + 400
    loss = losses(model, T, t)
    assert loss.mean() < 0.5 * losses(fit(X, y, n_inducing=32, n_neighbors=0), T, t).mean()
    # The score of the rows that were kept apart is what fresh rows have.
    score, error = model.held_out_score_
    assert score == rows_of(model, "decision")["held_out_score"][-1]
    assert abs(loss.mean() + score) < 3.0 * np.hypot(error, sem(loss))
    assert len(model.posterior_.X) == 4000


def test_a_given_number_of_neighbours_may_have_more_points():
    """Also beside the kernel that learning without neighbours has found, which such a fit may keep."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 3))
    latent = 3.0 * np.sin(1.5 * X[:, 0]) * np.cos(1.5 * X[:, 1]) + X[:, 2]
    model = GPClassifier(n_neighbors=24, random_state=0).fit(X, latent + rng.logistic(size=1200) > 0.0)
    assert any("128 inducing points in place of 64 beside neighbours" in text for text in model.decisions_)


@pytest.mark.parametrize(("n_rows", "cells"), [(1000, 6), (2500, 12)])
def test_neighbours_are_left_out_where_classes_are_smooth(n_rows, cells):
    X, y = checkerboard(n_rows, 0, cells, noise=0.0)
    local, smooth = fit(X, y, n_inducing=20), fit(X, (X[:, 0] > 0.5).astype(int), n_inducing=20)
    assert local.n_neighbors_ == 24
    assert smooth.n_neighbors_ == 0
    assert any(text.startswith("Not taken: 24 neighbours") for text in smooth.decisions_)
    # A user who gives a kernel for few rows pays for no comparison.
    assert (fit(X, y, n_inducing=20, kernel=C() * RBF()).n_neighbors_ == 24) == (n_rows >= 2000)


def test_repeated_rows_count_for_neighbours():
    """Labels of new rows are noise, but rows that repeat a training row have its label: neighbours know these rows."""
    rng = np.random.default_rng(0)
    places, labels = rng.normal(size=(4000, 2)), rng.integers(0, 2, 4000)
    seen, new = rng.integers(0, 4000, 2600), rng.integers(0, 4000, 2000)
    model = fit(places[seen], labels[seen])
    assert 0.2 < 1.0 - len(np.unique(seen)) / 2600 < 0.3
    assert model.n_neighbors_ == 24
    loss = losses(model, places[new], labels[new])
    is_repeated = np.isin(new, seen)
    assert loss[is_repeated].mean() < 0.1
    assert abs(loss[~is_repeated].mean() - np.log(2.0)) < 0.05


def test_kernels_of_the_first_round_take_turns():
    """A rough kernel, a smooth and an axis-aligned one, the rough one again: the turns have raised its variance."""
    model = fit(*checkerboard(4000, 0), n_inducing=32)
    turns = model.history_["evaluations"] > 0
    learned, n_rows = (model.history_[name][turns] for name in ("learned_score", "n_rows"))
    assert len(learned) == 5
    assert len(set(n_rows[:4])) == 1
    assert learned[3] > learned[0]


@pytest.mark.parametrize("n_neighbors", ["auto", 24])
def test_random_labels_are_not_predicted(n_neighbors):
    """Nothing leaks: neither held_out nor rows of the decision are better known than fresh rows."""
    rng = np.random.default_rng(1)
    X, T = rng.normal(size=(2100, 2)), rng.normal(size=(3000, 2))
    y, t = rng.integers(0, 2, 2100), rng.integers(0, 2, 3000)
    model = fit(X, y, n_neighbors=n_neighbors)
    loss = losses(model, T, t)
    assert np.log(2.0) - 2.0 * sem(loss) < loss.mean() < np.log(2.0) + 0.05
    if model.held_out_score_ is not None:
        score, error = model.held_out_score_
        assert score < -np.log(2.0) + 3.0 * error


def test_rows_of_a_group_do_not_predict_each_other():
    """Those of a group are near and have one label at random: without groups their neighbours give it away."""
    rng = np.random.default_rng(1)
    centres, labels = rng.normal(size=(150, 3)), rng.integers(0, 2, 150)
    groups = np.repeat(np.arange(150), 5)
    X, y = centres[groups] + 0.02 * rng.normal(size=(750, 3)), labels[groups]
    blind, warned = (fit(X, y, n_neighbors=8, length_scale_prior=None, groups=known) for known in (None, groups))
    assert blind.held_out_score_[0] > -0.15
    # Labels of some forty groups: their mean is no better than a coin's by more than so much. It may be worse, as the
    # kernel that is learned without neighbours is told of no groups.
    assert -0.3 < warned.held_out_score_[0] + np.log(2.0) < 0.15


class Splitting(KFold):
    """Four folds whose two sides a function changes."""

    def __init__(self, change):
        super().__init__(4)
        self.change = change

    def split(self, X, y=None, groups=None):
        yield from (self.change(*sides) for sides in super().split(X, y, groups))


TWICE = r"cannot divide 60 rows: .* each row once, .* it gave row \d+ more than once"
BAD = {
    "a negative number": ({"n_neighbors": -1}, "n_neighbors must be"),
    "a fraction": ({"n_neighbors": 2.5}, "n_neighbors must be"),
    "truth": ({"n_neighbors": True}, "n_neighbors must be"),
    "another bound": ({"bound": "polya-gamma"}, "n_neighbors=5 .* bound 'exact'.*'auto', or give 0"),
    "another likelihood": ({"likelihood": "svm"}, "n_neighbors=5 .*'svm' with bound 'exact'"),
    "kernels of classes": ({"likelihood": "softmax", "share": "none"}, "n_neighbors=5 .*share='kernel'"),
    "no inducing points": ({"inducing_points": "all"}, "n_neighbors=5 .*inducing points"),
    "no splitter": ({"held_out_split": 5}, "held_out_split must be an object with the methods"),
    "a class": ({"held_out_split": TimeSeriesSplit}, "held_out_split must be .*an instance, not the class"),
    "too many folds": ({"held_out_split": TimeSeriesSplit(100)}, "number of folds=101"),
    "no groups": ({"held_out_split": GroupKFold(3)}, "groups"),
    "rows on both sides": ({"held_out_split": Splitting(lambda a, b: (np.append(a, b), b))}, "held_out_split"),
    "a row twice": ({"held_out_split": Splitting(lambda a, b: (a, np.append(b, b[-1])))}, TWICE),
    "a row twice to learn from": ({"held_out_split": Splitting(lambda a, b: (np.append(a, a[-1]), b))}, "than once"),
    "a mask": ({"held_out_split": Splitting(lambda a, b: (np.isin(np.arange(60), a), b))}, "np.flatnonzero"),
    "other rows": ({"held_out_split": Splitting(lambda a, b: (a, b + 60))}, "from 0 to 59"),
    "three sides": ({"held_out_split": Splitting(lambda a, b: (a, b, b))}, "a pair of arrays"),
    "another number of rows": ({"held_out_split": PredefinedSplit(np.arange(20) % 3)}, "it divides 20 rows"),
    "a single row": ({"held_out_split": Splitting(lambda a, b: (a[:1], b))}, "held_out_split"),
    "groups of other rows": ({"groups": np.zeros(59)}, "groups must have one value for each of the 60 rows"),
    "one group": ({"groups": np.zeros(60)}, "need two rows or groups"),
    "mixed groups": ({"groups": np.array(["a", 1] * 30, dtype=object)}, "groups must be all numbers or all strings"),
    "NaN": ({"groups": np.repeat([1.0, 2.0, np.nan], [28, 28, 4])}, "groups has 4 missing values, the first in row 56"),
    "None": ({"groups": np.array(["a"] * 56 + [None] * 4, dtype=object)}, "groups has 4 missing values"),
}


@pytest.mark.filterwarnings("ignore:groups are all")
@pytest.mark.parametrize("kind", BAD)
def test_what_neighbours_cannot_be_learned_with_leaves_the_model_as_it_was(kind):
    X, y = moons(60)
    options, reason = dict(BAD[kind][0]), BAD[kind][1]
    groups = options.pop("groups", None)
    model = fit(X, y, n_neighbors=0, max_iter=2, optimizer=None)
    model.set_params(**{"n_neighbors": 5, "optimizer": "profile", **options})
    refuses(reason, model.fit, X, y, groups=groups)


def test_mini_batches_have_no_neighbours_and_say_so():
    X, y = checkerboard(2100, 0)
    params = {"batch_size": 200, "max_iter": 2, "optimizer": None}
    models = [fit(X, y, **params)]
    told = r"n_neighbors=5 is not followed.*mini-batches.*leave batch_size=None"
    with pytest.warns(UserWarning, match=told) as caught:
        models.append(fit(X, y, n_neighbors=5, **params))
    # By fit's caller, here in a helper of the tests.
    assert [one.filename.rpartition("/")[2] for one in caught] == ["fits.py"]
    for model in models:
        assert model.n_neighbors_ == 0
        assert any("mini-batches" in decision for decision in model.decisions_)
    # A batch of all rows is no mini-batch, and 0 is what it says.
    assert fit(X[:60], y[:60], n_neighbors=5, batch_size=60, max_iter=2, optimizer=None).n_neighbors_ == 5
    assert fit(X, y, n_neighbors=0, **params).n_neighbors_ == 0


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_few_rows(n):
    """Down to one that asks and one that answers, which has no neighbours."""
    X, y = np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 2
    model = fit(X, y, n_neighbors=3)
    # A new row may have all training rows for neighbours.
    assert model.n_neighbors_ == min(3, n)
    assert np.all(np.isfinite(model.predict_log_proba(X)))
    # The score of a single row has no standard error.
    assert np.isfinite(model.held_out_score_).tolist() == [True, n >= 4]


def draw(kernel, n, n_fresh, seed):
    """Rows in a square, latent values of the process, labels; the rows to learn from, and fresh ones."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n + n_fresh, 2))
    K = kernel(X)
    f = np.linalg.cholesky(K + 1e-8 * K[0, 0] * np.eye(len(X))) @ rng.normal(size=len(X))
    y = (rng.random(len(X)) < expit(f)).astype(int)
    return (X[:n], y[:n]), (X[n:], y[n:], f[n:])


@pytest.mark.parametrize("n_inducing", [16, 64])
@pytest.mark.parametrize("variance", [4.0, 100.0])
@pytest.mark.parametrize("shape", [RBF(0.1), Matern(0.2, nu=1.5)], ids=str)
def test_intervals_cover_what_they_say(shape, variance, n_inducing):
    """Intervals of 95 % probability for fresh latent values. With each row's residual integrated out by itself, as if
    it said of the inducing points what no other row says, those of variance 100 and 16 points covered .87."""
    kernel, covered = C(variance) * shape, []
    for seed in range(4):
        (X, y), (T, _, f) = draw(kernel, 500, 300, seed)
        model = fit(X, y, kernel=kernel, optimizer=None, n_inducing=n_inducing, n_neighbors=24)
        mean, variance = model.predict_latent(T)
        covered.append(np.abs(mean - f) < 1.96 * np.sqrt(variance))
    assert np.mean(covered) >= 0.92


def test_more_neighbours_come_near_the_full_process():
    """Without inducing points of use; the last has all rows as neighbours."""
    kernel, sizes = C(9.0) * RBF(0.15), (1, 4, 16, 79)
    found, far = [], [{"n_neighbors": k, "inducing_points": np.full((1, 2), 1e4)} for k in sizes]
    for seed in range(20):
        (X, y), (T, t, _) = draw(kernel, 80, 200, seed)
        models = [fit(X, y, kernel=kernel, optimizer=None, **params) for params in (*far, {"inducing_points": "all"})]
        found.append([losses(model, T, t).mean() for model in models])
    steps = np.diff(found, axis=1)
    mean, error = steps.mean(axis=0), steps.std(axis=0, ddof=1) / np.sqrt(20)
    assert np.all(mean[:-1] < 2.0 * error[:-1])
    # The full process is fitted to the variational bound.
    assert abs(mean[-1]) < 0.002 + 2.0 * error[-1]
    assert np.mean(found, axis=0)[0] > np.mean(found, axis=0)[-1] + 0.02


def test_learning_steps_back_from_what_overflows():
    """A kernel so large that nothing can be factorised ends an iteration, not the fit."""
    _, score = score_of(KERNELS["rbf"], tol=1e-3)
    with np.errstate(all="ignore"):
        value, gradient, scores = score.objective(np.array([700.0, 0.0, 0.0, 0.0]))
    assert value == -WORST_SCORE == -scores.mean
    assert np.array_equal(gradient, np.zeros(4))


def test_the_factor_of_the_variances_has_a_normal_prior_for_its_logarithm():
    problem, score = score_of(KERNELS["rbf"], tol=1e-3)
    point = np.append(problem.prior.spec.theta, -0.7)
    value, gradient, _ = score.objective(point)
    prior = norm(scale=LOG_SCALE_SPREAD)
    n = score.held_out.n_rows
    assert value == pytest.approx(-score.at(point).scores.mean - (prior.logpdf(-0.7) - prior.logpdf(0.0)) / n)
    by_prior = np.append(np.zeros(len(point) - 1), derivative(lambda h: prior.logpdf(-0.7 + h), 1e-3) / n)
    assert_allclose(gradient, -score.at(point).gradient() - by_prior, rtol=1e-9)


@pytest.mark.parametrize("n_steps", [0, 1, 4])
def test_the_optimizers_units_are_those_of_its_updates(n_steps):
    """The diagonal of BFGS's dense updates of the identity, one after the other."""
    rng = np.random.default_rng(0)
    root, steps, inverse = rng.normal(size=(6, 6)), rng.normal(size=(n_steps, 6)), np.eye(6)
    changes = steps @ (root @ root.T)
    for s, y in zip(steps, changes, strict=True):
        back = np.eye(6) - np.outer(s, y) / (s @ y)
        inverse = back @ inverse @ back.T + np.outer(s, s) / (s @ y)
    assert_allclose(inverse_diagonal(steps, changes), np.diag(inverse), rtol=1e-9)
