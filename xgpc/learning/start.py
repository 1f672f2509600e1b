"""The candidate that learning starts with: kernel and inducing points, from the data or from an earlier fit."""

from __future__ import annotations

import numpy as np

from ..approximations.base import KernelPosterior, KernelPrior, grouped
from ..approximations.full import FullPrior
from ..approximations.sparse import PRECISIONS, SparsePrior
from ..config import FitConfig
from ..data.moments import Sample
from ..inference.prior_mean import base_rates, first_cut_points, mean_variances
from ..kernels.default import default_kernel
from ..kernels.prior import DEFAULT_LEVEL, DEFAULT_SPREAD, NO_PRIOR, LengthScalePrior
from ..kernels.spec import KernelSpec, with_numbers
from ..likelihoods import START_NOISE, Parameter
from .fit import Candidate, Fit, PreviousFit
from .inducing import MOST_ALL_ROWS, MOST_GROWN, inducing_points, most_points, sample_size, warn_of_many_classes

# A learned guess or lapse rate starts at this share of what a given one leaves, not at 0: its logarithm is learned.
START_RATE = 0.05


def start(fit: Fit, previous_fit: PreviousFit | None) -> Candidate:
    """Choose kernel and inducing points, from the data or from a previous fit to similar data."""
    config, run, source, n_latents = fit.config, fit.run, fit.source, fit.n_latents
    run.history.tell(stage="start", n_rows=source.n_rows)
    previous, parameter = _of_previous(previous_fit, fit)
    n_kernels = n_latents if config.share == "none" else 1
    if previous is not None:
        n_kernels = len(previous.prior.groups)
    method = config.inducing_points if isinstance(config.inducing_points, str) else None
    size = source.n_rows if method == "all" else sample_size(config.n_inducing)
    sample = Sample(source, size, run.random_state, fit.groups)
    specs = _first_specs(fit, sample, previous, n_kernels)
    dtype = PRECISIONS[config.precision]
    may_grow = isinstance(config.n_inducing, str) and method is not None
    most_all = MOST_ALL_ROWS if fit.learns else MOST_GROWN
    if method == "all":
        prior = grouped([FullPrior.build(specs[0], sample.rows)] * n_kernels)
    elif previous is not None and not previous.prior.is_full:
        pairs = zip(specs, previous.prior.groups, strict=True)
        rows = sample.rows if may_grow and len(sample.rows) <= most_all else None
        prior = grouped([SparsePrior.build(spec, group.Z if rows is None else rows, dtype) for spec, group in pairs])
    else:
        Z = inducing_points(sample, config.inducing_points, config.n_inducing, run.random_state, specs[0], most_all)
        if method is None:
            Z = fit.columns.encoding.transform(Z)
        prior = grouped([SparsePrior.build(specs[0], Z, dtype)] * n_kernels)
        if n_latents > 1:
            warn_of_many_classes(source.n_rows, n_latents, len(Z), n_kernels > 1)
    # If all rows are inducing points, there are no further ones.
    may_grow = may_grow and not prior.is_full and prior.n_inducing < source.n_rows
    grow_to = most_points(source.n_rows, n_latents, n_kernels > 1) if may_grow else 0
    if n_kernels > 1 and previous is not None and (prior.is_full or previous.prior.is_full):
        prior = prior.rebuilt(specs, prior.Z)
    parameter = _first_parameter(fit, prior, parameter)
    site = fit.prior_mean.site(fit.record.site(len(fit.classes), parameter), prior)
    return Candidate(prior, previous, site, _length_scale_prior(config, sample), grow_to)


def _first_specs(fit: Fit, sample: Sample, previous: KernelPosterior | None, n_kernels: int) -> list[KernelSpec]:
    """The kernels where learning starts: those of a previous fit, of the user, or the default."""
    config = fit.config
    if previous is not None and (fit.learns or config.kernel is None):
        kernels = [group.spec.kernel for group in previous.prior.groups]
    else:
        kernel = default_kernel(sample.scale, fit.groups) if config.kernel is None else config.kernel
        kernels = [with_numbers(kernel, fit.columns.names)] * n_kernels
    specs = [KernelSpec(kernel, fit.source.n_features, fit.groups) for kernel in kernels]
    if reason := specs[0].not_compiled:
        fit.run.history.add(
            decision=f"The kernel is not compiled, because {reason}: it is called for each block of rows, which is "
            "slow, and inducing points stay where they start."
        )
    if not fit.learns:
        return specs
    if config.n_restarts_optimizer and not all(np.all(np.isfinite(spec.bounds)) for spec in specs):
        raise ValueError(f"n_restarts_optimizer needs finite bounds of all free kernel parameters; got {kernels[0]}.")
    return [spec.within_bounds() for spec in specs]


def _first_parameter(fit: Fit, prior: KernelPrior, previous: Parameter) -> Parameter:
    """The likelihood's parameter where learning starts: that of a previous fit, if it had one of this kind.

    Cut points start at those of the class frequencies.
    """
    if fit.record.has_rates:
        fixed, are_learned = fit.config.fixed_rates, np.array(fit.config.learned_rates)
        first = np.where(are_learned, START_RATE * (1.0 - np.sum(fixed)), fixed)
        rates = np.where(are_learned, previous if isinstance(previous, np.ndarray) else first, fixed)
        return rates if np.all(rates[are_learned] > 0.0) and np.sum(rates) < 1.0 else first
    if not fit.record.is_ordinal:
        return previous if isinstance(previous, float) else START_NOISE
    if previous is not None:
        return previous
    return first_cut_points(fit.record, fit.record.by_level(base_rates(fit.class_totals)), mean_variances(prior))


def _length_scale_prior(config: FitConfig, sample: Sample) -> LengthScalePrior:
    """The length scales' prior. With "auto" only the default kernel has one, whose common factor it limits, too."""
    spread, is_default = config.length_scale_prior, config.kernel is None
    if spread is None or (isinstance(spread, str) and not is_default):
        return NO_PRIOR
    spread = DEFAULT_SPREAD if isinstance(spread, str) else float(spread)
    return LengthScalePrior(spread, sample.scale, DEFAULT_LEVEL if is_default else np.inf)


def _of_previous(earlier: PreviousFit | None, fit: Fit) -> tuple[KernelPosterior | None, Parameter]:
    """The previous posterior in this fit's precision, and its likelihood's parameter, if the data have the same form.

    share="auto" keeps the number of kernels; fits with neighbours have one.
    """
    if earlier is None:
        return None, None
    previous, config, before, now = earlier.posterior, fit.config, earlier.encoding, fit.columns.encoding
    n_kernels, n_features = len(previous.prior.groups), previous.prior.groups[0].spec.n_features
    kernels_of_share = {"kernel": 1, "none": fit.n_latents, "auto": 1 if config.given_neighbors else n_kernels}
    # The columns must be made and warped in the same way; fill values for missing numbers and limits may differ.
    is_similar = before.matrix_names == now.matrix_names and before.warps == now.warps
    is_similar &= (previous.n_latents, n_features) == (fit.n_latents, fit.source.n_features)
    is_similar &= n_kernels == kernels_of_share[config.share]
    if is_similar and np.array_equal(earlier.classes, fit.record.by_level(fit.classes)):
        return previous.without_neighbors().in_precision(PRECISIONS[config.precision]), earlier.parameter
    properties = "features, warps of features, classes, or number of latent functions or kernels"
    fit.run.history.add(decision=f"The previous fit had other {properties}: this fit begins anew.")
    return None, None
