"""Whether a fit predicts rows that it has not learned from better than the class frequencies do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..approximations.base import KernelPosterior
from ..inference.ascent import Point
from ..inference.run import Run
from .fit import MOST_CONTRADICTED, Candidate, Fit
from .hold_out import FEW_ROWS, HoldOut
from .left_out import left_out_scores, posterior_of, scores_of
from .scores import Gain, joined
from .stages import learn_in_stages

# Fits are compared with the class frequencies if rows times latent functions are at most this many: few parameters
# that were fitted to more rows hardly matter.
MOST_LEFT_OUT = 10_000
# With fewer rows a fit often gains nothing (in half of 400 random problems of 4 to 60 rows), and a user who has no more
# rows cannot act on a warning, so only ``decisions_`` say it.
ROWS_OF_WARNING = 100


def gain_over_frequencies(fit: Fit, first: Candidate, point: Point[KernelPosterior]) -> Gain | None:
    """The gain over the class frequencies on left-out rows, where something was learned and the rows are not many."""
    n_rows, run, gain = fit.source.n_rows, fit.run, None
    is_learned = fit.learns and fit.stream is None and not fit.is_of_one_class
    if not is_learned or not fit.record.is_probability or run.skipped:
        return None
    if fit.hold_out.is_random:
        places, labels = fit.hold_out.places, fit.hold_out.labels
        # Where merged places hold rows of several classes, those that stay would contradict the one that is left out.
        is_one_each = places is None or len(np.unique(places)) >= (1.0 - MOST_CONTRADICTED) * n_rows
        if not is_one_each or n_rows < ROWS_OF_WARNING or n_rows * fit.n_latents > MOST_LEFT_OUT:
            return None
        # The posterior without the site of each row in turn, under the kernel that was learned from all of them.
        scores = left_out_scores(fit, point)
        n_learned = sum(first.length_scale_prior.n_effective(group.spec) for group in point.q.prior.groups)
        totals = np.bincount(labels, fit.source.weight, len(fit.classes))
        gain = Gain.of(scores, labels, totals, "Predicted without their own labels, rows have", n_learned)
        if gain.is_shown:
            return gain
    if n_rows >= FEW_ROWS:
        return gain
    # Far fewer parameters may matter than were learned, so fits to parts of the rows decide.
    if gain is not None:
        run.history.add(decision=f"{gain.words}: fits to parts of the rows decide.")
    gain_of_parts = run.in_time("the comparison with the class frequencies", _gain_of_parts, fit, first)
    return None if run.skipped else gain_of_parts or gain


def _gain_of_parts(fit: Fit, first: Candidate) -> Gain | None:
    """The gain of fits without neighbours to two thirds of the rows; None if that is impossible.

    Groups or a splitter divide the rows; without these the division is random.
    """
    # A run of its own: neither the history nor the random numbers of the fit depend on it.
    own_run, gains = Run(fit.run.executor, random_state=fit.seed), list[Gain]()
    splits = fit.hold_out.folds(None, own_run.random_state)
    for support, held_out in splits:
        # Within a part the bound alone chooses the kernel.
        hold_out = HoldOut(None, None, fit.hold_out.labels[support], own_run.random_state)
        part = replace(fit.part(support), run=own_run, hold_out=hold_out)
        # A previous fit may have learned from all rows, so learning starts without it.
        point = posterior_of(part, learn_in_stages(part, replace(first, q=None)))
        totals = np.bincount(hold_out.labels, part.source.weight, len(fit.classes))
        scores = scores_of(fit.part(held_out), point)
        gains.append(Gain.of(scores, fit.hold_out.labels[held_out], totals, "Left out in turn, parts of the rows have"))
    if not gains or own_run.skipped:
        return None
    # In the order of all rows, so that other fits can be compared row by row.
    order = np.argsort(np.concatenate([held_out for _, held_out in splits]), kind="stable")
    scores, base = joined([gain.scores for gain in gains]), joined([gain.base for gain in gains])
    return gains[0]._replace(scores=scores.at(order), base=base.at(order))
