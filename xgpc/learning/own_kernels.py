"""The choice between one kernel for all classes and a kernel for each, by held-out rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..approximations.base import KernelPosterior, KernelPrior, grouped
from ..inference.ascent import Point, starting_posterior
from ..inference.history import History
from ..inference.run import Run
from ..rows.clock import during
from .candidates import Scores, accept
from .inducing import MOST_BYTES, fit_bytes
from .optimizer import Model, Options, profile
from .stages import MAX_MOVING, Subsets, learn_in_stages, predicted, subset_sizes
from .start import Data, HyperparameterFit, InitialState

# With fewer rows, held-out rows cannot decide about own kernels, and the bound never can, because it rewards kernels
# that overfit.
LEAST_ROWS = 1000
# Share of all rows that is held out for that decision; with a fifth or less the standard error is as large as the gain.
HELD_OUT_SHARE = 0.5
# The trial of own kernels learns from at most this many of the other rows, or this many for each inducing point, so
# that it costs only a part of the fit.
TRIAL_ROWS, ROWS_PER_POINT = 1500, 15
# Iterations of the trial, and most iterations of a later stage: ten make most of the gain, more than twenty may
# overfit.
TRIAL_ITERATIONS, EACH_ITERATIONS = 10, 20


def learn_own_kernels(data: Data, run: Run, initial: InitialState, one: HyperparameterFit) -> HyperparameterFit:
    """Try a kernel for each class, and learn further with these if held-out rows are better predicted.

    ``one`` is the result with a kernel for all classes, from which the trial starts.
    """
    with during("the trial of a kernel for each class"):
        candidates = _propose(data, initial, one.model)
    subject = "With a kernel for each class in place of one for all,"
    if candidates is None or not accept(candidates[1][1].rise_from(candidates[0][1]), subject, run.history):
        return one
    each = candidates[1][0]
    run.update(each.q, each.site)
    start = initial.going_on(replace(one, model=Model.of(each)))
    return learn_in_stages(data, run, start, EACH_ITERATIONS)


def are_own_kernels_open(data: Data, run: Run, initial: InitialState, one: HyperparameterFit) -> bool:
    """Whether the number of kernels is to be decided, and own kernels fit the memory limit."""
    config, n_rows, n_classes = data.config, data.source.n_rows, len(data.classes)
    is_open = (
        config.share == "auto"
        and data.record.is_multi_class
        and n_classes > 2
        and config.kernel is None
        # A user who gives a number of neighbours has chosen one kernel, even if the sites do not converge.
        and not config.given_neighbors
        and config.optimizer == "profile"
        # With fewer iterations the kernels hardly differ, and the trial would take as long as the fit.
        and config.max_iter >= TRIAL_ITERATIONS
        and not config.has_batches(n_rows)
        and n_rows >= LEAST_ROWS
        and not initial.model.prior.is_full
        # A warm start keeps the number of kernels of the previous fit.
        and initial.model.q is None
    )
    needed = fit_bytes(n_rows, n_classes, one.model.prior.n_inducing, own_kernels=True) if is_open else 0.0
    if needed > MOST_BYTES:
        run.history.add(
            decision=f"A kernel for each class would take {1e-9 * needed:.2g} GB of memory, more than the limit of "
            f"{1e-9 * MOST_BYTES:.2g} GB: not tried."
        )
    return is_open and needed <= MOST_BYTES


Candidate = tuple[Point[KernelPosterior], Scores]


def _propose(data: Data, initial: InitialState, model: Model) -> tuple[Candidate, Candidate] | None:
    """The shared kernel and own kernels after some iterations on the same rows; None without rows to hold out.

    The shared kernel was learned from the held-out rows too; its own further iterations remove this advantage.
    """
    config, n_inducing, site, training = data.config, model.prior.n_inducing, model.site, initial.training
    random_state = np.random.RandomState(data.seed)
    rows, held_out = data.hold_out.decision(HELD_OUT_SHARE, random_state)
    most = max(TRIAL_ROWS, ROWS_PER_POINT * min(n_inducing, MAX_MOVING))
    size = min(most, subset_sizes(len(rows), n_inducing, config.subset_sizes)[0])
    some = Subsets(data.source.labels()[rows], random_state).rows(size)
    if not len(held_out):
        return None
    part, source = training.part(rows if some is None else rows[some]), data.source.sample(held_out)
    groups = data.hold_out.groups_of(held_out)
    learns_points, log_prior = config.learn_inducing and n_inducing <= MAX_MOVING, initial.length_scale_prior
    options = Options(learns_points, config.tol, TRIAL_ITERATIONS, History(), length_scale_prior=log_prior)

    def tried(prior: KernelPrior) -> Candidate:
        point = profile(part, starting_posterior(part, model.q, prior, site), site, options).point
        return point, predicted(point, source, groups, training.executor.n_threads)

    return tried(model.prior), tried(grouped([model.prior.groups[0]] * len(data.classes)))
