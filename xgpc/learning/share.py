"""Decides with ``share="auto"`` whether the classes share one kernel or each class has its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..approximations.base import KernelPosterior, KernelPrior, SeparatePriors
from ..inference.ascent import Point
from ..inference.history import History
from ..inference.progress import BestSoFar
from ..inference.run import Run
from ..inference.starts import starting_posterior
from ..rows.deadline import during
from ..rows.source import ArraySource, labels_and_weights
from .candidates import Candidate, Scores, accept
from .hold_out import Split
from .inducing import MOST_BYTES, fit_bytes
from .optimizer import Model, Options
from .profile import Profile
from .stages import MAX_MOVING, Subsets, learn_in_stages, subset_sizes
from .start import Data, HyperparameterFit, InitialState

# With fewer rows, held-out rows cannot decide. The bound never can: on digits (1294 rows) own kernels raised it by 167
# nats but also raised the held-out NLL from .091 to .144.
LEAST_ROWS = 1000
# Share of all rows that is held out for the decision; with a fifth or less the standard error was as large as the gain.
HELD_OUT_SHARE = 0.5
# The trial learns from at most this many of the other rows, or this many for each inducing point, so that it costs only
# a part of the fit.
TRIAL_ROWS, ROWS_PER_POINT = 1500, 15
# Iterations of the trial, and most iterations of a later stage: ten make most of the gain, and more than twenty may
# overfit (gains on digits .009, .002 and -.028 nats after 10, 20 and 80 evaluations).
TRIAL_ITERATIONS, EACH_ITERATIONS = 10, 20


def learn_without_neighbours(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """Learn as in ``stages``; with ``share="auto"`` also decide whether each class has its own kernel and points."""
    resumed = initial.resumed
    if resumed is None or not resumed.is_decided:
        return with_own_kernels(data, run, initial, learn_in_stages(data, run, initial))
    if len(resumed.q.prior.groups) == len(initial.model.prior.groups):
        return learn_in_stages(data, run, initial)
    start = replace(initial, model=initial.model._replace(prior=resumed.q.prior))
    return learn_in_stages(data, run, start, EACH_ITERATIONS)


def with_own_kernels(data: Data, run: Run, initial: InitialState, one: HyperparameterFit) -> HyperparameterFit:
    """Try own kernels for the classes if that is open; return the better result by held-out rows.

    ``one`` is the result with a kernel for all classes, from which the trial starts.
    """
    if not (_is_open(data, initial) and _has_room(data, run, one)):
        return one
    with during("the trial of a kernel for each class"):
        candidates = _propose(data, initial, one.model)
    subject = "With a kernel for each class in place of one for all,"
    if candidates is None or not accept(*candidates, subject, run.history):
        assert run.progress.latest is not None
        run.progress.decide(run.progress.latest)
        return one
    # From here on, own kernels count as decided, already from their first stage.
    each = candidates[1].model
    run.progress.decide(BestSoFar(each.q, each.site, n_rows=0, is_growing=bool(initial.grow_to)))
    model = Model(each.q.prior, each.q, each.site)
    learned = learn_in_stages(data, run, initial.going_on(model), EACH_ITERATIONS)
    return replace(learned, n_iter=one.n_iter + learned.n_iter)


def _is_open(data: Data, initial: InitialState) -> bool:
    """Whether the number of kernels is to be decided; a warm start keeps that of the previous fit."""
    config = data.config
    return (
        config.share == "auto"
        and data.record.is_multi_class
        and len(data.classes) > 2
        and config.kernel is None
        # A user who gives a number of neighbours has chosen one kernel, even if the sites do not converge.
        and not config.given_neighbors
        and config.optimizer == "profile"
        # With fewer iterations the kernels hardly differ, and the trial would take as long as the fit.
        and config.max_iter >= TRIAL_ITERATIONS
        and not config.has_batches(data.source.n_rows)
        and data.source.n_rows >= LEAST_ROWS
        and not initial.model.prior.is_full
        and initial.model.q is None
    )


def _has_room(data: Data, run: Run, one: HyperparameterFit) -> bool:
    """Whether own kernels fit the memory limit; if not, the history says so."""
    needed = fit_bytes(data.source.n_rows, len(data.classes), one.model.prior.n_inducing, own_kernels=True)
    if needed > MOST_BYTES:
        run.history.add(
            decision=f"A kernel for each class would take {1e-9 * needed:.2g} GB of memory, more than the limit of "
            f"{1e-9 * MOST_BYTES:.2g} GB: not tried."
        )
    return needed <= MOST_BYTES


Candidates = tuple[Candidate[Point[KernelPosterior]], Candidate[Point[KernelPosterior]]]


def _propose(data: Data, initial: InitialState, model: Model) -> Candidates | None:
    """The shared kernel and own kernels after some iterations on the same rows; None without rows to hold out.

    The shared kernel was learned from the held-out rows too; its own further iterations remove this advantage.
    """
    rows, held_out = _split(data, model.prior.n_inducing)
    if not len(held_out):
        return None
    part, site, training = initial.training.part(rows), model.site, initial.training
    learn_inducing = data.config.learn_inducing and model.prior.n_inducing <= MAX_MOVING
    log_prior = initial.length_scale_prior
    options = Options(learn_inducing, data.config.tol, TRIAL_ITERATIONS, History(), length_scale_prior=log_prior)
    source, n_threads = training.source.sample(held_out), training.executor.n_threads

    def tried(prior: KernelPrior) -> Candidate[Point[KernelPosterior]]:
        point = Profile().run(part, starting_posterior(part, model.q, prior, site), site, options).point
        return Candidate(point, _scores(data, point, source, n_threads))

    return tried(model.prior), tried(SeparatePriors((model.prior.groups[0],) * len(data.classes)))


def _split(data: Data, n_inducing: int) -> Split:
    """Rows to learn from, and held-out rows, which may be none."""
    # A separate random state: a fit resumed from a checkpoint has drawn other numbers but must decide by the same rows.
    random_state = np.random.RandomState(data.seed)
    rows, held_out = data.hold_out.decision(HELD_OUT_SHARE, random_state)
    most = max(TRIAL_ROWS, ROWS_PER_POINT * min(n_inducing, MAX_MOVING))
    size = min(most, subset_sizes(len(rows), n_inducing, data.config.subset_sizes)[0])
    some = Subsets(data.source.labels()[rows], random_state).rows(size)
    return rows if some is None else rows[some], held_out


def _scores(data: Data, point: Point[KernelPosterior], source: ArraySource, n_threads: int) -> Scores:
    """Scores of held-out rows."""
    y, weight = labels_and_weights(source)
    mean, variance = point.q.marginals(source.X, n_threads)
    mean = mean.T + point.site.prior_mean
    found = data.record.log_probabilities(mean, variance.T, point.site.parameter)
    return Scores(np.asarray(found[np.arange(len(y)), y.astype(np.intp)]), weight)
