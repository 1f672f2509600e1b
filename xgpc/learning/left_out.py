"""Whether a fit predicts rows that it has not learned from better than the class frequencies do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..approximations.base import KernelPosterior
from ..inference.ascent import Point
from ..inference.run import Run
from ..kernels.prior import LengthScalePrior
from .candidates import Gain, joined
from .fit import Candidate, Fit
from .hold_out import HoldOut
from .stages import learn_in_stages, posterior_of, predicted, scores_of_rows


def gain_of_parts(fit: Fit, first: Candidate) -> Gain | None:
    """The gain of fits without neighbours to two thirds of the rows; None if that is impossible.

    Groups or a splitter divide the rows; without these the division is random.
    """
    # A run of its own: neither the history nor the random numbers of the fit depend on it.
    own, gains = Run(fit.run.executor, random_state=fit.seed), list[Gain]()
    splits = fit.hold_out.folds(None, own.random_state)
    for support, held_out in splits:
        # Within a part the bound alone chooses the kernel.
        alone = HoldOut(len(support), None, None, fit.hold_out.labels[support], own.random_state)
        part = replace(fit.part(support), run=own, hold_out=alone)
        # A previous fit may have learned from all rows, so learning starts without it.
        learned = learn_in_stages(part, replace(first, q=None))
        point = posterior_of(part, learned)
        totals = np.bincount(fit.record.codes(part.source.y), part.source.weight, len(fit.classes))
        scores = predicted(fit, point, held_out)
        gains.append(Gain.of(scores, fit.hold_out.labels[held_out], totals, "Left out in turn, parts of the rows have"))
    if not gains or own.skipped:
        return None
    # In the order of all rows, so that other fits can be compared row by row.
    order = np.argsort(np.concatenate([held_out for _, held_out in splits]), kind="stable")
    scores, base = joined([gain.scores for gain in gains]), joined([gain.base for gain in gains])
    return gains[0]._replace(scores=scores.at(order), base=base.at(order))


def gain_of_rows(fit: Fit, point: Point[KernelPosterior], prior: LengthScalePrior) -> Gain:
    """The gain of the posterior without the site of each row in turn, under the kernel that was learned."""
    scores, codes = scores_of_rows(fit, point), fit.record.codes(fit.source.y)
    n_learned = sum(prior.n_effective(group.spec) for group in point.q.prior.groups)
    totals = np.bincount(codes, scores.weight, len(fit.classes))
    return Gain.of(scores, codes, totals, "Predicted without their own labels, rows have", n_learned)
