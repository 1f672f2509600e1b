"""Training rows and passes over them, as the tests of inference and learning ask for them."""

import numpy as np

from .internals import (
    LEAST_COMPLEMENT,
    ArraySource,
    Coordinates,
    Executor,
    History,
    Options,
    SparsePrior,
    Training,
    coordinate_ascent,
    grouped,
    statistics,
    update,
)


def training(X, y, weight=None, n_latents=1, n_jobs=None, **options):
    """Rows in memory and threads over them, which live as long as the result."""
    source = ArraySource(X, y, np.empty(0) if weight is None else weight, **options)
    return Training(source, Executor(n_jobs), n_latents)


def sites_of(rows, q, site):
    """Mean, variance, precision and linear term, (n,) or (C, n) each, of a posterior at all rows."""
    blocks = rows.executor.each(statistics.SitesAtPosterior(q, site).of, rows.source.blocks())
    parts = ("mean", "variance", "precision", "linear")
    arrays = [np.concatenate([getattr(block, part) for block in blocks], axis=1) for part in parts]
    return [array if rows.n_latents > 1 else array[0] for array in arrays]


def updated(rows, q, site):
    """The sum of ell, and P and h of the unit step from q."""
    point = update(rows, q, site)
    return point.log_likelihood, *point.target


def ascended(rows, q, site, tol=1e-10, max_iter=500, history=None):
    """Posterior, bound, iterations and whether the ascent converged."""
    ascent = coordinate_ascent(rows, q, site, tol=tol, max_iter=max_iter, history=history or History())
    return ascent.point.q, ascent.point.elbo, ascent.n_iter, ascent.converged


def bound_gradient(rows, q, site):
    """Gradients of the bound by theta and by inducing points at a posterior, with its own sites."""
    point = update(rows, q, site)
    return q.gradient(rows, point.sites, point.target)


def thetas(prior):
    return np.concatenate([group.spec.theta for group in prior.groups])


def rebuilt(prior, theta, Z=None):
    values = np.split(theta, np.cumsum([len(group.spec.theta) for group in prior.groups])[:-1])
    specs = [group.spec.with_theta(value) for group, value in zip(prior.groups, values, strict=True)]
    return prior.rebuilt(specs, prior.Z if Z is None else Z)


def softmax_curvatures(point_sites, y, weight):
    """Gradients by the latent values g (C, n), and H_i = diag(d) - d d^T / sum(d) of each row (n, C, C)."""
    mean, _, precision, linear = point_sites
    g = linear - precision * mean
    p = (np.arange(len(g))[:, None] == y) - g / weight
    d = precision / np.clip(1.0 - p, LEAST_COMPLEMENT, 1.0)
    return g, np.einsum("ci,ce->ice", d, np.eye(len(d))) - np.einsum("ci,ei->ice", d, d) / d.sum(axis=0)[:, None, None]


def check_parameter_gradient(rows, prior, site, **learned):
    """By coordinates of what a site learns, against differences of the best bound; the parameters far along each."""
    coordinates = Coordinates(prior, options(0.0, 1, learn_inducing=True, **learned), site)
    at = coordinates.pack(prior, site)
    np.testing.assert_allclose(coordinates.site(at, site).parameter, site.parameter, rtol=1e-14)

    def best(vector):
        return coordinate_ascent(rows, prior.at_prior(), coordinates.site(vector, site), tol=1e-14, max_iter=300).point

    found, moved = coordinates.parameter_gradient(rows, best(at)), []
    for j, slope in enumerate(found[::-1]):
        step = 1e-3 * np.eye(len(at))[len(at) - 2 - j]
        difference = (best(at + step).elbo - best(at - step).elbo) / 2e-3
        np.testing.assert_allclose(slope, difference, rtol=1e-4, atol=1e-4)
        moved.append(coordinates.site(at + 100.0 * step, site).parameter)
    return moved


def in_single_precision(q):
    """The same posterior, whose whitened rows are of single precision."""
    prior = grouped([SparsePrior.build(group.spec, group.Z, np.float32) for group in q.prior.groups])
    return prior.posterior((q.P, q.h))


def options(tol, max_iter, **others):
    """Options of a search with a history and random numbers of its own."""
    return Options(tol, max_iter, **{"history": History(), "random_state": np.random.RandomState(0)} | others)
