"""Where inference starts."""

from __future__ import annotations

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..likelihoods import other_site
from ..rows.deadline import Deadline
from .ascent import carry_over, coordinate_ascent
from .history import History

# Updates of another bound that make the first posterior of one that has no good start at the prior.
START_UPDATES = 3
# The posterior of the other start: updates at most, and the gain that ends them.
OTHER_UPDATES, OTHER_TOL = 30, 1e-4
# Updates from each start after which the higher bound tells the better one. Logistic-softmax, 120 kernels (variances 10
# to 300, length scales 1.5 and 4 sqrt(d)) on eight data sets: the start from softmax's bound alone ended more than 1 %
# below the better one in 5, by up to 10 %, that from exact softmax in 4, this one in none. After ten updates one of 17
# further kernels had the wrong order still.
TRIAL_UPDATES = 40


def start_site(site: Site) -> Site | None:
    """The site that makes the first posterior for another one; None if that needs none."""
    first = site.record.start
    return None if first is None else other_site(first, site)


def starting_posterior(
    training: Training,
    q: KernelPosterior | None,
    prior: KernelPrior,
    site: Site,
    deadline: Deadline | None = None,
) -> KernelPosterior:
    """Where to start under ``prior``: from the sites of q, if there is one; else from the better of a record's starts.

    The bound of augmented likelihoods has optima at which every class is about as likely, and others that no single
    start finds for all kernels. With q this takes a pass over the rows; else one for each update: three at most, and
    113 for bounds with two starts. A ``deadline`` ends it; once it has passed the first start has to do.
    """
    if q is not None:
        return carry_over(training, q, prior, site)
    first, other = start_site(site), site.record.other_start
    at_prior = start = prior.at_prior(training.n_latents)
    if first is not None:
        start = coordinate_ascent(
            training, at_prior, first, tol=0.0, max_iter=START_UPDATES, history=History(), deadline=deadline
        ).q
    if other is None or (deadline is not None and deadline.left <= 0.0):
        return start
    site_of_other = other_site(other, site)
    second = coordinate_ascent(
        training, at_prior, site_of_other, tol=OTHER_TOL, max_iter=OTHER_UPDATES, history=History(), deadline=deadline
    ).q
    trials = [
        coordinate_ascent(training, each, site, tol=0.0, max_iter=TRIAL_UPDATES, history=History(), deadline=deadline)
        for each in (start, second)
    ]
    return max(trials, key=lambda trial: trial.elbo).q
