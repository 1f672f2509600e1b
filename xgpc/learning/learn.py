"""Learning: without neighbours first, then with them, if they are better for held-out rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import issparse

from ..approximations.sparse import SparsePrior
from ..inference.sweeps import start_sites
from ..kernels.default import axis_aligned, is_axis_aligned, is_of_default_kind
from ..likelihoods import RECORDS
from ..rows.clock import during
from ..status import warn_user
from .all_rows import AllRows
from .fit import Candidate, Fit
from .hold_out import FEW_ROWS, Split, Subsets
from .inducing import with_more_points
from .left_out import NATS_OF_ROW, posterior_of, scores_of
from .raised_variance import raised_variance
from .rounds import (
    ERRORS_OF_FEW,
    LocalFit,
    Task,
    first_round,
    fit_round,
    gain_of,
    log_scale_bounds,
    score,
    size_of_round,
)
from .scores import Scores, accept, joined
from .stages import (
    FIRST_ROWS,
    GROWING_ITERATIONS,
    LAST_ROWS,
    MIN_ITERATIONS,
    first_rows,
    learn_in_stages,
    more_points,
)

ONE_CLASS = "All rows are of one class, which does not determine the kernel: it stays, and no neighbours are used."
NO_PAIR = "No two rows are of one class, which does not determine the kernel: it stays, and no neighbours are used."
NO_USE = "n_neighbors=0 uses no neighbours."
NOT_CONVERGED = (
    "Large variances of the kernel cause this, mostly with several classes or many copies of few rows; here the kernel "
    "is {kernel}. Bound its variance, for example with kernel=ConstantKernel(1.0, (0.01, 10.0)) * RBF() of "
    "sklearn.gaussian_process.kernels, give equal rows once with the sum of their weights, use another number of "
    "neighbours, or give n_neighbors=0."
)
# Default fits to at least SCORED_ROWS rows try neighbours; fewer rows have to be fitted within milliseconds.
SCORED_ROWS = 300
# Default number of neighbours (fewer predict worse, more take longer for no gain); a number above MANY_NEIGHBORS gives
# a warning.
DEFAULT_NEIGHBORS, MANY_NEIGHBORS = 24, 200
# Neighbours are tried only if less than this share of the fit's time has passed: learning with them takes up to three
# times as long as what comes before, and is of no use before it is complete.
LATEST_SHARE = 0.25
# If more than this share of the rows repeat others, a user has copied them, and new rows will not repeat them as often.
# A bootstrap has .37, a table given twice .5. (Of the largest classes of wine, letter and cod-rna it is .19, .06, .28.)
MOST_REPEATED = 0.3


def learn(fit: Fit, first: Candidate) -> Candidate:
    """Learn kernels and inducing points, with neighbours if these are possible and pay."""
    run = fit.run
    if fit.is_of_one_class:
        # The bound would rise with the variance without end.
        run.history.add(decision=ONE_CLASS)
        return first
    if len(fit.classes) > 2 and np.max(np.bincount(fit.hold_out.labels)) == 1:
        run.history.add(decision=NO_PAIR)
        return first
    task = _task(fit, first)
    if task is None:
        return raised_variance(fit, learn_in_stages(fit, first))
    is_auto, part = fit.config.has_auto_neighbors, task.part
    is_complete = is_auto and fit.source.n_rows < FEW_ROWS
    if not is_complete and part.learns and isinstance(part.config.subset_sizes, str):
        # Before neighbours are tried, the model without them learns from these rows in GROWING_ITERATIONS iterations.
        part = replace(part, config=replace(part.config, subset_sizes=[max(2 * FIRST_ROWS, first_rows(part))]))
    sparse = learn_in_stages(part, first, None if is_complete else GROWING_ITERATIONS)
    if is_auto and run.clock.has_passed(LATEST_SHARE):
        run.skip("neighbours")
    else:
        with during("neighbours"):
            sparse = with_neighbors(task, sparse)
    if sparse.local is not None or is_complete:
        return sparse
    return raised_variance(fit, learn_in_stages(fit, sparse))


def n_neighbors(fit: Fit, first: Candidate) -> int:
    """Number of neighbours, 0 for none, with a reason in the history; ValueError if they are given but impossible."""
    config, n_rows = fit.config, fit.source.n_rows
    value, is_auto = config.n_neighbors, config.has_auto_neighbors
    if not is_auto and value == 0:
        return 0
    reason = _why_not(fit, first)
    if reason and not is_auto:
        raise ValueError(f"n_neighbors={value} {reason}. Leave n_neighbors='auto', or give 0.")
    # A round alone may decide for few rows, if learning uses all of them, and neither kernel nor splits are given.
    may_test = fit.learns and config.kernel is None and isinstance(config.subset_sizes, str) and fit.hold_out.is_random
    if reason or (is_auto and n_rows < (SCORED_ROWS if may_test else FEW_ROWS)):
        if issparse(fit.source.rows) and n_rows >= FEW_ROWS:
            fit.run.history.add(decision="No neighbours: the distances need dense rows, and these are sparse.")
        return 0
    if config.has_batches(n_rows):
        note = "No neighbours: fits in mini-batches do not support them."
        fit.run.history.add(decision=note)
        if not is_auto:
            warn_user(
                f"n_neighbors={value} is not followed. {note} To use neighbours leave batch_size=None; "
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


def _why_not(fit: Fit, first: Candidate) -> str:
    """Why the model cannot have neighbours; empty if it can."""
    spec = first.prior.groups[0].spec
    if fit.record.cavity is None:
        (name, bound), keys = fit.record.key, (record.key for record in RECORDS if record.cavity is not None)
        allowed = ", ".join(f"{likelihood!r} with bound {its_bound!r}" for likelihood, its_bound in keys)
        return f"is for likelihood {allowed}; this model has {name!r} with bound {bound!r}"
    if len(first.prior.groups) > 1:
        # If their number is given, a warm start has a kernel for each class only if the user asks for these.
        return f"is for latent functions that share their kernel (share='kernel'); got share={fit.config.share!r}"
    if issparse(fit.source.rows):
        return "keeps and compares all rows as dense rows, but X is sparse: convert it with X.toarray()"
    if fit.config.is_full:
        return "is for models with inducing points; this one is a full Gaussian process"
    if spec.not_compiled:
        return f"is for compiled kernels; {spec.not_compiled}"
    if any(leaf.family == "periodic" for _, leaf in spec.factors):
        return "is for kernels that fall with the distance, but ExpSineSquared repeats"
    return ""


def _task(fit: Fit, first: Candidate) -> Task | None:
    """The rows of a fit with neighbours, in rows to learn from and held-out rows; None without neighbours."""
    k, history, is_auto = n_neighbors(fit, first), fit.run.history, fit.config.has_auto_neighbors
    if not k:
        return None
    limit = fit.config.most_rows(fit.n_latents, fit.source.n_features)
    if fit.source.n_rows > limit:
        kept_rows = f"{limit} of {fit.n_rows} rows, drawn at random"
        history.add(decision=f"Neighbours are searched among {kept_rows}; max_rows_in_model sets their number.")
        fit = fit.part(Subsets(fit.source.y, fit.run.random_state).rows(limit)).merged()
    # With "auto", the first round decides for few rows.
    rows, held_out = split = fit.hold_out.decision(FEW_ROWS if is_auto else 0)
    if is_auto and not len(held_out) and fit.source.n_rows >= FEW_ROWS:
        history.add(decision="No neighbours: there are too few rows, or groups of rows, to hold some out.")
        return None
    return Task(fit, fit.part(rows if len(held_out) else None), first, k, split)


def _allowed_fall(fit: Fit, scores: Scores) -> float:
    """By how much the mean score may fall with neighbours, a negative number, or 0 without copies.

    New rows repeat training rows as often as these repeat each other, but no copies are held out. Neighbours know the
    labels of repeated rows, so on the other rows they may lose as much: the share of copies times the mean score.
    """
    return fit.share_of_copies * scores.mean if fit.share_of_copies < MOST_REPEATED else 0.0


def with_neighbors(task: Task, sparse: Candidate) -> Candidate:
    """The candidate with the posterior of all rows with neighbours.

    If these do not pay, it is ``sparse``, from which learning goes on, or for few rows the result without neighbours.
    """
    part, history, k = task.part, task.fit.run.history, task.n_neighbors
    is_auto, max_iter = part.config.has_auto_neighbors, part.config.max_iter if part.learns else 0
    splits = part.hold_out.draw(size_of_round(0, part.n_latents)[0])
    larger, few = sparse.prior.groups[0], task.first.prior.groups[0]
    # Neighbours are compared with the best that is possible without them, from the same support rows. With two classes
    # the variance is not raised, or neighbours would be left out where new rows gain by them (NLL of three splits of
    # bank-marketing .1919, not .1908).
    without = raised_variance(part, sparse) if is_auto and part.record.is_multi_class else sparse
    sparse = without if is_auto and not len(task.split[1]) else sparse
    # With more points rounds take longer, so more are tried only once a kernel is known.
    few = few.rebuilt([larger.spec], few.Z) if few.n_inducing < larger.n_inducing else larger
    first = task.first.prior.groups[0].spec
    if is_axis_aligned(few.spec) and is_of_default_kind(first):
        first = axis_aligned(first)
    local_fits, splits, simpler = first_round(task, few, first, without, splits, max_iter)
    # With "auto" later decisions see more rows, so a learned kernel need not be better than the unchanged one yet.
    learned = [result for result in local_fits if result.n_learned and is_auto]
    best = max(learned or local_fits, key=score)
    if max_iter and (number := more_points(task.first, part)):
        best = _with_more_points(task, best, larger, number, splits, max_iter)
    if is_auto:
        option = f"{k} neighbours of each row, in the first round of learning"
        errors = (-1.0 if len(task.split[1]) else ERRORS_OF_FEW) * (best.corrected - simpler).error_or_zero
        if not accept(best.corrected.above(simpler, errors + _allowed_fall(task.fit, best.corrected)), option, history):
            return sparse
    elif max_iter and not best.n_learned:
        gain = gain_of(task, local_fits[-1].corrected, part, np.concatenate([rows for _, rows in splits]))
        if not gain.is_shown:
            shown = f"The gain of {gain.nats:+.2g} shows no structure: the kernel is that without neighbours."
            sparse = replace(sparse, notes=(f"{gain.words}. {shown} {NO_USE}",))
    scores = best.corrected
    if best.n_learned:
        n_rows, n_iter = size_of_round(1, part.n_latents)
        best = fit_round(task, best, part.hold_out.draw(n_rows), min(max_iter, n_iter))
    return accept_neighbors(task, sparse, without, best, (scores, simpler))


def _with_more_points(
    task: Task, best: LocalFit, larger: SparsePrior, number: int, splits: list[Split], max_iter: int
) -> LocalFit:
    """``best``, or the fit with more inducing points if its score is higher.

    The points are those of ``larger``, learned without neighbours, or if these are as few, further rows.
    """
    n_few, prior = best.prior.n_inducing, larger.rebuilt([best.prior.spec], larger.Z)
    if larger.n_inducing == n_few:
        (prior,) = with_more_points(prior, task.part.source.rows, number - n_few, task.fit.run.random_state).groups
    richer = fit_round(task, replace(best, prior=prior), splits, min(MIN_ITERATIONS, max_iter))
    option = f"{prior.n_inducing} inducing points in place of {n_few} beside neighbours"
    return richer if accept(richer.corrected.above(best.corrected), option, task.fit.run.history) else best


def accept_neighbors(
    task: Task, sparse: Candidate, without: Candidate, local_fit: LocalFit, earlier: tuple[Scores, Scores]
) -> Candidate:
    """The posterior of all rows with neighbours; ``sparse`` if neighbours do not predict held-out rows better than
    ``without``.

    The held-out rows are those of the task, a few hundred of some thousand, and those of the first round, whose scores
    with its best kernel and without neighbours are ``earlier``.
    """
    fit, history, k, (rows, held_out) = task.fit, task.fit.run.history, task.n_neighbors, task.split
    is_auto, log_scale, scores = fit.config.has_auto_neighbors, local_fit.log_scale, local_fit.learned
    notes, sweeps, support, deciding, source = sparse.notes, None, None, np.arange(fit.source.n_rows), fit.source
    if len(held_out) and len(rows) > LAST_ROWS:
        # A part of the rows decides as well as all of them, in less time.
        support = Subsets(fit.source.y[rows], fit.run.random_state).rows(LAST_ROWS)
        deciding = np.union1d(rows[support], held_out)
        source = source.sample(deciding)
    sites = start_sites(fit.source, task.site(local_fit.prior, log_scale))
    sites[:, :, rows] = local_fit.sites
    if is_auto and len(held_out):
        part = task.part.part(support)
        simpler = scores_of(fit.part(held_out), posterior_of(part, without, NATS_OF_ROW * part.source.n_rows))
    # Sweeps need the memory of the passes' cache.
    task.part.source.forget()
    all_rows = AllRows(task, source, local_fit.prior, log_scale, k)
    if len(held_out):
        positions = np.searchsorted(deciding, held_out)
        sweeps, left_out = all_rows.without(positions, sites[:, :, deciding])
        scores = replace(left_out.scores, groups=fit.hold_out.groups_of(held_out))
        if is_auto and sweeps.converged:
            # Predictions without neighbours are faster. Of 13 fits with a smaller rise, seven had a lower NLL without.
            both, simpler = joined([earlier[0], scores]), joined([earlier[1], simpler])
            rise = both.above(simpler, _allowed_fall(fit, both), is_costlier=True)
            option = f"{k} neighbours of each row beside {local_fit.prior.n_inducing} inducing points"
            if not accept(rise, option, history, n_neighbors=k, held_out_score=scores.mean):
                return sparse
        gain = gain_of(task, scores, fit, held_out)
        if gain.nats < -gain.error:
            history.add(decision=f"{gain.words}.")
            if is_auto:
                return sparse
            notes = (*notes, f"{gain.words}: the labels of near rows mislead. {NO_USE}")
        # Held-out rows join the training rows again. Without an optimizer the variance is the user's, so it stays.
        sites[:, :, deciding] = all_rows.distinct.parts(all_rows.sites_of_all(sweeps, positions, left_out))
        if fit.learns:
            log_scale = left_out.log_scale(log_scale, log_scale_bounds(task))
    if sweeps is None or sweeps.converged:
        if support is not None:
            all_rows = AllRows(task, fit.source, local_fit.prior, log_scale, k)
        local, sweeps = all_rows.posterior(sites, log_scale)
    if not sweeps.converged:
        failed = f"No neighbours: the sites with {k} neighbours did not converge in {sweeps.n_sweeps} sweeps."
        history.add(decision=failed)
        advice = NOT_CONVERGED.format(kernel=local_fit.prior.spec.kernel)
        return sparse if is_auto else replace(sparse, failed=f"{failed} {advice}")
    if n_copies := fit.source.n_rows - len(local.X):
        copies = f"{n_copies} of {fit.source.n_rows} rows have the features and the label of another"
        history.add(decision=f"{copies}: among neighbours these are one row, with the sum of their weights.")
    n_iter = sparse.n_iter + local_fit.n_iter
    return replace(sparse, prior=local_fit.prior, n_iter=n_iter, notes=notes, local=(local, scores))
