"""Training rows and passes over them, as the tests of inference and learning ask for them."""

import numpy as np

from .internals import (
    CACHE_BYTES,
    ArraySource,
    SitesAtPosterior,
    SparsePosterior,
    SparsePrior,
    Threads,
    Training,
    block_sites,
    coordinate_ascent,
    grouped,
    update,
)


def training(X, y, weight=None, n_latents=1, n_jobs=None, cache_bytes=CACHE_BYTES):
    """Rows in memory and threads over them, which live as long as the result."""
    source = ArraySource(X, y, np.empty(0) if weight is None else weight, cache_bytes)
    return Training(source, Threads(n_jobs), n_latents)


def sites_of(rows, q, site):
    """Mean, variance, precision and linear term, (n,) or (C, n) each, of a posterior at all rows."""
    blocks = rows.map(block_sites, SitesAtPosterior(q, site))
    parts = ("mean", "variance", "precision", "linear")
    arrays = [np.concatenate([getattr(block, part) for block in blocks], axis=1) for part in parts]
    return [array if rows.n_latents > 1 else array[0] for array in arrays]


def updated(rows, q, site):
    """The sum of ell, and P and h of the unit step from q."""
    point = update(rows, q, site)
    return point.log_likelihood, *point.target


def ascended(rows, q, site, **options):
    """Posterior, bound, iterations and whether the ascent converged."""
    ascent = coordinate_ascent(rows, q, site, **options)
    return ascent.q, ascent.elbo, ascent.n_iter, ascent.converged


def bound_gradient(rows, q, site):
    """Gradients of the bound by theta and by inducing points at a posterior, with its own sites."""
    point = update(rows, q, site)
    return q.gradient(rows, point.sites, point.target)


def in_single_precision(q):
    """The same posterior, whose whitened rows are of single precision."""
    prior = grouped([SparsePrior.build(group.spec, group.Z, np.float32) for group in q.prior.groups])
    return SparsePosterior.from_natural(prior, q.P, q.h)
