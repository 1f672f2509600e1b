"""The latent functions of a fitted classifier as a model of BoTorch, with joint posteriors and their derivatives.

``pip install 'xgpc[botorch]'``.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import BlockDiagLinearOperator, RootLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from sklearn.utils.validation import check_is_fitted

from ._kernels import InducingKernel
from .arrays import link_arrays
from .classifier import GPClassifier
from .config import is_integer
from .kernels.factors import Pairs, covariances
from .likelihoods.softmax import softmax_log_probabilities
from .torch import check_tensor, file_of, model_of

# Added below roots, which then have derivatives where points coincide: it changes values by 1e-18, and second
# derivatives there by 1e-7. The kernels with nu = 1/2 have none there, and get NaN.
TINY = 1e-18
SMOOTH = SimpleNamespace(exp=torch.exp, log=torch.log, sin=torch.sin, sqrt=lambda x: torch.sqrt(x + TINY))


def _functions(family: str) -> Any:
    return torch if family in ("matern-1/2", "axis-matern-1/2") else SMOOTH


class _Pairs(Pairs):
    """Pairs of rows x and z (..., d)."""

    def __init__(self, x: torch.Tensor, z: torch.Tensor) -> None:
        self.x, self.z = x, z
        zeros = x.new_zeros(torch.broadcast_shapes(x.shape, z.shape)[:-1])
        super().__init__(lambda j: (x[..., j], z[..., j]), zeros)

    def half_squares(self, scale: np.ndarray, family: str) -> torch.Tensor:
        # All features at once take fewer calls. What a factor does not see must not get its NaN.
        seen = np.flatnonzero(scale)
        return -0.5 * ((self.x[..., seen] - self.z[..., seen]) * torch.as_tensor(scale[seen])).square().sum(-1)


def _joint(core: InducingKernel, X: torch.Tensor) -> torch.Tensor:
    """k(X, X) (..., q, q), with noise on the diagonal."""
    joint = torch.diag_embed(covariances(core, _Pairs(X, X), _functions, is_own=True))
    # Pairs alone: of a row with itself, a kernel with nu = 1/2 would have a kink.
    first, second = torch.triu_indices(X.shape[-2], X.shape[-2], 1)
    pairs = _Pairs(X[..., first, :], X[..., second, :])
    joint[..., first, second] = joint[..., second, first] = covariances(core, pairs, _functions)
    return joint


class _Covariance(BlockDiagLinearOperator):
    """Covariances (..., C, q, q) of C outcomes, as one of (..., C q, C q).

    linear_operator's own roots, and blocks that it concatenates, have wrong second derivatives.
    """

    def root_decomposition(self, method: str | None = None) -> RootLinearOperator:
        """The Cholesky factor, with jitter where rows are equal."""
        return RootLinearOperator(BlockDiagLinearOperator(psd_safe_cholesky(self.base_linear_op.to_dense())))


class LatentModel(Model):
    """The latent functions of a fitted classifier as a model of BoTorch.

    ``posterior(X)`` is the joint normal distribution of ``predict_latent(X, return_cov=True)``, computed by PyTorch in
    double precision on the CPU, with derivatives of any order by X, NaN where there are none. BoTorch's acquisition
    functions take the latent values as outcomes; of two classes, positive ones mean ``classes_[1]``. ``probability``
    makes class probabilities of them, in objectives and constraints. A later fit of the classifier changes nothing.
    ``state_dict`` holds the classifier's file, as that of ``xgpc.torch.FeasibilityModel``.

    Parameters
    ----------
    model : fitted GPClassifier
        With a compiled kernel and without neighbours (``n_neighbors=0``), fitted to an array or to columns of numbers.

    Raises
    ------
    ValueError
        For other models.
    """

    def __init__(self, model: GPClassifier) -> None:
        super().__init__()
        self._set(model)

    def _set(self, model: GPClassifier) -> None:
        if not isinstance(model, GPClassifier):
            raise ValueError(f"model must be a fitted GPClassifier; got {type(model).__name__}.")
        check_is_fitted(model)
        if model.n_neighbors_:
            raise ValueError(
                f"The model predicts with {model.n_neighbors_} neighbours, whose joint posterior jumps where they "
                "change: fit with n_neighbors=0."
            )
        if reason := model.posterior_.prior.groups[0].spec.not_compiled:
            raise ValueError(f"LatentModel takes compiled kernels only; {reason}.")
        if model._encoding.columns:
            raise ValueError("The model was fitted to a table with levels or missing numbers: fit to numbers alone.")
        forms = model.posterior_.without_neighbors().covariance_forms()
        self._forms = [(core, *(torch.tensor(array) for array in arrays)) for core, *arrays in forms]
        self.model = copy.copy(model)

    def extra_repr(self) -> str:
        """What ``repr`` shows between the parentheses."""
        return repr(self.model)

    def get_extra_state(self) -> torch.Tensor:
        """What ``state_dict`` holds: the classifier's file."""
        return file_of(self.model)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Take what ``get_extra_state`` returned; ValueError for anything else, which changes nothing."""
        self._set(model_of(state, self.model))

    @property
    def num_outputs(self) -> int:
        """Number of latent functions: 1 for two classes."""
        return len(self._forms)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of a batch of models: it is one."""
        return torch.Size()

    def posterior(
        self,
        X: torch.Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool = False,
        posterior_transform: Any = None,
    ) -> Any:
        """Joint normal posterior of the latent functions at X (..., q, d), a GPyTorchPosterior.

        ``output_indices`` chooses latent functions. Rows that are not finite have a mean of NaN. ValueError with
        ``observation_noise``, which labels do not have.
        """
        if observation_noise is not False:
            raise ValueError("observation_noise must be False: labels have no normal noise around latent values.")
        d = self.model.n_features_in_
        check_tensor("X", X, f"(..., q, {d})", width=d, least_axes=2)
        doubles = X.to("cpu", torch.float64)
        n = self.num_outputs
        chosen = [*range(n)] if output_indices is None else np.asarray(output_indices).tolist()
        if not (isinstance(chosen, list) and chosen and all(is_integer(c) and -n <= c < n for c in chosen)):
            raise ValueError(f"output_indices must be a list of one or more of {[*range(n)]}; got {chosen!r}.")
        rows, kernels, means, blocks = self._encoded(doubles), {}, [], []
        for c in chosen:
            core, weights, explained, added = self._forms[c]
            if id(core) not in kernels:
                to_points = _Pairs(rows[..., None, :], torch.tensor(core.inducing_points))
                kernels[id(core)] = covariances(core, to_points, _functions), _joint(core, rows)
            k, prior = kernels[id(core)]
            less, more = k @ explained.mT, k @ added.mT
            # Rows that are not finite have no mean; a check of their values would end torch.func.vmap.
            mean = k @ weights + float(np.atleast_1d(self.model.mean_)[c]) + 0.0 * doubles.sum(-1)
            means.append(mean.to(X))
            blocks.append((prior - less @ less.mT + more @ more.mT).to(X))
        means, covariance = torch.stack(means, -1), _Covariance(torch.stack(blocks, -3))
        joint = MultitaskMultivariateNormal(means, covariance, interleaved=False)
        if len(chosen) == 1:
            joint = MultivariateNormal(means[..., 0], covariance)
        posterior = GPyTorchPosterior(joint)
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def _encoded(self, X: torch.Tensor) -> torch.Tensor:
        """Rows within limits and warped, as ``xgpc.data.encoding`` does it."""
        columns = list(X.unbind(-1))
        for j, low, high in self.model._encoding.limits:
            columns[j] = columns[j].clamp(low, high)
        for j, centre, scale in self.model._encoding.warps:
            columns[j] = centre + scale * torch.asinh((columns[j] - centre) / scale)
        return torch.stack(columns, -1)

    def probability(self, samples: torch.Tensor) -> torch.Tensor:
        """Probabilities (..., C) of the classes at latent values (..., C), or (..., 1) of two classes.

        They are those of labels as they come, without ``class_weight``.
        ValueError for other values, ordered classes, "logistic-softmax" and the multinomial likelihoods.
        """
        record = self.model._record
        check_tensor("samples", samples, f"(..., {self.num_outputs})", width=self.num_outputs)
        if record.predictive is softmax_log_probabilities:
            return torch.softmax(samples, -1)
        if record.is_multi_class or record.is_ordinal:
            raise ValueError(f"probability is for two classes and for softmax; the model has {record.likelihood!r}.")
        arrays = link_arrays(record)
        (guess, lapse), weight, variance = (
            torch.tensor(arrays[name]).to(samples) for name in ("rates", "link_weights", "link_variances")
        )
        positive = guess + (1.0 - guess - lapse) * (torch.special.ndtr(samples / variance.sqrt()) @ weight)
        return torch.stack([1.0 - positive, positive], -1)

    def condition_on_observations(self, X: torch.Tensor, Y: torch.Tensor, **kwargs: Any) -> LatentModel:
        """The model with further labels: ``partial_fit`` of a copy, where the new rows become inducing points.

        Parameters
        ----------
        X : tensor (n, d)
        Y : tensor (n, 1)
            Labels as positions in ``classes_``: 0, 1, ...

        Raises
        ------
        ValueError
            For batches of data sets, for other values, and as ``partial_fit`` does.
        """
        classes, label = self.model.classes_, Y.detach().cpu().numpy()
        if X.ndim != 2 or label.shape != (len(X), 1) or not np.all(np.isin(label, np.arange(len(classes)))):
            raise ValueError(
                f"X must be (n, d), and Y (n, 1) with positions 0 to {len(classes) - 1} in classes_; got shapes "
                f"{tuple(X.shape)} and {tuple(label.shape)}, and values from {label.min()} to {label.max()}."
            )
        rows, labels = X.detach().to("cpu", torch.float64).numpy(), classes[label[:, 0].astype(int)]
        return LatentModel(copy.copy(self.model).partial_fit(rows, labels, n_new_inducing=len(rows)))
