"""The posterior of some rows, and the scores of rows that it has not learned from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._engine import tolerance_unit
from ..approximations.base import KernelPosterior
from ..inference.ascent import Point, coordinate_ascent, starting_posterior, update
from ..likelihoods import label_log_probabilities
from .fit import Candidate, Fit
from .hold_out import Split
from .scores import Scores, joined

# Accuracy, in nats a row, of posteriors without neighbours that are compared with those with neighbours: the standard
# errors of such comparisons are .001 and more.
NATS_OF_ROW = 5e-4


def posterior_of(fit: Fit, candidate: Candidate, nats: float | None = None) -> Point[KernelPosterior]:
    """The posterior of a fit's rows under a candidate's prior, within ``tol`` or to within ``nats`` of its bound."""
    training, prior = fit.training, candidate.prior
    site = fit.prior_mean.site(candidate.site, prior)
    first = update(training, starting_posterior(training, candidate.q, prior, site), site)
    tol = fit.config.tol if nats is None else nats / tolerance_unit(first.log_likelihood)
    return coordinate_ascent(training, first.q, site, tol=tol, max_iter=fit.config.max_iter, first=first).point


def scores_of(new_rows: Fit, point: Point[KernelPosterior]) -> Scores:
    """Scores of a fit's rows by a posterior of other rows."""
    source = new_rows.source
    moments = point.q.marginals(source.X, new_rows.run.executor.n_threads)
    groups = new_rows.hold_out.groups_of(np.arange(source.n_rows))
    return Scores(label_log_probabilities(point.site, *moments, source.y), source.weight, groups)


def left_out_scores(fit: Fit, point: Point[KernelPosterior]) -> Scores:
    """Scores of a fit's rows by their posterior without the site of the row that is scored, under the same kernel.

    O(C n m^2). Of a latent function with marginal N(m, v) and site (lambda, r) at a row, whose labels explain V of the
    variance, the posterior without this site has mean m + V (lambda m - r) / (1 - lambda V) and variance
    v + lambda V^2 / (1 - lambda V). Without inducing points V is v (Vehtari et al., JMLR 17, 2016).
    """
    values = list[np.ndarray]()
    for block in fit.source.blocks():
        mean, variance, precision, linear, _ = point.sites.of(block)
        # The labels explain no part of the variance given the values at the inducing points.
        V = variance - point.q.unexplained(block)
        # 1 - lambda V is positive unless sites have not converged.
        share_left = np.maximum(1.0 - precision * V, np.finfo(float).eps)
        moments = mean + V * (precision * mean - linear) / share_left, variance + precision * V**2 / share_left
        values.append(label_log_probabilities(point.site, *moments, block.y))
    return Scores(np.concatenate(values), fit.source.weight, rows="rows left out in turn")


def scores_of_splits(fit: Fit, splits: list[Split], learned: Callable[[Fit], Point[KernelPosterior]]) -> Scores:
    """Scores of the held-out rows of some splits by the posteriors that are learned from their support rows."""
    return joined([scores_of(fit.part(held_out), learned(fit.part(support))) for support, held_out in splits])
