"""Learning: without neighbours first, then with them, if they are better for held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse

from ..approximations.base import KernelPosterior
from ..approximations.local_rows import metric
from ..approximations.sparse import SparsePrior
from ..inference.sweeps import start_sites
from ..kernels.default import axis_aligned, is_axis_aligned, is_of_default_kind
from ..likelihoods import RECORDS, predicted_log_probabilities
from ..rows.clock import during, has_passed
from ..status import warn_user
from .all_rows import AllRows
from .candidates import LEAST_GAIN, Gain, accept
from .fit import Candidate, Fit
from .hold_out import FEW_ROWS, Split
from .local import (
    LEAST_ERRORS,
    LEAST_HELD_OUT,
    LocalFit,
    Task,
    beats_base_rate,
    chosen,
    first_round,
    fitted_round,
    gain_of_round,
    log_scale_bounds,
    second_round,
)
from .score_test import score_test
from .stages import (
    FIRST_ROWS,
    GROWING_ITERATIONS,
    MAX_MOVING,
    Subsets,
    learn_in_stages,
    posterior_of,
    predicted,
)
from .variance import raised_variance

ONE_CLASS = (
    "All rows are of one class, which does not determine the kernel: it stays as it is, and no neighbours are used."
)
NO_PAIR = "No two rows are of one class, which does not determine the kernel: it stays, and no neighbours are used."
NO_USE = "n_neighbors=0 uses no neighbours."
# Default fits to at least SCORED_ROWS rows try neighbours; fewer rows have to be fitted within milliseconds.
SCORED_ROWS = 300
# Default number of neighbours (fewer predict worse, more take longer for no gain); a number above MANY_NEIGHBORS gives
# a warning.
DEFAULT_NEIGHBORS, MANY_NEIGHBORS = 24, 200
# Before neighbours are tried, the model without them learns from FIRST_ROWS rows for each class, but at most START_ROWS
# in total, in GROWING_ITERATIONS iterations, which halves the time of some fits. (With 2000 rows for each class, z of
# the score test is up to 2 higher, because structure that is not learned yet counts as a gain by neighbours.) The score
# test, too, uses at most START_ROWS rows. If neighbours gain little, points are added, with GROWN_ITERATIONS iterations
# for each number of points. (NLL of magic and higgs on three splits is .285 and .543; with fifteen iterations, which
# take a tenth of the time more, it is .286 and .540.)
START_ROWS, GROWN_ITERATIONS = 16_000, 5
# Largest product of rows and classes in this start: 16 000 rows of 26 classes would take as long as all that follows.
START_VALUES = 100_000
# Neighbours are tried if z of the score test is at least this number, which depends on the number of rows. On two
# splits of eleven sets, with 8000 rows for learning and 16 000 for the test, z is below 2.5 where neighbours gain
# nothing (but 4.8 on one split of skin_nonskin) and 3.5 to 28 where they gain. On 12 000 rows of bank-marketing, where
# they gain, z is 2.05. If there are few rows, the model has learned from the tested rows, which lowers z. (Of some
# thirty fits to 400 to 1500 rows, five had z above 1.5: four of these gained .03 to .06 nats, and one lost .003.)
LEAST_Z_OF_FEW, LEAST_Z_OF_SOME, LEAST_Z = 1.5, 2.0, 2.5
# With categorical columns many rows are equally near, so z must be larger. Of 15 tables four had z of 10 or more. Two
# of these were made by rules, and neighbours gained on the one that was compared (NLL .013 against .022, in a fifteenth
# of the time). On another, of positions of a game, they lost (.573 against .559, in 1/35 of the time). They also lost
# where z was smaller: on adult (z of 3.4 to 3.6, NLL .285 against .282) and on chess (z of 2.1 to 2.2).
LEAST_Z_OF_LEVELS = 6.0
# From this z on, neighbours gain much, whatever the first round's gain is (z is 28 on electricity and 37 on covtype; on
# higgs, where more inducing points help, it is 7 to 9).
LARGE_Z = 15.0
# If neighbours gain less than this, in nats, for the first round's held-out rows, inducing points are added before
# learning continues: they then help, too.
SMALL_GAIN = 0.05
# Neighbours are tried only if less than this share of the fit's time has passed: learning with them takes up to three
# times as long as the start, and is of no use before it is complete.
LATEST_SHARE = 0.25
# A model with neighbours gets more points only while rows times points, the number of values of the whitened rows, is
# at most this: a sweep over 20 000 rows with 256 points takes .2 s.
MOST_WHITENED = 6_000_000
# Accuracy, in nats a row, of the posterior that neighbours are compared with after points were added: the standard
# errors of these comparisons are .001 and more.
NATS_OF_ROW = 5e-4


def learn(fit: Fit, first: Candidate) -> Candidate:
    """Learn kernels and inducing points, with neighbours or a kernel for each class if these are possible and pay."""
    run = fit.run
    if fit.is_of_one_class:
        # The bound would rise with the variance without end.
        run.history.add(decision=ONE_CLASS)
        return first
    if len(fit.classes) > 2 and np.max(np.bincount(fit.hold_out.labels)) == 1:
        run.history.add(decision=NO_PAIR)
        return first
    k = n_neighbors(fit, first)
    near = _kept(fit) if k else fit
    # A warm start may have a kernel for each class; the number of kernels is decided only without neighbours.
    split = _split(near) if k and len(first.prior.groups) == 1 else None
    if split is None:
        learned = learn_in_stages(fit, first, first.grow_to)
    else:
        rows, held_out = split
        task = Task(near, near.part(rows if len(held_out) else None), first, k)
        begun = start_without_neighbors(task)
        is_late = begun.tries_neighbors and has_passed(run.clock, LATEST_SHARE)
        if is_late:
            run.skip("neighbours")
        if begun.tries_neighbors and not is_late:
            with during("neighbours"):
                learned = accept_neighbors(task, propose_neighbors(task, begun), split)
        elif begun.is_done and near is fit and not len(held_out):
            learned = begun.sparse
        else:
            learned = learn_in_stages(fit, begun.sparse, first.grow_to)
    return raised_variance(fit, learned) if learned.local is None else learned


def n_neighbors(fit: Fit, first: Candidate) -> int:
    """Number of neighbours, 0 for none, with a reason in the history; ValueError if they are given but impossible."""
    value, is_auto, n_rows = fit.config.n_neighbors, fit.config.has_auto_neighbors, fit.source.n_rows
    if not is_auto and value == 0:
        return 0
    reason = _why_not(fit, first)
    if reason and not is_auto:
        raise ValueError(f"n_neighbors={value} {reason}. Leave n_neighbors='auto', or give 0.")
    # The score test alone may decide for few rows, if learning uses all of them, and no splits are prescribed.
    may_test = fit.learns and isinstance(fit.config.subset_sizes, str) and fit.hold_out.is_random
    note, least = "", SCORED_ROWS if may_test else FEW_ROWS
    if issparse(fit.source.rows) and n_rows >= FEW_ROWS:
        note = "the distances need dense rows, and these are sparse."
    elif reason or (is_auto and n_rows < least):
        return 0
    elif fit.config.has_batches(n_rows):
        note = "fits in mini-batches do not support them."
    if note:
        fit.run.history.add(decision=f"No neighbours: {note}")
        if not is_auto:
            warn_user(
                f"n_neighbors={value} is not followed. No neighbours: {note} To use neighbours leave batch_size=None; "
                "to use none give n_neighbors=0."
            )
        return 0
    k = DEFAULT_NEIGHBORS if is_auto else min(int(value), n_rows)
    if k > MANY_NEIGHBORS:
        warn_user(
            f"n_neighbors={value}: time grows with the cube of the number of neighbours, here {k}, for each row of a "
            f"prediction and of some tens of sweeps over all {n_rows} rows. Tens are usual (n_neighbors='auto' takes "
            f"{DEFAULT_NEIGHBORS}); inducing_points='all' uses all rows at once."
        )
    return k


def _kept(fit: Fit) -> Fit:
    """The rows that a model with neighbours may keep, at random with the classes in proportion."""
    limit = fit.config.most_rows(fit.n_latents, fit.source.n_features)
    if fit.source.n_rows <= limit:
        return fit
    rows = Subsets(fit.source.y, fit.run.random_state).rows(limit)
    fit.run.history.add(
        decision=f"Neighbours are searched among {limit} of {fit.n_rows} rows, drawn at random; max_rows_in_model "
        "sets their number."
    )
    return fit.part(rows).merged()


def _why_not(fit: Fit, first: Candidate) -> str:
    """Why the model cannot have neighbours; empty if it can."""
    spec = first.prior.groups[0].spec
    if fit.record.cavity is None:
        (name, bound), keys = fit.record.key, (record.key for record in RECORDS if record.cavity is not None)
        allowed = ", ".join(f"{likelihood!r} with bound {its_bound!r}" for likelihood, its_bound in keys)
        return f"is for likelihood {allowed}; this model has {name!r} with bound {bound!r}"
    if fit.record.is_multi_class and fit.config.share == "none":
        return f"is for latent functions that share their kernel (share='kernel'); got share={fit.config.share!r}"
    if issparse(fit.source.rows):
        return "keeps and compares all rows as dense rows, but X is sparse: convert it with X.toarray()"
    if fit.config.is_full:
        return "is for models with inducing points; this one is a full Gaussian process"
    if spec.not_compiled:
        return f"is for compiled kernels; {spec.not_compiled}"
    if spec.is_periodic:
        return "is for kernels that fall with the distance, but ExpSineSquared repeats"
    return ""


def _split(fit: Fit) -> Split | None:
    """Rows to learn from and held-out rows, which decide whether "auto" keeps neighbours; None: no neighbours."""
    if fit.config.has_auto_neighbors and fit.source.n_rows < FEW_ROWS:
        # A few per cent of the rows could not decide; the score test and the first round do.
        return np.arange(fit.source.n_rows), np.arange(0)
    split = fit.hold_out.decision()
    if fit.config.has_auto_neighbors and not len(split[1]):
        fit.run.history.add(decision="No neighbours: there are too few rows, or groups of rows, to hold some out.")
        return None
    return split


class Start(NamedTuple):
    """Learning without neighbours as far as it goes before these are tried."""

    sparse: Candidate
    q: KernelPosterior
    is_done: bool  # whether learning without neighbours is complete
    tries_neighbors: bool  # by the score test, or because the user asks for neighbours
    is_doubtful: bool  # whether the test speaks against neighbours, so that the first round has to prove their gain
    is_gain_clear: bool  # whether the test leaves no doubt that neighbours gain much


def _limit(task: Task, iterations: int) -> int | None:
    """Iterations after which learning without neighbours pauses; None: no limit, as few rows take little time."""
    config = task.fit.config
    is_long = task.fit.learns and iterations < config.max_iter
    return iterations if task.fit.source.n_rows >= FEW_ROWS and is_long else None


def start_without_neighbors(task: Task) -> Start:
    """Learn a sparse posterior from some of the task's rows, and test whether neighbours would add to it."""
    fit, run, source, first = task.fit, task.fit.run, task.part.source, task.first
    is_auto, are_few, subset = fit.config.has_auto_neighbors, fit.source.n_rows < FEW_ROWS, None
    if fit.learns and isinstance(fit.config.subset_sizes, str):
        size = min(START_ROWS, FIRST_ROWS * len(fit.classes), START_VALUES // len(fit.classes))
        subset = Subsets(source.y, run.random_state).rows(size)
    # Few rows of two classes will most likely have no neighbours, so learning is completed first. With several classes
    # more points take longer than all other work, so they are added only if neighbours are rejected.
    limit = _limit(task, GROWING_ITERATIONS)
    grow_to = first.grow_to if is_auto and are_few and task.is_single else 0
    sparse = learn_in_stages(task.part.part(subset, is_thinned=True), first, grow_to, limit)
    is_done = subset is None and grow_to == first.grow_to and limit is None
    q = _posterior(task, sparse)
    if not is_auto:
        return Start(sparse, q, is_done, tries_neighbors=True, is_doubtful=False, is_gain_clear=False)
    n_threads, are_some = task.executor.n_threads, fit.source.n_rows < START_ROWS
    least = LEAST_Z_OF_FEW if are_few else LEAST_Z_OF_SOME if are_some else LEAST_Z
    if fit.encoding.has_levels:
        least = LEAST_Z_OF_LEVELS
    some = source.sample(np.linspace(0, source.n_rows - 1, min(source.n_rows, START_ROWS)).astype(np.intp))
    mean, variance = q.marginals(some.X, n_threads)
    site = fit.prior_mean.site(sparse.site, sparse.prior)
    log_p = predicted_log_probabilities(site, mean, variance)
    near = metric(sparse.prior.groups[0].core)
    z = round(score_test(near, np.exp(log_p), some, task.n_neighbors, n_threads), 2)
    # Few rows of several classes lower z so much that the first round decides. (Of 18 fits to 500 and 1000 rows of
    # seven sets, two took neighbours rightly, by .2, and two wrongly, by .003; five missed gains of .01 to .04.)
    is_doubtful = z < least and are_few and not task.is_single
    tries = z >= least or is_doubtful
    verdict = "are tried" if tries else f"are not tried, as at least {least:g} is required"
    if is_doubtful:
        verdict = f"are tried, but below {least:g} they must predict held-out rows better"
    test = "The score test for labels of near rows that are more alike than the inducing points explain has"
    run.history.add(score_test=z, decision=f"{test} z = {z:.2f}: neighbours {verdict}.")
    if tries:
        # Neighbours are compared with the best that is possible without them.
        q = _posterior(task, raised_variance(task.part, sparse))
    return Start(sparse, q, is_done, tries, is_doubtful, is_gain_clear=z >= LARGE_Z)


def _posterior(task: Task, sparse: Candidate) -> KernelPosterior:
    return posterior_of(task.part, sparse).q if sparse.q is None else sparse.q


class Pair(NamedTuple):
    """The results of learning from the same rows without neighbours and with them."""

    without: Start
    local: LocalFit
    has_structure: bool  # whether rounds predicted held-out rows better than the class frequencies
    notes: tuple[str, ...]  # messages about learning with neighbours


def propose_neighbors(task: Task, start: Start) -> Pair:
    """Learn with neighbours from the task's rows; add inducing points to both candidates if neighbours gain little."""
    part, is_single, n_rows = task.part, task.is_single, task.part.source.n_rows
    max_iter = part.config.max_iter if part.learns else 0
    sparse, q, is_done = start.sparse, start.q, start.is_done
    group, first = sparse.prior.groups[0], task.first.prior.groups[0].spec
    if is_axis_aligned(group.spec) and is_of_default_kind(first):
        first = axis_aligned(first)
    tried = first_round(task, group, first, max_iter)
    has_structure = any(beats_base_rate(task, candidate) for candidate in tried)
    if start.is_doubtful:
        has_structure = has_structure and _is_proven(task, sparse.under(q.prior), chosen(task, tried, False))
        if not has_structure:
            return Pair(start, tried[0], False, ())
    gains_much = has_structure and (not is_single or start.is_gain_clear)
    if has_structure and not gains_much:
        # The sparse posterior has seen these held-out rows.
        simpler = predicted(part, q, task.site(q.prior, 0.0), tried[0].held_out)
        gains_much = tried[0].learned.mean - simpler.mean >= SMALL_GAIN
    if not is_done and not gains_much:
        before = sparse.prior.n_inducing
        most = min(task.first.grow_to, MAX_MOVING, MOST_WHITENED // n_rows) if is_single else 0
        # If neighbours find no structure, this kernel is final and is learned without a limit. If they do, the second
        # round learns the kernel, and the posterior without neighbours only serves for the comparison.
        limit, grows = _limit(task, GROWN_ITERATIONS) if has_structure else None, most > before
        if limit is None:
            sparse = learn_in_stages(part, sparse, most if grows else 0)
            q = _posterior(task, sparse)
        elif grows:
            sparse = learn_in_stages(part, sparse, most, limit, only_grows=True)
            q = posterior_of(part, sparse, NATS_OF_ROW * n_rows).q
        is_done = limit is None and not most <= sparse.prior.n_inducing < task.first.grow_to
    local_fit = chosen(task, tried, sparse.prior.n_inducing > tried[0].prior.n_inducing)
    notes = () if has_structure or not max_iter else _notes(task, tried[0])
    prior: SparsePrior = sparse.prior.groups[0]
    # Without structure the second round has nothing to improve.
    if has_structure:
        prior = prior.rebuilt([local_fit.prior.spec], prior.Z)
    local_fit = replace(local_fit, prior=prior)
    if has_structure and max_iter:
        local_fit = second_round(task, local_fit, max_iter)
    return Pair(start._replace(sparse=sparse, q=q, is_done=is_done), local_fit, has_structure, notes)


def _notes(task: Task, before: LocalFit) -> tuple[str, ...]:
    """Messages for the user if the first round found no structure; the history records them, too."""
    n_held_out, kept = len(before.held_out), "The kernel is the one learned without neighbours"
    if n_held_out < LEAST_HELD_OUT:
        few = f"{kept}: learning with them needs at least {LEAST_HELD_OUT} held-out rows, and there are {n_held_out}."
        task.fit.run.history.add(decision=few)
        return ()
    gain = gain_of_round(task, before)
    required = f"more than {LEAST_ERRORS:g} standard errors of {gain.error:.2g} are required"
    if np.isnan(gain.error):
        required = "its standard error needs two groups or more"
    none = f"{gain.words}. The gain of {gain.nats:+.2g} shows no structure, as {required}. {kept}."
    task.fit.run.history.add(decision=none)
    advice = (
        "More rows may help, or a kernel whose length scales start near the distance over which the classes change."
    )
    return (f"{none} {advice} {NO_USE}",)


def _is_proven(task: Task, sparse: Candidate, local_fit: LocalFit) -> bool:
    """Whether neighbours improve predictions of the rows that the first round's kernel was not fitted to.

    That round has divided all rows. Now the held-out rows, to which it has fitted the kernel, predict the others.
    """
    held_out = local_fit.held_out
    others = np.setdiff1d(np.arange(task.part.source.n_rows), held_out)
    q = posterior_of(task.part.part(held_out), sparse).q
    simpler = predicted(task.part, q, task.site(q.prior, 0.0), others)
    subject = f"With {task.n_neighbors} neighbours of each row, and the two halves of the rows exchanged,"
    scores = fitted_round(task, local_fit, [(held_out, others)], 0).learned
    return accept(scores.above(simpler, LEAST_GAIN), subject, task.fit.run.history)


def accept_neighbors(task: Task, pair: Pair, split: Split) -> Candidate:
    """The posterior of all rows with neighbours; if these do not pay, the result of complete learning without them.

    ``split`` has the task's rows, and held-out rows: these, if any, decide whether "auto" keeps the neighbours.
    """
    fit, history, k, (rows, held_out) = task.fit, task.fit.run.history, task.n_neighbors, split
    is_auto, sparse, local_fit = fit.config.has_auto_neighbors, pair.without.sparse, pair.local
    if is_auto and not len(held_out) and not pair.has_structure:
        # With few rows none are held out, and the first round decides.
        return _completed(task, pair.without)
    # Sweeps need the memory of the passes' cache. Passes follow only if neighbours do not pay.
    task.part.source.forget()
    all_rows, log_scale = AllRows(task, local_fit.prior, local_fit.log_scale, fit.source), local_fit.log_scale
    start = start_sites(fit.source, all_rows.local.site)
    pays, notes, scores = True, pair.notes, local_fit.scores
    for all_terms, terms in zip(start, local_fit.sites, strict=True):
        all_terms[:, rows] = terms
    sites = all_rows.distinct.sums(start)
    if len(held_out):
        sweeps, left_out = all_rows.without(held_out, start)
        scores = replace(left_out.scores, groups=fit.hold_out.groups_of(held_out))
        if is_auto and sweeps.converged:
            subject = f"With {k} neighbours of each row besides {sparse.prior.n_inducing} inducing points,"
            columns, q = {"n_neighbors": k, "held_out_score": scores.mean}, pair.without.q
            simpler = predicted(fit, q, task.site(q.prior, 0.0), held_out)
            # Where the score test has supported neighbours, any rise is enough; but it ignores groups and splitters.
            is_likely = fit.hold_out.is_random and pair.has_structure
            rise = scores.above(simpler) if is_likely else scores.rise_from(simpler)
            pays = accept(rise, subject, history, **columns)
        how = f"With {k} neighbours {len(held_out)} held-out rows have"
        gain = Gain.of(scores, fit.hold_out.labels[held_out], fit.class_totals, how)
        if gain.nats < -gain.error:
            history.add(decision=f"{gain.words}.")
            pays, notes = pays and not is_auto, (*notes, f"{gain.words}: the labels of near rows mislead. {NO_USE}")
        # Held-out rows join the training rows again. Without an optimizer the variance is the user's, so it stays.
        sites = all_rows.joined(sweeps, held_out, left_out)
        if fit.learns:
            log_scale = left_out.log_scale(log_scale, log_scale_bounds(task))
    if pays and (not len(held_out) or sweeps.converged):
        local, sweeps = all_rows.posterior(sites, log_scale)
    if not (pays and sweeps.converged):
        failed = f"No neighbours: the sites of {k} neighbours did not converge in {sweeps.n_sweeps} sweeps."
        if pays:
            history.add(decision=failed)
        # Learning needs the memory of these rows' neighbourhoods.
        del all_rows
        sparse = _completed(task, pair.without)
        advice = (
            "Large variances of the kernel cause this, mostly with several classes or many copies of few rows; here "
            f"the kernel is {local_fit.prior.spec.kernel}. Bound its variance, for example with "
            "kernel=ConstantKernel(1.0, (0.01, 10.0)) * RBF() of sklearn.gaussian_process.kernels, give equal rows "
            "once with the sum of their weights, use another number of neighbours, or give n_neighbors=0."
        )
        return sparse if is_auto else replace(sparse, failed=f"{failed} {advice}")
    n_rows, n_copies = fit.source.n_rows, fit.source.n_rows - len(local.X)
    if n_copies:
        same = f"{n_copies} of {n_rows} rows have the features and the label of another"
        history.add(decision=f"{same}: among neighbours these are one row, with the sum of their weights.")
    n_iter, notes = sparse.n_iter + local_fit.n_iter, () if is_auto else notes
    return replace(sparse, prior=local_fit.prior, n_iter=n_iter, local=(local, scores), notes=notes)


def _completed(task: Task, start: Start) -> Candidate:
    """The result of learning without neighbours, after the learning that remains."""
    return start.sparse if start.is_done else learn_in_stages(task.part, start.sparse, task.first.grow_to)
