"""Plain arrays of a fitted ``GPClassifier``, for predictions by programs that do not have xgpc."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from .approximations.base import groups_of_latents
from .approximations.local import Posterior
from .approximations.sparse import SparsePosterior
from .kernels.factors import NAMES
from .likelihoods import LikelihoodBound


def arrays_of(model: BaseEstimator) -> dict[str, np.ndarray]:
    """What ``to_arrays`` of a fitted ``GPClassifier`` returns."""
    q = model.posterior_
    groups = groups_of_latents(q.prior, q.n_latents)
    if reason := groups[0].spec.not_compiled:
        raise ValueError(f"to_arrays is for compiled kernels; {reason}. pickle keeps a model with any kernel.")
    cores = [group.core for group in groups]
    feature, centre, scale = np.array(model._encoding.warps, dtype=np.float64).reshape(-1, 3).T.copy()
    return {
        "classes": np.array(model.classes_),
        "class_weight": np.array(model.class_weight_),
        "mean": np.atleast_1d(model.mean_),
        "points": np.stack([group.Z for group in groups]),
        # The kernel is a sum of terms, each a product of factors.
        "term_variance": np.stack([core.variance for core in cores]),
        "term_is_noise": np.array(cores[0].noise) != 0,
        "factor_term": np.array(cores[0].term),
        "factor_family": np.array([NAMES[int(number)] for number in cores[0].family], dtype=str),
        "factor_shape": np.stack([core.shape for core in cores]),
        "inverse_length_scale": np.stack([core.inverse_length_scale for core in cores]),
        **_posterior_arrays(q),
        **link_arrays(model._record),
        "warp_feature": feature.astype(np.intp),
        "warp_centre": centre,
        "warp_scale": scale,
    }


def _posterior_arrays(q: Posterior) -> dict[str, np.ndarray]:
    """What the labels told: of all points, or of the nearest rows besides."""
    local = q.kept_rows
    if local is None:
        points = q.without_neighbors()
        _, alpha, B = zip(*points.quadratics, strict=True)
        arrays = {"alpha": np.concatenate(alpha), "B": -0.5 * np.concatenate(B)}
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
