"""The data of a fit, its initial state (kernel, inducing points, posterior), and the results of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training, grouped
from ..approximations.full import FullPrior
from ..approximations.local import LocalPosterior
from ..approximations.sparse import PRECISIONS, SparsePosterior, SparsePrior
from ..config import FitConfig
from ..data.encoding import Encoding, of_table
from ..inference.fitting import Evidence
from ..inference.prior_mean import OF_SITE, PriorMean
from ..inference.progress import BestSoFar
from ..inference.run import Run
from ..kernels.default import default_kernel
from ..kernels.prior import DEFAULT_LEVEL, DEFAULT_SPREAD, NO_PRIOR, LengthScalePrior
from ..kernels.spec import Groups, KernelSpec
from ..likelihoods import START_NOISE, Likelihood
from ..rows.source import ArraySource, RowSource
from .hold_out import HoldOut
from .inducing import Sample, inducing_points, sample_size
from .memory import most_points, warn_of_many_classes
from .query_score import Scores


@dataclass(frozen=True)
class Data:
    """The checked data and settings of a fit.

    Attributes
    ----------
    config : FitConfig
    source : rows of positive weight to learn from, labels in the form that the sites need
    stream : source of all rows if ``source`` is only a sample of them, else None
    classes : (C,) labels
    class_totals : (C,) total weights of the classes over all rows
    likelihood, bound : the likelihood and the name of its bound
    label_noise : float, or None if it is learned or the bound has none
    hold_out : HoldOut, draws the held-out rows of fits with neighbours
    encoding : Encoding that made the rows, or None
    prior_mean : PriorMean
    seed : int, for random numbers that do not depend on how many others were drawn
    """

    config: FitConfig
    source: ArraySource
    classes: np.ndarray
    class_totals: np.ndarray
    likelihood: Likelihood
    bound: str
    label_noise: float | None
    hold_out: HoldOut
    stream: RowSource | None = None
    encoding: Encoding | None = None
    prior_mean: PriorMean = OF_SITE
    seed: int = 0

    @property
    def is_of_one_class(self) -> bool:
        return np.count_nonzero(self.class_totals) == 1

    @property
    def total_weight(self) -> float:
        """Total weight of all rows."""
        return float(np.sum(self.class_totals))

    @property
    def base_rate_log_score(self) -> float:
        """Log likelihood of all labels, in nats, under the weighted class frequencies."""
        return float(np.sum(xlogy(self.class_totals, self.class_totals / self.total_weight)))

    @property
    def groups(self) -> Groups | None:
        """Which feature columns were made from the same column of a table."""
        table = of_table(self.encoding)
        return None if table is None else table.groups


class PreviousFit(NamedTuple):
    """The earlier fit that a warm start continues."""

    posterior: KernelPosterior | LocalPosterior
    classes: np.ndarray
    encoding: Encoding | None
    label_noise: float


@dataclass(frozen=True)
class InitialState:
    """The initial state of a fit.

    Attributes
    ----------
    training : the rows
    prior : the initial prior
    previous : the posterior of an earlier fit to start from, or None
    grow_to : int, largest number of inducing points if points may be added while they pay, else 0
    site : Site
    resumed : BestSoFar of an interrupted run of the same fit, or None
    length_scale_prior : LengthScalePrior, of all kernels
    """

    training: Training
    prior: KernelPrior
    previous: KernelPosterior | None
    grow_to: int
    site: Site
    resumed: BestSoFar | None = None
    length_scale_prior: LengthScalePrior = NO_PRIOR


@dataclass(frozen=True)
class HyperparameterFit:
    """The result of learning: prior, site, and a posterior of some of the rows, or None.

    ``problems`` lists what did not converge. ``failed`` says why requested neighbours are not used, with advice, or is
    empty. ``notes`` are further messages for the user; if the kernel has found no structure, they replace warnings of
    parameters at bounds. With neighbours, ``local`` is the local posterior of all rows under ``prior``, and ``scores``
    are those of held-out rows.
    """

    initial: InitialState
    q: KernelPosterior | None
    prior: KernelPrior
    site: Site
    n_iter: int = 0
    problems: tuple[str, ...] = ()
    failed: str = ""
    notes: tuple[str, ...] = ()
    local: LocalPosterior | None = None
    scores: Scores | None = None


@dataclass(frozen=True)
class FitResult:
    """The posterior of all rows, which the model predicts with, its site, iterations and messages.

    ``evidence`` is the bound of the posterior. A model with neighbours has None here and instead keeps the labels and
    weights of the distinct rows, from which the bound can be computed later, and the scores of held-out rows.
    """

    q: KernelPosterior | LocalPosterior
    site: Site
    n_iter: int
    unfinished: list[str]
    notes: tuple[str, ...]
    evidence: Evidence | None
    labels: tuple[np.ndarray, np.ndarray] | None = None
    scores: Scores | None = None


def first_prior(data: Data, run: Run, training: Training, previous_fit: PreviousFit | None) -> InitialState:
    """Choose kernel and inducing points; a warm start takes those of the previous fit if the data are alike."""
    config, random_state = data.config, run.random_state
    d = training.source.n_features
    previous = None if previous_fit is None else _posterior_of(previous_fit, data, d, training.n_latents)
    n_kernels = _number_of_kernels(config, training.n_latents, previous)
    if previous is not None and len(previous.prior.groups) != n_kernels:
        previous = None
    if previous is None and previous_fit is not None:
        what = "features, classes, or number of latent functions or kernels"
        run.history.add(decision=f"The previous fit had other {what}: this fit begins anew.")
    noise = START_NOISE if previous is None or previous_fit is None else previous_fit.label_noise
    site = data.likelihood.site(data.bound, len(data.classes), data.label_noise, noise)
    method = config.inducing_points if isinstance(config.inducing_points, str) else None
    size = len(training) if method == "all" else sample_size(config.n_inducing)
    sample = Sample(training.source, size, random_state, data.groups)
    if previous is not None and (config.optimizer is not None or config.kernel is None):
        kernels = [group.spec.kernel for group in previous.prior.groups]
    elif config.kernel is not None:
        kernels = [config.kernel] * n_kernels
    else:
        kernels = [default_kernel(sample.scale, data.groups)] * n_kernels
    specs = [KernelSpec(kernel, d, data.groups) for kernel in kernels]
    if config.optimizer is not None:
        if config.n_restarts_optimizer and not all(np.all(np.isfinite(spec.bounds)) for spec in specs):
            raise ValueError(
                f"n_restarts_optimizer needs finite bounds of all free kernel parameters; got {kernels[0]}."
            )
        specs = [spec.within_bounds() for spec in specs]
    length_scale_prior = _length_scale_prior(config, sample.scale)
    prior: SparsePrior | FullPrior
    grow_to, dtype = 0, PRECISIONS[config.precision]
    if method == "all":
        prior = FullPrior.build(specs[0], sample.rows, config.n_jobs)
    elif previous is not None and not previous.prior.is_full:
        pairs = zip(specs, previous.prior.groups, strict=True)
        continued = grouped([SparsePrior.build(spec, group.Z, dtype) for spec, group in pairs])
        return InitialState(training, continued, previous, 0, site, length_scale_prior=length_scale_prior)
    else:
        Z = inducing_points(sample, config.inducing_points, config.n_inducing, random_state, specs[0])
        if method is None and data.encoding is not None:
            Z = data.encoding.within_limits(Z)
        is_open = isinstance(config.n_inducing, str) and method is not None
        grow_to = most_points(len(training), training.n_latents, n_kernels > 1) if is_open else 0
        prior = SparsePrior.build(specs[0], Z, dtype)
        if training.n_latents is not None:
            warn_of_many_classes(len(training), training.n_latents, len(Z), n_kernels > 1)
    first = grouped([prior] * n_kernels)
    if n_kernels > 1 and previous is not None:
        first = first.rebuilt(specs, first.Z)
    return InitialState(training, first, previous, grow_to, site, length_scale_prior=length_scale_prior)


def _length_scale_prior(config: FitConfig, scale: np.ndarray) -> LengthScalePrior:
    """The length scales' prior; "auto" gives one only to the default kernel, which also limits the common factor."""
    spread, is_default = config.length_scale_prior, config.kernel is None
    if spread is None or (isinstance(spread, str) and not is_default):
        return NO_PRIOR
    spread = DEFAULT_SPREAD if isinstance(spread, str) else float(spread)
    return LengthScalePrior(spread, scale, DEFAULT_LEVEL if is_default else np.inf)


def _number_of_kernels(config: FitConfig, n_latents: int | None, previous: KernelPosterior | None) -> int:
    """Number of initial kernels: share="auto" keeps that of a previous fit; fits with neighbours have one."""
    if n_latents is None or config.share == "kernel":
        return 1
    if config.share == "none":
        return n_latents
    has_neighbors = not config.has_auto_neighbors and config.n_neighbors > 0
    return 1 if previous is None or has_neighbors else len(previous.prior.groups)


def _posterior_of(fit: PreviousFit, data: Data, d: int, n_latents: int | None) -> KernelPosterior | None:
    """The previous posterior in this fit's precision, or None if the data are not alike."""
    previous = fit.posterior
    if not np.array_equal(fit.classes, data.classes):
        return None
    # The columns must be made in the same way; fill values for missing numbers and limits may differ.
    before, now = (table and table.matrix_names for table in map(of_table, (fit.encoding, data.encoding)))
    if before != now:
        return None
    if (previous.n_latents, previous.prior.groups[0].spec.n_features) != (n_latents, d):
        return None
    if isinstance(previous, LocalPosterior):
        previous = previous.without_neighbors()
    return (
        previous.in_precision(PRECISIONS[data.config.precision]) if isinstance(previous, SparsePosterior) else previous
    )
