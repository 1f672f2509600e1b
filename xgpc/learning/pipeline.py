"""The three steps of a fit: choose the first candidate, learn, infer the posterior of all rows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from ..approximations.base import KernelPosterior
from ..approximations.local import LocalPosterior, Posterior
from ..inference.correction import evidence_of
from ..inference.fitting import Evidence, Start, fit_posterior_or_keep, from_some, posterior_before, projected_sums
from ..inference.mini_batch import batch_rows
from ..inference.prior_mean import log_likelihood_of_frequencies
from ..inference.sweeps import start_sites
from ..kernels.default import without_features
from ..kernels.prior import NO_PRIOR
from ..likelihoods import predicted_log_probabilities
from ..names import listed
from ..rows.clock import stopped_by_interrupts
from ..rows.coinciding import Agreement, agreement_of_labels
from ..rows.source import ArraySource
from .all_rows import AllRows
from .fit import Candidate, Fit, FitResult, FurtherRows, PreviousFit
from .inducing import MAX_INDUCING, with_more_points
from .learn import learn
from .over_frequencies import ROWS_OF_WARNING, gain_over_frequencies
from .rounds import Task
from .scores import Gain, Scores
from .stages import learn_in_stages
from .start import start

# After "stochastic", ``tol`` of the posterior of all rows is multiplied by this: most passes would gain little.
AFTER_MINI_BATCHES = 100.0
# Spread of the log length scales if all features count as about equally relevant: a length scale then counts as .01
# parameters where the fit is compared with the class frequencies (``LengthScalePrior.n_effective``).
NARROW_SPREAD = 0.1
NOTHING_SHOWN = (
    "the fit has not shown that the features separate the classes. More rows or other features may help; compare with "
    "logistic regression."
)
# A kernel parameter whose logarithm is this near to a bound counts as being at the bound.
AT_BOUND = 1e-3
# A learned bound must exceed this multiple of the log likelihood of random guessing, or it counts as no gain.
NO_GAIN = 0.999
# A feature counts as switched off if its length scale exceeds this many standard deviations: rows four deviations apart
# then have an RBF correlation above 0.99.
SWITCHED_OFF = 30.0


def ending_early(fit: Fit) -> AbstractContextManager[object]:
    """Context in which an interrupt ends the fit early, with ``keep_on_interrupt``."""
    return stopped_by_interrupts(fit.run.clock) if fit.config.keep_on_interrupt else nullcontext()


def learn_and_infer(whole: Fit, previous: PreviousFit | None) -> FitResult:
    """Choose the first candidate, learn as long as time permits, and infer the posterior of all rows."""
    fit, run = whole.merged(), whole.run
    if n_copies := whole.source.n_rows - fit.source.n_rows:
        copies = f"{n_copies} of {whole.source.n_rows} rows have the features and the label of another"
        run.history.add(decision=f"{copies}: learning takes these as one row with the sum of their weights.")
    with ending_early(fit):
        first = start(fit, previous)
        learned = run.in_time("learning", learn, fit, first)
        if learned is None:
            learned = replace(first if run.best is None else first.at(*run.best), n_iter=run.n_updates)
        if learned.n_iter:
            kernels = ", ".join(str(group.spec.kernel) for group in learned.prior.groups)
            run.history.tell(decision=f"The kernel after {learned.n_iter} iterations of learning: {kernels}.")
        if learned.local is not None:
            return result_with_neighbors(whole, learned, *learned.local)
        result = infer(fit, first, learned)
        # The user's kernel, and that of a warm start, stay.
        may_change = fit.config.kernel is None and first.q is None and not first.prior.is_full
        gain = result.gain
        if gain is not None and not gain.is_shown and not run.skipped and may_change:
            return _simpler(fit, first, result, gain)
    assert result.evidence is not None
    elbo = result.evidence.elbo
    if first.q is None or not fit.learns or run.skipped or not _shows_nothing(fit, elbo):
        return result
    run.history.add(decision="From the previous fit, learning shows nothing of the classes: a new start is compared.")
    new_result = learn_and_infer(whole, None)
    return result if new_result.evidence is not None and new_result.evidence.elbo <= elbo else new_result


def _shows_nothing(fit: Fit, elbo: float) -> bool:
    """Whether a bound is no better than the log likelihood of guessing, or than that of the class frequencies."""
    if fit.is_of_one_class or not (fit.record.is_bound and fit.record.is_probability):
        return False
    uniform = -np.log(len(fit.classes)) * np.sum(fit.class_totals)
    return elbo <= max(NO_GAIN * uniform, log_likelihood_of_frequencies(fit.class_totals))


def _simpler(fit: Fit, first: Candidate, result: FitResult, gain: Gain) -> FitResult:
    """The best of ``result``, whose gain shows nothing, and of simpler fits, tried until the gain of one is shown."""
    prior, run, chosen = first.prior, fit.run, ""
    first_gain, narrow = gain, replace(first.length_scale_prior, spread=NARROW_SPREAD)
    constant = prior.rebuilt([without_features(group.spec) for group in prior.groups], prior.Z)
    candidates = {
        "about equally relevant features": replace(first, length_scale_prior=narrow),
        "a constant alone": replace(first, prior=constant, length_scale_prior=NO_PRIOR, grow_to=0),
    }
    for description, candidate in candidates.items():
        run.history.add(decision=f"{gain.words}. A fit with {description} is tried.")
        learned = run.in_time("a simpler kernel", learn_in_stages, fit, candidate)
        if learned is None:
            break
        simpler = infer(fit, candidate, learned)
        if simpler.gain is not None and simpler.gain.is_above(gain):
            result, gain, chosen = simpler, simpler.gain, description
            if gain.is_shown:
                break
    run.history.add(decision=f"{gain.words}. The fit with {chosen or 'the default kernel'} is returned.")
    if chosen == "a constant alone":
        nothing = f"{first_gain.words}: {NOTHING_SHOWN} The returned fit predicts about the class frequencies."
        others = [message for message in result.messages if NOTHING_SHOWN not in message]
        result = replace(result, messages=[*others, nothing])
    return result


def result_with_neighbors(fit: Fit, learned: Candidate, q: LocalPosterior, scores: Scores | None = None) -> FitResult:
    """The result of learning that kept neighbours, and so has found their posterior already."""
    fit.run.history.tell(stage="done", n_rows=fit.source.n_rows, n_inducing=q.prior.n_inducing)
    site = fit.prior_mean.site(learned.site, q.prior, q.variance_scale)
    return FitResult(q, site, learned.n_iter, *_messages(fit, learned, q), None, scores)


def with_agreement(fit: Fit, result: FitResult, before: Agreement, factor: float = 1.0, n_before: int = 0) -> FitResult:
    """The result with how often labels of rows at the same place agree.

    ``before`` already counts the first ``n_before`` rows of ``fit``, whose copies are gone. Its labels now weigh
    ``factor`` times as much.
    """
    q = result.q
    # With groups or a splitter, rows to predict are of other groups or later times, and do not repeat these.
    if q.kept_rows is None or not fit.hold_out.is_random:
        return result
    X = fit.source.X
    rows, place = q.kept_rows.places.find(X)
    repeats = np.bincount(place, minlength=1)[place] > 1
    rows, place = rows[repeats], place[repeats]
    is_new = rows >= n_before
    if factor == 1.0 and not np.any(is_new):
        return replace(result, agreement=before)
    mean, variance = q.marginals(X[rows], fit.config.n_jobs)
    log_p = predicted_log_probabilities(result.site, mean, variance)
    agreement = agreement_of_labels(place, fit.hold_out.labels[rows], log_p, is_new, factor * before.log_likelihood)
    if np.any(is_new):
        fit.run.history.add(
            n_rows=fit.n_rows,
            decision=f"{np.sum(is_new)} rows have the features of another. They show that a new row which equals a "
            f"training row repeats its label with probability {agreement.probability:.3g}; otherwise the posterior "
            "gives the label.",
        )
    return replace(result, agreement=agreement)


def infer(fit: Fit, first: Candidate, learned: Candidate) -> FitResult:
    """The posterior of all rows and its evidence."""
    run, config, training, source = fit.run, fit.config, fit.training, fit.source
    begin: Start = learned
    history, size = run.history, {"n_rows": fit.n_rows, "n_inducing": learned.prior.n_inducing}
    history.begin("posterior", **size)
    max_iter, tol = config.max_iter, config.tol
    if config.optimizer == "stochastic" and learned.n_iter:
        tol *= AFTER_MINI_BATCHES
        # Mini-batches have already learned from a random sample of a stream, so one pass over all rows is enough.
        max_iter = max_iter if fit.stream is None else 1
    # If mini-batches have learned the hyperparameters, full batches find the posterior of all rows.
    batch_size = None if config.learns_in_batches else batch_rows(config.batch_size, source.n_rows)
    given = fit.options(first.length_scale_prior)
    options = replace(given, batch_size=batch_size, tol=tol, max_iter=max_iter)
    if options.batch_size is not None:
        # Mini-batches pass over all rows only a few times, so that a cache would not pay.
        training = replace(training, source=ArraySource(source.rows, source.y, source.weight, cache_bytes=0))
    if fit.stream is not None:
        training, begin = from_some(training, fit.stream, begin, options)
        history.context.update(n_rows=fit.stream.n_rows)
        some = f"{source.n_rows} of {fit.stream.n_rows} rows"
        history.add(decision=f"Kernel and inducing points are learned from {some}; the posterior is that of all rows.")
    # Learned hyperparameters must beat those of the previous fit.
    previous = first if fit.learns else first.under(first.prior)
    point, n_steps, converged, _ = fit_posterior_or_keep(training, begin, previous, options)
    if not np.isfinite(point.elbo):
        spec, remark = point.q.prior.groups[0].spec, "scale the features and the sample weights to moderate values"
        if spec.not_compiled:
            remark = f"the kernel {spec.kernel} has no finite values"
        raise ValueError(f"The bound is {point.elbo}: {remark}.")
    history.tell(
        decision=f"The posterior of all rows has a bound of {point.elbo:.2f} nats, after {n_steps} more iterations."
    )
    evidence = evidence_of(training, point)
    if not converged and n_steps < max_iter and run.clock.has_passed():
        run.skip("more iterations of the posterior of all rows")
    elif not converged and max_iter == config.max_iter:
        learned = replace(learned, problems=(*learned.problems, given.too_few("the posterior")))
    history.tell(stage="done", **size, iteration=n_steps, elbo=point.elbo)
    gain = gain_over_frequencies(fit, first, point)
    status = _messages(fit, learned, point.q, point.elbo, gain)
    return FitResult(point.q, point.site, learned.n_iter or n_steps, *status, evidence, gain=gain)


def add_rows(further: FurtherRows, q: Posterior, evidence: Evidence | None, factor: float, n_new: int) -> FitResult:
    """The posterior of earlier rows, given by q, and of further rows; if learning is due, that of a new fit.

    The earlier rows count ``factor`` times as much as before.
    """
    batch, kept, stay, is_due = further
    run = batch.run
    if q.kept_rows is not None:
        assert kept is not None
        # q has the prior mean of ``batch``; a new fit starts from that in the user's parameters.
        result = _with_more_neighbors(replace(kept, prior_mean=batch.prior_mean), q.kept_rows, stay)
    else:
        assert evidence is not None
        result = _online(batch, q.without_neighbors(), evidence, factor, n_new)
    if kept is None or not is_due:
        return result
    run.history.add(decision=f"Everything is learned anew from the latest {kept.source.n_rows} rows of the stream.")
    new_result = learn_and_infer(kept, None)
    if not run.skipped and not (kept.config.given_neighbors and result.q.n_neighbors > new_result.q.n_neighbors):
        return new_result
    # An incomplete fit may be worse than what was learned before, and would stay for long.
    messages = [*new_result.messages, "The stream keeps the kernel that it had."]
    return replace(result, is_complete=False, messages=messages)


def _with_more_neighbors(fit: Fit, q: LocalPosterior, stay: np.ndarray) -> FitResult:
    """The posterior of ``fit``'s rows under q's kernel; the first of them are q's rows of the numbers ``stay``."""
    # Without ``ending_early``, because sweeps that an interrupt ends early are of no use.
    present = Candidate(q.prior, None, fit.record.site(len(fit.classes)))
    log_scale, all_of_them = float(np.log(q.variance_scale)), (np.arange(fit.source.n_rows), np.arange(0))
    task = Task(fit, fit, present, q.n_neighbors, all_of_them)
    all_rows = AllRows(task, fit.source, q.prior, log_scale, q.n_neighbors)
    sites = start_sites(fit.source, all_rows.local.site)
    sites[:, :, : len(stay)] = q.precision[:, stay], q.linear[:, stay]
    local, sweeps = all_rows.posterior(sites, log_scale)
    problems = () if sweeps.converged else (f"the sites did not converge in {sweeps.n_sweeps} sweeps",)
    return result_with_neighbors(fit, replace(present, n_iter=sweeps.n_sweeps, problems=problems), local)


def _online(fit: Fit, q: KernelPosterior, evidence: Evidence, forgetting_factor: float, n_new: int) -> FitResult:
    """The posterior without neighbours; up to ``n_new`` of the further rows become inducing points.

    The bound is that of the further rows given all rows before.
    """
    # Nothing is learned, and all rows are in each iteration.
    fit = replace(fit, config=replace(fit.config, optimizer=None, batch_size=None))
    m, rows = q.prior.n_inducing, fit.source.rows
    prior = with_more_points(q.prior, rows, min(n_new, MAX_INDUCING - m), fit.run.random_state, n_before=m)
    conditioned = prior.given(posterior_before(q, prior, forgetting_factor))
    with ending_early(fit):
        present = Candidate(conditioned, None, fit.record.site(len(fit.classes)))
        result = infer(fit, present, present)
    latest = result.evidence
    assert latest is not None
    if evidence.correction is not None and latest.correction is not None:
        pairs = zip(projected_sums(evidence.correction, q.prior, prior), latest.correction, strict=True)
        P, h = (forgetting_factor * earlier + added for earlier, added in pairs)
        latest = latest._replace(correction=(P, h))
    # The same distribution as a posterior under the prior without earlier batches.
    return replace(result, q=prior.proper_posterior(result.q.without_neighbors().eta), evidence=latest)


def _messages(
    fit: Fit, learned: Candidate, q: Posterior, elbo: float | None = None, gain: Gain | None = None
) -> tuple[bool, list[str]]:
    """Whether the fit is complete, and messages that the user can act on."""
    messages, run, problems, skipped = list[str](), fit.run, learned.problems, ", ".join(fit.run.skipped)
    if skipped:
        usable = "The fit can be used; more time may give a higher bound."
        messages.append(f"{run.clock.reason} left no time for {skipped}. {usable}")
    if problems:
        # One message for all, because advice for one problem alone may not help with the others.
        by_limit = ["max_iter" in problem for problem in problems]
        advice = "raise tol, or scale the features"
        if all(by_limit):
            advice = "raise max_iter for a higher bound, or tol"
        elif not any(by_limit):
            advice = f"more iterations do not help: {advice}"
        messages.append(f"{'; '.join(problems)}. The fit can be used; {advice}.")
    if learned.failed:
        messages.append(learned.failed)
    is_complete = not messages
    messages += learned.notes
    if learned.notes or not fit.learns or fit.is_of_one_class:
        return is_complete, messages
    if gain is not None and not gain.is_shown and not skipped:
        messages.append(f"{gain.words}: {NOTHING_SHOWN}")
    # With several classes the variance is chosen by left-out rows, not by the bound.
    elif elbo is not None and not skipped and not (gain and fit.record.is_multi_class) and _shows_nothing(fit, elbo):
        nothing = (
            f"The bound, {elbo:.5g} nats, is no better than the log likelihood of the labels under the class "
            f"frequencies alone, {log_likelihood_of_frequencies(fit.class_totals):.5g}: {NOTHING_SHOWN}"
        )
        if fit.source.n_rows < ROWS_OF_WARNING:
            run.history.add(decision=nothing)
        else:
            messages.append(nothing)
    # Parameters at the bounds of the default kernel are not reported: the user did not choose these bounds.
    return is_complete, messages if fit.config.kernel is None else [*messages, *_at_bounds(fit, q)]


def _at_bounds(fit: Fit, q: Posterior) -> list[str]:
    """Messages about kernel parameters at their bounds: one for irrelevant features, one for other parameters."""
    irrelevant, others, messages, features = [], [], [], fit.columns.described
    for label, group in zip(fit.classes.tolist(), q.prior.groups, strict=False):
        spec, of_class = group.spec, f"class {label!r}: " if len(q.prior.groups) > 1 else ""
        for name, of, value, (low, high) in zip(spec.names, spec.features, spec.theta, spec.bounds, strict=True):
            side = "lower" if abs(value - low) < AT_BOUND else "upper"
            if low >= high or min(abs(value - low), abs(value - high)) >= AT_BOUND:
                continue
            parameter, feature = f"{name} = {np.exp(value):.4g}", ""
            if of is not None:
                feature = features[of[0]] if len(of) == 1 or spec.groups is None else spec.groups.name_of(of[0])
                if side == "upper" and np.exp(value) > SWITCHED_OFF * np.hypot.reduce(fit.columns.spread[list(of)]):
                    irrelevant.append(f"{of_class}length scale of {feature} ({parameter})")
                    continue
            others.append(f"{of_class}{parameter} is at its {side} bound{f' ({feature})' if feature else ''}")
    if irrelevant:
        are = "is at its upper bound" if len(irrelevant) == 1 else "are at their upper bounds"
        messages.append(f"The {listed(irrelevant)} {are}: such features are irrelevant; drop them or ignore this.")
    if others:
        messages.append(
            f"Kernel parameters have run to their bounds: {listed(others)}. The data may not determine them: widen "
            "their bounds, or fix them. A variance at its upper bound means that the classes separate."
        )
    return messages
