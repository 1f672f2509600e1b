"""The last phase of a fit: the posterior of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._engine import Site
from .inference import History, coordinate_ascent, starting_posterior
from .posterior import AnyPosterior, AnyPrior
from .stochastic import batch_rows, learning_rate_schedule, stochastic

# q, its bound, iterations or epochs, and whether they ended by the tolerance.
Fit = tuple[AnyPosterior, float, int, bool]


@dataclass(frozen=True)
class PosteriorOptions:
    """Parameters of ``GPClassifier`` that say how the posterior is fitted, and the record of the fit."""

    batch_size: int | None
    learning_rate: str | float | Sequence[float]
    tol: float
    max_iter: int
    random_state: np.random.RandomState
    history: History


def fit_posterior(passes: Any, q: AnyPosterior | None, prior: AnyPrior, site: Site, options: PosteriorOptions) -> Fit:
    """The posterior of all rows under ``prior``, from the sites of q if there is one: no lower than where it started.

    Returns
    -------
    q, elbo, n_iter, converged
        ``passes`` holds the marginals and sites of the returned q.
    """
    history, tol, max_iter = options.history, options.tol, options.max_iter
    n_rows = len(passes.y)
    if options.batch_size is None or options.batch_size >= n_rows:
        start = starting_posterior(passes, q, prior, site)
        return coordinate_ascent(passes, start, site, tol=tol, max_iter=max_iter, history=history)
    start = passes.at_prior(prior) if q is None else passes.carry_over(q, prior, site)
    # At the prior learned label noise would become that of guessing.
    before = -np.inf if q is None else passes.update(start, site)[0] - start.kl
    found = stochastic(
        passes,
        start,
        site,
        batch_size=batch_rows(int(options.batch_size), n_rows),
        schedule=learning_rate_schedule(options.learning_rate),
        tol=tol,
        max_iter=max_iter,
        random_state=options.random_state,
        history=history,
    )
    _, after, n_epochs, converged = found
    if not before > after:
        return found
    # Noisy steps from an optimum lead away from it.
    reason = (
        f"mini-batches led from a bound of {before:.6g} to {after:.6g}: the posterior that they started from is kept"
    )
    passes.update(start, site)
    history.add(elbo=before, decision=reason)
    return start, before, n_epochs, converged


def fit_posterior_or_keep(
    passes: Any,
    learned: AnyPosterior | None,
    prior: AnyPrior,
    kept: tuple[AnyPosterior, AnyPrior] | None,
    site: Site,
    options: PosteriorOptions,
) -> Fit:
    """The posterior of all rows under what was learned, or under the previous fit's prior where the bound is higher.

    What a subset of the rows, or a scheme that is no ascent, teaches can be worse for all rows than what there was.
    Full batches are compared at both optima; mini-batches with the previous posterior as it is, in one pass, as
    another optimum would take as long as the fit.

    Parameters
    ----------
    learned, prior : as q and prior of ``fit_posterior``
    kept : the previous posterior, and the prior of as many inducing points that learning started from; or None

    Returns
    -------
    As ``fit_posterior``
    """
    if kept is None:
        return fit_posterior(passes, learned, prior, site, options)
    full_batch = options.batch_size is None or options.batch_size >= len(passes.y)
    start, before, *_ = coordinate_ascent(
        passes,
        passes.carry_over(*kept, site),
        site,
        tol=options.tol,
        max_iter=options.max_iter if full_batch else 0,
        history=History(),
    )
    found = fit_posterior(passes, learned, prior, site, options)
    if not before > found[1]:
        return found
    reason = f"learning led from a bound of {before:.6g} to {found[1]:.6g}: the previous hyperparameters are kept"
    options.history.add(elbo=found[1], decision=reason)
    return fit_posterior(passes, start, start.prior, site, options)
