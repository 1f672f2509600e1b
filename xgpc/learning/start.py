"""The data of a fit, its initial state (kernel, inducing points, posterior), and the results of its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Posterior, Training, grouped
from ..approximations.full import FullPrior
from ..approximations.local import LocalPosterior
from ..approximations.sparse import PRECISIONS, SparsePrior
from ..config import FitConfig
from ..data.encoding import Encoding, of_table, warps_in
from ..data.training import Columns
from ..inference.fitting import Evidence
from ..inference.prior_mean import OF_SITE, PriorMean, base_rates, mean_variances
from ..inference.run import Run
from ..kernels.default import default_kernel
from ..kernels.features import Groups
from ..kernels.prior import DEFAULT_LEVEL, DEFAULT_SPREAD, NO_PRIOR, LengthScalePrior
from ..kernels.spec import KernelSpec, with_numbers
from ..likelihoods import NOISE_VARIANCES, ORDINAL, START_NOISE, LikelihoodBound, Parameter, first_cut_points
from ..rows.coinciding import Distinct, contradicted, first_of_each
from ..rows.executor import Executor
from ..rows.source import ArraySource, RowSource, is_mapped
from .candidates import Gain, Scores
from .hold_out import HoldOut
from .inducing import MOST_ALL_ROWS, Sample, inducing_points, most_points, sample_size, warn_of_many_classes
from .optimizer import Model

# A learned guess or lapse rate starts at this share of what the other rate leaves.
START_RATE = 0.05


# Rows of equal features are copies if at most this share of them has another label than most at their place: in 13 of
# 20 data sets with such rows the share is at most .0032 (wine, cod-rna, letter), in the others at least .045 (a9a).
# Where features have few levels, it is .01 to .02 in tables with every row twice, and in bootstraps.
MOST_CONTRADICTED = 0.03


@dataclass(frozen=True)
class Data:
    """The checked data and settings of a fit."""

    config: FitConfig
    source: ArraySource  # rows of positive weight to learn from, labels in the form that the sites need
    classes: np.ndarray  # (C,) labels, sorted
    class_totals: np.ndarray  # (C,) total weights of the classes over all rows
    record: LikelihoodBound
    parameter: Parameter  # of the likelihood; None if it is learned or there is none
    hold_out: HoldOut
    columns: Columns  # with the encoding that made the rows
    stream: RowSource | None = None  # all rows if ``source`` is only a sample of them
    prior_mean: PriorMean = OF_SITE
    seed: int = 0  # for random numbers that do not depend on how many others were drawn
    n_copies: int = 0  # rows that ``merged`` has left out of ``source``

    @property
    def encoding(self) -> Encoding | None:
        return self.columns.encoding

    @property
    def is_of_one_class(self) -> bool:
        return np.count_nonzero(self.class_totals) == 1

    @property
    def n_rows(self) -> int:
        """Number of all rows, with copies."""
        return (self.stream or self.source).n_rows + self.n_copies

    def merged(self) -> Data:
        """The same data with copies of a row, in features, label and group, as one row with the sum of their weights.

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
        # Rows at a single place cannot be divided by places.
        hold_out = replace(hold_out, places=places if np.any(places) else None).among(distinct.first)
        n_copies = 0 if self.stream else n_rows - distinct.source.n_rows
        return replace(self, source=distinct.source, hold_out=hold_out, n_copies=self.n_copies + n_copies)

    @property
    def groups(self) -> Groups | None:
        """Which feature columns were made from the same column of a table."""
        table = of_table(self.encoding)
        return None if table is None else table.groups


class FurtherRows(NamedTuple):
    """A batch of a stream.

    Attributes
    ----------
    data : Data of the batch
    kept : Data of the rows that the model keeps from now on, those of the batch last; None if it keeps none
    stay : (r,) numbers of the rows that it kept before and still keeps
    is_due : bool, whether kernel, inducing points and posterior are to be learned from ``kept``
    """

    data: Data
    kept: Data | None
    stay: np.ndarray
    is_due: bool


class PreviousFit(NamedTuple):
    """The earlier fit that a warm start continues."""

    posterior: Posterior
    classes: np.ndarray  # by level, if they have an order
    encoding: Encoding | None
    parameter: Parameter  # of the likelihood


@dataclass(frozen=True)
class InitialState:
    """The rows to learn from, and the model that learning starts with."""

    training: Training
    hold_out: HoldOut  # divides these rows
    model: Model  # with the posterior of an earlier fit, or None
    grow_to: int = 0  # largest number of inducing points if points may be added while they pay, else 0
    length_scale_prior: LengthScalePrior = NO_PRIOR
    n_iter: int = 0  # iterations of the optimizer that led to the model

    def part(self, rows: np.ndarray | None) -> InitialState:
        """The state with some of the rows, by their numbers, ascending; all of them for None."""
        if rows is None:
            return self
        return replace(self, training=self.training.part(rows), hold_out=self.hold_out.among(rows))

    def going_on(self, learned: HyperparameterFit) -> InitialState:
        """The state from which learning continues with what was learned."""
        return replace(self, model=learned.model, n_iter=learned.n_iter)


@dataclass(frozen=True)
class HyperparameterFit:
    """The result of learning."""

    model: Model  # with the posterior of some of the rows, or None
    n_iter: int = 0
    problems: tuple[str, ...] = ()  # parts that did not converge
    notes: tuple[str, ...] = ()  # further messages for the user; they replace warnings of parameters at bounds
    failed: str = ""  # why requested neighbours are not used, with advice
    local: tuple[LocalPosterior, Scores] | None = None  # with neighbours, if they are kept, and of held-out rows


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
    label_agreement: float = 0.0  # probability that a row given again has the label it had, beyond chance


def start(data: Data, run: Run, executor: Executor, previous_fit: PreviousFit | None) -> InitialState:
    """Choose kernel and inducing points, from the data or from a previous fit to alike data."""
    config, random_state, source = data.config, run.random_state, data.source
    run.history.tell(stage="start", n_rows=source.n_rows)
    training = Training(source, executor, data.record.n_latents(len(data.classes)))
    n_features, n_latents, is_learned = source.n_features, training.n_latents, config.optimizer is not None
    previous = None if previous_fit is None else _posterior_of(previous_fit, data, n_features, n_latents)
    n_kernels = _number_of_kernels(config, n_latents, previous)
    if previous is not None and len(previous.prior.groups) != n_kernels:
        previous = None
    parameter = None if previous_fit is None or previous is None else previous_fit.parameter
    if previous_fit is not None and previous is None:
        what = "features, warps of features, classes, or number of latent functions or kernels"
        run.history.add(decision=f"The previous fit had other {what}: this fit begins anew.")
    method = config.inducing_points if isinstance(config.inducing_points, str) else None
    size = source.n_rows if method == "all" else sample_size(config.n_inducing)
    sample = Sample(source, size, random_state, data.groups)
    if previous is not None and (is_learned or config.kernel is None):
        kernels = [group.spec.kernel for group in previous.prior.groups]
    else:
        is_default = config.kernel is None
        given = default_kernel(sample.scale, data.groups) if is_default else config.kernel
        kernels = [with_numbers(given, data.columns.names)] * n_kernels
    specs = [KernelSpec(kernel, n_features, data.groups) for kernel in kernels]
    if reason := specs[0].not_compiled:
        run.history.add(
            decision=f"The kernel is not compiled, because {reason}: it is called for each block of rows, which is "
            "slow, and inducing points stay where they start."
        )
    if is_learned:
        if config.n_restarts_optimizer and not all(np.all(np.isfinite(spec.bounds)) for spec in specs):
            raise ValueError(
                f"n_restarts_optimizer needs finite bounds of all free kernel parameters; got {kernels[0]}."
            )
        specs = [spec.within_bounds() for spec in specs]
    grow_to, dtype = 0, PRECISIONS[config.precision]
    may_grow = isinstance(config.n_inducing, str) and method is not None
    if method == "all":
        prior = grouped([FullPrior.build(specs[0], sample.rows, config.n_jobs)] * n_kernels)
    elif previous is not None and not previous.prior.is_full:
        pairs = zip(specs, previous.prior.groups, strict=True)
        all_rows = sample.rows if may_grow and len(sample.rows) <= MOST_ALL_ROWS else None
        priors = [SparsePrior.build(spec, group.Z if all_rows is None else all_rows, dtype) for spec, group in pairs]
        prior = grouped(priors)
    else:
        Z = inducing_points(sample, config.inducing_points, config.n_inducing, random_state, specs[0])
        if method is None and data.encoding is not None:
            Z = data.encoding.transform(Z)
        prior = grouped([SparsePrior.build(specs[0], Z, dtype)] * n_kernels)
        if n_latents > 1:
            warn_of_many_classes(source.n_rows, n_latents, len(Z), n_kernels > 1)
    # Rows that are all inducing points allow no more.
    if may_grow and not prior.is_full and prior.n_inducing < source.n_rows:
        grow_to = most_points(source.n_rows, n_latents, n_kernels > 1)
    if n_kernels > 1 and previous is not None and (prior.is_full or previous.prior.is_full):
        prior = prior.rebuilt(specs, prior.Z)
    parameter = _first_parameter(data, prior, parameter)
    site = data.prior_mean.site(data.record.site(len(data.classes), data.parameter, parameter), prior)
    length_scale_prior = _length_scale_prior(config, sample.scale)
    return InitialState(training, data.hold_out, Model(prior, previous, site), grow_to, length_scale_prior)


def _first_parameter(data: Data, prior: KernelPrior, previous: Parameter) -> Parameter:
    """The likelihood's parameter where learning starts: that of a previous fit, if it had one of this kind.

    Cut points start at those of the class frequencies.
    """
    if data.record.has_rates:
        given, are_learned = data.config.fixed_rates, np.array(data.config.learned_rates)
        first = np.where(are_learned, START_RATE * (1.0 - np.sum(given)), given)
        rates = np.where(are_learned, previous if isinstance(previous, np.ndarray) else first, given)
        return rates if np.all(rates[are_learned] > 0.0) and np.sum(rates) < 1.0 else first
    if not data.record.is_ordinal:
        return previous if isinstance(previous, float) else START_NOISE
    if previous is not None:
        return previous
    noise = NOISE_VARIANCES[data.record.likelihood.removeprefix(ORDINAL)]
    shares = data.record.by_level(base_rates(data.class_totals))
    return first_cut_points(shares, float(mean_variances(prior)[0]), noise)


def _length_scale_prior(config: FitConfig, scale: np.ndarray) -> LengthScalePrior:
    """The length scales' prior; "auto" gives one only to the default kernel, which also limits the common factor."""
    spread, is_default = config.length_scale_prior, config.kernel is None
    if spread is None or (isinstance(spread, str) and not is_default):
        return NO_PRIOR
    spread = DEFAULT_SPREAD if isinstance(spread, str) else float(spread)
    return LengthScalePrior(spread, scale, DEFAULT_LEVEL if is_default else np.inf)


def _number_of_kernels(config: FitConfig, n_latents: int, previous: KernelPosterior | None) -> int:
    """Number of initial kernels: share="auto" keeps that of a previous fit; fits with neighbours have one."""
    if n_latents == 1 or config.share == "kernel":
        return 1
    if config.share == "none":
        return n_latents
    has_neighbors = config.given_neighbors > 0
    return 1 if previous is None or has_neighbors else len(previous.prior.groups)


def _posterior_of(fit: PreviousFit, data: Data, d: int, n_latents: int) -> KernelPosterior | None:
    """The previous posterior in this fit's precision, or None if the data are not alike."""
    previous = fit.posterior
    # The columns must be made and warped in the same way; fill values for missing numbers and limits may differ.
    before, now = (table and table.matrix_names for table in map(of_table, (fit.encoding, data.encoding)))
    shape = previous.n_latents, previous.prior.groups[0].spec.n_features
    is_alike = before == now and warps_in(fit.encoding) == warps_in(data.encoding) and shape == (n_latents, d)
    if not (is_alike and np.array_equal(fit.classes, data.record.by_level(data.classes))):
        return None
    return previous.without_neighbors().in_precision(PRECISIONS[data.config.precision])
