"""Whether the latent functions of several classes share a kernel: the decision of ``share="auto"``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..approximations.base import KernelPosterior, SeparatePriors
from ..inference.ascent import Point
from ..inference.history import History
from ..inference.progress import BestSoFar
from ..inference.run import Run
from ..inference.starts import starting_posterior
from ..rows.deadline import during
from ..rows.source import ArraySource, SparseSource, labels_and_weights
from .hold_out import Split
from .memory import MOST_BYTES, fit_bytes
from .paired import is_better
from .profile import Options, Outcome, profile
from .stages import MAX_MOVING, Subsets, learn_in_stages, subset_sizes
from .start import Data, HyperparameterFit, InitialState

# The bound cannot tell, with or without a price of 1/2 log n nats for each parameter more. With m = 100, one kernel and
# one for each class: page-blocks, 3000 rows, bound -383 and -331 (price 180), NLL of other rows .126 and .114; shuttle,
# 1800 rows, -79 and -51 (187), .024 and .011; digits, 1294 rows, -362 and -195 (2100), .091 and .144.
# Of fewer rows in all those that are kept apart cannot tell either.
LEAST_ROWS = 1000
# Share of all rows that is kept apart to be asked: with a fifth or less the standard error was as large as the gains.
ASKED_SHARE = 0.5
# Of the others the trial learns from so many at most, or so many for each inducing point: what costs no more than a
# part of the fit.
TRIAL_ROWS, ROWS_PER_POINT = 1500, 15
# Iterations of the trial, and most iterations of a stage after it. Most of what there is to gain comes in the first
# ten, and what comes after twenty may fit the rows alone: the gain of digits, 1092 rows, was .009, .002 and -.028 nats
# after 10, 20 and 80 evaluations, that of page-blocks .008, .009 and .005, though that of shuttle .007, .009 and .012.
TRIAL_ITERATIONS, EACH_ITERATIONS = 10, 20


def learn_without_neighbours(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """As of ``stages``; with ``share="auto"`` also whether each class has a kernel and inducing points of its own."""
    resumed = initial.resumed
    if resumed is None or not resumed.is_decided:
        return with_own_kernels(data, run, learn_in_stages(data, run, initial))
    has_own_kernels = len(resumed.q.prior.groups) > len(initial.prior.groups)
    start = replace(initial, prior=resumed.q.prior) if has_own_kernels else initial
    learned = learn_in_stages(data, run, start, EACH_ITERATIONS if has_own_kernels else None)
    return replace(learned, initial=initial)


def has_decided(initial: InitialState) -> bool:
    """Whether an earlier fit, which goes on, had decided how many kernels there are."""
    return initial.resumed is not None and initial.resumed.is_decided


def with_own_kernels(data: Data, run: Run, one: HyperparameterFit) -> HyperparameterFit:
    """``one``, which ``stages`` learned with a kernel for all classes; or what a kernel for each class comes to from
    there on, if that is to be decided (``_is_open``) and better for rows kept apart."""
    initial = one.initial
    if not (_is_open(data, initial) and _has_room(data, run, one)):
        return one
    with during("the trial of a kernel for each class"):
        each = _trial(data, run, one)
    if each is None:
        assert run.progress.latest is not None
        run.progress.decide(run.progress.latest)
        return one
    # From the first of its stages on.
    run.progress.decide(BestSoFar(each.q, each.site, n_rows=0, is_growing=bool(initial.grow_to)))
    start = replace(initial, prior=each.q.prior, previous=each.q, site=each.site, resumed=None)
    learned = learn_in_stages(data, run, start, EACH_ITERATIONS)
    return replace(learned, initial=initial, n_iter=one.n_iter + learned.n_iter)


def _is_open(data: Data, initial: InitialState) -> bool:
    """Whether there is something to decide: of a warm start there was."""
    return (
        data.config.share == "auto"
        and data.likelihood.multi_class
        and len(data.classes) > 2
        and data.config.kernel is None
        # Who gives a number of neighbours has chosen one kernel, even where their sites do not converge.
        and (data.config.has_auto_neighbors or data.config.n_neighbors == 0)
        and data.config.optimizer == "profile"
        # In fewer iterations kernels hardly part, and the trial takes as long as they do.
        and data.config.max_iter >= TRIAL_ITERATIONS
        and not data.config.has_batches(data.source.n_rows)
        and data.source.n_rows >= LEAST_ROWS
        and not initial.prior.is_full
        and initial.previous is None
    )


def _has_room(data: Data, run: Run, one: HyperparameterFit) -> bool:
    """Whether a kernel for each class takes no more memory than is meant to be taken; if not, the history says so."""
    needed = fit_bytes(data.source.n_rows, len(data.classes), one.prior.n_inducing, own_kernels=True)
    if needed > MOST_BYTES:
        run.history.add(
            decision=f"A kernel for each class would take {1e-9 * needed:.2g} GB of memory, where "
            f"{1e-9 * MOST_BYTES:.2g} GB are the most: not tried."
        )
    return needed <= MOST_BYTES


def _trial(data: Data, run: Run, one: HyperparameterFit) -> Outcome | None:
    """A kernel for each class, by some iterations from the one for all, if that is better; the history gets the reason.

    Both go on from there on some of the rows, and are asked for others. These have had their part in where both begin;
    without iterations of its own, too, one kernel would keep what it has of them.
    """
    rows, held_out = _split(data, one)
    if not len(held_out):
        return None
    part, site = one.initial.training.part(rows), one.site
    priors = one.prior, SeparatePriors((one.prior.groups[0],) * len(data.classes))
    learn_inducing = data.config.learn_inducing and one.prior.n_inducing <= MAX_MOVING
    length_scale_prior = one.initial.length_scale_prior
    options = Options(
        learn_inducing, data.config.tol, TRIAL_ITERATIONS, History(), length_scale_prior=length_scale_prior
    )
    shared, each = (profile(part, starting_posterior(part, one.q, prior, site), site, options) for prior in priors)
    source, n_threads = one.initial.training.source.sample(held_out), part.executor.n_threads
    before, after = (_scores(data, point, source, n_threads) for point in (shared.point, each.point))
    is_each, words = is_better(after - before, labels_and_weights(source)[1])
    run.history.add(decision=f"With a kernel for each class in place of one for all, {words}")
    return each if is_each else None


def _split(data: Data, one: HyperparameterFit) -> Split:
    """Rows to learn from, and rows to ask, of which there may be none."""
    # Not of the numbers that learning draws, of which a fit that goes on from a checkpoint draws others: it has to
    # decide by the same rows.
    random_state = np.random.RandomState(data.seed)
    rows, held_out = data.hold_out.decision(ASKED_SHARE, random_state)
    most = max(TRIAL_ROWS, ROWS_PER_POINT * min(one.prior.n_inducing, MAX_MOVING))
    size = min(most, subset_sizes(len(rows), one.prior.n_inducing, data.config.subset_sizes)[0])
    some = Subsets(data.source.labels()[rows], random_state).rows(size)
    return rows if some is None else rows[some], held_out


def _scores(
    data: Data, point: Point[KernelPosterior], source: ArraySource | SparseSource, n_threads: int
) -> np.ndarray:
    """log p(y) (r,) of rows that the posterior has not seen."""
    y = source.labels().astype(np.intp)
    mean, variance = point.q.marginals(source.X, n_threads)
    mean = mean.T + point.site.prior_mean
    found = data.likelihood.log_probabilities(data.bound, mean, variance.T, point.site.parameter)
    return np.asarray(found[np.arange(len(y)), y])
