"""Whether a fit has neighbours: which fits can, what they learn, and the decision of ``n_neighbors="auto"``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..approximations.base import KernelPosterior
from ..approximations.sparse import SparsePrior
from ..inference.ascent import coordinate_ascent
from ..inference.history import History
from ..inference.links import LINKS
from ..inference.local_sites import start_sites
from ..inference.run import Run
from ..inference.starts import starting_posterior
from ..rows.deadline import Deadline, OutOfTime, during
from ..rows.source import ArraySource, SparseSource, labels_and_weights
from ..status import warn_user
from .local import (
    DEFAULT_NEIGHBORS,
    LEAST_QUERIES,
    HeldOutPredictions,
    LocalFit,
    Task,
    base_rate_log_scores,
    beats_base_rate,
    chosen,
    first_round,
    fit_sites,
    moved,
    rows_of_round,
    score_held_out,
    second_round,
)
from .paired import is_better
from .query_score import Scores, standard_error
from .share import has_decided, learn_without_neighbours, with_own_kernels
from .stages import Subsets, learn_in_stages
from .start import Data, HyperparameterFit, InitialState

# Rows of each class, on average, to learn from without neighbours at first, but no more than so many in all; and most
# iterations of that. If neighbours gain much there is no need for more; if they gain little, learning goes on from all
# rows in a few iterations, as a kernel is learned with neighbours then; where they are left, to the end. (With 16 000
# rows of two classes, and to the tolerance: magic .299 in 41 s of processor time, and .299 in 19; ringnorm .038 in 24,
# and .032 in 15; electricity .090 in 16, and .085 in 12. Of shuttle's seven classes 4000 rows are too few: .0038, and
# .0011 with these.)
START_CLASS_ROWS, START_ROWS, START_ITERATIONS, GROWN_ITERATIONS = 2000, 16_000, 30, 40
# Fewer rows cannot tell by a few per cent of them whether neighbours pay.
MIN_ROWS = 2000
# More neighbours than this are warned of. A fit of 800 rows took .8, 1.6, 5, 20 and 51 s with 24, 50, 100, 200 and 300.
MANY_NEIGHBORS = 200
# Gain of the mean log probability of the first round's queries, in nats, below which more inducing points are added
# before the kernel is learned on: where most of the structure is no matter of neighbours they help, too (magic .303
# with 64 points and .295 with 256, higgs .549 and .539, 512 points alone .302 and .549). Electricity and covtype gain
# .09 and .15 and go on with the points that there are.
SMALL_GAIN = 0.05
# What is to come takes as long as the first round, or less, for each so many inducing points in the end (in rounds: .4
# to .9 with 32 points, moons, banana, svmguide1; 1.0 to 1.5 with 64, cod-rna, susy, waveform; 3.2 with 128 and 6.5 with
# 256, magic).
POINTS_OF_A_ROUND = 32.0
# Most rows times classes by default. What is kept of each row is kept for each class, so that they take about as much
# memory as a million rows of two classes, 2.5 GB; and, while their sites are found, 8 (m + 2 k) bytes more each, .6 GB.
MOST_CLASS_ROWS = 1_000_000
# So many points at most, and so many values of whitened rows: a sweep over 20 000 rows with 256 points takes .2 s.
MOST_POINTS, MOST_VALUES = 256, 6_000_000
# Which kernel to go on with: for each doubling of the rows that are to come the smoother one must be better by so many
# paired standard errors, and nats, in the first round, as more rows help the rougher one more (cod-rna: better by .0025
# with 8000 rows, worse by .033 with 298 000: .007 a doubling). With more inducing points, which tell little of a rough
# function, it may be worse by one standard error (magic .298 with the smoother one, .309 with the rougher).
ERRORS_PER_DOUBLING, NATS_PER_DOUBLING, ERRORS_WITH_POINTS = 0.5, 0.003, -1.0


def neighbors_of(data: Data) -> tuple[int, str]:
    """How many neighbours a fit looks at, 0 for none; and what to say of it where they were asked for but cannot be.

    Raises
    ------
    ValueError
        For a number of neighbours where there can be none.
    """
    wanted, is_auto = data.config.n_neighbors, data.config.has_auto_neighbors
    if not is_auto and wanted == 0:
        return 0, ""
    reason = _why_not(data)
    if reason and not is_auto:
        raise ValueError(f"n_neighbors={wanted} {reason}. Leave n_neighbors='auto', or give 0.")
    # Levels that differ are all as far: many rows are equally near. Of splice's training rows, a quarter predicted from
    # the others, NLL .105 without and .110 with 24; of adult's, kept apart, the gain was .0002 with an error of .0014.
    if is_auto and data.encoding is not None and data.encoding.has_levels:
        return 0, "No neighbours: of rows with categorical columns, many are equally near."
    if isinstance(data.source, SparseSource) and data.source.n_rows >= MIN_ROWS:
        return 0, "No neighbours: distances are computed of dense rows, and these are sparse."
    if reason or (is_auto and data.source.n_rows < MIN_ROWS):
        return 0, ""
    if data.config.has_batches(data.source.n_rows):
        return 0, "No neighbours: fits in mini-batches have none."
    if data.stream is not None or not isinstance(data.source, ArraySource):
        return 0, "No neighbours: they must be in memory, and these rows are not."
    values = data.source.n_rows * len(data.classes)
    if is_auto and data.likelihood.multi_class and values > MOST_CLASS_ROWS:
        return 0, f"No neighbours: rows times classes are {values}, of which {MOST_CLASS_ROWS} are the most by default."
    return (DEFAULT_NEIGHBORS if is_auto else min(int(wanted), data.source.n_rows)), ""


def _why_not(data: Data) -> str:
    """Why there can be no neighbours, if so."""
    name, bound = data.likelihood.name, data.bound
    if (name, bound) not in LINKS:
        allowed = ", ".join(f"{one!r} with bound {of!r}" for one, of in LINKS)
        return f"is for likelihood {allowed}; this is {name!r} with bound {bound!r}"
    if data.likelihood.multi_class and data.config.share == "none":
        return f"is for latent functions that share their kernel (share='kernel'); got share={data.config.share!r}"
    if isinstance(data.source, SparseSource):
        return "keeps and compares all rows as dense ones, which a sparse X is not: X.toarray() makes them so"
    if data.config.is_full:
        return "is for inducing points; a full Gaussian process has a latent value at each row"
    return ""


def learn_hyperparameters(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """Hyperparameters and inducing points, and with neighbours what is learned of these."""
    k, note = neighbors_of(data)
    is_auto = data.config.has_auto_neighbors
    if note:
        run.history.add(decision=note)
        if not is_auto:
            warn_user(
                f"n_neighbors={data.config.n_neighbors} is not followed. {note} For neighbours leave batch_size=None; "
                "for none give n_neighbors=0."
            )
    if k > MANY_NEIGHBORS:
        warn_user(
            f"n_neighbors={data.config.n_neighbors}: time grows with the cube of the neighbours, here {k}, for each "
            f"row of a prediction and of some tens of sweeps over all {data.source.n_rows} rows. Tens are usual "
            f"(n_neighbors='auto' takes {DEFAULT_NEIGHBORS}); for all rows at once there is inducing_points='all'."
        )
    # A warm start may begin with a kernel for each class; how many there are is decided where no neighbours are taken.
    is_without = len(initial.prior.groups) > 1 or has_decided(initial)
    if not k or not isinstance(data.source, ArraySource) or is_without:
        return learn_without_neighbours(data, run, initial)
    rows, held_out = data.hold_out.decision()
    if is_auto and not len(held_out):
        run.history.add(decision="No neighbours: rows, or their groups, are too few to hold some out.")
        return learn_without_neighbours(data, run, initial)
    try:
        with during("neighbours"):
            return _learn_with(data, run, initial, k, rows, held_out)
    except OutOfTime:
        # Without neighbours there may be.
        run.progress.skip("neighbours", run.history)
        latest = run.progress.latest
        # A kernel for each class was learned last of all.
        if latest is None or len(latest.q.prior.groups) > 1:
            raise
    start = replace(initial, prior=latest.q.prior, previous=latest.q, site=latest.site, resumed=None)
    return with_own_kernels(data, run, replace(learn_in_stages(data, run, start), initial=initial))


def _learn_with(
    data: Data, run: Run, initial: InitialState, k: int, rows: np.ndarray, held_out: np.ndarray
) -> HyperparameterFit:
    """With k neighbours, if these are better or asked for, from some rows; others, if there are any, decide."""
    is_auto = data.config.has_auto_neighbors
    part = initial.training.part(rows if len(held_out) else None)
    assert isinstance(data.source, ArraySource)
    assert isinstance(part.source, ArraySource)
    link = LINKS[data.likelihood.name, data.bound](len(data.classes))
    hold_out = data.hold_out.among(rows)
    whose = run.history, run.deadline, initial.length_scale_prior
    means = initial.site, data.prior_mean
    task = Task(part.executor, part.source, link, part.n_latents, k, hold_out, *whose, *means)
    both = _learn_both(data, run, replace(initial, training=part), task)
    local_fit, scores = both.local_fit, both.local_fit.scores
    local, sweeps = fit_sites(task, local_fit, is_last=not len(held_out))
    if sweeps.converged and len(held_out):
        others = score_held_out(task, local, data.source.sample(held_out))
        scores = others.scores
        if is_auto and not _is_better(task, others, both):
            return _without(data, run, initial, both)
        # The rows kept apart are given back. A kernel that is not to be learned is the user's, and so is its variance.
        link = task.link_at(local_fit.prior, local_fit.log_scale)
        sites = start_sites(data.source, link)
        for all_rows, of_rows, of_asked in zip(sites, sweeps.sites, others.sites(link), strict=True):
            all_rows[:, rows], all_rows[:, held_out] = of_rows, of_asked
        log_scale = (
            local_fit.log_scale if data.config.optimizer is None else others.log_scale(link, local_fit.log_scale)
        )
        local, sweeps = fit_sites(
            replace(task, source=data.source), replace(local_fit, sites=sites, log_scale=log_scale)
        )
    if not sweeps.converged:
        reason = f"No neighbours: the sites of {k} neighbours did not converge in {sweeps.n_sweeps} sweeps."
        run.history.add(decision=reason)
        found = _without(data, run, initial, both)
        return found if is_auto else replace(found, failed=f"{reason} {_advice(local_fit)}")
    n_copies = data.source.n_rows - len(local.X)
    if n_copies:
        same = f"{n_copies} of {data.source.n_rows} rows have the features and the label of another"
        run.history.add(decision=f"{same}: among neighbours these are one row, with the sum of their weights.")
    n_iter = both.sparse.n_iter + local_fit.n_iter
    return replace(
        both.sparse,
        initial=initial,
        prior=local_fit.prior,
        n_iter=n_iter,
        local=local,
        scores=scores,
        notes=() if is_auto else both.notes,
    )


def _advice(local_fit: LocalFit) -> str:
    """What to do where sites do not converge.

    Of 400 fits of 300 rows with given kernels, variances from 1 to 1e5 and 2 to 60 neighbours, one did: five classes,
    variance 5e4. Half of them took 12 sweeps at most with two classes and variances from 100 on, 7 with more classes.
    """
    return (
        "It comes of large variances of the kernel, mostly with several classes; here the kernel is "
        f"{local_fit.prior.spec.kernel}. Bound its variance, as kernel=ConstantKernel(1.0, (0.01, 10.0)) * RBF() does, "
        "take another number of neighbours, or give n_neighbors=0; max_iter and tol change nothing here."
    )


@dataclass(frozen=True)
class Both:
    """What is learned of some rows without neighbours and with them.

    Attributes
    ----------
    sparse : without
    fitted : the posterior of these rows that it makes
    is_done : whether it is all that can be learned without
    learnt : with neighbours
    notes : what users should know of it
    """

    sparse: HyperparameterFit
    fitted: KernelPosterior
    is_done: bool
    local_fit: LocalFit
    notes: tuple[str, ...]


def _learn_both(data: Data, run: Run, initial: InitialState, task: Task) -> Both:
    """Of the task's rows; inducing points are added, as far as the beginning allows, where neighbours gain little."""
    max_iter = 0 if data.config.optimizer is None else data.config.max_iter
    is_auto = isinstance(data.config.subset_sizes, str)
    subset = None
    if max_iter and is_auto:
        size = min(START_ROWS, START_CLASS_ROWS * len(data.classes))
        subset = Subsets(task.source.labels(), run.random_state).rows(size)
    start = replace(initial, training=initial.training.part(subset), grow_to=0)
    # Of few rows learning takes no time.
    has_many = task.source.n_rows >= MIN_ROWS
    limit = START_ITERATIONS if has_many else None
    sparse = learn_in_stages(data, run, start, limit)
    sparse = replace(sparse, initial=initial)
    began = 0.0 if run.deadline is None else run.deadline.now()
    tried = first_round(task, _prior(sparse), initial.prior.groups[0].spec, data.config.kernel is None, max_iter)
    is_done = subset is None and not initial.grow_to and (limit is None or max_iter <= limit)
    fitted = _fitted(data, sparse)
    is_told = any(beats_base_rate(task, one) for one in tried)
    # With several classes learning with more points takes longer than all else: they are added only where neighbours
    # are left (landsat, 256 points: 72 s of processor time, and 23 s where neighbours are decided first).
    is_single = task.n_latents is None
    if not is_done and (not is_told or (is_single and _gain(task, tried[0], fitted) < SMALL_GAIN)):
        most = min(initial.grow_to, MOST_POINTS, MOST_VALUES // task.source.n_rows) if is_single else 0
        allowed = most
        if is_told and run.deadline is not None and most > sparse.prior.n_inducing:
            allowed = min(most, _points_in_time(run.deadline, began))
        # Where neighbours tell nothing there is no other kernel to come.
        limit = GROWN_ITERATIONS if is_told and has_many else None
        sparse = _learned_on(data, run, sparse, allowed if allowed > sparse.prior.n_inducing else 0, limit)
        if allowed < most and allowed <= sparse.prior.n_inducing:
            run.progress.skip(f"more than {sparse.prior.n_inducing} inducing points with neighbours", run.history)
        is_done = not most <= sparse.prior.n_inducing < initial.grow_to and (limit is None or max_iter <= limit)
        fitted = _fitted(data, sparse)
    if sparse.prior.n_inducing > tried[0].prior.n_inducing:
        local_fit = chosen(tried, ERRORS_WITH_POINTS, -np.inf)
    else:
        doublings = max(0.0, np.log2(task.source.n_rows / rows_of_round(0, task.n_latents)))
        local_fit = chosen(tried, ERRORS_PER_DOUBLING * doublings, NATS_PER_DOUBLING * doublings)
    notes = _notes(task, tried) if max_iter else ()
    if not is_told:
        # There is nothing to learn on from.
        return Both(sparse, fitted, is_done, replace(local_fit, prior=_prior(sparse)), notes)
    return Both(sparse, fitted, is_done, second_round(task, moved(local_fit, _prior(sparse)), max_iter), notes)


def _points_in_time(deadline: Deadline, began: float) -> int:
    """Inducing points with which what comes after a first round, which began then, ends in time."""
    took = deadline.now() - began
    return int(min(MOST_POINTS, max(0.0, POINTS_OF_A_ROUND * deadline.left / took) if took > 0.0 else MOST_POINTS))


def _notes(task: Task, tried: list[LocalFit]) -> tuple[str, ...]:
    """What users should know of a first round that tells nothing; it goes into the history, too."""
    if any(beats_base_rate(task, one) for one in tried):
        return ()
    (before,) = tried
    n_queries, kept = len(before.held_out), "The kernel is the one learned without neighbours"
    if n_queries < LEAST_QUERIES:
        few = f"{kept}: learning one with them takes {LEAST_QUERIES} held-out rows or more, and there are {n_queries}."
        task.history.add(decision=few)
        return ()
    score, weight, others = before.learned.mean, before.learned.weight, base_rate_log_scores(task, before.held_out)
    error = standard_error(before.learned.values - others, weight)
    base = np.average(others, weights=weight)
    none = (
        f"{kept}: wherever learning began, {n_queries} held-out rows were not clearly better predicted with "
        f"{task.n_neighbors} neighbours (mean log probability {score:.4g} nats) than by the frequencies of the classes "
        f"({base:.4g}, standard error of the difference {error:.2g})."
    )
    task.history.add(decision=none)
    advice = (
        "Where the features tell the classes apart, more rows may show it, or a kernel whose length scales begin near "
        "the distance over which classes change; n_neighbors=0 takes none."
    )
    return (f"{none} {advice}",)


def _learned_on(
    data: Data, run: Run, sparse: HyperparameterFit, grow_to: int, most_iterations: int | None = None
) -> HyperparameterFit:
    """The same learned on, with more inducing points, so many at most, as long as they pay."""
    start = replace(sparse.initial, prior=sparse.prior, previous=sparse.q, grow_to=grow_to, resumed=None)
    more = learn_in_stages(data, run, start, most_iterations)
    return replace(more, initial=sparse.initial, n_iter=sparse.n_iter + more.n_iter)


def _without(data: Data, run: Run, initial: InitialState, both: Both) -> HyperparameterFit:
    """What is learned without neighbours, with as many inducing points as the beginning allows, for all rows."""
    sparse = both.sparse if both.is_done else _learned_on(data, run, both.sparse, initial.grow_to)
    return with_own_kernels(data, run, replace(sparse, initial=initial))


def _prior(learned: HyperparameterFit) -> SparsePrior:
    prior = learned.prior.groups[0]
    assert isinstance(prior, SparsePrior)
    return prior


def _fitted(data: Data, sparse: HyperparameterFit) -> KernelPosterior:
    """The sparse posterior of all rows that it was learned from, or from some of."""
    training = sparse.initial.training
    site = data.prior_mean.site(sparse.site, sparse.prior)
    start = starting_posterior(training, sparse.q, sparse.prior, site)
    tol, max_iter = data.config.tol, data.config.max_iter
    return coordinate_ascent(training, start, site, tol=tol, max_iter=max_iter, history=History()).q


def _gain(task: Task, local_fit: LocalFit, sparse: KernelPosterior) -> float:
    """Of the mean log probability of a round's queries, in nats, which the sparse posterior has seen, too."""
    without = _scores(sparse, task.source.sample(local_fit.held_out), task)
    return local_fit.learned.mean - without.mean


def _scores(q: KernelPosterior, source: ArraySource, task: Task) -> Scores:
    """Without neighbours."""
    y, weight = labels_and_weights(source)
    mean, variance = map(np.atleast_2d, q.marginals(source.X, task.executor.n_threads))
    return Scores(task.link_at(q.prior, 0.0).scores(mean, variance, y)[0], weight)


def _is_better(task: Task, others: HeldOutPredictions, both: Both) -> bool:
    """Whether rows that neither has seen are more likely with neighbours, by so much that they pay.

    The reason goes into the history.
    """
    without = _scores(both.fitted, others.source, task)
    are_better, words = is_better(others.scores.values - without.values, without.weight)
    m = both.sparse.prior.n_inducing
    reason = f"With {task.n_neighbors} neighbours of each row besides {m} inducing points, {words}"
    task.history.add(n_neighbors=task.n_neighbors, query_score=others.scores.mean, decision=reason)
    return are_better
