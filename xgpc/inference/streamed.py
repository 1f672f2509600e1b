"""The posterior of rows that are read anew in every pass: few passes, each for a step."""

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
    """Where the posterior of a stream starts: at that of some of its rows in memory, each with the weight of several.

    Their sites times the ratio of the weights are about those of all rows, without a pass over these. The curvature
    that several classes' steps ask for in tens of products is found of these rows, too; what a step gains, and the
    posterior at which nothing is gained any more, are of all rows.

    Parameters
    ----------
    some : rows in memory, a random sample of ``stream``
    q, prior, site : as of ``fit_posterior``

    Returns
    -------
    Training of the stream, posterior and site
    """
    memory = some.source
    assert isinstance(memory, ArraySource)
    ratio = stream.total_weight / memory.total_weight
    # Steps of mini-batches are for the posterior of all rows.
    in_memory = replace(options, batch_size=None, history=History())
    point = fit_posterior(some, q, prior, site, in_memory)[0]
    start = natural_step(prior.at_prior(some.n_latents), point.q.natural, ratio) or point.q
    subsample = replace(some, source=memory.reweighted(ratio))
    return replace(some, source=stream, subsample=subsample), start, point.site
