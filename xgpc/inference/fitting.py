"""The last phase of a fit: the posterior of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Natural, Training
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..rows.deadline import Deadline
from .ascent import Point, carry_over, coordinate_ascent, update
from .history import History
from .mini_batch import Epochs, batch_rows, learning_rate_schedule, stochastic
from .prior_mean import OF_SITE, PriorMean
from .starts import starting_posterior

# A posterior with its pass over all rows, iterations or epochs, and whether they ended by the tolerance.
Fit = tuple[Point[Any], int, bool]


class Evidence(NamedTuple):
    """The bound on the log evidence of all rows; sums of the second-order correction, and the gap, where there are."""

    elbo: float
    correction: Natural | None
    gap: float | None


@dataclass(frozen=True)
class PosteriorOptions:
    """Parameters of ``GPClassifier`` that say how the posterior is fitted, the record of the fit, and its end.

    ``leaves_prior``: full batches take a step from the prior whatever it promises. ``length_scale_prior``: what
    learning climbs beside the bound. ``prior_mean``: what sites have under each prior.
    """

    batch_size: int | None
    learning_rate: str | float | Sequence[float]
    tol: float
    max_iter: int
    random_state: np.random.RandomState
    history: History
    deadline: Deadline | None = None
    leaves_prior: bool = False
    length_scale_prior: LengthScalePrior = NO_PRIOR
    prior_mean: PriorMean = OF_SITE

    def batch(self, n_rows: int) -> int | None:
        """Rows of a mini-batch of so many; None where every step takes all of them."""
        if self.batch_size is None or self.batch_size >= n_rows:
            return None
        return batch_rows(int(self.batch_size), n_rows)


def fit_posterior(
    training: Training, q: KernelPosterior | None, prior: KernelPrior, site: Site, options: PosteriorOptions
) -> Fit:
    """The posterior of all rows under ``prior``, from the sites of q if there is one; no lower than these."""
    history, tol, max_iter, deadline = options.history, options.tol, options.max_iter, options.deadline
    site = options.prior_mean.site(site, prior)
    n_rows = len(training)
    batch = options.batch(n_rows)
    if batch is None:
        start = starting_posterior(training, q, prior, site, deadline)
        ascent = coordinate_ascent(
            training,
            start,
            site,
            tol=tol,
            max_iter=max_iter,
            history=history,
            deadline=deadline,
            leaves_prior=options.leaves_prior,
        )
        return ascent.point, ascent.n_iter, ascent.converged
    # At the prior learned label noise would become that of guessing.
    before = None if q is None else update(training, carry_over(training, q, prior, site), site)
    if before is not None and deadline is not None and deadline.left <= 0.0:
        return before, 0, False
    start = prior.at_prior(training.n_latents) if before is None else before.q
    schedule = learning_rate_schedule(options.learning_rate)
    epochs = Epochs(batch, schedule, tol, max_iter, options.random_state, history, deadline)
    first = site if before is None else before.site
    point, n_epochs, converged = stochastic(training, start, first, epochs)  # type: ignore[arg-type]
    if before is None or not before.elbo > point.elbo:
        return point, n_epochs, converged
    # Noisy steps from an optimum lead away from it.
    reason = (
        f"Mini-batches lowered the bound from {before.elbo:.6g} to {point.elbo:.6g} nats: the posterior that they "
        "started from is kept."
    )
    history.add(elbo=before.elbo, decision=reason)
    return before, n_epochs, converged


def fit_posterior_or_keep(
    training: Training,
    learned: KernelPosterior | None,
    prior: KernelPrior,
    kept: tuple[KernelPosterior, KernelPrior] | None,
    site: Site,
    options: PosteriorOptions,
) -> Fit:
    """The posterior of all rows under what was learned, or under the previous fit's prior where that is higher.

    Compared is what learning climbs: the bound, with the log prior of the length scales. What a subset of the rows, or
    a scheme that is no ascent, teaches can be worse for all rows than what there was.
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
        return fit_posterior(training, learned, prior, site, options)
    site_before = options.prior_mean.site(site, kept[1])
    before = coordinate_ascent(
        training,
        carry_over(training, *kept, site_before),
        site_before,
        tol=options.tol,
        max_iter=options.max_iter if options.batch(len(training)) is None else 0,
        history=History(),
        # Half of what is left: the other is for what was learned.
        deadline=None if options.deadline is None else options.deadline.earlier(0.5),
    ).point
    found = fit_posterior(training, learned, prior, site, options)
    height, after = (
        point.elbo + options.length_scale_prior.of(point.q.prior.groups)[0] for point in (before, found[0])
    )
    if not height > after:
        return found
    what = "the bound" if options.length_scale_prior.is_flat else "the bound with the length scales' log prior"
    reason = f"Learning lowered {what} from {height:.6g} to {after:.6g} nats: the previous hyperparameters are kept."
    options.history.add(elbo=found[0].elbo, decision=reason)
    return fit_posterior(training, before.q, before.q.prior, before.site, options)
