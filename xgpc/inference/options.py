"""Options of a search for a posterior, and for kernel and inducing points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from .ascent import Point
from .history import History
from .prior_mean import OF_SITE, PriorMean


@dataclass(frozen=True)
class Options:
    """Options of a search, which maximises the bound plus the log ``length_scale_prior``."""

    tol: float  # average relative gain of an iteration below which the search stops
    max_iter: int  # epochs if mini-batches find the posterior alone
    history: History  # has a row for every step
    random_state: np.random.RandomState
    batch_size: int | None = None  # rows of a mini-batch; None: all rows
    learning_rate: str | float | Sequence[float] = "adaptive"
    length_scale_prior: LengthScalePrior = NO_PRIOR
    prior_mean: PriorMean = OF_SITE  # gives the sites' mean under each prior
    learn_inducing: bool = False
    learned_rates: tuple[bool, bool] = (False, False)  # whether guess and lapse rate are learned
    # The search calls this with each better posterior and its site.
    reached: Callable[[KernelPosterior, Site], None] = lambda q, site: None

    def log_prior(self, prior: KernelPrior) -> tuple[float, np.ndarray]:
        """Log prior of all kernels' length scales, and its gradient by their parameters, kernel by kernel."""
        values, gradients = zip(*[self.length_scale_prior.at(group.spec) for group in prior.groups], strict=True)
        return sum(values), np.concatenate(gradients)

    def value(self, point: Point[KernelPosterior]) -> float:
        """What is maximised: the bound plus the log prior."""
        return point.elbo + self.log_prior(point.q.prior)[0]

    def record(self, elbo: float, log_prior: float, prior: KernelPrior, **columns: ArrayLike) -> None:
        """Add an evaluation to the history: the bound and, if the length scales have a prior, its logarithm."""
        if not self.length_scale_prior.is_flat:
            columns["log_prior"] = log_prior
        theta = np.concatenate([group.spec.theta for group in prior.groups])
        self.history.add(elbo=elbo, theta=theta[None], **columns)

    def too_few(self, search: str, limit: str = "") -> str:
        """Says that ``search`` reached a limit, by default ``max_iter``, before it reached ``tol``."""
        return f"{limit or f'max_iter={self.max_iter} was'} reached before tol={self.tol:g} by {search}"
