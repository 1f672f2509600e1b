"""The posterior of rows that every pass reads anew: few passes, one for each step."""

from __future__ import annotations

from dataclasses import replace

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..rows.source import ArraySource, RowSource
from .ascent import natural_step
from .fitting import PosteriorOptions, fit_posterior
from .history import History


def from_some(
    some: Training,
    stream: RowSource,
    q: KernelPosterior | None,
    prior: KernelPrior,
    site: Site,
    options: PosteriorOptions,
) -> tuple[Training, KernelPosterior, Site]:
    """Start the posterior of a stream at that of a sample in memory, reweighted to stand for all rows.

    The sample's sites times the ratio of the weights approximate those of all rows without a pass over them. With
    several classes the sample also gives the curvature for the products of conjugate gradients; the gain of a step, and
    so the converged posterior, are of all rows.

    Parameters
    ----------
    some : rows in memory, a random sample of ``stream``
    q, prior, site : as in ``fit_posterior``

    Returns
    -------
    Training of the stream, posterior and site
    """
    memory = some.source
    assert isinstance(memory, ArraySource)
    ratio = stream.total_weight / memory.total_weight
    # Mini-batches are only for the posterior of all rows.
    in_memory = replace(options, batch_size=None, history=History())
    point = fit_posterior(some, q, prior, site, in_memory)[0]
    start = natural_step(prior.at_prior(some.n_latents), point.q.natural, ratio) or point.q
    subsample = replace(some, source=memory.reweighted(ratio))
    return replace(some, source=stream, subsample=subsample), start, point.site
