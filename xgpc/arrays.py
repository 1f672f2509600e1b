"""Plain arrays of a fitted ``GPClassifier``, for predictions by programs that do not have xgpc."""

from __future__ import annotations

import numpy as np

from .approximations.base import groups_of_latents
from .approximations.local import Posterior
from .approximations.sparse import SparsePosterior
from .data.encoding import Encoding
from .kernels.factors import NAMES
from .likelihoods import LikelihoodBound


def kernel_arrays(q: Posterior) -> dict[str, np.ndarray]:
    """The prior of each latent function: points, and the kernel as a sum of terms, each a product of factors."""
    groups = groups_of_latents(q.prior, q.n_latents)
    if reason := groups[0].spec.not_compiled:
        raise ValueError(f"to_arrays is for compiled kernels; {reason}. pickle keeps a model with any kernel.")
    cores = [group.core for group in groups]
    return {
        "points": np.stack([group.Z for group in groups]),
        "term_variance": np.stack([core.variance for core in cores]),
        "term_is_noise": np.array(cores[0].noise) != 0,
        "factor_term": np.array(cores[0].term),
        "factor_family": np.array([NAMES[int(number)] for number in cores[0].family], dtype=str),
        "factor_shape": np.stack([core.shape for core in cores]),
        "inverse_length_scale": np.stack([core.inverse_length_scale for core in cores]),
    }


def posterior_arrays(q: Posterior) -> dict[str, np.ndarray]:
    """What the labels told: of all points, or of the nearest rows besides."""
    local = q.kept_rows
    if local is None:
        points = q.without_neighbors()
        forms = points.covariance_forms()
        B = np.stack([form.explained.T @ form.explained - form.added.T @ form.added for form in forms])
        arrays = {"alpha": np.stack([form.weights for form in forms]), "B": B}
        if isinstance(points, SparsePosterior):
            arrays |= {"whitened_mean": points.w, "whitened_covariance": np.swapaxes(points.Rinv, 1, 2) @ points.Rinv}
            arrays["whitening"] = np.stack([group.Linv for group in points.groups])
        return arrays
    metric = local.neighbours.metric
    names = "rows", "site_precision", "site_linear", "whitened_mean", "whitened_covariance", "variance_scale"
    return {name: local.to_arrays()[name] for name in names} | {
        "whitening": np.stack([local.prior.Linv] * len(local.w)),
        "n_neighbors": np.array(local.n_neighbors),
        "distance_scale": np.array(metric.scale),
        "distance_power": np.array(metric.power),
    }


def link_arrays(record: LikelihoodBound) -> dict[str, np.ndarray]:
    """How latent values become probabilities."""
    noise = record.values[0] if record.has_label_noise else 0.0
    arrays = {"likelihood": np.array(record.likelihood), "label_noise": np.array(noise)}
    if not record.is_multi_class:
        arrays["rates"] = np.array(record.values if record.has_rates else [noise, noise])
        arrays["cut_points"] = np.array(record.values) if record.is_ordinal else np.zeros(1)
        arrays["levels"] = record.levels(np.arange(len(arrays["cut_points"]) + 1))
    if record.link is not None:
        arrays["link_weights"], arrays["link_variances"] = np.array(record.link).T
    return arrays


def warp_arrays(encoding: Encoding) -> dict[str, np.ndarray]:
    """The features that are warped, with centre and scale of each."""
    feature, centre, scale = np.array(encoding.warps, dtype=np.float64).reshape(-1, 3).T.copy()
    return {"warp_feature": feature.astype(np.intp), "warp_centre": centre, "warp_scale": scale}
