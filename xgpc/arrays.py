"""Plain arrays of a fitted ``GPClassifier``, for predictions by programs that do not have xgpc."""

from __future__ import annotations

from abc import ABC

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .approximations.base import groups_of_latents
from .approximations.local import Posterior
from .approximations.sparse import SparsePosterior
from .data.encoding import Encoding
from .estimator import LatentClassifier
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
    feature, centre, scale = zip(*encoding.warps, strict=True) if encoding.warps else ((), (), ())
    return {
        "warp_feature": np.array(feature, dtype=np.intp),
        "warp_centre": np.array(centre, dtype=np.float64),
        "warp_scale": np.array(scale, dtype=np.float64),
    }


class WithArrays(LatentClassifier, ABC):
    """A classifier whose posterior can be had as arrays."""

    posterior_: Posterior
    mean_: float | np.ndarray

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays from which some lines of NumPy make the same predictions of new rows, for programs without xgpc.

        The guide's page "Models in other programs" has these lines. All arrays are in the units of rows as
        ``encoding_.encode(X)`` returns them; of an array X without outlying values, the warps alone make these.

        Returns
        -------
        dict of arrays
            With L latent functions (L = 1, or the number of classes), m points, T terms and F factors of the kernel,
            and W warped features.

            * ``classes`` (C,); ``likelihood``, a name; ``label_noise``, 0 without any.
            * ``class_weight`` (C,): probabilities are multiplied by it at last, and divided by their sum.
            * ``mean`` (L,): prior means, to be added to all latent means.
            * ``points`` (L, m, d): inducing points, or the distinct rows of a full Gaussian process.
            * ``term_variance`` (L, T), ``term_is_noise`` (T,): the kernel is a sum of terms, each its variance times
              its factors. Terms of noise count only in the variance k(x, x) of a row.
            * ``factor_term`` (F,), ``factor_family`` (F,), ``factor_shape`` (L, F), ``inverse_length_scale`` (L, F, d):
              for each factor its term, the name of its function, its parameter (alpha of RationalQuadratic, sigma_0^2
              of DotProduct) and inverse length scales.
            * ``alpha`` (L, m), ``B`` (L, m, m), without neighbours: mean = alpha'k and variance = k(x, x) - k'B k, for
              k = k(points, x).
            * ``whitening`` (L, m, m), ``whitened_mean`` (L, m), ``whitened_covariance`` (L, m, m), with inducing
              points: the whitened values at the points, L^-1 u with k(points, points) = L L', have a normal
              distribution; ``whitening`` is L^-1.
            * ``rows`` (n, d), ``site_precision`` (L, n), ``site_linear`` (L, n), ``n_neighbors``, ``variance_scale``,
              with neighbours: training rows, their sites, number of neighbours, and a factor of all variances.
            * ``distance_scale`` (d,), ``distance_power``, with neighbours: they are the nearest by the sum of
              ``abs(scale * (x - row)) ** power``.
            * ``link_weights``, ``link_variances`` (K,): ``p(classes[1] | f)`` = sum of weight * Phi(f /
              sqrt(variance)), then wrong with probability ``label_noise``. Not for "softmax" and "logistic-softmax".
            * ``rates`` (2,), with one latent function: guess and lapse rate, which are the label noise of a likelihood
              with label noise. The probability becomes guess + (1 - guess - lapse) times that of the link.
            * ``cut_points``, with one latent function: f - cut takes the place of f, for the probability of the classes
              above each cut. (C - 1,) for ordered classes, otherwise a 0.
            * ``levels`` (C,), with one latent function: the position of each class between the cuts, 0 for the lowest.
            * ``warp_feature``, ``warp_centre``, ``warp_scale`` (W,): centre + scale * arcsinh((x - centre) / scale)
              stands for such a feature x.

        Raises
        ------
        ValueError
            For a kernel that is not compiled.

        Notes
        -----
        O(L m^3) time. ``numpy.savez`` writes the arrays to a file, without pickled objects if the labels are numbers or
        text.
        """
        check_is_fitted(self)
        return {
            "classes": np.array(self.classes_),
            "class_weight": np.array(self.class_weight_),
            "mean": np.atleast_1d(self.mean_),
            **kernel_arrays(self.posterior_),
            **posterior_arrays(self.posterior_),
            **link_arrays(self._record),
            **warp_arrays(self._encoding),
        }
