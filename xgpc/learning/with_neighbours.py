"""Learning with neighbours, where they are possible, and the decision of ``n_neighbors="auto"``."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..approximations.base import KernelPosterior
from ..approximations.sparse import SparsePrior
from ..inference.ascent import coordinate_ascent, starting_posterior
from ..inference.links import LINKS
from ..inference.local_sites import start_sites
from ..inference.run import Run
from ..rows.deadline import OutOfTime, during
from ..rows.source import ArraySource
from ..status import warn_user
from .candidates import Candidate, accept
from .local import (
    LEAST_QUERIES,
    LocalFit,
    Task,
    base_rate_scores,
    beats_base_rate,
    chosen,
    first_round,
    fit_sites,
    predict_held_out,
    rows_of_round,
    second_round,
)
from .optimizer import Model
from .share import learn_without_neighbours, with_own_kernels
from .stages import Subsets, learn_in_stages
from .start import Data, HyperparameterFit, InitialState

# Default number of neighbours (on five data sets 16 lost up to .03 nats a row, and 40 took twice the time for no gain);
# a number above MANY_NEIGHBORS gives a warning: a fit of 800 rows took .8 s with 24, 20 s with 200.
DEFAULT_NEIGHBORS, MANY_NEIGHBORS = 24, 200
# Rows for each class and in total, and iterations, for learning without neighbours before they are tried; if neighbours
# gain little, learning continues on all rows. This halved the time on magic (41 to 19 s) at the same NLL.
START_CLASS_ROWS, START_ROWS, START_ITERATIONS, GROWN_ITERATIONS = 2000, 16_000, 30, 40
# With fewer rows, a few per cent of them cannot show whether neighbours pay.
MIN_ROWS = 2000
# If neighbours gain less than this, in nats, for the first round's held-out rows, inducing points are added before
# learning continues: they then help, too (magic NLL .303 with 64 points, .295 with 256).
SMALL_GAIN = 0.05
# For each this many inducing points, the rest of the fit takes as long as the first round or less (measured: .4 to 1).
POINTS_OF_A_ROUND = 32.0
# Most rows times classes by default: the memory of a million rows of two classes, 2.5 GB.
MOST_CLASS_ROWS = 1_000_000
# Most inducing points, and most values of whitened rows: a sweep over 20 000 rows with 256 points takes .2 s.
MOST_POINTS, MOST_VALUES = 256, 6_000_000
# The smoother kernel must win by this many paired standard errors and nats for each doubling of the rows to come, as
# more rows favour the rougher one (cod-rna: by .007 nats a doubling). If points are added, it may lose by one standard
# error, as they suit smooth functions (magic: .298 against .309).
ERRORS_PER_DOUBLING, NATS_PER_DOUBLING, ERRORS_WITH_POINTS = 0.5, 0.003, -1.0


def neighbors_of(data: Data) -> tuple[int, str]:
    """Number of neighbours, 0 for none, and a message if requested neighbours are not possible.

    Raises
    ------
    ValueError
        If a number of neighbours is given for a model that cannot have them.
    """
    wanted, is_auto, n_rows = data.config.n_neighbors, data.config.has_auto_neighbors, data.source.n_rows
    if not is_auto and wanted == 0:
        return 0, ""
    reason = _why_not(data)
    if reason and not is_auto:
        raise ValueError(f"n_neighbors={wanted} {reason}. Leave n_neighbors='auto', or give 0.")
    # All levels of a column are equally far apart, so many rows tie as neighbours: on splice NLL was .105 without
    # neighbours and .110 with 24.
    if is_auto and data.encoding is not None and data.encoding.has_levels:
        return 0, "No neighbours: with categorical columns, many rows are equally near."
    if data.source.makes_dense and n_rows >= MIN_ROWS:
        return 0, "No neighbours: the distances need dense rows, and these are sparse."
    if reason or (is_auto and n_rows < MIN_ROWS):
        return 0, ""
    if data.config.has_batches(n_rows):
        return 0, "No neighbours: fits in mini-batches do not support them."
    if data.stream is not None or not isinstance(data.source, ArraySource):
        return 0, "No neighbours: they need all rows in memory."
    values = n_rows * len(data.classes)
    if is_auto and data.record.is_multi_class and values > MOST_CLASS_ROWS:
        return 0, f"No neighbours: rows times classes are {values}, above the default limit of {MOST_CLASS_ROWS}."
    return (DEFAULT_NEIGHBORS if is_auto else min(int(wanted), n_rows)), ""


def _why_not(data: Data) -> str:
    """Why the model cannot have neighbours; empty if it can."""
    name, bound = data.record.key
    if (name, bound) not in LINKS:
        allowed = ", ".join(f"{one!r} with bound {of!r}" for one, of in LINKS)
        return f"is for likelihood {allowed}; this model has {name!r} with bound {bound!r}"
    if data.record.is_multi_class and data.config.share == "none":
        return f"is for latent functions that share their kernel (share='kernel'); got share={data.config.share!r}"
    if data.source.makes_dense:
        return "keeps and compares all rows as dense rows, but X is sparse: convert it with X.toarray()"
    if data.config.is_full:
        return "is for models with inducing points; this one is a full Gaussian process"
    return ""


def learn_hyperparameters(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """Learn hyperparameters and inducing points, with neighbours if they are possible and pay."""
    k, note = neighbors_of(data)
    is_auto, given, resumed = data.config.has_auto_neighbors, data.config.n_neighbors, initial.resumed
    if note:
        run.history.add(decision=note)
        if not is_auto:
            warn_user(
                f"n_neighbors={given} is not followed. {note} To use neighbours leave batch_size=None; to use none "
                "give n_neighbors=0."
            )
    if k > MANY_NEIGHBORS:
        warn_user(
            f"n_neighbors={given}: time grows with the cube of the number of neighbours, here {k}, for each row of a "
            f"prediction and of some tens of sweeps over all {data.source.n_rows} rows. Tens are usual "
            f"(n_neighbors='auto' takes {DEFAULT_NEIGHBORS}); inducing_points='all' uses all rows at once."
        )
    # A warm start may have a kernel for each class; the number of kernels is decided only without neighbours.
    is_decided = len(initial.model.prior.groups) > 1 or (resumed is not None and resumed.is_decided)
    if not k or is_decided:
        return learn_without_neighbours(data, run, initial)
    rows, held_out = data.hold_out.decision()
    if is_auto and not len(held_out):
        run.history.add(decision="No neighbours: there are too few rows, or groups of rows, to hold some out.")
        return learn_without_neighbours(data, run, initial)
    try:
        with during("neighbours"):
            return _learn_with(data, run, initial, k, rows, held_out)
    except OutOfTime:
        # Learning without neighbours may still end in time.
        run.skip("neighbours")
        latest = run.best
        # Own kernels are learned last, so learning ends here.
        if latest is None or len(latest.q.prior.groups) > 1:
            raise
    model = Model(latest.q.prior, latest.q, latest.site)
    return with_own_kernels(data, run, initial, learn_in_stages(data, run, initial.going_on(model)))


def _learn_with(
    data: Data, run: Run, initial: InitialState, k: int, rows: np.ndarray, held_out: np.ndarray
) -> HyperparameterFit:
    """Learn with k neighbours; held-out rows, if any, decide whether "auto" keeps the neighbours."""
    is_auto, n_rows = data.config.has_auto_neighbors, data.source.n_rows
    part = initial.training.part(rows if len(held_out) else None)
    task = Task(data, run, replace(initial, training=part), data.hold_out.among(rows), k)
    pair = _propose(task)
    local_fit, scores = pair.local_fit, pair.local_fit.scores
    local, sweeps = fit_sites(task, local_fit, is_last=not len(held_out))
    if sweeps.converged and len(held_out):
        source = data.source.sample(held_out)
        assert isinstance(source, ArraySource)
        predicted = predict_held_out(task, local, source, local_fit.log_scale)
        scores = predicted.scores
        if is_auto:
            without = Candidate(pair.sparse, predict_held_out(task, pair.fitted, source).scores)
            subject = f"With {k} neighbours of each row besides {pair.sparse.model.prior.n_inducing} inducing points,"
            columns = {"n_neighbors": k, "query_score": scores.mean}
            if not accept(without, Candidate(local, scores), subject, run.history, **columns):
                return _without(task, initial, pair)
        # Held-out rows join the training rows again. Without an optimizer the variance is the user's, so it stays.
        everything, log_scale = replace(task, initial=initial), local_fit.log_scale
        if data.config.optimizer is not None:
            log_scale = predicted.log_scale(log_scale)
        sites = start_sites(data.source, predicted.link)
        for all_rows, of_rows, of_held_out in zip(sites, sweeps.sites, predicted.sites, strict=True):
            all_rows[:, rows], all_rows[:, held_out] = of_rows, of_held_out
        local, sweeps = fit_sites(everything, replace(local_fit, sites=sites, log_scale=log_scale))
    if not sweeps.converged:
        reason = f"No neighbours: the sites of {k} neighbours did not converge in {sweeps.n_sweeps} sweeps."
        run.history.add(decision=reason)
        found = _without(task, initial, pair)
        return found if is_auto else replace(found, failed=f"{reason} {_advice(local_fit)}")
    n_copies = n_rows - len(local.X)
    if n_copies:
        same = f"{n_copies} of {n_rows} rows have the features and the label of another"
        run.history.add(decision=f"{same}: among neighbours these are one row, with the sum of their weights.")
    model = pair.sparse.model._replace(prior=local_fit.prior)
    n_iter, notes = pair.sparse.n_iter + local_fit.n_iter, () if is_auto else pair.notes
    return replace(pair.sparse, model=model, n_iter=n_iter, local=(local, scores), notes=notes)


def _advice(local_fit: LocalFit) -> str:
    """Advice if sites do not converge, which was seen in 1 of 400 fits (five classes, variance 5e4)."""
    return (
        "Large variances of the kernel cause this, mostly with several classes; here the kernel is "
        f"{local_fit.prior.spec.kernel}. Bound its variance, for example with kernel=ConstantKernel(1.0, (0.01, "
        "10.0)) * RBF(), use another number of neighbours, or give n_neighbors=0; max_iter and tol have no effect on "
        "this."
    )


class Pair(NamedTuple):
    """What is learned from some rows without neighbours (``is_done``: to the end), its posterior of these rows, what is
    learned with neighbours, and messages for the user."""

    sparse: HyperparameterFit
    fitted: KernelPosterior
    is_done: bool
    local_fit: LocalFit
    notes: tuple[str, ...]


def _propose(task: Task) -> Pair:
    """Learn with and without neighbours from the task's rows; add inducing points if neighbours gain little."""
    data, run, initial, n_rows = task.data, task.run, task.initial, task.source.n_rows
    max_iter = 0 if data.config.optimizer is None else data.config.max_iter
    subset = None
    if max_iter and isinstance(data.config.subset_sizes, str):
        size = min(START_ROWS, START_CLASS_ROWS * len(data.classes))
        subset = Subsets(task.source.labels(), run.random_state).rows(size)
    # With few rows learning takes little time.
    has_many = n_rows >= MIN_ROWS
    limit = START_ITERATIONS if has_many else None
    sparse = learn_in_stages(data, run, replace(initial, training=initial.training.part(subset), grow_to=0), limit)
    began = task.run.deadline.now()
    tried = first_round(task, _prior(sparse), initial.model.prior.groups[0].spec, max_iter)
    is_done = subset is None and not initial.grow_to and (limit is None or max_iter <= limit)
    fitted = _fitted(task, sparse)
    has_structure = any(beats_base_rate(task, one) for one in tried)
    # With several classes, more points take longer than all other work, so they are added only if neighbours are
    # rejected (landsat, 256 points: 72 s, against 23 s).
    is_single = task.n_latents is None
    if not is_done and (not has_structure or (is_single and _gain(task, tried[0], fitted) < SMALL_GAIN)):
        before = sparse.model.prior.n_inducing
        most = allowed = min(initial.grow_to, MOST_POINTS, MOST_VALUES // n_rows) if is_single else 0
        if has_structure and most > before:
            took = task.run.deadline.now() - began
            in_time = POINTS_OF_A_ROUND * run.deadline.left / took if took > 0.0 else MOST_POINTS
            allowed = min(most, int(min(MOST_POINTS, max(0.0, in_time))))
        # If neighbours find no structure, this kernel is final and is learned without a limit.
        limit = GROWN_ITERATIONS if has_structure and has_many else None
        sparse = _learned_on(task, sparse, allowed if allowed > before else 0, limit)
        n_inducing = sparse.model.prior.n_inducing
        if allowed < most and allowed <= n_inducing:
            run.skip(f"more than {n_inducing} inducing points with neighbours")
        is_done = not most <= n_inducing < initial.grow_to and (limit is None or max_iter <= limit)
        fitted = _fitted(task, sparse)
    if sparse.model.prior.n_inducing > tried[0].prior.n_inducing:
        local_fit = chosen(tried, ERRORS_WITH_POINTS, -np.inf)
    else:
        doublings = max(0.0, np.log2(n_rows / rows_of_round(0, task.n_latents)))
        local_fit = chosen(tried, ERRORS_PER_DOUBLING * doublings, NATS_PER_DOUBLING * doublings)
    notes, prior = () if has_structure or not max_iter else _notes(task, tried[0]), _prior(sparse)
    # Without structure the second round has nothing to improve.
    if has_structure:
        prior = prior.rebuilt([local_fit.prior.spec], prior.Z)
    local_fit = replace(local_fit, prior=prior)
    if has_structure and max_iter:
        local_fit = second_round(task, local_fit, max_iter)
    return Pair(sparse, fitted, is_done, local_fit, notes)


def _notes(task: Task, before: LocalFit) -> tuple[str, ...]:
    """Messages for the user if the first round found no structure; the history records them, too."""
    n_queries, kept = len(before.held_out), "The kernel is the one learned without neighbours"
    if n_queries < LEAST_QUERIES:
        few = f"{kept}: learning with them needs at least {LEAST_QUERIES} held-out rows, and there are {n_queries}."
        task.run.history.add(decision=few)
        return ()
    base = base_rate_scores(task, before)
    none = (
        f"{kept}: from every start, {n_queries} held-out rows were not clearly better predicted with "
        f"{task.n_neighbors} neighbours (mean log probability {before.learned.mean:.4g} nats) than by the class "
        f"frequencies ({base.mean:.4g}, standard error of the difference {(before.learned - base).error:.2g})."
    )
    task.run.history.add(decision=none)
    advice = (
        "If the features separate the classes, more rows may show it, or a kernel whose length scales start near the "
        "distance over which the classes change; n_neighbors=0 uses no neighbours."
    )
    return (f"{none} {advice}",)


def _learned_on(
    task: Task, sparse: HyperparameterFit, grow_to: int, most_iterations: int | None = None
) -> HyperparameterFit:
    """Continue learning, with up to ``grow_to`` inducing points as long as they pay."""
    start = task.initial.going_on(sparse.model, grow_to=grow_to)
    more = learn_in_stages(task.data, task.run, start, most_iterations)
    return replace(more, n_iter=sparse.n_iter + more.n_iter)


def _without(task: Task, initial: InitialState, pair: Pair) -> HyperparameterFit:
    """Complete the learning without neighbours, with as many inducing points as the initial state allows."""
    sparse = pair.sparse if pair.is_done else _learned_on(task, pair.sparse, initial.grow_to)
    return with_own_kernels(task.data, task.run, initial, sparse)


def _prior(sparse: HyperparameterFit) -> SparsePrior:
    prior = sparse.model.prior.groups[0]
    assert isinstance(prior, SparsePrior)
    return prior


def _fitted(task: Task, sparse: HyperparameterFit) -> KernelPosterior:
    """The sparse posterior of all rows of the task."""
    (prior, q, site), training, config = sparse.model, task.initial.training, task.data.config
    site = task.data.prior_mean.site(site, prior)
    start = starting_posterior(training, q, prior, site)
    return coordinate_ascent(training, start, site, tol=config.tol, max_iter=config.max_iter).q


def _gain(task: Task, local_fit: LocalFit, fitted: KernelPosterior) -> float:
    """Gain of the mean log probability of the round's held-out rows over the sparse posterior, which has seen them."""
    return local_fit.learned.mean - predict_held_out(task, fitted, task.source.sample(local_fit.held_out)).scores.mean
