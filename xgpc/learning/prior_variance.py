"""The prior variance of a linear model, learned in alternation with its posterior."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._engine import FALLBACK_AFTER, MAX_HALVINGS, ROUND_OFF
from .._sites import Site
from ..approximations.base import KernelPosterior, Training
from ..approximations.linear import LinearPrior
from ..inference.ascent import Ascent, Point, coordinate_ascent, is_small
from ..inference.mini_batch import MiniBatches, mini_batch_ascent
from ..inference.options import Options

# Largest change of log s^2 after an epoch of mini-batches: after noisy first epochs s^2 would otherwise leap to its
# upper bound, and the rates would have fallen before it came back. (Of 54 fits one leapt without the limit; with it
# none did, and the others took up to 1.6 times as many epochs, with a quarter of it up to 3.3 times.)
LARGEST_MOVE_OF_EPOCH = 1.0


def ascend(training: Training, prior: LinearPrior, site: Site, options: Options) -> Ascent[Any]:
    """Alternate full-batch steps of q with moves of s^2; halve a move that lowers a bound."""
    tol, max_iter, history = options.tol, options.max_iter, options.history
    # Steps of q between two moves of the prior variance: enough to reach coordinate ascent's safe fallback.
    few = FALLBACK_AFTER + 1 if prior.low < prior.high else max_iter
    start = prior.at_prior()
    best: Point[Any] | None = None
    elbo, n_iter, limit, fraction, log_t, settled = -np.inf, 0, few, 1.0, 0.0, False
    while True:
        history.context["prior_variance"] = start.prior.variance
        most = min(limit, max_iter - n_iter)
        ascent = coordinate_ascent(training, start, site, tol=tol, max_iter=most, history=history)
        n_iter += max(ascent.n_iter, 1)
        rests = ascent.converged
        if best is None or not site.record.is_bound or ascent.point.elbo >= elbo - ROUND_OFF * abs(elbo):
            best, elbo, fraction = ascent.point, ascent.point.elbo, 1.0
            log_t, gain = best.q.prior.best_move(*sums_of_sites(best.q))
            settled = is_small(gain, elbo, tol)
        else:
            fraction *= 0.5
            settled, rests = fraction < 0.5**MAX_HALVINGS, False
        if (rests and settled) or n_iter >= max_iter or not np.isfinite(elbo):
            return Ascent(best, n_iter, rests and settled)
        start, limit = best.q, max_iter
        if not settled:
            # The same sites under the moved prior.
            moved, t = best.q.prior.moved(fraction * log_t)
            S, h = sums_of_sites(best.q)
            start, limit = moved.proper_posterior(moved.with_sites((np.outer(t, t) * S)[None], (t * h)[None])), few


def sums_of_sites(q: KernelPosterior) -> tuple[np.ndarray, np.ndarray]:
    """The sums of lambda a a^T (lower triangle) and of r a over the rows, from the natural parameters of q."""
    (P,), (h,) = q.eta
    return P - np.eye(len(h)), h


def stochastic_ascent(training: Training, prior: LinearPrior, site: Site, options: Options) -> Ascent[Any]:
    """Take mini-batch steps, and move s^2 after every epoch."""
    context = options.history.context

    def move(loop: MiniBatches, q: KernelPosterior, log_likelihood: float, rests: bool) -> tuple[KernelPosterior, bool]:
        average = loop.posterior(q.prior, loop.average)
        log_t, gain = q.prior.best_move(*sums_of_sites(average), largest=LARGEST_MOVE_OF_EPOCH)
        converged = rests and is_small(gain, log_likelihood, options.tol)
        if gain > 0.0 and not converged:
            moved, t = q.prior.moved(log_t)
            loop.rescale(t)
            q = moved.at_prior()
        context["prior_variance"] = q.prior.variance
        return q, converged

    context["prior_variance"] = prior.variance
    return mini_batch_ascent(training, prior.at_prior(), site, options, move)
