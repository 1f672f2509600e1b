"""Learning with neighbours, where they are possible, and the decision of ``n_neighbors="auto"``."""

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
from ..rows.source import ArraySource, labels_and_weights
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

# Rows for each class and in total, and iterations, for learning without neighbours before they are tried; if neighbours
# gain little, learning continues on all rows. This halved the time on magic (41 to 19 s) at the same NLL.
START_CLASS_ROWS, START_ROWS, START_ITERATIONS, GROWN_ITERATIONS = 2000, 16_000, 30, 40
# With fewer rows, a few per cent of them cannot show whether neighbours pay.
MIN_ROWS = 2000
# A larger number of neighbours gives a warning: a fit of 800 rows took .8 s with 24, 20 s with 200.
MANY_NEIGHBORS = 200
# If neighbours gain less than this, in nats, for the first round's held-out rows, inducing points are added before
# learning continues: they then help, too (magic NLL .303 with 64 points, .295 with 256).
SMALL_GAIN = 0.05
# For each this many inducing points, the rest of the fit takes about as long as the first round or less (measured: .4
# to 1 rounds on six data sets).
POINTS_OF_A_ROUND = 32.0
# Most rows times classes by default: about the memory of a million rows of two classes, 2.5 GB, and 8 (m + 2 k) bytes
# more for each while the sites are computed.
MOST_CLASS_ROWS = 1_000_000
# Most inducing points, and most values of whitened rows: a sweep over 20 000 rows with 256 points takes .2 s.
MOST_POINTS, MOST_VALUES = 256, 6_000_000
# The smoother kernel must win by this many paired standard errors and nats for each doubling of the rows to come,
# because more rows favour the rougher kernel (cod-rna: by .007 nats a doubling). If points are added, it may lose by
# one standard error, because they suit smooth functions (magic: .298 against .309).
ERRORS_PER_DOUBLING, NATS_PER_DOUBLING, ERRORS_WITH_POINTS = 0.5, 0.003, -1.0


def neighbors_of(data: Data) -> tuple[int, str]:
    """Number of neighbours, 0 for none, and a message if requested neighbours are not possible.

    Raises
    ------
    ValueError
        If a number of neighbours is given for a model that cannot have them.
    """
    wanted, is_auto = data.config.n_neighbors, data.config.has_auto_neighbors
    if not is_auto and wanted == 0:
        return 0, ""
    reason = _why_not(data)
    if reason and not is_auto:
        raise ValueError(f"n_neighbors={wanted} {reason}. Leave n_neighbors='auto', or give 0.")
    # All levels of a column are equally far apart, so many rows tie as neighbours: on splice NLL was .105 without
    # neighbours and .110 with 24.
    if is_auto and data.encoding is not None and data.encoding.has_levels:
        return 0, "No neighbours: with categorical columns, many rows are equally near."
    if data.source.makes_dense and data.source.n_rows >= MIN_ROWS:
        return 0, "No neighbours: the distances need dense rows, and these are sparse."
    if reason or (is_auto and data.source.n_rows < MIN_ROWS):
        return 0, ""
    if data.config.has_batches(data.source.n_rows):
        return 0, "No neighbours: fits in mini-batches do not support them."
    if data.stream is not None or not isinstance(data.source, ArraySource):
        return 0, "No neighbours: they need all rows in memory."
    values = data.source.n_rows * len(data.classes)
    if is_auto and data.likelihood.multi_class and values > MOST_CLASS_ROWS:
        return 0, f"No neighbours: rows times classes are {values}, above the default limit of {MOST_CLASS_ROWS}."
    return (DEFAULT_NEIGHBORS if is_auto else min(int(wanted), data.source.n_rows)), ""


def _why_not(data: Data) -> str:
    """Why the model cannot have neighbours; empty if it can."""
    name, bound = data.likelihood.name, data.bound
    if (name, bound) not in LINKS:
        allowed = ", ".join(f"{one!r} with bound {of!r}" for one, of in LINKS)
        return f"is for likelihood {allowed}; this model has {name!r} with bound {bound!r}"
    if data.likelihood.multi_class and data.config.share == "none":
        return f"is for latent functions that share their kernel (share='kernel'); got share={data.config.share!r}"
    if data.source.makes_dense:
        return "keeps and compares all rows as dense rows, but X is sparse: convert it with X.toarray()"
    if data.config.is_full:
        return "is for models with inducing points; this one is a full Gaussian process"
    return ""


def learn_hyperparameters(data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
    """Learn hyperparameters and inducing points, with neighbours if they are possible and pay."""
    k, note = neighbors_of(data)
    is_auto = data.config.has_auto_neighbors
    if note:
        run.history.add(decision=note)
        if not is_auto:
            warn_user(
                f"n_neighbors={data.config.n_neighbors} is not followed. {note} To use neighbours leave "
                "batch_size=None; to use none give n_neighbors=0."
            )
    if k > MANY_NEIGHBORS:
        warn_user(
            f"n_neighbors={data.config.n_neighbors}: time grows with the cube of the number of neighbours, here {k}, "
            f"for each row of a prediction and of some tens of sweeps over all {data.source.n_rows} rows. Tens are "
            f"usual (n_neighbors='auto' takes {DEFAULT_NEIGHBORS}); inducing_points='all' uses all rows at once."
        )
    # A warm start may have a kernel for each class; the number of kernels is decided only without neighbours.
    is_without = len(initial.prior.groups) > 1 or has_decided(initial)
    if not k or not isinstance(data.source, ArraySource) or is_without:
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
        run.progress.skip("neighbours", run.history)
        latest = run.progress.latest
        # Own kernels are learned last, so learning ends here.
        if latest is None or len(latest.q.prior.groups) > 1:
            raise
    start = replace(initial, prior=latest.q.prior, previous=latest.q, site=latest.site, resumed=None)
    return with_own_kernels(data, run, replace(learn_in_stages(data, run, start), initial=initial))


def _learn_with(
    data: Data, run: Run, initial: InitialState, k: int, rows: np.ndarray, held_out: np.ndarray
) -> HyperparameterFit:
    """Learn with k neighbours; held-out rows, if any, decide whether "auto" keeps the neighbours."""
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
        # Held-out rows join the training rows again. Without an optimizer the variance is the user's, so it stays.
        link = task.link_at(local_fit.prior, local_fit.log_scale)
        sites = start_sites(data.source, link)
        for all_rows, of_rows, of_held_out in zip(sites, sweeps.sites, others.sites(link), strict=True):
            all_rows[:, rows], all_rows[:, held_out] = of_rows, of_held_out
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
    """Advice if sites do not converge, which was seen in 1 of 400 fits (five classes, variance 5e4)."""
    return (
        "Large variances of the kernel cause this, mostly with several classes; here the kernel is "
        f"{local_fit.prior.spec.kernel}. Bound its variance, for example with kernel=ConstantKernel(1.0, (0.01, "
        "10.0)) * RBF(), use another number of neighbours, or give n_neighbors=0; max_iter and tol have no effect on "
        "this."
    )


@dataclass(frozen=True)
class Both:
    """The results of learning from some rows without neighbours and with them.

    Attributes
    ----------
    sparse : result without neighbours
    fitted : sparse posterior of these rows
    is_done : whether learning without neighbours is complete
    local_fit : result with neighbours
    notes : messages for the user
    """

    sparse: HyperparameterFit
    fitted: KernelPosterior
    is_done: bool
    local_fit: LocalFit
    notes: tuple[str, ...]


def _learn_both(data: Data, run: Run, initial: InitialState, task: Task) -> Both:
    """Learn with and without neighbours from the task's rows; add inducing points if neighbours gain little."""
    max_iter = 0 if data.config.optimizer is None else data.config.max_iter
    is_auto = isinstance(data.config.subset_sizes, str)
    subset = None
    if max_iter and is_auto:
        size = min(START_ROWS, START_CLASS_ROWS * len(data.classes))
        subset = Subsets(task.source.labels(), run.random_state).rows(size)
    start = replace(initial, training=initial.training.part(subset), grow_to=0)
    # With few rows learning takes little time.
    has_many = task.source.n_rows >= MIN_ROWS
    limit = START_ITERATIONS if has_many else None
    sparse = learn_in_stages(data, run, start, limit)
    sparse = replace(sparse, initial=initial)
    began = 0.0 if run.deadline is None else run.deadline.now()
    tried = first_round(task, _prior(sparse), initial.prior.groups[0].spec, data.config.kernel is None, max_iter)
    is_done = subset is None and not initial.grow_to and (limit is None or max_iter <= limit)
    fitted = _fitted(data, sparse)
    is_told = any(beats_base_rate(task, one) for one in tried)
    # With several classes, more points take longer than all other work, so they are added only if neighbours are
    # rejected (landsat, 256 points: 72 s, against 23 s).
    is_single = task.n_latents is None
    if not is_done and (not is_told or (is_single and _gain(task, tried[0], fitted) < SMALL_GAIN)):
        most = min(initial.grow_to, MOST_POINTS, MOST_VALUES // task.source.n_rows) if is_single else 0
        allowed = most
        if is_told and run.deadline is not None and most > sparse.prior.n_inducing:
            allowed = min(most, _points_in_time(run.deadline, began))
        # If neighbours find no structure, this kernel is final and is learned without a limit.
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
        # Without structure the second round has nothing to improve.
        return Both(sparse, fitted, is_done, replace(local_fit, prior=_prior(sparse)), notes)
    return Both(sparse, fitted, is_done, second_round(task, moved(local_fit, _prior(sparse)), max_iter), notes)


def _points_in_time(deadline: Deadline, began: float) -> int:
    """Number of inducing points for which the rest of the fit ends in time, given when the first round began."""
    took = deadline.now() - began
    return int(min(MOST_POINTS, max(0.0, POINTS_OF_A_ROUND * deadline.left / took) if took > 0.0 else MOST_POINTS))


def _notes(task: Task, tried: list[LocalFit]) -> tuple[str, ...]:
    """Messages for the user if the first round found no structure; the history records them, too."""
    if any(beats_base_rate(task, one) for one in tried):
        return ()
    (before,) = tried
    n_queries, kept = len(before.held_out), "The kernel is the one learned without neighbours"
    if n_queries < LEAST_QUERIES:
        few = f"{kept}: learning with them needs at least {LEAST_QUERIES} held-out rows, and there are {n_queries}."
        task.history.add(decision=few)
        return ()
    score, weight, others = before.learned.mean, before.learned.weight, base_rate_log_scores(task, before.held_out)
    error = standard_error(before.learned.values - others, weight)
    base = np.average(others, weights=weight)
    none = (
        f"{kept}: from every start, {n_queries} held-out rows were not clearly better predicted with "
        f"{task.n_neighbors} neighbours (mean log probability {score:.4g} nats) than by the class frequencies "
        f"({base:.4g}, standard error of the difference {error:.2g})."
    )
    task.history.add(decision=none)
    advice = (
        "If the features separate the classes, more rows may show it, or a kernel whose length scales start near the "
        "distance over which the classes change; n_neighbors=0 uses no neighbours."
    )
    return (f"{none} {advice}",)


def _learned_on(
    data: Data, run: Run, sparse: HyperparameterFit, grow_to: int, most_iterations: int | None = None
) -> HyperparameterFit:
    """Continue learning, with up to ``grow_to`` inducing points as long as they pay."""
    start = replace(sparse.initial, prior=sparse.prior, previous=sparse.q, grow_to=grow_to, resumed=None)
    more = learn_in_stages(data, run, start, most_iterations)
    return replace(more, initial=sparse.initial, n_iter=sparse.n_iter + more.n_iter)


def _without(data: Data, run: Run, initial: InitialState, both: Both) -> HyperparameterFit:
    """Complete the learning without neighbours, with as many inducing points as the initial state allows."""
    sparse = both.sparse if both.is_done else _learned_on(data, run, both.sparse, initial.grow_to)
    return with_own_kernels(data, run, replace(sparse, initial=initial))


def _prior(learned: HyperparameterFit) -> SparsePrior:
    prior = learned.prior.groups[0]
    assert isinstance(prior, SparsePrior)
    return prior


def _fitted(data: Data, sparse: HyperparameterFit) -> KernelPosterior:
    """The sparse posterior of all rows of its training set."""
    training = sparse.initial.training
    site = data.prior_mean.site(sparse.site, sparse.prior)
    start = starting_posterior(training, sparse.q, sparse.prior, site)
    tol, max_iter = data.config.tol, data.config.max_iter
    return coordinate_ascent(training, start, site, tol=tol, max_iter=max_iter, history=History()).q


def _gain(task: Task, local_fit: LocalFit, sparse: KernelPosterior) -> float:
    """Gain of the mean log probability of the round's held-out rows over the sparse posterior, which has seen them."""
    without = _scores(sparse, task.source.sample(local_fit.held_out), task)
    return local_fit.learned.mean - without.mean


def _scores(q: KernelPosterior, source: ArraySource, task: Task) -> Scores:
    """Scores of rows under the sparse posterior."""
    y, weight = labels_and_weights(source)
    mean, variance = map(np.atleast_2d, q.marginals(source.X, task.executor.n_threads))
    return Scores(task.link_at(q.prior, 0.0).scores(mean, variance, y)[0], weight)


def _is_better(task: Task, others: HeldOutPredictions, both: Both) -> bool:
    """Whether neighbours predict held-out rows better by enough to pay; the history records the reason."""
    without = _scores(both.fitted, others.source, task)
    are_better, words = is_better(others.scores.values - without.values, without.weight)
    m = both.sparse.prior.n_inducing
    reason = f"With {task.n_neighbors} neighbours of each row besides {m} inducing points, {words}"
    task.history.add(n_neighbors=task.n_neighbors, query_score=others.scores.mean, decision=reason)
    return are_better
