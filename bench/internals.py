"""What the studies use of the library's inside: a change of its modules is followed here.

Passes over rows at the posterior that is the prior, steps of mini-batches and ascents of the bound are those of the
studies core, safeguard and inner_solves, sweeps of the local posterior those of local_core; functions that are only
passed on are at the top.
"""

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np

from xgpc import _local
from xgpc._svi import BatchPart, NaturalGradient
from xgpc.approximations.base import Training
from xgpc.approximations.local_gradient import conditional_vjp
from xgpc.approximations.local_rows import in_order, local_rows
from xgpc.approximations.sparse import PRECISIONS, SparsePosterior, SparsePrior
from xgpc.inference import ascent as ascents
from xgpc.inference.ascent import coordinate_ascent, natural_step, update
from xgpc.inference.history import History
from xgpc.inference.links import TwoClasses
from xgpc.inference.local_sites import Local, cavities, conditioned, start_sites
from xgpc.inference.mini_batch import learning_rate_schedule
from xgpc.kernels.default import default_kernel  # noqa: F401
from xgpc.kernels.prior import LengthScalePrior
from xgpc.kernels.spec import KernelSpec
from xgpc.learning.adam import RATE, moving_priors
from xgpc.learning.optimizer import Coordinates
from xgpc.likelihoods import LIKELIHOODS
from xgpc.likelihoods.multinomial import multinomial_log_probabilities  # noqa: F401
from xgpc.likelihoods.softmax import softmax_log_probabilities  # noqa: F401
from xgpc.rows.blas import single_threaded_blas  # noqa: F401
from xgpc.rows.executor import Threads
from xgpc.rows.neighbours import Neighbours
from xgpc.rows.source import CACHE_BYTES, ArraySource


def prior_of(kernel, Z, precision="double"):
    """The prior of a scikit-learn kernel and inducing points (m, d)."""
    return SparsePrior.build(KernelSpec(kernel, Z.shape[1]), np.asarray(Z, dtype=np.float64), PRECISIONS[precision])


def site_of(likelihood, bound, n_classes=2, coupled=True):
    """The site of a bound; without coupling the steps of several classes are their own."""
    record = LIKELIHOODS[likelihood].bounds[bound]
    return (record if coupled else replace(record, curvature=None)).site(n_classes)


def carried_over(q, prior):
    """q under another kernel and other inducing points, of one kernel for all latent functions.

    The sums over rows say what these told of f at the old points, and are taken as if they had told it of the mean of f
    there given the new ones: z = T z', T = L^-1 k'(Z, Z') L'^-T.
    """
    before, after = q.prior.groups[0], prior.groups[0]
    T = before.Linv @ after.core.cross(np.ascontiguousarray(before.Z)) @ after.Linv.T
    P = np.tril(q.P) + np.swapaxes(np.tril(q.P, -1), -1, -2) - np.eye(before.n_inducing)
    return SparsePosterior.from_natural(prior, *prior.with_sites(np.tril(T.T @ P @ T), q.h @ T))


@contextmanager
def open_passes(X, y, threads=1, cached=True, classes=None):
    """Training rows, for a ``with`` statement; labels -1 and +1, or 0, ..., classes - 1 if classes are given."""
    with Threads(threads) as executor:
        yield Training(ArraySource(X, y, cache_bytes=CACHE_BYTES if cached else 0), executor, classes)


def one_pass(training, prior, site):
    """A function that makes one pass at the prior's posterior."""
    q = prior.at_prior(training.n_latents)
    return lambda: update(training, q, site)


def moving_prior(prior):
    """A prior whose kernel parameters and inducing points Adam moves between mini-batches."""
    return moving_priors(Coordinates(prior, learn_inducing=True), LengthScalePrior(), RATE)


def mini_batch_steps(X, y, prior, site, order, batch_rows, moving=(), every=1):
    """A function that makes the natural-gradient steps of the mini-batches that the row numbers ``order`` make.

    If the prior is ``moving``, each ``every``-th of them is followed by a step of Adam.
    """
    m, d = prior.n_inducing, X.shape[1]
    start = prior.at_prior(None)
    loop = NaturalGradient(m, 1, np.concatenate([start.P.ravel(), start.h]), *learning_rate_schedule("adaptive"))
    part, record = BatchPart(m, 1, batch_rows, d, moving), np.empty((3, len(order) // batch_rows))
    rows = ArraySource(X, y).pick(order)
    kernels = [one.kernel for one in moving] or [prior.core]
    return lambda: loop.run(
        kernels, rows.X, rows.rows, batch_rows, prior.Linv[None], site, rows.y, rows.weight, float(len(X)), part,
        record, moving, every,
    )  # fmt: skip


def raw_ascent(training, prior, site, iterations):
    """The bound at the prior and after each unit step of the sites, whatever it does to the bound."""
    q, bounds = prior.at_prior(training.n_latents), []
    for _ in range(iterations + 1):
        point = update(training, q, site)
        bounds.append(point.elbo)
        q = natural_step(q, point.target, 1.0)
        if q is None:
            break
    return {"iteration": list(range(len(bounds))), "bound": bounds}


def library_ascent(training, prior, site, iterations):
    """The bound after each step that was taken; iterations are counted with steps that failed."""
    history = History()
    start = prior.at_prior(training.n_latents)
    ascent = coordinate_ascent(training, start, site, tol=1e-4, max_iter=iterations, history=history)
    columns = history.arrays()
    return {"iteration": columns["iteration"].astype(int).tolist(), "bound": columns["elbo"].tolist(),
            "converged": ascent.converged}  # fmt: skip


@contextmanager
def count_passes():
    """A counter of what all blocks are asked for, by name: "update" is a pass."""
    calls, honest = Counter(), Training.reduce

    def reduce(self, function, state):
        calls[function.__name__] += 1
        return honest(self, function, state)

    with patch.object(Training, "reduce", reduce):
        yield calls


@contextmanager
def previous_steps(wanted=True):
    """Softmax with unit steps, halved where they fail, if ``wanted``."""
    with ExitStack() as stack:
        if wanted:
            stack.enter_context(patch.object(ascents, "has_measured_steps", lambda site: False))
        yield


def swept(local, sites):
    """What a sweep makes of sites."""
    return cavities(local, sites, conditioned(local, sites)).sites()


@contextmanager
def local_calls(X, y, prior, k, thread_counts):
    """Functions that predict all cavities of the local posterior and pull a gradient back, for a ``with`` statement."""
    source, link, calls = ArraySource(X, y), TwoClasses(_local.LINKS["logit"]), {}
    order, sites = in_order(Neighbours(X).of_rows(k)), start_sites(source, link)
    ones, d_b = np.ones((1, len(X))), np.ones((1, len(X), prior.n_inducing))

    def given(rows):
        return [(d_b[:, rows], ones[:, rows], ones[:, rows])] * 2

    with ExitStack() as stack:
        for threads in thread_counts:
            executor = stack.enter_context(Threads(threads))
            local = Local(executor, source, prior.core, local_rows(executor, prior, X), *order, link)
            calls[f"sweep, threads: {threads}"] = partial(swept, local, sites)
            at = local.neighbourhoods(sites)
            calls[f"vjp, threads: {threads}"] = partial(conditional_vjp, executor, at, given)
        yield calls
