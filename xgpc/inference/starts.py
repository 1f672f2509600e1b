"""The initial posterior of inference."""

from __future__ import annotations

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..likelihoods import other_site
from ..rows.deadline import Deadline
from .ascent import Ascent, carry_over, coordinate_ascent
from .history import History

# Updates of another bound that give the first posterior if the bound itself has no good start at the prior.
START_UPDATES = 3
# Most updates for the posterior of the second start, and the gain that ends them.
OTHER_UPDATES, OTHER_TOL = 30, 1e-4
# Updates from each start before their bounds are compared. With logistic-softmax and 120 kernels either start alone
# ended more than 1 % below the better one in 4 or 5 cases, the comparison in none.
TRIAL_UPDATES = 40


def start_site(site: Site) -> Site | None:
    """The site whose updates give another site's first posterior, or None."""
    first = site.record.start
    return None if first is None else other_site(first, site)


def starting_posterior(
    training: Training,
    q: KernelPosterior | None,
    prior: KernelPrior,
    site: Site,
    deadline: Deadline | None = None,
) -> KernelPosterior:
    """The start under ``prior``: from the sites of q if given, else from the better of the bound's starts.

    The bounds of augmented likelihoods have poor optima at which all classes are about equally likely, and no single
    start avoids them for all kernels. With q this takes one pass over the rows; else one for each update: at most
    three, or 113 for bounds with two starts. After the ``deadline`` only the first start is used.
    """
    if q is not None:
        return carry_over(training, q, prior, site)
    deadline = deadline or Deadline()

    def updated(q: KernelPosterior, site: Site, max_iter: int, tol: float = 0.0) -> Ascent[KernelPosterior]:
        return coordinate_ascent(training, q, site, tol=tol, max_iter=max_iter, history=History(), deadline=deadline)

    first, other = start_site(site), site.record.other_start
    at_prior = start = prior.at_prior(training.n_latents)
    if first is not None:
        start = updated(at_prior, first, START_UPDATES).q
    if other is None or deadline.left <= 0.0:
        return start
    second = updated(at_prior, other_site(other, site), OTHER_UPDATES, OTHER_TOL).q
    return max((updated(each, site, TRIAL_UPDATES) for each in (start, second)), key=lambda trial: trial.elbo).q
