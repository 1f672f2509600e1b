"""Whether a fit predicts rows that it has not learned from better than the class frequencies do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..approximations.base import KernelPosterior, Training
from ..inference.ascent import Point
from ..inference.run import Run
from ..kernels.prior import LengthScalePrior
from ..likelihoods import label_log_probabilities
from ..rows.source import labels_and_weights
from .candidates import Gain, Scores, joined
from .fit import Candidate, Fit
from .hold_out import HoldOut
from .stages import learn_in_stages, posterior_of, predicted


def gain_of_parts(fit: Fit, first: Candidate) -> Gain | None:
    """The gain of fits without neighbours to two thirds of the rows; None if that is impossible.

    Groups or a splitter divide the rows; without these the division is random.
    """
    # A run of its own: neither the history nor the random numbers of the fit depend on it.
    own, gains = Run(fit.run.executor, random_state=fit.seed), list[Gain]()
    for support, held_out in fit.hold_out.folds(None) or fit.hold_out.random_folds(own.random_state):
        # Within a part the bound alone chooses the kernel.
        alone = HoldOut(len(support), None, None, fit.hold_out.labels[support], own.random_state)
        part = replace(fit.part(support), run=own, hold_out=alone)
        # A previous fit may have learned from all rows, so learning starts without it.
        learned = learn_in_stages(part, replace(first, q=None), first.grow_to)
        point = posterior_of(part, learned)
        y, weight = labels_and_weights(part.source)
        totals = np.bincount(fit.record.codes(y), weight, len(fit.classes))
        scores = predicted(fit, point.q, point.site, held_out)
        gains.append(Gain.of(scores, fit.hold_out.labels[held_out], totals, "Left out in turn, parts of the rows have"))
    if not gains or own.skipped:
        return None
    return gains[0]._replace(scores=joined([gain.scores for gain in gains]), base=joined([gain.base for gain in gains]))


def gain_of_rows(fit: Fit, training: Training, point: Point[KernelPosterior], prior: LengthScalePrior) -> Gain:
    """The gain of the posterior without the site of each row in turn, under the kernel that was learned; O(C n m^2).

    Of a latent function with marginal N(m, v) and site (lambda, r) at a row, whose labels explain V of the variance,
    the posterior without this site has mean m + V (lambda m - r) / (1 - lambda V) and variance
    v + lambda V^2 / (1 - lambda V).
    """
    q, blocks = point.q, list(training.source.blocks())
    y, weight = labels_and_weights(training.source)
    sites, codes = [point.sites.of(block) for block in blocks], fit.record.codes(y)
    names = "mean", "variance", "precision", "linear"
    mean, variance, precision, linear = (np.hstack([getattr(part, name) for part in sites]) for name in names)
    # Labels explain no part of the variance that is left where the values at the inducing points are known.
    V = variance - np.hstack([q.unexplained(block) for block in blocks])
    # This is positive unless sites have not converged.
    rest = np.maximum(1.0 - precision * V, np.finfo(float).eps)
    moments = mean + V * (precision * mean - linear) / rest, variance + precision * V**2 / rest
    scores = Scores(label_log_probabilities(point.site, *moments, y), weight)
    n_learned = sum(prior.n_effective(group.spec) for group in q.prior.groups)
    totals = np.bincount(codes, weight, len(fit.classes))
    return Gain.of(scores, codes, totals, "Predicted without their own labels, rows have", n_learned)
