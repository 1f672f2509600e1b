"""Where a fit starts: kernel, inducing points, and a posterior that there may be."""

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
from ..inference.fitting import Evidence
from ..inference.prior_mean import OF_SITE, PriorMean
from ..inference.progress import BestSoFar
from ..inference.run import Run
from ..kernels.default import default_kernel
from ..kernels.prior import DEFAULT_LEVEL, DEFAULT_SPREAD, NO_PRIOR, LengthScalePrior
from ..kernels.spec import Groups, KernelSpec
from ..likelihoods import START_NOISE, Likelihood
from ..rows.encoding import Encoding, of_table
from ..rows.source import RowSource
from .hold_out import HoldOut
from .inducing import Sample, inducing_points, sample_size
from .memory import most_points, warn_of_many_classes
from .query_score import Scores


@dataclass(frozen=True)
class Data:
    """What a fit is of, checked.

    Attributes
    ----------
    config : FitConfig
    source : rows of positive weight, labels as the sites take them
    stream : all rows, where ``source`` has only those of them that are learned from; else None
    classes : (C,) labels
    class_totals : (C,) sums of the weights of all rows of each class
    likelihood, bound : which
    label_noise : float, or None if it is learned or there is none
    queries : Queries, which rows ask and which answer, with neighbours
    encoding : Encoding that made the rows, or None
    prior_mean : PriorMean
    seed : int, of random numbers that do not depend on how many others were drawn
    """

    config: FitConfig
    source: RowSource
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
        """Of all rows."""
        return float(np.sum(self.class_totals))

    @property
    def base_rate_log_score(self) -> float:
        """Log likelihood in nats of all labels by the weighted frequencies of the classes."""
        return float(np.sum(xlogy(self.class_totals, self.class_totals / self.total_weight)))

    @property
    def groups(self) -> Groups | None:
        """Which features, columns of the matrix, are made of a column of a table."""
        table = of_table(self.encoding)
        return None if table is None else table.groups


class PreviousFit(NamedTuple):
    """What a warm start goes on from."""

    posterior: KernelPosterior | LocalPosterior
    classes: np.ndarray
    encoding: Encoding | None
    label_noise: float


@dataclass(frozen=True)
class InitialState:
    """Where a fit starts.

    Attributes
    ----------
    training : the rows
    prior : the prior to start from
    previous : the posterior of a fit before, if there is one to start from
    grow_to : int, the number of inducing points up to which more are added while they pay; 0: none are
    site : Site
    resumed : BestSoFar of an earlier fit of the same, or None
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
    """What learning ends with: a posterior of some of the rows, or None, a prior and a site.

    ``problems`` are what did not converge, ``failed`` is why there are no neighbours that were asked for, with advice,
    or nothing; ``notes`` are other messages that users should see: a kernel that
    tells nothing, which may well be at its bounds, though these are not what keeps it.
    With neighbours also the local posterior of all rows, whose prior is ``prior``, and scores of rows kept apart.
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
    """The posterior of all rows, whose predictions are the model's, with site, iterations and messages.

    ``evidence`` is its bound. With neighbours there is none, but the labels and weights of the distinct rows, with
    which it can be asked for, and the scores of rows that the model was not learned from.
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
    """Kernel and inducing points to start from; of a warm start those of the previous fit, if its data were alike."""
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
    """Of ratios and, of the default kernel, of the common factor; "auto": none of a kernel that the user has chosen."""
    spread, is_default = config.length_scale_prior, config.kernel is None
    if spread is None or (isinstance(spread, str) and not is_default):
        return NO_PRIOR
    spread = DEFAULT_SPREAD if isinstance(spread, str) else float(spread)
    return LengthScalePrior(spread, scale, DEFAULT_LEVEL if is_default else np.inf)


def _number_of_kernels(config: FitConfig, n_latents: int | None, previous: KernelPosterior | None) -> int:
    """Kernels to begin with: of share="auto" those of the fit before, if there is one; neighbours need one."""
    if n_latents is None or config.share == "kernel":
        return 1
    if config.share == "none":
        return n_latents
    has_neighbors = not config.has_auto_neighbors and config.n_neighbors > 0
    return 1 if previous is None or has_neighbors else len(previous.prior.groups)


def _posterior_of(fit: PreviousFit, data: Data, d: int, n_latents: int | None) -> KernelPosterior | None:
    """The posterior to start from, in the precision of this fit, if the data are alike."""
    previous = fit.posterior
    if not np.array_equal(fit.classes, data.classes):
        return None
    # What the columns of a table's matrix are; the means that stand for missing numbers may move, and so may limits.
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
