"""The choice between one kernel for all classes and a kernel for each, by held-out rows."""

from __future__ import annotations

from dataclasses import replace

from ..approximations.base import KernelPosterior, KernelPrior, grouped
from ..inference.ascent import Point
from ..inference.run import Run
from ..rows.clock import during
from .candidates import Scores, accept
from .fit import Candidate, Fit
from .inducing import MOST_BYTES, fit_bytes
from .stages import MAX_MOVING, Learner, learn_in_stages, predicted

# With fewer rows, held-out rows cannot decide about own kernels, and the bound never can, because it rewards kernels
# that overfit.
LEAST_ROWS = 1000
# The trial of own kernels learns from at most this many of the other rows, or this many for each inducing point, so
# that it costs only a part of the fit.
TRIAL_ROWS, ROWS_PER_POINT = 1500, 15
# Iterations of the trial, and most iterations of a later stage: ten make most of the gain, more than twenty may
# overfit.
TRIAL_ITERATIONS, EACH_ITERATIONS = 10, 20


def learn_own_kernels(fit: Fit, first: Candidate, shared: Candidate) -> Candidate:
    """Try a kernel for each class, and learn further with these if held-out rows are better predicted.

    ``shared`` has learned one kernel for all classes from ``first``; the trial starts from it.
    """
    with during("the trial of a kernel for each class"):
        tried = _tried(fit, shared)
    subject = "With a kernel for each class in place of one for all,"
    if tried is None or not accept(tried[1][1].rise_from(tried[0][1]), subject, fit.run.history):
        return shared
    own = tried[1][0]
    fit.run.update(own.q, own.site)
    return learn_in_stages(fit, shared.at(own.q, own.site), first.grow_to, EACH_ITERATIONS)


def are_own_kernels_open(fit: Fit, first: Candidate, shared: Candidate) -> bool:
    """Whether the number of kernels is to be decided, and own kernels fit the memory limit."""
    config, n_rows, n_classes = fit.config, fit.source.n_rows, len(fit.classes)
    is_open = (
        config.share == "auto"
        and fit.record.is_multi_class
        and n_classes > 2
        and config.kernel is None
        # A user who gives a number of neighbours has chosen one kernel, even if the sites do not converge.
        and not config.given_neighbors
        and config.optimizer == "profile"
        # With fewer iterations the kernels hardly differ, and the trial would take as long as the fit.
        and config.max_iter >= TRIAL_ITERATIONS
        and not config.has_batches(n_rows)
        and n_rows >= LEAST_ROWS
        and not first.prior.is_full
        # A warm start keeps the number of kernels of the previous fit.
        and first.q is None
    )
    needed = fit_bytes(n_rows, n_classes, shared.prior.n_inducing, own_kernels=True) if is_open else 0.0
    if needed > MOST_BYTES:
        fit.run.history.add(
            decision=f"A kernel for each class would take {1e-9 * needed:.2g} GB of memory, more than the limit of "
            f"{1e-9 * MOST_BYTES:.2g} GB: not tried."
        )
    return is_open and needed <= MOST_BYTES


Tried = tuple[Point[KernelPosterior], Scores]


def _tried(fit: Fit, shared: Candidate) -> tuple[Tried, Tried] | None:
    """The shared kernel and own kernels after some iterations on the same rows; None without rows to hold out.

    The shared kernel was learned from the held-out rows too; its own further iterations remove this advantage.
    """
    m, run = shared.prior.n_inducing, Run(fit.run.executor, random_state=fit.seed)
    # If a fifth of the rows or less were held out, the standard error would be as large as the gain.
    rows, held_out = fit.hold_out.decision(0.5, run.random_state)
    if not len(held_out):
        return None
    learner = Learner(replace(fit, run=run).part(rows), shared)
    size = min(max(TRIAL_ROWS, ROWS_PER_POINT * min(m, MAX_MOVING)), learner.sizes(shared.prior)[0])
    part, moves = learner.part(size), fit.config.learn_inducing and m <= MAX_MOVING
    options = replace(learner.options, learn_inducing=moves, max_iter=TRIAL_ITERATIONS)

    def tried(prior: KernelPrior) -> Tried:
        point = learner.optimized(part, replace(shared, prior=prior), options).point
        return point, predicted(fit, point.q, point.site, held_out)

    return tried(shared.prior), tried(grouped([shared.prior.groups[0]] * len(fit.classes)))
