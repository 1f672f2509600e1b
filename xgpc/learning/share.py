"""Decides with ``share="auto"`` whether the classes share one kernel or each class has its own."""

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
from ..rows.source import ArraySource, labels_and_weights
from .hold_out import Split
from .memory import MOST_BYTES, fit_bytes
from .paired import is_better
from .profile import Options, Outcome, profile
from .stages import MAX_MOVING, Subsets, learn_in_stages, subset_sizes
from .start import Data, HyperparameterFit, InitialState

# The bound cannot decide this: on digits (1294 rows) own kernels raised it by 167 nats but also raised the held-out NLL
# from .091 to .144. With fewer rows than this, held-out rows cannot decide either.
LEAST_ROWS = 1000
# Share of all rows that is held out for the decision; with a fifth or less the standard error was as large as the gain.
HELD_OUT_SHARE = 0.5
# The trial learns from at most this many of the other rows, or this many for each inducing point, so that it costs only
# a part of the fit.
TRIAL_ROWS, ROWS_PER_POINT = 1500, 15
# Iterations of the trial, and most iterations of a later stage. Ten iterations make most of the gain, and more than
# twenty may overfit: on digits the held-out gain was .009, .002 and -.028 nats after 10, 20 and 80 evaluations.
TRIAL_ITERATIONS, EACH_ITERATIONS = 10, 20


def learn_without_neighbours(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """Learn as in ``stages``; with ``share="auto"`` also decide whether each class has its own kernel and points."""
    resumed = initial.resumed
    if resumed is None or not resumed.is_decided:
        return with_own_kernels(data, run, learn_in_stages(data, run, initial))
    has_own_kernels = len(resumed.q.prior.groups) > len(initial.prior.groups)
    start = replace(initial, prior=resumed.q.prior) if has_own_kernels else initial
    learned = learn_in_stages(data, run, start, EACH_ITERATIONS if has_own_kernels else None)
    return replace(learned, initial=initial)


def has_decided(initial: InitialState) -> bool:
    """Whether the resumed checkpoint had already decided how many kernels there are."""
    return initial.resumed is not None and initial.resumed.is_decided


def with_own_kernels(data: Data, run: Run, one: HyperparameterFit) -> HyperparameterFit:
    """Try own kernels for the classes if that is open (``_is_open``); return the better result by held-out rows.

    ``one`` is the result with a kernel for all classes, from which the trial starts.
    """
    initial = one.initial
    if not (_is_open(data, initial) and _has_room(data, run, one)):
        return one
    with during("the trial of a kernel for each class"):
        each = _trial(data, run, one)
    if each is None:
        assert run.progress.latest is not None
        run.progress.decide(run.progress.latest)
        return one
    # From here on, own kernels count as decided, already from their first stage.
    run.progress.decide(BestSoFar(each.q, each.site, n_rows=0, is_growing=bool(initial.grow_to)))
    start = replace(initial, prior=each.q.prior, previous=each.q, site=each.site, resumed=None)
    learned = learn_in_stages(data, run, start, EACH_ITERATIONS)
    return replace(learned, initial=initial, n_iter=one.n_iter + learned.n_iter)


def _is_open(data: Data, initial: InitialState) -> bool:
    """Whether the number of kernels is to be decided; a warm start keeps that of the previous fit."""
    return (
        data.config.share == "auto"
        and data.likelihood.multi_class
        and len(data.classes) > 2
        and data.config.kernel is None
        # A user who gives a number of neighbours has chosen one kernel, even if the sites do not converge.
        and (data.config.has_auto_neighbors or data.config.n_neighbors == 0)
        and data.config.optimizer == "profile"
        # With fewer iterations the kernels hardly differ, and the trial would take as long as the fit.
        and data.config.max_iter >= TRIAL_ITERATIONS
        and not data.config.has_batches(data.source.n_rows)
        and data.source.n_rows >= LEAST_ROWS
        and not initial.prior.is_full
        and initial.previous is None
    )


def _has_room(data: Data, run: Run, one: HyperparameterFit) -> bool:
    """Whether own kernels fit the memory limit; if not, the history says so."""
    needed = fit_bytes(data.source.n_rows, len(data.classes), one.prior.n_inducing, own_kernels=True)
    if needed > MOST_BYTES:
        run.history.add(
            decision=f"A kernel for each class would take {1e-9 * needed:.2g} GB of memory, more than the limit of "
            f"{1e-9 * MOST_BYTES:.2g} GB: not tried."
        )
    return needed <= MOST_BYTES


def _trial(data: Data, run: Run, one: HyperparameterFit) -> Outcome | None:
    """Own kernels after some iterations from the shared kernel, if they predict held-out rows better, else None.

    Both models continue from the shared kernel on the same part of the rows. The shared kernel was learned from the
    held-out rows too; its own further iterations remove this advantage. The history records the reason.
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
    """Rows to learn from, and held-out rows, which may be none."""
    # A separate random state: a fit resumed from a checkpoint has drawn other numbers but must decide by the same rows.
    random_state = np.random.RandomState(data.seed)
    rows, held_out = data.hold_out.decision(HELD_OUT_SHARE, random_state)
    most = max(TRIAL_ROWS, ROWS_PER_POINT * min(one.prior.n_inducing, MAX_MOVING))
    size = min(most, subset_sizes(len(rows), one.prior.n_inducing, data.config.subset_sizes)[0])
    some = Subsets(data.source.labels()[rows], random_state).rows(size)
    return rows if some is None else rows[some], held_out


def _scores(data: Data, point: Point[KernelPosterior], source: ArraySource, n_threads: int) -> np.ndarray:
    """log p(y) (r,) of held-out rows."""
    y = source.labels().astype(np.intp)
    mean, variance = point.q.marginals(source.X, n_threads)
    mean = mean.T + point.site.prior_mean
    found = data.likelihood.log_probabilities(data.bound, mean, variance.T, point.site.parameter)
    return np.asarray(found[np.arange(len(y)), y])
