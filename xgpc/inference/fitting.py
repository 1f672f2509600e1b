"""The last step of a fit: the posterior of all rows, or of further rows that follow earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Natural, Training
from ..approximations.sparse import symmetric
from ..rows.source import ArraySource, RowSource
from .ascent import Ascent, coordinate_ascent, natural_step, starting_posterior, update
from .history import History
from .mini_batch import mini_batch_ascent
from .options import Options


class Evidence(NamedTuple):
    """The bound on the log evidence of all rows; the sums of the second-order correction and the gap, or None."""

    elbo: float
    correction: Natural | None
    gap: float | None


@dataclass(frozen=True)
class Start:
    """Kernels with inducing points, and where the search for their posterior starts."""

    prior: KernelPrior
    q: KernelPosterior | None  # of some of the rows, of an earlier fit, or of the full process that learned the kernel
    site: Site


def fit_posterior(training: Training, start: Start, options: Options) -> Ascent[KernelPosterior]:
    """The posterior of all rows under a prior; the search starts at q's sites if q is given."""
    prior, history, tol, max_iter = start.prior, options.history, options.tol, options.max_iter
    site = options.prior_mean.site(start.site, prior)
    if options.batch_size is not None and start.q is None:
        return mini_batch_ascent(training, prior.at_prior(training.n_latents), site, options)
    q = starting_posterior(training, start.q, prior, site)
    if options.batch_size is None:
        # The gains of many batches of further rows add up, even if each is below ``tol``.
        further = prior.earlier_q is not None
        return coordinate_ascent(training, q, site, tol=tol, max_iter=max_iter, history=history, leaves_prior=further)
    # Starting at the prior would raise learned label noise to that of guessing.
    first = update(training, q, site)
    if training.executor.clock.has_passed():
        return Ascent(first, 0, False)
    ascent = mini_batch_ascent(training, first.q, first.site, options)
    if first.elbo <= ascent.point.elbo:
        return ascent
    # Noisy steps from an optimum can lower the bound.
    fall = f"from {first.elbo:.6g} to {ascent.point.elbo:.6g} nats"
    reason = f"Mini-batches lowered the bound {fall}: the posterior that they started from is kept."
    history.add(elbo=first.elbo, decision=reason)
    return ascent._replace(point=first)


def fit_posterior_or_keep(
    training: Training, learned: Start, previous: Start, options: Options
) -> Ascent[KernelPosterior]:
    """The posterior of all rows under the learned prior, or under the previous fit's prior if that is better.

    The two are compared by the bound plus the log prior of the length scales. Learning from a subset, or by a scheme
    that is not an ascent, can lower this sum for all rows. With full batches both posteriors are optimised; with
    mini-batches the previous posterior is evaluated as it is, because optimising it would take as long as the fit.

    ``previous`` has the prior that learning started from, with as many inducing points as the previous posterior; if it
    has no posterior, there is nothing to compare.
    """
    ascent = fit_posterior(training, learned, options)
    if previous.q is None:
        return ascent
    max_iter = options.max_iter if options.batch_size is None else 0
    full_batches = replace(options, batch_size=None, max_iter=max_iter, history=History())
    kept_point = fit_posterior(training, Start(previous.prior, previous.q, learned.site), full_batches).point
    kept_value, value = options.value(kept_point), options.value(ascent.point)
    if not kept_value > value:
        return ascent
    objective = "the bound" if options.length_scale_prior.is_flat else "the bound with the length scales' log prior"
    fall = f"from {kept_value:.6g} to {value:.6g} nats"
    reason = f"Learning lowered {objective} {fall}: the previous hyperparameters are kept."
    options.history.add(elbo=ascent.point.elbo, decision=reason)
    return fit_posterior(training, Start(kept_point.q.prior, kept_point.q, kept_point.site), options)


def from_some(some: Training, stream: RowSource, start: Start, options: Options) -> tuple[Training, Start]:
    """Training rows, start and site for the posterior of a stream, given a random sample of its rows in memory.

    The sample's sites times the ratio of the weights approximate those of all rows without a pass over them. With
    several classes the sample also gives the curvature for the products of conjugate gradients; the gain of a step, and
    so the converged posterior, are of all rows.
    """
    memory = some.source
    assert isinstance(memory, ArraySource)
    ratio = stream.total_weight / memory.total_weight
    # Mini-batches are only for the posterior of all rows.
    point = fit_posterior(some, start, replace(options, batch_size=None, history=History())).point
    q = natural_step(start.prior.at_prior(some.n_latents), point.q.eta, ratio) or point.q
    subsample = replace(some, source=ArraySource(memory.rows, memory.y, ratio * memory.weight))
    return replace(some, source=stream, subsample=subsample), Start(start.prior, q, point.site)


def projected_sums(sums: Natural, earlier_prior: KernelPrior, prior: KernelPrior) -> Natural:
    """Sums P, h over earlier rows in the coefficients of ``prior``, whose points begin with those of ``earlier_prior``.

    Only the lower triangles of P are read and written. O(C m^3).
    """
    if prior is earlier_prior:
        return sums
    P, h = sums
    m, size = earlier_prior.n_inducing, prior.n_inducing
    # z = T z', with T = I unless the jitter, relative to the mean variance at all points, has changed.
    T = np.stack([old.Linv @ new.L[:m, :m] for old, new in zip(earlier_prior.groups, prior.groups, strict=True)])
    transposed = np.swapaxes(T, -1, -2)
    wide_P, wide_h = np.zeros((*P.shape[:-2], size, size)), np.zeros((*h.shape[:-1], size))
    wide_P[..., :m, :m] = np.tril(transposed @ symmetric(np.tril(P)) @ T)
    wide_h[..., :m] = (transposed @ h[..., None])[..., 0]
    return wide_P, wide_h


def posterior_before(q: KernelPosterior, prior: KernelPrior, forgetting_factor: float) -> KernelPosterior:
    """q_0 for the next rows: the posterior q of all earlier rows, with its sites times a factor in [0, 1].

    The sites of earlier rows, which are not kept, stay fixed in q's natural parameters. With whitened coefficients
    z = L^{-1} u, q_0 has natural parameters I + P and h, where P and h are sums over the earlier rows. More inducing
    points u' = (u, u_+) in ``prior``, after those of q, give L' = [[L, 0], [B, S]], so that z is the first part of z':
    the sums get zeros for the new coefficients, and q_0(f) does not change.
    """
    P, h = q.eta
    P, h = projected_sums((np.tril(P) - np.eye(P.shape[-1]), h), q.prior, prior)
    q_0: KernelPosterior | None = prior.posterior(prior.with_sites(forgetting_factor * P, forgetting_factor * h))
    if q_0 is None:
        raise ValueError(
            "The precision of the posterior of the earlier rows is no longer positive definite: fit again with fewer "
            "inducing points, or scale the features."
        )
    return q_0
