"""Where a fit starts: kernel, inducing points, and a posterior that there may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..approximations.base import KernelPosterior, KernelPrior, SeparatePriors, Training
from ..approximations.full import FullPrior
from ..approximations.sparse import SparsePosterior, SparsePrior
from ..kernels import KernelSpec, default_kernel
from ..likelihoods import START_NOISE
from .inducing import Sample, inducing_points, sample_size


def start(
    model: Any, training: Training, classes: np.ndarray, random_state: np.random.RandomState
) -> tuple[KernelPrior, KernelPosterior | None, bool]:
    """The prior to start from, the posterior if there is one, and whether to add inducing points.

    Parameters
    ----------
    model : GPClassifier, of which the parameters are read, and for a warm start the posterior
    training : Training
    classes : (C,) labels
    """
    d = training.source.n_features
    n_kernels = training.n_latents if model.share == "none" and training.n_latents is not None else 1
    previous = _previous(model, d, training.n_latents, n_kernels, classes)
    method = model.inducing_points if isinstance(model.inducing_points, str) else None
    size = len(training) if method == "all" else sample_size(model.n_inducing)
    sample = Sample(training.source, size, random_state)
    if previous is not None and (model.optimizer is not None or model.kernel is None):
        kernels = [group.spec.kernel for group in previous.prior.groups]
    elif model.kernel is not None:
        kernels = [model.kernel] * n_kernels
    else:
        kernels = [default_kernel(sample.scale)] * n_kernels
    specs = [KernelSpec(kernel, d) for kernel in kernels]
    if model.optimizer is not None:
        if model.n_restarts_optimizer and not all(np.all(np.isfinite(spec.bounds)) for spec in specs):
            raise ValueError(
                f"n_restarts_optimizer needs finite bounds of all free kernel parameters; got {kernels[0]}."
            )
        specs = [spec.within_bounds() for spec in specs]
    prior: SparsePrior | FullPrior
    grow = False
    if method == "all":
        prior = FullPrior.build(specs[0], sample.rows, model.n_jobs)
    elif isinstance(previous, SparsePosterior):
        return previous.prior.rebuilt(specs, previous.prior.Z), previous, False
    else:
        Z = inducing_points(sample, model.inducing_points, model.n_inducing, random_state, specs[0])
        grow = isinstance(model.n_inducing, str) and method is not None
        prior = SparsePrior.build(specs[0], Z)
    if n_kernels == 1:
        return prior, previous, grow
    separate = SeparatePriors((prior,) * n_kernels)
    return separate if previous is None else separate.rebuilt(specs, separate.Z), previous, grow


def first_label_noise(model: Any, previous: KernelPosterior | None) -> float:
    """delta that learning of label noise starts from: that of the previous fit, if there is one to start from."""
    return START_NOISE if previous is None else getattr(model, "label_noise_", START_NOISE)


def _previous(model: Any, d: int, n_latents: int | None, n_kernels: int, classes: np.ndarray) -> KernelPosterior | None:
    """The posterior to start from, if this is a warm start and it fits the data."""
    previous = getattr(model, "posterior_", None) if model.warm_start else None
    if previous is None or not np.array_equal(model.classes_, classes):
        return None
    fits = (previous.n_latents, len(previous.prior.groups), previous.prior.groups[0].spec.n_features)
    return previous if fits == (n_latents, n_kernels, d) else None
