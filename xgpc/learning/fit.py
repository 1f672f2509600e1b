"""What is fixed in a fit, the candidates that it compares, and its result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..approximations.local import LocalPosterior, Posterior
from ..config import FitConfig
from ..data.encoding import Encoding
from ..data.training import Columns
from ..inference.fitting import Evidence, Start
from ..inference.options import Options
from ..inference.prior_mean import OF_SITE, PriorMean
from ..inference.run import Run
from ..kernels.features import Groups
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..likelihoods import LikelihoodBound, Parameter
from ..rows.coinciding import NO_AGREEMENT, Agreement, Distinct, contradicted, first_of_each
from ..rows.source import ArraySource, RowSource, is_mapped
from .hold_out import HoldOut
from .scores import Gain, Scores

# Rows of equal features are copies if at most this share of them has another label than most at their place: in 13 of
# 20 data sets with such rows the share is at most .0032 (wine, cod-rna, letter), in the others at least .045 (a9a).
# Where features have few levels, it is .01 to .02 in tables with every row twice, and in bootstraps.
MOST_CONTRADICTED = 0.03


@dataclass(frozen=True)
class Fit:
    """What is fixed in a fit: checked parameters and rows, the likelihood, and the run."""

    config: FitConfig
    run: Run
    source: ArraySource  # rows of positive weight to learn from, labels in the form that the sites need
    classes: np.ndarray  # (C,) labels, sorted
    class_totals: np.ndarray  # (C,) total weights of the classes over all rows
    class_weight: np.ndarray  # (C,) weights of the classes, which count in predictions alone
    record: LikelihoodBound  # with its parameter, unless it is learned
    hold_out: HoldOut  # divides the rows
    columns: Columns  # with the encoding that made the rows
    stream: RowSource | None = None  # all rows if ``source`` is only a sample of them
    prior_mean: PriorMean = OF_SITE
    seed: int = 0  # for random numbers that do not depend on how many others were drawn
    n_copies: int = 0  # rows that ``merged`` has left out of ``source``
    share_of_copies: float = 0.0  # of the largest class's rows; oversampling copies rows of other classes

    @property
    def training(self) -> Training:
        return Training(self.source, self.run.executor, self.n_latents)

    def options(self, length_scale_prior: LengthScalePrior) -> Options:
        """Options of searches, as the parameters give them."""
        config, run = self.config, self.run
        steps = config.tol, config.max_iter, run.history, run.random_state, config.batch_size, config.learning_rate
        return Options(*steps, length_scale_prior, self.prior_mean, config.learn_inducing, config.learned_rates)

    @property
    def n_latents(self) -> int:
        return self.record.n_latents(len(self.classes))

    @property
    def groups(self) -> Groups | None:
        """Which feature columns were made from the same column of a table."""
        return self.columns.encoding.groups if self.columns.encoding.columns else None

    @property
    def learns(self) -> bool:
        """Whether kernel and inducing points are learned."""
        return self.config.optimizer is not None

    @property
    def is_of_one_class(self) -> bool:
        return np.count_nonzero(self.class_totals) == 1

    @property
    def n_rows(self) -> int:
        """Number of all rows, with copies."""
        return (self.stream or self.source).n_rows + self.n_copies

    def part(self, rows: np.ndarray | None) -> Fit:
        """The fit to some of the rows, by their numbers, ascending; all of them for None."""
        if rows is None:
            return self
        return replace(self, source=self.source.sample(rows), hold_out=self.hold_out.among(rows))

    def merged(self) -> Fit:
        """The same fit, in which rows of equal features, label and group are one row with the sum of their weights.

        Copies are no independent evidence: as held-out rows and as neighbours they would tell each other's labels. Rows
        of equal features whose labels differ are no copies, but measurements at the same place. A splitter divides the
        rows as they were given; a memory map is not copied.
        """
        source, hold_out = self.source, self.hold_out
        n_rows, groups = source.n_rows, hold_out.groups
        if hold_out.splitter is not None or is_mapped(source.rows):
            return self
        group = np.zeros(n_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
        places = first_of_each(source.rows, group)
        codes = len(self.classes) * places + hold_out.labels
        if np.array_equal(places, np.arange(n_rows)) or contradicted(places, codes) > MOST_CONTRADICTED:
            return self
        distinct = Distinct.of(source, codes)
        largest = np.argmax(np.bincount(hold_out.labels[distinct.first]))
        share = 1.0 - np.sum(hold_out.labels[distinct.first] == largest) / np.sum(hold_out.labels == largest)
        # Rows at a single place cannot be divided by places.
        hold_out = replace(hold_out, places=places if np.any(places) else None).among(distinct.first)
        n_copies = self.n_copies + (0 if self.stream else n_rows - distinct.source.n_rows)
        return replace(self, source=distinct.source, hold_out=hold_out, n_copies=n_copies, share_of_copies=float(share))


class FurtherRows(NamedTuple):
    """A batch of a stream.

    Attributes
    ----------
    batch : Fit to the batch
    kept : Fit to the rows that the model keeps from now on, those of the batch last; None if it keeps none
    stay : (r,) numbers of the rows that it kept before and still keeps
    is_due : bool, whether kernel, inducing points and posterior are to be learned from ``kept``
    """

    batch: Fit
    kept: Fit | None
    stay: np.ndarray
    is_due: bool


class PreviousFit(NamedTuple):
    """The earlier fit that a warm start continues."""

    posterior: Posterior
    classes: np.ndarray  # by level, if they have an order
    encoding: Encoding
    parameter: Parameter  # of the likelihood


@dataclass(frozen=True)
class Candidate(Start):
    """Kernels with inducing points, and what was learned with these."""

    length_scale_prior: LengthScalePrior = NO_PRIOR
    grow_to: int = 0  # largest number of inducing points if points may be added while they pay, else 0
    n_iter: int = 0  # iterations of the optimizer
    problems: tuple[str, ...] = ()  # parts of learning that did not converge
    notes: tuple[str, ...] = ()  # further messages for the user; they replace warnings of parameters at bounds
    failed: str = ""  # why requested neighbours are not used, with advice
    local: tuple[LocalPosterior, Scores] | None = None  # with neighbours, if they are kept, and of held-out rows

    def at(self, q: KernelPosterior, site: Site) -> Self:
        """The candidate with this posterior, and with its kernels and inducing points.

        If q is a full process's posterior, the candidate takes its kernels and keeps its own inducing points.
        """
        prior = q.prior
        if prior.is_full and not self.prior.is_full:
            prior = self.prior.rebuilt([group.spec for group in prior.groups], self.prior.Z)
        return replace(self, prior=prior, q=q, site=site)

    def under(self, prior: KernelPrior) -> Self:
        """The candidate with other kernels or inducing points, and without a posterior."""
        return replace(self, prior=prior, q=None)


@dataclass(frozen=True)
class FitResult:
    """The result of a fit: the posterior of all rows, which the model predicts with."""

    q: Posterior
    site: Site
    n_iter: int
    is_complete: bool
    messages: list[str]
    evidence: Evidence | None  # None with neighbours
    scores: Scores | None = None  # of held-out rows
    gain: Gain | None = None  # over the class frequencies on left-out rows, if it was computed
    agreement: Agreement = NO_AGREEMENT
