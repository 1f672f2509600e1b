"""What the studies use of the library's inside: a change of its modules is followed here.

Passes over rows at the posterior that is the prior, steps of mini-batches and ascents of the bound are those of the
studies core and safeguard; functions that are only passed on are at the top.
"""

import numpy as np

from xgpc import _engine
from xgpc._svi import NaturalGradient
from xgpc.blocks import single_threaded_blas  # noqa: F401
from xgpc.inference import History, coordinate_ascent, natural_step
from xgpc.kernels import KernelSpec, default_kernel  # noqa: F401
from xgpc.likelihoods import LIKELIHOODS
from xgpc.links import multinomial_log_probabilities, softmax_log_probabilities  # noqa: F401
from xgpc.passes import CACHE_BYTES, Passes
from xgpc.posterior import Prior, SparsePosterior
from xgpc.stochastic import learning_rate_schedule


def prior_of(kernel, Z):
    """The prior of a scikit-learn kernel and inducing points (m, d)."""
    return Prior.build(KernelSpec(kernel, Z.shape[1]), np.asarray(Z, dtype=np.float64))


def site_of(likelihood, bound, n_classes=2):
    return _engine.SITES[likelihood, bound] if n_classes == 2 else LIKELIHOODS[likelihood].site(bound, n_classes)


class UncoupledPasses(Passes):
    """The sites' own steps, class by class."""

    def coupled_target(self, q, site):
        return self.target


def open_passes(X, y, prior, threads=1, cached=True, classes=None, coupled=True):
    """Passes over rows, for a ``with`` statement; labels -1 and +1, or 0, ..., classes - 1 if classes are given."""
    kind = Passes if coupled else UncoupledPasses
    cache_bytes = CACHE_BYTES if cached else 0
    return kind(X, y, None, prior.n_inducing, threads, cache_bytes=cache_bytes, n_latents=classes)


def one_pass(passes, prior, site, classes=None):
    """A function that makes one pass at the prior's posterior."""
    q = SparsePosterior.at_prior(prior, classes)
    return lambda: passes.update(q, site)


def mini_batch_steps(X, y, prior, site, order, batch_rows):
    """A function that makes the natural-gradient steps of the mini-batches that the row numbers ``order`` make."""
    m, d = prior.n_inducing, X.shape[1]
    start = SparsePosterior.at_prior(prior)
    loop = NaturalGradient(m, 1, np.concatenate([start.P.ravel(), start.h]), *learning_rate_schedule("adaptive"))
    work = _engine.Workspace(batch_rows, m, d)
    labels, weights, record = np.empty(batch_rows), np.empty(batch_rows), np.empty((3, len(order) // batch_rows))
    return lambda: loop.run(
        [prior.core], X, order, batch_rows, prior.Linv[None], site, y, np.empty(0), float(len(X)), work, labels,
        weights, *record,
    )  # fmt: skip


def raw_ascent(passes, prior, site, iterations):
    """The bound at the prior and after each unit step of the sites, whatever it does to the bound."""
    q, bounds = passes.at_prior(prior), []
    for _ in range(iterations + 1):
        bounds.append(passes.update(q, site)[0] - q.kl)
        q = natural_step(q, passes.target, 1.0)
        if q is None:
            break
    return {"iteration": list(range(len(bounds))), "bound": bounds}


def library_ascent(passes, prior, site, iterations):
    """The bound after each step that was taken; iterations are counted with steps that failed."""
    history = History()
    *_, converged = coordinate_ascent(
        passes, passes.at_prior(prior), site, tol=1e-4, max_iter=iterations, history=history
    )
    columns = history.arrays()
    return {"iteration": columns["iteration"].astype(int).tolist(), "bound": columns["elbo"].tolist(),
            "converged": converged}  # fmt: skip
