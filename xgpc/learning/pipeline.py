"""The three steps of a fit: choose the initial state, learn hyperparameters, infer the posterior of all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np

from ..approximations.base import Training
from ..approximations.local import LocalPosterior
from ..approximations.sparse import SparsePosterior
from ..config import FitConfig
from ..inference.correction import correction_and_gap
from ..inference.fitting import Evidence, PosteriorOptions, fit_posterior_or_keep, from_some
from ..inference.online import posterior_before, projected_sums
from ..inference.run import Run
from ..rows.coinciding import Distinct
from ..rows.deadline import OutOfTime, during, stopped_by_interrupts
from ..rows.executor import Executor, Threads
from ..rows.source import ArraySource, labels_and_weights
from ..statistics import update
from .candidates import Scores
from .inducing import MAX_INDUCING, with_more_points
from .messages import ended_early, more_iterations
from .optimizer import Model
from .start import Data, FitResult, HyperparameterFit, InitialState, PreviousFit, first_state
from .with_neighbours import learn_hyperparameters

ONE_CLASS = (
    "All rows are of one class, which does not determine the kernel: it stays as it is, and no neighbours are used."
)
# After "stochastic", ``tol`` of the posterior of all rows is multiplied by this: with additive noise, 4 of 23 passes
# made 1.0 of the 1.1 nats gained.
AFTER_MINI_BATCHES = 100.0
# After "stochastic", the posterior of a stream takes this many steps, each a pass over all rows, because mini-batches
# have already learned from a random sample (measured on 11 000 000 rows).
STREAM_STEPS = 1

# Creates the executor from ``n_jobs`` and the run that watches it.
MakeThreads = Callable[[int | None, Run], Threads]


@contextmanager
def executing(run: Run, config: FitConfig, threads: MakeThreads = Threads) -> Iterator[Executor]:
    """The executor of a run; with ``keep_on_interrupt`` an interrupt ends the fit early."""
    ending = stopped_by_interrupts(run.deadline) if config.keep_on_interrupt else nullcontext()
    with threads(config.n_jobs, run) as executor, ending:
        yield executor


def fit(data: Data, run: Run, previous: PreviousFit | None, threads: MakeThreads = Threads) -> FitResult:
    """Choose the initial state, learn hyperparameters from it, and infer the posterior of all rows."""
    with executing(run, data.config, threads) as executor:
        initial = start(data, run, executor, previous)
        learned = learn(data, run, initial)
        return infer(data, run, initial, learned)


def start(data: Data, run: Run, executor: Executor, previous: PreviousFit | None) -> InitialState:
    """The initial state: chosen from the data, taken from a previous fit, or read from a checkpoint."""
    run.history.tell(stage="start", n_rows=data.source.n_rows)
    training = Training(data.source, executor, data.record.n_latents(len(data.classes)))
    initial, store = first_state(data, run, training, previous), run.progress.store
    resumed = None if store is None else store.load(initial.model.site, data.groups)
    if resumed is None:
        return initial
    run.progress.resume(resumed)
    run.history.add(decision=f"Learning resumes from the checkpoint {data.config.checkpoint}.")
    return replace(initial, resumed=resumed)


def learn(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """Learn hyperparameters and inducing points, and decide how many points to use."""
    if data.is_of_one_class:
        # The bound would rise with the variance without end.
        run.history.add(decision=ONE_CLASS)
        return HyperparameterFit(initial.model)
    learned = _learned_in_time(data, run, initial)
    if learned.n_iter:
        kernels = ", ".join(str(group.spec.kernel) for group in learned.model.prior.groups)
        run.history.tell(decision=f"The kernel after {learned.n_iter} iterations of learning: {kernels}.")
    return learned


def _learned_in_time(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """Learn as long as time permits; then return the best result so far."""
    progress = run.progress
    try:
        with run.reserving(data.n_rows, update), during("learning"):
            return learn_hyperparameters(data, run, initial)
    except OutOfTime as end:
        progress.skip(end.where, run.history)
    latest = progress.latest
    if latest is None:
        return HyperparameterFit(initial.model)
    return HyperparameterFit(Model(latest.q.prior, latest.q, latest.site), progress.n_updates)


def infer(
    data: Data, run: Run, initial: InitialState, learned: HyperparameterFit, leaves_prior: bool = False
) -> FitResult:
    """The posterior of all rows and its evidence; ``leaves_prior`` takes a first step even if its gain is below tol."""
    if learned.local is not None:
        return _infer_local(data, run, learned, *learned.local)
    history, config, training, (prior, q, site) = run.history, data.config, initial.training, learned.model
    history.context.update(n_rows=len(training), n_inducing=prior.n_inducing)
    history.tell(stage="posterior", n_rows=data.n_rows, n_inducing=prior.n_inducing)
    # Learned hyperparameters must beat those of the previous fit, unless inducing points were added.
    kept, previous = None, initial.model.q
    if config.optimizer is not None and not initial.grow_to and previous:
        kept = previous, initial.model.prior
    max_iter, tol = config.max_iter, config.tol
    if config.optimizer == "stochastic" and learned.n_iter:
        tol *= AFTER_MINI_BATCHES
        max_iter = max_iter if data.stream is None else min(max_iter, STREAM_STEPS)
    options = PosteriorOptions(
        # If mini-batches have learned the hyperparameters, full batches find the posterior of all rows.
        None if config.learns_in_batches else config.batch_size,
        config.learning_rate,
        tol,
        max_iter,
        run.random_state,
        history,
        run.deadline,
        leaves_prior,
        initial.length_scale_prior,
        data.prior_mean,
    )
    # Mini-batches pass over all rows only a few times, so that a cache would not pay.
    training = training if options.batch(len(training)) is None else training.uncached()
    if data.stream is not None:
        training, q, site = from_some(training, data.stream, q, prior, site, options)
        history.context.update(n_rows=len(training))
        decision = (
            f"Kernel and inducing points are learned from {data.source.n_rows} of {len(training)} rows; the "
            "posterior is that of all rows."
        )
        history.add(decision=decision)
    began = run.deadline.now()
    point, n_steps, converged = fit_posterior_or_keep(training, q, prior, kept, site, options)
    if not np.isfinite(point.elbo):
        raise ValueError(f"The bound is {point.elbo}: scale the features and the sample weights to moderate values.")
    history.tell(decision=f"The posterior has a bound of {point.elbo:.2f} nats after {n_steps} iterations.")
    evidence, problems = Evidence(point.elbo, *correction_and_gap(training, point)), list(learned.problems)
    # A step that time did not permit would have taken at most as long as all steps before it together.
    if not converged and n_steps < max_iter and not run.deadline.allows_again(began):
        run.progress.skip("more iterations of the posterior of all rows", history)
    elif not converged and max_iter == config.max_iter:
        problems.append(f"max_iter={config.max_iter} was reached before tol={config.tol:g} by the posterior")
    history.tell(stage="done", n_rows=data.n_rows, n_inducing=prior.n_inducing, iteration=n_steps, elbo=point.elbo)
    unfinished = _unfinished(run, learned, problems)
    return FitResult(point.q, point.site, learned.n_iter or n_steps, unfinished, learned.notes, evidence)


def add_rows(
    data: Data,
    run: Run,
    q: SparsePosterior,
    evidence: Evidence,
    forgetting_factor: float,
    n_new: int,
) -> FitResult:
    """The posterior of earlier rows, given by q, and of further rows; up to ``n_new`` of these become inducing points.

    The bound is that of the further rows given all rows before.
    """
    assert isinstance(data.source, ArraySource)
    m, rows = q.prior.n_inducing, data.source.rows
    prior = with_more_points(q.prior, rows, min(n_new, MAX_INDUCING - m), run.random_state, n_before=m)
    before = prior.given(posterior_before(q, prior, forgetting_factor))
    with executing(run, data.config) as executor:
        training = Training(data.source, executor, q.n_latents)
        site = data.record.site(len(data.classes), data.label_noise)
        initial = InitialState(training, Model(before, None, site))
        # Take a step even if it gains less than tol: the gains of many batches add up.
        result = infer(data, run, initial, HyperparameterFit(initial.model), leaves_prior=True)
    assert isinstance(result.q, SparsePosterior)
    assert result.evidence is not None
    found = result.evidence
    if evidence.correction is not None and found.correction is not None:
        pairs = zip(projected_sums(evidence.correction, q.prior, prior), found.correction, strict=True)
        P, h = (forgetting_factor * earlier + added for earlier, added in pairs)
        found = found._replace(correction=(P, h))
    # The same distribution as a posterior under the prior without earlier batches.
    return replace(result, q=replace(result.q, prior=prior), evidence=found)


def _infer_local(data: Data, run: Run, learned: HyperparameterFit, local: LocalPosterior, scores: Scores) -> FitResult:
    """The result of a fit with neighbours, for which learning has already found the posterior of all rows."""
    assert isinstance(data.source, ArraySource)
    labels = labels_and_weights(Distinct.of(data.source).source)
    run.history.tell(stage="done", n_rows=data.source.n_rows, n_inducing=local.prior.n_inducing)
    site = data.prior_mean.scaled(local.variance_scale).site(learned.model.site, local.prior)
    unfinished = _unfinished(run, learned, learned.problems)
    return FitResult(local, site, learned.n_iter, unfinished, learned.notes, None, labels, scores)


def _unfinished(run: Run, learned: HyperparameterFit, problems: Sequence[str]) -> list[str]:
    """Messages about parts of the fit that did not converge or were skipped."""
    unfinished = [*more_iterations(problems), *filter(None, [learned.failed])]
    if run.progress.skipped:
        unfinished.insert(0, ended_early(run.deadline.reason, run.progress.skipped))
    return unfinished
