"""Learning with neighbours: a kernel by the score of query rows, and whether it is better than without."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, Product

from .. import _local
from ..approximations.base import KernelPosterior
from ..approximations.local import (
    LocalPosterior,
    Sites,
    local_rows,
    metric,
)
from ..approximations.sparse import SparsePrior
from ..inference.history import History
from ..inference.local_sites import Local, Sweeps, converged_sites, labels_and_weights, start_sites
from ..kernels.spec import KernelSpec
from ..rows.executor import Executor
from ..rows.neighbours import Neighbours
from ..rows.source import ArraySource
from .queries import Queries
from .query_score import QueryScore, Scores, standard_error

# Neighbours by default. On electricity, covtype, higgs, magic and cod-rna 16 lose up to .03 nats a row against 24, and
# 40 gain no more than they lose, in twice the time.
DEFAULT_NEIGHBORS = 24
# Rounds of learning: rows, a quarter of them queries, and iterations of L-BFGS. Each draws other rows, so that no row
# is fitted; the first tells which kernel to go on with.
ROUNDS = ((8000, 15), (8000, 15), (16_000, 12))
# Rounds end when one raised the mean score by less than this.
LEAST_GAIN = 1e-3
# Most that the logarithm of a parameter changes in a round: the sites are those of one sweep from its start.
MAX_STEP = 3.0
# Mean score that stands for one that overflows, below any other: an iteration that goes there is a step back.
WORST_SCORE = -1e3
# Smoothness of the kernels that are tried in place of the default one. Where classes change quickly they are rough:
# electricity ends at .110 with 1/2, .161 with 3/2 and .190 with RBF, covtype at .167, .153 and .157.
ROUGHNESS = (0.5, 1.5)


@dataclass(frozen=True)
class Task:
    """Rows to learn from with their neighbours.

    Attributes
    ----------
    source : labels -1 or +1, weights
    link : int, of ``_local.LINKS``
    n_neighbors : int
    queries : Queries
    """

    executor: Executor
    source: ArraySource
    link: int
    n_neighbors: int
    queries: Queries
    history: History

    @property
    def n_threads(self) -> int:
        """For searches, which are not of blocks of rows."""
        return getattr(self.executor, "n_threads", 1)


@dataclass(frozen=True)
class Learnt:
    """A kernel, sites of all rows as far as they have been looked at, and the score of fresh query rows."""

    prior: SparsePrior
    sites: Sites
    scores: Scores
    n_iter: int


def candidates(kernel: Kernel, is_default: bool) -> list[Kernel]:
    """Kernels to begin with: the given one, or rougher ones in place of the default one."""
    is_plain = type(kernel) is Product and type(kernel.k1) is ConstantKernel and type(kernel.k2) is RBF
    if not (is_default and is_plain):
        return [kernel]
    smooth = kernel.k2
    return [kernel.k1 * Matern(smooth.length_scale, smooth.length_scale_bounds, nu=nu) for nu in ROUGHNESS]


def learn_local(task: Task, prior: SparsePrior, first: KernelSpec, is_default: bool, max_iter: int) -> Learnt:
    """The kernel that predicts query rows best from their neighbours.

    Parameters
    ----------
    prior : where to begin; its inducing points stay
    first : where else: what learning without neighbours began with. Where inducing points see no structure, it ended
        with a kernel that has none, from which the score does not rise
    is_default : whether its kernel is of our choosing, and another may take its place
    max_iter : most iterations of a round; 0 learns nothing
    """
    sites, none = start_sites(task.source), Scores(np.empty(0), np.empty(0))
    support, asked = task.queries.draw(0, ROUNDS[0][0])
    begin = Learnt(prior, sites, none, 0)
    if max_iter:
        begins = [replace(begin, prior=prior.rebuilt([spec], prior.Z)) for spec in (prior.spec, first)]
        begin = max((_round(task, one, support, asked, 0)[0] for one in begins), key=lambda one: _rank(one.scores.mean))
    tried = []
    for kernel in candidates(begin.prior.spec.kernel, is_default):
        spec = KernelSpec(kernel, prior.spec.n_features)
        one = replace(begin, prior=prior.rebuilt([spec], prior.Z))
        tried.append(_round(task, one, support, asked, min(max_iter, ROUNDS[0][1])))
    best, gain = max(tried, key=lambda one: _rank(one[0].scores.mean + one[1]))
    for number, (size, iterations) in enumerate(ROUNDS[1:], 1):
        if gain < LEAST_GAIN or max_iter == 0:
            break
        best, gain = _round(task, best, *task.queries.draw(number, size), min(max_iter, iterations))
    return best


def _rank(score: float) -> float:
    return score if np.isfinite(score) else WORST_SCORE


def _round(task: Task, start: Learnt, support: np.ndarray, asked: np.ndarray, max_iter: int) -> tuple[Learnt, float]:
    """L-BFGS on the score of some query rows; by how much it has risen."""
    prior, k = start.prior, min(task.n_neighbors, len(support) - 1)
    rows, queries = task.source.sample(support), task.source.sample(asked)
    scale = metric(prior.core)
    near = Neighbours(rows.X * scale)
    index, query_index = near.of_rows(k, task.n_threads), near.of(queries.X * scale, k, task.n_threads)
    here = start.sites[0][:, support], start.sites[1][:, support]
    local = Local(rows, prior.core, local_rows(task.executor, prior, rows), index, task.link)
    sweeps = converged_sites(task.executor, local, here)
    score = QueryScore(task.executor, prior, rows, queries, index, query_index, sweeps.sites, task.link)
    evaluations: list[float] = []

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _evaluated(score, theta)
        evaluations.append(value)
        return -value, -gradient

    theta, fresh = prior.spec.theta, score.at(prior.spec.theta).scores
    # Of a single row there are no neighbours to learn from.
    if max_iter and k and len(theta):
        low, high = prior.spec.bounds.T
        limits = list(zip(np.maximum(low, theta - MAX_STEP), np.minimum(high, theta + MAX_STEP), strict=True))
        found = minimize(
            objective, theta, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": max_iter, "ftol": 1e-7}
        )
        prior, best, n_iter = prior.rebuilt([prior.spec.with_theta(found.x)], prior.Z), -float(found.fun), found.nit
    else:
        best, n_iter = fresh.mean, 0
    task.history.add(
        n_rows=len(support) + len(asked),
        n_neighbors=k,
        sweeps=sweeps.n_sweeps,
        searches=1,
        evaluations=len(evaluations),
        query_score=fresh.mean,
        learned_score=best,
    )
    sites = start.sites[0].copy(), start.sites[1].copy()
    for all_rows, part in zip(sites, sweeps.sites, strict=True):
        all_rows[:, support] = part
    gain = best - fresh.mean
    return Learnt(prior, sites, fresh, start.n_iter + n_iter), gain if np.isfinite(gain) else 0.0


def _evaluated(score: QueryScore, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean score and its gradient; without one where numbers leave the range of what can be factorised."""
    try:
        evaluated = score.at(theta)
        value, gradient = evaluated.scores.mean, evaluated.gradient()
    except ValueError:
        return WORST_SCORE, np.zeros_like(theta)
    if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
        return WORST_SCORE, np.zeros_like(theta)
    return value, gradient


def fit_sites(task: Task, learnt: Learnt) -> tuple[LocalPosterior, Sweeps]:
    """The local posterior of all rows."""
    prior, source = learnt.prior, task.source
    k = min(task.n_neighbors, source.n_rows - 1)
    near = Neighbours(source.X * metric(prior.core))
    local = Local(
        source, prior.core, local_rows(task.executor, prior, source), near.of_rows(k, task.n_threads), task.link
    )
    sweeps = converged_sites(task.executor, local, learnt.sites)
    # A copy: it keeps its rows, read-only, whatever their owner does with the given ones.
    return LocalPosterior(prior, np.array(source.X, order="C"), *sweeps.sites, k), sweeps


@dataclass(frozen=True)
class Decision:
    """Whether neighbours are taken, and by what."""

    is_local: bool
    reason: str
    local: Scores


def decide(local: LocalPosterior, sparse: KernelPosterior, source: ArraySource, task: Task) -> Decision:
    """Neighbours, if the rows of ``source``, which neither has seen, are more likely by over one standard error."""
    y, weight = labels_and_weights(source)
    with_neighbours, without = (
        _local.cavity_scores(task.link, *q.marginals(source.X, task.n_threads), y)[0] for q in (local, sparse)
    )
    gains = with_neighbours - without
    mean, error = float(np.average(gains, weights=weight)), standard_error(gains, weight)
    is_local = mean > error
    reason = (
        f"{local.n_neighbors} neighbours change the mean log probability of {len(gains)} rows kept apart by "
        f"{mean:.3g} with a standard error of {error:.2g}: {'taken' if is_local else 'left'}"
    )
    return Decision(is_local, reason, Scores(with_neighbours, weight))
