"""Learning with neighbours: a kernel by the score of query rows, and whether it is better than without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, Product

from ..approximations.base import KernelPosterior
from ..approximations.local import (
    LocalPosterior,
    Sites,
    local_rows,
    metric,
)
from ..approximations.sparse import SparsePrior
from ..inference.history import History
from ..inference.links import Link
from ..inference.local_sites import Local, Sweeps, converged_sites, start_sites
from ..kernels.spec import KernelSpec
from ..rows.executor import Executor
from ..rows.neighbours import Neighbours
from ..rows.source import ArraySource, labels_and_weights
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
# L-BFGS ends a round where an iteration raises the score by less than this share of it.
STOP = {"ftol": 1e-5}
# Most that the logarithm of a parameter changes in a round: the sites are those of one sweep from its start.
MAX_STEP = 3.0
# Smoothness of the kernels that are tried in place of the default one. Where classes change quickly they are rough:
# electricity ends at .110 with 1/2, .161 with 3/2 and .190 with RBF, covtype at .167, .153 and .157. More rows help the
# rougher one more (cod-rna: .085 against .084 with 8000 of 294 000 rows, .067 against .092 with all): for each doubling
# of the rows that are to come the smoother one must be better by so many paired standard errors in the first round.
ROUGHNESS = (0.5, 1.5)
ERRORS_PER_DOUBLING = 0.5


@dataclass(frozen=True)
class Task:
    """Rows to learn from with their neighbours.

    Attributes
    ----------
    source : labels as the link takes them, weights
    link : Link
    n_latents : int or None, number of latent functions; None: one
    n_neighbors : int
    queries : Queries
    """

    executor: Executor
    source: ArraySource
    link: Link
    n_latents: int | None
    n_neighbors: int
    queries: Queries
    history: History


@dataclass(frozen=True)
class Learnt:
    """A kernel, and sites of all rows as far as they have been looked at.

    Attributes
    ----------
    scores, learned : of the last round's query rows, before and after the kernel was fitted to them
    """

    prior: SparsePrior
    sites: Sites
    scores: Scores
    learned: Scores
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
    nothing, first_iter = Scores(np.empty(0), np.empty(0)), min(max_iter, ROUNDS[0][1])
    support, asked = task.queries.draw(0, ROUNDS[0][0])

    def begin(spec: KernelSpec, n_iter: int) -> Learnt:
        start = Learnt(prior.rebuilt([spec], prior.Z), start_sites(task.source, task.link), nothing, nothing, 0)
        return _round(task, start, support, asked, n_iter)

    spec = prior.spec
    if max_iter and begin(first, 0).learned.mean > begin(spec, 0).learned.mean:
        spec = first
    tried = [begin(KernelSpec(kernel, spec.n_features), first_iter) for kernel in candidates(spec.kernel, is_default)]
    best = tried[0]
    asked_errors = ERRORS_PER_DOUBLING * np.log2(task.source.n_rows / (len(support) + len(asked)))
    for other in tried[1:]:
        gains = other.learned.values - best.learned.values
        if np.average(gains, weights=best.learned.weight) > asked_errors * standard_error(gains, best.learned.weight):
            best = other
    for number, (size, iterations) in enumerate(ROUNDS[1:], 1):
        if best.learned.mean - best.scores.mean < LEAST_GAIN:
            break
        best = _round(task, best, *task.queries.draw(number, size), min(max_iter, iterations))
    return best


def _round(task: Task, start: Learnt, support: np.ndarray, asked: np.ndarray, max_iter: int) -> Learnt:
    """L-BFGS on the score of some query rows."""
    prior, k = start.prior, min(task.n_neighbors, len(support) - 1)
    rows, queries = task.source.sample(support), task.source.sample(asked)
    scale = metric(prior.core)
    near = Neighbours(rows.X * scale)
    n_threads = task.executor.n_threads
    index, query_index = near.of_rows(k, n_threads), near.of(queries.X * scale, k, n_threads)
    here = np.ascontiguousarray(start.sites[0][:, support]), np.ascontiguousarray(start.sites[1][:, support])
    local = Local(rows, prior.core, local_rows(task.executor, prior, rows), index, task.link)
    sweeps = converged_sites(task.executor, local, here)
    score = QueryScore(task.executor, prior, rows, queries, index, query_index, sweeps.sites, task.link)
    theta = prior.spec.theta
    before = learned = score.at(theta).scores
    n_iter = n_evaluations = 0
    # Of a single row there are no neighbours to learn from.
    if max_iter and k and len(theta):
        low, high = prior.spec.bounds.T
        limits = np.column_stack([np.maximum(low, theta - MAX_STEP), np.minimum(high, theta + MAX_STEP)])
        found = minimize(
            score.objective, theta, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": max_iter, **STOP}
        )
        prior = prior.rebuilt([prior.spec.with_theta(found.x)], prior.Z)
        learned, n_iter, n_evaluations = score.at(found.x).scores, found.nit, found.nfev
    task.history.add(
        n_rows=len(support) + len(asked),
        n_neighbors=k,
        sweeps=sweeps.n_sweeps,
        searches=1,
        evaluations=n_evaluations,
        query_score=before.mean,
        learned_score=learned.mean,
    )
    sites = start.sites[0].copy(), start.sites[1].copy()
    for all_rows, part in zip(sites, sweeps.sites, strict=True):
        all_rows[:, support] = part
    return Learnt(prior, sites, before, learned, start.n_iter + n_iter)


def fit_sites(task: Task, learnt: Learnt) -> tuple[LocalPosterior, Sweeps]:
    """The local posterior of all rows."""
    prior, source = learnt.prior, task.source
    k = min(task.n_neighbors, source.n_rows - 1)
    near = Neighbours(source.X * metric(prior.core))
    rows = local_rows(task.executor, prior, source)
    local = Local(source, prior.core, rows, near.of_rows(k, task.executor.n_threads), task.link)
    sweeps = converged_sites(task.executor, local, learnt.sites)
    # A copy: it keeps its rows, read-only, whatever their owner does with the given ones.
    X = np.array(source.X, order="C")
    return LocalPosterior.from_fit(prior, X, sweeps.sites, k, task.n_latents, rows, near), sweeps


@dataclass(frozen=True)
class Decision:
    """Whether neighbours are taken, and by what.

    Attributes
    ----------
    gain : float, of the mean log probability, in nats
    local : Scores, with neighbours
    """

    is_local: bool
    gain: float
    reason: str
    local: Scores


def decide(local: LocalPosterior, sparse: KernelPosterior, source: ArraySource, task: Task) -> Decision:
    """Neighbours, if the rows of ``source``, which neither has seen, are more likely by over one standard error, and by
    what a round must gain: neighbours cost time and memory."""
    y, weight = labels_and_weights(source)
    marginals = (map(np.atleast_2d, q.marginals(source.X, task.executor.n_threads)) for q in (local, sparse))
    with_neighbours, without = (task.link.scores(mean, variance, y)[0] for mean, variance in marginals)
    gains = with_neighbours - without
    mean, error = float(np.average(gains, weights=weight)), standard_error(gains, weight)
    is_local = mean > max(error, LEAST_GAIN)
    reason = (
        f"{local.n_neighbors} neighbours change the mean log probability of {len(gains)} rows kept apart by "
        f"{mean:.3g} with a standard error of {error:.2g}, against {sparse.prior.n_inducing} inducing points alone: "
        f"{'taken' if is_local else 'left'}"
    )
    return Decision(is_local, mean, reason, Scores(with_neighbours, weight))
